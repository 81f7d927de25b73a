//! A replay that skips ahead against one that looks at every request in every step: all that either leaves behind or tells is
//! equal. Uses `engine`. Engines are small, so that blocks, places and budgets run out all the time, and outputs long, so that
//! they run on where nothing does.

#![allow(clippy::unwrap_used)]

use std::collections::VecDeque;

use proptest::prelude::*;

use super::config::{EngineConfig, SchedulingPolicy};
use super::engine::replay_at;
use super::kv_metrics::KvWatch;
use super::observe::{KvEvent, Observer, StepEvent};
use super::offload::{KvDisk, KvOffload};
use super::record::Replay;
use crate::latency::{FixedLatency, HostTimes, LatencyModel, TransferDirection};
use crate::request::Request;
use crate::workload::{Segment, Workload, WorkloadRequest};

/// Constants, but for steps: each batch takes a time of its own, whatever is different about it.
#[derive(Debug, Clone, Copy)]
struct TellTale(FixedLatency);

impl LatencyModel for TellTale {
    fn step_time_us(&self, requests: &[Request]) -> f64 {
        let hash = requests.iter().fold(17u64, |hash, request| {
            let words = [request.num_computed_tokens, request.num_scheduled_tokens, u32::from(request.samples)];
            words.iter().fold(hash, |hash, word| (hash ^ u64::from(*word)).wrapping_mul(0x0000_0100_0000_01b3))
        });
        self.0.step_us + (hash >> 54) as f64 / 1000.0
    }
    fn host(&self) -> HostTimes {
        self.0.host()
    }
    fn kv_transfer_time_us(&self, direction: TransferDirection, bytes: u64) -> f64 {
        let share = if direction == TransferDirection::GpuToCpu { 0.25 } else { 0.75 };
        self.0.step_us * share * bytes as f64
    }
}

/// Requests at their times, or each when one before it is over.
struct Load {
    requests: VecDeque<WorkloadRequest>,
    due_ns: Option<VecDeque<u64>>,
    last_ns: u64,
}

impl Workload for Load {
    fn next_arrival_ns(&self) -> Option<u64> {
        let listed_ns = self.requests.front()?.arrival_ns;
        self.due_ns.as_ref().map_or(Some(listed_ns), |due_ns| due_ns.front().copied())
    }
    fn next_request(&mut self) -> Option<WorkloadRequest> {
        let arrival_ns = self.next_arrival_ns()?;
        self.due_ns.as_mut().map(VecDeque::pop_front);
        self.requests.pop_front().map(|request| WorkloadRequest { arrival_ns, ..request })
    }
    fn finished(&mut self, now_ns: u64, _: u32, _request: u32) {
        self.last_ns = self.last_ns.max(now_ns);
        if let Some(due_ns) = &mut self.due_ns {
            due_ns.push_back(self.last_ns);
        }
    }
}

/// All that an observer is told, in the order in which it is.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Event {
    Step { numbers: [u64; 8], batch: Vec<Request>, records: Vec<u32> },
    Token { record: u32, token: u32, now_ns: u64 },
    Kv(KvEvent),
}

#[derive(Debug, Default)]
struct Told<const EVERY_TOKEN: bool>(Vec<Event>);

impl<const EVERY_TOKEN: bool> Observer for Told<EVERY_TOKEN> {
    fn step(&mut self, step: &StepEvent<'_>) {
        let small =
            [step.num_running, step.num_waiting, step.blocks_in_use, step.preempted.len() as u32].map(u64::from);
        let [running, waiting, blocks, preempted] = small;
        let times = [step.scheduled_ns, step.start_ns, step.end_ns];
        let numbers = [step.index, times[0], times[1], times[2], running, waiting, blocks, preempted];
        self.0.push(Event::Step { numbers, batch: step.batch.to_vec(), records: step.records.to_vec() });
    }
    fn token(&mut self, record: u32, token: u32, now_ns: u64) {
        self.0.push(Event::Token { record, token, now_ns });
    }
    fn wants_every_token(&self) -> bool {
        EVERY_TOKEN
    }
    fn kv(&mut self, event: &KvEvent) {
        self.0.push(Event::Kv(event.clone()));
    }
    fn wants_kv_events(&self) -> bool {
        true
    }
}

#[derive(Debug, Clone)]
struct Case {
    config: EngineConfig,
    latency: TellTale,
    requests: Vec<WorkloadRequest>,
    /// Requests in flight where the loop is closed.
    concurrency: Option<usize>,
}

impl Case {
    fn run<O: Observer>(&self, fast_forward: bool, observer: &mut O) -> Replay {
        let due_ns = self.concurrency.map(|clients| std::iter::repeat_n(0, clients).collect());
        let mut load = Load { requests: self.requests.clone().into(), due_ns, last_ns: 0 };
        replay_at(fast_forward, &self.latency, &self.config, &mut load, observer).unwrap()
    }

    /// Whether requests with blocks wait for each other, as they can with a host's tier.
    fn is_stuck(&self) -> bool {
        let due_ns = self.concurrency.map(|clients| std::iter::repeat_n(0, clients).collect());
        let mut load = Load { requests: self.requests.clone().into(), due_ns, last_ns: 0 };
        replay_at(false, &self.latency, &self.config, &mut load, &mut ()).is_err()
    }
}

fn config() -> impl Strategy<Value = EngineConfig> {
    let blocks = prop_oneof![3 => 4u32..=40, 1 => 100u32..=400];
    let budget = prop_oneof![2 => 1u32..=16, 2 => 16u32..=128];
    let sizes = (1u32..=9, blocks, budget, 1u32..=12, any::<u32>());
    let flags = (any::<bool>(), prop::bool::weighted(0.8), prop::bool::weighted(0.7), prop::bool::weighted(0.7));
    let rest = (prop_oneof![2 => Just(0u32), 1 => 1u32..=16], prop_oneof![6 => Just(1u32), 1 => 2u32..=3]);
    (sizes, flags, rest).prop_map(|((block_size, usable, budget, max_num_seqs, length), flags, (threshold, stages))| {
        let (by_priority, chunked, caching, ahead) = flags;
        let states = if length % 4 == 0 { 2 } else { 0 };
        let most = (usable * block_size).min(160);
        let max_model_len = most / 2 + length % (most - most / 2) + 1;
        EngineConfig {
            max_num_seqs,
            max_num_batched_tokens: if chunked { budget } else { budget.max(max_model_len) },
            max_model_len: max_model_len.min(most),
            block_size,
            state_blocks_per_request: states,
            num_gpu_blocks: usable + states + 1,
            enable_prefix_caching: caching,
            enable_chunked_prefill: chunked,
            long_prefill_token_threshold: threshold,
            scheduler_reserve_full_isl: length % 7 < 3,
            scheduling_policy: if by_priority { SchedulingPolicy::Priority } else { SchedulingPolicy::Fcfs },
            async_scheduling: ahead,
            pipeline_parallel_size: stages,
            kv_offload: (caching && stages == 1 && states == 0 && length % 3 > 0).then_some(KvOffload {
                num_cpu_blocks: 1 + length / 8 % 40,
                block_bytes: 1 + u64::from(length / 512 % 7),
                offload_prompt_only: length % 5 == 0,
                contention: if length % 2 == 0 { 1.0 } else { 0.625 },
                disk: (length % 4 == 1)
                    .then_some(KvDisk { block_bytes: 2, num_disk_blocks: (length % 7 == 2).then_some(9) }),
            }),
        }
    })
}

fn latency() -> impl Strategy<Value = TellTale> {
    let us = |most: u32| (0..=4 * most).prop_map(|quarters| f64::from(quarters) / 4.0);
    (us(10), us(5), us(2), us(12), us(2)).prop_map(
        |(step, queueing_us, output_token_us, scheduling_us, preemption_us)| {
            TellTale(FixedLatency { step_us: 1.0 + step, queueing_us, output_token_us, scheduling_us, preemption_us })
        },
    )
}

/// Prompts are short but for one in four, and begin alike; one request in 20 is too long.
fn request(max_model_len: u32) -> impl Strategy<Value = WorkloadRequest> {
    let content = prop::collection::vec((0u64..3, 1u32..20), 0..3);
    let lengths = (any::<u32>(), any::<u32>(), prop::bool::weighted(0.25), prop::bool::weighted(0.05));
    let rest = (-2i32..=2, 0u32..3);
    (lengths, content, rest).prop_map(move |((prompt, output, is_long, too_long), pieces, (priority, stage))| {
        let most_prompt = if is_long { max_model_len - 1 } else { 8.min(max_model_len - 1) };
        let num_prompt_tokens = 1 + prompt % most_prompt + if too_long { max_model_len } else { 0 };
        let most = max_model_len.saturating_sub(num_prompt_tokens).max(1);
        let content = pieces.iter().map(|&(id, num_tokens)| Segment { id, num_tokens }).collect();
        WorkloadRequest {
            priority,
            stage,
            content: (!pieces.is_empty()).then_some(content),
            ..WorkloadRequest::new(0, num_prompt_tokens, 1 + output % most)
        }
    })
}

fn case() -> impl Strategy<Value = Case> {
    (config(), latency()).prop_flat_map(|(config, latency)| {
        let gap = prop_oneof![2 => Just(0u64), 3 => 0u64..40_000, 1 => 0u64..600_000];
        let requests = prop::collection::vec((gap, request(config.max_model_len)), 0..32);
        let concurrency = prop_oneof![2 => Just(None), 1 => (1usize..=12).prop_map(Some)];
        (requests, concurrency).prop_map(move |(sent, concurrency)| {
            let mut arrival_ns = 0;
            let requests = sent.into_iter().map(|(gap_ns, request)| {
                arrival_ns += gap_ns;
                WorkloadRequest { arrival_ns, ..request }
            });
            Case { config: config.clone(), latency, requests: requests.collect(), concurrency }
        })
    })
}

fn same(a: &Replay, b: &Replay) -> Result<(), TestCaseError> {
    prop_assert_eq!(&a.records, &b.records);
    prop_assert_eq!(a.counters, b.counters);
    prop_assert_eq!(a.offload, b.offload);
    prop_assert!(a.inter_token_ns == b.inter_token_ns);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(768))]

    #[test]
    fn skipping_ahead_comes_to_the_same(case in case()) {
        prop_assume!(case.config.kv_offload.is_none() || !case.is_stuck());
        let (mut slowly, mut told) = (Told::<true>::default(), Told::<true>::default());
        let step_by_step = case.run(false, &mut slowly);
        same(&step_by_step, &case.run(true, &mut told))?;
        prop_assert_eq!(&slowly.0, &told.0);

        same(&step_by_step, &case.run(true, &mut ()))?;
        let mut less = Told::<false>::default();
        same(&step_by_step, &case.run(true, &mut less))?;
        let (mut followed, mut skipped) = (KvWatch::default(), KvWatch::default());
        same(&step_by_step, &case.run(false, &mut followed))?;
        same(&step_by_step, &case.run(true, &mut skipped))?;
        prop_assert_eq!(followed, skipped);
        // Those who do not want every token lack no other event.
        let is_later_token = |event: &Event| matches!(event, Event::Token { token: 1.., .. });
        let without = |events: &[Event]| events.iter().filter(|event| !is_later_token(event)).cloned().collect::<Vec<_>>();
        prop_assert_eq!(without(&slowly.0), without(&less.0));
    }
}

fn alone(num_output_tokens: u32) -> Case {
    let config = EngineConfig::new(&crate::deployment::Deployment::default(), 4096, 1000);
    let latency = TellTale(FixedLatency { step_us: 10.0, ..FixedLatency::default() });
    let requests = vec![WorkloadRequest::new(0, 40, num_output_tokens), WorkloadRequest::new(0, 9, num_output_tokens)];
    Case { config, latency, requests, concurrency: None }
}

/// Two requests with 50 tokens each: the step of their prompts delivers the first two, and nobody looks at the other 98.
#[test]
fn steady_decodes_are_not_looked_at() {
    let tokens = |fast_forward| {
        let mut told = Told::<false>::default();
        let replay = alone(50).run(fast_forward, &mut told);
        assert_eq!(replay.counters.steps, 50);
        // 40 + 50 − 1 tokens are in ⌈89 / 16⌉ = 6 blocks in the end, 9 + 50 − 1 in ⌈58 / 16⌉ = 4.
        assert_eq!((replay.counters.max_blocks_in_use, replay.inter_token_ns[0].len()), (10, 98));
        told.0.iter().filter(|event| matches!(event, Event::Token { .. })).count()
    };
    assert_eq!((tokens(true), tokens(false)), (2, 100));
}

/// One output token: the prompt's step is the last one, and nothing is ever steady.
#[test]
fn single_tokens_never_settle() {
    let mut told = Told::<false>::default();
    let replay = alone(1).run(true, &mut told);
    assert_eq!((replay.counters.steps, replay.counters.scheduled_tokens, replay.inter_token_ns[0].len()), (1, 49, 0));
}

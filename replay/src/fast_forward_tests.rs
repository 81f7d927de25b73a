//! A replay that skips ahead against one that looks at every request in every step: all that either leaves behind or reports is
//! equal. Uses `engine`. Engines are small, so that blocks, places and budgets run out all the time, and outputs long, so that
//! they run on where nothing does.

#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use ridgepoint::latency::{FixedLatency, HostTimes, LatencyModel, TransferDirection};
use ridgepoint::model::{OwnSampling, SamplerWork, SamplingParams};
use ridgepoint::{Request, Result, Step};

use super::config::EngineConfig;
use super::engine::replay_at;
use super::kv_metrics::KvWatch;
use super::observe::{Event, Events, KvEvent, Observer};
use super::offload::{KvDisk, KvOffload};
use super::record::{Outcome, Replay, RequestRecord};
use super::scheduler::DELIVERED;
use crate::workload::WorkloadRequest;
use crate::{CapacitySchedulerPolicy, ContextChunkingPolicy, EngineRules, SglangOptions, SglangPolicy, TrtllmOptions};

#[path = "../tests/common/replay_cases.rs"]
mod cases;
#[path = "../tests/common/loads.rs"]
mod loads;
use cases::{Case, Sent};
use loads::load;

/// Constants, but for steps: each batch takes a time of its own, whatever is different about it.
#[derive(Debug, Clone, Copy)]
struct BatchHashed(FixedLatency);

impl LatencyModel for BatchHashed {
    fn step_time_us(&self, step: &Step<'_>) -> f64 {
        let hash = step.requests.iter().fold(17u64, |hash, request| {
            let words = [request.num_computed_tokens, request.num_scheduled_tokens, u32::from(request.samples)];
            words.iter().fold(hash, |hash, word| (hash ^ u64::from(*word)).wrapping_mul(0x0000_0100_0000_01b3))
        });
        let server = SamplingParams { top_k: Some(9), ..SamplingParams::default() };
        let works = step.own_sampling.iter().map(|own| own.over(&server));
        let work = works.fold(SamplerWork::default(), |all, work| all | work);
        let kinds = [work.is_random(), work.is_greedy(), work.has_top_p(), work.has_top_k()];
        let sampler_us = kinds.iter().fold(0.0, |sum, kind| 2.0 * sum + f64::from(u8::from(*kind)));
        self.0.step_us + (hash >> 54) as f64 / 1000.0 + sampler_us
    }
    fn host(&self) -> HostTimes {
        self.0.host()
    }
    fn kv_transfer_time_us(&self, direction: TransferDirection, bytes: u64) -> f64 {
        let share = if direction == TransferDirection::GpuToCpu { 0.25 } else { 0.75 };
        self.0.step_us * share * bytes as f64
    }
}

/// All events that an observer gets, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Recorded {
    Step { numbers: [u64; 8], batch: Vec<Request>, records: Vec<u32> },
    Token { record: u32, token: u32, now_ns: u64 },
    Kv(KvEvent),
}

#[derive(Debug, Default)]
struct Recorder<const EVERY_TOKEN: bool>(Vec<Recorded>);

impl<const EVERY_TOKEN: bool> Observer for Recorder<EVERY_TOKEN> {
    fn wants(&self) -> Events {
        Events::STEPS | Events::KV | if EVERY_TOKEN { Events::TOKENS } else { Events::FIRST_TOKENS }
    }
    fn on(&mut self, event: &Event<'_>) {
        self.0.push(match *event {
            Event::Step(event) => {
                let small = [event.num_running, event.num_waiting, event.blocks_in_use, event.preempted.len() as u32];
                let [running, waiting, blocks, preempted] = small.map(u64::from);
                let times = [event.scheduled_ns, event.start_ns, event.end_ns];
                let numbers = [event.index, times[0], times[1], times[2], running, waiting, blocks, preempted];
                let (batch, records) = (event.step.requests.to_vec(), event.records.to_vec());
                Recorded::Step { numbers, batch, records }
            }
            Event::Token { record, token, now_ns } => Recorded::Token { record, token, now_ns },
            Event::Kv(event) => Recorded::Kv(event.clone()),
            Event::Blocks(_) => panic!("nobody wants the lives of blocks"),
        });
    }
}

fn run(case: &Case, fast_forward: bool, observers: &mut [&mut dyn Observer]) -> Result<Replay> {
    // In every other case, requests have sampling parameters of three kinds.
    let greedy = SamplingParams { temperature: Some(0.0), ..SamplingParams::default() };
    let kinds = [SamplingParams::default(), greedy, SamplingParams { top_p: Some(0.5), ..SamplingParams::default() }];
    let requests = case.requests.iter().cloned().enumerate().map(|(index, request)| {
        let kind = if case.requests.len().is_multiple_of(2) { 0 } else { index * index % 3 };
        WorkloadRequest { sampling: OwnSampling::from(&kinds[kind]), ..request }
    });
    let mut load = load(requests.collect(), case.concurrency);
    replay_at(fast_forward, &BatchHashed(case.latency), &case.config, load.as_mut(), observers)
}

fn sglang(number: u32, config: &EngineConfig) -> EngineRules {
    EngineRules::Sglang(SglangOptions {
        chunked_prefill_size: match number % 7 {
            0 => -1,
            _ => (config.block_size * (1 + number / 16 % 30)) as i32,
        },
        max_prefill_tokens: 1 + number / 4 % 200,
        schedule_conservativeness: if number.is_multiple_of(3) { 0.3 } else { 1.0 },
        scheduler_recv_interval: 1 + number % 4,
        schedule_policy: [SglangPolicy::Fcfs, SglangPolicy::Lpm, SglangPolicy::DfsWeight, SglangPolicy::Lof]
            [number as usize / 32 % 4],
        enable_mixed_chunk: number % 11 > 6,
        ignore_eos: number.is_multiple_of(2),
    })
}

fn trtllm(number: u32) -> EngineRules {
    EngineRules::Trtllm(TrtllmOptions {
        capacity_scheduler_policy: match number / 8 % 5 {
            0 | 1 => CapacitySchedulerPolicy::GuaranteedNoEvict,
            2 | 3 => CapacitySchedulerPolicy::MaxUtilization,
            _ => CapacitySchedulerPolicy::StaticBatch,
        },
        context_chunking_policy: if number.is_multiple_of(2) {
            ContextChunkingPolicy::FirstComeFirstServed
        } else {
            ContextChunkingPolicy::EqualProgress
        },
        batch_wait_timeout_iters: if number.is_multiple_of(3) { number / 16 % 9 } else { 0 },
        batch_wait_max_tokens_ratio: f64::from(number / 64 % 5) / 4.0,
    })
}

/// Prompts are short but for one in four, so that outputs run on.
fn case() -> impl Strategy<Value = Case> {
    let blocks = prop_oneof![3 => 4u32..=40, 1 => 100u32..=400];
    let budget = prop_oneof![2 => 1u32..=16, 2 => 16u32..=128];
    let sizes =
        (1u32..=9, blocks, budget, 1u32..=12).prop_map(|(block, usable, budget, seqs)| [block, usable, budget, seqs]);
    let threshold = prop_oneof![2 => Just(0u32), 1 => 1u32..=16];
    let stages = prop_oneof![6 => Just(1u32), 1 => 2u32..=3];
    let longest = |tokens: u32, number| {
        let most = tokens.min(160);
        most / 2 + number % (most - most / 2) + 1
    };
    let config = cases::config(sizes, 0.7, threshold, stages, longest).prop_map(|(config, number)| {
        let states = if number % 4 == 0 { 2 } else { 0 };
        let is_tiered = config.scheduler.enable_prefix_caching
            && config.pipeline_parallel_size == 1
            && states == 0
            && number % 3 > 0;
        let rules = match number % 5 {
            _ if is_tiered || config.pipeline_parallel_size > 1 => EngineRules::Vllm,
            1 | 2 if states == 0 => sglang(number, &config),
            3 | 4 => trtllm(number),
            _ => EngineRules::Vllm,
        };
        let is_trtllm = matches!(rules, EngineRules::Trtllm(_));
        let budget = config.max_num_batched_tokens;
        let own_budget = if config.scheduler.enable_chunked_prefill {
            budget.max(config.block_size)
        } else {
            budget - number / 32 % budget.div_ceil(2)
        };
        EngineConfig {
            rules,
            max_num_batched_tokens: if is_trtllm { own_budget } else { budget },
            state_blocks_per_request: states,
            num_gpu_blocks: config.num_gpu_blocks + states,
            kv_offload: is_tiered.then_some(KvOffload {
                num_cpu_blocks: 1 + number / 8 % 40,
                block_bytes: 1 + u64::from(number / 512 % 7),
                offload_prompt_only: number % 5 == 0,
                contention: if number % 2 == 0 { 1.0 } else { 0.625 },
                disk: (number % 4 == 1)
                    .then_some(KvDisk { block_bytes: 2, num_disk_blocks: (number % 7 == 2).then_some(9) }),
            }),
            ..config
        }
    });
    let sent = Sent {
        most_requests: 32,
        gap_ns: 40_000,
        piece_tokens: 1..20,
        long_prompts: 0.25,
        timed_loads: 2,
        most_clients: 12,
    };
    cases::case(config, sent)
}

fn same(a: &Replay, b: &Replay) -> std::result::Result<(), TestCaseError> {
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
        // Requests with blocks of a host's tier can wait for each other.
        prop_assume!(case.config.kv_offload.is_none() || run(&case, false, &mut []).is_ok());
        let (mut slowly, mut recorder) = (Recorder::<true>::default(), Recorder::<true>::default());
        let step_by_step = run(&case, false, &mut [&mut slowly]).unwrap();
        same(&step_by_step, &run(&case, true, &mut [&mut recorder]).unwrap())?;
        prop_assert_eq!(&slowly.0, &recorder.0);
        if !case.config.rules.is_vllm() {
            let is_done = |of: &RequestRecord| of.outcome != Outcome::Unfinished;
            prop_assert!(step_by_step.records.iter().all(is_done), "{:?}", step_by_step.records);
        }

        same(&step_by_step, &run(&case, true, &mut []).unwrap())?;
        let mut less = Recorder::<false>::default();
        same(&step_by_step, &run(&case, true, &mut [&mut less]).unwrap())?;
        let (mut followed, mut skipped) = (KvWatch::default(), KvWatch::default());
        same(&step_by_step, &run(&case, false, &mut [&mut followed]).unwrap())?;
        same(&step_by_step, &run(&case, true, &mut [&mut skipped]).unwrap())?;
        prop_assert_eq!(followed, skipped);
        // Those who do not want every token lack no other event.
        let is_later_token = |event: &Recorded| matches!(event, Recorded::Token { token: 1.., .. });
        let without = |events: &[Recorded]| events.iter().filter(|event| !is_later_token(event)).cloned().collect::<Vec<_>>();
        prop_assert_eq!(without(&slowly.0), less.0);
    }
}

fn alone(num_output_tokens: u32) -> Case {
    let config = EngineConfig::new(&ridgepoint::Deployment::default(), 4096, 1000);
    let latency = FixedLatency { step_us: 10.0, ..FixedLatency::default() };
    let requests = vec![WorkloadRequest::new(0, 40, num_output_tokens), WorkloadRequest::new(0, 9, num_output_tokens)];
    Case { config, latency, requests, concurrency: None }
}

/// Two requests with 50 tokens each: the step of their prompts delivers the first two, and nobody looks at the other 98.
#[test]
fn steady_decodes_are_not_looked_at() {
    let looked_at = |fast_forward| {
        let mut recorder = Recorder::<false>::default();
        let before = DELIVERED.get();
        let replay = run(&alone(50), fast_forward, &mut [&mut recorder]).unwrap();
        assert_eq!(replay.counters.steps, 50);
        // 40 + 50 − 1 tokens are in ⌈89 / 16⌉ = 6 blocks in the end, 9 + 50 − 1 in ⌈58 / 16⌉ = 4.
        assert_eq!((replay.counters.max_blocks_in_use, replay.inter_token_ns[0].len()), (10, 98));
        assert_eq!(recorder.0.iter().filter(|event| matches!(event, Recorded::Token { .. })).count(), 2);
        DELIVERED.get() - before
    };
    assert_eq!((looked_at(true), looked_at(false)), (2, 100));
}

/// One output token: the prompt's step is the last one, and nothing is ever steady.
#[test]
fn single_tokens_never_settle() {
    let mut recorder = Recorder::<false>::default();
    let replay = run(&alone(1), true, &mut [&mut recorder]).unwrap();
    assert_eq!((replay.counters.steps, replay.counters.scheduled_tokens, replay.inter_token_ns[0].len()), (1, 49, 0));
}

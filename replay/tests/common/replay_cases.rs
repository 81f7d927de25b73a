//! Random engines, delays and loads for laws of replays. Engines are small, so that blocks, places and budgets run out all the time.

use std::ops::Range;

use proptest::prelude::*;
use ridgepoint::latency::FixedLatency;
use ridgepoint_replay::workload::{Segment, WorkloadRequest};
use ridgepoint_replay::{EngineConfig, EngineRules, SchedulerOptions, SchedulingPolicy};

/// An engine, its delays, and what is sent to it.
#[derive(Debug, Clone)]
pub struct Case {
    pub config: EngineConfig,
    pub latency: FixedLatency,
    pub requests: Vec<WorkloadRequest>,
    /// Requests in flight where the loop is closed; given times otherwise.
    pub concurrency: Option<usize>,
}

/// Ranges of what is sent.
#[derive(Debug, Clone)]
pub struct Sent {
    pub most_requests: usize,
    /// End of the usual gaps between requests; one gap in six may be 15 times as long.
    pub gap_ns: u64,
    /// Lengths of the texts that prompts begin with.
    pub piece_tokens: Range<u32>,
    /// Share of prompts that may be as long as the engine takes; others have eight tokens at most.
    pub long_prompts: f64,
    /// Loads at given times for each closed loop.
    pub timed_loads: u32,
    pub most_clients: usize,
}

/// Generates engines without KV offloading, each with a random number from which the caller derives further settings. `sizes` holds
/// `block_size`, the usable blocks, `max_num_batched_tokens` and `max_num_seqs`. `longest` computes `max_model_len` from the tokens in all
/// blocks and the random number.
pub fn config(
    sizes: impl Strategy<Value = [u32; 4]>,
    ahead: f64,
    threshold: impl Strategy<Value = u32>,
    stages: impl Strategy<Value = u32>,
    longest: fn(u32, u32) -> u32,
) -> impl Strategy<Value = (EngineConfig, u32)> {
    let flags = (any::<bool>(), prop::bool::weighted(0.8), prop::bool::weighted(0.7), prop::bool::weighted(ahead));
    (sizes, flags, threshold, stages, any::<u32>()).prop_map(move |(sizes, flags, threshold, stages, number)| {
        let [block_size, usable, budget, max_num_seqs] = sizes;
        let (by_priority, chunked, caching, ahead) = flags;
        let max_model_len = longest(usable * block_size, number);
        #[allow(clippy::needless_update, reason = "another argument of the scheduler has its default")]
        let config = EngineConfig {
            max_num_seqs,
            max_num_batched_tokens: if chunked { budget } else { budget.max(max_model_len) },
            max_model_len,
            block_size,
            state_blocks_per_request: 0,
            window_share: 0.0,
            window_blocks: 0,
            num_gpu_blocks: usable + 1,
            scheduler: SchedulerOptions {
                enable_prefix_caching: caching,
                enable_chunked_prefill: chunked,
                long_prefill_token_threshold: threshold,
                scheduler_reserve_full_isl: number % 7 < 3,
                scheduling_policy: if by_priority { SchedulingPolicy::Priority } else { SchedulingPolicy::Fcfs },
                async_scheduling: ahead,
                ..SchedulerOptions::default()
            },
            pipeline_parallel_size: stages,
            rules: EngineRules::Vllm,
            speculation: None,
            kv_offload: None,
        };
        (config, number)
    })
}

fn latency() -> impl Strategy<Value = FixedLatency> {
    let us = |most: u32| (0..=4 * most).prop_map(|quarters| f64::from(quarters) / 4.0);
    (us(10), us(5), us(2), us(12), us(2)).prop_map(
        |(step, queueing_us, output_token_us, scheduling_us, preemption_us)| FixedLatency {
            step_us: 1.0 + step,
            queueing_us,
            output_token_us,
            scheduling_us,
            preemption_us,
        },
    )
}

/// Generates requests, of which one in 20 is longer than `max_model_len`. Prompts begin with few different texts, so that many share a prefix.
fn request(max_model_len: u32, sent: &Sent) -> impl Strategy<Value = WorkloadRequest> + use<> {
    let content = prop::collection::vec((0u64..3, sent.piece_tokens.clone()), 0..3);
    let is_long = prop::bool::weighted(sent.long_prompts);
    let lengths = (any::<u32>(), any::<u32>(), is_long, prop::bool::weighted(0.05));
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

/// Loads on engines of `config`.
pub fn case(config: impl Strategy<Value = EngineConfig>, sent: Sent) -> impl Strategy<Value = Case> {
    (config, latency()).prop_flat_map(move |(config, latency)| {
        let gap = prop_oneof![2 => Just(0u64), 3 => 0..sent.gap_ns, 1 => 0..15 * sent.gap_ns];
        let requests = prop::collection::vec((gap, request(config.max_model_len, &sent)), 0..sent.most_requests);
        let clients = (1..=sent.most_clients).prop_map(Some);
        let concurrency = prop_oneof![sent.timed_loads => Just(None), 1 => clients];
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

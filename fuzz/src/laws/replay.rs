//! Laws of a replay: it ends, answers or refuses every request, keeps times in order, and loses no token and no block.

use arbitrary::{Result, Unstructured};
use ridgepoint::latency::FixedLatency;
use ridgepoint_replay::workload::{Segment, WorkloadRequest};
use ridgepoint_replay::{EngineConfig, EngineRules, Outcome, Replay, SchedulerOptions, SchedulingPolicy, replay};

#[path = "../../../replay/tests/common/loads.rs"]
mod loads;
#[path = "../../../replay/tests/common/replay.rs"]
mod observed;
use loads::load;
use observed::Recorder;

/// Most requests of a case.
const MOST_REQUESTS: usize = 30;

struct Case {
    config: EngineConfig,
    latency: FixedLatency,
    requests: Vec<WorkloadRequest>,
    /// Requests in flight where the loop is closed; given times otherwise.
    concurrency: Option<usize>,
}

/// Engines are small, so that blocks, slots and budgets run out all the time.
fn config(from: &mut Unstructured<'_>) -> Result<EngineConfig> {
    let block_size = from.int_in_range(1..=8)?;
    let usable: u32 = from.int_in_range(2..=24)?;
    let budget = from.int_in_range(1..=64)?;
    let chunked = from.arbitrary()?;
    let max_model_len = from.int_in_range(2..=usable * block_size)?;
    #[allow(clippy::needless_update, reason = "another argument of the scheduler has its default")]
    let config = EngineConfig {
        max_num_seqs: from.int_in_range(1..=8)?,
        max_num_batched_tokens: if chunked { budget } else { budget.max(max_model_len) },
        max_model_len,
        block_size,
        state_blocks_per_request: 0,
        window_share: 0.0,
        window_blocks: 0,
        num_gpu_blocks: usable + 1,
        scheduler: SchedulerOptions {
            enable_prefix_caching: from.arbitrary()?,
            enable_chunked_prefill: chunked,
            long_prefill_token_threshold: if from.arbitrary()? { from.int_in_range(1..=16)? } else { 0 },
            scheduler_reserve_full_isl: from.arbitrary()?,
            scheduling_policy: if from.arbitrary()? { SchedulingPolicy::Priority } else { SchedulingPolicy::Fcfs },
            async_scheduling: from.arbitrary()?,
            ..SchedulerOptions::default()
        },
        pipeline_parallel_size: from.int_in_range(1..=3)?,
        rules: EngineRules::Vllm,
        speculation: None,
        kv_offload: None,
    };
    Ok(config)
}

fn delay_us(from: &mut Unstructured<'_>, most: u32) -> Result<f64> {
    Ok(f64::from(from.int_in_range(0..=4 * most)?) / 4.0)
}

fn request(from: &mut Unstructured<'_>, max_model_len: u32, arrival_ns: u64) -> Result<WorkloadRequest> {
    let num_prompt_tokens = from.int_in_range(1..=max_model_len + 2)?;
    let most = max_model_len.saturating_sub(num_prompt_tokens).max(1);
    let num_output_tokens = from.int_in_range(1..=most)?;
    let mut pieces = Vec::new();
    for _ in 0..from.int_in_range(0..=2)? {
        pieces.push(Segment { id: from.int_in_range(0..=2)?, num_tokens: from.int_in_range(1..=40)? });
    }
    Ok(WorkloadRequest {
        priority: from.int_in_range(-2..=2)?,
        stage: from.int_in_range(0..=2)?,
        content: (!pieces.is_empty()).then(|| pieces.into()),
        // More than the prompt has, too.
        num_cached_tokens: if from.arbitrary()? { from.int_in_range(0..=num_prompt_tokens + 2)? } else { 0 },
        ..WorkloadRequest::new(arrival_ns, num_prompt_tokens, num_output_tokens)
    })
}

fn case(from: &mut Unstructured<'_>) -> Result<Case> {
    let config = config(from)?;
    let latency = FixedLatency {
        step_us: 1.0 + delay_us(from, 10)?,
        queueing_us: delay_us(from, 5)?,
        output_token_us: delay_us(from, 2)?,
        scheduling_us: delay_us(from, 12)?,
        preemption_us: delay_us(from, 2)?,
    };
    let concurrency = if from.arbitrary()? { Some(from.int_in_range(1..=8)?) } else { None };
    let (mut requests, mut arrival_ns) = (Vec::new(), 0);
    while !from.is_empty() && requests.len() < MOST_REQUESTS {
        arrival_ns += if from.arbitrary()? { from.int_in_range(0..=30_000)? } else { 0 };
        requests.push(request(from, config.max_model_len, arrival_ns)?);
    }
    Ok(Case { config, latency, requests, concurrency })
}

/// Checks the laws on the load and the engine that the bytes stand for.
pub fn law(bytes: &[u8]) {
    let Ok(case) = case(&mut Unstructured::new(bytes)) else { return };
    let (replay, seen) = run(&case);
    assert_eq!(replay.records.len(), case.requests.len(), "a request is lost");
    let usable = case.config.usable_blocks();
    for step in &seen.steps {
        let tokens: u32 = step.batch.iter().map(|(_, request)| request.num_scheduled_tokens).sum();
        assert!((1..=case.config.max_num_batched_tokens).contains(&tokens), "{tokens} tokens in a step");
        assert!(step.blocks_in_use <= usable, "{} of {usable} blocks", step.blocks_in_use);
        assert!(step.num_running <= case.config.max_num_seqs && step.batch.len() <= step.num_running as usize);
        assert!(step.scheduled_ns <= step.start_ns && step.start_ns <= step.end_ns);
    }
    assert!(seen.steps.is_sorted_by_key(|step| (step.index, step.start_ns)));
    requests_are_answered(&case, &replay, &seen);
    tokens_are_conserved(&replay, &seen);
    let again = run(&case);
    assert_eq!((again.0.records, again.0.counters), (replay.records, replay.counters), "the same load, another replay");
}

fn run(case: &Case) -> (Replay, Recorder) {
    let mut seen = Recorder::default();
    let mut load = load(case.requests.clone(), case.concurrency);
    let replayed = replay(&case.latency, &case.config, load.as_mut(), &mut [&mut seen]);
    (replayed.expect("a sound engine and load"), seen)
}

fn requests_are_answered(case: &Case, replay: &Replay, seen: &Recorder) {
    let mut delivered = vec![(0, 0); replay.records.len()];
    for &(record, token, now_ns) in &seen.tokens {
        let (tokens, last_ns) = &mut delivered[record as usize];
        assert_eq!((token, *last_ns <= now_ns), (*tokens, true), "tokens are out of order");
        (*tokens, *last_ns) = (*tokens + 1, now_ns);
    }
    for ((record, sent), (tokens, last_ns)) in replay.records.iter().zip(&case.requests).zip(delivered) {
        assert_eq!((record.num_prompt_tokens, record.stage), (sent.num_prompt_tokens, sent.stage));
        if record.num_prompt_tokens + record.num_output_tokens > case.config.max_model_len {
            assert_eq!((record.outcome, tokens), (Outcome::Rejected, 0));
            continue;
        }
        assert_eq!((record.outcome, tokens), (Outcome::Finished, sent.num_output_tokens));
        assert!(record.arrival_ns <= record.queued_ns && record.queued_ns <= record.scheduled_ns);
        assert!(record.scheduled_ns < record.first_token_ns);
        assert!(record.first_token_ns <= record.finish_ns && record.finish_ns == last_ns);
    }
    let ends = replay.records.iter().map(|record| record.finish_ns);
    assert_eq!(replay.counters.end_ns, ends.max().unwrap_or(0));
}

/// Every prompt token is computed or found, once; what is computed again was lost to a preemption.
fn tokens_are_conserved(replay: &Replay, seen: &Recorder) {
    let mut reached = vec![0; replay.records.len()];
    let (mut new, mut again, mut scheduled) = (0, 0, 0);
    for (record, request) in seen.steps.iter().flat_map(|step| &step.batch) {
        let at = *record as usize;
        let (start, end) = (request.num_computed_tokens, request.num_computed_tokens + request.num_scheduled_tokens);
        again += u64::from(end.min(reached[at]).saturating_sub(start));
        new += u64::from(end.min(replay.records[at].num_prompt_tokens).saturating_sub(start.max(reached[at])));
        scheduled += u64::from(end - start);
        reached[at] = end.max(reached[at]);
    }
    let counters = replay.counters;
    assert_eq!((counters.scheduled_tokens, counters.recomputed_tokens), (scheduled, again));
    assert_eq!(counters.prefill_tokens, new + again);
    let answered = replay.records.iter().filter(|record| record.outcome == Outcome::Finished);
    let uncached = answered.map(|record| u64::from(record.num_prompt_tokens - record.num_cached_tokens));
    assert_eq!(uncached.sum::<u64>(), new, "prompt tokens are lost");
}

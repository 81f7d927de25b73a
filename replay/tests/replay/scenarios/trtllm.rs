//! TensorRT-LLM's scheduler. Blocks have 4 tokens; a step has at most 64, and takes 10 µs. No step is scheduled while another runs, but where
//! it says so.

use ridgepoint_replay::workload::WorkloadRequest;
use ridgepoint_replay::{
    CapacitySchedulerPolicy, ContextChunkingPolicy, EngineConfig, EngineRules, Outcome, SchedulerOptions, TrtllmOptions,
};

use super::support::{Run, engine_of, request, run, sharing, steps_and_scheduling, steps_only};

fn with(options: TrtllmOptions, usable: u32) -> EngineConfig {
    EngineConfig {
        rules: EngineRules::Trtllm(options),
        scheduler: SchedulerOptions { async_scheduling: false, ..engine_of(usable).scheduler },
        ..engine_of(usable)
    }
}

fn no_evict(usable: u32) -> EngineConfig {
    with(TrtllmOptions::default(), usable)
}

fn by(capacity_scheduler_policy: CapacitySchedulerPolicy) -> TrtllmOptions {
    TrtllmOptions { capacity_scheduler_policy, ..TrtllmOptions::default() }
}

fn play(config: &EngineConfig, requests: Vec<WorkloadRequest>) -> Run {
    run(&steps_only(), config, requests)
}

fn blocks_in_use(run: &Run) -> Vec<u32> {
    run.seen.steps.iter().map(|step| step.blocks_in_use).collect()
}

/// A may have 8 + 4 tokens, 3 of the 5 blocks. B's 4 + 4 are 2 and fit exactly; 5 + 4 are 9 tokens in 3 blocks. Though the last token is
/// never written, and each of the two would have 2 blocks now, B waits until A has ended.
#[test]
fn a_request_is_admitted_if_all_its_blocks_are_free() {
    let steps = play(&no_evict(5), vec![request(0, 8, 4), request(0, 4, 4)]).timeline();
    assert_eq!(steps[..2], ["0..10000 A@0+8 B@0+4", "10000..20000 A@8+1 B@4+1"]);
    let waits = play(&no_evict(5), vec![request(0, 8, 4), request(0, 5, 4)]);
    let steps = [
        "0..10000 A@0+8",
        "10000..20000 A@8+1",
        "20000..30000 A@9+1",
        "30000..40000 A@10+1",
        "40000..50000 B@0+5",
        "50000..60000 B@5+1",
        "60000..70000 B@6+1",
        "70000..80000 B@7+1",
    ];
    assert_eq!(waits.timeline(), steps);
    assert_eq!(blocks_in_use(&waits), [2, 3, 3, 3, 2, 2, 2, 2]);
}

/// As before, with a step in flight and 2 µs of the host, and a B of 8 + 1 tokens. A's last step is scheduled at 22 and ends at 42. Until then
/// A has its 3 blocks: when the step before ends at 32, B does not fit. It is scheduled at 42, with C, and the GPU idles for 2 µs.
#[test]
fn a_request_keeps_its_blocks_until_its_last_token_has_come_back() {
    let config = EngineConfig { scheduler: engine_of(5).scheduler, ..no_evict(5) };
    let run = run(&steps_and_scheduling(), &config, vec![request(0, 8, 4), request(0, 8, 1), request(0, 4, 2)]);
    let steps = [
        "2000..12000 A@0+8",
        "12000..22000 A@8+1",
        "22000..32000 A@9+1",
        "32000..42000 A@10+1",
        "44000..54000 B@0+8 C@0+4",
        "54000..64000 C@4+1",
    ];
    assert_eq!(run.timeline(), steps);
    assert_eq!(run.scheduled_ns(), [0, 2000, 12_000, 22_000, 42_000, 44_000]);
}

/// C's 2 tokens would fit beside A's 3 blocks, but B's 9 do not, and C is behind B.
#[test]
fn the_first_that_does_not_fit_holds_up_those_behind() {
    let run = play(&no_evict(5), vec![request(0, 8, 2), request(0, 5, 8), request(0, 1, 1)]);
    assert_eq!(run.timeline()[..3], ["0..10000 A@0+8", "10000..20000 A@8+1", "20000..30000 B@0+5 C@0+1"]);
}

/// 10 tokens a step. B's 5 do not fit behind A's 6, and hold up C's 2, which would. D's 11 never fit.
#[test]
fn without_chunks_the_first_context_that_does_not_fit_ends_the_step() {
    let config = EngineConfig {
        max_num_batched_tokens: 10,
        scheduler: SchedulerOptions { enable_chunked_prefill: false, ..no_evict(64).scheduler },
        ..no_evict(64)
    };
    let run = play(&config, vec![request(0, 6, 2), request(0, 5, 1), request(0, 2, 1), request(0, 11, 1)]);
    assert_eq!(run.timeline(), ["0..10000 A@0+6", "10000..20000 A@6+1 B@0+5 C@0+2"]);
    let outcomes: Vec<Outcome> = run.replay.records.iter().map(|record| record.outcome).collect();
    assert_eq!(outcomes[2..], [Outcome::Finished, Outcome::Rejected]);
}

/// 11 tokens a step: of the 5 that A leaves B gets 4, a block, and C's 2 do not fit the last one. The step after has A's decode, B's other 6
/// and C. B has the 3 blocks of its prompt from its first chunk on, beside A's 2.
#[test]
fn a_chunk_goes_down_to_a_block() {
    let config = EngineConfig { max_num_batched_tokens: 11, ..no_evict(64) };
    let run = play(&config, vec![request(0, 6, 2), request(0, 10, 1), request(0, 2, 1)]);
    assert_eq!(run.timeline(), ["0..10000 A@0+6 B@0+4~", "10000..20000 A@6+1 B@4+6 C@0+2"]);
    assert_eq!(blocks_in_use(&run), [5, 6]);
}

/// 9 tokens a step: A leaves 3, less than a block, so that B gets none. C needs no more and passes it.
#[test]
fn a_short_context_passes_one_that_is_cut_to_nothing() {
    let config = EngineConfig { max_num_batched_tokens: 9, ..no_evict(64) };
    let run = play(&config, vec![request(0, 6, 2), request(0, 10, 1), request(0, 3, 1)]);
    assert_eq!(run.timeline(), ["0..10000 A@0+6 C@0+3", "10000..20000 A@6+1 B@0+8~", "20000..30000 B@8+2"]);
}

/// 14 tokens a step: 4 for each of three, and of the 2 that are left B takes its last ones. The step after has the 8 of A and the 1 of C.
#[test]
fn equal_progress_deals_out_a_block_in_turn() {
    let options = TrtllmOptions {
        context_chunking_policy: ContextChunkingPolicy::EqualProgress,
        ..by(CapacitySchedulerPolicy::GuaranteedNoEvict)
    };
    let config = EngineConfig { max_num_batched_tokens: 14, ..with(options, 64) };
    let run = play(&config, vec![request(0, 12, 1), request(0, 6, 1), request(0, 5, 1)]);
    assert_eq!(run.timeline(), ["0..10000 A@0+4~ B@0+6 C@0+4~", "10000..20000 A@4+8 C@4+1"]);
}

/// 5 blocks: A and B have 2 each. At 10 A takes the fifth. At 20 B has 8 tokens and needs a third: it is the last that started, is paused,
/// and C, which came at 15, is not admitted in that step. B comes back in front of C. Its 7 + 2 tokens need 3 blocks, and 2 are free until A
/// ends at 40. All 9 are computed, 8 of them again.
#[test]
fn the_last_that_started_is_paused_and_computed_again() {
    let config = with(by(CapacitySchedulerPolicy::MaxUtilization), 5);
    let config =
        EngineConfig { scheduler: SchedulerOptions { enable_prefix_caching: false, ..config.scheduler }, ..config };
    let requests = vec![request(0, 8, 4), request(0, 7, 3), request(15, 1, 1)];
    let run = play(&config, requests);
    let steps = [
        "0..10000 A@0+8 B@0+7",
        "10000..20000 A@8+1 B@7+1",
        "20000..30000 A@9+1",
        "30000..40000 A@10+1",
        "40000..50000 B@0+9 C@0+1",
    ];
    assert_eq!(run.timeline(), steps);
    assert_eq!(run.tokens_ns(1), [10_000, 20_000, 50_000]);
    assert_eq!((run.replay.counters.preemptions, run.replay.counters.recomputed_tokens), (1, 8));
    assert_eq!(run.replay.records[1].num_preemptions, 1);
}

/// The prompts of a batch start together, and the next ones when all of it has ended.
#[test]
fn a_static_batch_waits_for_its_last_request() {
    let config = with(by(CapacitySchedulerPolicy::StaticBatch), 64);
    let run = play(&config, vec![request(0, 4, 2), request(0, 4, 3), request(5, 4, 1), request(15, 4, 1)]);
    let steps = ["0..10000 A@0+4 B@0+4", "10000..20000 A@4+1 B@4+1", "20000..30000 B@5+1", "30000..40000 C@0+4 D@0+4"];
    assert_eq!(run.timeline(), steps);
}

/// Contexts wait for two steps, or until a step has a quarter of 64 tokens. B's 4 with A's decode are 5: they wait at 10 and 20. With C's
/// 11 they are 16 at 20 and wait no more.
#[test]
fn contexts_wait_for_each_other_beside_decodes() {
    let options =
        TrtllmOptions { batch_wait_timeout_iters: 2, batch_wait_max_tokens_ratio: 0.25, ..TrtllmOptions::default() };
    let alone = play(&with(options, 64), vec![request(0, 4, 4), request(5, 4, 1)]);
    let steps = ["0..10000 A@0+4", "10000..20000 A@4+1", "20000..30000 A@5+1", "30000..40000 A@6+1 B@0+4"];
    assert_eq!(alone.timeline(), steps);
    let both = play(&with(options, 64), vec![request(0, 4, 4), request(5, 4, 1), request(15, 11, 1)]);
    assert_eq!(both.timeline()[1..3], ["10000..20000 A@4+1", "20000..30000 A@5+1 B@0+4 C@0+11"]);
}

/// A and B begin with the same 8 tokens: B waits for A's prompt, and C passes it. With 8 tokens a step A's prompt takes two, and B waits for
/// both, then has 1 of its 9 tokens to compute.
#[test]
fn a_request_waits_for_the_prefix_that_another_computes() {
    let requests = || vec![sharing(0, 9, 1, 7, 8), sharing(0, 9, 1, 7, 8), request(0, 5, 1)];
    let run = play(&no_evict(64), requests());
    assert_eq!(run.timeline(), ["0..10000 A@0+9 C@0+5", "10000..20000 B@8+1"]);
    assert_eq!(run.cached_tokens(), [0, 8, 0]);
    let run = play(&EngineConfig { max_num_batched_tokens: 8, ..no_evict(64) }, requests());
    assert_eq!(run.timeline(), ["0..10000 A@0+8~", "10000..20000 A@8+1 C@0+5", "20000..30000 B@8+1"]);
}

//! Preemption when KV blocks run out. Blocks have 4 tokens; a context fills at most all of them.

use ridgepoint::latency::FixedLatency;
use ridgepoint_replay::workload::WorkloadRequest;
use ridgepoint_replay::{EngineConfig, SchedulerOptions, SchedulingPolicy};

use super::support::{Run, engine_of, request, run, steps_and_scheduling, steps_only};

fn preempted(run: &Run) -> Vec<u32> {
    run.replay.records.iter().map(|record| record.num_preemptions).collect()
}

/// 4 blocks: A holds 1 2, B 3 4. At 2 A needs a third: B, the last, loses its two, and the scheduling takes 2 + 1 µs. B's first token is in flight and arrives at 12.
/// Then B has 8 tokens: its first block is still there (3), a second is needed, 1 + 1 of 1 free; and C waits behind it,
/// although it would fit. At 32 A
/// is over: B computes 4 of its 8 tokens, of which 3 again (4 to 6), and C comes with it.
#[test]
fn the_last_one_running_gives_way_and_comes_back() {
    let latency = FixedLatency { preemption_us: 1.0, ..steps_and_scheduling() };
    let run = run(&latency, &engine_of(4), vec![request(0, 8, 3), request(0, 7, 3), request(1, 3, 1)]);
    let steps = [
        "2000..12000 A@0+8 B@0+7",
        "12000..22000 A@8+1",
        "22000..32000 A@9+1",
        "34000..44000 B@4+4 C@0+3",
        "44000..54000 B@8+1",
    ];
    assert_eq!(run.timeline(), steps);
    assert_eq!(run.scheduled_ns(), [0, 2000, 12000, 32000, 34000]);
    assert_eq!(run.tokens_ns(1), [12_000, 44_000, 54_000]);
    let seen: Vec<_> =
        run.seen.steps.iter().map(|s| (s.num_running, s.num_waiting, s.blocks_in_use, s.num_preempted)).collect();
    assert_eq!(seen, [(2, 0, 4, 0), (1, 2, 3, 1), (1, 2, 3, 0), (2, 0, 3, 0), (2, 0, 4, 0)]);
    assert_eq!((preempted(&run), run.cached_tokens()), (vec![0, 1, 0], vec![0, 0, 0]));
    let counters = run.replay.counters;
    assert_eq!((counters.preemptions, counters.cached_tokens, counters.recomputed_tokens), (1, 4, 3));
    assert_eq!((counters.scheduled_tokens, counters.prefill_tokens, counters.max_blocks_in_use), (25, 21, 4));
}

/// The preemption's microsecond delays a step where it is not hidden: host from 22 to 25, the GPUs were free at 22.
#[test]
fn a_preemption_costs_the_host_time() {
    let latency = FixedLatency { preemption_us: 1.0, ..steps_and_scheduling() };
    let config = EngineConfig {
        scheduler: SchedulerOptions { async_scheduling: false, ..engine_of(4).scheduler },
        ..engine_of(4)
    };
    let run = run(&latency, &config, vec![request(0, 8, 3), request(0, 7, 3), request(1, 3, 1)]);
    let steps = [
        "2000..12000 A@0+8 B@0+7",
        "15000..25000 A@8+1",
        "27000..37000 A@9+1",
        "39000..49000 B@4+4 C@0+3",
        "51000..61000 B@8+1",
    ];
    assert_eq!(run.timeline(), steps);
}

/// As the first, but what was computed is lost: B begins again, 7 tokens of the 8 for the second time.
#[test]
fn without_the_cache_everything_is_computed_again() {
    let config = EngineConfig {
        scheduler: SchedulerOptions { enable_prefix_caching: false, ..engine_of(4).scheduler },
        ..engine_of(4)
    };
    let run = run(&steps_and_scheduling(), &config, vec![request(0, 8, 3), request(0, 7, 3), request(1, 3, 1)]);
    assert_eq!(run.timeline()[3], "34000..44000 B@0+8 C@0+3");
    assert_eq!((run.replay.counters.recomputed_tokens, run.replay.counters.prefill_tokens), (7, 25));
}

/// 5 blocks: A takes the last, B needs one as well and is itself the last one running. Its blocks stay unused: when A is over
/// at 40 both are found, nothing is computed twice.
#[test]
fn the_last_one_running_gives_way_to_itself() {
    let run = run(&steps_only(), &engine_of(5), vec![request(0, 8, 4), request(0, 8, 2)]);
    let steps = [
        "0..10000 A@0+8 B@0+8",
        "10000..20000 A@8+1",
        "20000..30000 A@9+1",
        "30000..40000 A@10+1",
        "40000..50000 B@8+1",
    ];
    assert_eq!(run.timeline(), steps);
    assert_eq!(run.tokens_ns(1), [10_000, 50_000]);
    let counters = run.replay.counters;
    assert_eq!((counters.recomputed_tokens, counters.cached_tokens, counters.prefill_tokens), (0, 8, 16));
    assert_eq!((preempted(&run), run.cached_tokens()), (vec![0, 1], vec![0, 0]));
}

/// 5 blocks, prompts in chunks of 4. In step 2 A takes the last block and B, which needs a third, gives way to itself. Its first
/// chunk would fit into what it left behind at once, but a step that preempted admits nobody: it is back in step 3.
#[test]
fn a_step_that_preempts_admits_nobody() {
    let config = EngineConfig {
        scheduler: SchedulerOptions {
            enable_prefix_caching: false,
            long_prefill_token_threshold: 4,
            ..engine_of(5).scheduler
        },
        ..engine_of(5)
    };
    let run = run(&steps_only(), &config, vec![request(0, 8, 3), request(0, 12, 1)]);
    let steps = [
        "0..10000 A@0+4~ B@0+4~",
        "10000..20000 A@4+4 B@4+4~",
        "20000..30000 A@8+1",
        "30000..40000 A@9+1 B@0+4~",
        "40000..50000 B@4+4~",
        "50000..60000 B@8+4",
    ];
    assert_eq!(run.timeline(), steps);
    assert_eq!((preempted(&run), run.replay.counters.recomputed_tokens), (vec![0, 1], 8));
}

/// A holds 2 blocks, B and C one each. C gives way to A in step 1, B to itself in step 2 (its second token is in flight and
/// arrives at 20). Both come back to the head of the queue, so B is first although it was preempted last. B computes 3 + 2
/// tokens, 4 of them again; C 3 + 1, 3 again: neither had a full block that was known when it was preempted.
#[test]
fn preempted_requests_come_back_in_the_order_in_which_they_came() {
    let run = run(&steps_only(), &engine_of(4), vec![request(0, 8, 3), request(0, 3, 3), request(0, 3, 2)]);
    let steps =
        ["0..10000 A@0+8 B@0+3 C@0+3", "10000..20000 A@8+1 B@3+1", "20000..30000 A@9+1", "30000..40000 B@0+5 C@0+4"];
    assert_eq!(run.timeline(), steps);
    assert_eq!((run.tokens_ns(1), run.tokens_ns(2)), (vec![10_000, 20_000, 40_000], vec![10_000, 40_000]));
    assert_eq!((preempted(&run), run.replay.counters.recomputed_tokens), (vec![0, 1, 1], 7));
}

/// 8 tokens a step. B has 8 of its 12 prompt tokens when A needs one of its two blocks; the other is found when A is over.
#[test]
fn a_prompt_is_preempted_between_its_chunks() {
    let config = EngineConfig { max_num_batched_tokens: 8, ..engine_of(4) };
    let run = run(&steps_only(), &config, vec![request(0, 7, 4), request(0, 12, 2)]);
    let steps = [
        "0..10000 A@0+7 B@0+1~",
        "10000..20000 A@7+1 B@1+7~",
        "20000..30000 A@8+1",
        "30000..40000 A@9+1",
        "40000..50000 B@4+8",
        "50000..60000 B@12+1",
    ];
    assert_eq!(run.timeline(), steps);
    assert_eq!((run.replay.counters.recomputed_tokens, run.replay.counters.prefill_tokens), (4, 23));
}

/// 2 blocks, one each. B's only token is in flight when A needs a second block: B is preempted, and finishes at 10 from the
/// queue of waiting requests. It is never scheduled again.
#[test]
fn a_request_finishes_though_preempted_when_its_last_token_was_in_flight() {
    let run = run(&steps_only(), &engine_of(2), vec![request(0, 4, 2), request(0, 4, 1)]);
    assert_eq!(run.timeline(), ["0..10000 A@0+4 B@0+4", "10000..20000 A@4+1"]);
    assert_eq!((run.finish_ns(), preempted(&run)), (vec![20_000, 10_000], vec![0, 1]));
    assert_eq!(run.replay.counters.recomputed_tokens, 0);
}

fn by_priority(usable: u32) -> EngineConfig {
    EngineConfig {
        scheduler: SchedulerOptions { scheduling_policy: SchedulingPolicy::Priority, ..engine_of(usable).scheduler },
        ..engine_of(usable)
    }
}

fn at_priority(arrival_us: u64, prompt: u32, output: u32, priority: i32) -> WorkloadRequest {
    WorkloadRequest { priority, ..request(arrival_us, prompt, output) }
}

/// 5 blocks. A, the least urgent, runs before B and C in the queue and has its decode in step 2 already when B needs a block: A's
/// share is taken back with its blocks, and C is in the step as if A had not been. At 42 A goes on: its first block went to C,
/// so that it computes 8 tokens, 7 again.
#[test]
fn the_least_urgent_gives_way_even_after_it_was_scheduled() {
    let requests = vec![at_priority(0, 6, 3, 9), at_priority(1, 8, 3, 0), at_priority(1, 3, 3, 1)];
    let run = run(&steps_and_scheduling(), &by_priority(5), requests);
    let steps = [
        "2000..12000 A@0+6",
        "12000..22000 A@6+1 B@0+8 C@0+3",
        "22000..32000 B@8+1 C@3+1",
        "32000..42000 B@9+1 C@4+1",
        "44000..54000 A@0+8",
    ];
    assert_eq!(run.timeline(), steps);
    assert_eq!(run.scheduled_ns(), [0, 2000, 12000, 22000, 42000]);
    assert_eq!(run.tokens_ns(0), [12_000, 22_000, 54_000]);
    assert_eq!((preempted(&run), run.replay.counters.recomputed_tokens), (vec![1, 0, 0], 7));
}

/// At 22 A, first in the queue, needs a block and is itself the least urgent: it gives way, and the scheduler stops there
/// without a look at B. Nothing is scheduled until step 2 ends at 32; the GPUs idle for the 2 µs of the host. A has 9 tokens
/// then, and one of its blocks was known to be full: 5 to compute, 4 of them again.
#[test]
fn a_least_urgent_request_that_gives_way_to_itself_ends_the_schedule() {
    let run = run(&steps_and_scheduling(), &by_priority(4), vec![at_priority(0, 6, 4, 1), at_priority(1, 7, 3, 0)]);
    let steps = [
        "2000..12000 A@0+6",
        "12000..22000 A@6+1 B@0+7",
        "22000..32000 A@7+1 B@7+1",
        "34000..44000 B@8+1",
        "46000..56000 A@4+5",
    ];
    assert_eq!(run.timeline(), steps);
    assert_eq!(run.tokens_ns(0), [12_000, 22_000, 32_000, 56_000]);
    assert_eq!((preempted(&run), run.replay.counters.recomputed_tokens), (vec![1, 0], 4));
}

/// The same without a step in flight: at 30 nothing is scheduled and nothing runs. The next iteration follows at once, whenever
/// C comes: B has the block then, and A's 9 tokens need three when B is over at 40.
#[test]
fn an_empty_schedule_that_preempted_is_followed_by_another() {
    let config = EngineConfig {
        scheduler: SchedulerOptions { async_scheduling: false, ..by_priority(4).scheduler },
        ..by_priority(4)
    };
    let requests = vec![at_priority(0, 6, 4, 1), at_priority(1, 7, 3, 0), at_priority(1000, 1, 1, 0)];
    let run = run(&steps_only(), &config, requests);
    let steps = [
        "0..10000 A@0+6",
        "10000..20000 A@6+1 B@0+7",
        "20000..30000 A@7+1 B@7+1",
        "30000..40000 B@8+1",
        "40000..50000 A@4+5",
        "1000000..1010000 C@0+1",
    ];
    assert_eq!(run.timeline(), steps);
    assert_eq!((preempted(&run), run.replay.counters.recomputed_tokens), (vec![1, 0, 0], 4));
}

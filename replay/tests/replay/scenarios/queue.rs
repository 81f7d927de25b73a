//! Which requests a step holds: budgets, chunks, slots, order and rejections.

use ridgepoint::latency::BlackBox;
use ridgepoint_replay::workload::WorkloadRequest;
use ridgepoint_replay::{EngineConfig, Outcome, SchedulerOptions, SchedulingPolicy};

use super::support::{all_delays, engine, engine_of, request, run, steps_and_scheduling, steps_only};

/// One slot. A's last step ends at 10, B is visible at 10: outputs are processed before requests are taken, so B has the slot at once.
#[test]
fn a_slot_that_is_free_at_the_moment_of_an_arrival_is_given_away() {
    let config = EngineConfig { max_num_seqs: 1, ..engine() };
    let run = run(&steps_only(), &config, vec![request(0, 4, 1), request(10, 4, 1)]);
    assert_eq!(run.timeline(), ["0..10000 A@0+4", "10000..20000 B@0+4"]);
}

/// A budget of 8: A's decode takes one token of it, and the chunk of B gets the other 7. B's prompt of 20 is cut into 5, 7, 7 and 1;
/// its last token comes alone, and on top of a cache that is a decode to the kernels. A step costs 100 µs, a prompt token 10, a decode 5.
#[test]
fn decodes_take_their_share_of_the_budget_before_chunks() {
    let latency = BlackBox { beta0_us: 100.0, beta1_us: 10.0, beta2_us: 5.0, ..BlackBox::default() };
    let config = EngineConfig { max_num_batched_tokens: 8, ..engine() };
    let run = run(&latency, &config, vec![request(0, 3, 4), request(0, 20, 2)]);
    let steps = [
        "0..180000 A@0+3 B@0+5~",
        "180000..355000 A@3+1 B@5+7~",
        "355000..530000 A@4+1 B@12+7~",
        "530000..640000 A@5+1 B@19+1",
        "640000..745000 B@20+1",
    ];
    assert_eq!(run.timeline(), steps);
    assert_eq!(run.tokens_ns(0), [180_000, 355_000, 530_000, 640_000]);
    assert_eq!(run.tokens_ns(1), [640_000, 745_000]);
    assert_eq!(run.replay.counters.prefill_tokens, 23);
}

/// At most 4 tokens of a prompt in a step, though 16 fit: A's 10 tokens need three steps, B's 3 are not cut.
#[test]
fn a_long_prompt_is_cut_at_the_threshold() {
    let config = EngineConfig {
        max_num_batched_tokens: 16,
        scheduler: SchedulerOptions { long_prefill_token_threshold: 4, ..engine().scheduler },
        ..engine()
    };
    let run = run(&steps_only(), &config, vec![request(0, 10, 2), request(0, 3, 2)]);
    let steps = ["0..10000 A@0+4~ B@0+3", "10000..20000 A@4+4~ B@3+1", "20000..30000 A@8+2", "30000..40000 A@10+1"];
    assert_eq!(run.timeline(), steps);
    assert_eq!(run.finish_ns(), [40_000, 20_000]);
}

/// Five blocks of 4 tokens, a budget of 8. When A decodes, 2 blocks are free: enough for the first chunk of B's 16 tokens, not for all of
/// them. Admitted nevertheless, B is preempted in the next step and finds its one full block again. Held back, B starts when A has ended.
#[test]
fn a_prompt_can_wait_until_the_free_blocks_hold_all_of_it() {
    let config = EngineConfig {
        max_num_batched_tokens: 8,
        scheduler: SchedulerOptions { async_scheduling: false, ..engine_of(5).scheduler },
        ..engine_of(5)
    };
    let timeline = |config: &EngineConfig| {
        let run = run(&steps_only(), config, vec![request(0, 8, 3), request(0, 16, 1)]);
        (run.timeline(), run.replay.counters.preemptions)
    };
    let admitted = [
        "0..10000 A@0+8",
        "10000..20000 A@8+1 B@0+7~",
        "20000..30000 A@9+1",
        "30000..40000 B@4+8~",
        "40000..50000 B@12+4",
    ];
    assert_eq!(timeline(&config), (admitted.map(str::to_owned).to_vec(), 1));
    let config =
        EngineConfig { scheduler: SchedulerOptions { scheduler_reserve_full_isl: true, ..config.scheduler }, ..config };
    let held_back =
        ["0..10000 A@0+8", "10000..20000 A@8+1", "20000..30000 A@9+1", "30000..40000 B@0+8~", "40000..50000 B@8+8"];
    assert_eq!(timeline(&config), (held_back.map(str::to_owned).to_vec(), 0));
}

/// As before, with a watermark of 0.2: one of six blocks, with the engine's own. B's first chunk would leave none of the two free ones.
/// When A has ended, nothing runs, and the watermark holds nothing back. 0.16 of six blocks is less than one block.
#[test]
fn a_watermark_keeps_blocks_free_while_others_run() {
    let timeline = |watermark, scheduler_reserve_full_isl, prompt| {
        let options = SchedulerOptions { async_scheduling: false, watermark, ..engine_of(5).scheduler };
        let scheduler = SchedulerOptions { scheduler_reserve_full_isl, ..options };
        let config = EngineConfig { max_num_batched_tokens: 8, scheduler, ..engine_of(5) };
        let run = run(&steps_only(), &config, vec![request(0, 8, 3), request(0, prompt, 1)]);
        (run.timeline()[1..].to_vec(), run.replay.counters.preemptions)
    };
    let (held_back, preemptions) = timeline(0.2, false, 16);
    assert_eq!(held_back, ["10000..20000 A@8+1", "20000..30000 A@9+1", "30000..40000 B@0+8~", "40000..50000 B@8+8"]);
    assert_eq!(preemptions, 0);
    assert_eq!(timeline(0.16, false, 16), timeline(0.0, false, 16));
    // B's 8 tokens need both free blocks.
    assert_eq!(timeline(0.0, true, 8).0[0], "10000..20000 A@8+1 B@0+7~");
    assert_eq!(timeline(0.2, true, 8).0[0], "10000..20000 A@8+1");
}

/// A budget of 10: A's 6 tokens leave 4 of B's 8 and nothing for C. In the second step A's only token is in flight, and the rest of B
/// shares the budget with C.
#[test]
fn requests_of_the_same_moment_share_the_budget_in_their_order() {
    let config = EngineConfig { max_num_batched_tokens: 10, ..engine() };
    let run = run(&steps_only(), &config, vec![request(0, 6, 1), request(0, 8, 1), request(0, 2, 1)]);
    assert_eq!(run.timeline(), ["0..10000 A@0+6 B@0+4~", "10000..20000 B@4+4 C@0+2"]);
    assert_eq!(run.finish_ns(), [10_000, 20_000, 20_000]);
}

/// One slot, and scheduling takes 2. A keeps its slot until its last token is processed at 22, though both of its steps are scheduled
/// by 4: nothing can be scheduled at 12, and step 2 starts only after another 2 µs of the host. The GPUs idle from 22 to 24.
#[test]
fn a_slot_is_free_when_the_last_token_is_processed() {
    let config = EngineConfig { max_num_seqs: 1, ..engine() };
    let run = run(&steps_and_scheduling(), &config, vec![request(0, 4, 2), request(0, 4, 1)]);
    assert_eq!(run.timeline(), ["2000..12000 A@0+4", "12000..22000 A@4+1", "24000..34000 B@0+4"]);
    assert_eq!(run.scheduled_ns(), [0, 2000, 22000]);
    let queues: Vec<(u32, u32)> = run.seen.steps.iter().map(|step| (step.num_running, step.num_waiting)).collect();
    assert_eq!(queues, [(1, 1), (1, 1), (1, 0)]);
}

/// One slot, three requests at once and a fourth that comes while A runs: by priority, equal ones by arrival.
#[test]
fn priorities_order_the_queue() {
    let config = EngineConfig {
        max_num_seqs: 1,
        scheduler: SchedulerOptions { scheduling_policy: SchedulingPolicy::Priority, ..engine().scheduler },
        ..engine()
    };
    let at = |arrival_us, priority| WorkloadRequest { priority, ..request(arrival_us, 4, 1) };
    let run = run(&steps_only(), &config, vec![at(0, 9), at(1, 5), at(2, 1), at(3, 5), at(4, -1)]);
    let steps =
        ["0..10000 A@0+4", "10000..20000 E@0+4", "20000..30000 C@0+4", "30000..40000 B@0+4", "40000..50000 D@0+4"];
    assert_eq!(run.timeline(), steps);
}

/// The longest context is 64 tokens: 60 + 4 is served, 60 + 5 rejected when the server reads it, 3 µs after it was sent.
#[test]
fn a_request_that_is_too_long_is_refused_and_disturbs_nobody() {
    let run = run(&all_delays(), &engine(), vec![request(0, 60, 4), request(0, 60, 5), request(0, 1, 1)]);
    assert_eq!(run.timeline()[..2], ["5000..15000 A@0+60 C@0+1", "15000..25000 A@60+1"]);
    let refused = run.replay.records[1];
    assert_eq!((refused.outcome, refused.finish_ns, refused.first_token_ns), (Outcome::Rejected, 3000, 0));
    assert_eq!(run.replay.records[0].outcome, Outcome::Finished);
    assert_eq!(run.finish_ns(), [46_000, 3000, 16_000]);
    assert_eq!((run.tokens_ns(1).len(), run.replay.counters.steps), (0, 4));
}

/// 10 tokens and no chunks: B's 5 do not fit behind A's 6 and hold up C's 2, which would.
#[test]
fn without_chunks_a_prompt_that_does_not_fit_blocks_those_behind() {
    let config = EngineConfig {
        max_num_batched_tokens: 10,
        max_model_len: 10,
        scheduler: SchedulerOptions { enable_chunked_prefill: false, ..engine().scheduler },
        ..engine()
    };
    let run = run(&steps_only(), &config, vec![request(0, 6, 2), request(0, 5, 1), request(0, 2, 1)]);
    assert_eq!(run.timeline(), ["0..10000 A@0+6", "10000..20000 A@6+1 B@0+5 C@0+2"]);
}

/// Two requests of 8 + 3 tokens hold two or three blocks of tokens, and two more for windows of two blocks. Seven blocks let the second wait
/// until the first is over, as four of its blocks and five of the first are nine; without windows both run at once, and so they do in ten.
#[test]
fn windows_hold_blocks_besides_those_of_tokens() {
    let second_ns = |window_blocks, usable| {
        let config = EngineConfig { window_share: 1.0, window_blocks, max_model_len: 12, ..engine_of(usable) };
        run(&steps_only(), &config, vec![request(0, 8, 3), request(0, 8, 3)]).tokens_ns(1)[0]
    };
    assert_eq!((second_ns(0, 7), second_ns(2, 10)), (10_000, 10_000));
    assert!(second_ns(2, 7) > 30_000, "{}", second_ns(2, 7));
}

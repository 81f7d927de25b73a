//! Times at which steps are scheduled, run and end, and at which clients receive their tokens.

use ridgepoint::latency::FixedLatency;
use ridgepoint_replay::workload::{RequestShape, WorkloadRequest};
use ridgepoint_replay::{EngineConfig, Metrics, Outcome, SchedulerOptions, workload};

use super::support::{Run, all_delays, engine, request, run, run_workload, steps_only, synchronous};
use crate::loads::{ClosedLoop, Listed};

/// At 15 the first token is processed and the third step scheduled, hidden behind the second; then nothing is left to schedule.
#[test]
fn one_request_with_a_step_in_flight() {
    let run = run(&all_delays(), &engine(), vec![request(0, 5, 3)]);
    assert_eq!(run.timeline(), ["5000..15000 A@0+5", "15000..25000 A@5+1", "25000..35000 A@6+1"]);
    assert_eq!(run.scheduled_ns(), [3000, 5000, 15000]);
    assert_eq!(run.tokens_ns(0), [16000, 26000, 36000]);
    let record = run.replay.records[0];
    assert_eq!((record.arrival_ns, record.scheduled_ns), (0, 3000));
    assert_eq!((record.first_token_ns, record.finish_ns, record.outcome), (16000, 36000, Outcome::Finished));
    let counters = run.replay.counters;
    assert_eq!((counters.steps, counters.scheduled_tokens, counters.prefill_tokens), (3, 7, 5));
    assert_eq!((counters.busy_ns, counters.end_ns), (30_000, 36_000));
}

/// Nothing is in flight while the host schedules, so every period is 2 + 10.
#[test]
fn one_request_without_asynchronous_scheduling() {
    let run = run(&all_delays(), &synchronous(), vec![request(0, 5, 3)]);
    assert_eq!(run.timeline(), ["5000..15000 A@0+5", "17000..27000 A@5+1", "29000..39000 A@6+1"]);
    assert_eq!(run.scheduled_ns(), [3000, 15000, 27000]);
    assert_eq!(run.tokens_ns(0), [16000, 28000, 40000]);
}

/// Scheduling takes 30, a step 10. Step 0 is scheduled from 0 to 30 and step 1 from 30 to 60, when step 0 (30..40) is processed.
/// Step 2 is scheduled from 60 to 90, and step 1 (60..70) is processed at 90.
#[test]
fn a_host_slower_than_the_steps_sets_the_pace() {
    let latency = FixedLatency { scheduling_us: 30.0, ..steps_only() };
    let run = run(&latency, &engine(), vec![request(0, 5, 4)]);
    let steps = ["30000..40000 A@0+5", "60000..70000 A@5+1", "90000..100000 A@6+1", "120000..130000 A@7+1"];
    assert_eq!(run.timeline(), steps);
    assert_eq!(run.scheduled_ns(), [0, 30000, 60000, 90000]);
    assert_eq!(run.tokens_ns(0), [40000, 70000, 100_000, 130_000]);
}

/// B is visible at 9, when steps 0 and 1 (scheduled at 3 and 5) are in flight; the next is scheduled at 15: step 2.
#[test]
fn an_arrival_during_a_step_joins_the_next_but_one() {
    let run = run(&all_delays(), &engine(), vec![request(0, 5, 4), request(6, 6, 2)]);
    let steps = ["5000..15000 A@0+5", "15000..25000 A@5+1", "25000..35000 A@6+1 B@0+6", "35000..45000 A@7+1 B@6+1"];
    assert_eq!(run.timeline(), steps);
    assert_eq!(run.tokens_ns(1), [36000, 46000]);
    assert_eq!(run.replay.records[1].scheduled_ns, 15000);
}

/// The same without asynchronous scheduling: the next step to be scheduled, at 15, is the next one.
#[test]
fn an_arrival_during_a_step_joins_the_next_without_asynchronous_scheduling() {
    let run = run(&all_delays(), &synchronous(), vec![request(0, 5, 3), request(6, 6, 2)]);
    let steps = ["5000..15000 A@0+5", "17000..27000 A@5+1 B@0+6", "29000..39000 A@6+1 B@6+1"];
    assert_eq!(run.timeline(), steps);
}

/// Visible at 4, while step 0 is being scheduled (3 to 5): the host reads its input again before step 1.
#[test]
fn an_arrival_while_the_host_schedules_joins_the_step_after() {
    let run = run(&all_delays(), &engine(), vec![request(0, 5, 2), request(1, 6, 1)]);
    assert_eq!(run.timeline(), ["5000..15000 A@0+5", "15000..25000 A@5+1 B@0+6"]);
}

/// Visible at 15, exactly when step 0 ends: in the batch that is scheduled then; a nanosecond later it waits until 25.
#[test]
fn an_arrival_at_the_end_of_a_step_is_in_the_schedule_of_that_moment() {
    let mut late = request(12, 6, 1);
    let on_time = run(&all_delays(), &engine(), vec![request(0, 5, 4), late.clone()]);
    assert_eq!(on_time.timeline()[2..], ["25000..35000 A@6+1 B@0+6", "35000..45000 A@7+1"]);
    late.arrival_ns += 1;
    let missed = run(&all_delays(), &engine(), vec![request(0, 5, 4), late]);
    assert_eq!(missed.timeline()[2..], ["25000..35000 A@6+1", "35000..45000 A@7+1 B@0+6"]);
}

/// The engine waits for a late arrival, and no step is counted meanwhile.
#[test]
fn an_idle_engine_waits_for_the_next_arrival() {
    let run = run(&all_delays(), &engine(), vec![request(0, 5, 1), request(1_000_000, 4, 1)]);
    assert_eq!(run.timeline(), ["5000..15000 A@0+5", "1000005000..1000015000 B@0+4"]);
    assert_eq!((run.replay.counters.busy_ns, run.replay.counters.end_ns), (20_000, 1_000_016_000));
}

/// The first token is the last one: the request finishes with it, and no second step is scheduled.
#[test]
fn a_single_token_needs_a_single_step() {
    for config in [engine(), synchronous()] {
        let run = run(&all_delays(), &config, vec![request(0, 5, 1)]);
        assert_eq!(run.timeline(), ["5000..15000 A@0+5"]);
        let record = run.replay.records[0];
        assert_eq!((record.first_token_ns, record.finish_ns), (16_000, 16_000));
        assert_eq!(record.tpot_ms(), None);
    }
}

/// 0.4996 µs are 500 ns, 1.2344 are 1,234, 0.0002 are none.
#[test]
fn times_are_rounded_to_the_nearest_nanosecond() {
    let latency = FixedLatency {
        step_us: 1.2344,
        queueing_us: 0.4996,
        output_token_us: 0.0002,
        scheduling_us: 0.0006,
        ..FixedLatency::default()
    };
    let run = run(&latency, &engine(), vec![request(0, 5, 2)]);
    assert_eq!(run.timeline(), ["501..1735 A@0+5", "1735..2969 A@5+1"]);
    assert_eq!(run.tokens_ns(0), [1735, 2969]);
}

/// Two in flight: C and D are sent at 24, when A's and B's last tokens are there, and can be scheduled at 27.
#[test]
fn a_closed_loop_sends_the_next_when_a_client_has_its_last_token() {
    let latency = FixedLatency { queueing_us: 3.0, output_token_us: 1.0, ..steps_only() };
    let mut workload = ClosedLoop::new(vec![request(0, 4, 2); 4], 2);
    let run = run_workload(&latency, &engine(), &mut workload);
    let steps =
        ["3000..13000 A@0+4 B@0+4", "13000..23000 A@4+1 B@4+1", "27000..37000 C@0+4 D@0+4", "37000..47000 C@4+1 D@4+1"];
    assert_eq!(run.timeline(), steps);
    assert_eq!(run.finish_ns(), [24_000, 24_000, 48_000, 48_000]);
    assert_eq!(run.replay.records[2].arrival_ns, 24_000);
}

/// C is sent at 24, when A's client has its last token, and is visible at 27, while B's steps (23..33 and 33..43) are in flight: it
/// starts at 43. At 43 B's last token is processed, its client has it at 44, and D is visible at 47, while C's two steps are in
/// flight: it starts at 63.
#[test]
fn a_closed_loop_of_unequal_requests_interleaves() {
    let latency = FixedLatency { queueing_us: 3.0, output_token_us: 1.0, ..steps_only() };
    let requests = vec![request(0, 4, 2), request(0, 4, 4), request(0, 4, 2), request(0, 4, 2)];
    let run = run_workload(&latency, &engine(), &mut ClosedLoop::new(requests, 2));
    let steps = [
        "3000..13000 A@0+4 B@0+4",
        "13000..23000 A@4+1 B@4+1",
        "23000..33000 B@5+1",
        "33000..43000 B@6+1",
        "43000..53000 C@0+4",
        "53000..63000 C@4+1",
        "63000..73000 D@0+4",
        "73000..83000 D@4+1",
    ];
    assert_eq!(run.timeline(), steps);
    assert_eq!(run.finish_ns(), [24_000, 44_000, 64_000, 84_000]);
    assert_eq!(run.scheduled_ns(), [3000, 3000, 13000, 23000, 33000, 43000, 53000, 63000]);
}

/// A rejected request has ended for its client too: the loop sends the next request at 3.
#[test]
fn a_closed_loop_goes_on_after_a_refusal() {
    let latency = FixedLatency { queueing_us: 3.0, ..steps_only() };
    let run = run_workload(&latency, &engine(), &mut ClosedLoop::new(vec![request(0, 99, 1), request(0, 4, 1)], 1));
    assert_eq!(run.timeline(), ["6000..16000 B@0+4"]);
    assert_eq!(run.replay.records[1].arrival_ns, 3000);
}

/// Two stages of 5 each: a step starts every 5 and two are in flight. A budget of 4 holds one prompt, and a request whose token is
/// in flight is not scheduled.
#[test]
fn a_pipeline_has_a_step_per_stage_in_flight() {
    let config = EngineConfig {
        pipeline_parallel_size: 2,
        max_num_batched_tokens: 4,
        max_num_seqs: 4,
        scheduler: SchedulerOptions { async_scheduling: false, ..engine().scheduler },
        ..engine()
    };
    let run = run(&steps_only(), &config, vec![request(0, 4, 2), request(0, 4, 2)]);
    let steps = ["0..10000 A@0+4", "5000..15000 B@0+4", "10000..20000 A@4+1", "15000..25000 B@4+1"];
    assert_eq!(run.timeline(), steps);
    assert_eq!(run.finish_ns(), [20_000, 25_000]);
}

/// Chunks of one prompt need no token of each other: they follow through the stages half a step apart.
#[test]
fn chunks_of_one_prompt_follow_each_other_through_a_pipeline() {
    let config = EngineConfig {
        pipeline_parallel_size: 2,
        max_num_batched_tokens: 4,
        scheduler: SchedulerOptions { async_scheduling: false, ..engine().scheduler },
        ..engine()
    };
    let run = run(&steps_only(), &config, vec![request(0, 10, 2)]);
    let steps = ["0..10000 A@0+4~", "5000..15000 A@4+4~", "10000..20000 A@8+2", "20000..30000 A@10+1"];
    assert_eq!(run.timeline(), steps);
}

/// A workload without requests runs no step and divides nothing by zero.
#[test]
fn an_empty_workload_is_an_empty_replay() {
    let Run { replay, seen } = run_workload(&all_delays(), &engine(), &mut Listed::new(Vec::new()));
    assert!(replay.records.is_empty() && seen.steps.is_empty() && seen.tokens.is_empty());
    assert_eq!((replay.counters.steps, replay.counters.end_ns), (0, 0));
}

/// Two in flight; 5 tokens a step hold A's prompt of 4 and one token of B's, so that B is a step behind. A is over at 30, its client
/// has the token at 31 and sends C at 31, though B is over at 40 before the engine looks at its input again. D is sent at
/// 41, when steps 4 and 5 are scheduled already.
#[test]
fn each_request_of_a_closed_loop_is_sent_when_one_is_over() {
    let latency = FixedLatency { output_token_us: 1.0, ..steps_only() };
    let config = EngineConfig { max_num_batched_tokens: 5, ..engine() };
    let shape = RequestShape::new(4, 3);
    let run = run_workload(&latency, &config, &mut workload::ClosedLoop::new(2, 4, shape).unwrap());
    let steps = [
        "0..10000 A@0+4 B@0+1~",
        "10000..20000 A@4+1 B@1+3",
        "20000..30000 A@5+1 B@4+1",
        "30000..40000 B@5+1",
        "40000..50000 C@0+4",
        "50000..60000 C@4+1",
        "60000..70000 C@5+1 D@0+4",
        "70000..80000 D@4+1",
        "80000..90000 D@5+1",
    ];
    assert_eq!(run.timeline(), steps);
    let arrivals: Vec<u64> = run.replay.records.iter().map(|record| record.arrival_ns).collect();
    assert_eq!(arrivals, [0, 0, 31_000, 41_000]);
}

/// The clock saturates after 585 years instead of wrapping around. A delay that is not a number counts as zero.
#[test]
fn the_clock_ends_without_overflow() {
    let late = |arrival_ns| WorkloadRequest { arrival_ns, ..request(0, 5, 3) };
    for step_us in [10.0, 1e300, f64::INFINITY, f64::NAN] {
        let latency = FixedLatency { step_us, queueing_us: 1e18, ..all_delays() };
        let run = run(&latency, &engine(), vec![request(0, 5, 3), late(u64::MAX - 5), late(u64::MAX)]);
        assert!(run.replay.records.iter().all(|record| record.outcome == Outcome::Finished));
        assert_eq!(run.finish_ns(), [u64::MAX; 3]);
    }
}

/// The first token alone, then three at once, and the eighth at the end: TTFT, TPOT and E2E are those of single tokens, ITL is not.
#[test]
fn clients_get_tokens_together_at_a_stream_interval() {
    let every = |stream_interval| {
        let config = EngineConfig {
            scheduler: SchedulerOptions { stream_interval, ..synchronous().scheduler },
            ..synchronous()
        };
        run(&steps_only(), &config, vec![request(0, 4, 8)])
    };
    let (alone, together) = (every(1), every(3));
    assert_eq!(alone.timeline(), together.timeline());
    assert_eq!(alone.replay.records, together.replay.records);
    assert_eq!(together.tokens_ns(0), [10_000, 40_000, 40_000, 40_000, 70_000, 70_000, 70_000, 80_000]);
    let itl = |run: &Run| Metrics::of(&run.replay).run.itl_ms.unwrap();
    assert!((itl(&alone).mean - 0.01).abs() < 1e-9 && (itl(&together).mean - 0.07 / 3.0).abs() < 1e-9);
    assert!((itl(&together).p50 - 0.03).abs() < 1e-4, "{:?}", itl(&together));
    assert_eq!(every(9).tokens_ns(0)[1..], [80_000; 7]);
}

//! Traces made by hand: what is kept, what is left out and why.

use super::dropped::DropReason;
use super::periods::{Cleaning, Periods, periods};
use super::step::{Interval, StepRecord, StepTrace};

const MS: u64 = 1_000_000;

/// A step of decodes.
fn decodes(step_id: u64, start_ms: u64, requests: u32) -> StepRecord {
    StepRecord {
        step_id,
        start_ns: start_ms * MS,
        num_decode_requests: requests,
        decode_tokens: u64::from(requests),
        num_running: Some(requests),
        num_waiting: Some(0),
        num_finished: Some(0),
        ..StepRecord::default()
    }
}

fn with_prompt(step: StepRecord, prefill_tokens: u64) -> StepRecord {
    StepRecord { num_prefill_requests: 1, prefill_tokens, ..step }
}

/// 60 steps of 64 decodes, 10 ms each, from number 1000.
fn busy() -> Vec<StepRecord> {
    (0..60).map(|index| decodes(1000 + index, 10 * index, 64)).collect()
}

fn judged(steps: Vec<StepRecord>) -> Periods {
    periods(&StepTrace { steps, ..StepTrace::default() }, &Cleaning::default())
}

fn reasons(periods: &Periods) -> Vec<(usize, DropReason)> {
    periods.times.iter().enumerate().filter_map(|(step, time)| Some((step, time.err()?))).collect()
}

fn intervals(periods: &Periods) -> Vec<Interval> {
    periods.intervals().copied().collect()
}

/// Moves the steps behind `index` by `by_ms`.
fn delayed(mut steps: Vec<StepRecord>, index: usize, by_ms: u64) -> Vec<StepRecord> {
    steps.iter_mut().skip(index + 1).for_each(|step| step.start_ns += by_ms * MS);
    steps
}

#[test]
fn an_even_trace_loses_its_last_step_alone() {
    let found = judged(busy());
    assert_eq!(reasons(&found), [(59, DropReason::LastStep)]);
    assert_eq!(found.intervals().count(), 59);
    assert_eq!(found.median_period_us(), Some(10_000.0));
}

#[test]
fn steps_that_were_not_sampled_share_the_time() {
    let steps: Vec<StepRecord> = busy().into_iter().filter(|step| !(1011..1015).contains(&step.step_id)).collect();
    let found = judged(steps);
    let across = intervals(&found)[10];
    assert_eq!((across.steps, across.span_us, across.period_us()), (5, 50_000.0, 10_000.0));
    assert_eq!(found.dropped().total(), 1);
}

#[test]
fn the_engines_first_steps_are_left_out_by_their_numbers() {
    let steps = (0..10).map(|index| decodes(95 + index, 10 * index, 64)).collect();
    let found = judged(steps);
    assert_eq!(found.dropped().count(DropReason::WarmUp), 5);
    assert_eq!(intervals(&found)[0].first, 5);
}

#[test]
fn empty_and_preempting_steps_are_left_out() {
    let mut steps = busy();
    (steps[20].num_decode_requests, steps[20].decode_tokens) = (0, 0);
    steps[30].num_preempted = Some(1);
    let trace = StepTrace { steps, ..StepTrace::default() };
    let found = periods(&trace, &Cleaning::default());
    assert_eq!(reasons(&found), [(20, DropReason::Empty), (30, DropReason::Preemption), (59, DropReason::LastStep)]);
    let kept = periods(&trace, &Cleaning { drop_preemptions: false, ..Cleaning::default() });
    assert_eq!(kept.dropped().count(DropReason::Preemption), 0);
}

#[test]
fn a_pause_is_a_gap_from_five_times_the_pace() {
    // 10 ms and 45 more: 5.5 times the pace; 10 ms and 35 more: 4.5 times.
    assert_eq!(reasons(&judged(delayed(busy(), 20, 45))), [(20, DropReason::Gap), (59, DropReason::LastStep)]);
    assert_eq!(reasons(&judged(delayed(busy(), 20, 35))), [(59, DropReason::LastStep)]);
}

#[test]
fn a_long_chunk_is_no_gap() {
    // 8192 tokens are worth 64 steps; 300 ms are 30 of them.
    let mut steps = delayed(busy(), 20, 290);
    steps[20] = with_prompt(steps[20].clone(), 8192);
    assert_eq!(reasons(&judged(steps)), [(59, DropReason::LastStep)]);
    // 200 tokens are not: 10 · (1 + 200/128) · 5 = 128 ms.
    let mut steps = delayed(busy(), 20, 290);
    steps[20] = with_prompt(steps[20].clone(), 200);
    assert_eq!(reasons(&judged(steps)), [(20, DropReason::Gap), (59, DropReason::LastStep)]);
}

#[test]
fn clocks_that_stand_run_back_or_jump_are_reported() {
    let mut steps = busy();
    steps[20].start_ns = steps[19].start_ns;
    // 19 → 20 takes no time; 20 → 21 takes 20 ms.
    assert_eq!(reasons(&judged(steps)), [(19, DropReason::ClockJump), (59, DropReason::LastStep)]);
    let mut steps = busy();
    steps[20].start_ns = 5 * MS;
    assert_eq!(
        reasons(&judged(steps)),
        [(19, DropReason::ClockJump), (20, DropReason::Gap), (59, DropReason::LastStep)]
    );
    let mut steps = busy();
    steps[20].start_ns = steps[19].start_ns + 400_000;
    assert_eq!(reasons(&judged(steps)), [(19, DropReason::ClockJump), (59, DropReason::LastStep)]);
    let constant = (0..5).map(|index| decodes(1000 + index, 7, 64)).collect();
    assert_eq!(judged(constant).dropped().count(DropReason::ClockJump), 4);
}

#[test]
fn a_number_that_comes_again_has_no_period() {
    let mut steps = busy();
    steps[21].step_id = steps[20].step_id;
    assert_eq!(judged(steps).dropped().count(DropReason::Duplicate), 1);
}

/// Requests one at a time: 20 steps of 10 ms, a step without tokens, half a second of nothing.
fn one_at_a_time(sampled: impl Fn(u64) -> bool) -> Vec<StepRecord> {
    let mut steps = Vec::new();
    for round in 0..100 {
        let (id, at_ms) = (1000 + 21 * round, 700 * round);
        for step in 0..20 {
            steps.push(decodes(id + step, at_ms + 10 * step, 1));
        }
        let ended = StepRecord { num_finished: Some(1), ..decodes(id + 20, at_ms + 200, 0) };
        steps.push(ended);
    }
    steps.into_iter().filter(|step| sampled(step.step_id)).collect()
}

#[test]
fn an_engine_that_idles_after_every_request_keeps_its_pace() {
    let found = judged(one_at_a_time(|_| true));
    assert_eq!(found.intervals().count(), 2000);
    assert!(found.intervals().all(|of| (of.period_us() - 10_000.0).abs() < 1e-9));
    assert_eq!(found.dropped().count(DropReason::Empty), 100);
}

#[test]
fn idling_between_samples_is_found_at_low_load() {
    // Every seventh and eighth step: three of ten intervals hold half a second of nothing.
    let found = judged(one_at_a_time(|id| id % 8 < 2));
    assert!(found.intervals().count() > 300, "{}", found.intervals().count());
    assert!(found.dropped().count(DropReason::Gap) > 50, "{:?}", found.dropped());
    let slowest_us = found.intervals().map(|of| of.period_us()).fold(0.0, f64::max);
    assert!(slowest_us <= 10_000.0 + 1e-9, "{slowest_us}");
}

#[test]
fn idling_is_found_where_it_is_in_most_intervals() {
    // No two steps in a row, and a round of 21 steps for every third sample: the quartile is still without idling.
    let found = judged(one_at_a_time(|id| id % 9 == 0));
    let slowest_us = found.intervals().map(|of| of.period_us()).fold(0.0, f64::max);
    assert!(
        found.intervals().count() > 80 && slowest_us <= 10_000.0 + 1e-9,
        "{} {slowest_us}",
        found.intervals().count()
    );
}

#[test]
fn timed_forward_passes_need_no_clock() {
    let timed = |step_id, gpu_time_us| StepRecord { gpu_time_us: Some(gpu_time_us), ..decodes(step_id, 0, 4) };
    let found = judged(vec![timed(500, 8_000.0), timed(510, -1.0), timed(511, f64::NAN), timed(512, 9_000.0)]);
    assert_eq!(reasons(&found), [(1, DropReason::BadValue), (2, DropReason::BadValue)]);
    let spans: Vec<(u64, f64)> = found.intervals().map(|of| (of.steps, of.span_us)).collect();
    assert_eq!(spans, [(1, 8_000.0), (1, 9_000.0)]);
}

#[test]
fn no_step_and_one_step_have_no_interval() {
    assert_eq!(judged(Vec::new()), Periods::default());
    assert_eq!(reasons(&judged(vec![decodes(1000, 0, 1)])), [(0, DropReason::LastStep)]);
}

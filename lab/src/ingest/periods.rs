//! From step records to times: how long the engine took from one sampled step to the next, and which of these times say
//! nothing about the steps. Uses `step`, `dropped`, `pace`.

use serde::Serialize;

use super::dropped::{Dropped, Reason};
use super::pace::Pace;
use super::step::{StepRecord, StepTrace};
use crate::stats::median;
use ridgepoint::internals::units::NS_PER_US;

/// Which steps are left out.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cleaning {
    /// Steps of a lower number than this are left out: the engine compiles and captures CUDA graphs in its first ones.
    /// Numbers count from the engine's start, so a trace taken later loses nothing.
    pub warm_up_steps: u64,
    /// A time beyond this many times what steps around it and its prompt tokens lead one to expect is a gap; above 1.
    pub max_period_ratio: f64,
    /// Whether steps that preempt a request are left out.
    pub drop_preemptions: bool,
}

impl Default for Cleaning {
    fn default() -> Self {
        Cleaning { warm_up_steps: 100, max_period_ratio: 5.0, drop_preemptions: true }
    }
}

/// The time from the start of a sampled step to the start of the next sampled one.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Interval {
    /// Index of the first step among the trace's steps; the rest of the interval was not sampled.
    pub first: usize,
    /// Steps that the interval spans: the difference of the two steps' numbers, at least 1.
    pub steps: u64,
    /// How long they took together, µs. For a step whose forward pass the engine timed, that time.
    pub span_us: f64,
}

impl Interval {
    /// Mean time of a step in the interval, µs.
    pub fn period_us(&self) -> f64 {
        self.span_us / self.steps as f64
    }
}

/// A step that no interval begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct LeftOut {
    /// Index among the trace's steps.
    pub step: usize,
    /// Why.
    pub reason: Reason,
}

/// What became of each step of a trace: every one is either in `intervals` or in `left_out`, both in the trace's order.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Periods {
    /// Times that can be used.
    pub intervals: Vec<Interval>,
    /// Steps without one.
    pub left_out: Vec<LeftOut>,
}

impl Periods {
    /// Steps left out, by reason.
    pub fn dropped(&self) -> Dropped {
        let mut dropped = Dropped::default();
        self.left_out.iter().for_each(|left_out| dropped.add(left_out.reason));
        dropped
    }

    /// Median of the intervals' periods, µs; `None` without intervals.
    pub fn median_period_us(&self) -> Option<f64> {
        median(self.intervals.iter().map(Interval::period_us).collect())
    }
}

/// The intervals of a trace, each step judged once: the first of these that applies leaves it out.
///
/// 1. Warm-up, a step without tokens, a preemption, as `cleaning` says.
/// 2. A timed forward pass that is no positive number; such a trace needs no clock and none of the rest applies to it.
/// 3. No step after it; a number or a clock that does not go up.
/// 4. Against the pace of the steps around it (`docs/ingest.md`): less than a twentieth is a jump of the clock, more than
///    `max_period_ratio` times what pace and prompt tokens explain is a gap. Where all requests may have ended in between,
///    half as much again is enough: then the engine idled.
///
/// ```
/// use crate::ingest::{Cleaning, StepRecord, StepTrace, periods};
///
/// let step = |step_id, start_ns| StepRecord { step_id, start_ns, num_decode_requests: 8, decode_tokens: 8, ..Default::default() };
/// let steps = vec![step(200, 1_000_000), step(202, 41_000_000), step(203, 61_500_000)];
/// let periods = periods(&StepTrace { steps, ..Default::default() }, &Cleaning::default());
/// // 40 ms for two steps, 20.5 ms for one; nothing follows the last.
/// let found: Vec<(u64, f64)> = periods.intervals.iter().map(|of| (of.steps, of.period_us())).collect();
/// assert_eq!(found, [(2, 20_000.0), (1, 20_500.0)]);
/// assert_eq!(periods.left_out.len(), 1);
/// ```
pub fn periods(trace: &StepTrace, cleaning: &Cleaning) -> Periods {
    let steps = trace.steps.as_slice();
    let mut judged: Vec<Result<Interval, Reason>> = Vec::with_capacity(steps.len());
    for (first, step) in steps.iter().enumerate() {
        judged.push(interval(first, step, steps.get(first + 1), cleaning));
    }
    let by_clock: Vec<Interval> = judged
        .iter()
        .filter_map(|of| of.ok())
        .filter(|of| steps.get(of.first).is_some_and(|step| step.gpu_time_us.is_none()))
        .collect();
    let pace = Pace::new(steps, &by_clock);
    for (position, interval) in by_clock.iter().enumerate() {
        if let Some(reason) = pace.fault(position, interval, cleaning.max_period_ratio)
            && let Some(of) = judged.get_mut(interval.first)
        {
            *of = Err(reason);
        }
    }
    let mut periods = Periods::default();
    for (step, of) in judged.into_iter().enumerate() {
        match of {
            Ok(interval) => periods.intervals.push(interval),
            Err(reason) => periods.left_out.push(LeftOut { step, reason }),
        }
    }
    periods
}

/// The interval that a step alone, and the one after it, make.
fn interval(
    first: usize,
    step: &StepRecord,
    next: Option<&StepRecord>,
    cleaning: &Cleaning,
) -> Result<Interval, Reason> {
    if step.step_id < cleaning.warm_up_steps {
        return Err(Reason::WarmUp);
    }
    if step.prefill_tokens == 0 && step.decode_tokens == 0 {
        return Err(Reason::Empty);
    }
    if cleaning.drop_preemptions && step.num_preempted.is_some_and(|count| count > 0) {
        return Err(Reason::Preemption);
    }
    if let Some(span_us) = step.gpu_time_us {
        let is_time = span_us.is_finite() && span_us > 0.0;
        return if is_time { Ok(Interval { first, steps: 1, span_us }) } else { Err(Reason::BadValue) };
    }
    let next = next.ok_or(Reason::LastStep)?;
    if next.step_id <= step.step_id {
        return Err(Reason::Duplicate);
    }
    if next.start_ns <= step.start_ns {
        return Err(Reason::ClockJump);
    }
    let span_us = (next.start_ns - step.start_ns) as f64 / NS_PER_US as f64;
    Ok(Interval { first, steps: next.step_id - step.step_id, span_us })
}

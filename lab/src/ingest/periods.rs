//! Turns step records into times: how long the engine took from one sampled step to the next, and which of these times do not
//! measure the steps.

use super::dropped::{DropReason, Dropped};
use super::pace::Pace;
use super::step::{Interval, StepRecord, StepTrace};
use crate::measured_time::MICROSECONDS;
use crate::stats::median;
use ridgepoint::units::ns_to_us;

/// The times of a trace.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Periods {
    /// The time of each step, or why it has none, in the order of the trace.
    pub times: Vec<Result<Interval, DropReason>>,
}

impl Periods {
    /// Returns the usable times.
    pub fn intervals(&self) -> impl Iterator<Item = &Interval> {
        self.times.iter().flatten()
    }

    /// Returns counts of the steps without a time, by reason.
    pub fn dropped(&self) -> Dropped {
        let mut dropped = Dropped::default();
        self.times.iter().filter_map(|time| time.err()).for_each(|reason| dropped.add(reason));
        dropped
    }

    /// Returns the times of single steps that were left out because they preempt a request.
    pub fn preempting(&self, trace: &StepTrace) -> Vec<Interval> {
        let cleaning = Cleaning { warm_up_steps: 0, drop_preemptions: false };
        let time = |(first, time): (usize, &Result<Interval, DropReason>)| {
            time.err().filter(|reason| *reason == DropReason::Preemption)?;
            let (step, next) = (trace.steps.get(first)?, trace.steps.get(first + 1));
            interval(first, step, next, &cleaning).ok().filter(|of| of.steps == 1)
        };
        self.times.iter().enumerate().filter_map(time).collect()
    }

    /// Returns the median of the intervals' periods, µs; `None` without intervals.
    pub fn median_period_us(&self) -> Option<f64> {
        median(self.intervals().map(Interval::period_us).collect())
    }
}

/// Which steps are left out.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cleaning {
    /// Steps with a lower number are left out: in its first steps the engine compiles and captures CUDA graphs. Numbers count from
    /// the engine's start, so a trace taken later loses nothing.
    pub warm_up_steps: u64,
    /// Whether steps that preempt a request are left out.
    pub drop_preemptions: bool,
}

impl Default for Cleaning {
    fn default() -> Self {
        Cleaning { warm_up_steps: 100, drop_preemptions: true }
    }
}

/// Finds the intervals of a trace. The first of these rules that applies to a step leaves it out.
///
/// 1. Warm-up, no tokens, or a preemption, as `cleaning` says.
/// 2. The engine timed the forward pass, and the time is not from 1 ns to 10⁶ s. The other rules do not apply to timed passes.
/// 3. No step follows, the step number or clock does not increase, or the period is not within those limits.
/// 4. Compared with the pace of the steps around it (`docs/ingest.md`), a period of less than a twentieth is a clock jump, and one of
///    more than five times the expected time is a gap. If all requests may have finished in between, more than 1.5
///    times the expected time is a gap: the engine idled.
///
/// ```
/// use ridgepoint_lab::ingest::{Cleaning, StepRecord, StepTrace, periods};
///
/// let step = |step_id, start_ns| StepRecord { step_id, start_ns, num_decode_requests: 8, decode_tokens: 8, ..Default::default() };
/// let steps = vec![step(200, 1_000_000), step(202, 41_000_000), step(203, 61_500_000)];
/// let periods = periods(&StepTrace { steps, ..Default::default() }, &Cleaning::default());
/// // 40 ms for two steps, 20.5 ms for one; nothing follows the last.
/// let found: Vec<(u64, f64)> = periods.intervals().map(|of| (of.steps, of.period_us())).collect();
/// assert_eq!(found, [(2, 20_000.0), (1, 20_500.0)]);
/// assert_eq!(periods.dropped().total(), 1);
/// ```
pub fn periods(trace: &StepTrace, cleaning: &Cleaning) -> Periods {
    let steps = trace.steps.as_slice();
    let time = |(first, step): (usize, &StepRecord)| interval(first, step, steps.get(first + 1), cleaning);
    let mut times: Vec<Result<Interval, DropReason>> = steps.iter().enumerate().map(time).collect();
    let is_by_clock = |of: &&Interval| steps.get(of.first).is_some_and(|step| step.gpu_time_us.is_none());
    let by_clock: Vec<Interval> = times.iter().flatten().filter(is_by_clock).copied().collect();
    let pace = Pace::new(steps, &by_clock);
    for (position, interval) in by_clock.iter().enumerate() {
        if let Some(reason) = pace.fault(position, interval)
            && let Some(time) = times.get_mut(interval.first)
        {
            *time = Err(reason);
        }
    }
    Periods { times }
}

/// The interval from a step to the next one, or why there is none.
fn interval(
    first: usize,
    step: &StepRecord,
    next: Option<&StepRecord>,
    cleaning: &Cleaning,
) -> Result<Interval, DropReason> {
    if step.step_id < cleaning.warm_up_steps {
        return Err(DropReason::WarmUp);
    }
    if step.is_empty() {
        return Err(DropReason::Empty);
    }
    if cleaning.drop_preemptions && step.num_preempted.is_some_and(|count| count > 0) {
        return Err(DropReason::Preemption);
    }
    if let Some(span_us) = step.gpu_time_us {
        return if MICROSECONDS.contains(span_us) {
            Ok(Interval { first, steps: 1, span_us })
        } else {
            Err(DropReason::BadValue)
        };
    }
    let next = next.ok_or(DropReason::LastStep)?;
    if next.step_id <= step.step_id {
        return Err(DropReason::Duplicate);
    }
    if next.start_ns <= step.start_ns {
        return Err(DropReason::ClockJump);
    }
    let span_us = ns_to_us(next.start_ns - step.start_ns);
    let interval = Interval { first, steps: next.step_id - step.step_id, span_us };
    if MICROSECONDS.contains(interval.period_us()) { Ok(interval) } else { Err(DropReason::ClockJump) }
}

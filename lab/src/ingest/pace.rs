//! The pace of an engine around each step. It distinguishes a long step from an idle engine.

use super::dropped::DropReason;
use super::step::{Interval, StepRecord};
use crate::stats::{mean, median, observed_quantile};

/// Number of neighbouring intervals whose median is the pace.
const NEIGHBOURS: usize = 51;
/// With fewer intervals that are surely free of idling, the pace is a quartile of all.
const MIN_SURE: usize = 5;
/// An interval shorter than this share of the pace means that the clock jumped.
const MIN_PERIOD_RATIO: f64 = 1.0 / 20.0;
/// A time of more than this many times the expected one is a gap.
const GAP_RATIO: f64 = 5.0;
/// If the engine may have idled, a time of more than this many times the expected one means that it did.
const IDLE_RATIO: f64 = 1.5;
/// Number of prefill tokens that take about as long as a decode step: there the weights' FLOPs take as long as reading them.
/// Datasheets give 156 to 590 FLOP per byte (A100 in 16 bits, H100 in 8), real kernels less. The low end allows the most time.
const TOKENS_PER_STEP_TIME: f64 = 128.0;

/// The pace of a trace, and how fast its requests finish.
pub(super) struct Pace<'a> {
    steps: &'a [StepRecord],
    /// Medians around each interval, µs.
    reference_us: Vec<f64>,
    /// Requests that finish per step, where the trace counts them.
    finished_per_step: Option<f64>,
}

impl<'a> Pace<'a> {
    /// Finds the pace of `intervals`, which are in the order of `steps`.
    pub(super) fn new(steps: &'a [StepRecord], intervals: &[Interval]) -> Self {
        let finished: Vec<f64> = steps.iter().filter_map(|step| step.num_finished.map(f64::from)).collect();
        let finished_per_step = mean(&finished);
        let is_sure = |of: &&Interval| !may_run_dry(steps, finished_per_step, of);
        let sure: Vec<Interval> = intervals.iter().filter(is_sure).copied().collect();
        let reference_us = if sure.len() >= MIN_SURE {
            running_medians(&sure, intervals)
        } else {
            // Idling only adds time, so the faster intervals are free of it.
            let mut periods_us: Vec<f64> = intervals.iter().map(Interval::period_us).collect();
            let quartile = observed_quantile(&mut periods_us, 0.25);
            vec![quartile.unwrap_or(0.0); intervals.len()]
        };
        Pace { steps, reference_us, finished_per_step }
    }

    /// Returns why an interval is unusable; `position` is its index among the intervals of [`Pace::new`].
    pub(super) fn fault(&self, position: usize, interval: &Interval) -> Option<DropReason> {
        let reference_us = self.reference_us.get(position)?;
        if interval.period_us() < MIN_PERIOD_RATIO * reference_us {
            return Some(DropReason::ClockJump);
        }
        let own_tokens = self.steps.get(interval.first).map_or(0, |step| step.prefill_tokens);
        let hidden_tokens = if interval.steps > 1 { self.most_prefill_tokens_near(interval.first) } else { 0 };
        let prompts = own_tokens.saturating_add(hidden_tokens) as f64 / TOKENS_PER_STEP_TIME;
        let expected_us = reference_us * (interval.steps as f64 + prompts);
        let may_idle = may_run_dry(self.steps, self.finished_per_step, interval);
        let ratio = if may_idle { IDLE_RATIO } else { GAP_RATIO };
        (interval.span_us > ratio * expected_us).then_some(DropReason::Gap)
    }

    /// The largest prefill near a step: a step that was not sampled may have had as much.
    fn most_prefill_tokens_near(&self, step: usize) -> u64 {
        let half = NEIGHBOURS / 2;
        let near = self.steps.iter().skip(step.saturating_sub(half)).take(NEIGHBOURS);
        near.map(|step| step.prefill_tokens).max().unwrap_or(0)
    }
}

/// Whether all requests of an interval's first step may have finished within it, so that the engine may have idled. An engine
/// that runs dry schedules a step without tokens first. A single step with tokens therefore idles only if the next one reports
/// that all requests finished. Over several steps, up to three times the usual number of requests, and three more, may finish.
fn may_run_dry(steps: &[StepRecord], finished_per_step: Option<f64>, interval: &Interval) -> bool {
    let Some(first) = steps.get(interval.first) else { return true };
    if first.num_waiting.is_some_and(|count| count > 0) {
        return false;
    }
    let batch = first.num_prefill_requests.saturating_add(first.num_decode_requests);
    let running = first.num_running.unwrap_or(0).max(batch);
    if interval.steps == 1 {
        let ended = steps.get(interval.first + 1).and_then(|next| next.num_finished);
        return ended.is_some_and(|ended| ended >= running);
    }
    match finished_per_step {
        Some(finished) => f64::from(running) <= 3.0 * finished * interval.steps as f64 + 3.0,
        None => true,
    }
}

/// For each of `all`, the median period of the nearest `sure` intervals. Both are in the order of steps, and `sure` is not empty.
fn running_medians(sure: &[Interval], all: &[Interval]) -> Vec<f64> {
    let mut medians = Vec::with_capacity(all.len());
    let mut known: Option<(usize, f64)> = None;
    for interval in all {
        let after = sure.partition_point(|of| of.first < interval.first);
        let start = after.saturating_sub(NEIGHBOURS / 2).min(sure.len().saturating_sub(NEIGHBOURS));
        let median_us = match known {
            Some((same, median_us)) if same == start => median_us,
            _ => median(sure.iter().skip(start).take(NEIGHBOURS).map(Interval::period_us).collect()).unwrap_or(0.0),
        };
        known = Some((start, median_us));
        medians.push(median_us);
    }
    medians
}

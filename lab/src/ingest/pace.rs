//! How fast an engine steps around a given step, and whether the time to the next sampled one fits in. Tells a long step from an
//! engine that idled. Uses `step`, `dropped`, `periods`.

use super::dropped::Reason;
use super::periods::Interval;
use super::step::StepRecord;
use crate::stats::{median, observed_quantile};

/// Intervals that the pace at a place is the median of.
const NEIGHBOURS: usize = 51;
/// Fewer intervals that are surely free of idling than this say nothing about the pace.
const MIN_SURE: usize = 5;
/// An interval faster than this share of the pace is no work: the clock jumped.
const MIN_PERIOD_RATIO: f64 = 1.0 / 20.0;
/// Where the engine may have idled, a time beyond this many times the expected one says that it did.
const IDLE_RATIO: f64 = 1.5;
/// Prompt tokens that take about as long as a step of decodes: where the FLOPs of weights pass the time to read them. 156 to 590
/// FLOP per byte on datasheets (A100 in 16 bits, H100 in 8), less on real kernels; the low end, as it only allows for time.
const TOKENS_PER_STEP_TIME: f64 = 128.0;

/// The pace of a trace, and what its steps say of when the engine ran dry.
pub(super) struct Pace<'a> {
    steps: &'a [StepRecord],
    /// Medians around each interval, µs.
    reference_us: Vec<f64>,
    dry: Dry,
}

impl<'a> Pace<'a> {
    /// The pace of `intervals`, which are in the order of `steps`.
    pub(super) fn new(steps: &'a [StepRecord], intervals: &[Interval]) -> Self {
        let dry = Dry::new(steps);
        let is_sure = |of: &&Interval| !dry.may_run_dry(steps, of);
        let sure: Vec<Interval> = intervals.iter().filter(is_sure).copied().collect();
        let reference_us = if sure.len() >= MIN_SURE {
            running_medians(&sure, intervals)
        } else {
            // Idling only adds: the faster intervals are those without it.
            let mut periods_us: Vec<f64> = intervals.iter().map(Interval::period_us).collect();
            let quartile = observed_quantile(&mut periods_us, 0.25);
            vec![quartile.unwrap_or(0.0); intervals.len()]
        };
        Pace { steps, reference_us, dry }
    }

    /// What is wrong with the interval at `position` among those that the pace was made of.
    pub(super) fn fault(&self, position: usize, interval: &Interval, max_period_ratio: f64) -> Option<Reason> {
        let reference_us = self.reference_us.get(position)?;
        if interval.period_us() < MIN_PERIOD_RATIO * reference_us {
            return Some(Reason::ClockJump);
        }
        let own_tokens = self.steps.get(interval.first).map_or(0, |step| step.prefill_tokens);
        let hidden_tokens = if interval.steps > 1 { self.most_prefill_tokens_near(interval.first) } else { 0 };
        let prompts = (own_tokens + hidden_tokens) as f64 / TOKENS_PER_STEP_TIME;
        let expected_us = reference_us * (interval.steps as f64 + prompts);
        let may_idle = self.dry.may_run_dry(self.steps, interval);
        let ratio = if may_idle { IDLE_RATIO.min(max_period_ratio) } else { max_period_ratio };
        (interval.span_us > ratio * expected_us).then_some(Reason::Gap)
    }

    /// What a step that was not sampled may have had to do.
    fn most_prefill_tokens_near(&self, step: usize) -> u64 {
        let half = NEIGHBOURS / 2;
        let near = self.steps.iter().skip(step.saturating_sub(half)).take(NEIGHBOURS);
        near.map(|step| step.prefill_tokens).max().unwrap_or(0)
    }
}

/// How fast requests end.
struct Dry {
    /// Requests that end per step, where the trace counts them.
    finished_per_step: Option<f64>,
}

impl Dry {
    fn new(steps: &[StepRecord]) -> Self {
        let counts: Vec<u32> = steps.iter().filter_map(|step| step.num_finished).collect();
        let sum: f64 = counts.iter().map(|count| f64::from(*count)).sum();
        Dry { finished_per_step: (!counts.is_empty()).then(|| sum / counts.len() as f64) }
    }

    /// Whether all requests of an interval's first step may have ended before its end, so that the engine may have idled.
    /// An engine that runs dry has a step without tokens first, so a single step that has some never idles unless the next one
    /// says that as many requests ended. Over several steps, three times the usual number of ends and three more are possible.
    fn may_run_dry(&self, steps: &[StepRecord], interval: &Interval) -> bool {
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
        match self.finished_per_step {
            Some(finished) => f64::from(running) <= 3.0 * finished * interval.steps as f64 + 3.0,
            None => true,
        }
    }
}

/// For each of `all`, the median period of the `sure` ones nearest to it; both are in the order of steps and `sure` is not empty.
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

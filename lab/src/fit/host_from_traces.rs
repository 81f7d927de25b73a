//! Fits host overheads to traces of requests: the delay from arrival to the engine's queue, and from a token to its client.

use nalgebra::{Matrix2, Vector2};

use super::front_end_loop::{FrontEndLoop, QueueingDelay};
use super::posterior::IDENTIFIED_SD_SHARE;
use super::report::{HostFit, ParameterReport};
use crate::evaluate::steps::read::StepData;
use crate::evaluate::steps::split::FIRST;
use crate::huber;
use crate::ingest::step_table::TableRun;
use crate::ingest::{DropReason, HostDelays, RequestRow, RequestTrace};
use crate::solver::Parameter;
use crate::stats::{median, non_negative_least_squares, robust_sd};
use ridgepoint::latency::HostTimes;
use ridgepoint::units::ns_to_us;

/// Least number of requests that a delay is fitted to.
pub(super) const LEAST_REQUESTS: usize = 20;
/// Last share of a step's period in which its successor is about to begin.
const ABOUT_TO_BEGIN: f64 = 0.1;
/// Longest mean wait for an iteration of a request whose delay counts, in medians of all requests: the arrivals of a burst are not even
/// over a long iteration, so that half of it is off by more than the delay.
const LONGEST_WAIT: f64 = 2.0;
/// Rounds of weighting and solving.
const TURNS: usize = 30;

/// Host delays of the requests of runs. The wait for the running iteration is subtracted, because a replay adds it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct DelaysOfRuns {
    /// Of the first 60 % of each run's requests, by their arrivals.
    pub(super) first: Delays,
    /// Of all requests.
    pub(super) all: Delays,
}

/// Host delays, those before the queue without the time in the front end's loop.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Delays {
    pub(super) host: HostDelays,
    pub(super) front_end: Option<FrontEndLoop>,
}

/// A request of a run.
struct Sent<'a> {
    row: &'a RequestRow,
    /// Its wait for the iteration at hand; `None` where that is not known well enough.
    wait_us: Option<f64>,
    /// It is among the first 60 %.
    is_first: bool,
}

impl DelaysOfRuns {
    /// Of the requests of runs.
    pub fn of(data: &StepData) -> DelaysOfRuns {
        let runs: Vec<Vec<Sent<'_>>> = data.requests.iter().map(|requests| sent(data, requests)).collect();
        DelaysOfRuns { first: Delays::of(&runs, |of| of.is_first), all: Delays::of(&runs, |_| true) }
    }

    /// The overheads of all requests; those that the delays do not tell are the prior's.
    pub fn host(&self, prior: &HostTimes) -> HostFit {
        self.all.host(prior)
    }
}

impl Delays {
    /// Of the chosen requests of runs. The front end's loop is taken out of the delays before the queue, if it shows in them.
    fn of(runs: &[Vec<Sent<'_>>], is_chosen: fn(&Sent<'_>) -> bool) -> Delays {
        let mut host = HostDelays::default();
        let mut of_run = |run: &Vec<Sent<'_>>| {
            let before_queue = run.iter().filter(|of| is_chosen(of)).filter_map(|of| {
                let (num_prompt_tokens, us) = host.add(of.row, of.wait_us)?;
                Some(QueueingDelay { arrived_ns: of.row.arrived_ns?.get(), num_prompt_tokens, us })
            });
            before_queue.collect::<Vec<_>>()
        };
        let mut before_queue: Vec<Vec<QueueingDelay>> = runs.iter().map(&mut of_run).collect();
        let front_end = FrontEndLoop::of(&mut before_queue);
        if let Some(front_end) = &front_end {
            host.arrival_to_queued_us.clone_from(&front_end.left);
        }
        Delays { host, front_end }
    }

    /// The overheads of these delays, as [`host_from_delays`], and the front end's loop.
    pub(super) fn host(&self, prior: &HostTimes) -> HostFit {
        let mut host = host_from_delays(&self.host, prior);
        if let Some(front_end) = &self.front_end {
            host.times.front_end_us = front_end.us;
            host.parameters.push(front_end.report(prior));
        }
        host
    }
}

/// The requests of a run with their waits.
///
/// vLLM's engine takes requests in between its iterations (`EngineCoreProc.run_busy_loop`). A request has waited for half of the time
/// since the last step began then, on average, unless the engine idled.
fn sent<'a>(data: &StepData, RequestTrace { run, requests }: &'a RequestTrace) -> Vec<Sent<'a>> {
    let steps = data.runs.iter().map(|of| &of.run).find(|of| of.trace.run.experiment == run.experiment);
    let steps = steps.filter(|run| takes_between_iterations(run, requests));
    let wait_us = |request: &RequestRow| {
        let iteration = steps.zip(request.queued_ns).and_then(|(run, ns)| RunningIteration::at(run, ns.get()));
        iteration.map_or(0.0, |of| of.mean_wait_us())
    };
    let waits_us: Vec<f64> = requests.iter().map(wait_us).collect();
    let longest_us = LONGEST_WAIT * median(waits_us.clone()).unwrap_or(0.0);
    let mut arrivals: Vec<Option<u64>> = requests.iter().map(RequestRow::arrival_ns).collect();
    arrivals.sort_unstable();
    let is_before = |(at, _): &(usize, &Option<u64>)| (*at as f64) < FIRST * arrivals.len() as f64;
    let later = arrivals.iter().enumerate().find(|of| !is_before(of)).map(|(_, arrival)| *arrival);
    let sent = |(row, wait_us): (&'a RequestRow, f64)| Sent {
        row,
        wait_us: Some(wait_us).filter(|us| *us <= longest_us || longest_us <= 0.0),
        is_first: later.is_none_or(|later| row.arrival_ns() < later),
    };
    requests.iter().zip(waits_us).map(sent).collect()
}

/// The iteration that a request found at work when it was queued.
struct RunningIteration {
    /// Time since its step began, µs.
    since_us: f64,
    /// Time from its step to the next one in the trace, µs.
    span_us: f64,
    /// Steps in that time.
    steps: u64,
}

impl RunningIteration {
    /// `None` where the engine idled, or no step was traced.
    fn at(run: &TableRun, queued_ns: u64) -> Option<RunningIteration> {
        let steps = &run.trace.steps;
        let at = steps.partition_point(|step| step.start_ns < queued_ns).checked_sub(1)?;
        let (step, next, time) = (steps.get(at)?, steps.get(at + 1)?, run.periods.times.get(at)?);
        let is_busy = matches!(time, Ok(_) | Err(DropReason::Preemption | DropReason::WarmUp));
        let of = RunningIteration {
            since_us: ns_to_us(queued_ns - step.start_ns),
            span_us: ns_to_us(next.start_ns.checked_sub(step.start_ns)?),
            steps: next.step_id.checked_sub(step.step_id).filter(|steps| *steps > 0)?,
        };
        (is_busy && step.gpu_time_us.is_none() && of.since_us <= of.span_us).then_some(of)
    }

    /// The time that requests wait for its end on average, µs.
    fn mean_wait_us(&self) -> f64 {
        0.5 * self.since_us.min(self.span_us / self.steps as f64)
    }
}

/// Whether most requests are queued when a step is about to begin; where sampled steps do not show it, they are assumed to be.
fn takes_between_iterations(run: &TableRun, requests: &[RequestRow]) -> bool {
    let found = requests
        .iter()
        .filter_map(|request| RunningIteration::at(run, request.queued_ns?.get()))
        .filter(|of| of.steps == 1);
    let (mut single, mut late) = (0, 0);
    for RunningIteration { since_us, span_us, .. } in found {
        single += 1;
        late += u32::from(span_us - since_us <= ABOUT_TO_BEGIN * span_us);
    }
    2 * late >= single
}

/// Returns the host overheads of request delays: `queueing_us + queueing_us_per_token · prompt tokens` is a robust line through the times from arrival to queue,
/// no coefficient below 0; `output_token_us` is the median time from the first token in the engine to the first response.
/// The engine's own delays keep their prior: they are in its periods, not in the times of requests.
///
/// # Formula
/// Huber's loss of residuals over their robust standard deviation, by iteratively reweighted least squares; the standard deviation of a
/// median is √(π/2)·s/√n. If all prompts have the same length, the time per token is the prior's.
fn host_from_delays(delays: &HostDelays, prior: &HostTimes) -> HostFit {
    let mut times = *prior;
    // The prior's standard deviation of an overhead is its default.
    let usual = HostTimes::default();
    let (mut fixed, mut per_token, mut output) = (None, None, None);
    let mut notes = Vec::new();

    let line = &delays.arrival_to_queued_us;
    if line.len() >= LEAST_REQUESTS {
        // What was measured holds the front end's part, unless its loop is found in it.
        times.front_end_us = 0.0;
        let found = robust_line(line).filter(|of| of.slope_sd < IDENTIFIED_SD_SHARE * usual.queueing_us_per_token);
        if let Some(found) = found {
            (times.queueing_us, times.queueing_us_per_token) = (found.start, found.slope);
            (fixed, per_token) = (Some(found.start_sd), Some(found.slope_sd));
        } else {
            let slope = times.queueing_us_per_token;
            let rest: Vec<f64> = line.iter().map(|(tokens, us)| us - slope * *tokens as f64).collect();
            fixed = Some(sd_of_median(&rest));
            times.queueing_us = median(rest).unwrap_or(0.0).max(0.0);
            notes.push(
                "queueing_us_per_token: not identified, prompts are too much alike in length; it stays at its prior"
                    .to_owned(),
            );
        }
    }
    let client = &delays.token_to_client_us;
    if client.len() >= LEAST_REQUESTS {
        times.output_token_us = median(client.clone()).unwrap_or(0.0).max(0.0);
        output = Some(sd_of_median(client));
    }
    for (names, count) in [("queueing_us, queueing_us_per_token", line.len()), ("output_token_us", client.len())] {
        if count < LEAST_REQUESTS {
            notes.push(format!(
                "{names}: not identified: times of {count} requests in the data, which must be at least {LEAST_REQUESTS}"
            ));
        }
    }
    if delays.negative > 0 {
        notes.push(format!("{} pairs of requests' times in the wrong order were left out", delays.negative));
    }
    let report = |name, unit, get: fn(&HostTimes) -> f64, sd| {
        ParameterReport::of_host(Parameter::overhead(name, unit, get(prior), get(&usual)), get(&times), sd)
    };
    let parameters = vec![
        report("queueing_us", "µs per request", |of| of.queueing_us, fixed),
        report("queueing_us_per_token", "µs per prompt token", |of| of.queueing_us_per_token, per_token),
        report("output_token_us", "µs per token", |of| of.output_token_us, output),
    ];
    HostFit { times, parameters, notes }
}

fn sd_of_median(values: &[f64]) -> f64 {
    (std::f64::consts::FRAC_PI_2 / values.len().max(1) as f64).sqrt() * robust_sd(values.to_vec())
}

/// A line `start + slope·x`.
#[derive(Debug, Clone, Copy)]
pub(super) struct RobustLine {
    pub(super) start: f64,
    pub(super) slope: f64,
    start_sd: f64,
    slope_sd: f64,
}

/// `None` where all x are the same.
pub(super) fn robust_line(pairs: &[(u64, f64)]) -> Option<RobustLine> {
    let (rows, times): (Vec<[f64; 2]>, Vec<f64>) = pairs.iter().map(|(x, y)| ([1.0, *x as f64], *y)).unzip();
    let mean_x = rows.iter().map(|[_, x]| x).sum::<f64>() / rows.len() as f64;
    let squares: f64 = rows.iter().map(|[_, x]| (x - mean_x).powi(2)).sum();
    if squares <= 1e-9 * rows.len() as f64 * mean_x * mean_x {
        return None;
    }
    let mut weights = vec![1.0; pairs.len()];
    let mut found = None;
    for _ in 0..TURNS {
        let [start, slope] = non_negative_least_squares(&rows, &times, &weights)?;
        let off: Vec<f64> = rows.iter().zip(&times).map(|([_, x], y)| y - start - slope * x).collect();
        let scale = robust_sd(off.clone());
        weights = off.iter().map(|off| huber::weight(off / scale)).collect();
        found = Some((start, slope, off, scale));
        if scale <= 0.0 {
            break;
        }
    }
    let (start, slope, off, scale) = found?;
    let [start_sd, slope_sd] = sandwich(&rows, &off, scale)?;
    Some(RobustLine { start, slope, start_sd, slope_sd })
}

/// Standard deviations of a robust line's start and slope, whatever the scatter of each row: that of requests behind a busy engine
/// is far wider than that of others.
///
/// # Formula
/// A⁻¹·B·A⁻¹ with A = Σ ψ′·xxᵀ and B = Σ ψ²·xxᵀ over x = (1, tokens), ψ being Huber's clamped residual (Huber 1967).
fn sandwich(rows: &[[f64; 2]], off: &[f64], scale: f64) -> Option<[f64; 2]> {
    if scale <= 0.0 {
        return Some([0.0, 0.0]);
    }
    let (mut a, mut b) = (Matrix2::zeros(), Matrix2::zeros());
    for (row, off) in rows.iter().zip(off) {
        let x = Vector2::from(*row);
        let weight = huber::weight(off / scale);
        if weight >= 1.0 {
            a += x * x.transpose();
        }
        b += x * x.transpose() * (weight * off).powi(2);
    }
    let inverse = a.try_inverse()?;
    let covariance = inverse * b * inverse;
    Some([covariance.m11, covariance.m22].map(|variance: f64| variance.max(0.0).sqrt()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 4 ms and 3 µs a token, give or take a few per mille, one request in ten waiting a second.
    fn delays() -> HostDelays {
        let noise = |i: u64| ((i * 7919) % 101) as f64 - 50.0;
        let queued = |i: u64| {
            let tokens = 100 + 37 * (i % 50);
            let late = if i.is_multiple_of(10) { 1e6 } else { 0.0 };
            (tokens, 4000.0 + 3.0 * tokens as f64 + noise(i) + late)
        };
        HostDelays {
            arrival_to_queued_us: (0..200).map(queued).collect(),
            token_to_client_us: (0..41).map(|i| 1000.0 + 10.0 * f64::from(i)).collect(),
            negative: 3,
            ..HostDelays::default()
        }
    }

    #[test]
    fn a_line_is_found_behind_stragglers() {
        let fit = host_from_delays(&delays(), &HostTimes::default());
        assert!((fit.times.queueing_us - 4000.0).abs() < 25.0, "{fit:?}");
        assert!((fit.times.queueing_us_per_token - 3.0).abs() < 0.03, "{fit:?}");
        assert!((fit.times.output_token_us - 1200.0).abs() < 1e-9, "{fit:?}");
        assert_eq!(fit.times.scheduling_us.to_bits(), HostTimes::default().scheduling_us.to_bits());
        let known: Vec<bool> = fit.parameters.iter().map(|of| of.identified).collect();
        assert_eq!(known, [true, true, true]);
        assert!(fit.notes.iter().any(|note| note.starts_with("3 pairs")), "{:?}", fit.notes);
    }

    #[test]
    fn the_sd_of_a_median_by_hand() {
        // 0 to 40: half of the values lie within 10 of 20, s = 14.826; √(π/2 / 41) = 0.195734.
        let values: Vec<f64> = (0..41).map(f64::from).collect();
        assert!((sd_of_median(&values) - 14.826 * 0.195_734).abs() < 1e-4);
    }

    #[test]
    fn prompts_of_one_length_say_nothing_of_a_token() {
        let same = HostDelays { arrival_to_queued_us: vec![(500, 5000.0); 30], ..HostDelays::default() };
        let fit = host_from_delays(&same, &HostTimes::default());
        // 5000 − 500 · 2.
        assert!((fit.times.queueing_us - 4000.0).abs() < 1e-9, "{fit:?}");
        assert!(fit.parameters[0].identified && !fit.parameters[1].identified && !fit.parameters[2].identified);
        assert!(fit.notes[0].contains("alike in length"), "{:?}", fit.notes);
        assert!(fit.notes[1].contains("output_token_us: not identified: times of 0 requests"), "{:?}", fit.notes);
    }

    #[test]
    fn a_line_that_would_begin_below_zero_begins_at_zero() {
        let pairs: Vec<(u64, f64)> = (1..=30).map(|x| (100 * x, 5.0 * (100 * x) as f64 - 60.0)).collect();
        let line = robust_line(&pairs).unwrap();
        assert!(line.start.abs() < 1e-300 && (4.9..5.0).contains(&line.slope), "{line:?}");
        let falling: Vec<(u64, f64)> = (1..=30).map(|x| (x, 100.0 - x as f64)).collect();
        let line = robust_line(&falling).unwrap();
        assert!(line.slope.abs() < 1e-300 && (84.0..85.0).contains(&line.start), "{line:?}");
    }

    #[test]
    fn a_few_requests_say_nothing() {
        let few = HostDelays { token_to_client_us: vec![1.0; 19], ..HostDelays::default() };
        let fit = host_from_delays(&few, &HostTimes::default());
        assert_eq!(fit.times, HostTimes::default());
        assert!(fit.notes.iter().any(|note| note.contains("19 requests")), "{:?}", fit.notes);
    }
}

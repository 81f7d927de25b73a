//! Replays a captured run and compares the predicted times of its requests and steps with the measured ones.

use std::io::Write;

use super::super::scorecard::{MAX_E2E_PCT, MAX_TTFT_AND_ITL_PCT};
use super::counts::{WorkCount, work_counts};
use super::distributions::{Distributions, TokenGaps};
use super::load::load;
use super::queue_wait::{OtherWaits, QueueWaits};
use super::read::CapturedRun;
use super::times::{JudgedRequest, RequestTimes};
use crate::evaluate::changed_loop::in_flight;
use crate::evaluate::measured::WHOLE_RUN;
use crate::evaluate::metric::{Latency, Metric, Statistic};
use crate::evaluate::report::MetricRow;
use crate::evaluate::steps::case::note_on_sampling;
use crate::evaluate::steps::reconstruct;
use crate::evaluate::steps::window::mean_step_us;
use crate::fit::ParameterReport;
use crate::ingest::{Dropped, Interval, StepRecord, own_sampling};
use crate::training::QueueRow;
use ridgepoint::correction::CorrectionInfo;
use ridgepoint::latency::{CalibratedRoofline, FittedBlackBox, LatencyModel};
use ridgepoint::units::{US_PER_MS, ns_to_ms};
use ridgepoint::{Error, Result, Step, StepModel};
use ridgepoint_replay::export::TokenTimes;
use ridgepoint_replay::{Distribution, EngineConfig, Observer, Outcome, Spread, SpreadSampler, replay};
use serde::Serialize;

/// The largest errors with which a simulator passes, percent.
///
/// # Source
/// "The latency model fidelity problem": workload-level E2E mean below 10 %, TTFT mean and ITL mean below 15 %.
const LIMITS_PCT: [(Metric, f64); 3] = [
    (Metric::E2E_MEAN, MAX_E2E_PCT),
    (Metric::TTFT_MEAN, MAX_TTFT_AND_ITL_PCT),
    (Metric::ITL_MEAN, MAX_TTFT_AND_ITL_PCT),
];

/// Measured means below this have no error worth reporting, ms: no request waits.
pub(crate) const NO_TIME_MS: f64 = 1e-3;

/// A limit, and whether the prediction keeps it.
#[derive(Debug, Clone, Serialize)]
pub struct LimitCheck {
    /// The metric.
    pub metric: Metric,
    /// The largest error that passes, percent.
    pub limit_pct: f64,
    /// The error, percent.
    pub ape_pct: f64,
    /// Whether it is at most the limit.
    pub passed: bool,
}

/// A captured run with its prediction. Keys of its JSON are stable: keys are added, never renamed or dropped.
#[derive(Debug, Clone, Serialize)]
pub struct CaptureReport {
    /// Name of the run.
    pub experiment: String,
    /// Number of requests that finished in the replay.
    pub requests: usize,
    /// Requests that were not, by reason.
    pub left_out: Dropped,
    /// The correction of the prediction.
    pub correction: CorrectionInfo,
    /// The method of the line that times steps instead, as `ridge`; not there for predictions by the tables.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_model: Option<String>,
    /// Coefficients of a correction that was fitted for this judgement.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub coefficients: Option<Vec<ParameterReport>>,
    /// Measured and predicted values.
    pub metrics: Vec<MetricRow>,
    /// vLLM's FLOPs and bytes compared with ours, where the capture has both `/metrics` with these and every step.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub work: Vec<WorkCount>,
    /// How the gaps between tokens are distributed, where the capture reports them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub distributions: Option<Box<Distributions>>,
    /// Waits in the queue compared with those that lines predict, where the capture reports them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue_waits: Option<Box<QueueWaits>>,
    /// The limits of published simulators.
    pub verdicts: Vec<LimitCheck>,
    /// Whether there are such limits and all of them are kept.
    pub passed: bool,
    /// Remarks.
    pub notes: Vec<String>,
    /// The requests one by one.
    #[serde(skip)]
    pub judged: Vec<JudgedRequest>,
}

/// The server that a capture is replayed on.
#[derive(Debug, Clone)]
pub struct CaptureServer {
    /// Scheduler and cache.
    pub engine: EngineConfig,
    /// The server's file or flags give the number of KV blocks; otherwise that of a step trace counts.
    pub blocks_are_given: bool,
    /// Requests that the client kept in flight; `None` sends each at its captured time.
    pub max_concurrency: Option<u32>,
    /// Times of steps, of the host and of KV transfers.
    pub latency: CalibratedRoofline,
    /// Times steps and the host instead of `latency`, without intervals.
    pub fitted: Option<FittedBlackBox>,
}

/// Replays a captured run on a server and compares the predicted times with the measured ones. Lines of waits in the queue are fitted
/// on `others`, else on the first of the run's own requests. `observers` watch the replay.
///
/// # Errors
/// No request that can be sent again or that finishes, and those of [`replay`].
pub fn judge_capture(
    mut run: CapturedRun,
    server: CaptureServer,
    others: Option<&OtherWaits>,
    observers: &mut [&mut dyn Observer],
) -> Result<CaptureReport> {
    let CaptureServer { mut engine, blocks_are_given, max_concurrency, latency, fitted } = server;
    let times: &dyn LatencyModel = fitted.as_ref().map_or(&latency, |fitted| &fitted.black_box);
    let mut notes = std::mem::take(&mut run.notes);
    let traced = run.steps.as_ref().and_then(|steps| traced_blocks(&steps.trace.steps));
    if let Some(blocks) = traced.filter(|blocks| !blocks_are_given && *blocks != engine.num_gpu_blocks) {
        notes.push(format!(
            "{blocks} KV blocks, as the trace says; the memory equation finds {}",
            engine.num_gpu_blocks
        ));
        engine.num_gpu_blocks = blocks;
    }
    let own_sampling = own_sampling(&run.requests);
    notes.extend(note_on_sampling(&own_sampling));
    let steps = latency.steps().with_own_sampling(&own_sampling);
    let mut captured = load(std::mem::take(&mut run.requests), engine.block_size)?;
    notes.append(&mut captured.notes);
    let (mut sampler, mut tokens) = (SpreadSampler::new(&steps), TokenTimes::default());
    let mut watching: Vec<&mut dyn Observer> = vec![&mut sampler, &mut tokens];
    for observer in observers {
        watching.push(&mut **observer);
    }
    let replayed = match max_concurrency {
        None => replay(times, &engine, &mut captured.list, &mut watching)?,
        Some(most) => replay(times, &engine, &mut in_flight(most, captured.list)?, &mut watching)?,
    };
    replayed.check_clock()?;
    // A black box tells nothing of its own uncertainty.
    let spread = if fitted.is_some() { Spread::NONE } else { sampler.spread() };
    notes.extend(sampler.extrapolated().filter(|_| fitted.is_none()));
    let mut left_out = std::mem::take(&mut run.dropped);
    left_out.merge(&captured.dropped);
    notes.extend(replayed.notes(&engine, replayed.queue_trend().as_ref()));

    let sent = captured.rows.len();
    let (mut token_gaps, mut judged) = (TokenGaps::default(), Vec::new());
    for (at, (row, record)) in captured.rows.into_iter().zip(&replayed.records).enumerate() {
        if record.outcome != Outcome::Finished {
            continue;
        }
        if let Some(captured) = run.tokens.get(&*row.request_id) {
            token_gaps.add(captured, tokens.gaps_ns(at).map(ns_to_ms));
        }
        judged.push(JudgedRequest {
            num_cached_tokens: record.num_cached_tokens,
            num_preemptions: record.num_preemptions,
            measured: RequestTimes::measured(&row),
            predicted: RequestTimes::predicted(record),
            queued: QueueRow::of(&row, run.steps.as_ref().map_or(&[], |steps| &steps.trace.steps)),
            row,
        });
    }
    if judged.is_empty() {
        let problem = format!("none of its {sent} requests finishes in the replay");
        return Err(Error::invalid(run.run.experiment.as_str(), vec![problem]));
    }
    let mut metrics = metrics(&judged, &token_gaps, &spread, &mut notes);
    metrics.extend(step_row(&run, (&steps, times, fitted.is_some()), &engine, &mut notes));
    let work = work_counts(&run, &steps, engine.block_size, &mut notes)?;
    let verdicts = verdicts(&metrics);
    Ok(CaptureReport {
        experiment: run.run.experiment,
        requests: judged.len(),
        left_out,
        correction: CorrectionInfo::of(latency.steps().correction().filter(|_| fitted.is_none())),
        latency_model: fitted.map(|fitted| fitted.method),
        coefficients: None,
        passed: !verdicts.is_empty() && verdicts.iter().all(|verdict| verdict.passed),
        metrics,
        work,
        distributions: Distributions::of(token_gaps).map(Box::new),
        queue_waits: QueueWaits::of(&judged, others).map(Box::new),
        verdicts,
        notes,
        judged,
    })
}

/// KV blocks of an engine, if its steps report them.
pub fn traced_blocks(steps: &[StepRecord]) -> Option<u32> {
    steps.iter().find_map(|step| u32::try_from(step.kv_blocks_total?).ok())
}

/// A row for every statistic of every latency that was measured.
fn metrics(judged: &[JudgedRequest], gaps: &TokenGaps, spread: &Spread, notes: &mut Vec<String>) -> Vec<MetricRow> {
    type Time = fn(&RequestTimes) -> Option<f64>;
    let of_requests: [(Latency, Time); 4] = [
        (Latency::E2e, |times| times.e2e_ms),
        (Latency::Ttft, |times| times.ttft_ms),
        (Latency::Tpot, |times| times.tpot_ms),
        (Latency::QueueWait, |times| times.queue_wait_ms),
    ];
    let mut rows = Vec::new();
    for (latency, time) in of_requests {
        let pairs = judged.iter().filter_map(|of| Some((time(&of.measured)?, time(&of.predicted)?)));
        let (measured, predicted): (Vec<f64>, Vec<f64>) = pairs.unzip();
        rows.extend(statistics(latency, measured, predicted, spread, notes));
    }
    if gaps.captured.gaps_ms.is_empty() {
        // The mean over gaps needs no token times.
        let gaps = |times: fn(&JudgedRequest) -> RequestTimes| {
            let of = |judged: &JudgedRequest| {
                let gaps = judged.row.num_output_tokens?.get().checked_sub(1)? as f64;
                Some((times(judged).tpot_ms? * gaps, gaps))
            };
            let (sum, count) = judged.iter().filter_map(of).fold((0.0, 0.0), |(a, b), (x, y)| (a + x, b + y));
            sum / count
        };
        let (measured_ms, predicted_ms) = (gaps(|of| of.measured), gaps(|of| of.predicted));
        if measured_ms > NO_TIME_MS && predicted_ms.is_finite() {
            rows.push(MetricRow::new(WHOLE_RUN, Metric::ITL_MEAN, measured_ms, predicted_ms).within(spread));
        }
    } else {
        let (measured, predicted) = (gaps.captured.gaps_ms.clone(), gaps.predicted.gaps_ms.clone());
        rows.extend(statistics(Latency::Itl, measured, predicted, spread, notes));
    }
    rows
}

fn statistics(
    latency: Latency,
    measured: Vec<f64>,
    predicted: Vec<f64>,
    spread: &Spread,
    notes: &mut Vec<String>,
) -> Vec<MetricRow> {
    let Some((measured, predicted)) = Distribution::of(measured).zip(Distribution::of(predicted)) else {
        return Vec::new();
    };
    if measured.mean < NO_TIME_MS {
        let name = Metric { latency, statistic: Statistic::Mean };
        notes.push(format!(
            "{name} is {:.4} ms, predicted {:.4} ms: too short for an error",
            measured.mean, predicted.mean
        ));
        return Vec::new();
    }
    Statistic::ALL
        .into_iter()
        .filter(|statistic| statistic.of(&measured) >= NO_TIME_MS)
        .map(|statistic| {
            let metric = Metric { latency, statistic };
            MetricRow::new(WHOLE_RUN, metric, statistic.of(&measured), statistic.of(&predicted)).within(spread)
        })
        .collect()
}

/// The mean step of a traced run.
fn step_row(
    run: &CapturedRun,
    (steps, times, is_black_box): (&StepModel, &dyn LatencyModel, bool),
    engine: &EngineConfig,
    notes: &mut Vec<String>,
) -> Option<MetricRow> {
    // Asynchronous scheduling hides the host's share, and a timed forward pass has none of it.
    let scheduling_us = |step: &StepRecord| {
        let is_hidden = engine.scheduler.async_scheduling || step.gpu_time_us.is_some();
        if is_hidden { 0.0 } else { times.host().scheduling_processing_time_us() }
    };
    let traced = run.steps.as_ref()?;
    let (mut rows, mut sums) = (Vec::<Interval>::new(), [0.0; 4]);
    for row in traced.periods.intervals() {
        let step = traced.trace.steps.get(row.first)?;
        let Some((batch, _)) = reconstruct::requests(step, engine.block_size) else { continue };
        let weight = row.steps as f64;
        let times_us = if is_black_box {
            [times.step_time_us(&Step::from(&*batch)); 3]
        } else {
            let estimate = steps.estimate_unchecked(&batch);
            let queues_us = steps.correction().map_or(0.0, |of| of.queues_us(&step.queues())) + scheduling_us(step);
            [estimate.step_time_us, estimate.lower_us, estimate.upper_us].map(|us| us + queues_us)
        };
        let figures = [1.0, times_us[0], times_us[1], times_us[2]];
        sums.iter_mut().zip(figures).for_each(|(sum, figure)| *sum += weight * figure);
        rows.push(*row);
    }
    let [weight, sums @ ..] = sums;
    if weight <= 0.0 {
        notes.push("no traced step has a time and requests: steps are not judged".to_owned());
        return None;
    }
    notes.push(format!("step_mean is of {} traced rows", rows.len()));
    let [predicted_ms, lower_ms, upper_ms] = sums.map(|sum| sum / weight / US_PER_MS);
    let mut row = MetricRow::new(WHOLE_RUN, Metric::STEP_MEAN, mean_step_us(&rows) / US_PER_MS, predicted_ms);
    (row.lower_ms, row.upper_ms) = (lower_ms, upper_ms);
    Some(row)
}

fn verdicts(metrics: &[MetricRow]) -> Vec<LimitCheck> {
    let verdict = |(metric, limit_pct): (Metric, f64)| {
        let ape_pct = metrics.iter().find(|row| row.metric == metric)?.ape_pct;
        Some(LimitCheck { metric, limit_pct, ape_pct, passed: ape_pct <= limit_pct })
    };
    LIMITS_PCT.into_iter().filter_map(verdict).collect()
}

impl CaptureReport {
    /// Writes a csv row per request with its measured and predicted times.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write_requests(&self, out: impl Write) -> std::io::Result<()> {
        let mut rows = csv::Writer::from_writer(out);
        rows.write_record(REQUEST_COLUMNS.split(','))?;
        for of in &self.judged {
            let pair = |time: fn(&RequestTimes) -> Option<f64>| [time(&of.measured), time(&of.predicted)];
            let times = [
                pair(|times| times.queue_wait_ms),
                pair(|times| times.ttft_ms),
                pair(|times| times.tpot_ms),
                pair(|times| times.e2e_ms),
            ];
            let lengths = (of.row.num_prompt_tokens, of.row.num_output_tokens);
            let cached = (of.row.num_cached_tokens, of.num_cached_tokens, of.row.num_preemptions, of.num_preemptions);
            rows.serialize((&of.row.request_id, of.row.arrival_ns(), lengths, cached, times))?;
        }
        rows.flush()
    }
}

/// The columns of [`CaptureReport::write_requests`], separated by commas.
pub const REQUEST_COLUMNS: &str = "request_id,arrived_ns,prompt_tokens,output_tokens,\
    measured_cached_tokens,predicted_cached_tokens,measured_preemptions,predicted_preemptions,\
    measured_queue_wait_ms,predicted_queue_wait_ms,measured_ttft_ms,predicted_ttft_ms,\
    measured_tpot_ms,predicted_tpot_ms,measured_e2e_ms,predicted_e2e_ms";

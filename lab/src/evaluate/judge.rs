//! Replays serving runs and closed loops and compares them with what clients measured, and with the baselines. Cases run in
//! parallel; results keep their order.
#![expect(clippy::cast_possible_truncation, reason = "a load has at most 1,000 stages")]

use rayon::prelude::*;
use ridgepoint::coverage::{IntervalCoverage, LoadKind};

use super::baselines::baseline_metrics;
use super::black_box::{StageMeans, fit_stages};
use super::case::Case;
use super::curves::add_curves;
use super::fold::{Fold, GroupBy, Judged, Labels, Part, others};
use super::measured::WHOLE_RUN;
use super::metric::{Metric, predicted_ms};
use super::report::{Baseline, CaseResult, EvaluationReport, MetricRow, Skipped, in_sample, sort_out};
use ridgepoint::correction::CorrectionInfo;
use ridgepoint::latency::LatencyModel;
use ridgepoint::{Error, Result};
use ridgepoint_replay::{Metrics, SpreadSampler, StageMetrics};

/// A client's count of output tokens may differ from the requested one by this share before a note says so.
const OUTPUT_TOLERANCE: f64 = 0.02;

/// Replays every case and compares. `replaced` are the components that are replaced, one at a time. `done` is called after
/// each replay, [`replays`] times.
///
/// # Errors
/// `ErrorKind::Invalid` if no case can be replayed. Single cases that cannot are listed as skipped.
pub fn judge(
    cases: &[Case],
    mut skipped: Vec<Skipped>,
    seed: u64,
    replaced: &[Baseline],
    done: &(dyn Fn() + Sync),
) -> Result<EvaluationReport> {
    let replayed: Vec<Result<Replayed>> =
        cases.par_iter().map(|case| Replayed::new(case, seed, replaced, done)).collect();
    let names = cases.iter().map(|case| case.labels.name.clone());
    let (kept, mut refused) = sort_out(names.zip(replayed));
    skipped.append(&mut refused);
    let black_boxes: Vec<(Option<Metrics>, String)> =
        kept.par_iter().map(|of| of.black_box(&kept, seed).inspect(|_| done())).collect::<Result<_>>()?;
    let with_black_box = |(replayed, (metrics, note)): (Replayed, (Option<Metrics>, String))| {
        let mut result = replayed.result;
        result.notes.push(note);
        metrics.iter().for_each(|metrics| result.add_baseline(Baseline::BlackBox, metrics));
        result
    };
    let judged: Vec<&Case> = kept.iter().map(|of| of.case).collect();
    let mut results: Vec<CaseResult> = kept.into_iter().zip(black_boxes).map(with_black_box).collect();
    add_curves(&judged, &mut results);
    EvaluationReport::new(results, skipped)
}

/// Replays of these cases in [`judge`]: the prediction, the black box, the rooflines and the replaced components.
pub fn replays(cases: &[Case], replaced: &[Baseline]) -> u64 {
    cases.iter().map(|case| 2 + (rooflines(case).len() + replaced.len()) as u64).sum()
}

/// The ideal roofline, and the calibrated one if the prediction is corrected.
fn rooflines(case: &Case) -> &'static [Baseline] {
    const BOTH: [Baseline; 2] = [Baseline::IdealRoofline, Baseline::CalibratedRoofline];
    if case.rooflines.correction().is_some() { &BOTH } else { &BOTH[..1] }
}

/// A case with its result so far and the stages that a black box can be fitted to.
struct Replayed<'a> {
    case: &'a Case,
    result: CaseResult,
    stages: Vec<StageMeans>,
}

impl Judged for Replayed<'_> {
    fn labels(&self) -> &Labels {
        &self.case.labels
    }
    fn rows(&self) -> usize {
        self.stages.len()
    }
}

impl<'a> Replayed<'a> {
    fn new(case: &'a Case, seed: u64, replaced: &[Baseline], done: &(dyn Fn() + Sync)) -> Result<Self> {
        let roofline = case.rooflines.predicted.as_ref();
        let mut sampler = SpreadSampler::new(roofline.steps());
        let replay = case.replay(roofline, seed, &mut [&mut sampler])?;
        done();
        let metrics = Metrics::of(&replay);
        let correction = case.rooflines.correction();
        let is_closed = case.concurrency.iter().any(Option::is_some);
        let kind = if is_closed { LoadKind::Closed } else { LoadKind::Open };
        let engine = roofline.steps().engine();
        let found = IntervalCoverage::of(engine, &case.labels.hardware, Some(kind), correction.is_some());
        let spread = sampler.spread().widened(&found);
        let mut result = CaseResult {
            labels: case.labels.clone(),
            correction: CorrectionInfo::of(correction),
            metrics: rows(case, &metrics)?.into_iter().map(|row| row.within(&spread)).collect(),
            notes: case.notes.clone(),
            trace: None,
        };
        result.notes.extend(correction.and_then(|correction| in_sample(correction, &case.labels.model)));
        result.notes.extend(roofline.steps().carried_over());
        result.notes.extend(rejected(&metrics.run, case.engine.max_model_len));
        result.notes.extend(output_counted_otherwise(case, &metrics.run));
        for baseline in rooflines(case).iter().chain(replaced) {
            let metrics = baseline_metrics(case, *baseline, seed)?;
            metrics.iter().for_each(|metrics| result.add_baseline(*baseline, metrics));
            done();
        }
        let stages =
            (0..case.concurrency.len() as u32).filter_map(|stage| StageMeans::of(case, &replay.records, stage));
        Ok(Replayed { case, result, stages: stages.filter(|of| of.step().is_some()).collect() })
    }

    /// A replay with the black box of the closest other runs, and a note about it.
    fn black_box(&self, all: &[Self], seed: u64) -> Result<(Option<Metrics>, String)> {
        let fold = Fold { judged: Part::whole(self), training: others(all, self, GroupBy::Experiment) };
        let fitted = fold.closest_training_runs().and_then(|(training, scope)| {
            let stages = training.iter().filter_map(|part| part.case.stages.get(part.rows.clone()));
            let stages = stages.flatten().copied().collect::<Vec<_>>();
            Some((fit_stages(&stages)?, stages.len(), scope))
        });
        let Some((black_box, stages, scope)) = fitted else {
            return Ok((None, "no black box: no other run to fit it on".to_owned()));
        };
        let metrics = Metrics::of(&self.case.replay(&black_box as &dyn LatencyModel, seed, &mut [])?);
        let stages = if stages == 1 { "1 stage".to_owned() } else { format!("{stages} stages") };
        Ok((Some(metrics), format!("black box fitted on {stages} of {scope}")))
    }
}

/// A row per measured value.
fn rows(case: &Case, metrics: &Metrics) -> Result<Vec<MetricRow>> {
    let mut problems = Vec::new();
    let mut rows = Vec::new();
    for (stage, metric, measured_ms) in case.measured.iter() {
        match predicted_ms(metrics, u32::try_from(stage).ok(), metric) {
            Some(predicted_ms) => rows.push(MetricRow::new(stage, metric, measured_ms, predicted_ms)),
            None => problems.push(format!("{metric} of stage {stage} is measured, but no request of it finishes")),
        }
    }
    if problems.is_empty() {
        return Ok(rows);
    }
    problems.extend(rejected(&metrics.run, case.engine.max_model_len));
    Err(Error::invalid(case.labels.name.clone(), problems))
}

fn rejected(run: &StageMetrics, max_model_len: u32) -> Option<String> {
    let StageMetrics { requests, rejected, .. } = run;
    (*rejected > 0).then(|| {
        format!("{rejected} of {requests} requests are refused: prompt and output are longer than max_model_len = {max_model_len}")
    })
}

/// inference-perf divides by the tokens that it counts in the text that came back. Where a model goes on past its end of text,
/// what it then generates has no text to count, and `itl_mean` is larger than the gaps between tokens were.
fn output_counted_otherwise(case: &Case, run: &StageMetrics) -> Option<String> {
    let get = |metric| case.measured.get(WHOLE_RUN, metric);
    let counted = (get(Metric::E2E_MEAN)? - get(Metric::TTFT_MEAN)?) / get(Metric::ITL_MEAN)?;
    let requested = run.output_tokens as f64 / run.finished as f64;
    ((counted / requested - 1.0).abs() > OUTPUT_TOLERANCE).then(|| {
        format!(
            "measured itl_mean counts {counted:.0} output tokens a request, the load asks for {requested:.0}: itl_mean is not \
             comparable, E2E and TTFT are"
        )
    })
}

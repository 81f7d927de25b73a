//! Predicts the judged rows of every fold and compares windows of them with what was measured, and with the baselines. Windows
//! are predicted in parallel; results keep their order.
#![expect(clippy::indexing_slicing, reason = "windows are cut from as many rows as are there")]

use std::ops::Range;
use std::sync::Arc;

use rayon::prelude::*;

use super::case::StepCase;
use super::split::{Fitter, StepFold, StepSplit, folds};
use super::window::{mean_step_us, windows};
use crate::evaluate::black_box::{StepSample, fit_steps};
use crate::evaluate::fold::{GroupBy, Part};
use crate::evaluate::measured::WHOLE_RUN;
use crate::evaluate::metric::Metric;
use crate::evaluate::report::{Baseline, CaseResult, EvaluationReport, MetricRow, Skipped, TraceResult, in_sample};
use crate::ingest::Interval;
use ridgepoint::correction::CorrectionInfo;
use ridgepoint::latency::BlackBox;
use ridgepoint::units::US_PER_MS;
use ridgepoint::{Correction, Result, StepEstimate, StepModel};

/// How rows are judged.
#[derive(Clone, Copy)]
pub struct JudgeOptions<'a> {
    /// The judged rows.
    pub split: StepSplit,
    /// Rows of a window; 1 judges every interval for itself.
    pub window: usize,
    /// Fits the correction of each fold to its training rows, instead of the cases' own.
    pub fitter: Option<&'a Fitter<'a>>,
}

/// Judges traces. `done` is called with the number of rows whenever some were predicted.
///
/// # Errors
/// Those of the split and of the fitter; `ErrorKind::Invalid` if no run has a row to judge.
pub fn judge_steps(
    cases: &[StepCase],
    mut skipped: Vec<Skipped>,
    options: &JudgeOptions<'_>,
    done: &(dyn Fn(u64) + Sync),
) -> Result<EvaluationReport> {
    let JudgeOptions { split, window, .. } = *options;
    let mut results = Vec::new();
    for fold in if cases.is_empty() { Vec::new() } else { folds(cases, split)? } {
        if fold.judged.rows.is_empty() {
            let rows = fold.judged.case.rows.len();
            let reason = format!("none of its {rows} rows falls into the judged part; {}", split.in_words());
            skipped.push(Skipped { id: fold.judged.case.labels.name.clone(), reason });
        } else {
            results.push(judge_fold(&fold, options, done)?);
        }
    }
    let mut report = EvaluationReport::new(results, skipped)?;
    let windows = if window == 1 { "each alone".to_owned() } else { format!("in windows of {window} or more") };
    report.notes.push(format!("{}; sampled steps are judged {windows}", split.in_words()));
    Ok(report.split_by(Some(GroupBy::Experiment)))
}

fn judge_fold(fold: &StepFold<'_>, options: &JudgeOptions<'_>, done: &(dyn Fn(u64) + Sync)) -> Result<CaseResult> {
    let case = fold.judged.case;
    let rows = rows_of(&fold.judged);
    let mut notes = case.notes.clone();
    let correction = match options.fitter {
        Some(fit) => Some(Arc::new(fit(fold)?)),
        None => case.correction.clone(),
    };
    let corrected = |correction: &Arc<Correction>| case.calibrated.clone().with_correction(Arc::clone(correction));
    let predictor = correction.as_ref().map_or_else(|| case.calibrated.clone(), corrected);
    let mut baselines = vec![(Baseline::IdealRoofline, case.ideal.clone())];
    if correction.is_some() {
        baselines.push((Baseline::CalibratedRoofline, case.calibrated.clone()));
    }
    match &case.correction {
        Some(given) if options.fitter.is_some() => baselines.push((Baseline::GivenCorrection, corrected(given))),
        Some(given) => notes.extend(in_sample(given, &case.labels.model)),
        None => {}
    }
    let black_box = black_box(fold, options.window);
    notes.extend(black_box.as_ref().map(|(_, note)| note.clone()));
    let window = |range: Range<usize>| {
        let rows = &rows[range];
        // One batch at a time is held: those of a window may be many millions of requests.
        let predict = |row: &Interval| {
            let batch = case.requests(row);
            let queues = case.queues(row);
            let queues_us = |steps: &StepModel| steps.correction().map_or(0.0, |of| of.queues_us(&queues));
            let StepEstimate { step_time_us, lower_us, upper_us, .. } = predictor.estimate_unchecked(&batch);
            let simpler = baselines.iter().map(|(_, steps)| steps.step_time_us(&batch) + queues_us(steps));
            ([step_time_us, lower_us, upper_us].map(|us| us + queues_us(&predictor)), simpler.collect())
        };
        let (predicted, simpler): (Vec<[f64; 3]>, Vec<Vec<f64>>) = rows.iter().map(predict).unzip();
        let mean_ms = |times_us: &mut dyn Iterator<Item = f64>| times_us.sum::<f64>() / rows.len() as f64 / US_PER_MS;
        let [time_ms, lower_ms, upper_ms] = [0, 1, 2].map(|index| mean_ms(&mut predicted.iter().map(|of| of[index])));
        let mut row = MetricRow::new(WHOLE_RUN, Metric::STEP_MEAN, mean_step_us(rows) / US_PER_MS, time_ms);
        (row.lower_ms, row.upper_ms) = (lower_ms, upper_ms);
        for (at, (baseline, _)) in baselines.iter().enumerate() {
            row.baselines.insert(*baseline, mean_ms(&mut simpler.iter().filter_map(|of| of.get(at).copied())));
        }
        if let Some((line, _)) = &black_box {
            let StepSample { prompt_tokens, decodes, .. } = sample(case, rows);
            let step_us = line.beta0_us + line.beta1_us * prompt_tokens + line.beta2_us * decodes;
            row.baselines.insert(Baseline::BlackBox, step_us / US_PER_MS);
        }
        done(rows.len() as u64);
        let single = rows.iter().zip(&predicted).filter(|(row, _)| row.steps == 1);
        let single = single.map(|(row, [time_us, ..])| (row.span_us / US_PER_MS, time_us / US_PER_MS));
        (row, single.collect::<Vec<_>>())
    };
    let (metrics, single): (Vec<MetricRow>, Vec<_>) =
        windows(rows.len(), options.window).into_par_iter().map(window).unzip();
    let left_out = if case.dropped.total() > 0 { format!("; left out: {}", case.dropped) } else { String::new() };
    notes.push(format!("{} rows in {} windows{left_out}", rows.len(), metrics.len()));
    Ok(CaseResult {
        labels: case.labels.clone(),
        correction: CorrectionInfo::of(correction.as_deref()),
        notes,
        trace: Some(TraceResult { rows: rows.len(), dropped: case.dropped.clone(), single_steps_ms: single.concat() }),
        metrics,
    })
}

/// The rows of a part.
fn rows_of<'a>(part: &Part<'a, StepCase>) -> &'a [Interval] {
    part.case.rows.get(part.rows.clone()).unwrap_or_default()
}

/// A black box fitted to windows of the closest training runs, and a note about it; `None` without training rows.
fn black_box(fold: &StepFold<'_>, window: usize) -> Option<(BlackBox, String)> {
    let (training, scope) = fold.closest_training_runs()?;
    let mut samples = Vec::new();
    for part in training {
        let rows = rows_of(part);
        samples.extend(windows(rows.len(), window).into_iter().map(|range| sample(part.case, &rows[range])));
    }
    let note = format!("black box fitted on {} windows of {scope}", samples.len());
    Some((fit_steps(&samples)?, note))
}

/// The mean step of a window.
fn sample(case: &StepCase, rows: &[Interval]) -> StepSample {
    let steps = || rows.iter().filter_map(|row| case.record(row));
    let count = steps().count().max(1) as f64;
    StepSample {
        step_us: mean_step_us(rows),
        prompt_tokens: steps().map(|step| step.prefill_tokens as f64).sum::<f64>() / count,
        decodes: steps().map(|step| f64::from(step.num_decode_requests)).sum::<f64>() / count,
    }
}

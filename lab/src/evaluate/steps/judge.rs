//! Predicts the rows of every fold and sets windows of them beside what was measured, with the baselines. Uses `case`, `split`,
//! `lines`, `report`; rows are predicted in parallel, results keep their order.

use std::collections::BTreeMap;
use std::sync::Arc;

use rayon::prelude::*;

use super::case::{StepCase, StepRow};
use super::lines::{Line, Ridge, Seen, samples};
use super::report::{JudgedWindow, SplitReport, StepBaseline, StepEvaluation, StepExperiment, StepSummary};
use super::score::Scores;
use super::split::{Fitter, Fold, StepSplit, Whose, folds};
use super::window::{Point, mean, windows};
use crate::evaluate::comparison::Skipped;
use ridgepoint::StepModel;
use ridgepoint::internals::correction::Correction;
use ridgepoint::{Error, Result};

/// How rows are judged.
#[derive(Clone, Copy)]
pub struct JudgeOptions<'a> {
    /// Which rows.
    pub split: StepSplit,
    /// Rows of a window, at least 1; 1 judges every interval for itself.
    pub window: usize,
    /// Fits the correction of each fold on its training rows, in place of the cases' own.
    pub fitter: Option<&'a Fitter<'a>>,
}

/// Predictions of a row, µs.
#[derive(Debug, Clone, Copy)]
struct Predicted {
    prediction: Estimate,
    given: Estimate,
    calibrated: Estimate,
    ideal_us: f64,
    requests: f64,
}

#[derive(Debug, Clone, Copy)]
struct Estimate {
    time_us: f64,
    interval_us: (f64, f64),
}

/// Judges cases; `done` is called with the number of rows whenever some were predicted.
///
/// # Errors
/// Those of the split and of the fitter; `ErrorKind::InvalidArgument` for windows of no row; `ErrorKind::Invalid` where no run has a row to judge.
pub fn judge_steps(
    cases: &[StepCase],
    mut skipped: Vec<Skipped>,
    options: &JudgeOptions<'_>,
    done: &(dyn Fn(u64) + Sync),
) -> Result<StepEvaluation> {
    if options.window == 0 {
        return Err(Error::invalid_argument("--window", "0", "must be at least 1, a row for itself"));
    }
    if cases.is_empty() {
        return Err(nothing(&skipped));
    }
    let mut experiments = Vec::new();
    for fold in folds(cases, options.split)? {
        match judge_fold(&fold, options, done)? {
            Some(experiment) => experiments.push(experiment),
            None => {
                let reason = format!(
                    "none of its {} rows falls into the part that is judged; {}",
                    fold.judged.rows.len(),
                    options.split.in_words()
                );
                skipped.push(Skipped { id: fold.judged.name.clone(), reason });
            }
        }
    }
    let summary = StepSummary::of(&experiments).ok_or_else(|| nothing(&skipped))?;
    Ok(StepEvaluation {
        summary,
        split: SplitReport::new(options.split, options.window),
        notes: notes(options, &experiments),
        experiments,
        skipped,
    })
}

fn nothing(skipped: &[Skipped]) -> Error {
    let problems = skipped.iter().map(|one| format!("{}: {}", one.id, one.reason)).collect();
    Error::invalid("nothing could be judged", problems)
}

fn notes(options: &JudgeOptions<'_>, experiments: &[StepExperiment]) -> Vec<String> {
    let mut notes = Vec::new();
    if options.split == StepSplit::All {
        notes.push(
            "black box and ridge are fitted and need rows that are not judged: --split temporal has them".to_owned(),
        );
    }
    if options.split != StepSplit::All && options.fitter.is_none() {
        let corrected = experiments.iter().any(|of| of.correction.is_some());
        let what = if corrected { "the correction is" } else { "calibrated tables are" };
        notes.push(format!("{what} taken as given, not fitted on the training rows; black box and ridge are"));
    }
    notes
}

fn judge_fold(
    fold: &Fold<'_>,
    options: &JudgeOptions<'_>,
    done: &(dyn Fn(u64) + Sync),
) -> Result<Option<StepExperiment>> {
    let case = fold.judged;
    let rows = case.rows.get(fold.rows.clone()).unwrap_or_default();
    if rows.is_empty() {
        return Ok(None);
    }
    let mut notes = case.notes.clone();
    let correction = match options.fitter {
        Some(fit) => Some(Arc::new(fit(fold)?)),
        None => case.correction.clone(),
    };
    let predicted = predict(case, rows, correction.as_ref(), done);
    let has_given = options.fitter.is_some() && case.correction.is_some();
    let cut = windows(rows.len(), options.window);
    let points = |interval: bool, of: &dyn Fn(&Predicted) -> Estimate| -> Vec<Point> {
        let point = |range: &std::ops::Range<usize>| {
            let estimates = || predicted.get(range.clone()).unwrap_or_default().iter().map(of);
            let ends = || (mean(estimates().map(|of| of.interval_us.0)), mean(estimates().map(|of| of.interval_us.1)));
            Point {
                measured_us: measured_us(rows.get(range.clone()).unwrap_or_default()),
                predicted_us: mean(estimates().map(|of| of.time_us)),
                interval_us: interval.then(ends),
            }
        };
        cut.iter().map(point).collect()
    };
    let mut baseline_points = BTreeMap::from([
        (StepBaseline::CalibratedRoofline, points(true, &|of| of.calibrated)),
        (
            StepBaseline::IdealRoofline,
            points(false, &|of| Estimate { time_us: of.ideal_us, interval_us: (of.ideal_us, of.ideal_us) }),
        ),
    ]);
    if has_given {
        baseline_points.insert(StepBaseline::GivenCorrection, points(true, &|of| of.given));
    }
    notes.extend(regressions(fold, options.window, &mut baseline_points));
    let requests =
        cut.iter().map(|range| mean(predicted.get(range.clone()).unwrap_or_default().iter().map(|of| of.requests)));
    let judged: Vec<JudgedWindow> = points(true, &|of| of.prediction)
        .into_iter()
        .zip(requests)
        .map(|(point, requests)| JudgedWindow { point, requests })
        .collect();
    let judged_points: Vec<Point> = judged.iter().map(|of| of.point).collect();
    let Some(metrics) = Scores::of(&judged_points) else { return Ok(None) };
    let single = rows.iter().zip(&predicted).filter(|(row, _)| row.steps == 1);
    Ok(Some(StepExperiment {
        name: case.name.clone(),
        model: case.model.clone(),
        hardware: case.hardware.clone(),
        tensor_parallel_size: case.tensor_parallel_size,
        workload: case.workload.clone(),
        correction: correction.map(|of| of.name.clone()),
        windows: judged.len(),
        rows: rows.len(),
        dropped: case.dropped.clone(),
        metrics,
        baselines: baseline_points.iter().filter_map(|(of, points)| Some((*of, Scores::of(points)?))).collect(),
        notes,
        single_us: single.map(|(row, of)| (row.span_us, of.prediction.time_us)).collect(),
        judged,
        baseline_points,
    }))
}

fn measured_us(rows: &[StepRow]) -> f64 {
    let (span_us, steps) = rows.iter().fold((0.0, 0u64), |(us, steps), row| (us + row.span_us, steps + row.steps));
    span_us / steps.max(1) as f64
}

fn predict(
    case: &StepCase,
    rows: &[StepRow],
    correction: Option<&Arc<Correction>>,
    done: &(dyn Fn(u64) + Sync),
) -> Vec<Predicted> {
    const ROWS_AT_ONCE: usize = 256;
    let corrected = correction.map(|correction| case.calibrated.clone().with_correction(Arc::clone(correction)));
    let fitted_anew = correction.zip(case.correction.as_ref()).is_some_and(|(new, given)| !Arc::ptr_eq(new, given));
    let given = case.correction.as_ref().filter(|_| fitted_anew);
    let given = given.map(|given| case.calibrated.clone().with_correction(Arc::clone(given)));
    let estimate = |steps: &StepModel, requests: &[_]| {
        let step = steps.estimate_unchecked(requests);
        Estimate { time_us: step.step_time_us, interval_us: (step.lower_us, step.upper_us) }
    };
    let predict = |row: &StepRow| {
        let requests = case.requests(row);
        let calibrated = estimate(&case.calibrated, &requests);
        Predicted {
            prediction: corrected.as_ref().map_or(calibrated, |steps| estimate(steps, &requests)),
            given: given.as_ref().map_or(calibrated, |steps| estimate(steps, &requests)),
            calibrated,
            ideal_us: case.ideal.step_time_us(&requests),
            requests: requests.len() as f64,
        }
    };
    let chunks: Vec<Vec<Predicted>> = rows
        .par_chunks(ROWS_AT_ONCE)
        .map(|rows| {
            let predicted = rows.iter().map(predict).collect();
            done(rows.len() as u64);
            predicted
        })
        .collect();
    chunks.into_iter().flatten().collect()
}

/// Adds the fitted baselines; a note says on what they were fitted.
fn regressions(fold: &Fold<'_>, window: usize, points: &mut BTreeMap<StepBaseline, Vec<Point>>) -> Option<String> {
    let case = fold.judged;
    let (training, whose) = fold.alike()?;
    let seen = Seen::of(&training, window);
    let judged = samples(case, fold.rows.clone(), window);
    let (line, ridge) = (Line::fit(&seen)?, Ridge::fit(&seen, &judged)?);
    let of = |predict: &dyn Fn(&super::lines::Sample) -> f64| -> Vec<Point> {
        let point = |sample: &super::lines::Sample| Point {
            measured_us: sample.measured_us,
            predicted_us: predict(sample),
            interval_us: None,
        };
        judged.iter().map(point).collect()
    };
    points.insert(StepBaseline::BlackBox, of(&|sample| line.predict_us(sample)));
    points.insert(StepBaseline::Ridge, of(&|sample| ridge.predict_us(sample)));
    let whose = match whose {
        Whose::Alike => format!("{} at tensor_parallel_size = {}", case.model, case.tensor_parallel_size),
        Whose::SameHardware => format!("other models or sizes on {}", case.hardware),
        Whose::All => "other models on other GPUs".to_owned(),
    };
    Some(format!("black box and ridge fitted on {} windows of {whose}", seen.count()))
}

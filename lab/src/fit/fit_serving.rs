//! Fits a correction to serving runs with the replay in the loop. Schedules follow from step times, so cases are replayed and
//! fitted in turns until the coefficients settle. Uses `fit_rows`, `step_terms`, `evaluate::case`.
#![expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "floats saturate; readers check ranges")]

use std::sync::Arc;

use rayon::prelude::*;
use ridgepoint::correction::{Basis, Term};
use ridgepoint::latency::{CalibratedRoofline, LatencyModel};
use ridgepoint::{Correction, Request, Result};
use ridgepoint_replay::{Outcome, RequestRecord};

use super::fit_rows::{FitResult, Prior, QUEUEING_PRIOR_SD_US, distinct, factors, fit_rows};
use super::problem::{FitRow, Target};
use super::queue_prices::NUM_QUEUE_PRICES;
use super::step_terms::StepTerms;
use crate::evaluate::case::Case;
use crate::evaluate::measured::WHOLE_RUN;
use crate::evaluate::metric::Metric;

/// Rounds of replaying and fitting at most.
pub const MAX_ROUNDS: usize = 8;

/// The coefficients have settled if none moves by more than this share of its own standard deviation.
const SETTLED: f64 = 0.1;

/// Round from which the coefficients move half way only: a request that is queued in every other round keeps them moving.
const FIRST_HALF_ROUND: usize = 4;

/// Replays and fits in turns, from `start`, until the coefficients settle or after [`MAX_ROUNDS`]. The second value is
/// whether they have settled; `done` is called after each replay.
///
/// # Errors
/// As [`Case::replay`] and `fit_rows`.
pub fn fit_serving(
    origin: &str,
    cases: &[&Case],
    prior: &Prior,
    start: &Correction,
    seed: u64,
    done: &(dyn Fn() + Sync),
) -> Result<(FitResult, bool)> {
    let mut anchor = start.clone();
    let mut round = 0;
    loop {
        round += 1;
        let rows = replayed_rows(cases, &anchor, seed, done)?;
        let measured = cases.iter().zip(&rows).filter(|(_, rows)| !rows.is_empty());
        let models = distinct(measured.map(|(case, _)| case.labels.model.clone()));
        let rows = if prior.counts_models { by_model(cases, rows) } else { rows };
        let mut fitted = fit_rows(origin, rows.into_iter().flatten().collect(), prior)?;
        fitted.correction.source.models = models;
        fitted.correction.source.hardware = distinct(cases.iter().map(|case| case.labels.hardware.clone()));
        let has_settled = moved(&anchor, &fitted.correction) <= SETTLED;
        if has_settled || round == MAX_ROUNDS {
            return Ok((fitted, has_settled));
        }
        anchor = between(&anchor, fitted.correction, if round < FIRST_HALF_ROUND { 1.0 } else { 0.5 });
    }
}

/// The rows with weights by which the runs of one model count as one run together: they share what the terms leave out of it, and
/// more of them add nothing about other models.
fn by_model(cases: &[&Case], mut rows: Vec<Vec<FitRow>>) -> Vec<Vec<FitRow>> {
    for (case, rows) in cases.iter().zip(&mut rows) {
        let alike = cases.iter().filter(|other| other.labels.model == case.labels.model).count();
        rows.iter_mut().for_each(|row| row.weight /= alike as f64);
    }
    rows
}

/// `to` with coefficients that have gone this share of the way from those of `from`.
fn between(from: &Correction, mut to: Correction, share: f64) -> Correction {
    for (coefficient, before) in to.coefficients.iter_mut().zip(from.coefficients) {
        *coefficient = before + share * (*coefficient - before);
    }
    to.host.queueing_us = from.host.queueing_us + share * (to.host.queueing_us - from.host.queueing_us);
    to
}

/// The largest move of a coefficient, in its standard deviations.
fn moved(from: &Correction, to: &Correction) -> f64 {
    let by = |term: Term| {
        let variance = to.covariance.get(term.index()).and_then(|row| row.get(term.index())).copied().unwrap_or(0.0);
        (to.coefficient(term) - from.coefficient(term)).abs() / variance.sqrt().max(0.1 * term.prior_sd())
    };
    let host = (to.host.queueing_us - from.host.queueing_us).abs() / QUEUEING_PRIOR_SD_US;
    Term::ALL.into_iter().map(by).fold(host, f64::max)
}

/// Replays every case with a correction and returns its rows, in the order of the cases.
///
/// # Errors
/// As [`Case::replay`].
pub(super) fn replayed_rows(
    cases: &[&Case],
    correction: &Correction,
    seed: u64,
    done: &(dyn Fn() + Sync),
) -> Result<Vec<Vec<FitRow>>> {
    let correction = Arc::new(correction.clone());
    cases.par_iter().map(|case| rows_of(case, &correction, seed).inspect(|_| done())).collect()
}

/// The rows of each stage that was measured, or of the whole run if stages were not. There are none if no figure of the run
/// can be compared. The rows of one kind count as one together.
fn rows_of(case: &Case, correction: &Arc<Correction>, seed: u64) -> Result<Vec<FitRow>> {
    let roofline = case.rooflines.corrected(correction);
    let mut terms = StepTerms::new(roofline.steps());
    let replayed = case.replay(&roofline, seed, &mut [&mut terms])?;
    let finished = || replayed.records.iter().filter(|record| record.outcome == Outcome::Finished);
    let stages = case.measured.last_stage().map_or(0, |last| last + 1);
    let of_stage = |stage: u32| {
        let records: Vec<&RequestRecord> = finished().filter(|of| of.stage == stage).collect();
        i32::try_from(stage)
            .map_or_else(|_| Vec::new(), |stage| rows_of_stage(case, &roofline, &terms, stage, &records))
    };
    let mut rows: Vec<FitRow> = (0..stages).flat_map(of_stage).collect();
    if rows.is_empty() {
        rows = rows_of_stage(case, &roofline, &terms, WHOLE_RUN, &finished().collect::<Vec<_>>());
    }
    for target in [Target::Decoding, Target::Ttft] {
        let count = rows.iter().filter(|row| row.target == target).count();
        rows.iter_mut().filter(|row| row.target == target).for_each(|row| row.weight = 1.0 / count as f64);
    }
    Ok(rows)
}

/// The measured means of a stage and those of its replayed requests.
fn rows_of_stage(
    case: &Case,
    roofline: &CalibratedRoofline,
    terms: &StepTerms<'_>,
    stage: i32,
    records: &[&RequestRecord],
) -> Vec<FitRow> {
    let measured = |metric| case.measured.get(stage, metric).map(|ms| ms * 1e3);
    let Some(ttft_us) = measured(Metric::TTFT_MEAN) else { return Vec::new() };
    let count = records.len() as f64;
    let gaps = records.iter().map(|record| f64::from(record.num_output_tokens) - 1.0).sum::<f64>() / count;
    let decoding_us = match (measured(Metric::E2E_MEAN), measured(Metric::TPOT_MEAN)) {
        (Some(e2e_us), _) => e2e_us - ttft_us,
        (None, Some(tpot_us)) => tpot_us * gaps,
        (None, None) => return Vec::new(),
    };
    let output_ns = (roofline.host().output_token_processing_time_us() * 1e3) as u64;
    let (mut decoding, mut ttft) = (Basis::default(), Basis::default());
    let (mut predicted_decoding_us, mut predicted_ttft_us) = (0.0, 0.0);
    for record in records {
        let first_ns = record.first_token_ns.saturating_sub(output_ns);
        let last_ns = record.finish_ns.saturating_sub(output_ns);
        decoding.add_scaled(&terms.between(first_ns, last_ns), 1.0 / count);
        predicted_decoding_us += (record.finish_ns - record.first_token_ns) as f64 / 1e3 / count;
        let prompt = Request::prefill(record.num_prompt_tokens, 0);
        let queued_ns = record.arrival_ns + (roofline.host().queueing_time_us(&prompt) * 1e3) as u64;
        ttft.add_scaled(&terms.between(queued_ns.min(first_ns), first_ns), 1.0 / count);
        predicted_ttft_us += (record.first_token_ns - record.arrival_ns) as f64 / 1e3 / count;
    }
    let figures = [
        (Target::Decoding, decoding_us, predicted_decoding_us, decoding, 0.0),
        (Target::Ttft, ttft_us, predicted_ttft_us, ttft, 1.0),
    ];
    let is_usable = |measured: f64, predicted_us: f64| measured > 0.0 && predicted_us > 0.0 && predicted_us.is_finite();
    let row = |(target, measured, predicted_us, basis, queueings): (Target, f64, f64, Basis, f64)| {
        let x = factors(&basis, queueings, [0.0; NUM_QUEUE_PRICES]);
        let correction = roofline.steps().correction()?;
        let linear_us = correction.time_us(&basis) + queueings * correction.host.queueing_us;
        let (sd, offset) = (target.expected_sd(), predicted_us - linear_us);
        is_usable(measured, predicted_us).then_some(FitRow { target, offset, x, measured, sd, weight: 0.0 })
    };
    figures.into_iter().filter_map(row).collect()
}

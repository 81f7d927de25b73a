//! Fits with the replay in the loop: schedules follow from step times, so cases are replayed and fitted in turns until the
//! coefficients stand still. Uses `serving`, `learn`, `evaluate::case`.

use std::sync::Arc;

use rayon::prelude::*;

use super::learn::{Learned, Prior, QUEUEING_PRIOR_SD_US, learn};
use super::observation::Observation;
use super::serving::observe;
use crate::evaluate::case::Case;
use ridgepoint::Result;
use ridgepoint::internals::correction::{Correction, Term};

/// Turns of replaying and fitting at most.
pub const MAX_ROUNDS: usize = 8;

/// Coefficients stand still when none moves by more than this share of its prior's standard deviation.
const STILL: f64 = 0.03;

/// Replays every case with a correction and observes it, in the order of the cases.
///
/// # Errors
/// As [`observe`].
pub fn observe_all(
    cases: &[&Case],
    correction: &Correction,
    seed: u64,
    done: &(dyn Fn() + Sync),
) -> Result<Vec<Observation>> {
    let correction = Arc::new(correction.clone());
    let observed: Vec<Vec<Observation>> = cases
        .par_iter()
        .map(|case| observe(case, &case.rooflines.corrected(&correction), seed).inspect(|_| done()))
        .collect::<Result<_>>()?;
    Ok(observed.into_iter().flatten().collect())
}

/// Replays and fits in turns, from `start`, until the coefficients stand still or [`MAX_ROUNDS`] are over. The second
/// value says whether they do; `done` is called after each replay.
///
/// # Errors
/// As [`observe`] and [`learn`].
pub fn fit_serving(
    origin: &str,
    cases: &[&Case],
    prior: &Prior,
    start: &Correction,
    seed: u64,
    done: &(dyn Fn() + Sync),
) -> Result<(Learned, bool)> {
    let mut anchor = start.clone();
    let (mut rounds, mut cost_at_start) = (0, None);
    loop {
        rounds += 1;
        let observations = observe_all(cases, &anchor, seed, done)?;
        let mut learned = learn(origin, &observations, &anchor, prior)?;
        learned.correction.source.hardware = hardware_of(cases);
        learned.solution.cost_start = *cost_at_start.get_or_insert(learned.solution.cost_start);
        let is_still = moved(&anchor, &learned.correction) <= STILL;
        if is_still || rounds == MAX_ROUNDS {
            return Ok((learned, is_still));
        }
        anchor = learned.correction;
    }
}

fn hardware_of(cases: &[&Case]) -> Vec<String> {
    let mut hardware: Vec<String> = cases.iter().map(|case| case.hardware.clone()).collect();
    hardware.sort();
    hardware.dedup();
    hardware
}

fn moved(from: &Correction, to: &Correction) -> f64 {
    let by = |term: Term| (to.coefficient(term) - from.coefficient(term)).abs() / term.prior_sd();
    let host = (to.host.queueing_us - from.host.queueing_us).abs() / QUEUEING_PRIOR_SD_US;
    Term::ALL.into_iter().map(by).fold(host, f64::max)
}

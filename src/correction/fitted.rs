//! A fitted correction: coefficients with their covariance, the data behind them, and the interval that follows.
//! Uses `term`, `basis`, `host`.
#![expect(clippy::indexing_slicing, reason = "there is a value for every term")]

use serde::{Deserialize, Serialize};

use super::basis::Basis;
use super::host::{HostTimes, Queues};
use super::range::{FittedRange, OutsideFit};
use super::term::{NUM_TERMS, Term};
use crate::engine::Engine;
use crate::physics::BatchSums;

/// Cap on the relative standard deviation, so that intervals stay finite.
const MAX_RELATIVE_SD: f64 = 10.0;

/// Standard deviations on either side of a 90 % interval of a normal distribution.
pub const SDS_OF_90_PCT: f64 = 1.645;

/// For which models a correction is meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Level {
    /// Any model, among them those that were never measured.
    Global,
    /// One model.
    Model {
        /// Its short name.
        model: String,
    },
}

/// The data that a correction was fitted on.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Source {
    /// The measurements, in words, with who took them.
    pub data: String,
    /// The part of them that was used: `all`, `first 60 % of each run`, `all but llama-2-7b`.
    pub split: String,
    /// GPUs that were measured, by short name.
    pub hardware: Vec<String>,
    /// Models that were measured, by short name.
    pub models: Vec<String>,
    /// Versions of the serving engine.
    pub engine_versions: Vec<String>,
    /// Rows: figures of stages of serving runs, or intervals between sampled steps.
    pub rows: u64,
    /// SHA-256 of the rows as they went into the fit.
    pub rows_sha256: String,
    /// Whether the solver converged.
    pub converged: bool,
    /// Whether step times hold the host's share: they were fitted on periods of an engine that schedules synchronously, or may.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub steps_hold_scheduling: bool,
}

impl Source {
    /// The engine's versions that were measured, if all are known and none is that of `engine`, whose version counts to its minor part.
    pub fn other_version_than(&self, engine: &Engine) -> Option<String> {
        let read = |text: &String| Engine::parse(text, None).or_else(|| Engine::parse("vllm", Some(text)));
        let fitted: Option<Vec<Engine>> = self.engine_versions.iter().map(read).collect();
        let fitted = fitted.filter(|fitted| !fitted.is_empty() && fitted.iter().all(Engine::has_version))?;
        (engine.has_version() && !fitted.contains(engine)).then(|| {
            let names: Vec<String> = fitted.iter().map(ToString::to_string).collect();
            names.join(", ")
        })
    }
}

/// Scatter of what was measured around predictions: standard deviations of ln(measured / predicted), for models that the
/// fit has not seen where the correction is a global one.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scatter {
    /// Of a step's time, and of means over many steps (ITL, E2E).
    pub step: f64,
    /// Of TTFT.
    pub ttft: f64,
}

impl Default for Scatter {
    /// The assumption of a fit before it has any data: 3 % of a step's time, 8 % of TTFT.
    fn default() -> Self {
        Scatter { step: 0.03, ttft: 0.08 }
    }
}

/// The result of a fit: coefficients with their covariance, the delays of the host, and the remaining scatter.
#[derive(Debug, Clone, PartialEq)]
pub struct Correction {
    /// `global`, a model's name, or the path of its file.
    pub name: String,
    /// For which models.
    pub level: Level,
    /// Coefficients in the order of [`Term::ALL`].
    pub coefficients: [f64; NUM_TERMS],
    /// Covariance of the coefficients' posterior, each pair in the product of the units of its two coefficients.
    pub covariance: [[f64; NUM_TERMS]; NUM_TERMS],
    /// Whether the data distinguish the coefficient from its prior.
    pub identified: [bool; NUM_TERMS],
    /// Overheads of the host's threads, µs.
    pub host: HostTimes,
    /// Relative standard deviations that the fit leaves, of step times and of TTFT.
    pub scatter: Scatter,
    /// The data that it was fitted on.
    pub source: Source,
    /// Sizes of the steps that it was fitted on; `None` for serving runs, whose steps were not seen.
    pub range: Option<FittedRange>,
}

impl Correction {
    /// The one that changes nothing, with the priors as its covariance.
    pub fn neutral() -> Self {
        let mut covariance = [[0.0; NUM_TERMS]; NUM_TERMS];
        for term in Term::ALL {
            covariance[term.index()][term.index()] = term.prior_sd().powi(2);
        }
        Correction {
            name: "none".to_owned(),
            level: Level::Global,
            coefficients: Term::ALL.map(Term::neutral),
            covariance,
            identified: [false; NUM_TERMS],
            host: HostTimes::default(),
            scatter: Scatter::default(),
            source: Source::default(),
            range: None,
        }
    }

    /// One coefficient.
    pub fn coefficient(&self, term: Term) -> f64 {
        self.coefficients[term.index()]
    }

    /// Time of a step, or a mean over steps, with these terms, µs.
    pub fn time_us(&self, basis: &Basis) -> f64 {
        basis.time_us(&self.coefficients)
    }

    /// Share of the queues in a period, µs; 0 for an engine that hides it behind its steps.
    pub fn queues_us(&self, queues: &Queues) -> f64 {
        if self.source.steps_hold_scheduling { self.host.queues_us(queues) } else { 0.0 }
    }

    /// The size of a step that is furthest beyond the fitted steps; `None` within them.
    pub fn beyond(&self, step: &BatchSums) -> Option<OutsideFit> {
        self.range.and_then(|range| range.beyond(step))
    }

    /// Standard deviation of the time of [`Correction::time_us`] that comes from not knowing the coefficients, relative to it.
    ///
    /// # Formula
    /// `√(xᵀ·Σ·x) / (xᵀ·β)`.
    pub fn coefficients_sd(&self, basis: &Basis) -> f64 {
        let x = basis.values();
        let row = |row: &[f64; NUM_TERMS]| -> f64 { row.iter().zip(x).map(|(covariance, x)| covariance * x).sum() };
        let variance: f64 = self.covariance.iter().zip(x).map(|(covariances, x)| x * row(covariances)).sum();
        let time_us = self.time_us(basis);
        if time_us > 0.0 { variance.max(0.0).sqrt() / time_us } else { 0.0 }
    }
}

/// Factor between a prediction and the ends of its 90 % interval, from independent log-normal relative standard deviations.
///
/// ```
/// use ridgepoint::correction::interval_factor;
/// assert!((interval_factor(&[0.03, 0.04]) - (1.645 * 0.05f64).exp()).abs() < 1e-12);
/// ```
pub fn interval_factor(relative_sds: &[f64]) -> f64 {
    let sd = relative_sds.iter().map(|sd| sd * sd).sum::<f64>().sqrt();
    (SDS_OF_90_PCT * sd.min(MAX_RELATIVE_SD)).exp()
}

#[allow(clippy::float_cmp)]
#[cfg(test)]
mod tests {
    use super::super::term::Term;
    use super::*;

    /// 1,000 µs of projections and 50 requests, known to 3 % and to 2 µs each, and nothing else.
    fn two_terms(correlation: f64) -> (Correction, Basis) {
        let (projections, requests) = (Term::Projections.index(), Term::Requests.index());
        let mut correction = Correction { covariance: [[0.0; NUM_TERMS]; NUM_TERMS], ..Correction::neutral() };
        correction.coefficients[projections] = 1.2;
        correction.coefficients[requests] = 4.0;
        correction.covariance[projections][projections] = 0.03f64.powi(2);
        correction.covariance[requests][requests] = 2f64.powi(2);
        correction.covariance[projections][requests] = correlation * 0.03 * 2.0;
        correction.covariance[requests][projections] = correlation * 0.03 * 2.0;
        let mut basis = Basis::default();
        basis.add(Term::Projections, 1000.0);
        basis.add(Term::Requests, 50.0);
        (correction, basis)
    }

    #[test]
    fn not_knowing_two_coefficients_adds_up_with_their_correlation() {
        // 1.2 · 1,000 µs + 4 µs · 50 = 1,400 µs, known to 30 µs and 100 µs.
        let sd = |correlation| {
            let (correction, basis) = two_terms(correlation);
            assert!((correction.time_us(&basis) - 1400.0).abs() < 1e-9);
            correction.coefficients_sd(&basis)
        };
        assert!((sd(0.0) - (900.0 + 10_000.0f64).sqrt() / 1400.0).abs() < 1e-12);
        assert!((sd(0.5) - (900.0 + 10_000.0 + 3000.0f64).sqrt() / 1400.0).abs() < 1e-12);
        // What raises one lowers the other: 100 − 30.
        assert!((sd(-1.0) - 70.0 / 1400.0).abs() < 1e-9);
    }

    #[test]
    fn nothing_to_do_is_known_for_sure() {
        let (correction, basis) = two_terms(0.0);
        assert_eq!(correction.coefficients_sd(&Basis::default()), 0.0);
        // The share of the time is the same for ten such steps: their errors are one.
        let ten = basis.scaled(10.0);
        assert!((correction.coefficients_sd(&ten) - correction.coefficients_sd(&basis)).abs() < 1e-12);
    }

    #[test]
    fn interval_factors_grow_with_each_part_and_are_one_without() {
        assert_eq!((interval_factor(&[]), interval_factor(&[0.0, 0.0])), (1.0, 1.0));
        // √(0.02² + 0.03² + 0.06²) = 0.07.
        assert!((interval_factor(&[0.02, 0.03, 0.06]).ln() - 1.645 * 0.07).abs() < 1e-12);
        assert!(interval_factor(&[1e200, 0.03]).is_finite());
        assert!(interval_factor(&[0.02, 0.03]) < interval_factor(&[0.03, 0.03]));
    }
}

//! A fitted correction: coefficients, what is known of them, what they were fitted on, and the interval that follows.
//! Uses `term`, `basis`, `host`.

use serde::{Deserialize, Serialize};

use super::basis::Basis;
use super::host::HostTimes;
use super::term::{NUM_TERMS, Term};

/// Standard deviations on either side of a 90 % interval of a normal distribution.
pub const SDS_OF_90_PCT: f64 = 1.645;

/// For which models a correction is meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Level {
    /// Any model: what one that was never measured gets.
    Global,
    /// One model.
    Model {
        /// Its short name.
        model: String,
    },
}

/// What a correction was fitted on.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Source {
    /// The measurements, in words, with who took them.
    pub data: String,
    /// Which of them were used: `all`, `first 60 % of each run`, `all but llama-2-7b`.
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
    /// What fits assume of figures before they have seen any: 3 % of a step's time, 8 % of TTFT.
    fn default() -> Self {
        Scatter { step: 0.03, ttft: 0.08 }
    }
}

/// What a fit says: coefficients with their covariance, the host, and the scatter that is left.
#[derive(Debug, Clone, PartialEq)]
pub struct Correction {
    /// `global`, a model's name, or the path of its file.
    pub name: String,
    /// For which models.
    pub level: Level,
    /// Coefficients in the order of [`Term::ALL`].
    pub coefficients: [f64; NUM_TERMS],
    /// Covariance of the coefficients' posterior.
    pub covariance: [[f64; NUM_TERMS]; NUM_TERMS],
    /// Whether the data tell the coefficient from its prior.
    pub identified: [bool; NUM_TERMS],
    /// The host.
    pub host: HostTimes,
    /// The scatter.
    pub scatter: Scatter,
    /// What it was fitted on.
    pub source: Source,
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

/// By what a prediction is multiplied, and divided, at the ends of its 90 % interval: relative standard deviations that are
/// independent of each other, and normal in the logarithm.
///
/// ```
/// use ridgepoint::correction::interval_factor;
/// assert!((interval_factor(&[0.03, 0.04]) - (1.645 * 0.05f64).exp()).abs() < 1e-12);
/// ```
pub fn interval_factor(relative_sds: &[f64]) -> f64 {
    (SDS_OF_90_PCT * relative_sds.iter().map(|sd| sd * sd).sum::<f64>().sqrt()).exp()
}

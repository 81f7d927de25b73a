//! Fits a correction to rows: the terms and the delay before queueing are the parameters. Uses `problem`, `posterior`.
#![expect(clippy::indexing_slicing, reason = "a solution has a value for every term and for the host")]

use std::collections::BTreeSet;

use ridgepoint::Result;
use ridgepoint::internals::correction::{Basis, Correction, NUM_TERMS, Scatter, Source, Term};

use super::posterior::posterior;
use super::problem::{Problem, Row};
use super::report::FitReport;
use crate::solver::Parameter;

/// Standard deviation of the prior of `queueing_us`, µs.
pub const QUEUEING_PRIOR_SD_US: f64 = 2000.0;

/// Share of the global prior's standard deviation that a model's own coefficients may differ from the global ones by: how far
/// models differ from each other in what the terms leave out (assumed).
const MODEL_SD_SHARE: f64 = 0.5;

/// Number of runs that the prior's scatter counts as.
const PRIOR_RUNS: f64 = 2.0;

/// Gaussian prior over the coefficients and `queueing_us`.
#[derive(Debug, Clone)]
pub struct Prior {
    /// The mean as a correction, at which a fit starts.
    pub means: Correction,
    /// Share of [`Term::prior_sd`]; `None` is all of it, for any model.
    sd_share: Option<f64>,
}

impl Prior {
    /// For any model: the tables are right and nothing is added, with a standard deviation of [`Term::prior_sd`].
    pub fn of_any_model() -> Self {
        Prior { means: Correction::neutral(), sd_share: None }
    }

    /// For one model: the global coefficients, with half the standard deviation of [`Prior::of_any_model`].
    pub fn around(global: &Correction) -> Self {
        Prior { means: global.clone(), sd_share: Some(MODEL_SD_SHARE) }
    }

    /// The scatter of few runs of one model, shrunk towards that of the global correction:
    /// `√((n·own² + 2·prior²) / (n + 2))`. Of any model it is the runs' own.
    pub fn shrunk(&self, own: Scatter, runs: usize) -> Scatter {
        let (runs, prior) = (runs as f64, self.means.scatter);
        let both =
            |own: f64, prior: f64| ((runs * own * own + PRIOR_RUNS * prior * prior) / (runs + PRIOR_RUNS)).sqrt();
        match self.sd_share {
            None => own,
            Some(_) => Scatter { step: both(own.step, prior.step), ttft: both(own.ttft, prior.ttft) },
        }
    }

    fn parameters(&self) -> Vec<Parameter> {
        let sd_share = self.sd_share.unwrap_or(1.0);
        let of = |term: Term| Parameter {
            name: term.name(),
            unit: term.unit(),
            prior: self.means.coefficient(term),
            prior_sd: sd_share * term.prior_sd(),
            bounds: term.bounds(),
        };
        let queueing_sd_us = sd_share * QUEUEING_PRIOR_SD_US;
        let queueing =
            Parameter::overhead("queueing_us", "µs per request", self.means.host.queueing_us, queueing_sd_us);
        Term::ALL.into_iter().map(of).chain([queueing]).collect()
    }
}

/// A fitted correction and how the fit went.
#[derive(Debug, Clone)]
pub struct FitResult {
    /// The correction. Its scatter is the prior's, not measured.
    pub correction: Correction,
    /// How the fit went: the terms, then `queueing_us`.
    pub report: FitReport,
}

/// Fits the coefficients and `queueing_us` to rows, starting from the prior's mean.
///
/// # Errors
/// As [`Problem::new`], if there are too few rows or one has an impossible value.
pub(super) fn fit_rows(origin: &str, rows: Vec<Row>, prior: &Prior) -> Result<FitResult> {
    let problem = Problem::new(origin, prior.parameters(), rows)?;
    let solution = problem.minimise(&parameters_of(&prior.means))?;
    let posterior = posterior(&problem, &solution.values)?;
    let mut correction = Correction { name: origin.to_owned(), ..prior.means.clone() };
    for index in 0..NUM_TERMS {
        correction.coefficients[index] = solution.values[index];
        correction.identified[index] = posterior.identified[index];
        correction.covariance[index] = std::array::from_fn(|column| posterior.covariance[(index, column)]);
    }
    correction.host.queueing_us = solution.values[NUM_TERMS];
    correction.source = Source {
        rows: problem.rows.len() as u64,
        rows_sha256: problem.rows_sha256(),
        converged: solution.converged,
        ..Source::default()
    };
    Ok(FitResult { correction, report: FitReport::new(&problem, solution, &posterior) })
}

/// The parameters of a fit as a correction has them: its coefficients, then `queueing_us`.
pub(super) fn parameters_of(correction: &Correction) -> Vec<f64> {
    correction.coefficients.iter().copied().chain([correction.host.queueing_us]).collect()
}

/// The factors of the parameters for a span of time with these terms that `queueing_us` is part of `queueings` times.
pub(super) fn factors(basis: &Basis, queueings: f64) -> Vec<f64> {
    basis.values().iter().copied().chain([queueings]).collect()
}

/// The sorted names, each once.
pub(super) fn distinct(names: impl IntoIterator<Item = String>) -> Vec<String> {
    names.into_iter().collect::<BTreeSet<String>>().into_iter().collect()
}

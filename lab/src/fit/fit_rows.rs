//! Fits a correction to rows: the terms and the delay before queueing are the parameters. Uses `problem`, `posterior`.

use ridgepoint::Result;
use ridgepoint::internals::correction::{Basis, Correction, NUM_TERMS, Source, Term};

use super::posterior::posterior;
use super::problem::{Parameter, Problem, Row};
use super::report::FitReport;

/// Standard deviation of the prior of `queueing_us`, µs.
pub const QUEUEING_PRIOR_SD_US: f64 = 2000.0;

/// Share of the global prior's standard deviation that a model's own coefficients may differ from the global ones by: how far
/// models differ from each other in what the terms leave out (assumed).
const MODEL_SD_SHARE: f64 = 0.5;

/// Gaussian prior over the coefficients and `queueing_us`.
#[derive(Debug, Clone)]
pub struct Prior {
    means: Correction,
    sd_share: f64,
}

impl Prior {
    /// For any model: the tables are right and nothing is added, with a standard deviation of [`Term::prior_sd`].
    pub fn of_any_model() -> Self {
        Prior { means: Correction::neutral(), sd_share: 1.0 }
    }

    /// For one model: the global coefficients, with half the standard deviation of [`Prior::of_any_model`].
    pub fn around(global: &Correction) -> Self {
        Prior { means: global.clone(), sd_share: MODEL_SD_SHARE }
    }

    /// The mean as a correction, at which a fit starts.
    pub fn means(&self) -> &Correction {
        &self.means
    }

    fn parameters(&self) -> Vec<Parameter> {
        let of = |term: Term| {
            let (lower, upper) = term.bounds();
            Parameter {
                name: term.name().to_owned(),
                unit: term.unit().to_owned(),
                prior: self.means.coefficient(term),
                prior_sd: self.sd_share * term.prior_sd(),
                lower,
                upper,
            }
        };
        let queueing = Parameter {
            name: "queueing_us".to_owned(),
            unit: "µs per request".to_owned(),
            prior: self.means.host.queueing_us,
            prior_sd: self.sd_share * QUEUEING_PRIOR_SD_US,
            lower: 0.0,
            upper: f64::INFINITY,
        };
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
    let solution = problem.minimise(&problem.priors())?;
    let posterior = posterior(&problem, &solution.values)?;
    let mut correction = Correction { name: origin.to_owned(), ..prior.means.clone() };
    for index in 0..NUM_TERMS {
        correction.coefficients[index] = solution.values[index];
        correction.identified[index] = posterior.identified[index];
        correction.covariance[index].copy_from_slice(&posterior.covariance[index][..NUM_TERMS]);
    }
    correction.host.queueing_us = solution.values[NUM_TERMS];
    correction.source = Source {
        rows: problem.rows().len() as u64,
        rows_sha256: problem.rows_sha256(),
        converged: solution.converged,
        ..Source::default()
    };
    Ok(FitResult { correction, report: FitReport::new(&problem, &solution, &posterior) })
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
    let mut names: Vec<String> = names.into_iter().collect();
    names.sort();
    names.dedup();
    names
}

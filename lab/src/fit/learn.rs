//! From observations to a correction: the terms and the host as parameters, a prior, one fit. Uses `problem`, `solver`,
//! `posterior`, `observation`, `correction`.

use super::hash::rows_sha256;
use super::observation::Observation;
use super::posterior::{Inflation, Posterior, posterior};
use super::problem::{Parameter, Problem, Row};
use super::solver::{Solution, minimise};
use ridgepoint::Result;
use ridgepoint::internals::correction::{Correction, NUM_TERMS, Source, Term};

/// Standard deviation of the prior of the time before a request can be scheduled, µs.
pub const QUEUEING_PRIOR_SD_US: f64 = 2000.0;

/// Share of a global posterior that a model's own coefficients may stray from it: how far models differ from each other in what
/// the terms do not say (assumed).
const MODEL_SD_SHARE: f64 = 0.5;

/// What is believed before the data.
#[derive(Debug, Clone)]
pub struct Prior {
    means: Correction,
    sd: [f64; NUM_TERMS],
    queueing_sd_us: f64,
}

impl Prior {
    /// Of any model: the tables are right and nothing is to be added, give or take [`Term::prior_sd`].
    pub fn of_any_model() -> Self {
        Prior { means: Correction::neutral(), sd: Term::ALL.map(Term::prior_sd), queueing_sd_us: QUEUEING_PRIOR_SD_US }
    }

    /// Of one model: the global coefficients, give or take half of what was believed of any model. It shrinks a model's own towards them.
    pub fn around(global: &Correction) -> Self {
        Prior {
            means: global.clone(),
            sd: Term::ALL.map(|term| MODEL_SD_SHARE * term.prior_sd()),
            queueing_sd_us: MODEL_SD_SHARE * QUEUEING_PRIOR_SD_US,
        }
    }

    /// Its mean, as a correction: where a fit starts.
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
                prior_sd: self.sd[term.index()],
                lower,
                upper,
            }
        };
        let queueing = Parameter {
            name: "queueing_us".to_owned(),
            unit: "µs per request".to_owned(),
            prior: self.means.host.queueing_us,
            prior_sd: self.queueing_sd_us,
            lower: 0.0,
            upper: f64::INFINITY,
        };
        Term::ALL.into_iter().map(of).chain([queueing]).collect()
    }
}

/// A correction with how it came about.
#[derive(Debug, Clone)]
pub struct Learned {
    /// The correction; its scatter is what was expected, not measured.
    pub correction: Correction,
    /// What was minimised.
    pub problem: Problem,
    /// How the solver went.
    pub solution: Solution,
    /// What is known of the parameters: the terms, then the time before a request can be scheduled.
    pub posterior: Posterior,
}

/// Fits the coefficients and the time before a request can be scheduled to observations that were made with `anchor`.
///
/// # Errors
/// As [`Problem::new`], where there are too few observations or one has a value that can't be.
pub fn learn(origin: &str, observations: &[Observation], anchor: &Correction, prior: &Prior) -> Result<Learned> {
    let rows: Vec<Row> = observations.iter().map(|observation| row(observation, anchor)).collect();
    let rows_read = rows.len() as u64;
    let hash = rows_sha256(&rows);
    let problem = Problem::new(origin, prior.parameters(), rows)?;
    let start = values_of(anchor);
    let solution = minimise(&problem, &start)?;
    let posterior = posterior(&problem, &solution.values, Inflation::Overdispersion)?;
    let mut correction = Correction { name: origin.to_owned(), ..prior.means.clone() };
    for (index, value) in solution.values.iter().take(NUM_TERMS).enumerate() {
        correction.coefficients[index] = *value;
        correction.identified[index] = posterior.identified.get(index).copied().unwrap_or(false);
        for column in 0..NUM_TERMS {
            let covariance = posterior.covariance.get(index).and_then(|row| row.get(column));
            correction.covariance[index][column] = covariance.copied().unwrap_or(0.0);
        }
    }
    if let Some(queueing_us) = solution.values.get(NUM_TERMS) {
        correction.host.queueing_us = *queueing_us;
    }
    let mut models: Vec<String> = observations.iter().map(|observation| observation.model.clone()).collect();
    models.sort();
    models.dedup();
    correction.source =
        Source { models, rows: rows_read, rows_sha256: hash, converged: solution.converged, ..Source::default() };
    Ok(Learned { correction, problem, solution, posterior })
}

fn values_of(correction: &Correction) -> Vec<f64> {
    correction.coefficients.iter().copied().chain([correction.host.queueing_us]).collect()
}

fn row(observation: &Observation, anchor: &Correction) -> Row {
    let at_anchor = anchor.time_us(&observation.basis) + observation.queueing * anchor.host.queueing_us;
    Row {
        offset: observation.predicted_us - at_anchor,
        x: observation.basis.values().iter().copied().chain([observation.queueing]).collect(),
        measured: observation.measured_us,
        sd: observation.sd,
        weight: observation.weight,
        group: observation.target as usize,
    }
}

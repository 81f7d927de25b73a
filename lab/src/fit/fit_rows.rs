//! Fits a correction to rows: the terms, the delay before queueing and the prices of queues are the parameters. Uses `problem`,
//! `posterior`, `queue_prices`.
#![expect(clippy::indexing_slicing, reason = "a solution has a value for every term and for the host")]

use std::collections::BTreeSet;

use ridgepoint::correction::{Basis, NUM_TERMS, SDS_OF_90_PCT, Scatter, Source, Term};
use ridgepoint::{Correction, CorrectionChoice, EfficiencyMode, Result};

use super::posterior::posterior;
use super::problem::{FitRow, Problem};
use super::queue_prices::{self, NUM_QUEUE_PRICES};
use super::report::FitReport;
use super::widths::Widths;
use crate::solver::Parameter;

/// Standard deviation of the prior of `queueing_us`, µs.
pub const QUEUEING_PRIOR_SD_US: f64 = 2000.0;

/// Share of the global prior's standard deviation that a model's own coefficients may differ from the global ones by: how far
/// models differ from each other in what the terms leave out (assumed).
const MODEL_SD_SHARE: f64 = 0.5;

/// Serving runs narrow the prior of any model to this share of its standard deviations. The share was chosen by the errors of
/// models that were left out of the fit of 31 public runs: 3.6, 3.4 and 2.9 % of E2E in the median with 1, ½ and ¼, and 2.2 % without a
/// correction, all with the tables of that time; of 13 runs the worst is 12.1 % with 1 and 12.52 % with ¼.
const SERVING_RUNS_SD_SHARE: f64 = 0.3;

/// Number of runs that the prior's scatter counts as.
const PRIOR_RUNS: f64 = 2.0;

/// The first price of queues among the parameters: they follow the terms and `queueing_us`.
const QUEUE_PRICES: usize = NUM_TERMS + 1;

/// Gaussian prior over the coefficients, `queueing_us` and the prices of queues.
#[derive(Debug, Clone)]
pub struct Prior {
    /// The mean as a correction, at which a fit starts.
    pub means: Correction,
    /// Share of [`Term::prior_sd`].
    sd_share: f64,
    /// For any model, instead of one.
    is_of_any_model: bool,
    /// The runs of one model count as one run together.
    pub(super) counts_models: bool,
    /// Rows hold the host's share of a period, which is part of `step_us` then.
    includes_scheduling: bool,
    /// No kernel of the chip was measured: prices stand for all that its datasheet does not say.
    is_unmeasured: bool,
    /// How much wider it is than assumed.
    widths: Widths,
}

/// Prices may be this many times as large where no kernel of the chip was measured (assumed).
const UNMEASURED_SD_FACTOR: f64 = 100.0;

/// Standard deviation of `scheduling_us` as a part of periods, µs: its default, as it is assumed.
const SCHEDULING_SD_US: f64 = 1000.0;

impl Prior {
    /// For any model: the tables are right and nothing is added, with a standard deviation of [`Term::prior_sd`].
    pub fn of_any_model() -> Self {
        Prior {
            means: Correction::neutral(),
            sd_share: 1.0,
            is_of_any_model: true,
            counts_models: false,
            includes_scheduling: false,
            is_unmeasured: false,
            widths: Widths::ASSUMED,
        }
    }

    /// [`Prior::of_any_model`] for serving runs, whose figures sum so many steps that they identify few coefficients. The runs
    /// of one model count as one.
    pub fn of_serving_runs() -> Self {
        Prior { sd_share: SERVING_RUNS_SD_SHARE, counts_models: true, ..Prior::of_any_model() }
    }

    /// For one model, around the global correction that is built in.
    ///
    /// # Errors
    /// Those of [`CorrectionChoice::resolve`].
    pub fn of_one_model() -> Result<Self> {
        let global = CorrectionChoice::Global.resolve("any model", EfficiencyMode::Tables)?;
        Ok(global.map_or_else(Prior::of_any_model, |global| Prior::around(&global)))
    }

    /// For one model: the global coefficients, with half the standard deviation of [`Prior::of_any_model`].
    pub fn around(global: &Correction) -> Self {
        Prior { means: global.clone(), sd_share: MODEL_SD_SHARE, is_of_any_model: false, ..Prior::of_any_model() }
    }

    /// The same prior for a chip without measured kernels, such as a CPU.
    #[must_use]
    pub(super) fn unmeasured(&self) -> Prior {
        Prior { is_unmeasured: true, ..self.clone() }
    }

    /// The same prior with these widths.
    #[must_use]
    pub(super) fn with_widths(&self, widths: Widths) -> Prior {
        Prior { widths, ..self.clone() }
    }

    /// The same prior for rows that hold the host's share of a period: `step_us` takes `scheduling_us` in.
    #[must_use]
    pub(super) fn including_scheduling(&self) -> Prior {
        let mut prior = Prior { includes_scheduling: true, ..self.clone() };
        prior.means.coefficients[Term::Steps.index()] += prior.means.host.scheduling_us;
        prior.means.host.scheduling_us = 0.0;
        prior.means.source.steps_hold_scheduling = true;
        prior
    }

    /// The scatter of few runs of one model, shrunk towards that of the global correction:
    /// `√((n·own² + 2·prior²) / (n + 2))`. Of any model it is the runs' own.
    pub fn shrunk(&self, own: Scatter, runs: usize) -> Scatter {
        let (runs, prior) = (runs as f64, self.means.scatter);
        let both =
            |own: f64, prior: f64| ((runs * own * own + PRIOR_RUNS * prior * prior) / (runs + PRIOR_RUNS)).sqrt();
        if self.is_of_any_model {
            return own;
        }
        Scatter { step: both(own.step, prior.step), ttft: both(own.ttft, prior.ttft) }
    }

    fn price_factor(&self, term: Term) -> f64 {
        if self.is_unmeasured && !term.is_factor() { UNMEASURED_SD_FACTOR } else { 1.0 }
    }

    /// Returns the parameters of a fit, each with its prior.
    pub(super) fn parameters(&self) -> Vec<Parameter> {
        let (sd_share, widths) = (self.sd_share, &self.widths);
        let of = |term: Term| {
            let scheduling_sd_us = if self.includes_scheduling && term == Term::Steps { SCHEDULING_SD_US } else { 0.0 };
            Parameter {
                name: term.name(),
                unit: term.unit(),
                prior: self.means.coefficient(term),
                prior_sd: (widths.of(term.name(), term.is_factor())
                    * sd_share
                    * self.price_factor(term)
                    * term.prior_sd().hypot(scheduling_sd_us))
                .min(term.max_sd()),
                bounds: term.bounds(),
            }
        };
        let queueing_sd_us = sd_share * QUEUEING_PRIOR_SD_US;
        let queueing =
            Parameter::overhead("queueing_us", "µs per request", self.means.host.queueing_us, queueing_sd_us);
        Term::ALL
            .into_iter()
            .map(of)
            .chain([queueing])
            .chain(queue_prices::parameters(&self.means.host, widths))
            .collect()
    }
}

/// A fitted correction and how the fit went.
#[derive(Debug, Clone)]
pub struct FitResult {
    /// The correction. Its scatter is the prior's, not measured.
    pub correction: Correction,
    /// How the fit went: the terms, then `queueing_us`, then the prices of queues where rows hold them.
    pub report: FitReport,
}

/// Fits the coefficients, `queueing_us` and the prices of queues to rows, starting from the prior's mean.
///
/// # Errors
/// As [`Problem::new`], if there are too few rows or one has an impossible value.
pub(super) fn fit_rows(origin: &str, rows: Vec<FitRow>, prior: &Prior) -> Result<FitResult> {
    let problem = Problem::new(origin, prior.parameters(), rows)?;
    let solution = problem.minimise(&parameters_of(&prior.means))?;
    let mut posterior = posterior(&problem, &solution.values)?;
    // A price that the data can't distinguish from 0 is no finding.
    for index in QUEUE_PRICES..QUEUE_PRICES + NUM_QUEUE_PRICES {
        posterior.identified[index] &= solution.values[index] > SDS_OF_90_PCT * posterior.sd(index);
    }
    let mut correction = Correction { name: origin.to_owned(), ..prior.means.clone() };
    for index in 0..NUM_TERMS {
        correction.coefficients[index] = solution.values[index];
        correction.identified[index] = posterior.identified[index];
        correction.covariance[index] = std::array::from_fn(|column| posterior.covariance[(index, column)]);
    }
    correction.host.queueing_us = solution.values[NUM_TERMS];
    correction.host =
        correction.host.with_queue_prices(std::array::from_fn(|price| solution.values[QUEUE_PRICES + price]));
    correction.source = Source {
        rows: problem.rows.len() as u64,
        rows_sha256: problem.rows_sha256(),
        converged: solution.converged,
        steps_hold_scheduling: prior.includes_scheduling,
        ..Source::default()
    };
    let hold_queues = problem.rows.iter().any(|row| row.x[QUEUE_PRICES..].iter().any(|x| *x != 0.0));
    let mut report = FitReport::new(&problem, solution, &posterior, prior.widths.clone());
    if !hold_queues {
        report.leave_out(&queue_prices::names());
    }
    Ok(FitResult { correction, report })
}

/// The parameters of a fit as a correction has them: its coefficients, then `queueing_us`, then the prices of queues.
pub(super) fn parameters_of(correction: &Correction) -> Vec<f64> {
    let host = &correction.host;
    correction.coefficients.iter().copied().chain([host.queueing_us]).chain(host.queue_prices_us()).collect()
}

/// The factors of the parameters for a span of time with these terms that `queueing_us` is part of `queueings` times, and that
/// holds the prices of so many requests in queues.
pub(super) fn factors(basis: &Basis, queueings: f64, queues: [f64; NUM_QUEUE_PRICES]) -> Vec<f64> {
    basis.values().iter().copied().chain([queueings]).chain(queues).collect()
}

/// The sorted names, each once.
pub(super) fn distinct(names: impl IntoIterator<Item = String>) -> Vec<String> {
    names.into_iter().collect::<BTreeSet<String>>().into_iter().collect()
}

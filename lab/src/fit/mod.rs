//! Fits corrections to measured steps and serving runs: rows, a robust loss, a Gaussian prior, and the posterior around the
//! minimum.
//!
//! Serving runs come in through `fit_serving`, traces of steps through `fit_steps` and `step_scatter`. Both make rows (`fit_rows`),
//! state the minimisation (`problem`; the solver is `crate::solver`) and take the coefficients' covariance at its end (`posterior`).
//! The delays of the host are fitted with them, from replays (`host_from_replays`) or traces (`host_from_traces`).

mod batch_kind;
mod clients;
mod fit_cases;
mod fit_rows;
mod fit_serving;
mod fit_steps;
mod freedom;
mod front_end_loop;
mod host_from_replays;
mod host_from_traces;
mod kind_errors;
mod leave_out;
mod mean_step;
#[cfg(test)]
mod minimise_tests;
mod posterior;
mod problem;
mod queue_prices;
mod report;
mod residuals;
mod simpler;
mod step_scatter;
mod step_terms;
mod verdict;
mod widths;
mod window_errors;

pub use clients::Clients;
pub use fit_cases::{Captured, FittedRows, fit_cases};
pub use fit_rows::{FitResult, Prior};
pub use fit_serving::{MAX_ROUNDS, fit_serving};
pub use fit_steps::{Alignment, StepRun};
pub(crate) use front_end_loop::FRONT_END_PRIOR_SD_US;
pub use host_from_replays::{HOST_REPLAYS, host_from_replays};
pub use host_from_traces::DelaysOfRuns;
pub use kind_errors::{KindErrors, RowKind, TimeErrors};
pub use leave_out::{LeftOut, leave_out, scatter};
pub(crate) use posterior::IDENTIFIED_SD_SHARE;
pub use problem::Target;
pub use report::{FitReport, HostFit, ParameterReport};
pub use step_scatter::{StepFitReport, StepRunReport, fit_fold, fit_with_scatter};
pub use verdict::{Verdict, unlike_the_fitted};
pub use widths::Widths;
pub use window_errors::WindowErrors;

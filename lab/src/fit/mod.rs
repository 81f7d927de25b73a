//! Least squares for corrections: a robust loss on log errors, a Gaussian prior and a box per parameter; the solver, the
//! posterior around its minimum, and what is reported of both. Knows numbers and names, no model and no GPU; uses `error`
//! and the width of intervals of `correction`.

pub mod derivative_free;
pub mod hash;
pub mod host;
pub mod host_search;
pub mod learn;
pub mod leave_out;
mod ledger;
pub mod levels;
pub mod observation;
pub mod posterior;
pub mod problem;
pub mod report;
pub mod serving;
pub mod solver;
pub mod steps;
pub mod steps_report;
mod validate;

pub use crate::huber::HUBER_DELTA;
pub use derivative_free::{Simplex, minimise_by_simplex};
pub use hash::rows_sha256;
pub use posterior::{Inflation, Posterior, posterior};
pub use problem::{Parameter, Problem, Row};
pub use report::{FitReport, ParameterReport};
pub use solver::{Solution, minimise};

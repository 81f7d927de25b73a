//! Corrections: a handful of coefficients with physical units for overheads and biases of the operator sum, fitted to measured
//! engines. The laboratory fits them, `step_model` applies them. Uses `physics::OperatorGroup`.

mod basis;
mod file;
mod fitted;
mod host;
mod info;
mod library;
mod range;
mod term;

pub use basis::Basis;
pub use fitted::{Correction, Level, SDS_OF_90_PCT, Scatter, Source, interval_factor};
pub use host::{HostTimes, Queues};
pub use info::CorrectionInfo;
pub use library::builtin_corrections;
pub use range::FittedRange;
pub use term::{NUM_TERMS, Term};

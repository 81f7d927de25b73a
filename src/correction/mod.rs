//! What the operator sum leaves out or biases, as a handful of coefficients with physical units, learned from real engines.
//! Uses `physics::OperatorGroup`; fitting is up to `fit`, applying to `step_model`.

mod basis;
mod file;
mod fitted;
mod host;
mod info;
mod library;
mod term;

pub use basis::Basis;
pub use fitted::{Correction, Level, SDS_OF_90_PCT, Scatter, Source, interval_factor};
pub use host::HostTimes;
pub use info::CorrectionInfo;
pub use library::builtin_corrections;
pub use term::{NUM_TERMS, Term};

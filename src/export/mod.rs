//! Predictions for simulators in other languages: a compiled step model boiled down to tables that a few lines of code evaluate,
//! with the error that this costs. Uses `step_model`, `correction`, `request`; writes no files.

mod compile;
mod go;
mod grid;
mod judge;
mod tables;

pub use compile::export;
pub use go::to_go;

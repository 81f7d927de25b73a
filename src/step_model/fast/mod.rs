//! The fast evaluation of a step, for event loops. `operators` defines the time of a step; this folder caches that definition, and
//! `tests/laws/compiled.rs` compares the two over random batches. Nothing here adds physics. Uses `efficiency`, `physics`,
//! `correction`, `request`, the step model.
//!
//! - `batch` is the entry: from requests in any layout to their sums, from the sums to a time.
//! - `plain_decodes` sums decodes with as many vector lanes as the CPU has.
//! - `state` keeps the sums of an event loop up to date.
//! - `tables` caches the operators: `build` fills the tables, `rows` and `attention` look times up, `export` writes them to a file.

mod batch;
mod plain_decodes;
mod state;
mod tables;

pub use batch::StepRequests;
pub use state::StepState;
pub(super) use tables::{OperatorTables, StepTables};

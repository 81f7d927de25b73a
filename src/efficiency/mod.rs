//! How close kernels come to the roofline bound, and hence how long an operator takes.
//!
//! A kernel model (`kernel_model`, `gemm_model`) explains a kernel family with a dozen physical coefficients; a table
//! (`table`, `grid`) holds the residuals of the measurements. A time is looked up in this order, and keeps its provenance:
//!
//! 1. the series measured for this kernel on this GPU: at a measured shape, interpolated between shapes in log
//!    coordinates, or with the residual clamped to the table's edge beyond it;
//! 2. the nearest series of this GPU (another head size, window or expert layer), as clamped;
//! 3. a series of a fallback GPU, against this GPU's own datasheet, as borrowed;
//! 4. kernels that only move bytes, or that no GPU has a table of: the datasheet bound and a launch floor;
//! 5. otherwise an error. Nothing is ever below the roofline bound.

pub mod batched_gemm;
pub mod chip;
pub mod collective_curve;
pub mod collective_model;
pub mod curve;
mod fallback_gpus;
pub mod family;
pub mod fast_prefill;
mod fill_gaps;
pub mod gemm_model;
pub mod grid;
mod isotonic;
pub mod kernel_model;
pub mod kernel_time;
pub mod keys;
pub mod line_values;
pub mod mixed;
mod newest_version;
pub mod overlap;
mod packed;
pub mod provenance;
pub mod residual_curve;
pub mod series;
pub mod series_key;
pub mod shared_reads;
pub mod state_model;
pub mod surface;
pub mod table;
mod table_compression;
mod table_header;
pub mod table_text;
pub mod tables;

pub use kernel_time::{EfficiencyMode, Timer};
pub use newest_version::engine_on;
pub use provenance::{Bound, OperatorTime, Provenance};
pub use tables::Tables;

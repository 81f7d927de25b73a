//! Layer 2: how close real kernels come to the roofline bound, and hence how long an operator takes.
//!
//! A kernel model (`kernel_model`) explains a kernel family with a dozen physical coefficients; a table (`table`, `grid`)
//! holds what measurements leave over. A time is looked up like this, and says how it came about:
//!
//! 1. the series measured for this kernel on this GPU: at a measured shape, interpolated between shapes in log
//!    coordinates, or with the residual at the table's edge held beyond it;
//! 2. the nearest series of this GPU (another head size, window or expert layer), as held;
//! 3. a series of the nearest architecture, against this GPU's own datasheet, as borrowed;
//! 4. kernels that only move bytes: the datasheet bound and a launch floor;
//! 5. otherwise an error. Nothing is ever below the roofline bound.
//!
//! Uses `physics`, `hardware`, `dtype`, `error`.

pub mod curve;
pub mod decode_times;
pub mod family;
pub mod fast_prefill;
mod gemm_model;
pub mod grid;
mod held;
pub mod kernel_model;
pub mod mixed;
pub mod provenance;
pub mod surface;
pub mod table;
mod table_lines;
mod table_text;
pub mod tables;
pub mod timer;

pub use provenance::{Bound, OperatorTime, Provenance};
pub use tables::Tables;
pub use timer::{EfficiencyMode, Timer};

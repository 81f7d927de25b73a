//! GPUs: datasheet peaks and sizes, read from `hardware/*.toml` (embedded) or a file of the user's, and found by the
//! names people use. An absent key means that the chip lacks it, never zero. Uses `dtype`, `error`, `catalog`.
//!
//! Conventions of the TOML files: peaks are dense (datasheets quote structured sparsity: halve those) with 32-bit
//! accumulation; `peak_fp32_…` is that of the vector units, as no TF32 stands in for it; memory and cache sizes are the
//! datasheet's figure in binary units (80 GB is 80 · 2³⁰ bytes), of which the driver and, on GDDR cards, ECC keep some;
//! `boost_clock_hz` is the highest SM clock, and some chips' matrix peaks are quoted below it; a link's rate is one
//! direction of one GPU (datasheets quote both together). `retrieved` is the month in which figures were entered; they
//! were not read off the named documents anew then, but tests check them against each other (units × rate × clock).
//!
//! ```
//! use ridgepoint::{DType, Hardware};
//! let gpu = Hardware::find("NVIDIA H100 80GB HBM3")?;
//! assert_eq!(gpu.name(), "h100_sxm");
//! assert_eq!(gpu.peak_dense_flop_per_s(DType::Bfloat16)?, 989.4e12);
//! # Ok::<(), ridgepoint::Error>(())
//! ```

mod catalogue;
mod parse;
mod spec;

pub use catalogue::{builtin_aliases, builtin_names};
pub use spec::{Architecture, Hardware, Interconnect, InterconnectKind};

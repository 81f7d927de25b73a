//! GPUs: datasheet peaks and sizes from `hardware/*.toml` (built in) or a user's file, found by the names that people use.
//! An absent key means that the chip lacks the feature; zero is never a value. Uses `dtype`, `error`, `input`.
//!
//! Conventions of the TOML files:
//! - Peaks are dense, with 32-bit accumulation. Datasheets often quote structured sparsity: halve those.
//! - `peak_fp32_…` is the peak of the vector units; TF32 does not count.
//! - Memory and cache sizes are the datasheet's figure in binary units (80 GB is 80 · 2³⁰ bytes). The driver keeps a part
//!   and, on GDDR cards, so does error correction.
//! - `boost_clock_hz` is the highest SM clock. Some chips quote their matrix peaks at a lower one.
//! - The rate of a link is one direction of one GPU; datasheets quote both directions together.
//! - `interconnect.num_gpus` is how many GPUs the link joins, 8 if it is left out. Groups of ranks beyond it need `[network]`: the network
//!   card that a server has for each GPU. `num_gpus_per_host` is how many of them one host has, the same up to 8.
//! - `peer_access` of `[interconnect]` says whether GPUs over PCIe read each other's memory. Left out, it depends on the host, is assumed by the
//!   card's kind, and widens intervals.
//! - `board_watt` is the power that the board may draw as it ships.
//! - Some parts are sold with capped peaks (H20). Their files have the published peaks, though units × rate × clock gives others.
//! - `[power_limit]` is measured: what the matrix units sustain within the board's power, in FLOP/s by format and bytes/s. The datasheet has no such
//!   figure; without the section, products have no bound of this kind.
//! - A figure that is decades away from every real chip's is refused, as is a 16-bit peak that the units cannot reach.
//!   `allow_unusual_figures = true` at the top of the file widens the limits a million times.
//! - `architecture = "cpu"` describes a CPU: `sm_count` is its cores, `hbm_…` its memory, `l2_bytes` its last-level cache, and
//!   `[interconnect]` may be left out.
//! - `retrieved` is the month in which a person entered the figures. Tests check them against each other (units × rate ×
//!   clock).
//!
//! ```
//! use ridgepoint::{DType, Hardware};
//! let gpu = Hardware::find("NVIDIA H100 80GB HBM3")?;
//! assert_eq!(gpu.name, "h100_sxm");
//! assert_eq!(gpu.peak_dense_flop_per_s(DType::Bfloat16)?, 989.4e12);
//! # Ok::<(), ridgepoint::Error>(())
//! ```

mod builtin_mismatch;
mod catalogue;
mod parse;
mod peers;
pub(crate) mod plausible;
mod power;
pub(crate) mod spec;

pub use catalogue::builtin_names;
pub use peers::PeerAccess;
pub use spec::{
    Architecture, HostLink, HostLinkKind, Interconnect, InterconnectKind, Network, NetworkKind, PowerLimit,
};
pub(crate) use spec::{Hardware, SERVER_GPUS};

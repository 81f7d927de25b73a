//! The figures of a GPU that the physics uses.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::dtype::DType;
use crate::error::{Error, Result};

/// GPU generation, or a CPU. It decides which kernels run and which GPU's efficiency tables serve as a fallback.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum Architecture {
    /// Compute capability 7.0 (V100). It has no matrix units for bf16.
    Volta,
    /// Compute capability 7.5 (T4). It has no matrix units for bf16.
    Turing,
    /// Compute capability 8.0 and 8.6 (A100, A10, RTX 3090).
    Ampere,
    /// Compute capability 8.9 (L40S, L4, RTX 4090).
    Ada,
    /// Compute capability 9.0 (H100, H200, H20).
    Hopper,
    /// Compute capability 10.0 (B200).
    Blackwell,
    /// Compute capability 12.0 and 12.1 (RTX PRO 6000, RTX 5090, GB10).
    BlackwellConsumer,
    /// A CPU. It borrows no tables: without its own, every time is the datasheet's bound.
    Cpu,
}

/// GPUs of an HGX board, and of most servers with PCIe cards.
pub(crate) const SERVER_GPUS: u32 = 8;

/// Kind of link between the GPUs of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum InterconnectKind {
    /// NVLink, through NVSwitch or a bridge.
    Nvlink,
    /// PCI Express.
    Pcie,
}

/// The link of one GPU to its peers.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Interconnect {
    /// NVLink or PCIe.
    pub kind: InterconnectKind,
    /// Bytes per second that one GPU sends, in one direction. Datasheets quote both directions together.
    pub unidirectional_bytes_per_s: f64,
    /// GPUs that the link joins: those of a server, of a rack (72 in an NVL72), or of a bridge.
    pub num_gpus: u32,
    /// Of these, GPUs of one host, whose processes share memory: 4 of a tray of an NVL72.
    pub num_gpus_per_host: u32,
    /// Whether GPUs over PCIe read and write each other's memory, as the file says it; `None` if it depends on the host, and of NVLink, which
    /// always has it. [`Hardware::peer_access`] has the default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peer_access: Option<bool>,
}

/// Kind of network between GPUs that no NVLink or PCIe switch joins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum NetworkKind {
    /// A network card of each GPU: InfiniBand or RoCE.
    Rdma,
    /// PCI Express within a server, between GPUs that bridges join in pairs.
    Pcie,
}

/// The way of one GPU to those that its link does not join.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Network {
    /// Network cards or PCIe.
    pub kind: NetworkKind,
    /// Bytes per second that one GPU sends, in one direction.
    pub unidirectional_bytes_per_s: f64,
}

/// Kind of link between a GPU and its host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum HostLinkKind {
    /// PCI Express.
    Pcie,
    /// NVLink-C2C, of a GPU and a Grace CPU on one board.
    NvlinkC2c,
}

/// The link of one GPU to the memory of its host.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HostLink {
    /// PCIe or NVLink-C2C.
    pub kind: HostLinkKind,
    /// Bytes per second that one GPU reads from the host, while the other GPUs of the server read as well.
    pub unidirectional_bytes_per_s: f64,
}

impl HostLink {
    /// Share of the link's rate that kernels and copies reach. It is an assumption: packets of PCIe carry headers, so that copies reach some
    /// 55 of 64 GB/s.
    pub const EFFICIENCY: f64 = 0.85;
}

/// Rates that a busy GPU sustains within its board's power limit.
///
/// # Formula
/// A product takes at least `FLOPs / flop_per_s + bytes / bytes_per_s` once the GPU has been busy for some 10 ms: each FLOP and each byte
/// costs energy, and the GPU lowers its clock until it draws no more than its limit.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PowerLimit {
    /// Rate of a product that moved no bytes, FLOP per second, by the format of its operands.
    pub flop_per_s: BTreeMap<DType, f64>,
    /// Rate of a call that computed nothing, bytes per second. It is above the memory's bandwidth, as memory alone does not reach the limit.
    pub bytes_per_s: f64,
}

/// One GPU: dense peaks, memory, interconnect. Its TOML file names the source of every figure. All figures are finite and
/// above zero.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Hardware {
    /// Short name, as in `hardware/<name>.toml` and `bench_data/<name>/`.
    pub name: String,
    /// Other names that [`Hardware::find`] accepts.
    pub aliases: Vec<String>,
    /// Full name, as on the datasheet.
    pub display_name: String,
    /// GPU generation.
    pub architecture: Architecture,
    /// Enabled streaming multiprocessors; cores of a CPU.
    pub sm_count: u32,
    /// Second-level cache, of a CPU the last level, bytes.
    pub l2_bytes: f64,
    /// Highest boost clock of the SMs, Hz. Hopper's matrix peaks are quoted at a lower one.
    pub boost_clock_hz: f64,
    /// Device memory bandwidth, bytes per second.
    pub hbm_bytes_per_s: f64,
    /// Device memory, bytes: the datasheet's figure in binary units (80 GB is 80 · 2³⁰). An engine can use a little less, as
    /// [`crate::kv_capacity::KvCapacity`] counts.
    pub hbm_capacity_bytes: f64,
    /// Device memory that error correction takes, bytes; `None` if its codes do not lie in this memory (GDDR6: a sixteenth).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ecc_bytes: Option<f64>,
    /// Device memory that the driver reports, bytes; `None` where no report is at hand.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reported_bytes: Option<f64>,
    /// Power that the board may draw as it ships, W; `None` if it is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub board_watt: Option<f64>,
    /// Power limit below it that the peaks are those of, W, as [`Hardware::with_power_limit`] sets it; `None` without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power_limit_watt: Option<f64>,
    /// Dense peak of the matrix units by the format of the operands, FLOP per second. For `float32` it is that of the vector
    /// units.
    pub peaks_dense_flop_per_s: BTreeMap<DType, f64>,
    /// The link to the other GPUs of the node; `None` for a CPU that has none to give.
    pub interconnect: Option<Interconnect>,
    /// The way to GPUs that the link does not join; `None` if it is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<Network>,
    /// The link to the host; the one to other GPUs if that is PCIe. `None` if it is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_link: Option<HostLink>,
    /// Rates within the board's power limit; `None` if they were not measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power_limit: Option<PowerLimit>,
    /// Sources of the figures.
    pub sources: Vec<String>,
    /// What a user should know of the figures. Every estimate repeats it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

impl Hardware {
    /// Returns the dense peak for operands of `dtype`, FLOP per second.
    ///
    /// # Errors
    /// `ErrorKind::MissingPeak` if the chip has no such unit. The peak of another format is never scaled instead.
    pub fn peak_dense_flop_per_s(&self, dtype: DType) -> Result<f64> {
        self.peaks_dense_flop_per_s.get(&dtype).copied().ok_or_else(|| {
            let known: Vec<String> = self.peaks_dense_flop_per_s.keys().map(DType::to_string).collect();
            Error::missing_peak(&self.display_name, dtype, &known.join(", "))
        })
    }
}

//! The kernel families that have efficiency tables, as plain data. Whatever is done for each of them (reading, calibrating,
//! checking, listing) walks [`FAMILIES`]; what depends on the kernel of a series is in [`SeriesKey`].

use super::batched_gemm::BatchedGemmModel;
use super::collective_model::{AllReduceModel, ExchangeModel};
use super::gemm_model::GemmModel;
use super::kernel_model::{DecodeModel, MoeModel, PrefillModel};
use super::keys::Key;
use super::series_key::SeriesKey;
use super::state_model::StateModel;

/// Bytes of the 16-bit activations that measured kernels write.
pub(super) const OUTPUT_BYTES: f64 = 2.0;

/// A kernel family: its operator and the layout of its tables.
#[derive(Debug)]
pub struct KernelFamily {
    /// Operator name: the stem of the table file and the key in reports.
    pub operator: &'static str,
    /// Library whose kernels these are whatever the engine: the first part of the folder's name. `None` for kernels of engines.
    pub library: Option<&'static str>,
    /// Whether calls go over the link between GPUs.
    pub is_collective: bool,
    /// Distance added to that of the keys if a series is another engine's. It is set where engines differ more than two GPUs of one
    /// chip do.
    pub other_engine: Option<f64>,
    /// Names of the grid's axes; a table line runs along the last.
    pub axes: &'static [&'static str],
    /// Coefficients of the kernel model: name and starting value of the fit. The first is the launch, µs.
    pub coefficients: &'static [(&'static str, f64)],
    /// The key of a series name; `None` for any other text.
    pub parse: fn(&str) -> Option<SeriesKey>,
}

/// All families, in the order of reports.
pub static FAMILIES: [&KernelFamily; 8] =
    [&GEMM, &BATCHED_GEMM, &PREFILL, &DECODE, &MOE, &ALL_REDUCE, &EXCHANGE, &STATE];

/// Projections.
pub static GEMM: KernelFamily = KernelFamily {
    operator: "gemm",
    library: None,
    is_collective: false,
    other_engine: None,
    axes: &["n", "k", "m"],
    coefficients: GemmModel::COEFFICIENTS,
    parse: |name| Key::parse(name).map(SeriesKey::Gemm),
};

/// Batches of products.
pub static BATCHED_GEMM: KernelFamily = KernelFamily {
    operator: "batched_gemm",
    library: None,
    is_collective: false,
    other_engine: None,
    axes: &["copies", "m"],
    coefficients: BatchedGemmModel::COEFFICIENTS,
    parse: |name| Key::parse(name).map(SeriesKey::BatchedGemm),
};

/// Attention of prefill chunks.
pub static PREFILL: KernelFamily = KernelFamily {
    operator: "attention_prefill",
    library: None,
    is_collective: false,
    other_engine: Some(0.0),
    axes: &["num_kv_heads", "group_size", "num_scheduled_tokens", "batch_size"],
    coefficients: PrefillModel::COEFFICIENTS,
    parse: |name| Key::parse(name).map(SeriesKey::Prefill),
};

/// Attention of decodes.
pub static DECODE: KernelFamily = KernelFamily {
    operator: "attention_decode",
    library: None,
    is_collective: false,
    other_engine: Some(0.0),
    axes: &["num_kv_heads", "group_size", "kv_tokens", "batch_size"],
    coefficients: DecodeModel::COEFFICIENTS,
    parse: |name| Key::parse(name).map(SeriesKey::Decode),
};

/// Routed experts.
pub static MOE: KernelFamily = KernelFamily {
    operator: "moe",
    library: None,
    is_collective: false,
    other_engine: Some(0.05),
    axes: &["moe_tp_size", "moe_ep_size", "num_tokens"],
    coefficients: MoeModel::COEFFICIENTS,
    parse: |name| Key::parse(name).map(SeriesKey::Moe),
};

/// All-reduces of engines.
pub static ALL_REDUCE: KernelFamily = KernelFamily {
    operator: "allreduce",
    library: None,
    is_collective: true,
    other_engine: None,
    axes: &["num_gpus", "message_bytes"],
    coefficients: AllReduceModel::COEFFICIENTS,
    parse: |name| Key::parse(name).map(SeriesKey::AllReduce),
};

/// Collectives of NCCL.
pub static EXCHANGE: KernelFamily = KernelFamily {
    operator: "nccl",
    library: Some("nccl"),
    is_collective: true,
    other_engine: None,
    axes: &["num_gpus", "message_bytes"],
    coefficients: ExchangeModel::COEFFICIENTS,
    parse: |name| Key::parse(name).map(SeriesKey::Exchange),
};

/// Kernels of layers with a state.
pub static STATE: KernelFamily = KernelFamily {
    operator: "linear_attention",
    library: None,
    is_collective: false,
    other_engine: None,
    axes: &["num_key_heads", "heads_per_key_head", "num_scheduled_tokens", "batch_size"],
    coefficients: StateModel::COEFFICIENTS,
    parse: |name| Key::parse(name).map(SeriesKey::State),
};

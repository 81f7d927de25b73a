//! Timings of the kernels of layers with a state.

use ridgepoint::Result;
use ridgepoint::model::Recurrence;
use ridgepoint::physics::StateKernel;
use ridgepoint_replay::input::Row;

use super::columns::{Call, PublicTable, check_divides, public_columns, size};
use super::source::SourceFormat;

const STATE_KERNELS: &str = "conv_prefill, conv_decode, chunk_scan or state_update";
const PUBLIC_STATE_KERNELS: &str =
    "causal_conv1d_fn, causal_conv1d_update, chunk_gated_delta_rule… or fused_recurrent_gated_delta_rule…";

/// A kernel of a layer with a state, over requests of equal length.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct StateCall {
    /// Update rule of the state, token by token.
    pub recurrence: Recurrence,
    /// Which kernel.
    pub kernel: StateKernel,
    /// Heads of keys and queries of the rank.
    pub num_key_heads: u64,
    /// Heads with a state of their own of the rank; `num_key_heads` divides it.
    pub num_heads: u64,
    /// Width of a key.
    pub key_head_dim: u64,
    /// Width of a head's values.
    pub head_dim: u64,
    /// Tokens that the convolution sees.
    pub conv_kernel: u64,
    /// Requests in the call.
    pub batch_size: u64,
    /// New tokens of each request; 1 for decodes.
    pub num_scheduled_tokens: u64,
}

impl Call for StateCall {
    const STEM: &'static str = "linear_attention";
    const CSV: &'static str = "recurrence,kernel,num_key_heads,num_heads,key_head_dim,head_dim,conv_kernel,batch_size,\
        num_scheduled_tokens,latency_us";
    const PUBLIC: &'static [PublicTable] = &[PublicTable {
        file: "gdn_perf.parquet",
        columns: public_columns(
            "phase,num_key_heads,num_heads,key_head_dim,head_dim,conv_kernel,batch_size,num_scheduled_tokens,\
                num_tokens,d_model,model_name,latency_us",
            &[
                ("num_k_heads", "num_key_heads"),
                ("num_v_heads", "num_heads"),
                ("head_k_dim", "key_head_dim"),
                ("head_v_dim", "head_dim"),
                ("d_conv", "conv_kernel"),
                ("seq_len", "num_scheduled_tokens"),
                ("latency", "latency_us"),
            ],
        ),
        constants: &[("op_name", "gdn")],
        only: &[],
    }];

    fn read(row: &Row<'_>, format: SourceFormat) -> Result<Self> {
        let kernel = match format {
            SourceFormat::Csv => row.read("kernel", STATE_KERNELS, StateKernel::parse)?,
            SourceFormat::Parquet => row.read("kernel_source", PUBLIC_STATE_KERNELS, public_state_kernel)?,
        };
        let recurrence = match format {
            SourceFormat::Csv => row.read("recurrence", "gated_delta_net or mamba2", Recurrence::parse)?,
            SourceFormat::Parquet => Recurrence::GatedDeltaNet,
        };
        let call = StateCall {
            recurrence,
            kernel,
            num_key_heads: size(row, "num_key_heads")?,
            num_heads: size(row, "num_heads")?,
            key_head_dim: size(row, "key_head_dim")?,
            head_dim: size(row, "head_dim")?,
            conv_kernel: size(row, "conv_kernel")?,
            batch_size: size(row, "batch_size")?,
            num_scheduled_tokens: size(row, "num_scheduled_tokens")?,
        };
        let heads = format_args!("num_heads = {}", call.num_heads);
        check_divides(row, "num_key_heads", call.num_key_heads, call.num_heads, heads)?;
        if !kernel.is_prefill() && call.num_scheduled_tokens != 1 {
            return Err(row.bad("num_scheduled_tokens", format!("1: {} is a kernel of decodes", kernel.name())));
        }
        Ok(call)
    }
}

/// The kernel of a `kernel_source` in the public tables. Recurrences have a suffix that names their implementation.
fn public_state_kernel(name: &str) -> Option<StateKernel> {
    match name {
        "causal_conv1d_fn" => Some(StateKernel::ConvPrefill),
        "causal_conv1d_update" => Some(StateKernel::ConvDecode),
        name if name.starts_with("chunk_gated_delta_rule") => Some(StateKernel::ChunkScan),
        name if name.starts_with("fused_recurrent_gated_delta_rule") => Some(StateKernel::StateUpdate),
        _ => None,
    }
}

//! The files of each operator: their columns, the public names of those, and the checks of a row.
#![expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "floats saturate; readers check ranges")]

use std::hash::Hash;

use ridgepoint::internals::dtype::MatmulFormat;
use ridgepoint::internals::efficiency::family::{AllReduceKind, HeadSize, Routing};
use ridgepoint::internals::input::{Columns, Row};
use ridgepoint::internals::model::{Recurrence, Window};
use ridgepoint::internals::physics::StateKernel;
use ridgepoint::internals::units::US_PER_MS;
use ridgepoint::{DType, Result};

use super::calls::{AllReduceCall, DecodeCall, GemmCall, Heads, MoeCall, PrefillCall, SmallKernelCall, StateCall};
use super::source::SourceFormat;
use crate::measured_time::{MICROSECONDS, MILLISECONDS};

/// Larger counts are not exact as `f64`.
const MAX_COUNT: u64 = 1 << 53;
pub(super) const MATMUL_FORMATS: &str =
    "bfloat16, float16, fp8, fp8_block, int8, int8_wo, int4_wo, nvfp4, mxfp4, mxfp4_mxfp8";
const KV_DTYPES: &str = "bfloat16, float16, fp8 or another number format";
const STATE_KERNELS: &str = "conv_prefill, conv_decode, chunk_scan or state_update";
const PUBLIC_STATE_KERNELS: &str =
    "causal_conv1d_fn, causal_conv1d_update, chunk_gated_delta_rule… or fused_recurrent_gated_delta_rule…";
const DISTRIBUTIONS: &str = "balanced, or power_law_<alpha> with alpha above 0";

/// Columns of every public table besides the sizes. The reading of sources and constants requires all but the last two.
const PUBLIC_EXTRAS: &str = "framework,version,device,op_name,kernel_source,power,power_limit";

/// A public kernel table of an operator.
pub(super) struct PublicTable {
    /// File name.
    pub(super) file: &'static str,
    /// Columns, under the names of one's own files where both have them.
    #[cfg_attr(not(feature = "parquet"), allow(dead_code))]
    pub(super) columns: Columns,
    /// Columns that hold one value throughout; another value would be another operator.
    pub(super) constants: &'static [(&'static str, &'static str)],
    /// A column whose rows of another value are of other kernels, which no table takes.
    pub(super) only: Option<(&'static str, &'static str)>,
}

/// The columns of a public table, with those that it has besides the sizes.
const fn public_columns(required: &'static str, aliases: &'static [(&'static str, &'static str)]) -> Columns {
    Columns { required, optional: PUBLIC_EXTRAS, aliases, has_others: false }
}

/// A call that files hold.
pub(super) trait Call: Sized + Eq + Hash {
    /// Stem of the csv file and of its sections in `meta.toml`.
    const STEM: &'static str;
    /// Columns of the csv file, which may have others.
    const CSV: &'static str;
    /// The public tables.
    const PUBLIC: &'static [PublicTable];

    /// Reads the call of a row.
    fn read(row: &Row<'_>, format: SourceFormat) -> Result<Self>;
}

/// Reads the time of a row, µs. Public tables have milliseconds.
pub(super) fn latency_us(row: &Row<'_>, format: SourceFormat) -> Result<f64> {
    match format {
        SourceFormat::Parquet => Ok(US_PER_MS * row.number("latency_us", MILLISECONDS)?),
        SourceFormat::Csv => row.number("latency_us", MICROSECONDS),
    }
}

fn size(row: &Row<'_>, column: &str) -> Result<u64> {
    row.whole(column, 1..=MAX_COUNT)
}

fn matmul_format(row: &Row<'_>) -> Result<MatmulFormat> {
    row.read("dtype", MATMUL_FORMATS, MatmulFormat::parse)
}

impl Call for GemmCall {
    const STEM: &'static str = "gemm";
    const CSV: &'static str = "dtype,m,n,k,latency_us";
    const PUBLIC: &'static [PublicTable] = &[PublicTable {
        file: "gemm_perf.parquet",
        columns: public_columns(Self::CSV, &[("gemm_dtype", "dtype"), ("latency", "latency_us")]),
        constants: &[("op_name", "gemm")],
        only: None,
    }];

    fn read(row: &Row<'_>, _: SourceFormat) -> Result<Self> {
        Ok(GemmCall { dtype: matmul_format(row)?, m: size(row, "m")?, n: size(row, "n")?, k: size(row, "k")? })
    }
}

const PUBLIC_ATTENTION: Columns = Columns {
    required: "num_heads,num_kv_heads,head_dim,kv_cache_dtype,batch_size,num_scheduled_tokens,num_computed_tokens,\
        attn_dtype,beam_width,latency_us",
    optional: "window_size,framework,version,device,op_name,kernel_source,power,power_limit",
    aliases: &[
        ("num_key_value_heads", "num_kv_heads"),
        ("isl", "num_scheduled_tokens"),
        ("step", "num_computed_tokens"),
        ("latency", "latency_us"),
    ],
    has_others: false,
};

/// Kernels of latent attention, as DeepSeek-V3 has it.
const PUBLIC_LATENT: Columns = Columns {
    required: "num_heads,kv_cache_dtype,batch_size,num_scheduled_tokens,num_computed_tokens,mla_dtype,tp_size,latency_us",
    ..PUBLIC_ATTENTION
};

/// The heads of a row. Latent attention of prompts has a KV head per query head, that of decodes one for all.
fn heads(row: &Row<'_>, num_latent_kv_heads: impl Fn(u64) -> u64) -> Result<Heads> {
    let num_heads = size(row, "num_heads")?;
    if row.text("mla_dtype").is_some() {
        return Ok(Heads {
            num_heads,
            num_kv_heads: num_latent_kv_heads(num_heads),
            head_size: HeadSize::Latent,
            kv_dtype: row.read("kv_cache_dtype", KV_DTYPES, DType::parse)?,
            window: Window::Full,
        });
    }
    let num_kv_heads = size(row, "num_kv_heads")?;
    if !num_heads.is_multiple_of(num_kv_heads) {
        return Err(row.bad("num_kv_heads", format!("a divisor of num_heads = {num_heads}")));
    }
    let window: Option<u64> = row.optional("window_size", |row, column| row.whole(column, 0..=MAX_COUNT))?;
    Ok(Heads {
        num_heads,
        num_kv_heads,
        head_size: HeadSize::Plain(size(row, "head_dim")?),
        kv_dtype: row.read("kv_cache_dtype", KV_DTYPES, DType::parse)?,
        window: window.filter(|tokens| *tokens > 0).map_or(Window::Full, Window::Sliding),
    })
}

impl Call for PrefillCall {
    const STEM: &'static str = "attention_prefill";
    const CSV: &'static str = "num_heads,num_kv_heads,head_dim,kv_cache_dtype,window_size,batch_size,\
        num_scheduled_tokens,num_computed_tokens,latency_us";
    const PUBLIC: &'static [PublicTable] = &[
        PublicTable {
            file: "context_attention_perf.parquet",
            columns: PUBLIC_ATTENTION,
            constants: &[("op_name", "context_attention"), ("beam_width", "1")],
            only: Some(("attn_dtype", "bfloat16")),
        },
        PublicTable {
            file: "context_mla_perf.parquet",
            columns: PUBLIC_LATENT,
            constants: &[],
            only: Some(("mla_dtype", "bfloat16")),
        },
    ];

    fn read(row: &Row<'_>, _: SourceFormat) -> Result<Self> {
        Ok(PrefillCall {
            heads: heads(row, |heads| heads)?,
            batch_size: size(row, "batch_size")?,
            num_scheduled_tokens: size(row, "num_scheduled_tokens")?,
            num_computed_tokens: row.whole("num_computed_tokens", 0..=MAX_COUNT)?,
        })
    }
}

impl Call for DecodeCall {
    const STEM: &'static str = "attention_decode";
    const CSV: &'static str = "num_heads,num_kv_heads,head_dim,kv_cache_dtype,window_size,batch_size,\
        kv_tokens_total,kv_tokens_max,latency_us";
    const PUBLIC: &'static [PublicTable] = &[
        PublicTable {
            file: "generation_attention_perf.parquet",
            columns: PUBLIC_ATTENTION,
            constants: &[("op_name", "generation_attention"), ("beam_width", "1"), ("num_scheduled_tokens", "1")],
            only: Some(("attn_dtype", "bfloat16")),
        },
        PublicTable {
            file: "generation_mla_perf.parquet",
            columns: PUBLIC_LATENT,
            constants: &[("num_scheduled_tokens", "1")],
            only: Some(("mla_dtype", "bfloat16")),
        },
    ];

    fn read(row: &Row<'_>, format: SourceFormat) -> Result<Self> {
        let (heads, batch_size) = (heads(row, |_| 1)?, size(row, "batch_size")?);
        if format == SourceFormat::Parquet {
            let kv_tokens_max = row.whole("num_computed_tokens", 0..=MAX_COUNT)? + 1;
            let kv_tokens_total = batch_size.saturating_mul(kv_tokens_max);
            return Ok(DecodeCall { heads, batch_size, kv_tokens_total, kv_tokens_max });
        }
        let (kv_tokens_total, kv_tokens_max) = (size(row, "kv_tokens_total")?, size(row, "kv_tokens_max")?);
        // Each request reads its new token at least and the longest one `kv_tokens_max`; none reads more.
        let others = u128::from(batch_size - 1);
        let (least, most) = (u128::from(kv_tokens_max) + others, u128::from(kv_tokens_max) * (others + 1));
        if !(least..=most).contains(&u128::from(kv_tokens_total)) {
            let expected = format!(
                "{least} to {most}: {batch_size} requests, the longest of {kv_tokens_max} tokens and each of at least 1"
            );
            return Err(row.bad("kv_tokens_total", expected));
        }
        Ok(DecodeCall { heads, batch_size, kv_tokens_total, kv_tokens_max })
    }
}

impl Call for MoeCall {
    const STEM: &'static str = "moe";
    const CSV: &'static str = "dtype,num_tokens,hidden_size,intermediate_size,top_k,num_experts,\
        moe_tp_size,moe_ep_size,distribution,latency_us";
    const PUBLIC: &'static [PublicTable] = &[PublicTable {
        file: "moe_perf.parquet",
        columns: public_columns(
            Self::CSV,
            &[
                ("moe_dtype", "dtype"),
                ("inter_size", "intermediate_size"),
                ("topk", "top_k"),
                ("latency", "latency_us"),
            ],
        ),
        constants: &[("op_name", "moe")],
        only: None,
    }];

    fn read(row: &Row<'_>, _: SourceFormat) -> Result<Self> {
        let is_possible = |routing: Routing| match routing {
            Routing::Balanced => true,
            Routing::PowerLaw(alpha) => alpha.is_finite() && alpha > 0.0,
        };
        let distribution = |name: &str| Routing::parse(name).filter(|of| is_possible(*of)).map(|_| name.to_owned());
        let call = MoeCall {
            dtype: matmul_format(row)?,
            num_tokens: size(row, "num_tokens")?,
            hidden_size: size(row, "hidden_size")?,
            intermediate_size: size(row, "intermediate_size")?,
            top_k: size(row, "top_k")?,
            num_experts: size(row, "num_experts")?,
            moe_tp_size: size(row, "moe_tp_size")?,
            moe_ep_size: size(row, "moe_ep_size")?,
            distribution: row.read("distribution", DISTRIBUTIONS, distribution)?,
        };
        if call.top_k > call.num_experts {
            return Err(row.bad("top_k", format!("at most num_experts = {}", call.num_experts)));
        }
        if !call.num_experts.is_multiple_of(call.moe_ep_size) {
            return Err(row.bad("moe_ep_size", format!("a divisor of num_experts = {}", call.num_experts)));
        }
        if !call.intermediate_size.is_multiple_of(call.moe_tp_size) {
            return Err(row.bad("moe_tp_size", format!("a divisor of the experts' width {}", call.intermediate_size)));
        }
        Ok(call)
    }
}

impl Call for AllReduceCall {
    const STEM: &'static str = "allreduce";
    const CSV: &'static str = "num_gpus,message_bytes,backend,latency_us";
    const PUBLIC: &'static [PublicTable] = &[PublicTable {
        file: "custom_allreduce_perf.parquet",
        columns: public_columns(
            "num_gpus,message_size,allreduce_dtype,backend,latency_us",
            &[("latency", "latency_us")],
        ),
        constants: &[("op_name", "all_reduce")],
        only: None,
    }];

    fn read(row: &Row<'_>, format: SourceFormat) -> Result<Self> {
        let num_gpus = size(row, "num_gpus")?;
        if num_gpus < 2 {
            return Err(row.bad("num_gpus", "at least 2: one GPU has nothing to reduce"));
        }
        let message_bytes = match format {
            SourceFormat::Csv => size(row, "message_bytes")?,
            SourceFormat::Parquet => {
                let element_bytes = row.read("allreduce_dtype", KV_DTYPES, DType::parse)?.bytes();
                (size(row, "message_size")? as f64 * element_bytes).ceil() as u64
            }
        };
        let backend = |name: &str| match name.split_once('_').map_or(name, |(_, kind)| kind) {
            "graph" => Some(AllReduceKind::Graph),
            "eager" => Some(AllReduceKind::Eager),
            _ => None,
        };
        Ok(AllReduceCall { num_gpus, message_bytes, backend: row.read("backend", "graph or eager", backend)? })
    }
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
        only: None,
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
        if !call.num_heads.is_multiple_of(call.num_key_heads) {
            return Err(row.bad("num_key_heads", format!("a divisor of num_heads = {}", call.num_heads)));
        }
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

impl Call for SmallKernelCall {
    const STEM: &'static str = "small_kernels";
    const CSV: &'static str = "kernel,num_tokens,width,launches,latency_us";
    const PUBLIC: &'static [PublicTable] = &[];

    fn read(row: &Row<'_>, _: SourceFormat) -> Result<Self> {
        Ok(SmallKernelCall {
            kernel: row.read("kernel", "the name of the kernel", |name| Some(name.to_owned()))?,
            num_tokens: size(row, "num_tokens")?,
            width: size(row, "width")?,
            launches: size(row, "launches")?,
        })
    }
}

//! Timings of attention: prefill chunks and decodes.

use ridgepoint::model::Window;
use ridgepoint::unstable::efficiency::family::HeadSize;
use ridgepoint::{DType, Result};
use ridgepoint_replay::input::{Columns, Row};

use super::columns::{Call, KV_DTYPES, MAX_COUNT, PublicTable, check_divides, size};
use super::source::SourceFormat;

/// The heads that an attention call works on.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Heads {
    /// Query heads of the rank.
    pub num_heads: u64,
    /// KV heads of the rank; divides `num_heads`.
    pub num_kv_heads: u64,
    /// Width of a head.
    pub head_size: HeadSize,
    /// Format of the KV cache.
    pub kv_dtype: DType,
    /// Visible earlier tokens: [`Window::Full`] if a file has 0, else [`Window::Sliding`].
    pub window: Window,
}

/// Causal attention over equal prefill chunks.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PrefillCall {
    /// Heads.
    pub heads: Heads,
    /// Requests in the call.
    pub batch_size: u64,
    /// New tokens of each request (`isl` in the public data).
    pub num_scheduled_tokens: u64,
    /// Tokens of each request that were in the cache before (`step` in the public data, where it is 0).
    pub num_computed_tokens: u64,
}

/// Attention with one new token per request.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct DecodeCall {
    /// Heads.
    pub heads: Heads,
    /// Requests in the call.
    pub batch_size: u64,
    /// Contexts of all requests: cached tokens and the new ones, **not** cut to the window. In the public data every
    /// request has `step` tokens in the cache, so this is `batch_size · (step + 1)`.
    pub kv_tokens_total: u64,
    /// Context of the longest request, counted alike.
    pub kv_tokens_max: u64,
}

/// One call of equal prefill chunks and of decodes with equal contexts.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct MixedCall {
    /// Heads.
    pub heads: Heads,
    /// Chunks.
    pub num_prefills: u64,
    /// New tokens of each chunk.
    pub num_scheduled_tokens: u64,
    /// Tokens of each chunk's request that were in the cache before.
    pub num_computed_tokens: u64,
    /// Decodes.
    pub num_decodes: u64,
    /// Contexts of all decodes, the new tokens counted.
    pub kv_tokens_total: u64,
}

impl DecodeCall {
    /// Mean context of a request.
    pub fn kv_tokens_mean(&self) -> f64 {
        self.kv_tokens_total as f64 / self.batch_size as f64
    }
}

const PUBLIC_ATTENTION: Columns = Columns {
    optional: "window_size,framework,version,device,op_name,kernel_source,power,power_limit",
    aliases: &[
        ("num_key_value_heads", "num_kv_heads"),
        ("isl", "num_scheduled_tokens"),
        ("step", "num_computed_tokens"),
        ("latency", "latency_us"),
    ],
    ..Columns::exactly(
        "num_heads,num_kv_heads,head_dim,kv_cache_dtype,batch_size,num_scheduled_tokens,num_computed_tokens,\
        attn_dtype,beam_width,latency_us",
    )
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
    check_divides(row, "num_kv_heads", num_kv_heads, num_heads, format_args!("num_heads = {num_heads}"))?;
    let window: Option<u64> = row.optional("window_size", |row, column| row.whole(column, 0..=MAX_COUNT))?;
    let named = row.text("head_dim").as_deref().and_then(HeadSize::named);
    Ok(Heads {
        num_heads,
        num_kv_heads,
        head_size: named.map_or_else(|| size(row, "head_dim").map(HeadSize::Plain), Ok)?,
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
            only: &[("attn_dtype", "bfloat16")],
        },
        PublicTable {
            file: "context_mla_perf.parquet",
            columns: PUBLIC_LATENT,
            constants: &[],
            only: &[("mla_dtype", "bfloat16")],
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
            only: &[("attn_dtype", "bfloat16")],
        },
        PublicTable {
            file: "generation_mla_perf.parquet",
            columns: PUBLIC_LATENT,
            constants: &[("num_scheduled_tokens", "1")],
            only: &[("mla_dtype", "bfloat16")],
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

impl Call for MixedCall {
    const STEM: &'static str = "attention_mixed";
    const CSV: &'static str = "num_heads,num_kv_heads,head_dim,kv_cache_dtype,window_size,num_prefills,\
        num_scheduled_tokens,num_computed_tokens,num_decodes,kv_tokens_total,latency_us";
    const PUBLIC: &'static [PublicTable] = &[];

    fn read(row: &Row<'_>, _: SourceFormat) -> Result<Self> {
        let call = MixedCall {
            heads: heads(row, |_| 1)?,
            num_prefills: size(row, "num_prefills")?,
            num_scheduled_tokens: size(row, "num_scheduled_tokens")?,
            num_computed_tokens: row.whole("num_computed_tokens", 0..=MAX_COUNT)?,
            num_decodes: size(row, "num_decodes")?,
            kv_tokens_total: size(row, "kv_tokens_total")?,
        };
        if call.kv_tokens_total < call.num_decodes {
            return Err(
                row.bad("kv_tokens_total", format!("{} at least: each decode reads its new token", call.num_decodes))
            );
        }
        Ok(call)
    }
}

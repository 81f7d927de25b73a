//! Timings of whole blocks of latent attention.

use ridgepoint::{DType, Result};
use ridgepoint_replay::input::Row;

use super::columns::{Call, KV_DTYPES, MAX_COUNT, PublicTable, public_columns, size};
use super::source::SourceFormat;

/// The latent attention of one layer of DeepSeek-V3 in 16 bits: projections, norms, rotary embedding, cache write, attention.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LatentBlockCall {
    /// Query heads of the rank.
    pub num_heads: u64,
    /// Format of the KV cache.
    pub kv_dtype: DType,
    /// Requests in the call.
    pub batch_size: u64,
    /// New tokens of each request; 1 for decodes.
    pub num_scheduled_tokens: u64,
    /// Cached tokens of each request.
    pub num_computed_tokens: u64,
}

const COLUMNS: &str = "num_heads,kv_cache_dtype,batch_size,num_scheduled_tokens,num_computed_tokens,latency_us";

/// The table of one phase, of which rows that compute in other formats are not read.
const fn public(file: &'static str) -> PublicTable {
    PublicTable {
        file,
        columns: public_columns(
            "num_heads,kv_cache_dtype,batch_size,num_scheduled_tokens,num_computed_tokens,mla_dtype,gemm_type,model,architecture,\
                tp_size,latency_us",
            &[("isl", "num_scheduled_tokens"), ("step", "num_computed_tokens"), ("latency", "latency_us")],
        ),
        constants: &[("model", "deepseek-ai/DeepSeek-V3"), ("tp_size", "1")],
        only: &[("gemm_type", "bfloat16"), ("mla_dtype", "bfloat16")],
    }
}

impl Call for LatentBlockCall {
    const STEM: &'static str = "latent_block";
    const CSV: &'static str = COLUMNS;
    const PUBLIC: &'static [PublicTable] =
        &[public("mla_context_module_perf.parquet"), public("mla_generation_module_perf.parquet")];

    fn read(row: &Row<'_>, _: SourceFormat) -> Result<Self> {
        Ok(LatentBlockCall {
            num_heads: size(row, "num_heads")?,
            kv_dtype: row.read("kv_cache_dtype", KV_DTYPES, DType::parse)?,
            batch_size: size(row, "batch_size")?,
            num_scheduled_tokens: size(row, "num_scheduled_tokens")?,
            num_computed_tokens: row.whole("num_computed_tokens", 0..=MAX_COUNT)?,
        })
    }
}

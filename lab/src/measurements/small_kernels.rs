//! Timings of kernels that only move bytes.

use ridgepoint::Result;
use ridgepoint_replay::input::Row;

use super::columns::{Call, PublicTable, public_columns, size};
use super::source::SourceFormat;

/// The kernel of `scale_matrix_perf.parquet`: activations divided by known scales, one launch.
const QUANTISE_FP8: &str = "quantise_fp8";

/// A kernel that only moves bytes: a norm, rotary embedding, activation, residual add or KV write.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SmallKernelCall {
    /// Name of the kernel.
    pub kernel: String,
    /// Tokens it works on.
    pub num_tokens: u64,
    /// Elements per token.
    pub width: u64,
    /// Kernel launches in the timed call.
    pub launches: u64,
}

impl Call for SmallKernelCall {
    const STEM: &'static str = "small_kernels";
    const CSV: &'static str = "kernel,num_tokens,width,launches,latency_us";
    const PUBLIC: &'static [PublicTable] = &[PublicTable {
        file: "scale_matrix_perf.parquet",
        columns: public_columns(
            "num_tokens,width,quant_dtype,latency_us",
            &[("m", "num_tokens"), ("k", "width"), ("latency", "latency_us")],
        ),
        constants: &[],
        only: &[("quant_dtype", "fp8")],
    }];

    fn read(row: &Row<'_>, format: SourceFormat) -> Result<Self> {
        let kernel = match format {
            SourceFormat::Csv => row.read("kernel", "the name of the kernel", |name| Some(name.to_owned()))?,
            SourceFormat::Parquet => QUANTISE_FP8.to_owned(),
        };
        Ok(SmallKernelCall {
            kernel,
            num_tokens: size(row, "num_tokens")?,
            width: size(row, "width")?,
            launches: if format == SourceFormat::Csv { size(row, "launches")? } else { 1 },
        })
    }
}

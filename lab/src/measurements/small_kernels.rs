//! Timings of kernels that only move bytes.

use ridgepoint::Result;
use ridgepoint::internals::input::Row;

use super::source::SourceFormat;
use super::tables::{Call, PublicTable, size};

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

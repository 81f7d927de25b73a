//! Timings of projections.

use ridgepoint::Result;
use ridgepoint::dtype::MatmulFormat;
use ridgepoint_replay::input::Row;

use super::columns::{Call, PublicTable, matmul_format, public_columns, size};
use super::source::SourceFormat;

/// A projection: `y[m,n] = x[m,k] · W[k,n]`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct GemmCall {
    /// Storage of W.
    pub dtype: MatmulFormat,
    /// Rows of the activations: tokens.
    pub m: u64,
    /// Outputs.
    pub n: u64,
    /// Inputs.
    pub k: u64,
}

impl Call for GemmCall {
    const STEM: &'static str = "gemm";
    const CSV: &'static str = "dtype,m,n,k,latency_us";
    const PUBLIC: &'static [PublicTable] = &[PublicTable {
        file: "gemm_perf.parquet",
        columns: public_columns(Self::CSV, &[("gemm_dtype", "dtype"), ("latency", "latency_us")]),
        constants: &[("op_name", "gemm")],
        only: &[],
    }];

    fn read(row: &Row<'_>, _: SourceFormat) -> Result<Self> {
        Ok(GemmCall { dtype: matmul_format(row)?, m: size(row, "m")?, n: size(row, "n")?, k: size(row, "k")? })
    }
}

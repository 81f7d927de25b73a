//! Timings of batched products.

use ridgepoint::Result;
use ridgepoint::dtype::MatmulFormat;
use ridgepoint_replay::input::Row;

use super::columns::{Call, PublicTable, matmul_format, public_columns, size};
use super::source::SourceFormat;

/// Inputs and outputs of a product that the public table names, as DeepSeek-V3 has them.
const PUBLIC_OPERATORS: &str = "mla_gen_pre or mla_gen_post";

/// Several projections of one shape in one call, each with inputs of its own: the heads of absorbed latent attention.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct BatchedGemmCall {
    /// Storage of the matrices.
    pub dtype: MatmulFormat,
    /// Products in the call: heads of the rank.
    pub copies: u64,
    /// Rows of each product's inputs: tokens.
    pub m: u64,
    /// Outputs of each product.
    pub n: u64,
    /// Inputs of each product.
    pub k: u64,
}

impl Call for BatchedGemmCall {
    const STEM: &'static str = "batched_gemm";
    const CSV: &'static str = "dtype,copies,m,n,k,latency_us";
    const PUBLIC: &'static [PublicTable] = &[PublicTable {
        file: "mla_bmm_perf.parquet",
        columns: public_columns(
            "dtype,copies,m,latency_us",
            &[("bmm_dtype", "dtype"), ("num_heads", "copies"), ("num_tokens", "m"), ("latency", "latency_us")],
        ),
        constants: &[],
        only: &[],
    }];

    fn read(row: &Row<'_>, format: SourceFormat) -> Result<Self> {
        let (n, k) = match format {
            SourceFormat::Csv => (size(row, "n")?, size(row, "k")?),
            SourceFormat::Parquet => row.read("op_name", PUBLIC_OPERATORS, absorbed_projection)?,
        };
        Ok(BatchedGemmCall { dtype: matmul_format(row)?, copies: size(row, "copies")?, m: size(row, "m")?, n, k })
    }
}

/// Outputs and inputs of a head's product: queries into the latent space of 512, or outputs out of it.
fn absorbed_projection(name: &str) -> Option<(u64, u64)> {
    match name {
        "mla_gen_pre" => Some((512, 128)),
        "mla_gen_post" => Some((128, 512)),
        _ => None,
    }
}

//! Timings of NCCL's collectives.
#![expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "floats saturate; readers check ranges")]

use ridgepoint::internals::efficiency::kernel_model::ExchangeModel;
use ridgepoint::internals::input::Row;
use ridgepoint::internals::physics::communication::Collective;
use ridgepoint::{DType, Result};

use super::source::SourceFormat;
use super::tables::{Call, KV_DTYPES, Measured, PublicTable, public_columns, size};

const COLLECTIVES: &str = "all_gather, reduce_scatter, alltoall or all_reduce";

/// A collective of NCCL.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ExchangeCall {
    /// Which one.
    pub collective: Collective,
    /// Ranks, at least 2.
    pub num_gpus: u64,
    /// Bytes of the whole message: all parts of an all-gather, and the array on each rank of the others.
    pub message_bytes: u64,
}

impl Call for ExchangeCall {
    const STEM: &'static str = "nccl";
    const CSV: &'static str = "collective,num_gpus,message_bytes,latency_us";
    const PUBLIC: &'static [PublicTable] = &[PublicTable {
        file: "nccl_perf.parquet",
        columns: public_columns("op_name,num_gpus,message_size,nccl_dtype,latency_us", &[("latency", "latency_us")]),
        constants: &[("kernel_source", "NCCL")],
        only: None,
    }];

    fn read(row: &Row<'_>, format: SourceFormat) -> Result<Self> {
        let num_gpus = size(row, "num_gpus")?;
        if num_gpus < 2 {
            return Err(row.bad("num_gpus", "at least 2: one GPU has nothing to exchange"));
        }
        let message_bytes = match format {
            SourceFormat::Csv => size(row, "message_bytes")?,
            SourceFormat::Parquet => {
                // NCCL's names of the formats.
                let dtype = |name: &str| if name == "half" { Some(DType::Float16) } else { DType::parse(name) };
                let element_bytes = row.read("nccl_dtype", KV_DTYPES, dtype)?.bytes();
                (size(row, "message_size")? as f64 * element_bytes).ceil() as u64
            }
        };
        let column = if format == SourceFormat::Csv { "collective" } else { "op_name" };
        let collective = row.read(column, COLLECTIVES, Collective::parse)?;
        Ok(ExchangeCall { collective, num_gpus, message_bytes })
    }
}

impl Measured for ExchangeModel {
    type Call = ExchangeCall;
}

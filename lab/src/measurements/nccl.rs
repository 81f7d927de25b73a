//! Timings of NCCL's collectives.

use ridgepoint::physics::communication::Collective;
use ridgepoint::{DType, Result};
use ridgepoint_replay::input::Row;

use super::columns::{Call, PublicTable, message_bytes, num_gpus, public_columns};
use super::source::SourceFormat;

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
        only: &[],
    }];

    fn read(row: &Row<'_>, format: SourceFormat) -> Result<Self> {
        let num_gpus = num_gpus(row, "exchange")?;
        // NCCL's names of the formats.
        let dtype = |name: &str| if name == "half" { Some(DType::Float16) } else { DType::parse(name) };
        let message_bytes = message_bytes(row, format, "nccl_dtype", dtype)?;
        let column = if format == SourceFormat::Csv { "collective" } else { "op_name" };
        let collective = row.read(column, COLLECTIVES, Collective::parse)?;
        Ok(ExchangeCall { collective, num_gpus, message_bytes })
    }
}

//! Timings of all-reduces.
#![expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "floats saturate; readers check ranges")]

use ridgepoint::internals::efficiency::family::AllReduceKind;
use ridgepoint::internals::efficiency::kernel_model::AllReduceModel;
use ridgepoint::internals::input::Row;
use ridgepoint::{DType, Result};

use super::source::SourceFormat;
use super::tables::{Call, KV_DTYPES, Measured, PublicTable, public_columns, size};

/// An all-reduce.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct AllReduceCall {
    /// Ranks, at least 2.
    pub num_gpus: u64,
    /// Bytes of the message on each rank.
    pub message_bytes: u64,
    /// How it was launched.
    pub backend: AllReduceKind,
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

impl Measured for AllReduceModel {
    type Call = AllReduceCall;
}

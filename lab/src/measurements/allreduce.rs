//! Timings of all-reduces.

use ridgepoint::unstable::efficiency::family::AllReduceKind;
use ridgepoint::{DType, Result};
use ridgepoint_replay::input::Row;

use super::columns::{Call, PublicTable, message_bytes, num_gpus, public_columns};
use super::source::SourceFormat;

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
            &[("latency", "latency_us"), ("implementation", "backend")],
        ),
        constants: &[("op_name", "all_reduce")],
        only: &[],
    }];

    fn read(row: &Row<'_>, format: SourceFormat) -> Result<Self> {
        let num_gpus = num_gpus(row, "reduce")?;
        let message_bytes = message_bytes(row, format, "allreduce_dtype", DType::parse)?;
        let backend = |name: &str| match name.split_once('_').map_or(name, |(_, kind)| kind) {
            // TensorRT-LLM's all-reduce has no mode in the public tables: it was timed inside a graph.
            "graph" | "trtllm" => Some(AllReduceKind::Graph),
            "eager" => Some(AllReduceKind::Eager),
            _ => None,
        };
        Ok(AllReduceCall { num_gpus, message_bytes, backend: row.read("backend", "graph or eager", backend)? })
    }
}

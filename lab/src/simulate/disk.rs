//! Report of a disk behind the host's tier of KV blocks: its copies, its hits, and the length from which a read pays.

use ridgepoint::latency::TransferLink;
use ridgepoint::latency::{CalibratedRoofline, TransferDirection};
use ridgepoint_replay::EngineConfig;
use ridgepoint_replay::{DiskCounters, KvDisk, LoadOrCompute, OffloadCounters};
use serde::Serialize;

use super::tiers::{Comparison, ServedLoad};
use crate::words::number;

/// The disk tier of a replay. JSON keys are stable.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DiskReport {
    /// The disk.
    #[serde(flatten)]
    pub tier: KvDisk,
    /// Times of its writes.
    pub cpu_to_disk: TransferLink,
    /// Times of its reads.
    pub disk_to_cpu: TransferLink,
    /// Whether the time of reads or writes is assumed, because no measured one was given.
    pub is_assumed: bool,
    /// What was counted of it.
    #[serde(flatten)]
    pub counted: DiskCounters,
    /// Share of the tokens that the GPU did not hold which were read from the disk.
    pub hit_share: Option<f64>,
    /// Mean time that a request waited for the disk, ms.
    pub mean_wait_ms: Option<f64>,
    /// The shortest prefix that is read and loaded faster than it is computed; `None` if no prefix is.
    pub break_even: Option<Comparison>,
    /// The longest prefix that fits a request.
    pub longest: Comparison,
    /// The same load with the host's tier alone; `None` where that was not replayed.
    pub without_disk: Option<ServedLoad>,
}

impl DiskReport {
    /// Returns the report of a replay; `None` without a disk tier.
    pub fn of(
        latency: &CalibratedRoofline,
        engine: &EngineConfig,
        counted: &OffloadCounters,
        without_disk: Option<ServedLoad>,
    ) -> Option<Self> {
        let tier = engine.kv_offload.as_ref()?.disk.clone()?;
        let (transfers, disk) = (latency.kv_transfers()?, counted.disk?);
        let longest_blocks = LoadOrCompute::longest_blocks(engine);
        Some(DiskReport {
            cpu_to_disk: transfers.link(TransferDirection::CpuToDisk),
            disk_to_cpu: transfers.link(TransferDirection::DiskToCpu),
            is_assumed: transfers.cpu_to_disk.is_none() || transfers.disk_to_cpu.is_none(),
            hit_share: counted.disk_hit_share(),
            mean_wait_ms: disk.mean_wait_ms(),
            break_even: LoadOrCompute::break_even_from_disk(latency, engine).map(Comparison::from),
            longest: LoadOrCompute::from_disk(latency, engine, longest_blocks).into(),
            without_disk,
            tier,
            counted: disk,
        })
    }

    /// Returns a remark on the times that are assumed.
    pub fn remark(&self) -> Option<String> {
        let of = |name: &str, link: &TransferLink| {
            let gb_per_s = number(Some(link.bytes_per_s / 1e9));
            format!("{name} at {gb_per_s} GB/s after {} µs", number(Some(link.latency_us)))
        };
        self.is_assumed.then(|| {
            format!(
                "the disk {} and {}: datasheet figures of an NVMe disk, as --kv-transfers gives no others",
                of("reads", &self.disk_to_cpu),
                of("writes", &self.cpu_to_disk)
            )
        })
    }
}

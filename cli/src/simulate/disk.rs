//! Report of a disk behind the host's tier of KV blocks: its copies, its hits, and the length from which a read pays.

use ridgepoint::latency::{CalibratedRoofline, TransferDirection, TransferLink};
use ridgepoint::units::GIB;
use ridgepoint_replay::{DiskCounters, EngineConfig, KvDisk, LoadOrCompute, OffloadCounters};
use serde::Serialize;

use super::tiers::{Comparison, Served, copies, pays};
use crate::text::{Page, count, number, percent, plural, shown};

/// The disk tier of a replay. JSON keys are stable.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "serve", derive(schemars::JsonSchema))]
pub(super) struct DiskReport {
    #[serde(flatten)]
    tier: KvDisk,
    /// Times of its copies.
    cpu_to_disk: TransferLink,
    disk_to_cpu: TransferLink,
    /// Whether the time of reads or writes is assumed, because no measured one was given.
    is_assumed: bool,
    #[serde(flatten)]
    counted: DiskCounters,
    /// Share of the tokens that the GPU did not hold which were read from the disk.
    hit_share: Option<f64>,
    /// Mean time that a request waited for the disk, ms.
    mean_wait_ms: Option<f64>,
    /// The shortest prefix that is read and loaded faster than it is computed; `None` if no prefix is.
    break_even: Option<Comparison>,
    /// The longest prefix that fits a request.
    longest: Comparison,
    /// The same load with the host's tier alone; `None` where that was not replayed.
    pub(super) without_disk: Option<Served>,
}

impl DiskReport {
    /// Returns the report of a replay; `None` without a disk tier.
    pub(super) fn of(
        latency: &CalibratedRoofline,
        engine: &EngineConfig,
        counted: &OffloadCounters,
        without_disk: Option<Served>,
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
    pub(super) fn remark(&self) -> Option<String> {
        let of = |name: &str, link: &TransferLink| {
            let gb_per_s = number(Some(link.bytes_per_s / 1e9));
            format!("{name} at {gb_per_s} GB/s after {} µs", number(Some(link.latency_us)))
        };
        self.is_assumed.then(|| {
            format!(
                "the disk {} and {}: datasheet figures of an NVMe disk stand in for those that --kv-transfers does not give",
                of("reads", &self.disk_to_cpu),
                of("writes", &self.cpu_to_disk)
            )
        })
    }

    /// Puts the disk on a page.
    pub(super) fn lay_out(&self, page: &mut Page) {
        let counted = &self.counted;
        let size = number(Some(counted.max_blocks_in_use as f64 * self.tier.block_bytes as f64 / GIB));
        let limit = match self.tier.num_disk_blocks {
            None => "no limit".to_owned(),
            Some(most) => {
                format!("a limit of {}, {} evicted", plural(u64::from(most), "block"), count(counted.evicted_blocks))
            }
        };
        let refused = match counted.refused_reads {
            0 => String::new(),
            refused => format!("; {} found no room on the host", plural(refused, "look-up")),
        };
        let tier = format!(
            "{} on the disk at most, {size} GiB, with {limit}; {} of the tokens that the GPU did not hold were read from it{refused}",
            plural(counted.max_blocks_in_use, "block"),
            shown(self.hit_share, percent),
        );
        page.paragraph("disk tier  ", &tier);
        let copies = format!(
            "{}, {}; a request that asks the disk waits {} ms on average",
            copies("reads", &counted.reads),
            copies("writes", &counted.writes),
            number(self.mean_wait_ms)
        );
        page.paragraph("transfers  ", &copies);
        page.paragraph("pays       ", &pays("read", self.break_even.as_ref(), &self.longest));
    }
}

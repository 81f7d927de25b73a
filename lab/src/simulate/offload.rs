//! Report of a host's tier of KV blocks: its transfers, the same load without it, and the length from which a load pays.

use ridgepoint::latency::CalibratedRoofline;
use ridgepoint::latency::KvTransfers;
use ridgepoint_replay::{EngineConfig, KvOffload, Metrics, Replay};
use ridgepoint_replay::{LoadOrCompute, OffloadCounters};
use serde::Serialize;

use super::disk::DiskReport;
use super::tiers::{Comparison, FewerTiers, ServedLoad};
use crate::words::plural;

/// The tier of a replay. JSON keys are stable.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct OffloadReport {
    /// The tier.
    #[serde(flatten)]
    pub tier: KvOffload,
    /// Times of the transfers.
    pub transfers: Option<KvTransfers>,
    /// What was counted of it.
    #[serde(flatten)]
    pub counted: OffloadCounters,
    /// Share of the tokens that the GPU did not hold which the host had.
    pub hit_share: Option<f64>,
    /// Mean time that a request waited for a load, ms.
    pub mean_load_wait_ms: Option<f64>,
    /// The shortest prefix that is loaded faster than it is computed; `None` if no prefix is.
    pub break_even: Option<Comparison>,
    /// The longest prefix that fits a request.
    pub longest: Comparison,
    /// The load with the tier.
    pub with_tier: ServedLoad,
    /// The same load without the tier; `None` where the server's start was simulated.
    pub without_tier: Option<ServedLoad>,
    /// The disk behind the host; left out without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk: Option<DiskReport>,
}

impl OffloadReport {
    /// Returns the report of a replay; `None` without a tier. `fewer_tiers` has replays of the same load to compare it with.
    pub fn of(
        latency: &CalibratedRoofline,
        engine: &EngineConfig,
        (replay, metrics): (&Replay, &Metrics),
        fewer_tiers: FewerTiers,
    ) -> Option<Self> {
        let served = |of: Option<(Replay, Metrics)>| of.map(|(replay, metrics)| ServedLoad::of(&replay, &metrics));
        let (without, without_disk) = (served(fewer_tiers.without_tier), served(fewer_tiers.without_disk));
        let disk = DiskReport::of(latency, engine, &replay.offload?, without_disk);
        // The disk's part is a report of its own.
        let tier = KvOffload { disk: None, ..engine.kv_offload.clone()? };
        let counted = OffloadCounters { disk: None, ..replay.offload? };
        let longest_blocks = LoadOrCompute::longest_blocks(engine);
        Some(OffloadReport {
            hit_share: counted.hit_share(),
            mean_load_wait_ms: counted.mean_load_wait_ms(),
            break_even: LoadOrCompute::break_even(latency, engine).map(Comparison::from),
            longest: LoadOrCompute::of(latency, engine, longest_blocks).into(),
            with_tier: ServedLoad::of(replay, metrics),
            without_tier: without,
            disk,
            transfers: latency.kv_transfers(),
            tier,
            counted,
        })
    }

    /// Returns warnings: that a disk's times are assumed, and that no request loaded anything from the tier.
    pub fn remarks(&self) -> Vec<String> {
        let useless = || {
            let (blocks, refused) = (self.tier.num_cpu_blocks, self.counted.refused_blocks);
            format!(
                "nothing was loaded from the host's tier of {}, and {} found no room: it is too small for this load, or no prefix comes back \
                 after it left the GPU",
                plural(u64::from(blocks), "block"),
                plural(refused, "block")
            )
        };
        let useless = (self.counted.loads.count == 0).then(useless);
        self.disk.as_ref().and_then(DiskReport::remark).into_iter().chain(useless).collect()
    }
}

//! Report of a host's tier of KV blocks: its transfers, the same load without it, and the length from which a load pays.

use ridgepoint::latency::{CalibratedRoofline, KvTransfers};
use ridgepoint::units::GIB;
use ridgepoint_replay::{EngineConfig, KvOffload, LoadOrCompute, Metrics, OffloadCounters, Replay};
use serde::Serialize;

use super::disk::DiskReport;
use super::tiers::{Comparison, FewerTiers, Served, copies, pays};
use crate::text::{Page, Rows, count, number, percent, plural, shown};

/// The tier of a replay. JSON keys are stable.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "serve", derive(schemars::JsonSchema))]
pub struct OffloadReport {
    #[serde(flatten)]
    tier: KvOffload,
    /// Times of the transfers.
    transfers: Option<KvTransfers>,
    #[serde(flatten)]
    counted: OffloadCounters,
    /// Share of the tokens that the GPU did not hold which the host had.
    hit_share: Option<f64>,
    /// Mean time that a request waited for a load, ms.
    mean_load_wait_ms: Option<f64>,
    /// The shortest prefix that is loaded faster than it is computed; `None` if no prefix is.
    break_even: Option<Comparison>,
    /// The longest prefix that fits a request.
    longest: Comparison,
    with_tier: Served,
    /// The same load without the tier; `None` where the server's start was simulated.
    without_tier: Option<Served>,
    /// The disk behind the host; left out without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    disk: Option<DiskReport>,
}

impl OffloadReport {
    /// Returns the report of a replay; `None` without a tier. `fewer_tiers` has replays of the same load to compare it with.
    pub fn of(
        latency: &CalibratedRoofline,
        engine: &EngineConfig,
        (replay, metrics): (&Replay, &Metrics),
        fewer_tiers: FewerTiers,
    ) -> Option<Self> {
        let served = |of: Option<(Replay, Metrics)>| of.map(|(replay, metrics)| Served::of(&replay, &metrics));
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
            with_tier: Served::of(replay, metrics),
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

    /// Puts the tier on a page.
    pub fn lay_out(&self, page: &mut Page) {
        let counted = &self.counted;
        let blocks = f64::from(self.tier.num_cpu_blocks);
        let size = number(Some(blocks * self.tier.block_bytes as f64 / GIB));
        let peak = percent(f64::from(counted.max_blocks_in_use) / blocks);
        let hits = shown(self.hit_share, percent);
        let tier = format!(
            "{} on the host, {size} GiB of each GPU, at most {peak} in use; {hits} of the tokens that the GPU did not hold were loaded; {} \
             evicted",
            plural(u64::from(self.tier.num_cpu_blocks), "block"),
            plural(counted.evicted_blocks, "block"),
        );
        page.paragraph("host tier  ", &tier);
        let wait = number(self.mean_load_wait_ms);
        let both = format!(
            "{}, {}; a request that loads waits {wait} ms on average",
            copies("loads", &counted.loads),
            copies("stores", &counted.stores)
        );
        page.paragraph("transfers  ", &both);
        page.paragraph("pays       ", &pays("load", self.break_even.as_ref(), &self.longest));
        let mut without_disk = None;
        if let Some(disk) = &self.disk {
            disk.lay_out(page);
            without_disk = disk.without_disk.as_ref();
        }
        let without = self.without_tier.as_ref();
        let servers = [("with", Some(&self.with_tier)), ("without disk", without_disk), ("without", without)];
        let servers: Vec<(&str, &Served)> = servers.into_iter().filter_map(|(name, of)| Some((name, of?))).collect();
        if servers.len() > 1 {
            page.blank();
            let rows = Rows::of(servers)
                .left("host tier", |(name, _)| (*name).to_owned())
                .right("TTFT mean ms", |(_, of)| number(of.ttft_mean_ms))
                .right("TTFT p90 ms", |(_, of)| number(of.ttft_p90_ms))
                .right("E2E mean ms", |(_, of)| number(of.e2e_mean_ms))
                .right("prompt tokens computed", |(_, of)| count(of.prefill_tokens))
                .right("preemptions", |(_, of)| count(of.preemptions));
            page.rows(&rows, &["preemptions", "TTFT p90 ms"]);
        }
    }
}

//! The parts of a report that some loads and servers alone have: turns of sessions, the host's tier, and KV metrics.

use ridgepoint::internals::replay::{KvMetrics, KvWatch, PrefixCachePrices, WatchedReplay};
use ridgepoint::internals::workload::Content;
use ridgepoint::replay::{KvOffload, Metrics, Observer, Replay};
use ridgepoint::workload::Workload;

use super::kv_metrics;
use super::offload::OffloadReport;
use super::report::{ReplayedLoad, Server, Simulation};
use super::sessions::SessionReport;

/// The data from which the optional parts of a report are made.
pub struct Details<'a> {
    /// The content of each record's request, for KV metrics.
    pub contents: &'a [Option<Content>],
    /// The turn of each record's request; empty without sessions.
    pub turns: &'a [u32],
    /// The observer of the KV cache; `None` if KV metrics are not asked for.
    pub watch: Option<KvWatch>,
    /// The same load on the same server without the host's tier, if both are to be compared.
    pub without_tier: Option<(Replay, Metrics)>,
    /// The same load on the same server without the disk behind that tier, if both are to be compared.
    pub without_disk: Option<(Replay, Metrics)>,
}

impl Server<'_> {
    /// Replays a load on the same server with `tier` in place of its host tier.
    ///
    /// # Errors
    /// Those of [`Server::replay`].
    pub fn with_tier<O: Observer>(
        &self,
        tier: Option<KvOffload>,
        workload: &mut dyn Workload,
        observer: O,
    ) -> ridgepoint::Result<(Replay, Metrics)> {
        let mut engine = self.engine.clone();
        engine.config.kv_offload = tier;
        let (replayed, _) = Server { engine: &engine, ..*self }.replay(workload, observer)?;
        Ok((replayed.replay, replayed.metrics))
    }
}

impl Simulation {
    /// Adds the parts that this load and server have, with their warnings.
    pub fn add(&mut self, server: &Server<'_>, of: &ReplayedLoad, details: Details<'_>) {
        let engine = &server.engine.config;
        self.sessions = SessionReport::of(details.turns, &of.replay.records);
        let with_tier = (&of.replay, &of.metrics);
        let without = [details.without_tier, details.without_disk];
        self.kv_offload = OffloadReport::of(server.latency, engine, with_tier, without);
        let remark = self.kv_offload.as_ref().and_then(OffloadReport::remark);
        self.warn(remark);
        self.kv_metrics = details.watch.map(|watch| {
            KvMetrics::of(&WatchedReplay {
                replay: &of.replay,
                contents: details.contents,
                engine,
                latency: server.steady(),
                watch: &watch,
                prices: PrefixCachePrices::default(),
            })
        });
        let remark = self.kv_metrics.as_ref().and_then(|metrics| kv_metrics::remark(metrics, engine));
        self.warn(remark);
    }
}

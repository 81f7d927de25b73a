//! The parts of a report that some loads and servers alone have: turns of sessions, the host's tier, and KV metrics.

use ridgepoint_replay::workload::{Content, Workload};
use ridgepoint_replay::{KvMetrics, KvOffload, KvWatch, Metrics, Observer, PrefixCachePrices, Replay, WatchedReplay};

use super::offload::OffloadReport;
use super::report::{ReplayedLoad, Server, Simulation};
use super::sessions::SessionReport;
use super::speculation::SpeculationReport;
use super::tiers::FewerTiers;

/// The data from which the optional parts of a report are made.
pub struct Details {
    /// Whether the load has sessions.
    pub has_sessions: bool,
    /// What the KV cache costs and brings, if requested.
    pub kv_metrics: Option<KvMetrics>,
    /// The same load on the same server with fewer tiers.
    pub fewer_tiers: FewerTiers,
    /// The same load on the same server without speculative decoding.
    pub without_speculation: Option<Metrics>,
}

impl Server<'_> {
    /// Replays a load with fewer tiers than the server has. `replay` replays it with the tier that it is given, by [`Server::with_tier`].
    ///
    /// # Errors
    /// Those of `replay`.
    pub fn fewer_tiers<E>(
        &self,
        mut replay: impl FnMut(Option<KvOffload>) -> Result<(Replay, Metrics), E>,
    ) -> Result<FewerTiers, E> {
        let mut fewer = FewerTiers::default();
        for tier in FewerTiers::compared(&self.engine.config) {
            let replayed_into = if tier.is_some() { &mut fewer.without_disk } else { &mut fewer.without_tier };
            *replayed_into = Some(replay(tier)?);
        }
        Ok(fewer)
    }

    /// Replays a load on the same server with `tier` in place of its host tier.
    ///
    /// # Errors
    /// Those of [`Server::replay`].
    pub fn with_tier(
        &self,
        tier: Option<KvOffload>,
        workload: &mut dyn Workload,
        observers: &mut [&mut dyn Observer],
    ) -> ridgepoint::Result<(Replay, Metrics)> {
        let mut engine = self.engine.clone();
        engine.config.kv_offload = tier;
        let replayed = Server { engine: &engine, ..*self }.replay(workload, observers)?;
        Ok((replayed.replay, replayed.metrics))
    }

    /// Replays a load on the same server without speculative decoding. Its KV cache is that of the server with its draft.
    ///
    /// # Errors
    /// Those of [`Server::replay`].
    pub fn without_speculation(
        &self,
        workload: &mut dyn Workload,
        observers: &mut [&mut dyn Observer],
    ) -> ridgepoint::Result<Metrics> {
        let (mut engine, latency) = (self.engine.clone(), self.latency.clone().without_draft());
        engine.config.speculation = None;
        let replayed = Server { engine: &engine, latency: &latency, ..*self }.replay(workload, observers)?;
        Ok(replayed.metrics)
    }

    /// Computes the KV metrics of a replay that `watch` observed. `contents` has the content of each record's request.
    pub fn kv_metrics(&self, of: &ReplayedLoad, contents: &[Option<Content>], watch: &KvWatch) -> KvMetrics {
        KvMetrics::of(&WatchedReplay {
            replay: &of.replay,
            contents,
            engine: &self.engine.config,
            latency: self.steady(),
            watch,
            prices: PrefixCachePrices::default(),
        })
    }
}

impl Simulation {
    /// Adds the parts that this load and server have, with their warnings.
    pub fn add(&mut self, server: &Server<'_>, of: &ReplayedLoad, details: Details) {
        let engine = &server.engine.config;
        self.sessions = details.has_sessions.then(|| SessionReport::of(&of.replay.records));
        let all = (&of.replay, &of.metrics);
        self.kv_offload = OffloadReport::of(server.latency, engine, all, details.fewer_tiers);
        let remarks = self.kv_offload.as_ref().map(OffloadReport::remarks);
        self.warn(remarks.into_iter().flatten());
        self.speculation = server.engine.speculation.as_ref().map(|served| {
            SpeculationReport::of(served, server.latency, engine, all, details.without_speculation.as_ref())
        });
        self.kv_metrics = details.kv_metrics;
        let remark =
            self.kv_metrics.as_ref().and_then(|metrics| metrics.host.as_ref()?.prices.extrapolated(engine.block_size));
        self.warn(remark);
    }
}

//! What the KV cache itself costs and brings in a replay: lives of blocks, hits by tier and prefix group, the host's time for hashing and
//! looking up, and the hit rate from which prefix caching pays. Uses the records of a replay; the engine does not know it.

mod hits;
mod host_cost;
mod pays;
mod watch;

#[cfg(test)]
mod tests;

use serde::Serialize;

pub use hits::{Hits, PrefixGroup};
pub use host_cost::{HostCost, PrefixCachePrices};
pub use pays::PrefixCacheBalance;
pub use watch::KvWatch;

use ridgepoint::latency::LatencyModel;

use super::block_lives::BlockStats;
use super::config::EngineConfig;
use super::record::Replay;
use crate::workload::Content;

/// KV metrics of a replay. Its JSON keys are stable: keys are added, never renamed or dropped.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct KvMetrics {
    /// Lives of the blocks; `None` without prefix caching, as no content outlives its request then.
    pub blocks: Option<BlockStats>,
    /// Hits of all requests that were scheduled.
    pub hits: Hits,
    /// Hits of the requests that share a prefix, for the groups that looked up the most tokens.
    pub prefix_groups: Vec<PrefixGroup>,
    /// Number of the other groups.
    pub num_other_groups: u64,
    /// Hits of the other groups.
    pub other_groups: Hits,
    /// The host's time for prefix caching; `None` without it.
    pub host: Option<HostCost>,
    /// What prefix caching saves against what it costs; `None` without it.
    pub balance: Option<PrefixCacheBalance>,
}

/// A replay whose KV metrics are asked for.
#[derive(Clone, Copy)]
pub struct WatchedReplay<'a> {
    /// The replay.
    pub replay: &'a Replay,
    /// The [`content`](crate::workload::WorkloadRequest::content) of each record's request. Requests beyond the list share nothing.
    pub contents: &'a [Option<Content>],
    /// The engine's configuration.
    pub engine: &'a EngineConfig,
    /// The times of steps.
    pub latency: &'a dyn LatencyModel,
    /// The observer that watched the replay.
    pub watch: &'a KvWatch,
    /// What the host's operations take.
    pub prices: PrefixCachePrices,
}

impl KvMetrics {
    /// The metrics of a replay that a [`KvWatch`] observed.
    pub fn of(of: &WatchedReplay<'_>) -> Self {
        let hits = Hits::of(&of.replay.records);
        let (prefix_groups, num_other_groups, other_groups) = hits::by_prefix(&of.replay.records, of.contents);
        let host = of.watch.blocks.as_ref().map(|blocks| HostCost::of(of, blocks, &hits));
        let balance = host.as_ref().and_then(|host| PrefixCacheBalance::of(of, host, &hits));
        KvMetrics { blocks: of.watch.blocks, hits, prefix_groups, num_other_groups, other_groups, host, balance }
    }
}

//! The host's tier of KV blocks and its disk compared with fewer tiers: what their reports share.

use ridgepoint_replay::LoadOrCompute;
use ridgepoint_replay::{EngineConfig, KvOffload, Metrics, Replay};
use serde::Serialize;

/// Replays of the same load on the same server with fewer tiers of KV blocks, to compare with.
#[derive(Debug, Default)]
pub struct FewerTiers {
    /// Without the host's tier; `None` if the server has none, or if both are not to be compared.
    pub without_tier: Option<(Replay, Metrics)>,
    /// Without the disk behind the host's tier.
    pub without_disk: Option<(Replay, Metrics)>,
}

impl FewerTiers {
    /// Number of replays that [`Server::fewer_tiers`](super::Server::fewer_tiers) makes for a server.
    pub fn number(engine: &EngineConfig) -> usize {
        FewerTiers::compared(engine).len()
    }

    /// The tiers of the servers that are compared: the host's tier without its disk, if the server has a disk, and then no tier.
    pub fn compared(engine: &EngineConfig) -> Vec<Option<KvOffload>> {
        let Some(tier) = &engine.kv_offload else { return Vec::new() };
        let host_alone = tier.disk.is_some().then(|| Some(KvOffload { disk: None, ..tier.clone() }));
        host_alone.into_iter().chain([None]).collect()
    }
}

/// Loading a prefix against computing it.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Comparison {
    /// Tokens of the prefix.
    pub tokens: u32,
    /// Time to load it, ms.
    pub load_ms: f64,
    /// Time to compute it, ms.
    pub saved_ms: f64,
}

impl From<LoadOrCompute> for Comparison {
    fn from(of: LoadOrCompute) -> Self {
        Comparison { tokens: of.tokens, load_ms: of.load_us / 1e3, saved_ms: of.saved_us / 1e3 }
    }
}

/// Latencies of the clients, and the work of the GPU.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ServedLoad {
    /// Mean time to first token, ms.
    pub ttft_mean_ms: Option<f64>,
    /// Its 90th percentile.
    pub ttft_p90_ms: Option<f64>,
    /// Mean time to the last token, ms.
    pub e2e_mean_ms: Option<f64>,
    /// Prompt tokens that were computed.
    pub prefill_tokens: u64,
    /// Requests that lost their blocks.
    pub preemptions: u64,
}

impl ServedLoad {
    /// The figures of a replay.
    pub fn of(replay: &Replay, metrics: &Metrics) -> Self {
        ServedLoad {
            ttft_mean_ms: metrics.run.ttft_ms.map(|of| of.mean),
            ttft_p90_ms: metrics.run.ttft_ms.map(|of| of.p90),
            e2e_mean_ms: metrics.run.e2e_ms.map(|of| of.mean),
            prefill_tokens: replay.counters.prefill_tokens,
            preemptions: replay.counters.preemptions,
        }
    }
}

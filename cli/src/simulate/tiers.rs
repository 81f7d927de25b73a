//! The host's tier of KV blocks and its disk beside fewer tiers: what their reports share.

use ridgepoint::units::GIB;
use ridgepoint_replay::{EngineConfig, KvOffload, LoadOrCompute, Metrics, Replay, TransferCounters};
use serde::Serialize;

use crate::text::{count, number};

/// Replays of the same load on the same server with fewer tiers of KV blocks, to compare with.
#[derive(Debug, Default)]
pub struct FewerTiers {
    /// Without the host's tier; `None` if the server has none, or if both are not to be compared.
    pub(super) without_tier: Option<(Replay, Metrics)>,
    /// Without the disk behind the host's tier.
    pub(super) without_disk: Option<(Replay, Metrics)>,
}

impl FewerTiers {
    /// Number of replays that [`Server::fewer_tiers`](super::Server::fewer_tiers) makes for a server.
    pub fn number(engine: &EngineConfig) -> usize {
        FewerTiers::compared(engine).len()
    }

    /// The tiers of the servers that are compared: the host's tier without its disk, if the server has a disk, and then no tier.
    pub(super) fn compared(engine: &EngineConfig) -> Vec<Option<KvOffload>> {
        let Some(tier) = &engine.kv_offload else { return Vec::new() };
        let host_alone = tier.disk.is_some().then(|| Some(KvOffload { disk: None, ..tier.clone() }));
        host_alone.into_iter().chain([None]).collect()
    }
}

/// Loading a prefix against computing it.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "serve", derive(schemars::JsonSchema))]
pub(super) struct Comparison {
    tokens: u32,
    load_ms: f64,
    saved_ms: f64,
}

impl From<LoadOrCompute> for Comparison {
    fn from(of: LoadOrCompute) -> Self {
        Comparison { tokens: of.tokens, load_ms: of.load_us / 1e3, saved_ms: of.saved_us / 1e3 }
    }
}

/// Latencies of the clients, and the work of the GPU.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "serve", derive(schemars::JsonSchema))]
pub(super) struct Served {
    pub(super) ttft_mean_ms: Option<f64>,
    pub(super) ttft_p90_ms: Option<f64>,
    pub(super) e2e_mean_ms: Option<f64>,
    pub(super) prefill_tokens: u64,
    pub(super) preemptions: u64,
}

impl Served {
    pub(super) fn of(replay: &Replay, metrics: &Metrics) -> Self {
        Served {
            ttft_mean_ms: metrics.run.ttft_ms.map(|of| of.mean),
            ttft_p90_ms: metrics.run.ttft_ms.map(|of| of.p90),
            e2e_mean_ms: metrics.run.e2e_ms.map(|of| of.mean),
            prefill_tokens: replay.counters.prefill_tokens,
            preemptions: replay.counters.preemptions,
        }
    }
}

/// Copies of a direction in words.
pub(super) fn copies(name: &str, of: &TransferCounters) -> String {
    format!("{} {name} of {} GiB", count(of.count), number(Some(of.bytes as f64 / GIB)))
}

/// The lengths from which a load or a read pays, in words.
pub(super) fn pays(name: &str, break_even: Option<&Comparison>, longest: &Comparison) -> String {
    let both = |of: &Comparison| {
        format!("{} ms to {name}, {} ms to compute", number(Some(of.load_ms)), number(Some(of.saved_ms)))
    };
    let at_most = format!("{} tokens: {}", count(u64::from(longest.tokens)), both(longest));
    match break_even {
        Some(of) => format!("a {name} pays from {} tokens on ({}); {at_most}", count(u64::from(of.tokens)), both(of)),
        None => format!("a {name} never pays: computing a prefix is faster at every length; {at_most}"),
    }
}

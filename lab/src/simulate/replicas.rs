//! Replicas of a server behind a router: what each of them got and did.

use ridgepoint_replay::{ClusterReplay, Distribution, Outcome, RequestRecord, Router, RouterKind};
use serde::Serialize;

/// How many replicas share the load, and behind which router.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Replicas {
    /// Their number, at least 1.
    pub count: u32,
    /// The router.
    pub router: Router,
}

/// The replicas of a replay. JSON keys are stable.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ReplicasReport {
    /// How requests were spread.
    pub router: RouterKind,
    /// Each replica, in order.
    pub replicas: Vec<ReplicaReport>,
    /// Most requests of a replica over the mean; `None` without requests.
    pub most_over_mean: Option<f64>,
}

/// One replica.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ReplicaReport {
    /// Requests that it was sent.
    pub requests: u64,
    /// Those that finished.
    pub finished: u64,
    /// Times to first token of these, ms.
    pub ttft_ms: Option<Distribution>,
    /// Their end-to-end latencies, ms.
    pub e2e_ms: Option<Distribution>,
    /// Share of their prompt tokens that it found in its prefix cache.
    pub cached_share: Option<f64>,
    /// Share of the time until the last request of all ended in which its GPUs worked.
    pub gpu_busy_share: Option<f64>,
    /// Most requests that waited.
    pub max_waiting: u32,
    /// Preemptions.
    pub preemptions: u64,
}

impl ReplicasReport {
    /// The report of a replay.
    pub fn of(router: RouterKind, replay: &ClusterReplay) -> Self {
        let mut records: Vec<Vec<&RequestRecord>> = vec![Vec::new(); replay.replicas.len()];
        for (record, replica) in replay.all.records.iter().zip(&replay.replica_of) {
            if let Some(of) = records.get_mut(*replica as usize) {
                of.push(record);
            }
        }
        let end_ns = replay.all.counters.end_ns;
        let replica = |(counters, records): (&ridgepoint_replay::EngineCounters, &Vec<&RequestRecord>)| {
            let finished = records.iter().filter(|record| record.outcome == Outcome::Finished);
            let times = |ms: fn(&RequestRecord) -> f64| Distribution::of(finished.clone().map(|of| ms(of)).collect());
            let sum = |tokens: fn(&RequestRecord) -> u32| finished.clone().map(|of| f64::from(tokens(of))).sum::<f64>();
            let prompts = sum(|of| of.num_prompt_tokens);
            ReplicaReport {
                requests: records.len() as u64,
                finished: finished.clone().count() as u64,
                ttft_ms: times(RequestRecord::ttft_ms),
                e2e_ms: times(RequestRecord::e2e_ms),
                cached_share: (prompts > 0.0).then(|| sum(|of| of.num_cached_tokens) / prompts),
                gpu_busy_share: (end_ns > 0).then(|| counters.busy_ns as f64 / end_ns as f64),
                max_waiting: counters.max_waiting,
                preemptions: counters.preemptions,
            }
        };
        let replicas: Vec<ReplicaReport> = replay.replicas.iter().zip(&records).map(replica).collect();
        let most = replicas.iter().map(|of| of.requests).max().unwrap_or(0) as f64;
        let all: u64 = replicas.iter().map(|of| of.requests).sum();
        let most_over_mean = (all > 0).then(|| most * replicas.len() as f64 / all as f64);
        ReplicasReport { router, replicas, most_over_mean }
    }
}

//! Replicas of a server behind a router, and its data-parallel ranks: what each of them got and did.

use ridgepoint::{Engine, Model};
use ridgepoint_replay::workload::Workload;
use ridgepoint_replay::{
    Cluster, ClusterReplay, Distribution, Lockstep, NoisySteps, Observer, Outcome, Ranks, RequestRecord, Router,
    RouterKind,
};
use serde::Serialize;

use super::report::Server;

/// How many replicas share the load, behind which router, and the data-parallel ranks of each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Replicas {
    /// Their number, at least 1.
    pub count: u32,
    /// The router.
    pub router: Router,
    /// Their data-parallel ranks; `None` if a replica is replayed as one engine.
    pub ranks: Option<RanksOfServer>,
}

impl Replicas {
    /// The number of engines.
    pub fn num_engines(&self) -> u32 {
        self.count.saturating_mul(self.ranks.map_or(1, |of| of.count))
    }
}

/// The data-parallel ranks of a server. JSON keys are stable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RanksOfServer {
    /// Their number.
    #[serde(rename = "per_replica")]
    pub count: u32,
    /// How the engine spreads requests over them.
    pub router: RouterKind,
    /// Whether they run their steps together.
    #[serde(rename = "in_lockstep", serialize_with = "is_given")]
    #[cfg_attr(feature = "schema", schemars(with = "bool"))]
    pub lockstep: Option<Lockstep>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_given<S: serde::Serializer>(lockstep: &Option<Lockstep>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_bool(lockstep.is_some())
}

impl RanksOfServer {
    /// So many ranks under an engine's own balancing. Under vLLM and SGLang, those of a model with experts run in lockstep, under
    /// TensorRT-LLM those of any.
    pub fn of(count: u32, engine: &Engine, model: &Model) -> Self {
        let has_experts = model.layers.iter().any(|group| group.moe.is_some());
        let (router, lockstep) = if engine.is_vllm() {
            (RouterKind::VllmDp, has_experts.then(|| Lockstep::vllm(engine.vllm_version())))
        } else if engine.is_sglang() {
            (RouterKind::RoundRobin, has_experts.then_some(Lockstep::Steps))
        } else {
            (RouterKind::TrtllmAdp, Some(Lockstep::Steps))
        };
        RanksOfServer { count, router, lockstep }
    }

    /// What a replay of them takes for granted.
    pub(super) fn remark(&self) -> String {
        let RanksOfServer { count, lockstep, .. } = self;
        if lockstep.is_some() {
            format!(
                "{count} data-parallel ranks run in lockstep: a step lasts as long as the slowest rank's own would if all had its batch"
            )
        } else {
            format!(
                "{count} data-parallel ranks are engines of their own behind the server's balancing; none waits for another"
            )
        }
    }
}

/// The replicas of a replay. JSON keys are stable.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ReplicasReport {
    /// How requests were spread: over replicas, or over the data-parallel ranks of a single one.
    pub router: RouterKind,
    /// The data-parallel ranks of each replica, if these are replayed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ranks: Option<RanksOfServer>,
    /// Each replica, in order; of replicas with data-parallel ranks each rank, those of the first replica before those of the next.
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
    /// Share of the time until the last request of all ended in which its GPUs worked on steps with requests.
    pub gpu_busy_share: Option<f64>,
    /// Most requests that waited.
    pub max_waiting: u32,
    /// Preemptions.
    pub preemptions: u64,
    /// Steps that it ran without requests, because another rank had some.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dummy_steps: Option<u64>,
}

impl ReplicasReport {
    /// The report of a replay.
    pub fn of(of: &Replicas, replay: &ClusterReplay) -> Self {
        let lockstep = of.ranks.and_then(|ranks| ranks.lockstep);
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
                dummy_steps: lockstep.map(|_| counters.dummy_steps),
            }
        };
        let replicas: Vec<ReplicaReport> = replay.replicas.iter().zip(&records).map(replica).collect();
        let most = replicas.iter().map(|of| of.requests).max().unwrap_or(0) as f64;
        let all: u64 = replicas.iter().map(|of| of.requests).sum();
        let most_over_mean = (all > 0).then(|| most * replicas.len() as f64 / all as f64);
        let router = of.ranks.filter(|_| of.count == 1).map_or(of.router.kind, |ranks| ranks.router);
        ReplicasReport { router, ranks: of.ranks, replicas, most_over_mean }
    }
}

impl Server<'_> {
    /// Replays a load on replicas and their ranks, each with noise of its own.
    pub(super) fn cluster(
        &self,
        of: Replicas,
        workload: &mut dyn Workload,
        observers: &mut [&mut dyn Observer],
    ) -> ridgepoint::Result<ClusterReplay> {
        let noisy = |at: u32| {
            let seed = self.seed.wrapping_add(u64::from(at));
            self.noise_sigma.map(|sigma| NoisySteps::new(self.steady(), sigma, seed)).transpose()
        };
        let noisy: Vec<_> = (0..of.num_engines()).map(noisy).collect::<ridgepoint::Result<_>>()?;
        let timed = noisy.iter().map(|noisy| noisy.as_ref().map_or(self.steady(), |noisy| noisy));
        let engines = timed.map(|latency| (latency, &self.engine.config)).collect();
        let Some(ranks) = of.ranks else {
            return Cluster { replicas: engines, router: of.router }.replay(workload, observers);
        };
        let RanksOfServer { count: per_server, router: kind, lockstep } = ranks;
        let router = Router { kind, seed: self.seed };
        let ranks = Ranks { ranks: engines, per_server, lockstep, router, servers: of.router };
        ranks.replay(workload, observers)
    }
}

//! A load replayed on a server, and its report.

use ridgepoint::correction::CorrectionInfo;
use ridgepoint::coverage::{IntervalCoverage, LoadKind};
use ridgepoint::kv_capacity::KvCapacity;
use ridgepoint::latency::{CalibratedRoofline, FittedBlackBox, LatencyModel};
use ridgepoint::{Deployment, EfficiencyMode, Hardware, Model};
use ridgepoint_replay::server_config::ServedEngine;
use ridgepoint_replay::workload::Workload;
use ridgepoint_replay::{
    ColdSteps, EngineConfig, EngineCounters, HeldReport, HeldRequests, Intervals, KvMetrics, LoadState, Metrics,
    NoisySteps, Observer, Replay, Spread, SpreadSampler, StageMetrics, replay,
};
use serde::Serialize;

use super::offload::OffloadReport;
use super::pools::{Pools, PoolsReport};
use super::replicas::{Replicas, ReplicasReport};
use super::sessions::SessionReport;
use super::speculation::{SpeculationReport, widen};
use super::start::{ServerStart, StartReport};
use crate::served::of_another_server;

/// A server, and how its steps are timed.
pub struct Server<'a> {
    /// The model.
    pub model: &'a Model,
    /// The GPU.
    pub hardware: &'a Hardware,
    /// How the model is spread over GPUs.
    pub deployment: &'a Deployment,
    /// The engine.
    pub engine: &'a ServedEngine,
    /// The times of its steps.
    pub latency: &'a CalibratedRoofline,
    /// Times steps instead of `latency`.
    pub fitted: Option<&'a FittedBlackBox>,
    /// Noise of step times: standard deviation of the logarithm of each factor.
    pub noise_sigma: Option<f64>,
    /// Seed of the noise.
    pub seed: u64,
    /// The server's start; `None` if it is ready.
    pub cold: Option<&'a ServerStart>,
    /// Replicas of it that share the load; `None` for one server.
    pub replicas: Option<Replicas>,
    /// Pools that prefill and decode apart, of which it is a decode replica; `None` where each replica does both.
    pub pools: Option<Pools<'a>>,
}

/// A replayed load.
pub struct ReplayedLoad {
    /// Its records and counts.
    pub replay: Replay,
    /// The metrics of its clients.
    pub metrics: Metrics,
    /// The effect of the server's start on the requests, if it was not ready.
    pub held: Option<HeldReport>,
    /// What each replica did, if there are several.
    replicas: Option<ReplicasReport>,
    /// What each pool did, if prefill and decode are apart.
    pools: Option<PoolsReport>,
    /// Whether the server keeps up with the load, if that is long enough to show it.
    load_state: Option<LoadState>,
    /// How it sends its requests, if that shows.
    load_kind: Option<LoadKind>,
    /// Remarks on overload and refused requests.
    notes: Vec<String>,
    spread: Spread,
    /// A remark if many steps are beyond those that the correction was fitted on.
    extrapolated: Option<String>,
}

impl Server<'_> {
    /// The times of steps without noise and start.
    pub fn steady(&self) -> &dyn LatencyModel {
        self.fitted.map_or(self.latency, |fitted| &fitted.black_box)
    }

    /// Replays a load. `observers` watch the replay, of several replicas the first.
    ///
    /// # Errors
    /// Requests that cannot be, and times beyond the clock.
    pub fn replay(
        &self,
        workload: &mut dyn Workload,
        observers: &mut [&mut dyn Observer],
    ) -> ridgepoint::Result<ReplayedLoad> {
        let steady = self.steady();
        let noisy = self.noise_sigma.map(|sigma| NoisySteps::new(steady, sigma, self.seed)).transpose()?;
        let sampled = noisy.as_ref().map_or(steady, |noisy| noisy);
        let mut sampler = SpreadSampler::new(self.latency.steps());
        let mut watching: Vec<&mut dyn Observer> = vec![&mut sampler];
        for observer in observers {
            watching.push(&mut **observer);
        }
        let engine = &self.engine.config;
        let (mut replicas, mut pools) = (None, None);
        let (replay, trend, notes, held) = match self.cold {
            None => {
                let replay = match (self.pools, self.replicas) {
                    (Some(of), _) => {
                        let replayed = self.disaggregated(&of, workload, &mut watching)?;
                        pools = Some(PoolsReport::of(&of, (self.deployment, engine), &replayed));
                        replayed.all
                    }
                    (None, None) => replay(sampled, engine, workload, &mut watching)?,
                    (None, Some(of)) => {
                        let replayed = self.cluster(of, workload, &mut watching)?;
                        replicas = Some(ReplicasReport::of(&of, &replayed));
                        replayed.all
                    }
                };
                replay.check_clock()?;
                let trend = replay.queue_trend();
                let mut notes = replay.notes(engine, trend.as_ref());
                notes.extend(self.replicas.and_then(|of| of.ranks).map(|ranks| ranks.remark()));
                (replay, trend, notes, None)
            }
            Some(cold) => {
                let mut held = HeldRequests::new(workload, cold.start_ns(), cold.ready_ns());
                let starting = ColdSteps::new(sampled, cold.first_step_us());
                let mut replay = replay(&starting, engine, &mut held, &mut watching)?;
                replay.check_clock()?;
                // Whether the server keeps up is asked of the time in which it is there.
                let trend = replay.queue_trend();
                let notes = replay.notes(engine, trend.as_ref());
                let held = held.restore(&mut replay);
                (replay, trend, notes, Some(held))
            }
        };
        let metrics = Metrics::of(&replay);
        let load_state = trend.map(|trend| trend.state());
        let load_kind = trend.map(|trend| trend.load_kind());
        let (spread, extrapolated) = (sampler.spread(), sampler.extrapolated());
        Ok(ReplayedLoad { metrics, replay, held, replicas, pools, load_state, load_kind, notes, spread, extrapolated })
    }

    /// Whether all data-parallel ranks are replayed, not one for all.
    fn has_ranks(&self) -> bool {
        self.replicas.is_some_and(|of| of.ranks.is_some())
    }

    fn counters(&self, replay: &Replay) -> Counters {
        let pools = self.pools.map(|of| of.num_prefill + of.num_decode);
        let replicas = pools.or(self.replicas.map(|of| of.num_engines())).unwrap_or(1);
        let counters = Counters::new(replay.counters, &self.engine.config, replicas);
        // The pools' caches are of two sizes.
        Counters { peak_kv_share: counters.peak_kv_share.filter(|_| self.pools.is_none()), ..counters }
    }

    /// The report of a replayed load, with the warnings that are known so far.
    pub fn report(&self, load: &str, of: &ReplayedLoad, mut warnings: Vec<String>) -> Simulation {
        warnings.extend(of.notes.iter().cloned());
        warnings.extend(of.pools.as_ref().map(|of| of.note.clone()));
        warnings.extend(of.extrapolated.clone().filter(|_| self.fitted.is_none()));
        let correction = self.latency.steps().correction().filter(|_| self.fitted.is_none());
        let engine = self.latency.steps().engine();
        let coverage = IntervalCoverage::of(engine, &self.hardware.name, of.load_kind, correction.is_some());
        let correction = CorrectionInfo::of(correction);
        // Those of steps of both pools together are not known.
        let has_intervals = self.fitted.is_none() && self.pools.is_none();
        let mut intervals = has_intervals.then(|| Intervals::of(&of.spread, &coverage));
        if let (Some(intervals), Some(speculation)) = (&mut intervals, &self.engine.speculation) {
            widen(intervals, speculation);
            warnings.push(
                "how often intervals hold was found on servers that draft no tokens; here they are wider by the range of the acceptance"
                    .to_owned(),
            );
        }
        let mut latency_model = match (self.latency.steps().efficiency(), &correction.name) {
            (EfficiencyMode::Ideal, _) => "ideal roofline, with the default host overheads".to_owned(),
            (_, None) => "calibrated roofline without a correction, with the default host overheads".to_owned(),
            _ => format!("calibrated roofline with the correction {correction}, host overheads included"),
        };
        if let Some(fitted) = self.fitted {
            warnings.extend(of_another_server(fitted, self.model, self.hardware, self.deployment));
            latency_model =
                format!("black box by {}, fitted on {} steps of {}", fitted.method, fitted.rows, fitted.data);
        }
        if let Some(sigma) = self.noise_sigma {
            latency_model += &format!(", each step times a random factor of mean 1 (noise {sigma})");
        }
        Simulation {
            title: String::new(),
            kv_capacity: None,
            model: self.model.name.clone(),
            hardware: self.hardware.name.clone(),
            deployment: self.deployment.clone(),
            serving_engine: self.latency.steps().engine().to_string(),
            kv_blocks_from: if self.engine.blocks_are_given { GIVEN } else { "the memory equation" },
            load: load.to_owned(),
            latency_model,
            noise_sigma: self.noise_sigma,
            correction,
            intervals,
            interval_coverage: has_intervals.then_some(coverage),
            stages: of.metrics.run_and_stages().cloned().collect(),
            all_replicas: AllReplicas::of(self.deployment, &of.metrics.run).filter(|_| !self.has_ranks()),
            replicas: of.replicas.clone(),
            pools: of.pools.clone(),
            load_state: of.load_state,
            counters: self.counters(&of.replay),
            cold: None,
            sessions: None,
            kv_offload: None,
            kv_metrics: None,
            speculation: None,
            engine: self.engine.config.clone(),
            notes: Vec::new(),
            warnings,
        }
    }
}

/// The value of `kv_blocks_from` for a number of blocks that the user gives.
pub const GIVEN: &str = "given";

/// A replayed load. Its JSON keys are stable: keys are added, never renamed or dropped.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Simulation {
    /// The title of its text.
    #[serde(skip)]
    pub title: String,
    /// How GPU memory is divided, if it is asked for. The command's alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(skip))]
    pub kv_capacity: Option<KvCapacity>,
    /// The model's own name.
    pub model: String,
    /// The GPU's own name.
    pub hardware: String,
    /// How the model is spread over GPUs.
    pub deployment: Deployment,
    /// The engine and version whose kernels and sampler are predicted; `engine` is its scheduler.
    pub serving_engine: String,
    /// The engine's scheduler and KV cache.
    pub engine: EngineConfig,
    /// Where the number of KV blocks is from.
    pub kv_blocks_from: &'static str,
    /// The load in words.
    pub load: String,
    /// The times of steps in words.
    pub latency_model: String,
    /// Noise of step times: standard deviation of the logarithm of each factor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub noise_sigma: Option<f64>,
    /// The correction of step times.
    pub correction: CorrectionInfo,
    /// `None` for a latency model of a file.
    pub intervals: Option<Intervals>,
    /// How often such intervals held on public runs; `None` for a latency model of a file.
    pub interval_coverage: Option<IntervalCoverage>,
    /// The whole run, then its stages.
    pub stages: Vec<StageMetrics>,
    /// Rates of all data-parallel ranks, if one of several is replayed for all; the stages are those of that one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub all_replicas: Option<AllReplicas>,
    /// Each replica, or each data-parallel rank, if several share the load; the stages and counters are those of all of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<ReplicasReport>,
    /// The pools, if prefill and decode are apart; the deployment and the engine are those of a decode replica.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pools: Option<PoolsReport>,
    /// Whether the server keeps up with the load, by the trend of its queue; `None` for a load that is too short to show it.
    pub load_state: Option<LoadState>,
    /// Counts of the engine.
    pub counters: Counters,
    /// The start of the server, if it was not ready. The command's alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(skip))]
    pub cold: Option<StartReport>,
    /// The first and the later turns of sessions, if the load has sessions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sessions: Option<SessionReport>,
    /// The host's tier of KV blocks, if the server has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kv_offload: Option<OffloadReport>,
    /// What the KV cache itself costs and brings, if it is asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kv_metrics: Option<KvMetrics>,
    /// Speculative decoding, if the server drafts tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub speculation: Option<SpeculationReport>,
    /// Always empty: remarks are warnings.
    pub notes: Vec<String>,
    /// Remarks.
    pub warnings: Vec<String>,
}

/// Rates of all replicas of a data-parallel deployment, each with its share of the load.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AllReplicas {
    /// Requests per second.
    pub requests_per_s: Option<f64>,
    /// Output tokens per second.
    pub output_tokens_per_s: Option<f64>,
    /// Prompt and output tokens per second.
    pub total_tokens_per_s: Option<f64>,
}

impl AllReplicas {
    /// The rates of the whole run of one replica, times their number.
    fn of(deployment: &Deployment, one: &StageMetrics) -> Option<Self> {
        let replicas = f64::from(deployment.data_parallel_size);
        let all = |rate: Option<f64>| rate.map(|rate| rate * replicas);
        (replicas > 1.0).then(|| AllReplicas {
            requests_per_s: all(one.requests_per_s),
            output_tokens_per_s: all(one.output_tokens_per_s),
            total_tokens_per_s: all(one.total_tokens_per_s),
        })
    }
}

/// The engine's counts with shares and means of its work; `None` where there is nothing to divide by.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Counters {
    /// The counts.
    #[serde(flatten)]
    pub counted: EngineCounters,
    /// Tokens per step.
    pub mean_step_tokens: Option<f64>,
    /// Share of the scheduled tokens that belong to prompts or are computed again.
    pub prefill_token_share: Option<f64>,
    /// Share of the prompt tokens that the prefix cache had; `None` with the cache off.
    pub cache_hit_share: Option<f64>,
    /// Share of the time until the last request ended in which the GPUs worked.
    pub gpu_busy_share: Option<f64>,
    /// Most KV blocks in use over those that requests can have.
    pub peak_kv_share: Option<f64>,
}

impl Simulation {
    /// Adds warnings.
    pub fn warn(&mut self, warnings: impl IntoIterator<Item = String>) {
        self.warnings.extend(warnings);
    }
}

impl Counters {
    /// Those of `replicas` servers together.
    fn new(counted: EngineCounters, engine: &EngineConfig, replicas: u32) -> Self {
        let of = |part: u64, whole: u64| (whole > 0).then(|| part as f64 / whole as f64);
        let looked_up = counted.cached_tokens.saturating_add(counted.prefill_tokens);
        Counters {
            mean_step_tokens: of(counted.scheduled_tokens, counted.steps),
            prefill_token_share: of(counted.prefill_tokens, counted.scheduled_tokens),
            cache_hit_share: of(counted.cached_tokens, looked_up).filter(|_| engine.scheduler.enable_prefix_caching),
            gpu_busy_share: of(counted.busy_ns, counted.end_ns.saturating_mul(u64::from(replicas))),
            peak_kv_share: of(u64::from(counted.max_blocks_in_use), u64::from(engine.usable_blocks())),
            counted,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_follow_from_the_counts() {
        let mut engine = EngineConfig::new(&Deployment::default(), 4096, 1001);
        let counters = EngineCounters {
            steps: 22,
            scheduled_tokens: 770,
            prefill_tokens: 750,
            cached_tokens: 250,
            max_blocks_in_use: 64,
            busy_ns: 310,
            end_ns: 1240,
            ..EngineCounters::default()
        };
        let shares = Counters::new(counters, &engine, 1);
        assert_eq!((shares.mean_step_tokens, shares.prefill_token_share), (Some(35.0), Some(750.0 / 770.0)));
        // 250 of 1,000 prompt tokens; 64 of 1,000 usable blocks; 310 of 1,240 ns.
        assert_eq!(
            (shares.cache_hit_share, shares.peak_kv_share, shares.gpu_busy_share),
            (Some(0.25), Some(0.064), Some(0.25))
        );
        engine.scheduler.enable_prefix_caching = false;
        assert_eq!(Counters::new(counters, &engine, 1).cache_hit_share, None);
        let none = Counters::new(EngineCounters::default(), &engine, 1);
        assert_eq!((none.mean_step_tokens, none.gpu_busy_share), (None, None));
    }
}

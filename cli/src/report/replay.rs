//! What `simulate` has to say, for the table and the JSON alike: its inputs, and what follows from the engine's counts.

use ridgepoint::internals::correction::Used;
use ridgepoint::replay::{EngineConfig, EngineCounters, Metrics, Spread};
use ridgepoint::{Deployment, Hardware, Model};
use serde::Serialize;

use super::text::{count, plural};

/// A replayed workload, with what it was replayed on.
pub struct SimulationReport<'a> {
    /// The model.
    pub model: &'a Model,
    /// The GPU.
    pub hardware: &'a Hardware,
    /// How it is served.
    pub deployment: &'a Deployment,
    /// The scheduler's limits.
    pub engine: &'a EngineConfig,
    /// How the number of KV blocks was got, in words: the memory equation's terms, or the flag or key that gave it.
    pub kv_blocks_from: &'a str,
    /// The load in words.
    pub load: &'a str,
    /// What step times and delays come from, in words.
    pub latency_model: &'a str,
    /// Which correction the times were predicted with.
    pub correction: Used,
    /// What clients saw.
    pub metrics: &'a Metrics,
    /// How far that may be off.
    pub spread: Spread,
    /// The engine's work.
    pub counters: &'a EngineCounters,
    /// Remarks.
    pub notes: &'a [String],
    /// What may make the figures wrong.
    pub warnings: &'a [String],
}

/// What follows from the engine's counts; `None` where there is nothing to divide by.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct EngineShares {
    /// Tokens of a step.
    pub mean_step_tokens: Option<f64>,
    /// Share of the scheduled tokens that are prompt tokens, or computed again.
    pub prefill_token_share: Option<f64>,
    /// Share of the prompt tokens that the scheduler asked the cache for which it had; `None` with the cache off.
    pub cache_hit_share: Option<f64>,
    /// Share of the time until the last request was over in which the GPUs worked.
    pub gpu_busy_share: Option<f64>,
    /// Most KV blocks in use over those that requests can have.
    pub peak_kv_share: Option<f64>,
}

impl SimulationReport<'_> {
    /// Shares and means of the engine's work.
    pub fn shares(&self) -> EngineShares {
        let counters = self.counters;
        let of = |part: u64, whole: u64| (whole > 0).then(|| part as f64 / whole as f64);
        let asked_for = counters.cached_tokens.saturating_add(counters.prefill_tokens);
        EngineShares {
            mean_step_tokens: of(counters.scheduled_tokens, counters.steps),
            prefill_token_share: of(counters.prefill_tokens, counters.scheduled_tokens),
            cache_hit_share: of(counters.cached_tokens, asked_for).filter(|_| self.engine.enable_prefix_caching),
            gpu_busy_share: of(counters.busy_ns, counters.end_ns),
            peak_kv_share: of(u64::from(counters.max_blocks_in_use), u64::from(self.engine.usable_blocks())),
        }
    }

    /// The warnings, and those that the metrics themselves give rise to.
    pub fn all_warnings(&self) -> Vec<String> {
        let run = &self.metrics.run;
        let mut warnings = self.warnings.to_vec();
        if run.rejected > 0 {
            warnings.push(format!(
                "{} of {} refused: prompt and output are longer than max_model_len = {}; no figure but the counts has them",
                count(run.rejected),
                plural(run.requests, "request"),
                self.engine.max_model_len
            ));
        }
        if run.unfinished > 0 {
            warnings.push(format!(
                "{} of {} not finished when the replay was stopped; TTFT, TPOT, E2E and throughput leave them out",
                count(run.unfinished),
                plural(run.requests, "request")
            ));
        }
        if run.finished == 0 {
            warnings.push("no request finished: there is nothing to measure".to_owned());
        }
        warnings
    }
}

#[cfg(test)]
pub mod fixtures {
    use ridgepoint::internals::correction::Scatter;
    use ridgepoint::replay::{Outcome, Replay, RequestRecord};

    use super::*;

    /// What a report borrows.
    pub struct Owned {
        model: Model,
        hardware: Hardware,
        deployment: Deployment,
        pub engine: EngineConfig,
        metrics: Metrics,
        counters: EngineCounters,
        notes: Vec<String>,
        warnings: Vec<String>,
    }

    impl Owned {
        pub fn report(&self) -> SimulationReport<'_> {
            SimulationReport {
                model: &self.model,
                hardware: &self.hardware,
                deployment: &self.deployment,
                engine: &self.engine,
                kv_blocks_from: "--num-gpu-blocks-override",
                load: "3 requests from requests.csv",
                latency_model: "fixed",
                correction: Used::of(None),
                metrics: &self.metrics,
                spread: Spread { scatter: Some(Scatter { step: 0.04, ttft: 0.1 }), ..Spread::default() },
                counters: &self.counters,
                notes: &self.notes,
                warnings: &self.warnings,
            }
        }
    }

    fn owned(records: Vec<RequestRecord>, counters: EngineCounters) -> Owned {
        let deployment = Deployment::default();
        Owned {
            model: Model::find("llama-3.1-8b").unwrap(),
            hardware: Hardware::find("h100").unwrap(),
            engine: EngineConfig::new(&deployment, 4096, 1001),
            deployment,
            metrics: Metrics::of(&Replay { records, inter_token_ns: Vec::new(), counters }),
            counters,
            notes: vec!["a note".to_owned()],
            warnings: vec!["a warning".to_owned()],
        }
    }

    /// No request, no step.
    pub fn empty() -> Owned {
        owned(Vec::new(), EngineCounters::default())
    }

    /// Two finished requests in two stages and a refused one. Sent at 0 and 1 s, TTFT 20 and 40 ms, E2E 120 and 240 ms, 11 tokens
    /// each: TPOT 10 and 20 ms.
    pub fn three() -> Owned {
        let ms = 1_000_000;
        let record = |stage, outcome, arrival_ms: u64, ttft_ms: u64, e2e_ms: u64| RequestRecord {
            stage,
            outcome,
            num_prompt_tokens: 500,
            num_output_tokens: 11,
            num_cached_tokens: 0,
            num_preemptions: 0,
            arrival_ns: arrival_ms * ms,
            scheduled_ns: arrival_ms * ms,
            first_token_ns: (arrival_ms + ttft_ms) * ms,
            finish_ns: (arrival_ms + e2e_ms) * ms,
        };
        let records = vec![
            record(0, Outcome::Finished, 0, 20, 120),
            record(1, Outcome::Finished, 1000, 40, 240),
            record(1, Outcome::Rejected, 1100, 0, 1),
        ];
        let counters = EngineCounters {
            steps: 22,
            scheduled_tokens: 770,
            prefill_tokens: 750,
            recomputed_tokens: 0,
            cached_tokens: 250,
            preemptions: 1,
            max_running: 1,
            max_waiting: 2,
            max_blocks_in_use: 64,
            busy_ns: 310 * ms,
            end_ns: 1240 * ms,
        };
        owned(records, counters)
    }
}

#[cfg(test)]
mod tests {
    use approx::assert_relative_eq;

    use super::*;

    #[test]
    fn shares_follow_from_the_counts() {
        let mut owned = fixtures::three();
        let shares = owned.report().shares();
        assert_relative_eq!(shares.mean_step_tokens.unwrap(), 35.0);
        assert_relative_eq!(shares.prefill_token_share.unwrap(), 750.0 / 770.0);
        // 250 of 1,000 tokens that were asked for; 64 of 1,000 blocks, the engine's own left out; 310 of 1,240 ms.
        assert_relative_eq!(shares.cache_hit_share.unwrap(), 0.25);
        assert_relative_eq!(shares.peak_kv_share.unwrap(), 0.064);
        assert_relative_eq!(shares.gpu_busy_share.unwrap(), 0.25);
        owned.engine.enable_prefix_caching = false;
        assert_eq!(owned.report().shares().cache_hit_share, None);
    }

    #[test]
    fn nothing_run_has_no_shares() {
        let mut owned = fixtures::empty();
        owned.engine.num_gpu_blocks = 1;
        let shares = owned.report().shares();
        let all = [shares.mean_step_tokens, shares.prefill_token_share, shares.cache_hit_share];
        assert_eq!((all, shares.gpu_busy_share, shares.peak_kv_share), ([None; 3], None, None));
        assert_eq!(owned.report().all_warnings(), ["a warning", "no request finished: there is nothing to measure"]);
    }

    #[test]
    fn refused_requests_are_warned_of() {
        let warnings = fixtures::three().report().all_warnings();
        assert_eq!(warnings.len(), 2, "{warnings:?}");
        assert!(warnings[1].starts_with("1 of 3 requests refused") && warnings[1].contains("4096"), "{warnings:?}");
    }
}

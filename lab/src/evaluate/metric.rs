//! The metrics that predictions are judged by, and their values in a replay.

use std::fmt;
use std::str::FromStr;

use serde::de::IntoDeserializer;
use serde::{Deserialize, Serialize, Serializer};

use ridgepoint_replay::{Distribution, Metrics};

/// A time of one request, or of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Latency {
    /// From sending to the last token.
    E2e,
    /// From sending to the first token.
    Ttft,
    /// (E2E − TTFT) / output tokens, as published runs of inference-perf have it in `measured.csv`. Its percentiles are over requests too.
    Itl,
    /// (E2E − TTFT) / (output tokens − 1), as vLLM's benchmark has it.
    Tpot,
    /// In the scheduler's waiting queue.
    #[serde(rename = "queue_wait")]
    QueueWait,
    /// One step of the engine.
    Step,
}

/// A statistic of the times of all requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Statistic {
    /// Arithmetic mean.
    Mean,
    /// Median.
    P50,
    /// 90th percentile.
    P90,
    /// 99th percentile.
    P99,
}

impl Statistic {
    /// Every statistic.
    pub const ALL: [Statistic; 4] = [Statistic::Mean, Statistic::P50, Statistic::P90, Statistic::P99];

    /// Its value.
    pub fn of(self, distribution: &Distribution) -> f64 {
        match self {
            Statistic::Mean => distribution.mean,
            Statistic::P50 => distribution.p50,
            Statistic::P90 => distribution.p90,
            Statistic::P99 => distribution.p99,
        }
    }
}

/// A metric. Its name in `measured.csv` and in the output is, for example, `ttft_p90`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Metric {
    /// The time.
    pub latency: Latency,
    /// The statistic.
    pub statistic: Statistic,
}

impl Metric {
    /// Mean time from sending to the last token.
    pub const E2E_MEAN: Metric = Metric { latency: Latency::E2e, statistic: Statistic::Mean };
    /// Mean time to first token.
    pub const TTFT_MEAN: Metric = Metric { latency: Latency::Ttft, statistic: Statistic::Mean };
    /// Mean time between tokens, by output tokens.
    pub const ITL_MEAN: Metric = Metric { latency: Latency::Itl, statistic: Statistic::Mean };
    /// Mean time per output token after the first.
    pub const TPOT_MEAN: Metric = Metric { latency: Latency::Tpot, statistic: Statistic::Mean };
    /// Mean time of a step.
    pub const STEP_MEAN: Metric = Metric { latency: Latency::Step, statistic: Statistic::Mean };
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.latency.serialize(&mut *f)?;
        f.write_str("_")?;
        self.statistic.serialize(f)
    }
}

impl FromStr for Metric {
    type Err = serde::de::value::Error;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let (latency, statistic) = name.rsplit_once('_').unwrap_or((name, ""));
        Ok(Metric {
            latency: Latency::deserialize(latency.into_deserializer())?,
            statistic: Statistic::deserialize(statistic.into_deserializer())?,
        })
    }
}

impl Serialize for Metric {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// The value of a metric over the finished requests of a stage, or of the whole run, ms; `None` if no request has it.
pub fn predicted_ms(metrics: &Metrics, stage: Option<u32>, metric: Metric) -> Option<f64> {
    let of = metrics.run_and_stages().find(|of| of.stage == stage)?;
    let distribution = match metric.latency {
        Latency::E2e => of.e2e_ms,
        Latency::Ttft => of.ttft_ms,
        Latency::Itl => of.itl_per_output_token_ms,
        Latency::Tpot => of.tpot_ms,
        Latency::QueueWait | Latency::Step => None,
    }?;
    Some(metric.statistic.of(&distribution))
}

#[cfg(test)]
mod tests {
    use super::*;

    use ridgepoint_replay::{Outcome, Replay, RequestRecord};

    fn metrics(requests: &[(u32, Outcome, u64, u64)]) -> Metrics {
        let record = |(stage, outcome, ttft_ms, e2e_ms): &(u32, Outcome, u64, u64)| RequestRecord {
            stage: *stage,
            turn: 0,
            outcome: *outcome,
            num_prompt_tokens: 10,
            num_output_tokens: 5,
            num_cached_tokens: 0,
            num_preemptions: 0,
            num_loaded_tokens: 0,
            num_disk_tokens: 0,
            load_ns: 0,
            arrival_ns: 7_000_000,
            queued_ns: 0,
            scheduled_ns: 7_000_000,
            first_token_ns: (7 + ttft_ms) * 1_000_000,
            finish_ns: (7 + e2e_ms) * 1_000_000,
        };
        let records = requests.iter().map(record).collect();
        Metrics::of(&Replay { records, ..Replay::default() })
    }

    fn of(name: &str) -> Metric {
        name.parse().expect("a metric")
    }

    #[test]
    fn names_go_there_and_back() {
        for latency in ["e2e", "ttft", "itl", "tpot", "queue_wait", "step"] {
            for statistic in ["mean", "p50", "p90", "p99"] {
                let name = format!("{latency}_{statistic}");
                assert_eq!(of(&name).to_string(), name);
            }
        }
        for name in ["e2e", "e2e_p95", "E2E_mean", "latency_mean", "ttft_mean_ms", ""] {
            assert!(name.parse::<Metric>().is_err(), "{name}");
        }
    }

    #[test]
    fn each_name_is_its_own_figure() {
        let metrics = metrics(&[
            (0, Outcome::Finished, 20, 120),
            (0, Outcome::Rejected, 0, 0),
            (1, Outcome::Finished, 40, 240),
            (1, Outcome::Unfinished, 0, 0),
        ]);
        assert_eq!(predicted_ms(&metrics, None, of("e2e_mean")), Some(180.0));
        assert_eq!(predicted_ms(&metrics, Some(0), of("ttft_mean")), Some(20.0));
        // 100 ms over 5 tokens, 200 ms over 5; the first token is not left out. TPOT leaves it out.
        assert_eq!(predicted_ms(&metrics, None, of("itl_mean")), Some(30.0));
        assert_eq!(predicted_ms(&metrics, Some(1), of("tpot_mean")), Some(50.0));
        // Ranks 0 and 1: 20 + 0.9 × 20 and 20 + 0.99 × 20.
        assert_eq!(predicted_ms(&metrics, None, of("ttft_p50")), Some(30.0));
        let near = |name: &str, expected: f64| {
            let found = predicted_ms(&metrics, None, of(name)).expect("a figure");
            assert!((found - expected).abs() < 1e-9, "{name} {found}");
        };
        near("ttft_p90", 38.0);
        near("ttft_p99", 39.8);
        assert_eq!(predicted_ms(&metrics, Some(2), of("e2e_mean")), None);
    }
}

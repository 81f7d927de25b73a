//! The JSON of `simulate`. Its keys are stable: keys are added, never renamed or dropped.

use ridgepoint::Deployment;
use ridgepoint::internals::correction::Used;
use ridgepoint::replay::{EngineConfig, EngineCounters, Intervals, StageMetrics};
use serde::Serialize;

use super::replay::{EngineShares, SimulationReport};

/// A replayed workload as JSON.
#[derive(Serialize)]
pub struct SimulationJson<'a> {
    model: &'a str,
    hardware: &'a str,
    deployment: &'a Deployment,
    engine: &'a EngineConfig,
    kv_blocks_from: &'a str,
    load: &'a str,
    latency_model: &'a str,
    correction: Used,
    intervals: Intervals,
    /// The whole run as stage −1, then each stage.
    stages: Vec<&'a StageMetrics>,
    counters: Counters<'a>,
    notes: &'a [String],
    warnings: Vec<String>,
}

#[derive(Serialize)]
struct Counters<'a> {
    #[serde(flatten)]
    counted: &'a EngineCounters,
    #[serde(flatten)]
    shares: EngineShares,
}

impl<'a> SimulationJson<'a> {
    /// The report, laid out.
    pub fn new(report: &SimulationReport<'a>) -> Self {
        SimulationJson {
            model: report.model.name(),
            hardware: report.hardware.name(),
            deployment: report.deployment,
            engine: report.engine,
            kv_blocks_from: report.kv_blocks_from,
            load: report.load,
            latency_model: report.latency_model,
            correction: report.correction.clone(),
            intervals: Intervals::from(&report.spread),
            stages: report.metrics.run_and_stages().collect(),
            counters: Counters { counted: report.counters, shares: report.shares() },
            notes: report.notes,
            warnings: report.all_warnings(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::replay::fixtures::{empty, three};
    use super::*;

    fn keys(value: &Value) -> Vec<&str> {
        value.as_object().map(|object| object.keys().map(String::as_str).collect()).unwrap_or_default()
    }

    #[test]
    fn keys_and_units_are_these() {
        let json = serde_json::to_value(SimulationJson::new(&three().report())).unwrap();
        assert_eq!(
            keys(&json),
            [
                "correction",
                "counters",
                "deployment",
                "engine",
                "hardware",
                "intervals",
                "kv_blocks_from",
                "latency_model",
                "load",
                "model",
                "notes",
                "stages",
                "warnings",
            ]
        );
        let intervals = &json["intervals"];
        assert_eq!(keys(intervals), ["e2e", "itl", "tpot", "ttft"]);
        assert_eq!(keys(&intervals["ttft"]), ["lower_factor", "upper_factor"]);
        let upper = |metric: &str| intervals[metric]["upper_factor"].as_f64().unwrap();
        assert!(
            (upper("ttft").ln() - 0.1645).abs() < 1e-12 && (upper("e2e").ln() - 0.0658).abs() < 1e-12,
            "{intervals}"
        );
        let run = &json["stages"][0];
        assert_eq!((&run["stage"], &json["stages"][2]["stage"]), (&json!(-1), &json!(1)));
        assert_eq!(
            keys(run),
            [
                "duration_s",
                "e2e_ms",
                "finished",
                "input_tokens",
                "itl_ms",
                "itl_per_output_token_ms",
                "output_tokens",
                "output_tokens_per_s",
                "queued_ms",
                "rejected",
                "requests",
                "requests_per_s",
                "stage",
                "total_tokens_per_s",
                "tpot_ms",
                "ttft_ms",
                "unfinished",
            ]
        );
        assert_eq!(keys(&run["ttft_ms"]), ["count", "max", "mean", "min", "p50", "p90", "p95", "p99", "std"]);
        assert_eq!((&run["ttft_ms"]["mean"], &run["tpot_ms"]["p50"]), (&json!(30.0), &json!(15.0)));
        let counters = &json["counters"];
        assert_eq!((&counters["steps"], &counters["cache_hit_share"]), (&json!(22), &json!(0.25)));
        assert_eq!(json["engine"]["num_gpu_blocks"], 1001);
    }

    #[test]
    fn nothing_is_null() {
        let json = serde_json::to_value(SimulationJson::new(&empty().report())).unwrap();
        assert_eq!(json["stages"].as_array().unwrap().len(), 1);
        assert_eq!((&json["stages"][0]["ttft_ms"], &json["counters"]["gpu_busy_share"]), (&Value::Null, &Value::Null));
        assert_eq!(json["stages"][0]["requests"], 0);
    }
}

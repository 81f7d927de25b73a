//! Latency and throughput that clients see, for the whole run and by stage, as serving benchmarks define them.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use ridgepoint::units::{NS_PER_MS, ns_to_ms, ns_to_s};
use serde::{Serialize, Serializer};

use super::distribution::Distribution;
use super::record::{Outcome, Replay, RequestRecord};

/// Latency and throughput of a replay, as its clients see them.
///
/// The definitions are those of vLLM 0.16.0's `vllm bench serve` (`vllm/benchmarks/serve.py`) unless a field says otherwise.
/// The order of the records does not matter, to the last bit.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Metrics {
    /// The whole run.
    pub run: StageMetrics,
    /// Each stage that has a request, in ascending order.
    pub stages: Vec<StageMetrics>,
}

/// Latency and throughput of one stage or of the whole run. All fields but the request counts describe finished requests,
/// and are `None` if there are none.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StageMetrics {
    /// The stage; `None` for the whole run, which is serialised as −1.
    #[serde(serialize_with = "stage_number")]
    #[cfg_attr(feature = "schema", schemars(with = "i64"))]
    pub stage: Option<u32>,
    /// Requests that were sent.
    pub requests: u64,
    /// Requests whose client has every token.
    pub finished: u64,
    /// Requests that were rejected.
    pub rejected: u64,
    /// Requests that were waiting or running when the replay stopped.
    pub unfinished: u64,
    /// Prompt tokens.
    pub input_tokens: u64,
    /// Generated tokens.
    pub output_tokens: u64,
    /// Time from the first arrival to the last finish, s.
    pub duration_s: Option<f64>,
    /// Finished requests per second.
    pub requests_per_s: Option<f64>,
    /// Generated tokens per second.
    pub output_tokens_per_s: Option<f64>,
    /// Prompt and generated tokens per second.
    pub total_tokens_per_s: Option<f64>,
    /// Time to first token (TTFT): from sending to the first token, ms.
    pub ttft_ms: Option<Distribution>,
    /// Time per output token (TPOT), ms: (E2E − TTFT) / (output tokens − 1), one value per request with more than one token.
    pub tpot_ms: Option<Distribution>,
    /// Inter-token latency (ITL), ms: one value per gap between two tokens of a request. The mean is exact: the time between
    /// first and last tokens over the number of gaps, which equals (mean E2E − mean TTFT) / (mean output tokens − 1). The
    /// other figures come from histograms with three significant digits and include gaps of unfinished requests.
    pub itl_ms: Option<Distribution>,
    /// (E2E − TTFT) / output tokens, ms: one value per request. Unlike [`tpot_ms`](Self::tpot_ms), it counts the first token
    /// in the divisor and includes requests of one token as 0. Unlike [`itl_ms`](Self::itl_ms), all requests weigh the same.
    pub itl_per_output_token_ms: Option<Distribution>,
    /// End-to-end latency (E2E): from sending to the last token, ms.
    pub e2e_ms: Option<Distribution>,
    /// Time from sending until the engine first scheduled the request, ms.
    pub queued_ms: Option<Distribution>,
    /// Time that the request waited for KV blocks from the host's tier, ms; 0 for a request that loaded none. `None` without a tier. The
    /// wait before the first scheduling is part of [`queued_ms`](Self::queued_ms), a wait after a preemption is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kv_load_ms: Option<Distribution>,
}

impl Metrics {
    /// The metrics of a replay.
    pub fn of(replay: &Replay) -> Self {
        let mut by_stage: BTreeMap<u32, Vec<&RequestRecord>> = BTreeMap::new();
        for record in &replay.records {
            by_stage.entry(record.stage).or_default().push(record);
        }
        let stages = by_stage.into_iter().map(|(stage, records)| {
            StageMetrics::of(Some(stage), &records, replay.inter_token_ns.get(stage as usize), replay)
        });
        let all: Vec<&RequestRecord> = replay.records.iter().collect();
        Metrics { stages: stages.collect(), run: StageMetrics::of(None, &all, &replay.inter_token_ns, replay) }
    }

    /// The whole run, then its stages.
    pub fn run_and_stages(&self) -> impl Iterator<Item = &StageMetrics> {
        std::iter::once(&self.run).chain(&self.stages)
    }
}

impl StageMetrics {
    fn of<'a>(
        stage: Option<u32>,
        records: &[&RequestRecord],
        gaps: impl IntoIterator<Item = &'a Histogram<u64>>,
        replay: &Replay,
    ) -> Self {
        let has_tier = replay.offload.is_some();
        let gaps: Vec<&Histogram<u64>> = gaps.into_iter().collect();
        // Tokens that come together have one gap.
        let together = replay.tokens_come_together;
        let num_gaps = together.then(|| gaps.iter().map(|of| of.len()).sum());
        let number = |outcome| records.iter().filter(|record| record.outcome == outcome).count() as u64;
        let finished: Vec<&RequestRecord> =
            records.iter().copied().filter(|record| record.outcome == Outcome::Finished).collect();
        let values = |value: &dyn Fn(&RequestRecord) -> Option<f64>| {
            Distribution::of(finished.iter().filter_map(|record| value(record)).collect())
        };
        let sum = |value: fn(&RequestRecord) -> u64| finished.iter().map(|record| value(record)).sum::<u64>();
        let input_tokens = sum(|record| u64::from(record.num_prompt_tokens));
        let output_tokens = sum(|record| u64::from(record.num_output_tokens));
        let duration_s = duration_ns(&finished).map(ns_to_s);
        let per_s = |number: u64| duration_s.filter(|s| *s > 0.0).map(|s| number as f64 / s);
        StageMetrics {
            stage,
            requests: records.len() as u64,
            finished: finished.len() as u64,
            rejected: number(Outcome::Rejected),
            unfinished: number(Outcome::Unfinished),
            input_tokens,
            output_tokens,
            duration_s,
            requests_per_s: per_s(finished.len() as u64),
            output_tokens_per_s: per_s(output_tokens),
            total_tokens_per_s: per_s(input_tokens + output_tokens),
            ttft_ms: values(&|record| Some(record.ttft_ms())),
            tpot_ms: values(&RequestRecord::tpot_ms),
            itl_ms: mean_gap_ms(&finished, num_gaps).and_then(|mean| Distribution::of_ns_histograms(gaps, mean)),
            itl_per_output_token_ms: values(&|record| {
                let tokens = f64::from(record.num_output_tokens);
                (tokens > 0.0).then(|| ns_to_ms(decoding_ns(record)) / tokens)
            }),
            e2e_ms: values(&|record| Some(record.e2e_ms())),
            queued_ms: values(&|record| Some(ns_to_ms(record.scheduled_ns.saturating_sub(record.arrival_ns)))),
            kv_load_ms: values(&|record| has_tier.then(|| ns_to_ms(record.load_ns))),
        }
    }
}

/// Time from the first token to the last.
fn decoding_ns(record: &RequestRecord) -> u64 {
    record.finish_ns.saturating_sub(record.first_token_ns)
}

fn duration_ns(finished: &[&RequestRecord]) -> Option<u64> {
    let first = finished.iter().map(|record| record.arrival_ns).min()?;
    let last = finished.iter().map(|record| record.finish_ns).max()?;
    Some(last.saturating_sub(first))
}

/// Time between first and last tokens of all requests, over the number of gaps in it: as counted, or one less than the tokens of each.
fn mean_gap_ms(finished: &[&RequestRecord], counted: Option<u64>) -> Option<f64> {
    let several = || finished.iter().filter(|record| record.num_output_tokens > 1);
    let total_ns: u128 = several().map(|record| u128::from(decoding_ns(record))).sum();
    let gaps = counted.unwrap_or_else(|| several().map(|record| u64::from(record.num_output_tokens) - 1).sum());
    (gaps > 0).then(|| total_ns as f64 / NS_PER_MS as f64 / gaps as f64)
}

fn stage_number<S: Serializer>(stage: &Option<u32>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_i64(stage.map_or(-1, i64::from))
}

#[cfg(test)]
#[path = "metrics_tests.rs"]
mod tests;

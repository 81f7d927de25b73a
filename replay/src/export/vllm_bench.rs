//! The result JSON of `vllm bench serve --save-result`.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};

use ridgepoint::units::{NS_PER_S, ns_to_s};
use serde_json::Value;

use super::TokenTimes;
use crate::vllm_bench::{Lists, Written};
use crate::{Metrics, Outcome, Replay, RequestRecord};

/// Arguments of the benchmark, for the first keys of the file.
#[derive(Debug, Clone, Copy, Default)]
pub struct BenchRun<'a> {
    /// The `date` key. `None` omits it, so that equal replays give equal bytes.
    pub date: Option<&'a str>,
    /// The `model_id` and `tokenizer_id` keys.
    pub model_id: &'a str,
    /// Requested requests per second. `None` is written as `"inf"`, as vLLM does if all requests are sent at once.
    pub request_rate: Option<f64>,
    /// Shape of the gamma distribution of arrival gaps; 1 is Poisson. `None` is written as null.
    pub burstiness: Option<f64>,
    /// Maximum number of requests in flight. `None` is written as null.
    pub max_concurrency: Option<u32>,
}

/// Writes the whole run under `vllm bench serve`'s field names. `tokens` adds the lists of `--save-detailed`, one value per
/// request: `input_lens`, `output_lens` (0 for a failed request), `ttfts` (s), `itls` (s), `start_times` (s from the start of
/// the workload) and `errors` (empty if there was none).
///
/// The file differs from vLLM's in a few keys. `backend` is `ridgepoint`. Statistics of no values are null, where vLLM
/// writes 0. `generated_texts` is absent. `max_output_tokens_per_s` is null without `tokens`. Rejected and unfinished
/// requests count as `failed`. A server with a host's tier of KV blocks adds `mean_kv_load_ms` and the other statistics of the time that
/// requests wait for their loads, and the list `kv_loads`, s.
///
/// # Errors
/// Errors of `out`.
pub fn write_vllm_bench(
    out: impl Write,
    run: &BenchRun<'_>,
    replay: &Replay,
    metrics: &Metrics,
    tokens: Option<&TokenTimes>,
) -> io::Result<()> {
    let (records, all) = (&replay.records, &metrics.run);
    let rate = run.request_rate.filter(|rate| rate.is_finite());
    let latencies = [("ttft", all.ttft_ms), ("tpot", all.tpot_ms), ("itl", all.itl_ms), ("e2el", all.e2e_ms)];
    let load = all.kv_load_ms.map(|of| ("kv_load", Some(of)));
    let result = Written {
        backend: "ridgepoint",
        date: run.date,
        model_id: run.model_id,
        tokenizer_id: run.model_id,
        num_prompts: records.len(),
        request_rate: rate.map_or_else(|| "inf".into(), Value::from),
        burstiness: run.burstiness,
        max_concurrency: run.max_concurrency,
        duration: all.duration_s,
        completed: all.finished,
        failed: all.rejected + all.unfinished,
        total_input_tokens: all.input_tokens,
        total_output_tokens: all.output_tokens,
        request_throughput: all.requests_per_s,
        request_goodput: None,
        output_throughput: all.output_tokens_per_s,
        total_token_throughput: all.total_tokens_per_s,
        max_output_tokens_per_s: tokens.and_then(|tokens| max_output_tokens_per_s(records, tokens)),
        max_concurrent_requests: max_concurrent_requests(records),
        latencies: latencies.into_iter().chain(load).collect(),
        lists: tokens.map(|tokens| lists(replay, tokens)),
    };
    result.write(out)
}

fn lists(replay: &Replay, tokens: &TokenTimes) -> Lists {
    let (records, has_tier) = (&replay.records, replay.offload.is_some());
    let done = |record: &RequestRecord| record.outcome == Outcome::Finished;
    let output = |record: &RequestRecord| if done(record) { record.num_output_tokens } else { 0 };
    let ttft_ns = |of: &RequestRecord| if done(of) { of.first_token_ns.saturating_sub(of.arrival_ns) } else { 0 };
    let gaps = |(index, record): (usize, &RequestRecord)| {
        tokens.gaps_ns(index).take_while(|_| done(record)).map(ns_to_s).collect()
    };
    let fault = |record: &RequestRecord| match record.outcome {
        Outcome::Finished => "",
        Outcome::Rejected => "rejected: prompt and output are longer than max_model_len",
        Outcome::Unfinished => "unfinished when the replay was stopped",
    };
    Lists {
        input_lens: records.iter().map(|record| record.num_prompt_tokens).collect(),
        output_lens: records.iter().map(output).collect(),
        start_times: records.iter().map(|record| ns_to_s(record.arrival_ns)).collect(),
        ttfts: records.iter().map(|record| ns_to_s(ttft_ns(record))).collect(),
        itls: records.iter().enumerate().map(gaps).collect(),
        errors: records.iter().map(fault).collect(),
        kv_loads: has_tier.then(|| records.iter().map(|record| ns_to_s(record.load_ns)).collect()),
    }
}

fn finished(records: &[RequestRecord]) -> impl Iterator<Item = (usize, &RequestRecord)> {
    records.iter().enumerate().filter(|(_, record)| record.outcome == Outcome::Finished)
}

/// Maximum number of tokens of finished requests in a second, counted from the first arrival.
fn max_output_tokens_per_s(records: &[RequestRecord], tokens: &TokenTimes) -> Option<f64> {
    let start = finished(records).map(|(_, record)| record.arrival_ns).min()?;
    let mut by_second: HashMap<u64, u64> = HashMap::new();
    for (index, _) in finished(records) {
        for now in tokens.of_record(index) {
            *by_second.entry(now.saturating_sub(start) / NS_PER_S).or_default() += 1;
        }
    }
    by_second.into_values().max().map(|most| most as f64)
}

/// Maximum number of finished requests that were in flight within the same second.
fn max_concurrent_requests(records: &[RequestRecord]) -> i64 {
    let Some(start) = finished(records).map(|(_, record)| record.arrival_ns).min() else { return 0 };
    let second = |ns: u64| ns.saturating_sub(start) / NS_PER_S;
    let mut changes: BTreeMap<u64, i64> = BTreeMap::new();
    for (_, record) in finished(records) {
        *changes.entry(second(record.arrival_ns)).or_default() += 1;
        *changes.entry(second(record.finish_ns.max(record.arrival_ns)) + 1).or_default() -= 1;
    }
    let mut in_flight = 0;
    let counts = changes.into_values().map(|change| {
        in_flight += change;
        in_flight
    });
    counts.max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::fixtures::{Full, three};
    use super::*;
    use crate::{Event, Observer, RequestRecord};

    fn written(run: &BenchRun<'_>, replay: &Replay, tokens: Option<&TokenTimes>) -> (String, Value) {
        let mut out = Vec::new();
        write_vllm_bench(&mut out, run, replay, &Metrics::of(replay), tokens).unwrap();
        let text = String::from_utf8(out).unwrap();
        let value = serde_json::from_str(&text).unwrap();
        (text, value)
    }

    fn times() -> TokenTimes {
        let mut times = TokenTimes::default();
        for (record, token, now_ms) in [(0, 0, 1050), (0, 1, 1070), (0, 2, 1100)] {
            times.on(&Event::Token { record, token, now_ns: now_ms * 1_000_000 });
        }
        times
    }

    #[test]
    fn fields_are_those_of_vllm() {
        let run =
            BenchRun { model_id: "llama", request_rate: Some(2.5), max_concurrency: Some(8), ..BenchRun::default() };
        let (text, value) = written(&run, &three(), None);
        // From 1.0 to 1.1 s: one request, 100 tokens in, 3 out.
        let expected = json!({
            "model_id": "llama", "num_prompts": 3, "request_rate": 2.5, "max_concurrency": 8, "burstiness": null,
            "duration": 0.1, "completed": 1, "failed": 2, "total_input_tokens": 100, "total_output_tokens": 3,
            "request_throughput": 10.0, "output_throughput": 30.0, "total_token_throughput": 1030.0,
            "mean_ttft_ms": 50.0, "p99_ttft_ms": 50.0, "std_ttft_ms": 0.0,
            "mean_tpot_ms": 25.0, "mean_itl_ms": 25.0, "median_e2el_ms": 100.0, "p90_e2el_ms": 100.0, "p95_e2el_ms": 100.0,
            "max_concurrent_requests": 1, "max_output_tokens_per_s": null,
        });
        for (key, expected) in expected.as_object().unwrap() {
            assert_eq!(value.get(key), Some(expected), "{key}");
        }
        // 18 keys in addition to four metrics of six figures; no date, no lists.
        assert_eq!(value.as_object().unwrap().len(), 18 + 24);
        assert!(!text.contains("date") && !text.contains("itls"), "{text}");
        assert_eq!(text, written(&run, &three(), None).0);
        let dated = BenchRun { date: Some("20260101-000000"), ..run };
        assert_eq!(written(&dated, &three(), None).1["date"], "20260101-000000");
    }

    #[test]
    fn details_are_a_value_per_request_in_seconds() {
        let (_, value) = written(&BenchRun::default(), &three(), Some(&times()));
        assert_eq!(value["request_rate"], "inf");
        assert_eq!(value["input_lens"], json!([100, 9000, 50]));
        assert_eq!(value["output_lens"], json!([3, 0, 0]));
        assert_eq!(value["ttfts"], json!([0.05, 0.0, 0.0]));
        assert_eq!(value["itls"], json!([[0.02, 0.03], [], []]));
        assert_eq!(value["start_times"], json!([1.0, 1.2, 1.2]));
        assert_eq!(value["errors"][0], "");
        assert!(value["errors"][1].as_str().unwrap().contains("max_model_len"));
        assert_eq!(value["max_output_tokens_per_s"], 3.0);
    }

    #[test]
    fn nothing_is_null_and_not_zero() {
        let mut replay = three();
        replay.records.clear();
        let (text, value) = written(&BenchRun::default(), &replay, Some(&TokenTimes::default()));
        for key in ["duration", "request_throughput", "mean_ttft_ms", "p99_itl_ms", "max_output_tokens_per_s"] {
            assert_eq!(value.get(key), Some(&Value::Null), "{key}");
        }
        assert_eq!((&value["completed"], &value["itls"]), (&json!(0), &json!([])));
        assert!(!text.contains("NaN"), "{text}");
    }

    #[test]
    fn peaks_are_by_whole_seconds_from_the_first_arrival() {
        let first = three().records[0];
        // Seconds 0 to 1, 1 to 1, 2 to 3 after the first: two at once in second 1.
        let at = |arrival_ms: u64, finish_ms: u64| RequestRecord {
            arrival_ns: arrival_ms * 1_000_000,
            finish_ns: finish_ms * 1_000_000,
            ..first
        };
        assert_eq!(max_concurrent_requests(&[at(5000, 6900), at(6950, 6960), at(7000, 8000)]), 2);
        assert_eq!(max_concurrent_requests(&[]), 0);
        let far = at(0, u64::MAX / 1_000_000);
        assert_eq!(max_concurrent_requests(&[far, far]), 2, "no room for every second in between is needed");
    }

    #[test]
    fn what_the_writer_says_is_returned() {
        let replay = three();
        let error = write_vllm_bench(Full { room: 5 }, &BenchRun::default(), &replay, &Metrics::of(&replay), None);
        assert_eq!(error.unwrap_err().kind(), io::ErrorKind::StorageFull);
    }
}

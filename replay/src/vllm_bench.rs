//! The result of `vllm bench serve --save-result --save-detailed`: its keys, how a file of it is recognised, and what is read and written.
//!
//! | reader or writer | takes |
//! |---|---|
//! | [`workload`](crate::workload) | the requests as they were sent, the rest unread |
//! | ingestion of captures | [`Measured`]: the requests with their answers |
//! | [`export`](crate::export) | everything, of a replay |
//!
//! # Source
//! vLLM 0.16.0, `vllm/benchmarks/serve.py`. Lists have an entry per request. `start_times`, `ttfts` and `itls` are in seconds of the
//! client's clock, and the last gap of a request ends where its response does.

#![expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "floats saturate; times are bounded")]

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::{self, BufWriter, Write};

use ridgepoint::Error;
use ridgepoint::input::{Input, check, json_error};
use ridgepoint::units::NS_PER_S;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;

use crate::Distribution;
use crate::input::Head;

/// Whether a file that begins so is a result. Its lists come last and may be long; keys of its settings, and in sorted results of its
/// counts, come first.
pub fn is_result(head: &Head) -> bool {
    let has_run = || head.has("num_prompts") || head.has("completed");
    head.has("input_lens") || head.has("request_throughput") || (head.has("backend") && has_run())
}

/// What is wrong with a result that has no lists.
pub const SUMMARY: &str = "is the summary of a benchmark: it has totals and no requests. Run the benchmark again with --save-detailed \
                           (vLLM) or --output-details (SGLang)";

/// Whether a file that begins so is a result of SGLang's `bench_serving`, which has vLLM's keys beside its own.
pub fn is_sglang(head: &Head) -> bool {
    let own = [
        "sharegpt_output_len",
        "accept_length",
        "mean_e2e_latency_ms",
        "server_info",
        "total_output_tokens_retokenized",
    ];
    is_result(head) && own.into_iter().any(|key| head.has(key))
}

/// A request as it was sent.
pub(crate) struct SentRequest {
    /// Its place in the lists, from 1.
    pub row: usize,
    pub input_len: i64,
    pub output_len: i64,
    /// When it was sent, s; `None` in results of older versions.
    pub start_time: Option<f64>,
    pub has_failed: bool,
}

/// The lists of a result that a load is made of.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Sent {
    input_lens: Vec<i64>,
    output_lens: Vec<i64>,
    start_times: Vec<f64>,
    /// Older versions do not write it.
    errors: Option<Vec<Option<String>>>,
}

/// Reads the requests of a result as they were sent, in the order of its lists.
///
/// # Errors
/// A text that is not JSON, whose lists have entries of another type, are missing, empty or of unequal length. Start times may be missing.
pub(crate) fn read_sent(input: Input<'_>) -> ridgepoint::Result<Vec<SentRequest>> {
    let origin = input.origin().to_owned();
    let Sent { input_lens, output_lens, start_times, errors } =
        serde_json::from_reader(input.stream()).map_err(|error| json_error(&origin, error))?;
    let num_requests = input_lens.len();
    let errors = errors.unwrap_or_else(|| vec![None; num_requests]);
    if num_requests == 0 && output_lens.is_empty() {
        return Err(Error::parse(origin, SUMMARY));
    }
    let start_times: Vec<Option<f64>> = match start_times.is_empty() {
        true => vec![None; num_requests],
        false => start_times.into_iter().map(Some).collect(),
    };
    let lengths = [("output_lens", output_lens.len()), ("start_times", start_times.len()), ("errors", errors.len())];
    let mut problems: Vec<String> = lengths
        .into_iter()
        .filter(|(_, length)| *length != num_requests)
        .map(|(key, length)| match length {
            0 => format!("{key} is missing or empty"),
            _ => format!("{key} has {length} entries, input_lens has {num_requests}"),
        })
        .collect();
    if !problems.is_empty() {
        problems.push("its lists must have an entry for each request: is the file edited?".to_owned());
    }
    check(&origin, problems)?;
    let lists = input_lens.into_iter().zip(output_lens).zip(start_times).zip(errors).zip(1..);
    let request = |((((input_len, output_len), start_time), error), row): ((_, Option<String>), _)| SentRequest {
        row,
        input_len,
        output_len,
        start_time,
        has_failed: error.is_some_and(|error| !error.is_empty()),
    };
    Ok(lists.map(request).collect())
}

/// What is read of a result as a measurement. Entries are of any type, so that a bad one costs its request alone.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Measured {
    /// The model's name.
    pub model_id: Option<String>,
    /// The most requests that the client kept in flight.
    pub max_concurrency: Option<u32>,
    /// Requests per second, or `inf`.
    request_rate: Value,
    input_lens: Vec<Value>,
    output_lens: Vec<Value>,
    start_times: Vec<Value>,
    ttfts: Vec<Value>,
    itls: Vec<Value>,
    errors: Vec<Value>,
}

/// The entries of a request.
#[derive(Debug, Clone, Copy)]
pub struct MeasuredRequest<'a> {
    /// Prompt tokens.
    pub input_len: &'a Value,
    /// Tokens of the answer.
    pub output_len: &'a Value,
    /// When it was sent, s.
    pub start_time: &'a Value,
    /// Time to the first answer, s.
    pub ttft: &'a Value,
    /// Gaps between answers, s.
    pub itls: &'a Value,
    /// What went wrong; an empty text if nothing did.
    pub error: &'a Value,
}

impl Measured {
    /// Fills in start times that a result lacks, and returns a note. The client must have sent each request as soon as another one had
    /// finished. Neither SGLang nor older versions of vLLM write the times.
    ///
    /// # Errors
    /// A result without times whose client sent at a rate, in words.
    pub fn work_out_starts(&mut self) -> Result<Option<String>, String> {
        let number = self.input_lens.len();
        let lists = [&self.output_lens, &self.ttfts, &self.itls];
        let is_whole = number > 0 && lists.iter().all(|list| list.len() == number);
        if !self.start_times.is_empty() || !is_whole {
            return Ok(None);
        }
        if self.request_rate != "inf" {
            return Err("has details without start_times, and its client sent at a rate, so that the times of its requests are unknown: newer \
                        versions of vLLM write them. Its lengths are a load: simulate takes it as requests with a request_rate"
                .to_owned());
        }
        let at_once = self.max_concurrency.map_or(number, |most| (most as usize).max(1));
        let seconds = |value: &Value| value.as_f64().filter(|time| (0.0..MAX_LATENCY_S).contains(time)).unwrap_or(0.0);
        let gaps = |gaps: &Value| gaps.as_array().into_iter().flatten().map(seconds).sum::<f64>();
        let durations = self.ttfts.iter().zip(&self.itls).map(|(ttft, itls)| seconds(ttft) + gaps(itls));
        self.start_times = starts_of_loop(durations, at_once).into_iter().map(Value::from).collect();
        Ok(Some(format!(
            "the times of requests are worked out, because the result lacks start_times: its client kept {at_once} of them in flight and sent \
             the next as soon as one had finished"
        )))
    }

    /// Returns the requests in the order of the lists. Without a list of errors no request counts as failed.
    ///
    /// # Errors
    /// The lists that are missing, empty or of unequal length, in words.
    pub fn requests(&self) -> Result<impl Iterator<Item = MeasuredRequest<'_>>, Vec<String>> {
        let Measured { input_lens, output_lens, start_times, ttfts, itls, errors, .. } = self;
        let num_requests = input_lens.len();
        if num_requests == 0 && output_lens.is_empty() {
            return Err(vec![SUMMARY.to_owned()]);
        }
        let lists = [
            ("input_lens", input_lens),
            ("output_lens", output_lens),
            ("start_times", start_times),
            ("ttfts", ttfts),
            ("itls", itls),
            ("errors", if errors.is_empty() { input_lens } else { errors }),
        ];
        let unequal: Vec<String> = lists
            .into_iter()
            .filter(|(_, list)| list.len() != num_requests || list.is_empty())
            .map(|(key, list)| format!("{key} has {} entries, input_lens has {num_requests}", list.len()))
            .collect();
        if !unequal.is_empty() {
            return Err(vec![format!("{}: its lists need an entry for each request", unequal.join(", "))]);
        }
        let errors = errors.iter().chain(std::iter::repeat(&Value::Null));
        let sent = input_lens.iter().zip(output_lens).zip(start_times);
        let answers = ttfts.iter().zip(itls).zip(errors);
        Ok(sent.zip(answers).map(|(((input_len, output_len), start_time), ((ttft, itls), error))| MeasuredRequest {
            input_len,
            output_len,
            start_time,
            ttft,
            itls,
            error,
        }))
    }
}

/// Longest part of a request's time that counts, s.
const MAX_LATENCY_S: f64 = 1e7;

/// When a client that keeps `at_once` requests in flight sends requests of these durations, s.
fn starts_of_loop(durations_s: impl Iterator<Item = f64>, at_once: usize) -> Vec<f64> {
    let mut ends: BinaryHeap<Reverse<u64>> = BinaryHeap::new();
    let start = |duration_s: f64| {
        let start_ns = if ends.len() < at_once { 0 } else { ends.pop().map_or(0, |Reverse(end_ns)| end_ns) };
        let start_s = start_ns as f64 / NS_PER_S as f64;
        ends.push(Reverse(((start_s + duration_s) * NS_PER_S as f64).round() as u64));
        start_s
    };
    durations_s.map(start).collect()
}

/// A result as it is written. What is `None` is null, unless it says otherwise.
#[derive(Serialize)]
pub(crate) struct Written<'a> {
    pub backend: &'a str,
    /// Left out if `None`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub date: Option<&'a str>,
    pub model_id: &'a str,
    pub tokenizer_id: &'a str,
    pub num_prompts: usize,
    /// Requests per second, or `"inf"`.
    pub request_rate: Value,
    pub burstiness: Option<f64>,
    pub max_concurrency: Option<u32>,
    /// s.
    pub duration: Option<f64>,
    pub completed: u64,
    pub failed: u64,
    pub total_input_tokens: u64,
    pub total_output_tokens: u64,
    pub request_throughput: Option<f64>,
    pub request_goodput: Option<f64>,
    pub output_throughput: Option<f64>,
    pub total_token_throughput: Option<f64>,
    pub max_output_tokens_per_s: Option<f64>,
    pub max_concurrent_requests: i64,
    /// Statistics of latencies by their name, ms: `("ttft", …)` is `mean_ttft_ms` and so on.
    #[serde(flatten, serialize_with = "statistics")]
    pub latencies: Vec<(&'static str, Option<Distribution>)>,
    /// The lists of `--save-detailed`; left out if `None`.
    #[serde(flatten)]
    pub lists: Option<Lists>,
}

/// The lists of `--save-detailed`, times in seconds.
#[derive(Serialize)]
pub(crate) struct Lists {
    pub input_lens: Vec<u32>,
    pub output_lens: Vec<u32>,
    pub start_times: Vec<f64>,
    pub ttfts: Vec<f64>,
    pub itls: Vec<Vec<f64>>,
    pub errors: Vec<&'static str>,
    /// Waits for KV blocks, which vLLM does not write; left out if `None`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kv_loads: Option<Vec<f64>>,
}

type Statistic = (&'static str, fn(&Distribution) -> f64);
const STATISTICS: [Statistic; 6] = [
    ("mean", |of| of.mean),
    ("median", |of| of.p50),
    ("std", |of| of.std),
    ("p90", |of| of.p90),
    ("p95", |of| of.p95),
    ("p99", |of| of.p99),
];

fn statistics<S: Serializer>(of: &[(&str, Option<Distribution>)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(of.iter().flat_map(|(name, of)| {
        STATISTICS.iter().map(move |(statistic, value)| (format!("{statistic}_{name}_ms"), of.as_ref().map(value)))
    }))
}

impl Written<'_> {
    /// Writes the result, its keys sorted.
    ///
    /// # Errors
    /// Those of `out`.
    pub(crate) fn write(&self, out: impl Write) -> io::Result<()> {
        let mut out = BufWriter::new(out);
        serde_json::to_writer(&mut out, &serde_json::to_value(self)?)?;
        out.write_all(b"\n")?;
        out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::head;

    #[test]
    fn a_loop_sends_the_next_when_one_has_finished() {
        // Two in flight: the first ends at 3 s, the second at 1, the third at 1 + 4 = 5.
        assert_eq!(starts_of_loop([3.0, 1.0, 4.0, 1.0].into_iter(), 2), [0.0, 0.0, 1.0, 3.0]);
        assert_eq!(starts_of_loop([3.0, 1.0].into_iter(), 5), [0.0, 0.0]);
    }

    #[test]
    fn a_result_is_known_by_what_its_beginning_holds() {
        for (text, known) in [
            (r#"{"date": "x", "backend": "vllm", "num_prompts": 5"#, true),
            // vLLM 0.10 and before have no `backend`; a long text may come before the lists.
            (r#"{"date": "x", "endpoint_type": "openai", "num_prompts": 5, "request_throughput": 2.5, "mean"#, true),
            (r#"{"input_lens": [1, 2,"#, true),
            // Keys that are sorted, and a list of errors that takes all of the beginning.
            (r#"{"backend": "ridgepoint", "burstiness": null, "completed": 9, "errors": ["", "","#, true),
            (r#"{"backend": "ridgepoint"}"#, false),
            (r#"{"num_prompts": 5}"#, false),
        ] {
            assert_eq!(is_result(&head(text.as_bytes())), known, "{text}");
        }
    }
}

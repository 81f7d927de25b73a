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

use std::io::{self, BufWriter, Write};

use ridgepoint::input::{Input, check, json_error};
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

/// A request as it was sent.
pub(crate) struct SentRequest {
    /// Its place in the lists, from 1.
    pub row: usize,
    pub input_len: i64,
    pub output_len: i64,
    /// When it was sent, s.
    pub start_time: f64,
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
/// A text that is not JSON, whose lists have entries of another type, are missing, empty or of unequal length.
pub(crate) fn read_sent(input: Input<'_>) -> ridgepoint::Result<Vec<SentRequest>> {
    let origin = input.origin().to_owned();
    let Sent { input_lens, output_lens, start_times, errors } =
        serde_json::from_reader(input.stream()).map_err(|error| json_error(&origin, error))?;
    let num_requests = input_lens.len();
    let errors = errors.unwrap_or_else(|| vec![None; num_requests]);
    let lengths = [("output_lens", output_lens.len()), ("start_times", start_times.len()), ("errors", errors.len())];
    let mut problems: Vec<String> = lengths
        .into_iter()
        .filter(|(_, length)| *length != num_requests)
        .map(|(key, length)| match length {
            0 => format!("{key} is missing or empty"),
            _ => format!("{key} has {length} entries, input_lens has {num_requests}"),
        })
        .collect();
    if !problems.is_empty() || num_requests == 0 {
        problems.push("run `vllm bench serve` with --save-detailed, of a version that writes the lists".to_owned());
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
    /// Returns the requests in the order of the lists.
    ///
    /// # Errors
    /// The lists that are missing, empty or of unequal length, in words.
    pub fn requests(&self) -> Result<impl Iterator<Item = MeasuredRequest<'_>>, Vec<String>> {
        let Measured { input_lens, output_lens, start_times, ttfts, itls, errors, .. } = self;
        let num_requests = input_lens.len();
        let lists = [
            ("input_lens", input_lens),
            ("output_lens", output_lens),
            ("start_times", start_times),
            ("ttfts", ttfts),
            ("itls", itls),
            ("errors", errors),
        ];
        let problem = |(key, list): (&str, &Vec<Value>)| {
            let length = list.len();
            (length == 0 || length != num_requests).then(|| {
                format!(
                    "{key} has {length} entries, input_lens has {num_requests}: run `vllm bench serve` with --save-detailed, of a \
                     version that writes {key}"
                )
            })
        };
        let problems: Vec<String> = lists.into_iter().filter_map(problem).collect();
        if !problems.is_empty() {
            return Err(problems);
        }
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

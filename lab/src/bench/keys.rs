//! The keys of a result: those of vLLM's and SGLang's files, and the same as their printed tables have them.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::evaluate::metric::{Latency, Metric, Statistic};

/// Begins a printed result.
const HEADING: &str = "serving benchmark result";

/// The numbers and words of a result by the names of vLLM's file.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct ResultKeys {
    values: BTreeMap<String, Value>,
}

/// What printed tables call the keys of files; names are compared in lower case, with `_` for what is no letter or digit.
const PRINTED: [(&str, &str); 12] = [
    ("successful_requests", "completed"),
    ("failed_requests", "failed"),
    ("benchmark_duration_s", "duration"),
    ("total_generated_tokens", "total_output_tokens"),
    ("maximum_request_concurrency", "max_concurrency"),
    ("max_request_concurrency", "max_concurrency"),
    ("traffic_request_rate", "request_rate"),
    ("request_rate_configured_rps", "request_rate"),
    ("burstiness_factor", "burstiness"),
    ("model", "model_id"),
    ("total_input_text_tokens", "total_input_tokens"),
    ("total_generated_tokens_retokenized", "total_output_tokens_retokenized"),
];

/// Latencies as keys spell them.
const LATENCIES: [(&str, Latency); 5] = [
    ("ttft", Latency::Ttft),
    ("tpot", Latency::Tpot),
    ("e2el", Latency::E2e),
    ("e2e_latency", Latency::E2e),
    ("latency", Latency::E2e),
];

/// Statistics as keys spell them.
const STATISTICS: [(&str, Statistic); 4] =
    [("mean", Statistic::Mean), ("median", Statistic::P50), ("p90", Statistic::P90), ("p99", Statistic::P99)];

impl ResultKeys {
    /// The keys of a file's object.
    pub(super) fn of_object(object: Map<String, Value>) -> Self {
        ResultKeys { values: object.into_iter().filter(|(_, value)| !value.is_null()).collect() }
    }

    /// The results in a printed text, which may hold a log around them. Lines before the heading of a result, such as the rate that the
    /// client was started with, are its own too.
    pub(super) fn printed(text: &str) -> Vec<Self> {
        let (mut found, mut before, mut inside) = (Vec::new(), ResultKeys::default(), None::<ResultKeys>);
        for line in text.lines() {
            if line.to_lowercase().contains(HEADING) {
                found.extend(inside.replace(std::mem::take(&mut before)));
            } else if let Some((name, value)) = pair(line) {
                inside.as_mut().unwrap_or(&mut before).values.insert(name, value);
            }
        }
        found.extend(inside.or(Some(before)));
        found.retain(|keys: &ResultKeys| keys.values.contains_key("completed") || keys.values.contains_key("duration"));
        found
    }

    /// A positive number.
    pub(super) fn number(&self, key: &str) -> Option<f64> {
        let value = self.values.get(key)?;
        let number = value.as_f64().or_else(|| value.as_str()?.parse().ok())?;
        (number.is_finite() && number > 0.0).then_some(number)
    }

    /// A whole number.
    pub(super) fn whole(&self, key: &str) -> Option<u64> {
        let number = self.number(key).filter(|number| number.fract() == 0.0 && *number < 1e15)?;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked above")]
        Some(number as u64)
    }

    /// A name.
    pub(super) fn text(&self, key: &str) -> Option<&str> {
        self.values.get(key)?.as_str()
    }

    /// A list of whole numbers, such as the prompt tokens of each request.
    pub(super) fn list(&self, key: &str) -> Option<Vec<u64>> {
        let list = self.values.get(key)?.as_array().filter(|list| !list.is_empty())?;
        list.iter().map(Value::as_u64).collect()
    }

    /// A list of times in s; `None` if one is no number.
    pub(super) fn times(&self, key: &str) -> Option<Vec<f64>> {
        let list = self.values.get(key)?.as_array().filter(|list| !list.is_empty())?;
        list.iter().map(Value::as_f64).collect()
    }

    /// Every latency, ms.
    pub(super) fn latencies(&self) -> impl Iterator<Item = (Metric, f64)> + '_ {
        LATENCIES.into_iter().flat_map(move |(name, latency)| {
            let value = move |(of, statistic): (&str, Statistic)| {
                let ms = self.number(&format!("{of}_{name}_ms"))?;
                Some((Metric { latency, statistic }, ms))
            };
            STATISTICS.into_iter().filter_map(value)
        })
    }
}

/// A line of a printed table, `Mean TTFT (ms):    47.31`, as a key of files.
fn pair(line: &str) -> Option<(String, Value)> {
    let (label, value) = line.trim().trim_matches('|').rsplit_once(['|', ':'])?;
    let value = value.split_whitespace().next().filter(|value| label.len() < 60 && !value.is_empty())?;
    let words = label.split(|of: char| !of.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    let name = words.map(str::to_lowercase).collect::<Vec<_>>().join("_");
    let name = PRINTED.iter().find(|(printed, _)| *printed == name).map_or(name, |(_, key)| (*key).to_owned());
    let number = value.replace(',', "").parse::<f64>().ok().filter(|number| number.is_finite());
    Some((name, number.map_or_else(|| value.into(), Value::from)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRINTED_RESULT: &str = "
Traffic request rate: 4.0
Burstiness factor: 1.0 (Poisson process)
Maximum request concurrency: None
============ Serving Benchmark Result ============
Successful requests:                     1,000
Benchmark duration (s):                  76.59
Total input tokens:                      219171
Total generated tokens:                  200752
Request throughput (req/s):              13.06
---------------Time to First Token----------------
Mean TTFT (ms):                          17743.08
Median TTFT (ms):                        17698.39
P99 TTFT (ms):                           24371.87
Mean E2E Latency (ms):                   30000.5
==================================================
============ Serving Benchmark Result ============
Backend:                                 sglang
Traffic request rate:                    inf
Max request concurrency:                 16
Successful requests:                     20
Benchmark duration (s):                  2
";

    #[test]
    fn a_printed_text_has_the_keys_of_files() {
        let found = ResultKeys::printed(PRINTED_RESULT);
        assert_eq!(found.len(), 2);
        assert_eq!((found[0].whole("completed"), found[0].number("duration")), (Some(1000), Some(76.59)));
        assert_eq!((found[0].number("request_rate"), found[0].whole("max_concurrency")), (Some(4.0), None));
        let latencies: Vec<(String, f64)> = found[0].latencies().map(|(of, ms)| (of.to_string(), ms)).collect();
        let expected = [("ttft_mean", 17743.08), ("ttft_p50", 17698.39), ("ttft_p99", 24371.87), ("e2e_mean", 30000.5)];
        assert_eq!(latencies, expected.map(|(name, ms)| (name.to_owned(), ms)));
        // An infinite rate is none; nothing of the result before it stays.
        assert_eq!((found[1].number("request_rate"), found[1].whole("max_concurrency")), (None, Some(16)));
        assert_eq!((found[1].whole("completed"), found[1].latencies().count()), (Some(20), 0));
    }

    #[test]
    fn a_table_in_a_document_is_read_too() {
        let found =
            ResultKeys::printed("| Metric | Value |\n|---|---|\n| Successful requests | 5 |\n| Mean TPOT (ms) | 7.5 |");
        assert_eq!((found[0].whole("completed"), found[0].latencies().count()), (Some(5), 1));
        assert!(ResultKeys::printed("nothing: 5\nof the kind").is_empty());
    }
}

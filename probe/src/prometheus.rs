//! The part of vLLM's `/metrics` that reports what a request met: queues, cache, and the server's own times.

use std::collections::BTreeMap;

use serde::Serialize;

/// Sum and number of a histogram's values.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Total {
    /// Sum, s.
    pub sum_s: f64,
    /// Number.
    pub count: f64,
}

/// Figures of a server, summed over its engines. Those that it does not have are `None`.
///
/// # Source
/// vLLM 0.32; older names of the KV cache's share and of the prefix cache are read too.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct ServerMetrics {
    /// Running requests.
    pub running: Option<f64>,
    /// Waiting requests.
    pub waiting: Option<f64>,
    /// Share of the KV cache in use, of the fullest engine.
    pub kv_usage: Option<f64>,
    /// Prompt tokens that were looked up in the prefix cache, and those found.
    pub prefix_queries: Option<f64>,
    /// Prompt tokens found in the prefix cache.
    pub prefix_hits: Option<f64>,
    /// Prompt tokens so far.
    pub prompt_tokens: Option<f64>,
    /// Output tokens so far.
    pub generation_tokens: Option<f64>,
    /// Requests that ended.
    pub finished: Option<f64>,
    /// Start of the process, unix seconds.
    pub process_start_s: Option<f64>,
    /// Time to first token, as the server sees it.
    pub ttft: Option<Total>,
    /// Time in the queue.
    pub queue_time: Option<Total>,
    /// Time from the queue to the first token.
    pub prefill_time: Option<Total>,
    /// Cumulative counts of the TTFT histogram by upper bound, s.
    #[serde(skip)]
    ttft_buckets: BTreeMap<String, f64>,
}

impl ServerMetrics {
    /// Reads a reply of `/metrics`; `None` where no name in it is known.
    pub fn parse(text: &str) -> Option<Self> {
        let mut found = ServerMetrics::default();
        let mut is_known = false;
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let Some((name, labels, value)) = sample(line) else { continue };
            is_known |= found.add(name, labels, value);
        }
        is_known.then_some(found)
    }

    fn add(&mut self, name: &str, labels: &str, value: f64) -> bool {
        let plus = |to: &mut Option<f64>| *to = Some(to.unwrap_or(0.0) + value);
        let histogram = |to: &mut Option<Total>, is_sum: bool| {
            let total = to.get_or_insert_default();
            *(if is_sum { &mut total.sum_s } else { &mut total.count }) += value;
        };
        match name.strip_prefix("vllm:").unwrap_or(name) {
            "num_requests_running" => plus(&mut self.running),
            "num_requests_waiting" => plus(&mut self.waiting),
            "kv_cache_usage_perc" | "gpu_cache_usage_perc" => {
                self.kv_usage = Some(self.kv_usage.map_or(value, |known| known.max(value)));
            }
            "prefix_cache_queries_total" | "gpu_prefix_cache_queries_total" => plus(&mut self.prefix_queries),
            "prefix_cache_hits_total" | "gpu_prefix_cache_hits_total" => plus(&mut self.prefix_hits),
            "prompt_tokens_total" => plus(&mut self.prompt_tokens),
            "generation_tokens_total" => plus(&mut self.generation_tokens),
            "request_success_total" => plus(&mut self.finished),
            "process_start_time_seconds" => self.process_start_s = Some(value),
            "time_to_first_token_seconds_sum" => histogram(&mut self.ttft, true),
            "time_to_first_token_seconds_count" => histogram(&mut self.ttft, false),
            "request_queue_time_seconds_sum" => histogram(&mut self.queue_time, true),
            "request_queue_time_seconds_count" => histogram(&mut self.queue_time, false),
            "request_prefill_time_seconds_sum" => histogram(&mut self.prefill_time, true),
            "request_prefill_time_seconds_count" => histogram(&mut self.prefill_time, false),
            "time_to_first_token_seconds_bucket" => {
                let bound = labels.split("le=\"").nth(1).and_then(|rest| rest.split('"').next());
                *self.ttft_buckets.entry(bound.unwrap_or_default().to_owned()).or_default() += value;
            }
            _ => return false,
        }
        true
    }

    /// The changes between an earlier reply and this one.
    pub fn since(&self, earlier: &ServerMetrics) -> MetricsDelta {
        let delta = |of: fn(&ServerMetrics) -> Option<f64>| Some(of(self)? - of(earlier).unwrap_or(0.0));
        let mean_ms = |of: fn(&ServerMetrics) -> Option<Total>| {
            let (now, before) = (of(self)?, of(earlier).unwrap_or_default());
            let count = now.count - before.count;
            (count > 0.0).then(|| 1e3 * (now.sum_s - before.sum_s) / count)
        };
        let mut bounds: Vec<(f64, f64)> = self
            .ttft_buckets
            .iter()
            .filter_map(|(bound, count)| {
                let before = earlier.ttft_buckets.get(bound).unwrap_or(&0.0);
                Some((bound.replace("+Inf", "inf").parse().ok()?, count - before))
            })
            .collect();
        bounds.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut below = 0.0;
        let mut ttft_counts = Vec::new();
        for (bound_s, count) in bounds {
            if count > below {
                ttft_counts.push(BucketCount {
                    up_to_ms: Some(1e3 * bound_s).filter(|ms| ms.is_finite()),
                    requests: count - below,
                });
            }
            below = below.max(count);
        }
        MetricsDelta {
            finished: delta(|of| of.finished),
            prompt_tokens: delta(|of| of.prompt_tokens),
            generation_tokens: delta(|of| of.generation_tokens),
            prefix_queries: delta(|of| of.prefix_queries),
            prefix_hits: delta(|of| of.prefix_hits),
            ttft_mean_ms: mean_ms(|of| of.ttft),
            queue_time_mean_ms: mean_ms(|of| of.queue_time),
            prefill_time_mean_ms: mean_ms(|of| of.prefill_time),
            ttft_counts,
            is_restarted: self.process_start_s != earlier.process_start_s,
        }
    }
}

/// Requests in a bucket of a histogram.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct BucketCount {
    /// Upper bound, ms; `None` is the last bucket.
    pub up_to_ms: Option<f64>,
    /// Requests.
    pub requests: f64,
}

/// The changes between two replies of `/metrics`.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct MetricsDelta {
    /// Requests that ended.
    pub finished: Option<f64>,
    /// Prompt tokens.
    pub prompt_tokens: Option<f64>,
    /// Output tokens.
    pub generation_tokens: Option<f64>,
    /// Prompt tokens that were looked up in the prefix cache.
    pub prefix_queries: Option<f64>,
    /// Prompt tokens that the prefix cache had.
    pub prefix_hits: Option<f64>,
    /// Mean time to first token as the server sees it, ms.
    pub ttft_mean_ms: Option<f64>,
    /// Mean time in the queue, ms.
    pub queue_time_mean_ms: Option<f64>,
    /// Mean time from the queue to the first token, ms.
    pub prefill_time_mean_ms: Option<f64>,
    /// The TTFT histogram's buckets that have requests.
    pub ttft_counts: Vec<BucketCount>,
    /// The server started again in between.
    pub is_restarted: bool,
}

/// Name, labels and value of a line.
fn sample(line: &str) -> Option<(&str, &str, f64)> {
    let (name, labels, rest) = match line.split_once('{') {
        Some((name, rest)) => {
            let (labels, rest) = rest.rsplit_once('}')?;
            (name, labels, rest)
        }
        None => {
            let (name, rest) = line.split_once(' ')?;
            (name, "", rest)
        }
    };
    let value: f64 = rest.split_ascii_whitespace().next()?.parse().ok()?;
    value.is_finite().then_some((name.trim(), labels, value))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const BEFORE: &str = "# TYPE vllm:num_requests_running gauge\n\
        vllm:num_requests_running{engine=\"0\",model_name=\"a}b\"} 1.0\nvllm:num_requests_running{engine=\"1\"} 2.0\n\
        vllm:num_requests_waiting{engine=\"0\"} 0.0\nvllm:kv_cache_usage_perc{engine=\"0\"} 0.25\n\
        vllm:time_to_first_token_seconds_bucket{le=\"0.1\"} 1.0\nvllm:time_to_first_token_seconds_bucket{le=\"1.0\"} 1.0\n\
        vllm:time_to_first_token_seconds_bucket{le=\"+Inf\"} 1.0\n\
        vllm:time_to_first_token_seconds_sum{engine=\"0\"} 0.5\nvllm:time_to_first_token_seconds_count{engine=\"0\"} 1.0\n\
        vllm:request_success_total{finished_reason=\"stop\"} 1.0\nprocess_start_time_seconds 1.7e+09\n";

    #[test]
    fn engines_are_summed_and_deltas_are_means() {
        let before = ServerMetrics::parse(BEFORE).unwrap();
        assert_eq!((before.running, before.waiting, before.kv_usage), (Some(3.0), Some(0.0), Some(0.25)));
        assert_eq!(before.queue_time, None);
        let later = BEFORE
            .replace("_sum{engine=\"0\"} 0.5", "_sum{engine=\"0\"} 2.9")
            .replace("_count{engine=\"0\"} 1.0", "_count{engine=\"0\"} 4.0")
            .replace("le=\"1.0\"} 1.0", "le=\"1.0\"} 3.0")
            .replace("+Inf\"} 1.0", "+Inf\"} 4.0");
        let delta = ServerMetrics::parse(&later).unwrap().since(&before);
        assert!((delta.ttft_mean_ms.unwrap() - 800.0).abs() < 1e-9, "{delta:?}");
        assert_eq!((delta.finished, delta.queue_time_mean_ms, delta.is_restarted), (Some(0.0), None, false));
        let counts: Vec<_> = delta.ttft_counts.iter().map(|of| (of.up_to_ms, of.requests)).collect();
        assert_eq!(counts, [(Some(1000.0), 2.0), (None, 1.0)]);
    }

    #[test]
    fn other_texts_are_none() {
        assert_eq!(ServerMetrics::parse("# nothing\nother_total 5\n"), None);
        assert_eq!(ServerMetrics::parse("vllm:num_requests_running nan\n"), None);
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "(vllm:|num_requests_running|time_to_first_token_seconds_bucket|\\{|\\}|le=\"|\"| |1e9|NaN|\n){0,40}") {
            let _ = ServerMetrics::parse(&text);
        }
    }
}

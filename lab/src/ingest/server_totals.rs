//! The totals that a server counts between two replies of `/metrics`, compared with what the rows of a capture add up to.

use std::collections::BTreeMap;

use serde::Serialize;

use super::kv_transfers::CopyLog;
use super::request::{RequestRow, RequestTrace};
use super::whole::Whole;
use crate::transfers::CopySums;

/// Counters that are read, summed over engines and labels, and the names of their totals.
///
/// # Source
/// vLLM 0.32; the estimates need `--enable-mfu-metrics`.
pub(super) const COUNTERS: [(&str, &str); 22] = [
    ("vllm:request_success_total", "requests"),
    ("vllm:prompt_tokens_total", "prompt_tokens"),
    ("vllm:prompt_tokens_cached_total", "cached_tokens"),
    ("vllm:generation_tokens_total", "output_tokens"),
    ("vllm:num_preemptions_total", "preemptions"),
    ("vllm:iteration_tokens_total_count", "steps"),
    ("vllm:prefix_cache_queries_total", "prefix_cache_queried_tokens"),
    ("vllm:prefix_cache_hits_total", "prefix_cache_hit_tokens"),
    ("vllm:external_prefix_cache_queries_total", "external_prefix_cache_queried_tokens"),
    ("vllm:external_prefix_cache_hits_total", "external_prefix_cache_hit_tokens"),
    ("vllm:kv_offload_store_size_count", "kv_stores"),
    ("vllm:kv_offload_store_bytes_total", "kv_store_bytes"),
    ("vllm:kv_offload_store_time_total", "kv_store_s"),
    ("vllm:kv_offload_load_size_count", "kv_loads"),
    ("vllm:kv_offload_load_bytes_total", "kv_load_bytes"),
    ("vllm:kv_offload_load_time_total", "kv_load_s"),
    ("vllm:estimated_flops_per_gpu_total", "estimated_flops_per_gpu"),
    ("vllm:estimated_read_bytes_per_gpu_total", "estimated_read_bytes_per_gpu"),
    ("vllm:estimated_write_bytes_per_gpu_total", "estimated_write_bytes_per_gpu"),
    ("vllm:request_queue_time_seconds_sum", "queue_wait_s"),
    ("vllm:time_to_first_token_seconds_sum", "ttft_s"),
    ("vllm:e2e_request_latency_seconds_sum", "e2e_s"),
];

/// The counters of one reply.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct MetricsReply {
    pub(super) file: String,
    pub(super) counters: BTreeMap<&'static str, f64>,
    pub(super) started_s: Option<f64>,
    /// Tokens of a KV block.
    pub(super) block_size: Option<u64>,
}

impl MetricsReply {
    /// What the same server replied when it started: every counter at 0.
    pub(super) fn at_start(&self) -> Self {
        let counters = self.counters.keys().map(|name| (*name, 0.0)).collect();
        MetricsReply { counters, ..self.clone() }
    }
}

#[cfg(test)]
impl MetricsReply {
    /// A reply with these counters.
    pub(crate) fn of(counters: &[(&'static str, f64)]) -> Self {
        MetricsReply { counters: counters.iter().copied().collect(), ..MetricsReply::default() }
    }
}

/// A total over the interval.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Total {
    /// Its name.
    pub name: &'static str,
    /// What the server counted between the two replies.
    pub server: f64,
    /// What the rows of the capture add up to; `None` where they do not say.
    pub rows: Option<f64>,
}

/// Returns the server's count of the total with this name.
pub(crate) fn counted(totals: &[Total], name: &str) -> Option<f64> {
    totals.iter().find(|total| total.name == name).map(|total| total.server)
}

/// Subtracts the earlier reply from the later one.
///
/// # Errors
/// Another number of replies than two; replies of a server that started again in between.
pub(crate) fn totals(
    snapshots: &[MetricsReply],
    requests: &[RequestTrace],
    steps: Option<u64>,
) -> std::result::Result<Vec<Total>, String> {
    let (first, second) = match snapshots {
        [] => return Ok(Vec::new()),
        [first, second] => (first, second),
        [one] => {
            return Err(format!(
                "{}: /metrics counts from the server's start: name the reply from before the run as well, or take all since the start (since_start)",
                one.file
            ));
        }
        [first, .., last] => {
            return Err(format!(
                "{} to {}: more than two replies of /metrics: name those before and after one run",
                first.file, last.file
            ));
        }
    };
    let is_later = |one: &MetricsReply, other: &MetricsReply| {
        one.counters.iter().all(|(name, value)| other.counters.get(name) <= Some(value))
    };
    let (before, after) = if is_later(second, first) { (first, second) } else { (second, first) };
    let is_same_start = before.started_s == after.started_s;
    if !is_later(after, before) || !is_same_start {
        return Err(format!("{} and {}: the server started again between the two replies", first.file, second.file));
    }
    let rows = |name: &str| {
        let sum = |of: fn(&RequestRow) -> Option<u64>| {
            let has_rows = requests.iter().any(|trace| !trace.requests.is_empty());
            requests.iter().map(|trace| trace.total(of)).sum::<Option<f64>>().filter(|_| has_rows)
        };
        match name {
            "requests" => sum(|_| Some(1)),
            "prompt_tokens" => sum(|row| row.num_prompt_tokens.map(Whole::get)),
            "cached_tokens" => sum(|row| row.num_cached_tokens.map(Whole::get)),
            "output_tokens" => sum(|row| row.num_output_tokens.map(Whole::get)),
            "preemptions" => sum(|row| row.num_preemptions.map(Whole::get)),
            "queue_wait_s" => sum(|row| row.scheduled_ns?.since(row.queued_ns?)).map(seconds),
            "ttft_s" => sum(|row| row.first_response_ns?.since(row.arrived_ns?)).map(seconds),
            "e2e_s" => sum(|row| row.departed_ns?.since(row.arrived_ns?)).map(seconds),
            "steps" => steps.map(|steps| steps as f64),
            _ => None,
        }
    };
    let total = |(_, name): (&str, &'static str)| {
        let server = after.counters.get(name)? - before.counters.get(name).copied().unwrap_or(0.0);
        Some(Total { name, server, rows: rows(name) })
    };
    Ok(COUNTERS.into_iter().filter_map(total).collect())
}

/// The copies of KV blocks among some totals, as one interval; `None` where there are none.
pub(super) fn copies(totals: &[Total]) -> Option<CopyLog> {
    let total = |name: &str| counted(totals, name).unwrap_or(0.0);
    let sums = |[count, bytes, seconds]: [&str; 3]| CopySums {
        count: total(count).round() as u64,
        bytes: total(bytes).round() as u64,
        seconds: total(seconds),
    };
    let sums = [["kv_stores", "kv_store_bytes", "kv_store_s"], ["kv_loads", "kv_load_bytes", "kv_load_s"]].map(sums);
    sums.iter().any(|of| of.count > 0).then(|| CopyLog { is_log: false, sums: sums.map(|of| vec![of]) })
}

fn seconds(ns: f64) -> f64 {
    ns / ridgepoint::units::NS_PER_S as f64
}

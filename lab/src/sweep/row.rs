//! One row of a sweep's result: a configuration and its metrics. Its columns are stable: columns are added, never renamed or dropped.

use ridgepoint::GenerationConfig;
use ridgepoint::dtype::MatmulFormat;
use ridgepoint_replay::{
    Distribution, EngineConfig, EngineCounters, Factors, Intervals, LoadState, OffloadCounters, Resource, RouterKind,
    SchedulingPolicy, StageMetrics,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Status of a configuration that cannot run.
pub(super) const CANNOT_RUN: &str = "cannot_run";
/// Status of a search whose lowest rate breaks a limit.
pub(super) const LOWEST_RATE_FAILS: &str = "lowest_rate_fails";

/// One configuration and its result; the columns are in the order of the fields. Latencies and rates are of finished requests, and
/// those of a search are at the rate that was found. `None` is an empty cell.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Row {
    /// Index in the grid, from 0.
    pub configuration: u64,
    /// `ok`; `cannot_run`; of a capacity also `lowest_rate_fails` and `highest_rate_holds`.
    pub status: String,
    /// Why it cannot run, or what its status means; empty if it is `ok`.
    pub reason: Option<String>,
    /// Model, by its own name.
    pub model: String,
    /// GPU, by its own name.
    pub hardware: String,
    /// GPUs used: tensor × pipeline × data parallel, of all replicas.
    pub gpus: u64,
    /// GPUs that share every layer's matrices.
    pub tensor_parallel_size: u64,
    /// Stages that share the layers.
    pub pipeline_parallel_size: u64,
    /// Ranks; one of them is replayed with its share of the load.
    pub data_parallel_size: u64,
    /// Servers that answer; empty in files of older versions.
    #[serde(default)]
    pub replicas: Option<u64>,
    /// Servers that compute their prompts; empty where each computes its own.
    #[serde(default)]
    pub prefill_replicas: Option<u64>,
    /// How requests are spread over them; empty of one.
    #[serde(default)]
    pub router: Option<RouterKind>,
    /// `tables`, or `ideal` for the textbook roofline.
    pub efficiency: String,
    /// Correction of the step times; empty without one.
    pub correction: Option<String>,
    /// The engine and version whose kernels and sampler are predicted; empty in files of older versions.
    #[serde(default)]
    pub serving_engine: String,
    /// Whole experts per GPU.
    pub enable_expert_parallel: bool,
    /// Requested format of the weights; empty is that of the checkpoint.
    pub precision: Option<MatmulFormat>,
    /// Format of the KV cache; `auto` is that of the checkpoint.
    pub kv_cache_dtype: String,
    /// Most requests in a step.
    pub max_num_seqs: u64,
    /// Most tokens in a step.
    pub max_num_batched_tokens: u64,
    /// Longest context, tokens.
    pub max_model_len: Option<u32>,
    /// Share of device memory that the engine may use.
    pub gpu_memory_utilization: f64,
    /// Tokens of a KV block.
    pub block_size: u64,
    /// Without CUDA graphs.
    pub enforce_eager: bool,
    /// Source of the default sampling parameters.
    pub generation_config: GenerationConfig,
    /// Whether equal beginnings of prompts are reused.
    pub enable_prefix_caching: Option<bool>,
    /// Whether prompts may be split over steps.
    pub enable_chunked_prefill: Option<bool>,
    /// Whether a step is scheduled while another one runs.
    pub async_scheduling: Option<bool>,
    /// Most tokens of a prompt in one step; 0 is no separate limit.
    pub long_prefill_token_threshold: Option<u32>,
    /// Whether a waiting request needs free blocks for all its tokens.
    pub scheduler_reserve_full_isl: Option<bool>,
    /// `fcfs` or `priority`.
    pub scheduling_policy: Option<SchedulingPolicy>,
    /// GiB of each GPU's weights on the host.
    pub cpu_offload_gb: f64,
    /// KV blocks of a replica, given or from the memory equation.
    pub num_gpu_blocks: Option<u32>,
    /// KV blocks of a replica in host memory; empty without a tier there.
    pub num_cpu_blocks: Option<u32>,
    /// Where the requests come from: `generated`, or a path.
    pub load: String,
    /// Requests per second over all replicas: requested, or the highest one found to hold the limits. Sessions per second if `turns` is
    /// given.
    pub request_rate_per_s: Option<f64>,
    /// The same per GPU.
    pub request_rate_per_s_per_gpu: Option<f64>,
    /// Shape of the gaps between requests; 1 is Poisson.
    pub burstiness: Option<f64>,
    /// Requests in flight over all replicas; sessions in progress if `turns` is given.
    pub concurrency: Option<u64>,
    /// Requests over all replicas; of a search, those of each long replay.
    pub num_requests: u64,
    /// Turns of each session; empty if the requests are no turns of generated sessions.
    pub turns: Option<u64>,
    /// Tokens that all generated prompts begin with.
    pub prefix_len_tokens: Option<u64>,
    /// Mean time between two turns of a session, s.
    pub think_time_s: Option<f64>,
    /// Prompt, on average, tokens; of generated requests, without a prefix and the turns before.
    pub input_len_tokens: f64,
    /// Output, on average, tokens.
    pub output_len_tokens: f64,
    /// Seed of arrivals and lengths.
    pub seed: u64,
    /// The limits.
    pub slo: Option<String>,
    /// The lowest rate found to break a limit, requests/s.
    pub fails_at_rate_per_s: Option<f64>,
    /// The limits that it breaks, with its values.
    pub limits_broken: Option<String>,
    /// Number of replays for this row.
    pub replays: u64,
    /// Requests of the replica that finished.
    pub finished: Option<u64>,
    /// Requests of the replica that were rejected because they are longer than `max_model_len`.
    pub rejected: Option<u64>,
    /// From the first arrival to the last finish, s.
    pub duration_s: Option<f64>,
    /// Finished requests over that time, all replicas together.
    pub requests_per_s: Option<f64>,
    /// Generated tokens over that time, all replicas together.
    pub output_tokens_per_s: Option<f64>,
    /// The same per GPU.
    pub output_tokens_per_s_per_gpu: Option<f64>,
    /// Time to first token, ms.
    pub ttft_mean_ms: Option<f64>,
    /// Its median.
    pub ttft_p50_ms: Option<f64>,
    /// Its 90th percentile.
    pub ttft_p90_ms: Option<f64>,
    /// Its 95th percentile.
    pub ttft_p95_ms: Option<f64>,
    /// Its 99th percentile.
    pub ttft_p99_ms: Option<f64>,
    /// Interval of the mean; empty if none is known, or none held on public runs of the engine.
    #[serde(default)]
    pub ttft_lower_ms: Option<f64>,
    /// Its upper end.
    #[serde(default)]
    pub ttft_upper_ms: Option<f64>,
    /// Time per output token of each request, ms.
    pub tpot_mean_ms: Option<f64>,
    /// Its median.
    pub tpot_p50_ms: Option<f64>,
    /// Its 90th percentile.
    pub tpot_p90_ms: Option<f64>,
    /// Its 95th percentile.
    pub tpot_p95_ms: Option<f64>,
    /// Its 99th percentile.
    pub tpot_p99_ms: Option<f64>,
    /// Interval of the mean, as of TTFT.
    #[serde(default)]
    pub tpot_lower_ms: Option<f64>,
    /// Its upper end.
    #[serde(default)]
    pub tpot_upper_ms: Option<f64>,
    /// Gap between two tokens of a request, ms.
    pub itl_mean_ms: Option<f64>,
    /// Its median.
    pub itl_p50_ms: Option<f64>,
    /// Its 90th percentile.
    pub itl_p90_ms: Option<f64>,
    /// Its 95th percentile.
    pub itl_p95_ms: Option<f64>,
    /// Its 99th percentile.
    pub itl_p99_ms: Option<f64>,
    /// From sending to the last token, ms.
    pub e2e_mean_ms: Option<f64>,
    /// Its median.
    pub e2e_p50_ms: Option<f64>,
    /// Its 90th percentile.
    pub e2e_p90_ms: Option<f64>,
    /// Its 95th percentile.
    pub e2e_p95_ms: Option<f64>,
    /// Its 99th percentile.
    pub e2e_p99_ms: Option<f64>,
    /// Steps of the replica.
    pub steps: Option<u64>,
    /// Preemptions of the replica.
    pub preemptions: Option<u64>,
    /// Most running requests of the replica.
    pub max_running: Option<u64>,
    /// Prompt tokens that the replica computed, those computed anew after a preemption included.
    pub prefill_tokens: Option<u64>,
    /// Share of the tokens looked up on the host that were loaded. Tokens that the GPU holds are not looked up.
    pub host_hit_share: Option<f64>,
    /// Share of the same tokens that the host had read from a disk.
    pub disk_hit_share: Option<f64>,
    /// Loads of KV blocks from the host.
    pub kv_loads: Option<u64>,
    /// Bytes of these loads, on each GPU.
    pub kv_load_bytes: Option<u64>,
    /// Stores of KV blocks on the host.
    pub kv_stores: Option<u64>,
    /// Bytes of these stores, on each GPU.
    pub kv_store_bytes: Option<u64>,
    /// Mean wait of a request that loads, ms.
    pub kv_load_wait_mean_ms: Option<f64>,
    /// Mean wait of a request for the disk, ms.
    pub kv_disk_wait_mean_ms: Option<f64>,
    /// Warnings, joined by `; `.
    pub warnings: Option<String>,
    /// Whether the server keeps up with its load: `load_state` is `keeps_up`. `None` for a load that is too short to judge.
    pub keeps_up: Option<bool>,
    /// `keeps_up`, `at_limit` or `overloaded`, by the trend of the queue; see
    /// [`Replay::queue_trend`](ridgepoint_replay::Replay::queue_trend). Of a rate that was found, over all seeds.
    pub load_state: Option<LoadState>,
    /// Seeds over which a rate was judged, from `seed` on; the latencies and rates of the row are means over them. Counts are those of the first.
    pub seeds: Option<u64>,
    /// Share of the steps' time whose kernels were measured on the GPU for shapes like theirs; empty of a search.
    #[serde(default)]
    pub measured_share: Option<f64>,
    /// The limit that a higher rate exceeds, by its key; `queue` if the server is overloaded before it exceeds one.
    pub binds: Option<String>,
    /// How far the figure of that limit is below it at the rate that was found, % of the limit.
    pub margin_pct: Option<f64>,
    /// The same of each limit: `ttft_p99_ms 2.1 %, itl_p99_ms 63.0 %`.
    pub margins: Option<String>,
    /// The resource behind what binds: `compute`, `bandwidth`, `links`, `host`, `latency` (kernels too short to fill the GPU), `kv_blocks`, or
    /// `queue` (`max_num_seqs` requests run).
    pub resource: Option<Resource>,
    /// All keys of the configuration in its grid, with their values.
    pub settings: String,
    /// Version of ridgepoint that the row was made with, and a hash of its built-in data.
    pub version: String,
}

/// Fields of a row with their names.
macro_rules! figures_of {
    ($row:ident: $($name:ident),+) => { [$((stringify!($name), $row.$name)),+] };
}

impl Row {
    /// Fills in the settings of the engine, defaults included.
    pub(super) fn set_engine(&mut self, engine: &EngineConfig) {
        self.num_gpu_blocks = Some(engine.num_gpu_blocks);
        self.num_cpu_blocks = engine.kv_offload.as_ref().map(|tier| tier.num_cpu_blocks);
        self.max_model_len = Some(engine.max_model_len);
        let scheduler = engine.scheduler;
        self.enable_prefix_caching = Some(scheduler.enable_prefix_caching);
        self.enable_chunked_prefill = Some(scheduler.enable_chunked_prefill);
        self.async_scheduling = Some(scheduler.async_scheduling);
        self.long_prefill_token_threshold = Some(scheduler.long_prefill_token_threshold);
        self.scheduler_reserve_full_isl = Some(scheduler.scheduler_reserve_full_isl);
        self.scheduling_policy = Some(scheduler.scheduling_policy);
    }

    /// Fills in the work of the tiers of a replica.
    pub(super) fn fill_tiers(&mut self, of: &OffloadCounters) {
        (self.host_hit_share, self.disk_hit_share) = (of.hit_share(), of.disk_hit_share());
        (self.kv_loads, self.kv_load_bytes) = (Some(of.loads.count), Some(of.loads.bytes));
        (self.kv_stores, self.kv_store_bytes) = (Some(of.stores.count), Some(of.stores.bytes));
        self.kv_load_wait_mean_ms = of.mean_load_wait_ms();
        self.kv_disk_wait_mean_ms = of.disk.and_then(|disk| disk.mean_wait_ms());
    }

    /// Fills in the intervals of the means, and the share of the steps' time whose kernels were measured.
    pub(super) fn fill_intervals(&mut self, of: &Intervals, measured_share: f64) {
        let bounds = |mean: Option<f64>, of: Option<Factors>| {
            mean.zip(of).map(|(mean, of)| (mean * of.lower_factor, mean * of.upper_factor)).unzip()
        };
        (self.ttft_lower_ms, self.ttft_upper_ms) = bounds(self.ttft_mean_ms, of.ttft);
        (self.tpot_lower_ms, self.tpot_upper_ms) = bounds(self.tpot_mean_ms, of.tpot);
        self.measured_share = Some(measured_share);
    }

    /// Fills in the result of a replay of one replica.
    pub(super) fn fill(&mut self, of: &StageMetrics, counters: &EngineCounters, state: Option<LoadState>) {
        let ranks = self.data_parallel_size as f64;
        self.finished = Some(of.finished);
        self.rejected = Some(of.rejected);
        self.duration_s = of.duration_s;
        self.requests_per_s = of.requests_per_s.map(|rate| rate * ranks);
        self.output_tokens_per_s = of.output_tokens_per_s.map(|rate| rate * ranks);
        self.output_tokens_per_s_per_gpu = self.output_tokens_per_s.map(|rate| rate / self.gpus as f64);
        [self.ttft_mean_ms, self.ttft_p50_ms, self.ttft_p90_ms, self.ttft_p95_ms, self.ttft_p99_ms] =
            figures(of.ttft_ms);
        [self.tpot_mean_ms, self.tpot_p50_ms, self.tpot_p90_ms, self.tpot_p95_ms, self.tpot_p99_ms] =
            figures(of.tpot_ms);
        [self.itl_mean_ms, self.itl_p50_ms, self.itl_p90_ms, self.itl_p95_ms, self.itl_p99_ms] = figures(of.itl_ms);
        [self.e2e_mean_ms, self.e2e_p50_ms, self.e2e_p90_ms, self.e2e_p95_ms, self.e2e_p99_ms] = figures(of.e2e_ms);
        self.steps = Some(counters.steps);
        self.preemptions = Some(counters.preemptions);
        self.max_running = Some(u64::from(counters.max_running));
        self.prefill_tokens = Some(counters.prefill_tokens);
        self.set_state(state);
    }

    /// GPUs of each server that shares the load.
    pub fn gpus_per_server(&self) -> u64 {
        self.gpus / (self.replicas.unwrap_or(1) + self.prefill_replicas.unwrap_or(0)).max(1)
    }

    /// Sets the state of the server.
    pub(super) fn set_state(&mut self, state: Option<LoadState>) {
        self.load_state = state;
        self.keeps_up = state.map(|state| state == LoadState::KeepsUp);
    }

    /// The row of the first seed with the latencies and rates of all; `None` of no rows.
    pub(super) fn mean_of<'a>(rows: impl Iterator<Item = &'a Row>) -> Option<Row> {
        let all: Vec<Value> = rows.filter_map(|row| serde_json::to_value(row).ok()).collect();
        let mut mean = all.first()?.clone();
        for (key, value) in mean.as_object_mut()? {
            let is_figure = key.ends_with("_ms") || (key.contains("_per_s") && !key.contains("rate_per_s"));
            if is_figure && value.is_number() {
                let sum: f64 = all.iter().filter_map(|row| row.get(key)?.as_f64()).sum();
                *value = (sum / all.len() as f64).into();
            }
        }
        serde_json::from_value(mean).ok()
    }

    /// Adds warnings.
    pub(super) fn warn(&mut self, notes: impl IntoIterator<Item = String>) {
        let all: Vec<String> = self.warnings.take().into_iter().chain(notes).collect();
        self.warnings = (!all.is_empty()).then(|| all.join("; "));
    }

    /// The first figure that no replay gives: not finite, negative or beyond 10¹⁵.
    pub(super) fn impossible(&self) -> Option<(&'static str, f64)> {
        let figures = figures_of!(self:
            request_rate_per_s, request_rate_per_s_per_gpu, burstiness, think_time_s, fails_at_rate_per_s, margin_pct, duration_s,
            requests_per_s, output_tokens_per_s, output_tokens_per_s_per_gpu, ttft_mean_ms, ttft_p50_ms, ttft_p90_ms,
            ttft_p95_ms, ttft_p99_ms, ttft_lower_ms, ttft_upper_ms, tpot_lower_ms, tpot_upper_ms, measured_share, tpot_mean_ms, tpot_p50_ms, tpot_p90_ms, tpot_p95_ms, tpot_p99_ms, itl_mean_ms, itl_p50_ms, itl_p90_ms,
            itl_p95_ms, itl_p99_ms, e2e_mean_ms, e2e_p50_ms, e2e_p90_ms, e2e_p95_ms, e2e_p99_ms, host_hit_share, disk_hit_share, kv_load_wait_mean_ms,
            kv_disk_wait_mean_ms
        );
        let given = figures.into_iter().filter_map(|(name, value)| Some((name, value?)));
        given.into_iter().find(|(_, value)| !(0.0..=1e15).contains(value))
    }

    /// Sets the rate over all replicas.
    pub(super) fn set_rate(&mut self, rate_per_s: Option<f64>) {
        self.request_rate_per_s = rate_per_s;
        self.request_rate_per_s_per_gpu = rate_per_s.map(|rate| rate / self.gpus as f64);
    }
}

fn figures(of: Option<Distribution>) -> [Option<f64>; 5] {
    [of.map(|of| of.mean), of.map(|of| of.p50), of.map(|of| of.p90), of.map(|of| of.p95), of.map(|of| of.p99)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_digit_survives_being_written_and_read() {
        // The middle one is the classic that a fast but inexact reader gets wrong.
        for number in [0.1 + 0.2, 31.245270191439438, 5e-324, 123_456_789.123_456_78] {
            let row = Row { ttft_mean_ms: Some(number), ..Row::default() };
            let back: Row = serde_json::from_str(&serde_json::to_string(&row).unwrap()).unwrap();
            assert_eq!(back.ttft_mean_ms.unwrap().to_bits(), number.to_bits());
        }
    }
}

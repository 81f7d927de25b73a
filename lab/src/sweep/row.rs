//! One line of a sweep's result: a configuration, and what clients and engine saw of it. Its columns are stable: columns are
//! added, never renamed or dropped. Uses the replay's metrics.

use serde::{Deserialize, Serialize};

use ridgepoint::replay::{Distribution, EngineCounters, StageMetrics};

/// What stands in a cell; `None` is an empty one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Cell<'a> {
    /// A text.
    Text(Option<&'a str>),
    /// A whole number.
    Count(Option<u64>),
    /// A number.
    Number(Option<f64>),
    /// True or false.
    Switch(Option<bool>),
}

trait AsCell {
    fn cell(&self) -> Cell<'_>;
}

macro_rules! cells {
    ($($of:ty => $cell:expr),* $(,)?) => {
        $(impl AsCell for $of {
            fn cell(&self) -> Cell<'_> {
                let cell: fn(&$of) -> Cell<'_> = $cell;
                cell(self)
            }
        })*
    };
}

cells! {
    String => |text| Cell::Text(Some(text)),
    Option<String> => |text| Cell::Text(text.as_deref()),
    u64 => |count| Cell::Count(Some(*count)),
    Option<u64> => |count| Cell::Count(*count),
    f64 => |number| Cell::Number(Some(*number)),
    Option<f64> => |number| Cell::Number(*number),
    bool => |switch| Cell::Switch(Some(*switch)),
    Option<bool> => |switch| Cell::Switch(*switch),
}

macro_rules! columns {
    ($($(#[doc = $doc:literal])+ $name:ident: $of:ty,)+) => {
        /// One configuration and what came of it. Latencies and rates are of finished requests, and empty where there is
        /// nothing to say; those of a capacity are at the rate that was found.
        #[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct Row {
            $($(#[doc = $doc])+ pub $name: $of,)+
        }

        impl Row {
            /// The columns, in order.
            pub const COLUMNS: &'static [&'static str] = &[$(stringify!($name)),+];

            /// What stands in each column.
            pub fn cells(&self) -> Vec<Cell<'_>> {
                vec![$(self.$name.cell()),+]
            }
        }
    };
}

columns! {
    /// Position in the grid, from 0.
    configuration: u64,
    /// `ok`; `cannot_run`; of a capacity also `lowest_rate_fails` and `highest_rate_holds`.
    status: String,
    /// Why it can't run, or what its status means; empty where it is `ok`.
    reason: Option<String>,
    /// Model, by its own name.
    model: String,
    /// GPU, by its own name.
    hardware: String,
    /// GPUs used: tensor × pipeline × data parallel.
    gpus: u64,
    /// GPUs that share every layer's matrices.
    tensor_parallel_size: u64,
    /// Stages that share the layers.
    pipeline_parallel_size: u64,
    /// Replicas; one of them is replayed with its share of the load.
    data_parallel_size: u64,
    /// `tables`, or `ideal` for the textbook roofline.
    efficiency: String,
    /// Correction of the step times; empty without one.
    correction: Option<String>,
    /// Whole experts per GPU.
    enable_expert_parallel: bool,
    /// How the weights were asked to be stored; empty is as the checkpoint has them.
    precision: Option<String>,
    /// Format of the KV cache; `auto` is what the checkpoint asks for.
    kv_cache_dtype: String,
    /// Most requests in a step.
    max_num_seqs: u64,
    /// Most tokens in a step.
    max_num_batched_tokens: u64,
    /// Longest context, tokens.
    max_model_len: Option<u64>,
    /// Share of device memory that the engine may use.
    gpu_memory_utilization: f64,
    /// Tokens of a KV block.
    block_size: u64,
    /// No CUDA graphs.
    enforce_eager: bool,
    /// Where sampling parameters come from.
    generation_config: String,
    /// Reuse of equal beginnings of prompts.
    enable_prefix_caching: Option<bool>,
    /// Prompts may be split over steps.
    enable_chunked_prefill: Option<bool>,
    /// A step is scheduled while another runs.
    async_scheduling: Option<bool>,
    /// Most tokens of a prompt in one step; 0 is no limit of its own.
    long_prefill_token_threshold: Option<u64>,
    /// `fcfs` or `priority`.
    scheduling_policy: Option<String>,
    /// GiB of each GPU's weights on the host.
    cpu_offload_gb: f64,
    /// KV blocks of a replica, given or from the memory equation.
    num_gpu_blocks: Option<u64>,
    /// Where the requests come from: `generated`, or a path.
    load: String,
    /// Requests per second over all replicas: asked for, or the highest found to hold.
    request_rate_per_s: Option<f64>,
    /// The same per GPU.
    request_rate_per_s_per_gpu: Option<f64>,
    /// Shape of the gaps between requests; 1 is Poisson.
    burstiness: Option<f64>,
    /// Requests in flight over all replicas.
    concurrency: Option<u64>,
    /// Requests over all replicas.
    num_requests: u64,
    /// Prompt, on average, tokens.
    input_len_tokens: f64,
    /// Output, on average, tokens.
    output_len_tokens: f64,
    /// Seed of arrivals and lengths.
    seed: u64,
    /// Limits that must hold.
    slo: Option<String>,
    /// The lowest rate that was found to break a limit, requests/s.
    fails_at_rate_per_s: Option<f64>,
    /// The limits that it breaks.
    limits_broken: Option<String>,
    /// Replays that the row took.
    replays: u64,
    /// Requests of the replica that finished.
    finished: Option<u64>,
    /// Requests of the replica that were refused, as they are longer than `max_model_len`.
    rejected: Option<u64>,
    /// From the first arrival to the last finish, s.
    duration_s: Option<f64>,
    /// Finished requests over that time, all replicas together.
    requests_per_s: Option<f64>,
    /// Generated tokens over that time, all replicas together.
    output_tokens_per_s: Option<f64>,
    /// The same per GPU.
    output_tokens_per_s_per_gpu: Option<f64>,
    /// Time to first token, ms.
    ttft_mean_ms: Option<f64>,
    /// Its median.
    ttft_p50_ms: Option<f64>,
    /// Its 90th percentile.
    ttft_p90_ms: Option<f64>,
    /// Its 99th percentile.
    ttft_p99_ms: Option<f64>,
    /// Time per output token of each request, ms.
    tpot_mean_ms: Option<f64>,
    /// Its median.
    tpot_p50_ms: Option<f64>,
    /// Its 90th percentile.
    tpot_p90_ms: Option<f64>,
    /// Its 99th percentile.
    tpot_p99_ms: Option<f64>,
    /// Gap between two tokens of a request, ms.
    itl_mean_ms: Option<f64>,
    /// Its median.
    itl_p50_ms: Option<f64>,
    /// Its 90th percentile.
    itl_p90_ms: Option<f64>,
    /// Its 99th percentile.
    itl_p99_ms: Option<f64>,
    /// From sending to the last token, ms.
    e2e_mean_ms: Option<f64>,
    /// Its median.
    e2e_p50_ms: Option<f64>,
    /// Its 90th percentile.
    e2e_p90_ms: Option<f64>,
    /// Its 99th percentile.
    e2e_p99_ms: Option<f64>,
    /// Steps of the replica.
    steps: Option<u64>,
    /// Preemptions of the replica.
    preemptions: Option<u64>,
    /// Most requests in the replica's running queue.
    max_running: Option<u64>,
    /// What deserves a second look, joined by `; `.
    warnings: Option<String>,
}

impl Row {
    /// Fills in what a replay of one of the row's replicas showed.
    pub(super) fn fill(&mut self, of: &StageMetrics, counters: &EngineCounters) {
        let replicas = self.data_parallel_size as f64;
        self.finished = Some(of.finished);
        self.rejected = Some(of.rejected);
        self.duration_s = of.duration_s;
        self.requests_per_s = of.requests_per_s.map(|rate| rate * replicas);
        self.output_tokens_per_s = of.output_tokens_per_s.map(|rate| rate * replicas);
        self.output_tokens_per_s_per_gpu = self.output_tokens_per_s.map(|rate| rate / self.gpus as f64);
        [self.ttft_mean_ms, self.ttft_p50_ms, self.ttft_p90_ms, self.ttft_p99_ms] = figures(of.ttft_ms);
        [self.tpot_mean_ms, self.tpot_p50_ms, self.tpot_p90_ms, self.tpot_p99_ms] = figures(of.tpot_ms);
        [self.itl_mean_ms, self.itl_p50_ms, self.itl_p90_ms, self.itl_p99_ms] = figures(of.itl_ms);
        [self.e2e_mean_ms, self.e2e_p50_ms, self.e2e_p90_ms, self.e2e_p99_ms] = figures(of.e2e_ms);
        self.steps = Some(counters.steps);
        self.preemptions = Some(counters.preemptions);
        self.max_running = Some(u64::from(counters.max_running));
    }

    /// Sets the rate, over all replicas.
    pub(super) fn set_rate(&mut self, rate_per_s: f64) {
        self.request_rate_per_s = Some(rate_per_s);
        self.request_rate_per_s_per_gpu = Some(rate_per_s / self.gpus as f64);
    }
}

fn figures(of: Option<Distribution>) -> [Option<f64>; 4] {
    [of.map(|of| of.mean), of.map(|of| of.p50), of.map(|of| of.p90), of.map(|of| of.p99)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_stand_in_the_order_of_the_columns_and_of_the_json() {
        let row = Row { configuration: 7, warnings: Some("w".to_owned()), ttft_p99_ms: Some(2.5), ..Row::default() };
        let cells = row.cells();
        assert_eq!(cells.len(), Row::COLUMNS.len());
        assert_eq!((cells[0], cells[cells.len() - 1]), (Cell::Count(Some(7)), Cell::Text(Some("w"))));
        let at = Row::COLUMNS.iter().position(|name| *name == "ttft_p99_ms").unwrap();
        assert_eq!(cells[at], Cell::Number(Some(2.5)));
        let json = serde_json::to_string(&row).unwrap();
        let places: Vec<usize> = Row::COLUMNS.iter().map(|name| json.find(&format!("\"{name}\":")).unwrap()).collect();
        assert!(places.is_sorted(), "{json}");
        assert_eq!(serde_json::from_str::<Row>(&json).unwrap(), row);
    }

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

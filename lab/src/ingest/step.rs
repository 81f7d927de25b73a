//! Steps of a real engine as records, whatever trace they come from, and the run that they belong to.

#![expect(clippy::indexing_slicing, reason = "the position is that of a value that was found or added")]

use std::collections::HashMap;
use std::hash::Hash;

use ridgepoint::Request;
use ridgepoint::latency::Queues;
use serde::{Deserialize, Serialize};

/// Most tokens of a kind in a step, scheduled or cached. No engine has a thousandth of it, and sums of steps fit 64 bits.
const MAX_STEP_TOKENS: u64 = 1 << 40;

/// The labels of one run, in the order of the tables' first columns. `None` means that the trace does not say; nothing is
/// guessed from names.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct Run {
    /// Name of the run.
    #[serde(default)]
    pub experiment: String,
    /// Model, by built-in name, Hugging Face id or path of its config.
    pub model: Option<String>,
    /// GPU, by built-in name or path.
    pub hardware: Option<String>,
    /// GPUs that share every layer.
    pub tensor_parallel_size: Option<u32>,
    /// Name of the workload.
    pub workload: Option<String>,
    /// Version of the serving engine.
    pub engine_version: Option<String>,
    /// vLLM's flag, which decides the captured CUDA graphs.
    pub max_num_seqs: Option<u32>,
    /// vLLM's flag.
    pub max_num_batched_tokens: Option<u32>,
}

impl Run {
    /// The same run with labels of another one where it has none itself.
    #[must_use]
    pub fn or(self, other: &Run) -> Run {
        Run {
            experiment: if self.experiment.is_empty() { other.experiment.clone() } else { self.experiment },
            model: self.model.or_else(|| other.model.clone()),
            hardware: self.hardware.or_else(|| other.hardware.clone()),
            tensor_parallel_size: self.tensor_parallel_size.or(other.tensor_parallel_size),
            workload: self.workload.or_else(|| other.workload.clone()),
            engine_version: self.engine_version.or_else(|| other.engine_version.clone()),
            max_num_seqs: self.max_num_seqs.or(other.max_num_seqs),
            max_num_batched_tokens: self.max_num_batched_tokens.or(other.max_num_batched_tokens),
        }
    }
}

/// One iteration of the engine, as its scheduler put it together. The aliases are attributes of `step.BATCH_SUMMARY`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct StepRecord {
    /// Number of the step in its engine's life; consecutive steps have consecutive numbers.
    #[serde(alias = "step.id")]
    pub step_id: u64,
    /// Start on the engine's monotonic clock, ns. It is 0 throughout a trace without a clock, whose steps have `gpu_time_us`.
    #[serde(alias = "step.ts_start_ns")]
    pub start_ns: u64,
    /// Requests with a prefill chunk in the step.
    #[serde(alias = "batch.num_prefill_reqs")]
    pub num_prefill_requests: u32,
    /// Requests that decode in the step.
    #[serde(alias = "batch.num_decode_reqs")]
    pub num_decode_requests: u32,
    /// Tokens of prefill chunks.
    #[serde(alias = "batch.prefill_tokens")]
    pub prefill_tokens: u64,
    /// Tokens of decodes.
    #[serde(alias = "batch.decode_tokens")]
    pub decode_tokens: u64,
    /// Cached tokens of the prefilling requests before the step.
    pub prefill_kv_tokens: Option<u64>,
    /// Cached tokens of the decoding requests before the step.
    pub decode_kv_tokens: Option<u64>,
    /// Running requests.
    #[serde(alias = "queue.running_depth")]
    pub num_running: Option<u32>,
    /// Waiting requests.
    #[serde(alias = "queue.waiting_depth")]
    pub num_waiting: Option<u32>,
    /// Requests that finished in the step.
    #[serde(alias = "batch.num_finished")]
    pub num_finished: Option<u32>,
    /// Requests preempted in the step.
    #[serde(alias = "batch.num_preempted")]
    pub num_preempted: Option<u32>,
    /// KV blocks of a GPU.
    #[serde(alias = "kv.blocks_total_gpu")]
    pub kv_blocks_total: Option<u64>,
    /// Free KV blocks of a GPU. Cached blocks that no running request uses count as free.
    #[serde(alias = "kv.blocks_free_gpu")]
    pub kv_blocks_free: Option<u64>,
    /// Time of the forward pass on the GPU, µs, where the engine measured it (forward-pass metrics).
    pub gpu_time_us: Option<f64>,
    /// Share of the KV blocks that is in use, where the trace says that instead of counting them.
    #[serde(default, alias = "kv.usage_gpu_ratio")]
    pub kv_usage_ratio: Option<f64>,
    /// Preempted requests that the step schedules again, where the run's requests report them.
    #[serde(skip)]
    pub num_resumed: Option<u32>,
    /// Every request of the step, where the trace has snapshots of them.
    #[serde(skip)]
    pub requests: Option<Vec<Request>>,
}

impl StepRecord {
    /// The requests that the engine's thread takes time for; 0 where the trace does not count them.
    pub fn queues(&self) -> Queues {
        let StepRecord { num_running, num_waiting, num_preempted, num_resumed, .. } = *self;
        let [num_running, num_waiting, num_preempted, num_resumed] =
            [num_running, num_waiting, num_preempted, num_resumed].map(Option::unwrap_or_default);
        Queues { num_running, num_waiting, num_preempted, num_resumed }
    }

    /// Whether the step schedules nothing.
    pub fn is_empty(&self) -> bool {
        self.prefill_tokens == 0 && self.decode_tokens == 0
    }

    /// KV blocks in use, where the trace reports them.
    pub fn kv_blocks_used(&self) -> Option<u64> {
        self.kv_blocks_total?.checked_sub(self.kv_blocks_free?)
    }

    /// Share of the KV blocks that is in use, where the trace reports it.
    pub fn kv_ratio(&self) -> Option<f64> {
        let counted = || Some(self.kv_blocks_used()? as f64 / self.kv_blocks_total.filter(|total| *total > 0)? as f64);
        counted().or(self.kv_usage_ratio)
    }

    /// Tokens that the requests of the step have in the cache, where the trace reports them.
    pub fn kv_tokens(&self) -> Option<u64> {
        if let Some(requests) = &self.requests {
            return Some(requests.iter().map(|request| u64::from(request.num_computed_tokens)).sum());
        }
        let of = |requests: u32, tokens: Option<u64>| if requests == 0 { Some(0) } else { tokens };
        let prefills = of(self.num_prefill_requests, self.prefill_kv_tokens)?;
        Some(prefills.saturating_add(of(self.num_decode_requests, self.decode_kv_tokens)?))
    }
}

/// A run's steps, sorted by number, none twice.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct StepTrace {
    /// The run.
    pub run: Run,
    /// Its steps.
    pub steps: Vec<StepRecord>,
}

impl StepTrace {
    /// Whether the engine timed forward passes; otherwise times are periods between starts of steps.
    pub fn is_timed(&self) -> bool {
        self.steps.iter().any(|step| step.gpu_time_us.is_some())
    }
}

/// The time from the start of a sampled step to the start of the next sampled one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interval {
    /// Index of its first step in the trace. Its other steps were not sampled.
    pub first: usize,
    /// Number of steps in it: the difference of the two step numbers, at least 1.
    pub steps: u64,
    /// Duration, µs. For a step whose forward pass the engine timed, that time.
    pub span_us: f64,
}

impl Interval {
    /// Returns the mean time of a step in the interval, µs.
    pub fn period_us(&self) -> f64 {
        self.span_us / self.steps as f64
    }
}

/// One value per key, in the order in which the keys were first met.
#[derive(Debug, Default)]
pub(super) struct ByKey<K, T> {
    pub(super) values: Vec<T>,
    places: HashMap<K, usize>,
}

/// One value per run.
pub(super) type ByRun<T> = ByKey<Run, T>;

impl<K: Clone + Eq + Hash, T> ByKey<K, T> {
    /// Returns the value of a key; `first` makes it when the key is first met.
    pub(super) fn of(&mut self, key: K, first: impl FnOnce(K) -> T) -> &mut T {
        let at = *self.places.entry(key).or_insert_with_key(|key| {
            self.values.push(first(key.clone()));
            self.values.len() - 1
        });
        &mut self.values[at]
    }
}

/// The attribute that follows from others.
#[derive(Deserialize)]
pub(super) struct Sum {
    #[serde(rename = "batch.scheduled_tokens")]
    scheduled_tokens: Option<u64>,
}

/// Attributes of `step.BATCH_SUMMARY` whose fields [`contradiction`] names, with these fields.
const ATTRIBUTES: [(&str, &str); 4] = [
    ("kv_usage_ratio", "kv.usage_gpu_ratio"),
    ("prefill_tokens", "batch.prefill_tokens"),
    ("decode_tokens", "batch.decode_tokens"),
    ("kv_blocks_free", "kv.blocks_free_gpu"),
];

/// Returns an attribute that contradicts another one, and what is expected of it.
pub(super) fn attribute_contradiction(step: &StepRecord, sum: &Sum) -> Option<(&'static str, String)> {
    if let Some((field, expected)) = contradiction(step) {
        let attribute = ATTRIBUTES.into_iter().find(|(known, _)| *known == field);
        return Some((attribute.map_or(field, |(_, attribute)| attribute), expected));
    }
    let StepRecord { prefill_tokens, decode_tokens, .. } = *step;
    sum.scheduled_tokens.filter(|sum| Some(*sum) != prefill_tokens.checked_add(decode_tokens))?;
    let expected = format!("the sum of {prefill_tokens} prefill and {decode_tokens} decode tokens");
    Some(("batch.scheduled_tokens", expected))
}

/// Returns the field of a step that contradicts another one or that no engine reaches, and what is expected of it.
pub(super) fn contradiction(step: &StepRecord) -> Option<(&'static str, String)> {
    for (name, tokens, requests) in [
        ("prefill_tokens", step.prefill_tokens, step.num_prefill_requests),
        ("decode_tokens", step.decode_tokens, step.num_decode_requests),
    ] {
        if tokens < u64::from(requests) || (requests == 0 && tokens > 0) {
            return Some((name, format!("at least one for each of {requests} requests, else 0")));
        }
    }
    for (name, tokens) in [
        ("prefill_tokens", Some(step.prefill_tokens)),
        ("decode_tokens", Some(step.decode_tokens)),
        ("prefill_kv_tokens", step.prefill_kv_tokens),
        ("decode_kv_tokens", step.decode_kv_tokens),
    ] {
        if tokens.is_some_and(|tokens| tokens > MAX_STEP_TOKENS) {
            return Some((name, format!("at most {MAX_STEP_TOKENS} tokens")));
        }
    }
    if step.kv_usage_ratio.is_some_and(|ratio| !(0.0..=1.0).contains(&ratio)) {
        return Some(("kv_usage_ratio", "from 0 to 1".to_owned()));
    }
    let total = step.kv_blocks_total.filter(|total| step.kv_blocks_free.is_some_and(|free| free > *total))?;
    Some(("kv_blocks_free", format!("at most {total}, the number of blocks")))
}

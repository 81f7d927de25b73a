//! Steps of a real engine as records, whatever trace they come from. Uses `request`.

use ridgepoint::Request;

/// What all rows of one run share. Absent is absent: nothing is guessed from names.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Run {
    /// Name of the run.
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
    /// vLLM's flag; decides which CUDA graphs are captured.
    pub max_num_seqs: Option<u32>,
    /// vLLM's flag.
    pub max_num_batched_tokens: Option<u32>,
}

/// One iteration of the engine, as its scheduler put it together.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct StepRecord {
    /// Number of the step in its engine's life; consecutive steps have consecutive numbers.
    pub step_id: u64,
    /// Start on the engine's monotonic clock, ns; 0 throughout a trace without a clock, whose steps have `gpu_time_us`.
    pub start_ns: u64,
    /// Requests with a prompt chunk in the step.
    pub num_prefill_requests: u32,
    /// Requests that decode in the step.
    pub num_decode_requests: u32,
    /// Tokens of prompt chunks.
    pub prefill_tokens: u64,
    /// Tokens of decodes.
    pub decode_tokens: u64,
    /// Tokens in the cache under the prompt chunks before the step, where known.
    pub prefill_kv_tokens: Option<u64>,
    /// Tokens in the cache under the decodes before the step, where known.
    pub decode_kv_tokens: Option<u64>,
    /// Requests being processed.
    pub num_running: Option<u32>,
    /// Requests that wait.
    pub num_waiting: Option<u32>,
    /// Requests that ended with the step.
    pub num_finished: Option<u32>,
    /// Requests preempted in the step.
    pub num_preempted: Option<u32>,
    /// KV blocks of a GPU.
    pub kv_blocks_total: Option<u64>,
    /// KV blocks of a GPU that are free. Cached blocks that no running request uses count as free.
    pub kv_blocks_free: Option<u64>,
    /// Time of the forward pass on the GPU, where the engine measured it (forward-pass metrics), µs.
    pub gpu_time_us: Option<f64>,
    /// Every request of the step, where the trace has snapshots of them.
    pub requests: Option<Vec<Request>>,
}

/// A run's steps in the order of their numbers, none twice.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct StepTrace {
    /// The run.
    pub run: Run,
    /// Its steps.
    pub steps: Vec<StepRecord>,
}

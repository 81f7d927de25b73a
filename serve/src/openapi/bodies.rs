//! What bodies of requests may have, as types that are described and never made: the routes read keys one by one, so that they can name
//! every fault. Tests hold the two together.
#![allow(dead_code, reason = "these types are described and never made")]

use schemars::generate::SchemaGenerator;
use schemars::{JsonSchema, Schema, json_schema};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::ServerKeysSchema;

/// How steps are predicted.
#[derive(JsonSchema)]
pub struct Prediction {
    /// Kernel efficiencies: measured tables, or the textbook roofline. Defaults to the tables.
    efficiency: Option<Efficiency>,
    /// Correction fitted to engine runs. Defaults to the recommended one.
    correction: Option<Correction>,
    /// Engine whose kernels are looked up. Defaults to vLLM.
    engine: Option<EngineName>,
    /// Its version, such as 0.24.
    engine_version: Option<String>,
}

#[derive(JsonSchema)]
#[schemars(rename_all = "snake_case")]
enum Efficiency {
    Tables,
    Ideal,
}

#[derive(JsonSchema)]
#[serde(untagged)]
enum Spread {
    Given(#[schemars(range(min = 0, max = 1))] f64),
    OfCorrection(OfCorrection),
}

#[derive(JsonSchema)]
#[schemars(rename_all = "snake_case")]
enum OfCorrection {
    Correction,
}

#[derive(JsonSchema)]
#[schemars(rename_all = "snake_case")]
enum Correction {
    Auto,
    Global,
    None,
}

#[derive(JsonSchema)]
#[schemars(rename_all = "lowercase")]
enum EngineName {
    Vllm,
    Sglang,
    Trtllm,
}

/// Keys of a server that no flag of the command has.
#[derive(JsonSchema)]
struct OtherKeys {
    /// Number format of the weights of a model that is named, such as fp8. Defaults to that of the checkpoint.
    precision: Option<String>,
    /// 16-bit format of activations: auto, half, float16 or bfloat16.
    dtype: Option<String>,
}

/// The batch of a step: `requests`, or `prefill` and `decode`.
#[derive(JsonSchema)]
pub struct Step {
    /// The requests of the batch.
    requests: Option<Vec<BatchRequest>>,
    /// Prefill chunks, as in 2x512@1024: two chunks of 512 tokens, each after 1,024 computed ones.
    prefill: Option<Vec<String>>,
    /// Decodes, as in 64x2048: 64 requests of one new token, each after 2,048 computed ones.
    decode: Option<Vec<String>>,
    /// Explain what limits the slowest operators and what would speed them up.
    explain: Option<bool>,
}

/// A request of a batch.
#[derive(JsonSchema)]
struct BatchRequest {
    /// Tokens in the KV cache before the step.
    num_computed_tokens: u32,
    /// Tokens that the step processes.
    #[schemars(range(min = 1))]
    num_scheduled_tokens: u32,
    /// Whether the step ends with a token for the request. Defaults to true.
    samples: Option<bool>,
    /// Sampling parameters that the request sets itself, such as temperature and top_p.
    sampling_params: Option<Map<String, Value>>,
}

/// The load of a replay: one of `request_rate`, `concurrency`, `requests` and `profile`.
#[derive(JsonSchema)]
pub struct Load {
    /// Requests per second at random times. With `turns`, sessions that start per second.
    request_rate: Option<f64>,
    /// Requests in flight. With `turns`, sessions at once.
    #[schemars(range(min = 1))]
    concurrency: Option<u32>,
    /// Requests with their times and lengths, as in a list of requests.
    requests: Option<Vec<Map<String, Value>>>,
    /// A load profile of inference-perf.
    profile: Option<Map<String, Value>>,
    /// Number of requests. Defaults to ten for each in flight.
    #[schemars(range(min = 1))]
    num_requests: Option<u64>,
    /// Prompt tokens of each request. With `turns`, new tokens of each turn, behind the turns before.
    #[schemars(range(min = 1))]
    input_len: Option<u32>,
    /// Tokens that each request generates.
    #[schemars(range(min = 1))]
    output_len: Option<u32>,
    /// Shape of the gamma distribution of the gaps between requests; 1 is Poisson.
    burstiness: Option<f64>,
    /// Turns of each session, which continue each other. Without it, requests are single.
    #[schemars(range(min = 1))]
    turns: Option<u32>,
    /// Number of sessions, with `turns`. Defaults to ten for each at once.
    #[schemars(range(min = 1))]
    num_sessions: Option<u64>,
    /// Tokens at the beginning of every prompt, before `input_len`, that all requests and sessions share. Defaults to 0.
    prefix_len: Option<u32>,
    /// Mean of the exponential time from the end of a turn to the next, s. Defaults to 0.
    #[schemars(range(min = 0))]
    think_time_s: Option<f64>,
    /// Seed of everything random. Defaults to 0.
    seed: Option<u64>,
    /// Standard deviation of the logarithm of a random factor on each step's time, or that of the correction.
    noise: Option<Spread>,
    /// Add quantiles of latencies and the queue over time.
    series: Option<bool>,
    /// Add KV metrics: lives of blocks, hits by tier and prefix group, and the price of hashing and looking up.
    kv_metrics: Option<bool>,
    /// Another name of `concurrency`.
    #[schemars(range(min = 1))]
    max_concurrency: Option<u32>,
    /// Another name of `input_len`.
    #[schemars(range(min = 1))]
    random_input_len: Option<u32>,
    /// Another name of `output_len`.
    #[schemars(range(min = 1))]
    random_output_len: Option<u32>,
    /// Another name of `prefix_len`.
    random_prefix_len: Option<u32>,
    /// Another name of `num_requests`.
    #[schemars(range(min = 1))]
    num_prompts: Option<u64>,
}

/// No keys beside those of the server.
#[derive(JsonSchema)]
pub struct Nothing {}

/// A grid, whose keys may have one value or a list of them.
#[derive(JsonSchema)]
pub struct Grid {
    /// The servers: `model`, `hardware` and vLLM's engine arguments.
    server: Map<String, Value>,
    /// The loads: `request_rate_per_s` or `concurrency`, `input_len_tokens`, `output_len_tokens`, `num_requests`, `burstiness`, `seed`.
    load: Map<String, Value>,
    /// Limits under which the highest rate is looked for, such as `ttft_p99_ms`.
    slo: Option<Map<String, Value>>,
}

/// Measured runs with predictions beside.
#[derive(JsonSchema, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measured {
    /// Where the runs were published.
    source: String,
    /// The command whose result this is.
    command: String,
    /// The runs.
    pub runs: Vec<MeasuredRun>,
}

/// A measured run.
#[derive(JsonSchema, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MeasuredRun {
    /// Name of the run.
    name: String,
    /// Model, by its own name.
    model: String,
    /// GPU, by its own name.
    hardware: String,
    /// GPUs that share every layer's matrices.
    tensor_parallel_size: u32,
    /// Mean lengths of the requests.
    workload: String,
    /// Means and percentiles of latencies.
    pub metrics: Vec<MeasuredMetric>,
}

/// A metric of a measured run.
#[derive(JsonSchema, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MeasuredMetric {
    /// Its name: e2e, ttft or itl with _mean, _p90 or _p99.
    metric: String,
    /// As it was measured, ms.
    pub measured_ms: f64,
    /// As it is predicted, ms.
    pub predicted_ms: f64,
    /// Lower end of the 90 % interval, ms.
    lower_ms: Option<f64>,
    /// Upper end of the 90 % interval, ms.
    upper_ms: Option<f64>,
}

/// The properties of a type whose schema is an object.
pub fn properties<T: JsonSchema>(types: &mut SchemaGenerator) -> Map<String, Value> {
    properties_of(T::json_schema(types))
}

fn properties_of(mut schema: Schema) -> Map<String, Value> {
    match schema.remove("properties") {
        Some(Value::Object(properties)) => properties,
        _ => Map::new(),
    }
}

/// The body of a route that has the keys of a server, of its prediction and of `T`.
pub fn server_body<T: JsonSchema>(
    types: &mut SchemaGenerator,
    server_keys: ServerKeysSchema,
    example: Value,
) -> Schema {
    let mut keys = properties_of(server_keys(types));
    keys.extend(properties::<OtherKeys>(types));
    keys.extend(properties::<Prediction>(types));
    keys.extend(properties::<T>(types));
    let description = "A built-in name or a Hugging Face id, or an object as in the model's config.json.";
    keys.insert("model".to_owned(), name_or_object(description));
    let description = "A built-in name, or an object as in a hardware file, or figures over a known GPU's as in {\"h100\": {\"memory_gb\": 64}}.";
    keys.insert("hardware".to_owned(), name_or_object(description));
    let blocks = json!({
        "description": "Number of KV blocks, or auto for the memory equation.",
        "anyOf": [{"type": "integer", "minimum": 1, "maximum": u32::MAX}, {"const": "auto"}, {"type": "null"}],
    });
    keys.insert("num_gpu_blocks_override".to_owned(), blocks);
    let object_or_text = |description: &str| json!({"description": description, "anyOf": [{"type": "object"}, {"type": "string"}, {"type": "null"}]});
    let connector = "vLLM's OffloadingConnector as an object or its JSON, in place of kv_offloading_size.";
    keys.insert("kv_transfer_config".to_owned(), object_or_text(connector));
    let sampling = "Sampling parameters in place of those of generation_config, as an object or its JSON.";
    keys.insert("override_generation_config".to_owned(), object_or_text(sampling));
    object(keys, &["model", "hardware"], example)
}

/// The body of a sweep.
pub fn sweep_body(types: &mut SchemaGenerator) -> Schema {
    let mut keys = properties::<Grid>(types);
    keys.extend(properties::<Prediction>(types));
    let example = json!({
        "server": {"model": "llama-3.1-8b", "hardware": ["h100", "l4"], "max_model_len": 4096},
        "load": {"request_rate_per_s": [2, 8], "input_len_tokens": 300, "output_len_tokens": 20, "num_requests": 100},
    });
    object(keys, &["server", "load"], example)
}

fn name_or_object(description: &str) -> Value {
    json!({"description": description, "anyOf": [{"type": "string", "minLength": 1}, {"type": "object"}]})
}

fn object(properties: Map<String, Value>, required: &[&str], example: Value) -> Schema {
    json_schema!({
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": false,
        "examples": [example],
    })
}

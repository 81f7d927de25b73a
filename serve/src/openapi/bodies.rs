//! The schemas of request bodies. Arguments are described by their rows, which readers follow too; the batch of a step and the sections of
//! a grid by schema-only types, which are never constructed.
#![allow(dead_code, reason = "schema-only types are never constructed")]

use ridgepoint::arguments::{ArgumentRows, ArgumentSupport};
use ridgepoint_lab::prediction::prediction_arguments;
use ridgepoint_replay::server_config::server_arguments;
use schemars::generate::SchemaGenerator;
use schemars::{JsonSchema, Schema, json_schema};
use serde::Deserialize;
use serde_json::{Map, Value, json};

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

/// A grid, whose keys may have one value or a list of them.
#[derive(JsonSchema)]
pub struct Grid {
    /// The servers: `model`, `hardware` and vLLM's engine arguments. The model and the GPU are named, or one of each is described as in
    /// `/v1/simulate`.
    server: Map<String, Value>,
    /// The loads: `request_rate` or `concurrency`, `input_len`, `output_len`, `num_requests`, `burstiness`, `seed`.
    load: Map<String, Value>,
    /// Limits under which the highest rate is looked for, such as `ttft_p99_ms`.
    slo: Option<Map<String, Value>>,
}

/// Measured runs with their predictions.
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
    /// The engine and its minor version.
    engine: String,
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

/// The body of a route that has the arguments of a server and of its prediction, and keys of its own.
pub fn server_body(own: Map<String, Value>, example: Value) -> Schema {
    let mut keys = schemas(&server_arguments());
    keys.extend(schemas(&prediction_arguments()));
    keys.extend(own);
    let description = "A built-in name or a Hugging Face id, or an object as in the model's config.json.";
    keys.insert("model".to_owned(), name_or_object(description));
    let description = "A built-in name, or an object as in a hardware file, or figures over a known GPU's as in {\"h100\": {\"memory_gb\": 64}}.";
    keys.insert("hardware".to_owned(), name_or_object(description));
    keys.insert(
        "correction".to_owned(),
        json!({
            "description": "Correction fitted to engine runs. Defaults to auto, the recommended one.",
            "enum": ["auto", "global", "none", null],
        }),
    );
    object(keys, &["model", "hardware"], example)
}

/// The schemas of the modelled arguments among some rows, under all their names. A value may be null, which counts as absent.
pub fn schemas(rows: &ArgumentRows) -> Map<String, Value> {
    let modelled = rows.iter().filter(|row| row.support == ArgumentSupport::Modelled);
    let named = modelled.flat_map(|row| std::iter::once(&row.name).chain(row.aliases).map(move |name| (*name, row)));
    named.map(|(name, row)| (name.to_owned(), or_null(row.schema()))).collect()
}

/// A schema that allows null, too.
fn or_null(mut schema: Value) -> Value {
    for (key, absent) in [("type", json!("null")), ("enum", Value::Null), ("anyOf", json!({"type": "null"}))] {
        match schema.get_mut(key) {
            Some(Value::Array(list)) => list.push(absent),
            Some(one) => *one = Value::Array(vec![one.take(), absent]),
            None => {}
        }
    }
    schema
}

/// The body of a sweep.
pub fn sweep_body(types: &mut SchemaGenerator) -> Schema {
    let mut keys = properties::<Grid>(types);
    keys.extend(schemas(&prediction_arguments()));
    let example = json!({
        "server": {"model": "llama-3.1-8b", "hardware": ["h100", "l4"], "max_model_len": 4096},
        "load": {"request_rate": [2, 8], "input_len": 300, "output_len": 20, "num_requests": 100},
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

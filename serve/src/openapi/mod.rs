//! `GET /openapi.json`: the description of the API, generated from the types that are written and from those in `bodies`.

mod bodies;
#[cfg(test)]
mod tests;

use ridgepoint::step_report::StepReport;
use schemars::generate::{SchemaGenerator, SchemaSettings};
use schemars::{JsonSchema, Schema};
use serde_json::{Map, Value, json};

use crate::catalogue::{Health, Version};
use crate::kv_capacity::KvCapacityAnswer;
use crate::problem::ErrorBody;
use crate::simulate::SimulationAnswer;
use crate::support::Support;
use crate::sweep::SweepAnswer;
use bodies::{Measured, server_body};
use ridgepoint_lab::argument_report::ArgumentReport;
use ridgepoint_lab::hardware_report::HardwareReport;
use ridgepoint_lab::model_report::ModelReport;

/// The description of the API.
pub fn document() -> Value {
    let mut types = SchemaSettings::draft2020_12()
        .with(|settings| settings.definitions_path = "/components/schemas".into())
        .for_serialize()
        .into_generator();
    let paths = paths(&mut types);
    let mut schemas = Value::Object(types.take_definitions(true));
    shorten(&mut schemas);
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "ridgepoint",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "How long one step of an LLM serving engine takes, and what the clients of a server see. The answers are \
                            those of the command with --format json; docs/serve.md describes the limits.",
            "license": {"name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0"},
        },
        "security": [{}, {"token": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer", "description": "Wanted where the server was given a token."},
            },
            "schemas": schemas,
        },
    })
}

fn paths(types: &mut SchemaGenerator) -> Map<String, Value> {
    let (error, health) = (error(types), answer::<Health>(types));
    let healthz = json!({
        "operationId": "healthz", "summary": "Whether the server answers", "security": [{}], "responses": {"200": health},
    });
    let figures = json!({"application/openmetrics-text; version=1.0.0; charset=utf-8": {"schema": {"type": "string"}}});
    let metrics = json!({
        "operationId": "metrics", "summary": "Counts and durations for Prometheus",
        "responses": {"200": {"description": "The figures", "content": figures}, "401": error},
    });
    let server = json!({"model": "llama-3.1-8b", "hardware": "h100"});
    let step = json!({
        "model": "llama-3.1-8b", "hardware": "h100", "decode": ["64x2048"], "prefill": ["512@1024"],
    });
    let load = json!({
        "model": "llama-3.1-8b", "hardware": "h100", "request_rate": 8, "num_requests": 200, "input_len": 800, "output_len": 50,
    });
    let model = ("A built-in name or a Hugging Face id, whose slash may stay as it is", "llama-3.1-8b");
    let gpu = ("A built-in name or an alias", "h100");

    let text = "The release, and a hash of the built-in data";
    let version = reading::<Version>(types, "version", text, None);
    let text = "The models, with sizes and corrections";
    let models = reading::<ModelReport>(types, "models", text, None);
    let text = "One model, with the share of one GPU";
    let model = reading::<ModelReport>(types, "model", text, Some(model));
    let text = "The GPUs, with their figures and sources";
    let hardware = reading::<HardwareReport>(types, "hardware", text, None);
    let gpu = reading::<HardwareReport>(types, "gpu", "One GPU with its tables", Some(gpu));
    let text = "What can be said of servers, predictions and loads";
    let arguments = reading::<ArgumentReport>(types, "arguments", text, None);
    let support = reading::<Support>(types, "support", "What is known of each model on each GPU", None);
    let text = "Measured runs of public servers with their predictions";
    let measured = reading::<Measured>(types, "measured", text, None);

    let own = bodies::properties::<bodies::Step>(types);
    let body = server_body(own, step);
    let text = "Predict the time of one step, operator by operator";
    let step = computing::<StepReport<'static>>(types, "predictStep", text, &body);
    let body = server_body(load_keys(), load);
    let load = computing::<SimulationAnswer>(types, "simulate", "Replay a load on a server", &body);
    let body = bodies::sweep_body(types);
    let text = "Replay a grid of servers and loads, or find the highest rate of each server that meets limits";
    let grid = computing::<SweepAnswer>(types, "sweep", text, &body);
    let body = server_body(Map::new(), server);
    let text = "The memory equation of a server, also of one that does not fit";
    let capacity = computing::<KvCapacityAnswer>(types, "kvCapacity", text, &body);
    let paths = [
        ("/healthz", "get", healthz),
        ("/metrics", "get", metrics),
        ("/v1/version", "get", version),
        ("/v1/models", "get", models),
        ("/v1/models/{name}", "get", model),
        ("/v1/hardware", "get", hardware),
        ("/v1/hardware/{name}", "get", gpu),
        ("/v1/arguments", "get", arguments),
        ("/v1/support", "get", support),
        ("/v1/measured", "get", measured),
        ("/v1/predict-step", "post", step),
        ("/v1/simulate", "post", load),
        ("/v1/sweep", "post", grid),
        ("/v1/kv-capacity", "post", capacity),
    ];
    paths.into_iter().map(|(path, method, operation)| (path.to_owned(), json!({ method: operation }))).collect()
}

/// The keys of a load. A list of requests and a profile are given in place.
fn load_keys() -> Map<String, Value> {
    let mut keys = bodies::schemas(&crate::simulate::arguments());
    for (name, kind, description) in [
        ("requests", "array", "Requests with their times and lengths, as in a list of requests."),
        ("profile", "object", "A load profile of inference-perf."),
    ] {
        let items = json!({"type": "object"});
        let schema = if kind == "array" {
            json!({"type": [kind, "null"], "items": items})
        } else {
            json!({"type": [kind, "null"]})
        };
        let Value::Object(mut schema) = schema else { continue };
        schema.insert("description".to_owned(), description.into());
        keys.insert(name.to_owned(), Value::Object(schema));
    }
    keys
}

/// Describes a GET route. `name` is the description and an example of the name in its path, if it has one.
fn reading<T: JsonSchema>(types: &mut SchemaGenerator, id: &str, summary: &str, name: Option<(&str, &str)>) -> Value {
    let mut responses = responses::<T>(types, &["400", "401", "421", "500", "503"]);
    let parameter = name.map(|(description, example)| {
        responses.insert("404".to_owned(), error(types));
        json!({
            "name": "name", "in": "path", "required": true, "description": description, "example": example,
            "schema": {"type": "string", "minLength": 1},
        })
    });
    let parameters: Vec<Value> = parameter.into_iter().collect();
    json!({"operationId": id, "summary": summary, "parameters": parameters, "responses": responses})
}

/// An operation that computes something from a body.
fn computing<T: JsonSchema>(types: &mut SchemaGenerator, id: &str, summary: &str, body: &Schema) -> Value {
    let responses =
        responses::<T>(types, &["400", "401", "403", "408", "413", "415", "421", "422", "500", "503", "504"]);
    let body = json!({"required": true, "content": {"application/json": {"schema": body}}});
    json!({"operationId": id, "summary": summary, "requestBody": body, "responses": responses})
}

fn responses<T: JsonSchema>(types: &mut SchemaGenerator, errors: &[&str]) -> Map<String, Value> {
    let mut responses: Map<String, Value> = errors.iter().map(|status| ((*status).to_owned(), error(types))).collect();
    responses.insert("200".to_owned(), answer::<T>(types));
    responses
}

fn answer<T: JsonSchema>(types: &mut SchemaGenerator) -> Value {
    json!({"description": "The result", "content": {"application/json": {"schema": types.subschema_for::<T>()}}})
}

fn error(types: &mut SchemaGenerator) -> Value {
    json!({"description": "The error", "content": {"application/json": {"schema": types.subschema_for::<ErrorBody>()}}})
}

/// Cuts descriptions before the sections and examples that are for readers of the source.
fn shorten(value: &mut Value) {
    match value {
        Value::Object(map) => {
            if let Some(Value::String(text)) = map.get_mut("description") {
                let end = ["\n#", "\n\n#", "```"].iter().filter_map(|mark| text.find(mark)).min();
                text.truncate(end.unwrap_or(text.len()));
                text.truncate(text.trim_end().len());
            }
            map.values_mut().for_each(shorten);
        }
        Value::Array(list) => list.iter_mut().for_each(shorten),
        _ => {}
    }
}

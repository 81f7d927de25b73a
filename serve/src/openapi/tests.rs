//! Tests that the description is that of the routes.

use std::collections::BTreeSet;

use super::bodies::{Measured, Step, properties};
use super::*;
use crate::predict;

fn keys<T: JsonSchema>() -> BTreeSet<String> {
    properties::<T>(&mut SchemaSettings::draft2020_12().into_generator()).into_iter().map(|(key, _)| key).collect()
}

fn names<const N: usize>(of: [&str; N]) -> BTreeSet<String> {
    of.map(str::to_owned).into_iter().collect()
}

#[test]
fn the_described_keys_are_those_that_are_read() {
    assert_eq!(keys::<Step>(), names(predict::KEYS));
    let body = |route: &str| {
        let body = &document()["paths"][route]["post"]["requestBody"]["content"]["application/json"]["schema"];
        body["properties"].as_object().unwrap().clone()
    };
    let load = body("/v1/simulate");
    for key in ["tensor_parallel_size", "tp", "efficiency", "max_concurrency", "noise", "precision", "requests"] {
        assert!(load.contains_key(key), "{key}");
    }
    assert!(!load.contains_key("requests_format") && !load.contains_key("enable_lora"));
    assert!(!body("/v1/kv-capacity").contains_key("input_len"));
    assert_eq!(load["engine"]["enum"], json!(["vllm", "sglang", "trtllm", null]));
    assert_eq!(load["max_num_seqs"]["minimum"], json!(1));
    assert_eq!(load["max_num_seqs"]["type"], json!(["integer", "null"]));
}

#[test]
fn every_reference_is_met_and_every_route_described() {
    let document = document();
    let text = document.to_string();
    for reference in text.split("\"$ref\":\"").skip(1) {
        let name = reference.split('"').next().unwrap().strip_prefix("#/components/schemas/").unwrap();
        assert!(document["components"]["schemas"].get(name).is_some(), "{name}");
    }
    let paths = document["paths"].as_object().unwrap();
    for route in crate::routes::names() {
        let is_described = paths.contains_key(&route.replace("{*name}", "{name}"));
        let is_file = matches!(route, "/" | "/{*file}" | "/openapi.json" | "/v1/{*unknown}");
        assert_eq!(is_described, !is_file, "{route}");
    }
    assert!(!text.contains("```") && !text.contains("# Errors"));
    let step = &document["components"]["schemas"]["StepReport"]["properties"];
    assert!(step["step_time_us"]["description"].as_str().unwrap().contains("µs"), "{step}");
}

#[test]
fn the_measured_runs_are_as_described() {
    let measured: Measured = serde_json::from_str(include_str!("../measured.json")).unwrap();
    assert_eq!(measured.runs.len(), 13);
    let metrics = measured.runs.iter().flat_map(|run| &run.metrics);
    assert!(metrics.clone().all(|metric| metric.measured_ms > 0.0 && metric.predicted_ms > 0.0));
    assert_eq!(metrics.count(), 13 * 7);
}

//! Reads the text of a server's file into a checked [`ServerConfig`]; one error lists all problems.

use ridgepoint::arguments::Given;
use ridgepoint::input::{Keys, Log};
use ridgepoint::{Deployment, Error, Result};
use serde_json::{Map, Value};

use super::arguments::server_arguments;
use super::{KvOffloading, KvTransfersSource, ServerConfig};
use crate::SchedulerOptions;
use crate::input::parse_yaml;

pub(super) fn parse(origin: &str, text: &str, over: &Map<String, Value>) -> Result<ServerConfig> {
    match parse_yaml(origin, text)? {
        Value::Object(map) => from_map(origin, &map, over),
        Value::Null => Err(Error::parse(origin, "is empty: a server has at least `model` and `hardware`")),
        _ => Err(Error::parse(origin, "must be keys with values, as in `model: llama-3.1-8b`")),
    }
}

/// Reads the arguments of `map`, with those of `over` instead of the same ones.
pub(super) fn from_map(origin: &str, map: &Map<String, Value>, over: &Map<String, Value>) -> Result<ServerConfig> {
    let log = Log::default();
    let rows = server_arguments();
    let mut map = rows.without(map, over);
    for (replaced, by) in [("cpu_offload", "cpu_offload_gb"), ("precision", "model")] {
        if rows.names(over).any(|name| name == by) {
            map.retain(|key, _| rows.name_of(key) != Some(replaced));
        }
    }
    map.extend(over.clone());
    let given = rows.read("", &map, &log);
    let server = read(origin, &given, &log);
    let (mut server, notes) = log.finish(origin, server)?;
    server.notes = notes;
    Ok(server)
}

/// Takes a server from values that were read; `None` only after a problem.
fn read(origin: &str, given: &Given, log: &Log) -> Option<ServerConfig> {
    let keys = given.keys(log);
    let mut deployment = Deployment::checked(given, log);
    deployment.cpu_offload_gb = cpu_offload_gb(&keys, deployment.cpu_offload_gb);
    let (kv_offloading, kv_transfers) = (KvOffloading::read(given, &keys), KvTransfersSource::read(&keys));
    let (model, hardware): (Option<String>, Option<String>) = (given.get("model"), given.get("hardware"));
    let server = ServerConfig::new(origin, &model?, &hardware?);
    Some(ServerConfig {
        deployment,
        precision: given.get("precision"),
        scheduler: SchedulerOptions::from_given(given),
        given: given.values().keys().cloned().collect(),
        num_gpu_blocks_override: given.get("num_gpu_blocks_override"),
        kv_offloading,
        kv_transfers,
        ..server
    })
}

/// Reads the size of the offloaded weights. `cpu_offload` is a switch without a size in published experiments, and a size
/// in GiB elsewhere.
fn cpu_offload_gb(keys: &Keys<'_>, given_gb: f64) -> f64 {
    let size = |value: &Value| value.as_f64().filter(|gb| *gb >= 0.0);
    let sized = keys.has("cpu_offload_gb").then_some(given_gb);
    // A switch that is on has no size.
    let switched = keys.read("cpu_offload", "true, false or a number of GiB", |value| match value {
        Value::Bool(true) => Some(None),
        Value::Bool(false) => Some(Some(0.0)),
        other => size(other).map(Some),
    });
    match (switched, sized) {
        (Some(Some(one)), Some(other)) if one.total_cmp(&other).is_ne() => {
            keys.problem("cpu_offload", "contradicts cpu_offload_gb: keep one");
        }
        (Some(None), None) => keys.log.note(
            "cpu_offload = true has no size: all weights and KV blocks are assumed on the GPU; give cpu_offload_gb for weights on the host, kv_offloading_size for KV blocks",
        ),
        _ => {}
    }
    sized.or(switched.flatten()).unwrap_or(0.0)
}

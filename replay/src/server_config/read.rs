//! Reads the text of a server's file into a checked [`ServerConfig`]; one error lists all problems.

use std::path::Path;

use ridgepoint::arguments::{ArgumentRows, Given, Kind, spelled};
use ridgepoint::input::{FileKind, Keys, Log, check, object_or_text, read_text};
use ridgepoint::unstable::error::cut;
use ridgepoint::{Deployment, Engine, Error, Result};
use serde_json::{Map, Value};

use super::arguments::{ENGINE, arguments_of, take_foreign};
use super::launch_text::{Launched, in_manifest, in_script};
use super::shell_variables::variable_of;
use super::trtllm_arguments::with_dotted_keys;
use super::{Beside, KvOffloading, KvTransfersSource, ServerConfig, Speculative};
use crate::input::parse_yaml;
use crate::{SchedulerOptions, SglangOptions, TrtllmOptions};

pub(super) fn parse(origin: &str, text: &str, beside: &Beside) -> Result<ServerConfig> {
    let value = match (in_script(text), parse_yaml(origin, text)) {
        (Some(launched), value) if value.as_ref().map_or(true, is_script) => {
            return of_launch(origin, launched, beside);
        }
        (_, value) => value?,
    };
    match value {
        Value::Object(map) => match in_manifest(&map).filter(|_| !map.contains_key("model")) {
            Some(launched) => of_launch(origin, launched, beside),
            None => from_map(origin, &map, beside),
        },
        Value::Null => Err(Error::parse(origin, "is empty: a server has at least `model` and `hardware`")),
        _ => Err(Error::parse(origin, "must be keys with values, as in `model: llama-3.1-8b`")),
    }
}

/// Whether what YAML makes of a text that starts a server is no manifest: its keys would be words of the command.
fn is_script(yaml: &Value) -> bool {
    match yaml {
        Value::Object(map) => map.keys().any(|key| key.contains(' ')),
        _ => true,
    }
}

/// Flags of a file with more arguments, of all engines.
const FILES: [&str; 2] = ["config", "extra_llm_api_options"];

/// Takes the file of arguments that a command names, and reads it: vLLM's and SGLang's give what the command does not, TensorRT-LLM's
/// comes before the command. A path is relative to the current folder, or to that of the command's file.
///
/// # Errors
/// A file that cannot be read, or is not YAML of keys and values.
fn take_file(origin: &str, launched: &mut Launched, rows: &ArgumentRows) -> Result<()> {
    let is_file = |key: &&String| FILES.contains(&spelled(key).as_str());
    let Some(key) = launched.arguments.keys().find(is_file).cloned() else { return Ok(()) };
    let Some(Value::String(name)) = launched.arguments.remove(&key) else { return Ok(()) };
    if let Some(variable) = variable_of(&name) {
        let problem = format!("{key} = {} has the shell variable {variable}: write the path of the file", cut(&name));
        return Err(Error::invalid(origin, vec![problem]));
    }
    let path = Path::new(&name);
    let beside = Path::new(origin).parent().map(|folder| folder.join(path));
    let path = beside.filter(|beside| !path.exists() && beside.exists()).unwrap_or_else(|| path.to_owned());
    let file = path.display().to_string();
    let found = match parse_yaml(&file, &read_text(FileKind::ServerConfig, &path)?)? {
        Value::Object(map) => map,
        Value::Null => Map::new(),
        _ => return Err(Error::parse(file, "must be keys with values, as in `max_batch_size: 512`")),
    };
    let of_line = std::mem::take(&mut launched.arguments);
    let is_trtllm = launched.engine.is_trtllm();
    let found = if is_trtllm { with_dotted_keys(&found) } else { found };
    let (first, second) = if is_trtllm { (found, of_line) } else { (of_line, found) };
    launched.arguments = rows.without(&second, &first);
    launched.arguments.extend(first);
    Ok(())
}

/// Reads the arguments of the command that starts a server.
fn of_launch(origin: &str, mut launched: Launched, beside: &Beside) -> Result<ServerConfig> {
    let rows = arguments_of(&launched.engine);
    launched.arguments = with_objects(launched.arguments, &rows);
    take_file(origin, &mut launched, &rows)?;
    let beside = &Beside { engine: launched.engine.clone(), ..beside.clone() };
    let whole = |name: String| match rows.name_of(&name) {
        None => rows.name_of_flag(&name).map_or(name, str::to_owned),
        Some(_) => name,
    };
    let arguments: Map<String, Value> =
        launched.arguments.into_iter().map(|(name, value)| (whole(name), value)).collect();
    // A flag beside the script may have the value.
    let left = rows.without(&arguments, &beside.over);
    let modelled = rows.modelled_names();
    let unset = left.iter().filter_map(|(key, value)| {
        let name = rows.name_of(key).filter(|name| modelled.contains(name))?;
        let (value, variable) = (value.as_str()?, variable_of(value.as_str()?)?);
        let (value, flag) = (cut(value), name.replace('_', "-"));
        Some(format!("{name} = {value} has the shell variable {variable}: write its value, or give --{flag}"))
    });
    check(origin, unset.collect())?;
    let mut server = from_map(origin, &arguments, beside)?;
    server.notes.extend(launched.notes);
    server.engine = Some(launched.engine);
    Ok(server)
}

/// Returns the keys of a source with the dotted ones of an argument that is an object, as `speculative_config.method`, within that object.
/// Arguments that are nested in an object without a row of its own, as those of `compilation_config`, keep their dotted names.
///
/// # Source
/// vLLM, `FlexibleArgumentParser` (`vllm/utils/argparse_utils.py`): a value is JSON, or a text where it is none.
fn with_objects(map: Map<String, Value>, rows: &ArgumentRows) -> Map<String, Value> {
    let object_of = |key: &str| {
        let (object, nested) = key.split_once('.')?;
        let name = rows.name_of(object).filter(|_| rows.iter().all(|row| !row.is_named(&spelled(key))))?;
        let is_object = rows.iter().any(|row| row.name == name && matches!(row.kind, Kind::Any | Kind::Object(_)));
        is_object.then(|| (name, nested.to_owned()))
    };
    let (dotted, mut whole): (Map<String, Value>, _) = map.into_iter().partition(|(key, _)| object_of(key).is_some());
    for (key, value) in dotted {
        let Some((name, path)) = object_of(&key) else { continue };
        let same = whole.keys().find(|key| rows.name_of(key) == Some(name)).cloned();
        let object = same.as_ref().and_then(|same| whole.get(same)).map_or(Some(Map::new()), object_or_text);
        let Some(mut object) = object else {
            // What is no object contradicts its keys.
            whole.insert(key, value);
            continue;
        };
        let value = match value {
            Value::String(text) => serde_json::from_str(&text).unwrap_or(Value::String(text)),
            other => other,
        };
        put(&mut object, &path, value);
        whole.insert(same.unwrap_or_else(|| name.to_owned()), Value::Object(object));
    }
    whole
}

/// Sets the value at a path of keys, as `a.b`.
fn put(object: &mut Map<String, Value>, path: &str, value: Value) {
    match path.split_once('.') {
        None => drop(object.insert(path.to_owned(), value)),
        Some((first, rest)) => {
            let mut nested = object.get(first).and_then(Value::as_object).cloned().unwrap_or_default();
            put(&mut nested, rest, value);
            object.insert(first.to_owned(), Value::Object(nested));
        }
    }
}

/// Arguments of the text that one beside it replaces, with that one.
const REPLACED: [(&str, &str); 5] = [
    ("cpu_offload", "cpu_offload_gb"),
    ("precision", "model"),
    ("as_family", "model"),
    ("acceptance_length", "acceptance_rates"),
    ("acceptance_rates", "acceptance_length"),
];

/// Reads the arguments of `map` and those beside it.
pub(super) fn from_map(origin: &str, map: &Map<String, Value>, beside: &Beside) -> Result<ServerConfig> {
    let named = beside.over.get(ENGINE).or_else(|| map.get(ENGINE)).and_then(Value::as_str);
    let named = named.and_then(|name| Engine::parse(name, None));
    let beside = &Beside { engine: named.clone().unwrap_or_else(|| beside.engine.clone()), ..beside.clone() };
    let (log, over) = (Log::default(), &beside.over);
    let map = if beside.engine.is_trtllm() { with_dotted_keys(map) } else { map.clone() };
    let rows = arguments_of(&beside.engine);
    let map = &with_objects(map, &rows);
    let mut map = rows.without(map, over);
    for (replaced, by) in REPLACED {
        if rows.names(over).any(|name| name == by) {
            map.retain(|key, _| rows.name_of(key) != Some(replaced));
        }
    }
    map.extend(over.clone());
    let mut under = rows.without(&beside.under, &map);
    // Even `auto` instead of the blocks says that their number is not the one of the log.
    if rows.names(&map).any(|name| name == "num_gpu_blocks_override") {
        under.remove("kv_cache_tokens");
    } else if rows.names(&map).any(|name| name == "kv_cache_tokens") {
        under.remove("num_gpu_blocks_override");
    }
    map.extend(under);
    take_foreign(&mut map, &beside.engine, &rows).into_iter().for_each(|problem| log.problem(problem));
    let given = rows.read("", &map, &log);
    let server = read(origin, &given, &beside.engine, &log);
    let (mut server, notes) = log.finish(origin, server)?;
    (server.notes, server.engine) = (notes, named);
    Ok(server)
}

/// Takes a server from values that were read; `None` only after a problem.
fn read(origin: &str, given: &Given, engine: &Engine, log: &Log) -> Option<ServerConfig> {
    let keys = given.keys(log);
    let mut deployment = Deployment::checked(given, log);
    share_attention(given, &keys, &mut deployment);
    deployment.cpu_offload_gb = cpu_offload_gb(&keys, deployment.cpu_offload_gb);
    let (kv_offloading, kv_transfers) = (KvOffloading::read(given, &keys), KvTransfersSource::read(&keys));
    let speculative = Speculative::read(given, &keys, engine);
    if given.has("num_draft_tokens") {
        keys.problem("num_draft_tokens", "is that of speculative_config: give it alone");
    }
    deployment.num_draft_tokens = speculative.as_ref().map_or(0, Speculative::num_draft_tokens);
    let (model, hardware): (Option<String>, Option<String>) = (given.get("model"), given.get("hardware"));
    let server = ServerConfig::new(origin, &model?, &hardware?);
    Some(ServerConfig {
        deployment,
        precision: given.get("precision"),
        quantization: given.get("quantization"),
        as_family: given.get("as_family"),
        scheduler: SchedulerOptions::from_given(given),
        sglang: SglangOptions::from_given(given),
        trtllm: TrtllmOptions::from_given(given),
        given: given.values().keys().cloned().collect(),
        num_gpu_blocks_override: given.get("num_gpu_blocks_override"),
        kv_cache_tokens: given.get("kv_cache_tokens"),
        kv_offloading,
        kv_transfers,
        speculative,
        ..server
    })
}

/// Divides the GPUs that share every layer into replicas of the attention part, as SGLang's and TensorRT-LLM's switches do.
///
/// # Source
/// SGLang 0.5.9, `compute_dp_attention_world_info` (`layers/dp_attention.py`), which divides `max_running_requests`, too; TensorRT-LLM 1.2,
/// `Mapping.enable_attention_dp`.
fn share_attention(given: &Given, keys: &Keys<'_>, deployment: &mut Deployment) {
    let gpus = deployment.tensor_parallel_size;
    if given.get("enable_attention_dp") == Some(true) {
        (deployment.tensor_parallel_size, deployment.data_parallel_size) = (1, gpus);
    }
    if given.get("enable_dp_attention") == Some(true) {
        let replicas = deployment.data_parallel_size;
        if !gpus.is_multiple_of(replicas) {
            keys.problem(
                "enable_dp_attention",
                format_args!("divides tp_size = {gpus} by dp_size = {replicas}: give sizes that divide"),
            );
            return;
        }
        deployment.tensor_parallel_size = gpus / replicas;
        if given.has("max_num_seqs") {
            deployment.max_num_seqs = (deployment.max_num_seqs / replicas).max(1);
        }
    }
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

//! The server that Helm values describe in keys of their own: those of vLLM's production stack and of llm-d's modelservice.

use serde_json::{Map, Value};

use ridgepoint::Engine;

use super::launch_text::{Launched, arguments, words_of};

/// llm-d's names of the parallel sizes of a pool.
///
/// # Source
/// llm-d-modelservice, `values.yaml`: `decode.parallelism`.
const PARALLELISM: [(&str, &str); 3] =
    [("tensor", "tensor_parallel_size"), ("data", "data_parallel_size"), ("pipeline", "pipeline_parallel_size")];
/// Keys of the production stack's `vllmConfig` that choose how the chart starts vLLM.
const OF_CHART: [&str; 2] = ["v1", "extraArgs"];

/// Returns the server of a model's values; `None` of any other map.
pub(super) fn in_values(map: &Map<String, Value>) -> Option<Launched> {
    production_stack(map).or_else(|| modelservice(map))
}

/// `modelURL` with `vllmConfig`, whose keys are vLLM's in camel case.
///
/// # Source
/// vllm-project/production-stack, `helm/values.yaml`: `servingEngineSpec.modelSpec`.
fn production_stack(map: &Map<String, Value>) -> Option<Launched> {
    let model = map.get("modelURL")?.as_str()?;
    let config = map.get("vllmConfig").and_then(Value::as_object);
    let mut found = Map::from_iter([("model".to_owned(), Value::from(model))]);
    let own = config.into_iter().flatten().filter(|(key, _)| !OF_CHART.contains(&key.as_str()));
    found.extend(own.map(|(key, value)| (snake_case(key), value.clone())));
    let more = config.and_then(|config| config.get("extraArgs")).map(words_of).unwrap_or_default();
    found.extend(arguments(more));
    let replicas = map.get("replicaCount").and_then(Value::as_u64).filter(|count| *count > 1);
    Some(Launched {
        arguments: found,
        notes: replicas.map(of_replicas).into_iter().collect(),
        engine: Engine::default(),
    })
}

/// `modelArtifacts` with the pool `decode`. A pool `prefill` beside it would be disaggregated, which is not modelled.
fn modelservice(map: &Map<String, Value>) -> Option<Launched> {
    let model = map.get("modelArtifacts")?.get("uri")?.as_str()?;
    let decode = map.get("decode")?.as_object()?;
    let mut found = Map::from_iter([("model".to_owned(), Value::from(model.trim_start_matches("hf://")))]);
    let parallelism = decode.get("parallelism").and_then(Value::as_object);
    let sizes = PARALLELISM
        .iter()
        .filter_map(|(key, argument)| Some(((*argument).to_owned(), parallelism?.get(*key)?.clone())));
    found.extend(sizes);
    let containers = decode.get("containers").and_then(Value::as_array);
    let more = containers.and_then(|all| all.iter().find_map(|one| one.get("args"))).map(words_of).unwrap_or_default();
    // The chart may name the model among the flags as well, by a variable of its own.
    found.extend(arguments(more).into_iter().filter(|(key, _)| key != "model"));
    let is_created = |of: &Map<String, Value>| {
        of.get("create") != Some(&Value::Bool(false)) && of.get("replicas") != Some(&Value::from(0))
    };
    let prefill = map.get("prefill").and_then(Value::as_object).filter(|prefill| is_created(prefill));
    let prefill =
        prefill.map(|_| "prefill: is not modelled; the server is one of decode, which takes prompts itself".to_owned());
    let replicas = decode.get("replicas").and_then(Value::as_u64).filter(|count| *count > 1).map(of_replicas);
    Some(Launched { arguments: found, notes: prefill.into_iter().chain(replicas).collect(), engine: Engine::default() })
}

fn of_replicas(count: u64) -> String {
    format!("{count} replicas: the load is that of one of them")
}

/// `maxModelLen` as `max_model_len`.
fn snake_case(name: &str) -> String {
    let letter = |letter: char| match letter.is_ascii_uppercase() {
        true => format!("_{}", letter.to_ascii_lowercase()),
        false => letter.to_string(),
    };
    name.chars().map(letter).collect()
}

#[cfg(test)]
mod tests {
    use crate::server_config::{Beside, ServerConfig};

    fn server(text: &str) -> ServerConfig {
        let over = serde_json::from_str("{\"hardware\": \"h100\"}").unwrap();
        let beside = Beside { over, ..Beside::default() };
        ServerConfig::parse_with("values.yaml", text, &beside).unwrap()
    }

    #[test]
    fn values_of_the_production_stack_are_a_server() {
        let found = server(
            "servingEngineSpec:\n  modelSpec:\n  - name: llama\n    modelURL: org/name\n    replicaCount: 2\n    requestGPU: 2\n    vllmConfig:\n      v1: 1\n      \
             tensorParallelSize: 2\n      maxModelLen: 16384\n      enablePrefixCaching: false\n      extraArgs: ['--max-num-seqs', '64', '--disable-log-requests']\n",
        );
        assert_eq!((found.model.as_str(), found.deployment.tensor_parallel_size), ("org/name", 2));
        assert_eq!((found.deployment.max_model_len, found.deployment.max_num_seqs), (Some(16_384), 64));
        assert!(!found.scheduler.enable_prefix_caching);
        assert!(found.notes.iter().any(|note| note.contains("2 replicas")), "{:?}", found.notes);
    }

    #[test]
    fn values_of_a_modelservice_are_the_server_that_decodes() {
        let found = server(
            "modelArtifacts:\n  uri: hf://org/name\nrouting: {servicePort: 8000}\ndecode:\n  replicas: 1\n  parallelism: {tensor: 4}\n  \
             containers:\n  - {name: vllm, modelCommand: vllmServe, args: ['--block-size=64', '--max-model-len', '8192']}\nprefill: {create: false}\n",
        );
        assert_eq!((found.model.as_str(), found.deployment.tensor_parallel_size), ("org/name", 4));
        assert_eq!((found.deployment.block_size, found.deployment.max_model_len), (64, Some(8192)));
        assert!(found.notes.is_empty(), "{:?}", found.notes);
        let apart = server("modelArtifacts: {uri: 'hf://org/name'}\ndecode: {replicas: 1}\nprefill: {replicas: 2}\n");
        assert!(apart.notes.iter().any(|note| note.starts_with("prefill: is not modelled")), "{:?}", apart.notes);
    }
}

//! The arguments of TensorRT-LLM: flags of `trtllm-serve`, and keys of the YAML file of `--extra_llm_api_options` or `--config`.
//!
//! # Source
//! `trtllm-serve` (`tensorrt_llm/commands/serve.py`) and `TorchLlmArgs`, `KvCacheConfig`, `CudaGraphConfig` and `SchedulerConfig`
//! (`tensorrt_llm/llmapi/llm_args.py`), 1.0 to 1.3; the names are those of public launch lines and their files, and others were not checked against a source.
//!
//! # Rows that TensorRT-LLM shares with vLLM
//! vLLM's names are known for fields that have a row here, and those of rows that name TensorRT-LLM among their engines.
//!
//! # Keys of nested objects
//! `max_batch_size` and `dtype` are keys of the file and of `cuda_graph_config` and `kv_cache_config` with other meanings. So keys of
//! nested objects are read in their dotted form, which [`with_dotted_keys`] makes, and are other names of rows: those of the flat
//! arguments that earlier versions had, where there were any.

use ridgepoint::arguments::{Argument, Engines, Kind, Section};
use ridgepoint::dtype::DType;
use ridgepoint::input::{NumberRange, object_or_text};
use serde_json::{Map, Value};

use super::sglang_arguments::{negated, places_experts};

/// A number of at least one.
const COUNT: Kind = Kind::Whole(1, u32::MAX as u64);

/// Arguments that are modelled.
pub(super) static TRTLLM_ARGUMENTS: &[Argument] = &[
    Argument::new(
        "model",
        Section::Server,
        "Built-in name (`ridgepoint models`), Hugging Face id, or path of a config.json or its folder",
        Kind::Text,
    )
    .required()
    .engines(Engines::TRTLLM)
    .value("NAME|PATH"),
    Argument::new("tp_size", Section::Deployment, "GPUs that share every layer's matrices", COUNT)
        .engines(Engines::TRTLLM)
        .sets("tensor_parallel_size")
        .default("1"),
    Argument::new("pp_size", Section::Deployment, "Pipeline stages that share the layers", COUNT)
        .engines(Engines::TRTLLM)
        .sets("pipeline_parallel_size")
        .default("1"),
    Argument::new(
        "ep_size",
        Section::Deployment,
        "GPUs over which experts are placed whole; 1 places a slice of every expert on each GPU",
        Kind::Own(places_experts),
    )
    .alias(&["moe_expert_parallel_size"])
    .engines(Engines::TRTLLM)
    .sets("enable_expert_parallel")
    .must_be("a whole number of at least 1")
    .value("N")
    .default("1"),
    Argument::new(
        "enable_attention_dp",
        Section::Deployment,
        "Give each of tp_size GPUs the whole attention part and requests of its own; they share the experts",
        Kind::Switch,
    )
    .engines(Engines::TRTLLM)
    .default("false"),
    Argument::new("max_batch_size", Section::Scheduler, "Most requests in a step", COUNT)
        .engines(Engines::TRTLLM)
        .sets("max_num_seqs")
        .default("2048"),
    Argument::new("max_num_tokens", Section::Scheduler, "Most tokens in a step", COUNT)
        .engines(Engines::TRTLLM)
        .sets("max_num_batched_tokens")
        .default("8192"),
    Argument::new("max_seq_len", Section::Deployment, "Longest context of a request, tokens", COUNT)
        .engines(Engines::TRTLLM)
        .sets("max_model_len")
        .default("the model's own limit"),
    Argument::new(
        "kv_cache_free_gpu_memory_fraction",
        Section::Deployment,
        "Share for the KV cache of the GPU memory that weights and activations leave free",
        Kind::Number(NumberRange::above_zero(1.0, "")),
    )
    .alias(&["free_gpu_memory_fraction", "kv_cache_config.free_gpu_memory_fraction"])
    .within("kv_cache_config")
    .engines(Engines::TRTLLM)
    .sets("gpu_memory_utilization")
    .must_be("a share of the memory, above 0 and at most 1")
    .value("SHARE")
    .default("0.9"),
    Argument::new(
        "kv_cache_max_tokens",
        Section::Scheduler,
        "Most tokens of the KV cache; the engine takes fewer where the memory holds fewer",
        COUNT,
    )
    .alias(&["kv_cache_config.max_tokens"])
    .within("kv_cache_config")
    .engines(Engines::TRTLLM)
    .sets("kv_cache_tokens")
    .default("those of kv_cache_free_gpu_memory_fraction"),
    Argument::new(
        "kv_cache_dtype",
        Section::Deployment,
        "Number format of the KV cache; auto takes the checkpoint's, else the model's own",
        Kind::Own(kv_cache_dtype),
    )
    .alias(&["kv_cache_config.dtype"])
    .within("kv_cache_config")
    .engines(Engines::TRTLLM)
    .must_be("auto, fp8, bfloat16 or float16: others are not predicted")
    .value("FORMAT")
    .default("auto"),
    Argument::new("tokens_per_block", Section::Deployment, "Tokens of a KV block", COUNT)
        .within("kv_cache_config")
        .engines(Engines::TRTLLM)
        .sets("block_size")
        .default("32"),
    Argument::new("enable_block_reuse", Section::Scheduler, "Reuse KV blocks of equal prompt prefixes", Kind::Switch)
        .within("kv_cache_config")
        .engines(Engines::TRTLLM)
        .sets("enable_prefix_caching")
        .default("true"),
    Argument::new(
        "use_cuda_graph",
        Section::Deployment,
        "Replay CUDA graphs in steps of decodes alone; an empty cuda_graph_config switches them off",
        Kind::Own(negated),
    )
    .engines(Engines::TRTLLM)
    .sets("enforce_eager")
    .must_be("true or false")
    .default("true"),
    Argument::new(
        "cuda_graph_max_batch_size",
        Section::Deployment,
        "Largest number of decodes that a CUDA graph is captured for",
        COUNT,
    )
    .alias(&["cuda_graph_config.max_batch_size"])
    .within("cuda_graph_config")
    .engines(Engines::TRTLLM)
    .sets("max_cudagraph_capture_size")
    .default("128"),
    Argument::new(
        "cuda_graph_batch_sizes",
        Section::Deployment,
        "Numbers of decodes that CUDA graphs are captured for, ascending, as in 1,2,4,8",
        Kind::Wholes,
    )
    .alias(&["cuda_graph_config.batch_sizes"])
    .within("cuda_graph_config")
    .engines(Engines::TRTLLM)
    .sets("cudagraph_capture_sizes")
    .must_be("a list of numbers of decodes, each at least 1")
    .default("TensorRT-LLM's choice up to cuda_graph_max_batch_size"),
    Argument::new(
        "disable_overlap_scheduler",
        Section::Scheduler,
        "Schedule a step only when the one before has ended",
        Kind::Own(negated),
    )
    .engines(Engines::TRTLLM)
    .sets("async_scheduling")
    .must_be("true or false")
    .default("false"),
];

/// Objects whose keys are rows.
const OBJECTS: [&str; 3] = ["kv_cache_config", "cuda_graph_config", "scheduler_config"];

/// Returns the keys of a file with those of nested objects in their dotted form, as `kv_cache_config.dtype`. A `cuda_graph_config`
/// that is null switches CUDA graphs off.
pub(super) fn with_dotted_keys(file: &Map<String, Value>) -> Map<String, Value> {
    let mut flat = Map::new();
    for (key, value) in file {
        let object = OBJECTS.iter().find(|object| **object == key.replace('-', "_"));
        match object.zip(object_or_text(value)) {
            Some((object, nested)) => {
                flat.extend(nested.into_iter().map(|(key, value)| (format!("{object}.{key}"), value)));
            }
            None if value.is_null() && object == Some(&"cuda_graph_config") => {
                flat.insert("use_cuda_graph".to_owned(), Value::Bool(false));
            }
            None => {
                flat.insert(key.clone(), value.clone());
            }
        }
    }
    flat
}

/// Reads a format of the KV cache; `auto` is null.
fn kv_cache_dtype(value: &Value) -> Option<Value> {
    serde_json::to_value(DType::parse_or_auto(value.as_str()?)?).ok()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use ridgepoint::Engine;
    use ridgepoint::arguments::ArgumentRows;
    use ridgepoint::input::Log;
    use serde_json::json;

    use super::super::arguments::arguments_of;
    use super::*;
    use crate::input::parse_yaml;

    fn rows() -> ArgumentRows {
        arguments_of(&Engine::parse("trtllm", None).unwrap())
    }

    #[test]
    fn a_name_is_that_of_one_row() {
        let mut names: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for row in rows().iter().filter(|row| row.engines != Engines::VLLM) {
            for name in row.aliases.iter().chain([&row.name]) {
                names.entry(name).or_default().push(row.name);
            }
        }
        let several: Vec<_> = names.into_iter().filter(|(_, rows)| rows.len() > 1).collect();
        assert!(several.is_empty(), "{several:?}");
    }

    #[test]
    fn public_launch_lines_and_their_files_are_known() {
        for (flags, file) in [
            (
                "port trust_remote_code backend max_seq_len max_num_tokens tp_size ep_size extra_llm_api_options",
                "cuda_graph_config: {enable_padding: true, max_batch_size: 512}\nenable_attention_dp: true\nprint_iter_log: true\n\
                 kv_cache_config: {dtype: fp8, free_gpu_memory_fraction: 0.8, enable_block_reuse: false}\nstream_interval: 10\n\
                 moe_config: {backend: TRTLLM}\nattention_dp_config: {batching_wait_iters: 0, enable_balance: true, timeout_iters: 60}",
            ),
            (
                "max_batch_size gpus_per_node host pp_size custom_tokenizer config",
                "kv_cache_config: {tokens_per_block: 128, dtype: auto}\nnum_postprocess_workers: 4\n\
                 speculative_config: {decoding_type: MTP, num_nextn_predict_layers: 3}",
            ),
            (
                "kv_cache_free_gpu_memory_fraction max_beam_width reasoning_parser log_level",
                "backend: pytorch\nenable_layerwise_nvtx_marker: false\ndisable_overlap_scheduler: false\nenable_iter_perf_stats: true\n\
                 enable_chunked_prefill: false\nscheduler_config: {capacity_scheduler_policy: MAX_UTILIZATION, \
                 context_chunking_policy: FIRST_COME_FIRST_SERVED}\ncuda_graph_config: {batch_sizes: [1, 2, 4]}",
            ),
        ] {
            let file = parse_yaml("file", file).unwrap();
            let file = with_dotted_keys(file.as_object().unwrap());
            for key in flags.split(' ').chain(file.keys().map(String::as_str)) {
                assert!(rows().name_of(key).is_some(), "{key}");
            }
        }
    }

    #[test]
    fn nested_keys_are_apart_from_those_of_the_file() {
        let file = json!({"model": "m", "max_batch_size": 512, "dtype": "auto", "ep_size": 4, "disable_overlap_scheduler": true,
                          "cuda_graph_config": {"max_batch_size": 128, "enable_padding": true}, "cuda_graph_batch_sizes": [1, 128],
                          "kv_cache_config": {"dtype": "fp8", "free_gpu_memory_fraction": 0.8, "enable_block_reuse": false, "max_tokens": 9000,
                                              "tokens_per_block": 64, "event_buffer_max_size": 5, "host_cache_size": 0},
                          "scheduler_config": {"capacity_scheduler_policy": "max_utilization"}});
        let mut flat = with_dotted_keys(file.as_object().unwrap());
        assert_eq!(flat.remove("dtype"), Some(json!("auto")));
        let log = Log::default();
        flat.insert("hardware".to_owned(), json!("h100"));
        let given = rows().read("", &flat, &log);
        let expected = json!({"model": "m", "hardware": "h100", "max_num_seqs": 512, "enable_expert_parallel": true, "async_scheduling": false,
                              "max_cudagraph_capture_size": 128, "enable_padding": true, "cudagraph_capture_sizes": [1, 128],
                              "kv_cache_dtype": "fp8", "gpu_memory_utilization": 0.8, "enable_prefix_caching": false,
                              "kv_cache_tokens": 9000, "block_size": 64, "capacity_scheduler_policy": "MAX_UTILIZATION"});
        assert_eq!(Some(given.values()), expected.as_object());
        let (_, notes) = log.finish("file", Some(())).unwrap();
        assert_eq!(notes, ["kv_cache_config.event_buffer_max_size has no influence here"]);
    }

    #[test]
    fn graphs_are_off_where_their_object_is_null() {
        let file =
            with_dotted_keys(json!({"model": "m", "hardware": "h100", "cuda_graph_config": null}).as_object().unwrap());
        assert_eq!(rows().read_all("file", &file).unwrap().get("enforce_eager"), Some(true));
    }
}

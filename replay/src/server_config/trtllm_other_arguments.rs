//! TensorRT-LLM's arguments that have no influence on times, are noted, or are refused because their influence is not modelled.
//!
//! # Source
//! As in `trtllm_arguments`, with keys of `TrtLlmArgs` and flat ones of earlier versions. Keys of `kv_cache_config` and
//! `scheduler_config` that have no row have no influence here; the reader says so.
#![expect(clippy::indexing_slicing, reason = "a loop over the rows at compile time")]

use ridgepoint::arguments::{Argument, Engines};

/// Names of the arguments without influence on times, or on any that is predicted.
const NAMES: [&str; 61] = [
    "host",
    "port",
    "tokenizer",
    "tokenizer_mode",
    "tokenizer_revision",
    "custom_tokenizer",
    "postprocess_tokenizer_dir",
    "revision",
    "hf_revision",
    "trust_remote_code",
    "load_format",
    "checkpoint_loader",
    "checkpoint_format",
    "custom_module_dirs",
    "model_kwargs",
    "served_model_name",
    "log_level",
    "gpus_per_node",
    "chat_template",
    "allow_request_chat_template",
    "tool_parser",
    "reasoning_parser",
    "guided_decoding_backend",
    "media_io_kwargs",
    "video_pruning_rate",
    "metadata_server_config_file",
    "disagg_cluster_uri",
    "grpc",
    "telemetry",
    "otlp_traces_endpoint",
    "fail_fast_on_attention_window_too_large",
    "env_overrides",
    "orchestrator_type",
    "mpi_session",
    "enable_tqdm",
    "workspace",
    "print_iter_log",
    "enable_iter_perf_stats",
    "enable_iter_req_stats",
    "iter_stats_max_iterations",
    "request_stats_max_iterations",
    "max_stats_len",
    "return_perf_metrics",
    "perf_metrics_max_requests",
    "enable_layerwise_nvtx_marker",
    "layer_wise_benchmarks_config",
    "garbage_collection_gen0_threshold",
    "enable_autotuner",
    "autotuner_enabled",
    "enable_build_cache",
    "fast_build",
    "embedding_parallel_mode",
    "calib_config",
    "build_config",
    "peft_cache_config",
    "max_input_len",
    "batched_logits_processor",
    "enable_sleep",
    "ray_worker_extension_cls",
    "ray_placement_config",
    "extra_visual_gen_options",
];

/// Arguments without influence on times.
pub(super) static TRTLLM_WITHOUT_INFLUENCE: [Argument; NAMES.len()] = {
    let mut rows = [Argument::without_influence("port").engines(Engines::TRTLLM); NAMES.len()];
    let mut at = 0;
    while at < NAMES.len() {
        rows[at] = Argument::without_influence(NAMES[at]).engines(Engines::TRTLLM);
        at += 1;
    }
    rows
};

const fn noted(name: &'static str, reason: &'static str) -> Argument {
    Argument::noted(name, reason).engines(Engines::TRTLLM)
}

const fn not_modelled(name: &'static str, reason: &'static str) -> Argument {
    Argument::not_modelled(name, reason).engines(Engines::TRTLLM)
}

const GRAPHS: &str = "is not modelled: graphs are those of decodes alone";
const KERNELS: &str = "is not modelled: kernels are those of the tables";
const WINDOWS: &str = "is not modelled: windows are the checkpoint's";

/// Arguments whose influence on times is noted.
pub(super) static TRTLLM_NOTED: &[Argument] = &[
    noted("num_postprocess_workers", "is not modelled: one front end is predicted"),
    noted("skip_tokenizer_init", "is not modelled: the front end is that of texts"),
    noted("gather_generation_logits", "is not modelled: requests return tokens alone"),
    noted("attn_backend", KERNELS).off(&["TRTLLM"]),
    noted("sampler_type", KERNELS).off(&["auto", "TorchSampler"]),
    noted("use_torch_sampler", KERNELS),
    noted("enable_trtllm_sampler", KERNELS),
    noted("enable_mixed_sampler", KERNELS),
    noted("mixed_sampler", KERNELS),
    noted("disable_flashinfer_sampling", KERNELS),
    noted("moe_config", KERNELS),
    noted("moe_backend", KERNELS).off(&["AUTO"]),
    noted("moe_max_num_tokens", KERNELS),
    noted("moe_load_balancer", "is not modelled: experts stay on their ranks"),
    noted("nvfp4_gemm_config", KERNELS),
    noted("enable_min_latency", KERNELS),
    noted("force_dynamic_quantization", KERNELS),
    noted("use_cute_dsl_blockscaling_mm", KERNELS),
    noted("use_cute_dsl_blockscaling_bmm", KERNELS),
    noted("extended_runtime_perf_knob_config", KERNELS),
    noted("torch_compile_config", GRAPHS),
    noted("torch_compile_enabled", GRAPHS),
    noted("allreduce_strategy", "is not modelled: ranks exchange data by the collectives of the tables").off(&["AUTO"]),
    noted("enable_lm_head_tp_in_adp", "is not modelled: every rank computes its own logits"),
    noted("attention_dp_config", "is not modelled: ranks compute prompts as they come"),
    noted("batch_wait_timeout_ms", "is not modelled: requests are fetched at once"),
    noted("pp_partition", "is not modelled: stages have equal shares of the layers"),
    noted("moe_tensor_parallel_size", "is not read: it follows from tp_size and ep_size").off(&["1"]),
    noted("max_attention_window", WINDOWS).within("kv_cache_config"),
    noted("sink_token_length", WINDOWS).within("kv_cache_config"),
    noted("use_kv_cache_manager_v2", "is not modelled: blocks and policies are those of the first manager")
        .within("kv_cache_config")
        .off(&["auto"]),
    noted("mamba_ssm_cache_dtype", "is not modelled: states have the checkpoint's format")
        .within("kv_cache_config")
        .off(&["auto"]),
    noted("use_uvm", "is not modelled: the KV cache is that of the GPUs").within("kv_cache_config"),
    noted("dynamic_batch_config", "is not modelled: limits of a step stay").within("scheduler_config"),
    noted("waiting_queue_policy", "is not modelled: requests are taken in the order of their arrival")
        .within("scheduler_config")
        .off(&["fcfs"]),
    noted("quant_config", "is not read: the checkpoint's own counts"),
];

const CONTEXT_PARALLEL: &str = "is not modelled: ranks do not share a context";
const DISAGGREGATION: &str = "is not modelled: one server computes prompts and decodes";
const LORA: &str = "is not modelled: there are no LoRA adapters";

/// Arguments with an influence that is not modelled.
pub(super) static TRTLLM_NOT_MODELLED: &[Argument] = &[
    not_modelled("extra_llm_api_options", "is a file: give it to --config, with the line's other arguments as flags")
        .no_flag()
        .alias(&["config"]),
    not_modelled("backend", "is not modelled: the PyTorch backend is").off(&["pytorch"]),
    not_modelled("max_beam_width", "is not modelled: requests have one beam").off(&["1"]),
    not_modelled("cp_size", CONTEXT_PARALLEL).alias(&["context_parallel_size"]).off(&["1"]),
    not_modelled("cp_config", CONTEXT_PARALLEL),
    not_modelled("cluster_size", "is not modelled: experts are divided among all GPUs alike")
        .alias(&["moe_cluster_parallel_size"])
        .off(&["1", "-1"]),
    not_modelled("host_cache_size", "is not modelled: the KV cache is that of the GPUs").within("kv_cache_config"),
    not_modelled("max_gpu_total_bytes", "is not modelled: give kv_cache_tokens, the tokens that the engine logs")
        .within("kv_cache_config"),
    not_modelled("kv_connector_config", "is not modelled: the KV cache is that of the GPUs"),
    not_modelled("cache_transceiver_config", DISAGGREGATION),
    not_modelled("server_role", DISAGGREGATION),
    not_modelled("sparse_attention_config", "is not modelled: attention reads all tokens"),
    not_modelled("enable_lora", LORA),
    not_modelled("lora_config", LORA),
    not_modelled("mm_encoder_only", "is not modelled: models generate"),
    not_modelled("decoding_config", "is not modelled: give speculative_config"),
];

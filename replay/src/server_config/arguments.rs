//! The arguments of a server beyond those that a step depends on: the model and the GPU, the scheduler, the KV cache, and those of vLLM
//! that have no influence or are not modelled.

use ridgepoint::DEPLOYMENT_ARGUMENTS;
use ridgepoint::arguments::{Argument, ArgumentRows, Engines, Kind, Section};
use ridgepoint::dtype::MatmulFormat;
use ridgepoint::input::NumberRange;
use serde_json::Value;

use crate::SCHEDULER_ARGUMENTS;

/// The model and the GPU.
pub static SERVER_ARGUMENTS: &[Argument] = &[
    Argument::new(
        "model",
        Section::Server,
        "Built-in name (`ridgepoint models`), Hugging Face id, or path of a config.json or its folder",
        Kind::Text,
    )
    .required()
    .value("NAME|PATH"),
    Argument::new(
        "hardware",
        Section::Server,
        "Built-in name (`ridgepoint hardware`), path of a TOML file, or FILE.json#NAME: figures over a known GPU's",
        Kind::Text,
    )
    .required()
    .engines(Engines::ALL)
    .value("NAME|PATH"),
];

/// Arguments of vLLM without influence on times.
static WITHOUT_INFLUENCE: &[Argument] = &[
    Argument::without_influence("served_model_name"),
    Argument::without_influence("host"),
    Argument::without_influence("port"),
    Argument::without_influence("api_key"),
    Argument::without_influence("seed").no_flag(),
    Argument::without_influence("tokenizer"),
    Argument::without_influence("tokenizer_mode"),
    Argument::without_influence("revision"),
    Argument::without_influence("trust_remote_code"),
    Argument::without_influence("download_dir"),
    Argument::without_influence("load_format"),
    Argument::without_influence("disable_log_stats"),
    Argument::without_influence("disable_log_requests"),
    Argument::without_influence("enable_log_requests"),
];

/// Arguments of vLLM with an influence that is not modelled.
pub static NOT_MODELLED: &[Argument] = &[
    Argument::not_modelled("decode_context_parallel_size", CONTEXT_PARALLEL).off(&["1"]),
    Argument::not_modelled("prefill_context_parallel_size", CONTEXT_PARALLEL).off(&["1"]),
    Argument::not_modelled("enable_dbo", "is not modelled: batches are not halved to overlap"),
    Argument::not_modelled("enable_eplb", "is not modelled: experts stay on their ranks"),
    Argument::not_modelled("enable_lora", LORA),
    Argument::not_modelled("lora_modules", LORA),
    Argument::not_modelled("max_loras", LORA),
    Argument::not_modelled("max_lora_rank", LORA),
    Argument::not_modelled(
        "nnodes",
        "is not needed: GPUs beyond those of a link are reached over the network of the hardware file",
    )
    .off(&["1"]),
    Argument::not_modelled("num_speculative_tokens", SPECULATION),
    Argument::not_modelled(
        "quantization",
        "is read from the checkpoint: name a quantised one, or give `precision: fp8` in the server's file (docs/guide.md, Precision)",
    ),
    Argument::not_modelled(
        "replicas",
        "is not modelled: there is no router over servers; data_parallel_size replays one of several replicas",
    )
    .off(&["1"]),
    Argument::not_modelled("speculative_config", SPECULATION),
    Argument::not_modelled("speculative_model", SPECULATION),
];
const CONTEXT_PARALLEL: &str = "is not modelled: ranks do not share a context";
const LORA: &str = "is not modelled: there are no LoRA adapters";
const SPECULATION: &str = "is not modelled: there is no speculative decoding";

/// Number formats, and the KV cache with its tiers.
static CACHE_ARGUMENTS: &[Argument] = &[
    // The model's configuration decides about activations, and both 16-bit formats are equally fast.
    Argument::new("dtype", Section::Server, "16-bit format of activations, both of which are equally fast", Kind::Name(&["auto", "half", "float16", "bfloat16"]))
        .must_be("auto, half, float16 or bfloat16: others are not predicted")
        .value("FORMAT")
        .default("auto"),
    Argument::new("precision", Section::Server, "Number format of the weights of a model that is named, such as fp8", Kind::Own(precision))
        .must_be(
            "bf16 (bfloat16, fp16, float16, half), fp8 (fp8_block), int8 (w8a8), int8_wo (w8a16), int4 (int4_wo, w4a16, awq, gptq), fp4 (nvfp4) or mxfp4",
        )
        .value("FORMAT")
        .default("that of the checkpoint"),
    Argument::new("num_gpu_blocks_override", Section::Scheduler, "Number of KV blocks; auto computes it from the memory equation even if a server file gives one", Kind::WholeOrAuto(1, u32::MAX as u64))
        .alias(&["total_kv_blocks"]),
    Argument::new("cpu_offload", Section::Deployment, "In published experiments: a switch, or the size of cpu_offload_gb", Kind::Any).no_flag(),
    Argument::new("kv_offloading_size", Section::Scheduler, "Host memory for KV blocks of all GPUs of a replica, GiB: full blocks are copied there, and prompts load them back", Kind::Number(NumberRange::from_zero(1e6, "GiB")))
        .value("GIB"),
    Argument::new("kv_offloading_backend", Section::Scheduler, "Backend of kv_offloading_size; native is modelled", Kind::Name(&["native"]))
        .must_be("native: LMCache is not modelled"),
    Argument::new("kv_transfer_config", Section::Scheduler, "vLLM's connector as JSON, in place of --kv-offloading-size: the OffloadingConnector with cpu_bytes_to_use or num_cpu_blocks, offload_prompt_only, and a disk in secondary_tiers of the TieringOffloadingSpec", Kind::Any)
        .value("JSON").excludes(&[("kv_offloading_size", "keep one")]),
    Argument::new("kv_transfers", Section::Scheduler, "File of measured transfer times, as `ridgepoint ingest --output-transfers` writes it", Kind::File)
        .value("FILE")
        .default("a copy takes 20 µs, and its bytes at 85 % of the link between GPU and host; one of a disk takes 100 µs, and its bytes at 7 GB/s to the host and 5 GB/s from it"),
];

fn precision(value: &Value) -> Option<Value> {
    serde_json::to_value(MatmulFormat::parse(value.as_str()?)?).ok()
}

/// All arguments of a server, of vLLM.
pub fn server_arguments() -> ArgumentRows {
    let lists =
        [SERVER_ARGUMENTS, NOT_MODELLED, WITHOUT_INFLUENCE, DEPLOYMENT_ARGUMENTS, SCHEDULER_ARGUMENTS, CACHE_ARGUMENTS];
    ArgumentRows::new(&lists, Engines::VLLM)
}

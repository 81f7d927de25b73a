//! The arguments of a server beyond those that a step depends on: the model and the GPU, the scheduler and the KV cache.

use ridgepoint::DEPLOYMENT_ARGUMENTS;
use ridgepoint::arguments::{Argument, ArgumentRows, Engines, Kind, Section};
use ridgepoint::dtype::MatmulFormat;
use ridgepoint::input::NumberRange;
use serde_json::Value;

use super::other_arguments::{NOT_MODELLED, NOTED, WITHOUT_INFLUENCE};
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
    Argument::new("quantization", Section::Server, "Method of quantisation: the checkpoint's own, or fp8 for a 16-bit checkpoint that the engine quantises as it loads", Kind::Text)
        .value("METHOD")
        .default("that of the checkpoint"),
    Argument::new("as_family", Section::Server, "Family (model_type) whose keys and layers the model's config.json has, for one of a family that is not known", Kind::Text)
        .value("NAME")
        .default("that of the file"),
    Argument::new("num_gpu_blocks_override", Section::Scheduler, "Number of KV blocks; auto computes it from the memory equation even if a server file gives one", Kind::WholeOrAuto(1, u32::MAX as u64))
        .alias(&["total_kv_blocks"]),
    Argument::new("kv_cache_tokens", Section::Scheduler, "Tokens of the KV cache, as the engine logs them when it starts (`GPU KV cache size`, or SGLang's max_total_num_tokens)", Kind::Tokens(1, u32::MAX as u64))
        .value("TOKENS")
        .excludes(&[("num_gpu_blocks_override", "keep one")])
        .default("those of the memory equation"),
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
    let lists = [
        SERVER_ARGUMENTS,
        NOT_MODELLED,
        &WITHOUT_INFLUENCE,
        NOTED,
        DEPLOYMENT_ARGUMENTS,
        SCHEDULER_ARGUMENTS,
        CACHE_ARGUMENTS,
    ];
    ArgumentRows::new(&lists, Engines::VLLM)
}

//! The arguments of a server beyond those that a step depends on: the model and the GPU, the scheduler and the KV cache.

use ridgepoint::DEPLOYMENT_ARGUMENTS;
use ridgepoint::Engine;
use ridgepoint::arguments::{Argument, ArgumentRows, ArgumentSupport, Engines, Kind, Section, spelled};
use ridgepoint::dtype::MatmulFormat;
use ridgepoint::input::NumberRange;
use serde_json::{Map, Value};

use super::other_arguments::{NOT_MODELLED, NOTED, WITHOUT_INFLUENCE};
use super::sglang_arguments::SGLANG_ARGUMENTS;
use super::sglang_other_arguments::{SGLANG_NOT_MODELLED, SGLANG_NOTED, SGLANG_WITHOUT_INFLUENCE};
use super::speculative::SPECULATIVE_ARGUMENTS;
use super::trtllm_arguments::TRTLLM_ARGUMENTS;
use super::trtllm_other_arguments::{TRTLLM_NOT_MODELLED, TRTLLM_NOTED, TRTLLM_WITHOUT_INFLUENCE};
use crate::{SCHEDULER_ARGUMENTS, SGLANG_SCHEDULER_ARGUMENTS, TRTLLM_SCHEDULER_ARGUMENTS};

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
    Argument::new(
        ENGINE,
        Section::Server,
        "Serving engine of this server, whose arguments the others are: vllm, sglang or trtllm, or one with its version as sglang-0.5",
        Kind::Own(engine),
    )
    .must_be("vllm, sglang or trtllm, or one with its version as sglang-0.5")
    .engines(Engines::ALL)
    .value("NAME")
    .no_flag(),
];

/// The name of the argument that says whose arguments the others are.
pub(super) const ENGINE: &str = "engine";

fn engine(value: &Value) -> Option<Value> {
    Engine::parse(value.as_str()?, None).map(|engine| engine.to_string().into())
}

/// Number formats, and the KV cache with its tiers.
static CACHE_ARGUMENTS: &[Argument] = &[
    // The model's configuration decides about activations, and both 16-bit formats are equally fast.
    Argument::new("dtype", Section::Server, "16-bit format of activations, both of which are equally fast", Kind::Name(&["auto", "half", "float16", "bfloat16"]))
        .engines(Engines::ALL)
        .must_be("auto, half, float16 or bfloat16: others are not predicted")
        .value("FORMAT")
        .default("auto"),
    Argument::new("precision", Section::Server, "Number format of the weights of a model that is named, such as fp8", Kind::Own(precision))
        .engines(Engines::ALL)
        .must_be(
            "bf16 (bfloat16, fp16, float16, half), fp8 (fp8_block), int8 (w8a8), int8_wo (w8a16), int4 (int4_wo, w4a16, awq, gptq), fp4 (nvfp4) or mxfp4",
        )
        .value("FORMAT")
        .default("that of the checkpoint"),
    Argument::new("quantization", Section::Server, "Method of quantisation: the checkpoint's own, or fp8 for a 16-bit checkpoint that the engine quantises as it loads", Kind::Text)
        .engines(Engines::VLLM.and(Engines::SGLANG))
        .value("METHOD")
        .default("that of the checkpoint"),
    Argument::new("as_family", Section::Server, "Family (model_type) whose keys and layers the model's config.json has, for one of a family that is not known", Kind::Text)
        .engines(Engines::ALL)
        .value("NAME")
        .default("that of the file"),
    Argument::new("num_gpu_blocks_override", Section::Scheduler, "Number of KV blocks; auto computes it from the memory equation even if a server file gives one", Kind::WholeOrAuto(1, u32::MAX as u64))
        .engines(Engines::ALL)
        .alias(&["total_kv_blocks"]),
    Argument::new("kv_cache_tokens", Section::Scheduler, "Tokens of the KV cache, as the engine logs them when it starts (`GPU KV cache size`, or SGLang's max_total_num_tokens)", Kind::Tokens(1, u32::MAX as u64))
        .engines(Engines::ALL)
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

/// The lists of all rows, vLLM's first.
fn lists() -> [&'static [Argument]; 18] {
    [
        SERVER_ARGUMENTS,
        NOT_MODELLED,
        &WITHOUT_INFLUENCE,
        NOTED,
        DEPLOYMENT_ARGUMENTS,
        SCHEDULER_ARGUMENTS,
        CACHE_ARGUMENTS,
        SPECULATIVE_ARGUMENTS,
        SGLANG_ARGUMENTS,
        SGLANG_SCHEDULER_ARGUMENTS,
        SGLANG_NOT_MODELLED,
        &SGLANG_WITHOUT_INFLUENCE,
        SGLANG_NOTED,
        TRTLLM_ARGUMENTS,
        TRTLLM_SCHEDULER_ARGUMENTS,
        TRTLLM_NOT_MODELLED,
        &TRTLLM_WITHOUT_INFLUENCE,
        TRTLLM_NOTED,
    ]
}

fn all() -> impl Iterator<Item = &'static Argument> {
    lists().into_iter().flatten()
}

/// All arguments of a server that a command has flags for: vLLM's, and the modelled ones of other engines under names of their own.
pub fn server_arguments() -> ArgumentRows {
    let mut rows: Vec<&Argument> = Vec::new();
    for row in all() {
        let is_of_vllm = row.engines.meets(Engines::VLLM);
        let is_optional = row.support == ArgumentSupport::Modelled && !row.is_required;
        let is_new = || is_optional && !rows.iter().any(|other| other.is_named(row.name));
        if is_of_vllm || is_new() {
            rows.push(row);
        }
    }
    ArgumentRows::of(rows)
}

/// The arguments of a server of an engine: its own, and vLLM's names of fields that it has, too.
pub fn arguments_of(engine: &Engine) -> ArgumentRows {
    let is_modelled = |row: &&Argument| row.support == ArgumentSupport::Modelled;
    let is_own = |row: &&Argument| row.engines.meets(Engines::of(engine));
    let own: Vec<&Argument> = all().filter(is_own).collect();
    let has_field = |row: &Argument| own.iter().filter(|of| is_modelled(of)).any(|of| of.sets == row.sets);
    // Of an alias that both have, the engine's own row comes first.
    let is_free = |row: &Argument| !own.iter().any(|of| of.is_named(row.name));
    let of_vllm = all().filter(|row| row.engines.meets(Engines::VLLM) && is_modelled(row));
    let shared = of_vllm.filter(|row| !is_own(row) && has_field(row) && is_free(row));
    ArgumentRows::of(own.iter().copied().chain(shared).collect())
}

/// Takes arguments out of `map` that an engine with the rows `own` does not have and another has. Returns what is wrong with them.
pub(super) fn take_foreign(map: &mut Map<String, Value>, engine: &Engine, own: &ArgumentRows) -> Vec<String> {
    let mut problems = Vec::new();
    map.retain(|key, value| {
        let name = spelled(key);
        let foreign = || all().find(|row| row.is_named(&name) && row.support == ArgumentSupport::Modelled);
        let Some(row) = foreign().filter(|_| !value.is_null() && own.name_of(key).is_none()) else { return true };
        let (named, engines) = (engine.name(), row.engines.names().join(" and "));
        problems.push(format!(
            "{name} is an argument of {engines}, which {named} does not have: leave it out, or name the engine that has it"
        ));
        false
    });
    problems
}

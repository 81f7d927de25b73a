//! `ridgepoint models`: the list of models, and one model in detail.

use std::collections::{BTreeMap, BTreeSet};

use clap::Args;
use ridgepoint::internals::correction::CorrectionInfo;
use ridgepoint::model::{Attention, LayerGroup, ParameterCounts, SamplingDefaults, Window, builtin_models};
use ridgepoint::physics::Memory;
use ridgepoint::{CorrectionChoice, Deployment, EfficiencyMode, Model};
use serde::Serialize;

use crate::common::{Common, Format, files_in};
use crate::deployment::ParallelArgs;
use crate::outcome::{Failure, Output};
use crate::text::{count, quantity, rendered, table, width, wrap};

/// The arguments of `models`.
#[derive(Debug, Args)]
pub struct Models {
    /// Name or path of one model, to show its layers and the share of one GPU
    #[arg(value_name = "NAME|PATH")]
    name: Option<String>,
    #[command(flatten)]
    parallel: ParallelArgs,
}

/// A model as it is listed.
#[derive(Serialize)]
struct ModelEntry {
    /// Short name.
    name: String,
    /// `model_type` of the configuration.
    model_type: String,
    /// Parameters: all, those that one token meets, those of the embedding.
    parameters: ParameterCounts,
    /// Layers.
    num_layers: u64,
    /// `gqa`, `mla` or both.
    attention: String,
    /// How weights are stored, the layers' formats in their order.
    weight_formats: Vec<String>,
    /// All weights as stored, bytes.
    weight_bytes: f64,
    /// Longest context.
    max_position_embeddings: u64,
    /// Hugging Face ids of this architecture; the facts were published under the first.
    hf_ids: Vec<String>,
    /// The built-in correction that predictions take: the model's own, the global one, or none.
    correction: CorrectionInfo,
}

impl ModelEntry {
    fn new(model: &Model, hf_ids: &[String]) -> ridgepoint::Result<Self> {
        let mut attention = BTreeSet::new();
        let mut formats: Vec<String> = Vec::new();
        for group in model.layers() {
            let (kind, storage) = match &group.attention {
                Attention::Gqa(gqa) => ("gqa", vec![gqa.qkv_weights, gqa.o_weights]),
                Attention::Mla(mla) => ("mla", vec![mla.weights]),
            };
            attention.insert(kind);
            let dense = group.dense.iter().map(|dense| dense.weights);
            let experts = group.moe.iter().map(|moe| moe.weights);
            for format in storage.into_iter().chain(dense).chain(experts).map(|format| format.to_string()) {
                if !formats.contains(&format) {
                    formats.push(format);
                }
            }
        }
        Ok(ModelEntry {
            name: model.name().to_owned(),
            model_type: model.model_type().to_owned(),
            parameters: model.parameters(),
            num_layers: model.num_layers(),
            attention: attention.into_iter().collect::<Vec<_>>().join("+"),
            weight_formats: formats,
            weight_bytes: model.weight_bytes(),
            max_position_embeddings: model.max_position_embeddings(),
            hf_ids: hf_ids.to_vec(),
            correction: CorrectionInfo::of(
                CorrectionChoice::Auto.resolve(model.name(), EfficiencyMode::Tables)?.as_deref(),
            ),
        })
    }
}

/// Lists models, or shows one.
///
/// # Errors
/// A model that is unknown, unreadable or cannot be split as requested.
pub fn run(args: &Models, common: &Common) -> Result<Output, Failure> {
    let data_dir = common.data_dir();
    let Some(name) = &args.name else {
        let mut entries = Vec::new();
        for path in files_in(data_dir, "models", "json")? {
            entries.push(ModelEntry::new(&Model::load(&path)?, &[])?);
        }
        for builtin in builtin_models() {
            entries.push(ModelEntry::new(&Model::builtin(builtin.name())?, builtin.hf_ids())?);
        }
        return match common.format {
            Format::Table => Ok(Output::of(list(&entries))),
            Format::Json => Output::json(&BTreeMap::from([("models", entries)])),
        };
    };
    let model = Model::find_in(data_dir, name)?;
    let ids = builtin_models().iter().find(|builtin| builtin.name() == model.name());
    let entry = ModelEntry::new(&model, ids.map_or(&[], |builtin| builtin.hf_ids()))?;
    let deployment = args.parallel.deployment();
    let memory = Memory::new(&model, &deployment)?;
    match common.format {
        Format::Table => Ok(Output::of(one(&entry, &model, &deployment, &memory))),
        Format::Json => Output::json(&detail(&entry, &model, &deployment, &memory)),
    }
}

/// One line per model.
fn list(entries: &[ModelEntry]) -> String {
    let mut rows = table(&[
        "name",
        "model_type",
        ">parameters",
        ">active",
        ">layers",
        "attention",
        "weights",
        ">bytes",
        "correction",
        "Hugging Face id",
    ]);
    for entry in entries {
        let others = entry.hf_ids.len().saturating_sub(1);
        let more = if others == 0 { String::new() } else { format!(" (+{others})") };
        rows.add_row([
            entry.name.clone(),
            entry.model_type.clone(),
            billions(entry.parameters.total),
            billions(entry.parameters.active),
            entry.num_layers.to_string(),
            entry.attention.clone(),
            entry.weight_formats.join(", "),
            quantity(entry.weight_bytes, "B"),
            if entry.correction.level == "model" { "own".to_owned() } else { entry.correction.to_string() },
            entry.hf_ids.first().map_or_else(String::new, |id| format!("{id}{more}")),
        ]);
    }
    let mut out = rendered(rows, &["Hugging Face id", "bytes", "model_type", "correction", "weights"]);
    out.push('\n');
    out.push_str(&wrap(
        "",
        "Names are found in any case, with or without organisation and suffixes such as -Instruct; a path of any other \
         config.json works too. `ridgepoint models NAME` shows one in detail.",
        width(),
    ));
    out
}

fn billions(parameters: u64) -> String {
    quantity(parameters as f64, "").trim_end().replace('G', "B")
}

/// One model in detail, as JSON.
#[derive(Serialize)]
struct ModelDetail<'a> {
    #[serde(flatten)]
    entry: &'a ModelEntry,
    hidden_size: u64,
    vocab_size: u64,
    tie_word_embeddings: bool,
    dtype: ridgepoint::DType,
    /// Sampling keys of `generation_config.json`; null where the file is not known.
    sampling: Option<&'a SamplingDefaults>,
    layers: &'a [LayerGroup],
    deployment: &'a Deployment,
    /// Weights of the rank that holds most.
    weight_bytes_per_rank: f64,
    /// KV cache of one token on one rank.
    kv_bytes_per_token_per_rank: f64,
    memory: &'a Memory,
    notes: &'a [String],
}

/// One model with what a GPU holds of it.
fn detail<'a>(
    entry: &'a ModelEntry,
    model: &'a Model,
    deployment: &'a Deployment,
    memory: &'a Memory,
) -> ModelDetail<'a> {
    ModelDetail {
        entry,
        hidden_size: model.hidden_size(),
        vocab_size: model.vocab_size(),
        tie_word_embeddings: model.tie_word_embeddings(),
        dtype: model.dtype(),
        sampling: model.sampling(),
        layers: model.layers(),
        deployment,
        weight_bytes_per_rank: memory.max_weight_bytes(),
        kv_bytes_per_token_per_rank: memory.kv_bytes_per_token(),
        memory,
        notes: model.notes(),
    }
}

/// One model in detail, for people.
fn one(entry: &ModelEntry, model: &Model, deployment: &Deployment, memory: &Memory) -> String {
    let width = width();
    let mut out = format!("{} ({})\n\n", entry.name, entry.model_type);
    let mut line = |label: &str, value: &str| out.push_str(&wrap(&format!("{label:<12}"), value, width));
    let counts = entry.parameters;
    line(
        "parameters",
        &format!(
            "{} ({}), {} active per token, {} of them in the embedding",
            count(counts.total),
            billions(counts.total),
            billions(counts.active),
            billions(counts.embedding)
        ),
    );
    line("weights", &format!("{} in {}", quantity(entry.weight_bytes, "B"), entry.weight_formats.join(", ")));
    line("hidden size", &count(model.hidden_size()));
    let tied = if model.tie_word_embeddings() { ", shared with the LM head" } else { "" };
    line("vocabulary", &format!("{}{tied}", count(model.vocab_size())));
    line("context", &format!("up to {} tokens", count(model.max_position_embeddings())));
    line("sampling", &sampling(model.sampling()));
    line("correction", &entry.correction.to_string());
    for group in model.layers() {
        line(&format!("{} layers", group.count), &layer(group));
    }
    line("per GPU", &per_rank(deployment, memory));
    if !entry.hf_ids.is_empty() {
        line("known as", &entry.hf_ids.join(", "));
    }
    for note in model.notes() {
        line("note", note);
    }
    out
}

fn sampling(defaults: Option<&SamplingDefaults>) -> String {
    let Some(defaults) = defaults else { return "unknown: no generation_config.json is at hand".to_owned() };
    let number = |name: &str, value: Option<f64>| value.map(|value| format!("{name} {value}"));
    let set = [
        number("temperature", defaults.temperature),
        number("top_p", defaults.top_p),
        defaults.top_k.map(|k| format!("top_k {k}")),
        number("min_p", defaults.min_p),
        number("repetition_penalty", defaults.repetition_penalty),
    ];
    let set: Vec<String> = set.into_iter().flatten().collect();
    if set.is_empty() {
        return "neutral: generation_config.json sets no sampling parameters".to_owned();
    }
    format!("{} (generation_config.json)", set.join(", "))
}

fn per_rank(deployment: &Deployment, memory: &Memory) -> String {
    format!(
        "{} of weights and {} of KV cache per token, at tensor_parallel_size {}, pipeline_parallel_size {}, \
         data_parallel_size {}{}",
        quantity(memory.max_weight_bytes(), "B"),
        quantity(memory.kv_bytes_per_token(), "B"),
        deployment.tensor_parallel_size,
        deployment.pipeline_parallel_size,
        deployment.data_parallel_size,
        if deployment.enable_expert_parallel { ", experts in parallel" } else { "" }
    )
}

fn layer(group: &LayerGroup) -> String {
    let mut parts = vec![match &group.attention {
        Attention::Gqa(gqa) => {
            let window = match gqa.window {
                Window::Full => String::new(),
                Window::Sliding(tokens) => format!(", sliding window of {}", count(tokens)),
                Window::Chunked(tokens) => format!(", chunks of {}", count(tokens)),
            };
            format!("{} query and {} KV heads of {}{window}", gqa.num_heads, gqa.num_kv_heads, gqa.head_dim)
        }
        Attention::Mla(mla) => format!(
            "latent attention, {} heads on a latent of {} + {}",
            mla.num_heads, mla.kv_lora_rank, mla.qk_rope_head_dim
        ),
    }];
    if let Some(dense) = &group.dense {
        parts.push(format!("dense block of {} in {}", count(dense.intermediate_size), dense.weights));
    }
    if let Some(moe) = &group.moe {
        let shared = moe
            .shared
            .as_ref()
            .map_or_else(String::new, |shared| format!(" and a shared one of {}", count(shared.intermediate_size)));
        parts.push(format!(
            "{} of {} experts of {} in {}{shared}",
            moe.top_k,
            moe.num_experts,
            count(moe.intermediate_size),
            moe.weights
        ));
    }
    parts.join("; ")
}

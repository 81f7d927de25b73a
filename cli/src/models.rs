//! `ridgepoint models`: the list of models, and one model in detail.

use clap::Args;
use ridgepoint::model::{Attention, LayerGroup, Recurrence, SamplingParams, Window};
use ridgepoint::{Deployment, Model};
use ridgepoint_lab::model_report::{ModelDetail, ModelEntry, ModelReport};
use ridgepoint_lab::served::{fields, settings};

use crate::common::Common;
use crate::deployment::Parallel;
use crate::flags::Flags;
use crate::outcome::{Failure, Outcome, Report};
use crate::text::{Page, Rows, count, quantity};

/// The arguments of `models`.
#[derive(Debug, Args)]
pub struct Models {
    /// Name or path of one model, to show its layers and the share of one GPU
    #[arg(value_name = "NAME|PATH")]
    name: Option<String>,
    /// Family (`model_type`) whose keys and layers the config.json has, for one of a family that is not known
    #[arg(long, value_name = "NAME", requires = "name")]
    as_family: Option<String>,
    #[command(flatten)]
    parallel: Flags<Parallel>,
}

/// Lists models, or shows one.
///
/// # Errors
/// A model that is unknown, unreadable or cannot be split as requested.
pub fn run(args: &Models, common: &Common) -> Result<Outcome<ModelReport>, Failure> {
    let data_dir = common.data_dir();
    let Some(name) = &args.name else { return Ok(Outcome::of(ModelReport::list(data_dir)?)) };
    let model = Model::find_as(data_dir, name, args.as_family.as_deref())?;
    Ok(Outcome::of(ModelReport::one(model, Deployment::try_from(args.parallel.given.clone())?)?))
}

impl Report for ModelReport {
    fn lay_out(&self, page: &mut Page) {
        match self {
            ModelReport::List { models } => list(models, page),
            ModelReport::One(detail) => one(detail, page),
        }
    }
}

/// One line per model.
fn list(entries: &[ModelEntry], page: &mut Page) {
    let rows = Rows::of(entries)
        .left("name", |of| of.model.name.clone())
        .left("model_type", |of| of.model.model_type.clone())
        .right("parameters", |of| billions(of.parameters.total))
        .right("active", |of| billions(of.parameters.active))
        .right("layers", |of| of.num_layers.to_string())
        .left("attention", |of| of.attention.clone())
        .left("weights", |of| of.weight_formats.join(", "))
        .right("bytes", |of| quantity(of.weight_bytes, "B"))
        .left("correction", |of| match of.correction.level {
            "model" => "own".to_owned(),
            _ => of.correction.to_string(),
        })
        .left("Hugging Face id", |of| of.hf_ids.first().cloned().unwrap_or_default());
    page.rows(&rows, &["Hugging Face id", "bytes", "model_type", "correction", "weights"]);
    page.blank();
    let text = "Names are found in any case, with or without organisation and suffixes such as -Instruct; a path of any other \
                config.json works too. `ridgepoint models NAME` shows one in detail.";
    page.paragraph("", text);
}

fn billions(parameters: u64) -> String {
    quantity(parameters as f64, "").trim_end().replace('G', "B")
}

/// One model in detail, for people.
fn one(of: &ModelDetail, page: &mut Page) {
    let ModelDetail { entry, deployment, .. } = of;
    let (model, counts) = (&entry.model, entry.parameters);
    page.line(&format!("{} ({})", model.name, model.model_type));
    page.blank();
    let (total, embedding) = (count(counts.total), billions(counts.embedding));
    let active = billions(counts.active);
    page.fact("parameters", &format!("{total}, {active} active per token, {embedding} of them in the embedding"));
    page.fact("weights", &format!("{} in {}", quantity(entry.weight_bytes, "B"), entry.weight_formats.join(", ")));
    page.fact("hidden size", &count(model.hidden_size));
    let tied = if model.tie_word_embeddings { ", shared with the LM head" } else { "" };
    page.fact("vocabulary", &format!("{}{tied}", count(model.vocab_size)));
    page.fact("context", &format!("up to {} tokens", count(model.max_position_embeddings)));
    page.fact("sampling", &sampling(model.sampling.as_ref()));
    page.fact("correction", &entry.correction.to_string());
    for group in &model.layers {
        page.fact(&format!("{} layers", group.count), &layer(group));
    }
    let (weights, kv) = (of.weight_bytes_per_rank, of.kv_bytes_per_token_per_rank);
    let per_gpu = format!("{} of weights and {} of KV cache per token", quantity(weights, "B"), quantity(kv, "B"));
    page.fact("per GPU", &(per_gpu + &settings(deployment, &Deployment::default())));
    if let Some(state) = of.memory.state {
        let bytes = quantity(state.layers * state.bytes_per_layer, "B");
        page.fact("states", &format!("{bytes} per GPU for each request, whatever its length"));
    }
    if !entry.hf_ids.is_empty() {
        page.fact("known as", &entry.hf_ids.join(", "));
    }
    model.notes.iter().for_each(|note| page.fact("note", note));
}

fn sampling(defaults: Option<&SamplingParams>) -> String {
    let Some(defaults) = defaults else { return "unknown: no generation_config.json is at hand".to_owned() };
    let set: Vec<String> = fields(defaults)
        .iter()
        .filter(|(_, value)| !value.is_null())
        .map(|(key, value)| format!("{key} {value}"))
        .collect();
    if set.is_empty() {
        return "neutral: generation_config.json sets no sampling parameters".to_owned();
    }
    format!("{} (generation_config.json)", set.join(", "))
}

fn layer(group: &LayerGroup) -> String {
    let attention = match &group.attention {
        Attention::Gqa(gqa) => {
            let window = match gqa.window {
                Window::Full => String::new(),
                Window::Sliding(tokens) => format!(", sliding window of {}", count(tokens)),
                Window::Chunked(tokens) => format!(", chunks of {}", count(tokens)),
                Window::Picked(tokens) => format!(", {} picked tokens", count(tokens)),
            };
            format!("{} query and {} KV heads of {}{window}", gqa.num_heads, gqa.num_kv_heads, gqa.head_dim)
        }
        Attention::Mla(mla) => {
            let (heads, latent, rope) = (mla.num_heads, mla.kv_lora_rank, mla.qk_rope_head_dim);
            let sparse = mla.sparse.map_or_else(String::new, |sparse| {
                let indexer = sparse.indexer.map_or_else(
                    || "those of an earlier layer's indexer".to_owned(),
                    |indexer| format!("an indexer of {} heads of {} picks them", indexer.num_heads, indexer.head_dim),
                );
                format!(", {} tokens a query ({indexer})", count(sparse.topk))
            });
            format!("latent attention, {heads} heads on a latent of {latent} + {rope}{sparse}")
        }
        Attention::State(mixer) => {
            let (heads, keys, values) = (mixer.num_heads, mixer.key_head_dim, mixer.head_dim);
            let name = match mixer.recurrence {
                Recurrence::GatedDeltaNet => "gated delta net",
                Recurrence::Mamba2 => "Mamba-2",
            };
            format!("{name}, {heads} heads with a state of {keys} x {values} in {}", mixer.state_dtype)
        }
        Attention::None => "no token mixer".to_owned(),
    };
    let dense =
        group.dense.iter().map(|of| format!("; dense block of {} in {}", count(of.intermediate_size), of.weights));
    let experts = group.moe.iter().map(|of| {
        let (top_k, experts, width) = (of.top_k, of.num_experts, count(of.intermediate_size));
        let shared = of.shared.iter().map(|of| format!(" and a shared one of {}", count(of.intermediate_size)));
        format!("; {top_k} of {experts} experts of {width} in {}{}", of.weights, shared.collect::<String>())
    });
    std::iter::once(attention).chain(dense).chain(experts).collect()
}

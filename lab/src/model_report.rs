//! The built-in models with their derived figures, and one model in a deployment.

use std::collections::BTreeSet;
use std::path::Path;

use ridgepoint::correction::CorrectionInfo;
use ridgepoint::input::files_in;
use ridgepoint::model::{Attention, Recurrence, builtin_models};
use ridgepoint::physics::{Memory, ParameterCounts};
use ridgepoint::{CorrectionChoice, Deployment, EfficiencyMode, Model};
use serde::Serialize;

/// The result of `models`.
#[derive(Serialize)]
#[serde(untagged)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum ModelReport {
    /// All models.
    List {
        /// Those of the data folder, then the built-in ones.
        models: Vec<ModelEntry>,
    },
    /// One model, and the share of one GPU.
    One(Box<ModelDetail>),
}

/// A model and its derived figures.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ModelEntry {
    /// The model.
    #[serde(flatten)]
    pub model: Model,
    /// Its parameters.
    pub parameters: ParameterCounts,
    /// Its layers.
    pub num_layers: u64,
    /// `gqa`, `mla` or both.
    pub attention: String,
    /// How weights are stored, the layers' formats in their order.
    pub weight_formats: Vec<String>,
    /// All weights as stored.
    pub weight_bytes: f64,
    /// Hugging Face ids of this architecture; the facts were published under the first.
    pub hf_ids: &'static [String],
    /// The built-in correction that predictions take: the model's own, the global one, or none.
    pub correction: CorrectionInfo,
}

/// A model in a deployment.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ModelDetail {
    /// The model.
    #[serde(flatten)]
    pub entry: ModelEntry,
    /// How it is spread over GPUs.
    pub deployment: Deployment,
    /// Weights of the rank that holds most.
    pub weight_bytes_per_rank: f64,
    /// KV cache of one token on one rank.
    pub kv_bytes_per_token_per_rank: f64,
    /// What takes memory of a GPU.
    pub memory: Memory,
}

impl ModelEntry {
    fn new(model: Model) -> ridgepoint::Result<Self> {
        let mut attention = BTreeSet::new();
        let mut weight_formats: Vec<String> = Vec::new();
        for group in &model.layers {
            let mixer = match &group.attention {
                Attention::Gqa(gqa) => Some(("gqa", [gqa.qkv_weights, gqa.o_weights])),
                Attention::Mla(mla) => Some(("mla", [mla.weights; 2])),
                Attention::State(mixer) => Some((recurrence(mixer.recurrence), [mixer.in_weights, mixer.out_weights])),
                Attention::None => None,
            };
            attention.extend(mixer.map(|(kind, _)| kind));
            let attention_weights = mixer.into_iter().flat_map(|(_, weights)| weights);
            let dense = group.dense.iter().map(|dense| dense.weights);
            let stored = attention_weights.chain(dense).chain(group.moe.iter().map(|moe| moe.weights));
            weight_formats.extend(stored.map(|format| format.to_string()));
        }
        let mut seen = BTreeSet::new();
        weight_formats.retain(|format| seen.insert(format.clone()));
        let builtin = builtin_models().iter().find(|builtin| builtin.name == model.name);
        let correction = CorrectionChoice::Auto.resolve(&model.name, EfficiencyMode::Tables)?;
        Ok(ModelEntry {
            parameters: model.parameters(),
            num_layers: model.num_layers(),
            attention: attention.into_iter().collect::<Vec<_>>().join("+"),
            weight_formats,
            weight_bytes: model.weight_bytes(),
            hf_ids: builtin.map_or(&[], |builtin| &builtin.hf_ids),
            correction: CorrectionInfo::of(correction.as_deref()),
            model,
        })
    }
}

impl ModelReport {
    /// All models.
    ///
    /// # Errors
    /// A file of the data folder that is at fault.
    pub fn list(data_dir: Option<&Path>) -> ridgepoint::Result<Self> {
        let own = files_in(data_dir, "models", "json")?;
        let own = own.iter().map(Model::load);
        let models = own.chain(builtin_models().iter().map(|builtin| Model::builtin(&builtin.name)));
        let models = models.map(|model| ModelEntry::new(model?)).collect::<ridgepoint::Result<_>>()?;
        Ok(ModelReport::List { models })
    }

    /// One model in a deployment.
    ///
    /// # Errors
    /// A deployment that the model cannot be split by.
    pub fn one(model: Model, deployment: Deployment) -> ridgepoint::Result<Self> {
        let entry = ModelEntry::new(model)?;
        let memory = Memory::new(&entry.model, &deployment)?;
        let (weight_bytes_per_rank, kv_bytes_per_token_per_rank) =
            (memory.max_weight_bytes(), memory.kv_bytes_per_token());
        let detail = ModelDetail { entry, deployment, weight_bytes_per_rank, kv_bytes_per_token_per_rank, memory };
        Ok(ModelReport::One(Box::new(detail)))
    }
}

fn recurrence(recurrence: Recurrence) -> &'static str {
    match recurrence {
        Recurrence::GatedDeltaNet => "gdn",
        Recurrence::Mamba2 => "mamba2",
    }
}

//! The device memory of a rank: its weights, and its KV cache per token. The matrices and cache widths come from the same
//! functions as those that a step reads.

use serde::Serialize;

use crate::deployment::Deployment;
use crate::error::Result;
use crate::model::{Attention, LayerGroup, Model, Window};

use super::attention::kv_bytes_per_token;
use super::check::check;
use super::layer;
use super::parameters::{Part, layer_parts, tower_bytes};
use super::pipeline::layers_per_stage;
use super::projection::vocab_rows_per_rank;
use super::ranks::Context;
use super::state_shape::StateHeads;

/// Cache cost of the layers with one kind of window, on one rank of the stage with most layers.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct KvCacheBytes {
    /// The window; a token outside it needs no cache in these layers.
    pub window: Window,
    /// Layers with it in the stage; fractional where stages share a kind of layer unevenly.
    pub layers: f64,
    /// Bytes per cached token in all of these layers.
    pub bytes_per_token: f64,
}

/// The states of layers that keep one per request, on one rank of the stage with most layers.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StateBytes {
    /// Layers with a state in the stage; fractional where stages share a kind of layer unevenly.
    pub layers: f64,
    /// Bytes of a request's state in one layer: of the convolution and of the recurrence.
    pub bytes_per_layer: f64,
}

/// Weights and cache of one rank.
///
/// With pipeline stages the order of layers of different kinds is not known, so each stage has its share of each kind.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Memory {
    /// Bytes of weights per rank, stage by stage.
    pub weight_bytes_per_stage: Vec<f64>,
    /// Cache cost per token, one entry per kind of window.
    pub kv_cache: Vec<KvCacheBytes>,
    /// State per request; `None` for models without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<StateBytes>,
}

impl Memory {
    /// The memory that a deployment of this model needs on one rank.
    ///
    /// # Formula
    /// Weights: `Σ n·k·b_weight` over the rank's matrices, experts included, and norms, biases and the like in the
    /// model's dtype; the embedding on the first stage, the LM head on the last (once if tied and on the same stage); the towers on the
    /// first stage, split over its tensor-parallel ranks.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](crate::ErrorKind) where the deployment does not fit the model.
    pub fn new(model: &Model, deployment: &Deployment) -> Result<Self> {
        check(model, deployment)?;
        let context = Context::new(model, deployment);
        let split = layers_per_stage(model.num_layers(), context.ranks.pipeline);
        let num_layers = model.num_layers().max(1) as f64;
        let all_layers: f64 = model.layers.iter().map(|g| g.count as f64 * layer_weight_bytes(g, context)).sum();
        let towers = if deployment.language_model_only { 0.0 } else { tower_bytes(model) };
        let ends = |stage: usize| end_weight_bytes(model, towers, context, stage == 0, stage + 1 == split.len());
        let weight_bytes_per_stage = split
            .iter()
            .enumerate()
            .map(|(stage, layers)| all_layers * *layers as f64 / num_layers + ends(stage))
            .collect();
        let most_layers = split.iter().copied().max().unwrap_or(0) as f64 / num_layers;
        let (kv_cache, state) = (kv_cache(model, context, most_layers), state(model, context, most_layers));
        let memory = Memory { weight_bytes_per_stage, kv_cache, state };
        match &model.draft {
            Some(draft) if deployment.num_draft_tokens > 0 => Ok(memory.with(&Memory::new(&draft.model, deployment)?)),
            _ => Ok(memory),
        }
    }

    /// Adds what drafts tokens, on the same ranks.
    fn with(mut self, draft: &Memory) -> Self {
        for (bytes, of_draft) in self.weight_bytes_per_stage.iter_mut().zip(&draft.weight_bytes_per_stage) {
            *bytes += of_draft;
        }
        for kind in &draft.kv_cache {
            match self.kv_cache.iter_mut().find(|known| known.window == kind.window) {
                Some(known) => known.bytes_per_token += kind.bytes_per_token,
                None => self.kv_cache.push(*kind),
            }
        }
        self
    }

    /// Weights of the rank that holds most.
    pub fn max_weight_bytes(&self) -> f64 {
        self.weight_bytes_per_stage.iter().copied().fold(0.0, f64::max)
    }

    /// Bytes per token of all layers, as long as every window still holds it.
    pub fn kv_bytes_per_token(&self) -> f64 {
        self.kv_cache.iter().map(|kind| kind.bytes_per_token).sum()
    }
}

fn kv_cache(model: &Model, context: Context, share_of_layers: f64) -> Vec<KvCacheBytes> {
    let mut kinds: Vec<KvCacheBytes> = Vec::new();
    for group in &model.layers {
        let Some(window) = layer::window(group) else { continue };
        // Any token may be picked, so that all are kept.
        let window = if matches!(window, Window::Picked(_)) { Window::Full } else { window };
        let layers = group.count as f64 * share_of_layers;
        let heads = layer::cache_heads(group, context);
        let bytes_per_token = layers * heads.iter().map(kv_bytes_per_token).sum::<f64>();
        match kinds.iter_mut().find(|kind| kind.window == window) {
            Some(kind) => {
                kind.layers += layers;
                kind.bytes_per_token += bytes_per_token;
            }
            None => kinds.push(KvCacheBytes { window, layers, bytes_per_token }),
        }
    }
    kinds
}

/// Families have one kind of state; of several the largest counts for all, as pages of one size hold them.
fn state(model: &Model, context: Context, share_of_layers: f64) -> Option<StateBytes> {
    let groups = model.layers.iter().filter_map(|group| match &group.attention {
        Attention::State(mixer) => {
            let bytes = StateHeads::new(mixer, context.activation, context.ranks).state_bytes();
            Some(StateBytes { layers: group.count as f64 * share_of_layers, bytes_per_layer: bytes })
        }
        _ => None,
    });
    groups.reduce(|one, other| StateBytes {
        layers: one.layers + other.layers,
        bytes_per_layer: one.bytes_per_layer.max(other.bytes_per_layer),
    })
}

fn layer_weight_bytes(group: &LayerGroup, context: Context) -> f64 {
    layer_parts(group, context, true).iter().map(Part::stored_bytes).sum()
}

fn end_weight_bytes(model: &Model, tower_bytes: f64, context: Context, is_first: bool, is_last: bool) -> f64 {
    let elements = (vocab_rows_per_rank(model.vocab_size, context.ranks.tensor) * context.hidden) as f64;
    let norm = if is_last { context.hidden as f64 * context.activation.bytes() } else { 0.0 };
    let embedding = if is_first { elements * context.activation.bytes() } else { 0.0 };
    let shared = is_first && model.tie_word_embeddings;
    let head = if is_last && !shared { elements * model.lm_head_weights.bytes_per_weight() } else { 0.0 };
    if let Some(of) = model.head {
        let inputs = (of.inputs * context.hidden * context.hidden) as f64 * context.activation.bytes();
        return norm + inputs + if of.has_lm_head { head } else { 0.0 };
    }
    // Engines split the matrices of towers over the tensor-parallel ranks of the first stage.
    let towers = if is_first { tower_bytes / context.ranks.tensor as f64 } else { 0.0 };
    norm + embedding + head + towers
}

//! The shape of a model: its layers, their sizes, and how their weights are stored. This file holds data alone; `config`
//! constructs it.

use serde::Serialize;

use super::draft::{Draft, DraftHead};
use super::sampling::SamplingParams;
use crate::dtype::{DType, WeightFormat};

/// The earlier tokens that a query sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum Window {
    /// All of them.
    #[default]
    Full,
    /// The last `n` tokens, its own included (gpt-oss, Gemma, Mistral v0.1).
    Sliding(u64),
    /// Those of its own chunk of `n` tokens (Llama-4's local layers).
    Chunked(u64),
    /// The `n` tokens that an indexer picks among all of them (DeepSeek-V3.2, GLM-5).
    Picked(u64),
}

impl Window {
    /// Its length in tokens; `None` for all.
    pub fn size(self) -> Option<u64> {
        match self {
            Window::Full => None,
            Window::Sliding(tokens) | Window::Chunked(tokens) | Window::Picked(tokens) => Some(tokens),
        }
    }
}

/// Multi-head, grouped-query or multi-query attention with an explicit KV cache.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GqaAttention {
    /// Query heads of the whole model (not per rank).
    pub num_heads: u64,
    /// KV heads of the whole model.
    pub num_kv_heads: u64,
    /// Width of a query and key head.
    pub head_dim: u64,
    /// Width of a value head (equals `head_dim` but in a few models).
    pub v_head_dim: u64,
    /// Visible earlier tokens.
    pub window: Window,
    /// The values are the keys, so there is no value projection (Gemma 4's global layers). The cache still holds both.
    pub k_eq_v: bool,
    /// The query projection also computes an output gate of the same width.
    pub output_gate: bool,
    /// Queries and keys are normalised before the scores.
    pub qk_norm: bool,
    /// Weights of those norms, elements in total; 0 for norms without weights, as in Llama-4.
    pub qk_norm_params: u64,
    /// Width of a head's part with rotary embedding; 0 for none (Nemotron-H).
    pub rotary_dim: u64,
    /// Biases on the query, key and value projections.
    pub qkv_bias: bool,
    /// Bias on the output projection.
    pub o_bias: bool,
    /// Other small parameters (attention sinks), elements.
    pub extra_params: u64,
    /// Storage of the fused query, key and value projection.
    pub qkv_weights: WeightFormat,
    /// Storage of the output projection.
    pub o_weights: WeightFormat,
}

/// Multi-head latent attention (DeepSeek V2/V3, Kimi-K2): the cache holds one latent of
/// `kv_lora_rank + qk_rope_head_dim` values per token, shared by all heads and replicated on every tensor-parallel rank.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MlaAttention {
    /// Query heads of the whole model.
    pub num_heads: u64,
    /// Rank of the query's down-projection; `None` if queries have a single projection (V2-Lite).
    pub q_lora_rank: Option<u64>,
    /// Rank of the latent.
    pub kv_lora_rank: u64,
    /// Width of a head's part without rotary embedding.
    pub qk_nope_head_dim: u64,
    /// Width of the rotary part, shared by all heads in the keys.
    pub qk_rope_head_dim: u64,
    /// Width of a value head.
    pub v_head_dim: u64,
    /// Storage of the projections of queries, keys and values.
    pub weights: WeightFormat,
    /// Storage of the output projection.
    pub o_weights: WeightFormat,
    /// Attention to picked tokens alone; `None` if queries see all earlier ones.
    pub sparse: Option<SparseAttention>,
}

/// Sparse attention over tokens that an indexer picks for each query (DeepSeek-V3.2, GLM-5). The indexer is replicated on every
/// tensor-parallel rank.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SparseAttention {
    /// Tokens that a query attends to at most (`index_topk`).
    pub topk: u64,
    /// The layer's own indexer; `None` if it uses the picks of an earlier layer (GLM-5.2).
    pub indexer: Option<Indexer>,
}

/// The scorer that picks tokens: queries of several heads against one small key per token, without values.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Indexer {
    /// Query heads (`index_n_heads`).
    pub num_heads: u64,
    /// Width of a query head, and of a token's key (`index_head_dim`).
    pub head_dim: u64,
    /// Storage of the query's projection (`wq_b`).
    pub query_weights: WeightFormat,
    /// Storage of the fused projection to the key and to the heads' weights (`wk`, `weights_proj`): 16 bits in vLLM.
    pub key_weights: WeightFormat,
}

/// The recurrence of layers that keep a state of fixed size per request instead of a KV cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum Recurrence {
    /// Gated delta net (Qwen3-Next, Qwen3.5).
    GatedDeltaNet,
    /// State-space duality (Nemotron-H).
    Mamba2,
}

impl Recurrence {
    /// Name in tables and measurement files.
    pub fn name(self) -> &'static str {
        match self {
            Recurrence::GatedDeltaNet => "gated_delta_net",
            Recurrence::Mamba2 => "mamba2",
        }
    }

    /// The recurrence of a name in tables and measurement files.
    pub fn parse(name: &str) -> Option<Self> {
        [Recurrence::GatedDeltaNet, Recurrence::Mamba2].into_iter().find(|known| known.name() == name)
    }
}

/// A token mixer with a state: a short causal convolution, a recurrence over heads, a gated norm.
///
/// Both recurrences have the same sizes. A head's state is `head_dim` times `key_head_dim` values.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StateMixer {
    /// Update rule of the state, token by token.
    pub recurrence: Recurrence,
    /// Heads with a state of their own (`linear_num_value_heads`, `mamba_num_heads`).
    pub num_heads: u64,
    /// Width of a head's values (`linear_value_head_dim`, `mamba_head_dim`).
    pub head_dim: u64,
    /// Heads of keys and queries, shared by several of the former (`linear_num_key_heads`, `n_groups`).
    pub num_key_heads: u64,
    /// Width of a key (`linear_key_head_dim`, `ssm_state_size`).
    pub key_head_dim: u64,
    /// Tokens that the convolution sees (`linear_conv_kernel_dim`, `conv_kernel`).
    pub conv_kernel: u64,
    /// Tokens that prefill computes at once by matrix multiplications.
    pub chunk_size: u64,
    /// Bias on the convolution.
    pub conv_bias: bool,
    /// Biases on the projections.
    pub bias: bool,
    /// Number format of the recurrence's state; that of the convolution is the model's.
    pub state_dtype: DType,
    /// Storage of the input projection.
    pub in_weights: WeightFormat,
    /// Storage of the projection to a gated delta net's gates; that of Mamba-2 is part of the input projection.
    pub gate_weights: WeightFormat,
    /// Storage of the output projection.
    pub out_weights: WeightFormat,
}

/// The token mixer of a layer.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum Attention {
    /// Explicit keys and values.
    Gqa(GqaAttention),
    /// A latent.
    Mla(MlaAttention),
    /// A state of fixed size.
    State(StateMixer),
    /// None: the layer is a feed-forward part alone (Nemotron-H).
    None,
}

/// A dense feed-forward block, also used for shared experts.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DenseFfn {
    /// Width between the two projections, of the whole model.
    pub intermediate_size: u64,
    /// True for SwiGLU and GeGLU (three matrices), false for a plain MLP (two).
    pub gated: bool,
    /// Biases on the projections.
    pub bias: bool,
    /// Storage of its matrices.
    pub weights: WeightFormat,
}

/// Routed experts.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Moe {
    /// Routed experts of the layer.
    pub num_experts: u64,
    /// Experts that each token visits.
    pub top_k: u64,
    /// Width of one expert.
    pub intermediate_size: u64,
    /// True for SwiGLU experts (three matrices), false for a plain MLP (two).
    pub gated: bool,
    /// Width of the space that experts work in, projected to and from by every token; `None` for the residual stream's own
    /// (`moe_latent_size`).
    pub latent_size: Option<u64>,
    /// Biases on the experts' projections and on the router.
    pub bias: bool,
    /// Other small parameters per layer (score-correction bias, per-expert scales), elements.
    pub extra_params: u64,
    /// Storage of the experts' matrices.
    pub weights: WeightFormat,
    /// Storage of the router.
    pub router_weights: WeightFormat,
    /// Storage of the projections to and from the latent space.
    pub latent_weights: WeightFormat,
    /// Experts that every token visits, as one dense block; its width is that of all shared experts together.
    pub shared: Option<DenseFfn>,
    /// The shared expert has a gate of `hidden_size` weights.
    pub shared_gate: bool,
}

/// Equal layers.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LayerGroup {
    /// Number of these layers.
    pub count: u64,
    /// Their token mixer.
    pub attention: Attention,
    /// Dense feed-forward block; present together with `moe` in Gemma 4.
    pub dense: Option<DenseFfn>,
    /// Routed experts.
    pub moe: Option<Moe>,
    /// Weights of the layer's norms outside the attention, elements (2·hidden in Llama, 4·hidden in Gemma).
    pub norm_params: u64,
}

/// A decoder-only language model. As it is read, every size is positive, and every relation between sizes holds.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Model {
    /// Short name, or the path of its configuration.
    pub name: String,
    /// `model_type` of the configuration (of its text part where it is nested).
    pub model_type: String,
    /// Width of the residual stream.
    pub hidden_size: u64,
    /// Rows of the embedding.
    pub vocab_size: u64,
    /// Longest context that the configuration allows, a scaling of rotary embeddings included.
    pub max_position_embeddings: u64,
    /// The LM head shares the embedding's weights.
    pub tie_word_embeddings: bool,
    /// Number format of activations (`torch_dtype`).
    pub dtype: DType,
    /// Storage of the LM head.
    pub lm_head_weights: WeightFormat,
    /// Number format of the KV cache that the checkpoint asks for (`kv_cache_scheme`, `kv_cache_quant_algo`).
    pub kv_cache_dtype: Option<DType>,
    /// Parameters of vision and audio towers with their projectors, which take memory unquantised; `None` where the configuration states
    /// no sizes of any. Their work is not predicted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tower_params: Option<u64>,
    /// The layers, in groups of equal ones.
    pub layers: Vec<LayerGroup>,
    /// The group of each layer, from the first layer on.
    #[serde(skip)]
    pub(crate) group_of_layer: Vec<usize>,
    /// The sampling parameters that the publisher recommends; `None` if no `generation_config.json` is known.
    pub sampling: Option<SamplingParams>,
    /// Assumptions of the parser, which users see as warnings.
    pub notes: Vec<String>,
    /// A note says that a name promises a quantisation which the checkpoint lacks.
    #[serde(skip)]
    pub(crate) is_noted_as_plain: bool,
    /// Layers for multi-token prediction that the checkpoint has.
    #[serde(skip)]
    pub(crate) num_mtp_layers: u64,
    /// What drafts tokens for this model on the same GPUs (speculative decoding); `None` without.
    #[serde(skip)]
    pub draft: Option<Draft>,
    /// This model is a head over the hidden states of another one.
    #[serde(skip)]
    pub(crate) head: Option<DraftHead>,
}

impl Model {
    /// Number of all layers.
    pub fn num_layers(&self) -> u64 {
        self.layers.iter().map(|g| g.count).sum()
    }
}

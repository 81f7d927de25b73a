//! What drafts the tokens that a step of speculative decoding verifies, and the shape of its layers. Uses `shape`.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::sampling::SamplingParams;
use super::shape::{Attention, DenseFfn, GqaAttention, LayerGroup, Model, Window};
use crate::dtype::WeightFormat;
use crate::error::{Error, Result};

/// Most tokens that are drafted one after another for a step. Engines draft 1 to 8.
pub const MAX_SPECULATIVE_TOKENS: u32 = 32;
/// How the note on layers for multi-token prediction begins.
pub(super) const MTP_NOTE: &str = "the layers for multi-token prediction";
/// Rows of the vocabulary that public EAGLE-3 heads draft from (`draft_vocab_size`).
const EAGLE3_VOCABULARY: u64 = 32_000;
/// Sizes of public heads: width of a head and KV heads.
const HEAD_DIM: u64 = 128;
const KV_HEADS: u64 = 8;

/// The passes that draft tokens for a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DraftShape {
    /// Passes one after another, each behind the tokens of the one before: the most drafts that a step accepts.
    pub passes: u32,
    /// Tokens of a request in each pass but the first; above 1 for a tree of drafts.
    pub width: u32,
}

impl DraftShape {
    /// A chain of drafts.
    pub fn chain(passes: u32) -> Self {
        DraftShape { passes, width: 1 }
    }
}

/// A model that drafts tokens for another one.
#[derive(Debug, Clone, PartialEq)]
pub struct Draft {
    /// The model, or the head of one.
    pub model: Arc<Model>,
    /// Its passes for a step.
    pub shape: DraftShape,
}

/// A head over the hidden states of the model that it drafts for, whose embedding it shares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DraftHead {
    /// Vectors of `hidden_size` that are projected to its input.
    pub inputs: u64,
    /// It has an LM head of its own.
    pub has_lm_head: bool,
}

/// What drafts tokens, as vLLM's `speculative_config.method` names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum DraftMethod {
    /// The layer for the next token but one that the model was trained with (multi-token prediction).
    Mtp,
    /// A head of one layer over the model's last hidden state.
    Eagle,
    /// A head of one layer over hidden states of three layers, with a vocabulary of its own.
    Eagle3,
    /// A smaller model.
    DraftModel,
    /// The prompt and the output so far, searched for the last tokens: no kernels.
    Ngram,
}

impl DraftMethod {
    /// All of them.
    pub const ALL: [DraftMethod; 5] =
        [DraftMethod::Mtp, DraftMethod::Eagle, DraftMethod::Eagle3, DraftMethod::DraftModel, DraftMethod::Ngram];

    /// Returns vLLM's name of it.
    pub fn name(self) -> &'static str {
        match self {
            DraftMethod::Mtp => "mtp",
            DraftMethod::Eagle => "eagle",
            DraftMethod::Eagle3 => "eagle3",
            DraftMethod::DraftModel => "draft_model",
            DraftMethod::Ngram => "ngram",
        }
    }
}

impl Model {
    /// Returns this model with what drafts tokens for it: its own layer for multi-token prediction, a head of the usual shape, or the
    /// model `draft`. Of n-grams nothing runs on the GPU.
    ///
    /// # Source
    /// DeepSeek-V3 report (arXiv 2412.19437), section 2.2: a layer behind a projection of two vectors. EAGLE (arXiv 2401.15077), EAGLE-3
    /// (arXiv 2503.01840): one Llama layer behind a projection of two and of three.
    ///
    /// # Approximations
    /// - The layer for multi-token prediction is like the last layer with a KV cache, and is stored as it is.
    /// - A head has heads of 128 of which eight are KV heads, and the dense block of the model or one of four times its width, in 16 bits.
    ///
    /// ```
    /// use ridgepoint::Model;
    /// use ridgepoint::model::{DraftMethod, DraftShape};
    /// let model = Model::find("deepseek-r1")?.drafted(DraftMethod::Mtp, None, DraftShape::chain(3))?;
    /// assert_eq!(model.draft.map(|draft| draft.model.num_layers()), Some(1));
    /// # Ok::<(), ridgepoint::Error>(())
    /// ```
    ///
    /// # Errors
    /// `ErrorKind::Invalid` for a model without layers for multi-token prediction, and for a draft of another vocabulary.
    pub fn drafted(mut self, method: DraftMethod, draft: Option<Model>, shape: DraftShape) -> Result<Model> {
        let fault = |problem: String| Err(Error::invalid(self.name.clone(), vec![problem]));
        let drafting = match (method, draft) {
            (DraftMethod::Ngram, _) => None,
            (DraftMethod::Mtp, _) if self.num_mtp_layers == 0 => {
                return fault(
                    "has no layer for multi-token prediction (num_nextn_predict_layers, mtp_num_hidden_layers): the method mtp needs one; \
                     eagle3, draft_model and ngram do not"
                        .to_owned(),
                );
            }
            (DraftMethod::Mtp, _) => self.mtp_layer(),
            (DraftMethod::Eagle | DraftMethod::Eagle3, _) => Some(self.eagle_head(method == DraftMethod::Eagle3)),
            (DraftMethod::DraftModel, None) => {
                return fault("is drafted for by a model: name it in speculative_config, as \"model\"".to_owned());
            }
            (DraftMethod::DraftModel, Some(draft)) => {
                let (own, other) = (self.vocab_size, draft.vocab_size);
                if own.abs_diff(other) > own / 20 {
                    let name = &draft.name;
                    return fault(format!(
                        "has a vocabulary of {own}, and {name}, its draft, one of {other}: they must be the same"
                    ));
                }
                Some(draft)
            }
        };
        if method == DraftMethod::Mtp {
            self.notes.retain(|note| !note.starts_with(MTP_NOTE));
        }
        let greedy = SamplingParams { temperature: Some(0.0), ..SamplingParams::default() };
        self.draft = drafting.map(|draft| {
            let model = Arc::new(Model { sampling: Some(greedy), draft: None, ..draft });
            Draft { model, shape }
        });
        Ok(self)
    }

    /// The layer for multi-token prediction as a model.
    fn mtp_layer(&self) -> Option<Model> {
        let is_cached = |group: &&LayerGroup| matches!(group.attention, Attention::Gqa(_) | Attention::Mla(_));
        let last = self.group_of_layer.iter().rev().filter_map(|at| self.layers.get(*at)).find(is_cached);
        let layer = last.or_else(|| self.layers.iter().rev().find(is_cached))?;
        Some(self.head_of(LayerGroup { count: 1, ..layer.clone() }, DraftHead { inputs: 2, has_lm_head: false }))
    }

    /// An EAGLE head for this model.
    fn eagle_head(&self, is_third: bool) -> Model {
        let plain = WeightFormat::Plain(self.dtype);
        let num_heads = (self.hidden_size / HEAD_DIM).max(1);
        let attention = GqaAttention {
            num_heads,
            num_kv_heads: KV_HEADS.min(num_heads),
            head_dim: HEAD_DIM,
            v_head_dim: HEAD_DIM,
            window: Window::Full,
            k_eq_v: false,
            output_gate: false,
            qk_norm: false,
            qk_norm_params: 0,
            rotary_dim: HEAD_DIM,
            qkv_bias: false,
            o_bias: false,
            extra_params: 0,
            qkv_weights: plain,
            o_weights: plain,
        };
        let dense = self.layers.iter().find_map(|group| group.dense.as_ref());
        let intermediate_size = dense.map_or(4 * self.hidden_size, |dense| dense.intermediate_size);
        let dense = DenseFfn { intermediate_size, gated: true, bias: false, weights: plain };
        let layer = LayerGroup {
            count: 1,
            attention: Attention::Gqa(attention),
            dense: Some(dense),
            moe: None,
            norm_params: 2 * self.hidden_size,
        };
        let head = DraftHead { inputs: if is_third { 3 } else { 2 }, has_lm_head: is_third };
        let vocab_size = if is_third { EAGLE3_VOCABULARY.min(self.vocab_size) } else { self.vocab_size };
        Model {
            vocab_size,
            lm_head_weights: if is_third { plain } else { self.lm_head_weights },
            ..self.head_of(layer, head)
        }
    }

    /// A model of one layer over the hidden states of this one.
    fn head_of(&self, layer: LayerGroup, head: DraftHead) -> Model {
        Model {
            name: format!("the draft of {}", self.name),
            tower_params: None,
            layers: vec![layer],
            group_of_layer: vec![0],
            notes: Vec::new(),
            num_mtp_layers: 0,
            head: Some(head),
            ..self.clone()
        }
    }
}

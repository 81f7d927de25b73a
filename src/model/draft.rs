//! What drafts the tokens that a step of speculative decoding verifies, and the shape of its layers. Uses `shape`.

use serde::{Deserialize, Serialize};

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

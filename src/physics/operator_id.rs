//! The kinds of operator that a step can have, their names and groups, and the identity of an operator within a plan.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use serde::Serialize;

use crate::model::Window;

/// Operator groups, as the correction and the reports sum them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum OperatorGroup {
    /// QKV, output, MLP, router and LM head projections.
    Projections,
    /// Attention of prefill chunks, and the recurrence of layers with a state over them.
    AttentionPrefill,
    /// Attention of decodes, and the recurrence of layers with a state in them.
    AttentionDecode,
    /// Routed experts.
    Experts,
    /// All-reduce, all-gather, all-to-all, stage hand-over, weights that are read from the host.
    Communication,
    /// Norms, rotary embedding, activation, residual, KV write, embedding.
    SmallKernels,
    /// Penalties, top-p, top-k, and the choice of a token.
    Sampling,
}

macro_rules! operator_kinds {
    ($($kind:ident $name:literal $group:ident)*) => {
        /// Kind of an operator.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum OperatorKind {
            $(#[doc = concat!("`", $name, "`")] $kind,)*
        }

        impl OperatorKind {
            /// Name in reports and JSON; an operator's own name adds its window or a number where a model has several.
            pub const fn name(self) -> &'static str {
                match self {
                    $(OperatorKind::$kind => $name,)*
                }
            }

            /// Group that its time is summed in.
            pub const fn group(self) -> OperatorGroup {
                match self {
                    $(OperatorKind::$kind => OperatorGroup::$group,)*
                }
            }
        }
    };
}

operator_kinds! {
    Embedding "embedding" SmallKernels
    EmbeddingAllReduce "embedding_all_reduce" Communication
    Norms "norms" SmallKernels
    ActivationQuant "activation_quant" SmallKernels
    QkvProj "qkv_proj" Projections
    QkvAProj "qkv_a_proj" Projections
    QBProj "q_b_proj" Projections
    QProj "q_proj" Projections
    KvAProj "kv_a_proj" Projections
    InProjQkvz "in_proj_qkvz" Projections
    InProjBa "in_proj_ba" Projections
    InProj "in_proj" Projections
    ConvPrefill "conv_prefill" SmallKernels
    ConvDecode "conv_decode" SmallKernels
    ChunkScan "chunk_scan" AttentionPrefill
    StateUpdate "state_update" AttentionDecode
    GatedNorm "gated_norm" SmallKernels
    OutProj "out_proj" Projections
    QkNorm "qk_norm" SmallKernels
    LatentNorms "latent_norms" SmallKernels
    Rotary "rotary" SmallKernels
    IndexerQProj "indexer_q_proj" Projections
    IndexerKProj "indexer_k_proj" Projections
    IndexerQuant "indexer_quant" SmallKernels
    IndexCacheWrite "index_cache_write" SmallKernels
    IndexerPrefill "indexer_prefill" AttentionPrefill
    IndexerDecode "indexer_decode" AttentionDecode
    KvCacheWrite "kv_cache_write" SmallKernels
    KvBProj "kv_b_proj" Projections
    KvBProjContext "kv_b_proj_context" Projections
    KvContextGather "kv_context_gather" SmallKernels
    KeyJoin "key_join" SmallKernels
    AttentionPrefill "attention_prefill" AttentionPrefill
    QAbsorb "q_absorb" Projections
    AttentionDecode "attention_decode" AttentionDecode
    VUp "v_up" Projections
    AttentionGate "attention_gate" SmallKernels
    OProj "o_proj" Projections
    AllReduce "all_reduce" Communication
    GateUpProj "gate_up_proj" Projections
    UpProj "up_proj" Projections
    Activation "activation" SmallKernels
    DownProj "down_proj" Projections
    Router "router" Projections
    SharedCopy "shared_copy" SmallKernels
    SharedGateUpProj "shared_gate_up_proj" Projections
    SharedUpProj "shared_up_proj" Projections
    SharedActivation "shared_activation" SmallKernels
    SharedDownProj "shared_down_proj" Projections
    SharedGate "shared_gate" Projections
    MoeDispatch "moe_dispatch" Communication
    MoeTopk "moe_topk" SmallKernels
    MoeAlign "moe_align" SmallKernels
    ExpertQuant "expert_quant" SmallKernels
    Fc1LatentProj "fc1_latent_proj" Projections
    Experts "experts" Experts
    Fc2LatentProj "fc2_latent_proj" Projections
    MoeSum "moe_sum" SmallKernels
    SharedAdd "shared_add" SmallKernels
    MoeCombine "moe_combine" Communication
    MoeAllGather "moe_all_gather" Communication
    StageHandOver "stage_hand_over" Communication
    StageAllGather "stage_all_gather" Communication
    HostWeights "host_weights" Communication
    FinalNorm "final_norm" SmallKernels
    LmHeadQuant "lm_head_quant" SmallKernels
    LmHead "lm_head" Projections
    LogitsAllGather "logits_all_gather" Communication
    Penalties "penalties" Sampling
    TopPSort "top_p_sort" Sampling
    TopPCumsum "top_p_cumsum" Sampling
    TopPMask "top_p_mask" Sampling
    TopK "top_k" Sampling
    TruncationSearch "truncation_search" Sampling
    RejectionSampling "rejection_sampling" Sampling
    Sampling "sampling" Sampling
}

/// Identifies an operator within its plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OperatorId {
    /// Its kind.
    pub kind: OperatorKind,
    /// Number among those of its kind: 0 for the first shape.
    pub variant: u16,
}

impl OperatorId {
    /// The first operator of a kind.
    pub const fn first(kind: OperatorKind) -> Self {
        OperatorId { kind, variant: 0 }
    }
}

static KNOWN_NAMES: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());

/// Returns a copy of `name` that lives as long as the program. Each distinct name is kept once, and layer kinds bound
/// how many there are.
pub(super) fn intern(name: &str) -> &'static str {
    let mut known = KNOWN_NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(found) = known.get(name) {
        return found;
    }
    let kept: &'static str = Box::leak(name.to_owned().into_boxed_str());
    known.insert(kept);
    kept
}

/// Suffix of operators in layers with this window; empty for full attention.
pub(super) fn window_suffix(window: Window) -> &'static str {
    match window {
        Window::Full => "",
        Window::Sliding(_) => "_sliding",
        Window::Chunked(_) => "_chunked",
        Window::Picked(_) => "_sparse",
    }
}

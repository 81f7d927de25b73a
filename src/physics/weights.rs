//! The matrices of a layer that one rank holds, with the rows that they multiply.

use crate::dtype::WeightFormat;
use crate::model::{Attention, DenseFfn, GqaAttention, LayerGroup, MlaAttention, Moe};

use super::matrix::Matrix;
use super::mla::latent_width;
use super::operator_id::OperatorKind::{self, *};
use super::projection::{kv_heads_per_rank, vocab_rows_per_rank};
use super::ranks::{Context, Ranks};
use super::rows::Rows;
use super::{sparse, state};

/// Matrices of the attention of one layer, in order of execution.
pub(super) fn attention_matrices(group: &LayerGroup, context: Context) -> Vec<Matrix> {
    match &group.attention {
        Attention::Gqa(gqa) => gqa_matrices(gqa, context),
        Attention::Mla(mla) => mla_matrices(mla, context),
        Attention::State(mixer) => state::matrices(mixer, context),
        Attention::None => Vec::new(),
    }
}

/// Matrices of the feed-forward part that every token meets: dense block, router, shared experts.
pub(super) fn feed_forward_matrices(group: &LayerGroup, context: Context) -> Vec<Matrix> {
    let dense = group.dense.iter().flat_map(|dense| ffn_matrices(dense, context, false));
    let moe = group.moe.iter().flat_map(|moe| moe_matrices(moe, context));
    dense.chain(moe).collect()
}

/// The matrices of a layer that one rank stores: the projection of earlier context uses those of the chunk. Copies are the absorbed
/// projections.
pub(super) fn stored_matrices(
    group: &LayerGroup,
    context: Context,
    with_copies: bool,
) -> impl Iterator<Item = Matrix> + use<> {
    let matrices = attention_matrices(group, context).into_iter().chain(feed_forward_matrices(group, context));
    matrices.filter(move |matrix| matrix.kind != KvBProjContext && (with_copies || !is_copy(matrix.kind)))
}

/// Whether vLLM makes the matrix on the GPU as a copy of another one.
pub(super) fn is_copy(kind: OperatorKind) -> bool {
    matches!(kind, QAbsorb | VUp)
}

/// The LM head, applied to sampled tokens only.
pub(super) fn lm_head_matrix(vocab_size: u64, weights: WeightFormat, context: Context) -> Matrix {
    let rows = vocab_rows_per_rank(vocab_size, context.ranks.tensor);
    Matrix { rows: Rows::Sampled, ..Matrix::new(LmHead, rows, context.hidden, weights) }
}

/// Outputs of one rank's projection of queries with their gates, keys and values.
pub(super) fn qkv_width(attention: &GqaAttention, ranks: Ranks) -> u64 {
    let queries = attention.num_heads / ranks.tensor * if attention.output_gate { 2 } else { 1 };
    let kv_heads = kv_heads_per_rank(attention.num_kv_heads, ranks.tensor);
    let values = if attention.k_eq_v { 0 } else { kv_heads * attention.v_head_dim };
    (queries + kv_heads) * attention.head_dim + values
}

/// Query, key and value in one matrix, and the output projection.
fn gqa_matrices(attention: &GqaAttention, Context { hidden, ranks, .. }: Context) -> Vec<Matrix> {
    let inputs = attention.num_heads / ranks.tensor * attention.v_head_dim;
    vec![
        Matrix::new(QkvProj, qkv_width(attention, ranks), hidden, attention.qkv_weights),
        Matrix::new(OProj, hidden, inputs, attention.o_weights),
    ]
}

fn mla_matrices(mla: &MlaAttention, Context { hidden, activation, ranks, .. }: Context) -> Vec<Matrix> {
    let heads = mla.num_heads / ranks.tensor;
    let latent = latent_width(mla.kv_lora_rank, mla.qk_rope_head_dim);
    let query = heads * (mla.qk_nope_head_dim + mla.qk_rope_head_dim);
    let up = heads * (mla.qk_nope_head_dim + mla.v_head_dim);
    let plain = |kind, outputs, inputs| Matrix::new(kind, outputs, inputs, mla.weights);
    // vLLM keeps dequantised copies of the up-projection for the batched multiplications.
    let per_head = |kind, outputs, inputs| Matrix {
        // Chunks of sparse attention are absorbed too: each query has keys of its own.
        rows: if mla.sparse.is_some() { Rows::Padded } else { Rows::Decodes },
        copies: heads,
        ..Matrix::new(kind, outputs, inputs, WeightFormat::Plain(activation))
    };
    let mut matrices = match mla.q_lora_rank {
        // The down-projections are replicated on every rank.
        Some(rank) => vec![plain(QkvAProj, rank + latent, hidden), plain(QBProj, query, rank)],
        None => vec![plain(QProj, query, hidden), plain(KvAProj, latent, hidden)],
    };
    matrices.extend(sparse::indexer(mla).into_iter().flat_map(|indexer| sparse::matrices(mla, indexer, hidden)));
    matrices.extend([
        Matrix { rows: Rows::Prefill, ..plain(KvBProj, up, mla.kv_lora_rank) },
        Matrix { rows: Rows::PrefillContext, ..plain(KvBProjContext, up, mla.kv_lora_rank) },
        per_head(QAbsorb, mla.kv_lora_rank, mla.qk_nope_head_dim),
        per_head(VUp, mla.v_head_dim, mla.kv_lora_rank),
        Matrix::new(OProj, hidden, heads * mla.v_head_dim, mla.o_weights),
    ]);
    matrices
}

/// The two matrices of a feed-forward block, gate and up projection in one.
fn ffn_matrices(ffn: &DenseFfn, Context { hidden, ranks, .. }: Context, shared: bool) -> [Matrix; 2] {
    let width = ffn.intermediate_size / ranks.tensor;
    let up = match (shared, ffn.gated) {
        (false, true) => GateUpProj,
        (false, false) => UpProj,
        (true, true) => SharedGateUpProj,
        (true, false) => SharedUpProj,
    };
    let down = if shared { SharedDownProj } else { DownProj };
    [
        Matrix::new(up, width * if ffn.gated { 2 } else { 1 }, hidden, ffn.weights),
        Matrix::new(down, hidden, width, ffn.weights),
    ]
}

/// Router (replicated), shared experts, shared gate (replicated), projections to and from the experts' latent space (replicated).
///
/// # Source
/// vLLM, `NemotronHMoE` (`vllm/model_executor/models/nemotron_h.py`).
fn moe_matrices(moe: &Moe, context: Context) -> Vec<Matrix> {
    let mut matrices = vec![Matrix::new(Router, moe.num_experts, context.hidden, moe.router_weights)];
    if let Some(shared) = &moe.shared {
        matrices.extend(ffn_matrices(shared, context, true));
        if moe.shared_gate {
            matrices.push(Matrix::new(SharedGate, 1, context.hidden, moe.router_weights));
        }
    }
    if let Some(latent) = moe.latent_size {
        matrices.push(Matrix::new(Fc1LatentProj, latent, context.hidden, moe.latent_weights));
        matrices.push(Matrix::new(Fc2LatentProj, context.hidden, latent, moe.latent_weights));
    }
    matrices
}

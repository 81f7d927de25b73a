//! One layer of a model as a list of templates in order of execution, put together from the operator families.

use crate::dtype::{DType, WeightFormat};
use crate::engine::Engine;
use crate::model::{Attention, LayerGroup, Window};

use super::communication::{Collective, RankGroup, all_gather_sent_bytes, hand_over_bytes_per_token};
use super::experts::Experts;
use super::matrix::Matrix;
use super::operator::AttentionHeads;
use super::operator_id::OperatorKind::{self, *};
use super::ranks::{Context, Ranks};
use super::rows::Rows;
use super::template::{KernelTemplate, Template};
use super::weights::{attention_matrices, feed_forward_matrices, lm_head_matrix};
use super::{attention, mla, small, sparse, state, streams};

/// The window of a layer's attention; `None` without a KV cache.
pub(super) fn window(group: &LayerGroup) -> Option<Window> {
    match &group.attention {
        Attention::Gqa(gqa) => Some(gqa.window),
        Attention::Mla(latent) => Some(mla::window(latent)),
        Attention::State(_) | Attention::None => None,
    }
}

/// The window of a layer's indexer, which scores all tokens; `None` without one.
pub(super) fn indexer_window(group: &LayerGroup) -> Option<Window> {
    match &group.attention {
        Attention::Mla(latent) => sparse::indexer(latent).map(|_| Window::Full),
        _ => None,
    }
}

/// The heads that one rank caches for each token of a layer: of its attention, and of its indexer. Empty without a KV cache.
pub(super) fn cache_heads(group: &LayerGroup, context: Context) -> Vec<AttentionHeads> {
    match &group.attention {
        Attention::Gqa(gqa) => vec![attention::gqa_heads(gqa, context.kv_dtype, context.ranks)],
        Attention::Mla(latent) => {
            let indexer = sparse::indexer(latent).map(sparse::indexer_heads);
            std::iter::once(mla::decode_heads(latent, context.kv_dtype, context.ranks)).chain(indexer).collect()
        }
        Attention::State(_) | Attention::None => Vec::new(),
    }
}

/// All operators of one layer.
/// `windows` are the kinds of window of the model.
pub(super) fn templates(group: &LayerGroup, windows: &[Window], engine: &Engine, context: Context) -> Vec<Template> {
    let Context { hidden, activation, ranks, .. } = context;
    let matrices = attention_matrices(group, context);
    let feed_forward = feed_forward_matrices(group, context);
    let mut list = vec![small::norms(group.norm_params, hidden, activation)];
    let all: Vec<Matrix> = matrices.iter().chain(&feed_forward).copied().collect();
    list.extend(small::quantisation(&all, activation));
    let index = |window| windows.iter().position(|known| Some(*known) == window).unwrap_or(0);
    let window_index = index(window(group));
    let prefill = |heads| Template::new(AttentionPrefill, KernelTemplate::AttentionPrefill { heads, window_index });
    let decode = |heads| Template::new(AttentionDecode, KernelTemplate::AttentionDecode { heads, window_index });
    match &group.attention {
        Attention::Gqa(gqa) => {
            let heads = attention::gqa_heads(gqa, context.kv_dtype, ranks);
            list.extend(gemms(&matrices, &[QkvProj]));
            list.extend(small::before_gqa(gqa, &heads, activation));
            list.push(small::kv_cache_write(&heads, activation));
            list.extend([prefill(heads), decode(heads)]);
            if gqa.output_gate {
                list.push(small::attention_gate(&heads, activation));
            }
        }
        Attention::Mla(latent) => {
            let heads = mla::decode_heads(latent, context.kv_dtype, ranks);
            list.extend(gemms(&matrices, &[QkvAProj, QBProj, QProj, KvAProj]));
            list.extend(small::before_mla(latent, activation, ranks));
            if let Some(indexer) = sparse::indexer(latent) {
                list.extend(gemms(&matrices, &[IndexerQProj, IndexerKProj]));
                list.extend(sparse::templates(indexer, index(indexer_window(group)), activation));
            }
            list.push(small::kv_cache_write(&heads, activation));
            if latent.sparse.is_some() {
                // Chunks are absorbed as decodes are.
                list.extend(gemms(&matrices, &[QAbsorb]));
                list.push(prefill(heads));
            } else {
                list.extend(gemms(&matrices, &[KvBProj, KvBProjContext]));
                list.extend(small::prefill_mla(latent, context.kv_dtype, activation, ranks));
                list.push(prefill(mla::prefill_heads(latent, activation, ranks)));
                list.extend(gemms(&matrices, &[QAbsorb]));
            }
            list.push(decode(heads));
            list.extend(gemms(&matrices, &[VUp]));
        }
        Attention::State(mixer) => {
            list.extend(gemms(&matrices, &[InProjQkvz, InProjBa, InProj]));
            list.extend(state::templates(mixer, context));
        }
        Attention::None => {}
    }
    list.extend(gemms(&matrices, &[OProj, OutProj]));
    // One sum after the token mixer, and one after each feed-forward part: Gemma 4 norms its two before adding them.
    let mixers = u64::from(group.attention != Attention::None);
    let sums = mixers + u64::from(group.dense.is_some()) + u64::from(group.moe.is_some() && !context.shares_tokens);
    list.extend(all_reduce(AllReduce, context, sums));
    if let Some(dense) = &group.dense {
        list.extend(gemms(&feed_forward, &[GateUpProj, UpProj]));
        list.push(small::activation_function(dense, activation, ranks, false));
        list.extend(gemms(&feed_forward, &[DownProj]));
    }
    if let Some(moe) = &group.moe {
        let experts = Experts::new(hidden, moe, ranks);
        let (before, after) = small::around_experts(moe, &experts, hidden, activation);
        list.extend(gemms(&feed_forward, &[Router]));
        if let Some(shared) = &moe.shared {
            list.extend(streams::input_copy(engine, hidden as f64 * activation.bytes()));
            list.extend(gemms(&feed_forward, &[SharedGateUpProj, SharedUpProj]));
            list.push(small::activation_function(shared, activation, ranks, true));
            list.extend(gemms(&feed_forward, &[SharedDownProj, SharedGate]));
        }
        list.extend(gemms(&feed_forward, &[Fc1LatentProj]));
        list.extend(expert_exchange(MoeDispatch, experts.hidden_size, context));
        list.extend(before);
        list.push(Template::new(OperatorKind::Experts, KernelTemplate::Experts(experts)));
        list.extend(after);
        list.extend(expert_exchange(MoeCombine, experts.hidden_size, context));
        list.extend(gemms(&feed_forward, &[Fc2LatentProj]));
        list.extend(token_gather(context));
    }
    list
}

/// Operators outside the layers: those before the first, those after the last up to the logits.
///
/// `inputs` vectors of the hidden size are projected to the input of a draft head; none of other models.
pub(super) fn ends(
    (vocab, lm_head): (u64, WeightFormat),
    inputs: u64,
    context: Context,
) -> (Vec<Template>, Vec<Template>) {
    let Context { hidden, activation, ranks, .. } = context;
    let bytes = activation.bytes();
    let mut before = vec![Template::elementwise(Embedding, Rows::Padded, small::in_place_bytes(hidden, bytes), 1)];
    before.extend(all_reduce(EmbeddingAllReduce, context, 1));
    if inputs > 0 {
        // Every rank has the whole matrix.
        before.push(Template::gemm(Matrix::new(InProj, hidden, inputs * hidden, WeightFormat::Plain(activation))));
    }
    let head = lm_head_matrix(vocab, lm_head, context);
    let mut after = stage_hand_over(context);
    after.push(Template::elementwise(FinalNorm, Rows::Padded, small::norm_bytes(1, hidden, bytes), 1));
    if let Some(quantised) = small::quantisation_bytes(hidden, lm_head, activation) {
        after.push(Template::elementwise(LmHeadQuant, Rows::Sampled, quantised, 1));
    }
    after.push(Template::gemm(head));
    after.extend(logits_all_gather(head.outputs, activation, ranks));
    (before, after)
}

fn gemms<'a>(matrices: &'a [Matrix], kinds: &'a [OperatorKind]) -> impl Iterator<Item = Template> + 'a {
    matrices.iter().filter(move |m| kinds.contains(&m.kind)).map(|m| Template::gemm(*m))
}

/// `calls` sums of the residual stream over the tensor-parallel group.
fn all_reduce(kind: OperatorKind, context: Context, calls: u64) -> Option<Template> {
    let Context { hidden, activation, ranks, is_ring, .. } = context;
    let bytes_per_row = hidden as f64 * activation.bytes();
    let kernel = KernelTemplate::AllReduce { bytes_per_row, num_gpus: ranks.tensor, is_ring };
    (ranks.tensor > 1).then_some(Template { kind, kernel, calls })
}

/// The exchange of the experts' inputs (`moe_dispatch`) or outputs (`moe_combine`) in a data-parallel group, rows of `width` elements.
///
/// vLLM's default back end, `allgather_reducescatter`: every replica's tokens go to all, whichever experts they visit. Each rank sends
/// its share of them where tensor-parallel ranks share the tokens.
///
/// # Source
/// vLLM 0.24, `MoERunner.forward` (`fused_moe/runner/moe_runner.py`): the projection into a latent space comes before the exchange, the
/// one out of it after.
fn expert_exchange(kind: OperatorKind, width: u64, context: Context) -> Option<Template> {
    let Context { activation, ranks, shares_tokens, .. } = context;
    let row_bytes = width as f64 * activation.bytes();
    let (group, part_bytes) = match shares_tokens {
        true => (ranks.expert_group(), row_bytes / ranks.tensor as f64),
        false => (ranks.data_group(), row_bytes),
    };
    let collective = if kind == MoeDispatch { Collective::AllGather } else { Collective::ReduceScatter };
    exchange(kind, collective, Rows::Padded, all_gather_sent_bytes(part_bytes, group.num_ranks), group, 1)
}

/// The gather of the residual stream of tokens that tensor-parallel ranks shared around the experts, in place of a sum.
fn token_gather(Context { hidden, activation, ranks, shares_tokens, .. }: Context) -> Option<Template> {
    let part_bytes = hidden as f64 * activation.bytes() / ranks.tensor as f64;
    let sent_bytes = all_gather_sent_bytes(part_bytes, ranks.tensor);
    let gather = exchange(MoeAllGather, Collective::AllGather, Rows::Padded, sent_bytes, ranks.tensor_group(), 1);
    gather.filter(|_| shares_tokens)
}

/// Every rank gathers the logits of all vocabulary shards. vLLM launches NCCL for it from the host, after the CUDA graph.
fn logits_all_gather(vocab_rows: u64, activation: DType, ranks: Ranks) -> Option<Template> {
    let sent_bytes_per_row = all_gather_sent_bytes(vocab_rows as f64 * activation.bytes(), ranks.tensor);
    exchange(LogitsAllGather, Collective::AllGather, Rows::Sampled, sent_bytes_per_row, ranks.tensor_group(), 1)
}

/// Hand-over to the next stage, and the gather of its shares there, once per stage boundary.
fn stage_hand_over(Context { hidden, activation, ranks, .. }: Context) -> Vec<Template> {
    let share = hand_over_bytes_per_token(hidden, activation.bytes(), ranks.tensor);
    let gathered = all_gather_sent_bytes(share, ranks.tensor);
    let boundaries = ranks.pipeline - 1;
    let hand_over =
        exchange(StageHandOver, Collective::SendReceive, Rows::Padded, share, ranks.pipeline_group(), boundaries);
    let gather =
        exchange(StageAllGather, Collective::AllGather, Rows::Padded, gathered, ranks.tensor_group(), boundaries);
    hand_over.into_iter().chain(gather).collect()
}

/// `calls` exchanges within a group, if it has several ranks.
fn exchange(
    kind: OperatorKind,
    collective: Collective,
    rows: Rows,
    sent_bytes_per_row: f64,
    group: RankGroup,
    calls: u64,
) -> Option<Template> {
    let kernel = KernelTemplate::Exchange { collective, rows, sent_bytes_per_row, group };
    (group.num_ranks > 1 && calls > 0).then_some(Template { kind, kernel, calls })
}

//! One layer of a group as a list of templates in order of execution, put together from the operator families.
//! Uses those and `model`, `dtype`, `ranks`.

use crate::dtype::DType;
use crate::model::{Attention, LayerGroup, Window};

use super::moe::Experts;
use super::operator::AttentionHeads;
use super::ranks::Ranks;
use super::template::{Matrix, Rows, Template};
use super::{attention, communication, mla, moe, projection, small};

/// What the layers of a model have in common.
#[derive(Debug, Clone, Copy)]
pub(super) struct Context {
    pub hidden: u64,
    pub activation: DType,
    pub kv_dtype: DType,
    pub ranks: Ranks,
}

/// The window of a layer's attention.
pub(super) fn window(group: &LayerGroup) -> Window {
    match &group.attention {
        Attention::Gqa(gqa) => gqa.window,
        Attention::Mla(_) => Window::Full,
    }
}

/// What one rank caches per token of a layer.
pub(super) fn cache_heads(group: &LayerGroup, context: Context) -> AttentionHeads {
    match &group.attention {
        Attention::Gqa(gqa) => attention::gqa_heads(gqa, context.kv_dtype, context.ranks),
        Attention::Mla(latent) => mla::decode_heads(latent, context.kv_dtype, context.ranks),
    }
}

/// Weight matrices of the attention of one layer on one rank.
pub(super) fn attention_matrices(group: &LayerGroup, context: Context) -> Vec<Matrix> {
    match &group.attention {
        Attention::Gqa(gqa) => projection::gqa_matrices(context.hidden, gqa, context.ranks).to_vec(),
        Attention::Mla(latent) => mla::matrices(context.hidden, latent, context.activation, context.ranks),
    }
}

/// Weight matrices of the feed-forward part that every token meets: dense block, router, shared experts.
pub(super) fn feed_forward_matrices(group: &LayerGroup, context: Context) -> Vec<Matrix> {
    let mut matrices = Vec::new();
    if let Some(dense) = &group.dense {
        matrices.extend(projection::ffn_matrices(context.hidden, dense, context.ranks, false));
    }
    if let Some(moe) = &group.moe {
        matrices.extend(moe::dense_matrices(context.hidden, moe, context.ranks));
    }
    matrices
}

/// All operators of one layer.
pub(super) fn templates(group: &LayerGroup, window_index: usize, context: Context) -> Vec<Template> {
    let Context { hidden, activation, ranks, .. } = context;
    let attention_matrices = attention_matrices(group, context);
    let feed_forward = feed_forward_matrices(group, context);
    let mut list = vec![small::norms(group.norm_params, hidden, activation)];
    let all: Vec<Matrix> = attention_matrices.iter().chain(&feed_forward).copied().collect();
    list.extend(small::quantisation(&all, activation));
    match &group.attention {
        Attention::Gqa(gqa) => {
            let heads = cache_heads(group, context);
            list.extend(gemms(&attention_matrices, &["qkv_proj"]));
            list.extend(small::before_gqa(gqa, &heads, activation));
            list.push(small::kv_cache_write(&heads, activation));
            list.push(attention::prefill(heads, window_index));
            list.push(attention::decode(heads, window_index));
            if gqa.output_gate {
                list.push(small::attention_gate(&heads, activation));
            }
        }
        Attention::Mla(latent) => {
            let heads = cache_heads(group, context);
            list.extend(gemms(&attention_matrices, &["qkv_a_proj", "q_b_proj", "q_proj", "kv_a_proj"]));
            list.extend(small::before_mla(latent, activation, ranks));
            list.push(small::kv_cache_write(&heads, activation));
            list.extend(gemms(&attention_matrices, &["kv_b_proj", "kv_b_proj_context"]));
            list.extend(mla::prefill_small(latent, context.kv_dtype, activation, ranks));
            list.push(attention::prefill(mla::prefill_heads(latent, activation, ranks), window_index));
            list.extend(gemms(&attention_matrices, &["q_absorb"]));
            list.push(attention::decode(heads, window_index));
            list.extend(gemms(&attention_matrices, &["v_up"]));
        }
    }
    list.extend(gemms(&attention_matrices, &["o_proj"]));
    // One sum after the attention, and one after each feed-forward part: Gemma 4 norms its two before adding them.
    let sums = 1 + u64::from(group.dense.is_some()) + u64::from(group.moe.is_some());
    list.extend(communication::all_reduce("all_reduce", hidden, activation.bytes(), ranks, sums));
    if let Some(dense) = &group.dense {
        let function = small::activation_function(dense, activation, ranks, false);
        list.extend(feed_forward_templates(&feed_forward, ["gate_up_proj", "up_proj"], function, "down_proj"));
    }
    if let Some(moe) = &group.moe {
        let experts = Experts::new(hidden, moe, ranks);
        let (before, after) = small::around_experts(moe, &experts, activation);
        list.extend(gemms(&feed_forward, &["router"]));
        if let Some(shared) = &moe.shared {
            let function = small::activation_function(shared, activation, ranks, true);
            let up = ["shared_gate_up_proj", "shared_up_proj"];
            list.extend(feed_forward_templates(&feed_forward, up, function, "shared_down_proj"));
            list.extend(gemms(&feed_forward, &["shared_gate"]));
        }
        list.extend(communication::expert_exchange("moe_dispatch", hidden, activation.bytes(), ranks));
        list.extend(before);
        list.push(experts.template());
        list.extend(after);
        list.extend(communication::expert_exchange("moe_combine", hidden, activation.bytes(), ranks));
    }
    list
}

/// Operators outside the layers: those before the first, those after the last.
pub(super) fn ends(
    vocab: u64,
    lm_head: crate::dtype::WeightFormat,
    context: Context,
) -> (Vec<Template>, Vec<Template>) {
    let Context { hidden, activation, ranks, .. } = context;
    let bytes = activation.bytes();
    let mut before = vec![small::embedding(hidden, activation)];
    before.extend(communication::all_reduce("embedding_all_reduce", hidden, bytes, ranks, 1));
    let head = projection::lm_head_matrix(hidden, vocab, lm_head, ranks);
    let mut after = communication::stage_hand_over(hidden, bytes, ranks);
    after.push(small::final_norm(hidden, activation));
    if let Some(quantised) = small::quantisation_bytes(hidden, lm_head, activation) {
        after.push(Template::elementwise("lm_head_quant", Rows::Sampled, quantised, 1));
    }
    after.push(Template::gemm(head));
    after.extend(communication::logits_all_gather(head.outputs, bytes, ranks));
    after.push(small::sampling(hidden, vocab, activation));
    (before, after)
}

fn feed_forward_templates(matrices: &[Matrix], up: [&str; 2], function: Template, down: &str) -> Vec<Template> {
    let mut list: Vec<Template> = gemms(matrices, &up).collect();
    list.push(function);
    list.extend(gemms(matrices, &[down]));
    list
}

fn gemms<'a>(matrices: &'a [Matrix], names: &'a [&'a str]) -> impl Iterator<Item = Template> + 'a {
    matrices.iter().filter(move |m| names.contains(&m.name)).map(|m| Template::gemm(*m))
}

//! Models for the tests of the physics, written out by hand from their public configurations, and the operators of their steps.

use crate::dtype::{DType, WeightFormat};
use crate::model::{Attention, DenseFfn, GqaAttention, LayerGroup, MlaAttention, Model, Moe, SamplingParams, Window};
use crate::request::Request;

use super::{Operator, StepPlan};

pub const BF16: DType = DType::Bfloat16;
pub const PLAIN: WeightFormat = WeightFormat::Plain(BF16);
const BLOCK_FP8: WeightFormat = WeightFormat::Fp8Block { rows: 128, columns: 128 };

/// The operators of a step.
pub fn run(plan: &StepPlan, batch: &[Request]) -> Vec<Operator> {
    let mut operators = Vec::new();
    plan.operators(&plan.batch_sums(batch).unwrap(), &mut operators);
    operators
}

/// The operator of a name.
pub fn named<'a>(operators: &'a [Operator], name: &str) -> &'a Operator {
    let names: Vec<&str> = operators.iter().map(|o| o.name).collect();
    operators.iter().find(|o| o.name == name).unwrap_or_else(|| panic!("no {name} in {names:?}"))
}

pub fn gqa(num_heads: u64, num_kv_heads: u64, head_dim: u64, window: Window) -> GqaAttention {
    GqaAttention {
        num_heads,
        num_kv_heads,
        head_dim,
        v_head_dim: head_dim,
        window,
        k_eq_v: false,
        output_gate: false,
        qk_norm: false,
        qk_norm_params: 0,
        rotary_dim: head_dim,
        qkv_bias: false,
        o_bias: false,
        extra_params: 0,
        qkv_weights: PLAIN,
        o_weights: PLAIN,
    }
}

pub fn ffn(intermediate_size: u64) -> DenseFfn {
    DenseFfn { intermediate_size, gated: true, bias: false, weights: PLAIN }
}

fn experts(num_experts: u64, top_k: u64, intermediate_size: u64) -> Moe {
    Moe {
        num_experts,
        top_k,
        intermediate_size,
        gated: true,
        latent_size: None,
        bias: false,
        extra_params: 0,
        weights: PLAIN,
        router_weights: PLAIN,
        latent_weights: PLAIN,
        shared: None,
        shared_gate: false,
    }
}

fn group(count: u64, hidden: u64, attention: GqaAttention, dense: Option<DenseFfn>, moe: Option<Moe>) -> LayerGroup {
    LayerGroup { count, attention: Attention::Gqa(attention), dense, moe, norm_params: 2 * hidden }
}

fn model(name: &str, hidden_size: u64, vocab_size: u64, max_len: u64, layers: Vec<LayerGroup>) -> Model {
    let group_of_layer =
        layers.iter().enumerate().flat_map(|(at, group)| std::iter::repeat_n(at, group.count as usize)).collect();
    Model {
        name: name.into(),
        model_type: name.into(),
        hidden_size,
        vocab_size,
        max_position_embeddings: max_len,
        tie_word_embeddings: false,
        dtype: BF16,
        lm_head_weights: PLAIN,
        kv_cache_dtype: None,
        layers,
        group_of_layer,
        sampling: Some(SamplingParams::default()),
        notes: Vec::new(),
        is_noted_as_plain: false,
        num_mtp_layers: 0,
        draft: None,
        head: None,
        tower_params: None,
    }
}

pub fn llama_2_7b() -> Model {
    let layers = group(32, 4096, gqa(32, 32, 128, Window::Full), Some(ffn(11_008)), None);
    model("llama-2-7b", 4096, 32_000, 4096, vec![layers])
}

pub fn llama_31_70b() -> Model {
    let layers = group(80, 8192, gqa(64, 8, 128, Window::Full), Some(ffn(28_672)), None);
    model("llama-3.1-70b", 8192, 128_256, 131_072, vec![layers])
}

pub fn llama_31_70b_fp8() -> Model {
    let attention =
        GqaAttention { qkv_weights: WeightFormat::Fp8, o_weights: WeightFormat::Fp8, ..gqa(64, 8, 128, Window::Full) };
    let dense = DenseFfn { weights: WeightFormat::Fp8, ..ffn(28_672) };
    model("llama-3.1-70b-fp8", 8192, 128_256, 131_072, vec![group(80, 8192, attention, Some(dense), None)])
}

pub fn qwen25_7b() -> Model {
    let attention = GqaAttention { qkv_bias: true, ..gqa(28, 4, 128, Window::Full) };
    model("qwen2.5-7b", 3584, 152_064, 32_768, vec![group(28, 3584, attention, Some(ffn(18_944)), None)])
}

pub fn mixtral_8x7b() -> Model {
    let layers = group(32, 4096, gqa(32, 8, 128, Window::Full), None, Some(experts(8, 2, 14_336)));
    model("mixtral-8x7b", 4096, 32_000, 32_768, vec![layers])
}

pub fn llama_4_scout() -> Model {
    let moe = Moe { shared: Some(ffn(8192)), ..experts(16, 1, 8192) };
    let layers = |count, window| group(count, 5120, gqa(40, 8, 128, window), None, Some(moe.clone()));
    let groups = vec![layers(36, Window::Chunked(8192)), layers(12, Window::Full)];
    model("llama-4-scout", 5120, 202_048, 10_485_760, groups)
}

pub fn gpt_oss_20b() -> Model {
    let moe = Moe { bias: true, weights: WeightFormat::Mxfp4, ..experts(32, 4, 2880) };
    let attention = |window| GqaAttention { qkv_bias: true, o_bias: true, extra_params: 64, ..gqa(64, 8, 64, window) };
    let layers = |window| group(12, 2880, attention(window), None, Some(moe.clone()));
    model("gpt-oss-20b", 2880, 201_088, 131_072, vec![layers(Window::Sliding(128)), layers(Window::Full)])
}

pub fn mla() -> MlaAttention {
    MlaAttention {
        num_heads: 128,
        q_lora_rank: Some(1536),
        kv_lora_rank: 512,
        qk_nope_head_dim: 128,
        qk_rope_head_dim: 64,
        v_head_dim: 128,
        weights: BLOCK_FP8,
        o_weights: BLOCK_FP8,
        sparse: None,
    }
}

pub fn deepseek_v3() -> Model {
    let dense = DenseFfn { weights: BLOCK_FP8, ..ffn(18_432) };
    let shared = DenseFfn { weights: BLOCK_FP8, ..ffn(2048) };
    let moe = Moe { weights: BLOCK_FP8, shared: Some(shared), extra_params: 256, ..experts(256, 8, 2048) };
    let layers =
        |count, dense, moe| LayerGroup { count, attention: Attention::Mla(mla()), dense, moe, norm_params: 2 * 7168 };
    model("deepseek-v3", 7168, 129_280, 163_840, vec![layers(3, Some(dense), None), layers(58, None, Some(moe))])
}

pub fn gemma_4_26b() -> Model {
    let moe = experts(128, 8, 704);
    let sliding = GqaAttention { qk_norm: true, qk_norm_params: 512, ..gqa(16, 8, 256, Window::Sliding(1024)) };
    let full = GqaAttention { qk_norm: true, qk_norm_params: 1024, k_eq_v: true, ..gqa(16, 2, 512, Window::Full) };
    let layers = |count, attention| LayerGroup {
        norm_params: 7 * 2816,
        ..group(count, 2816, attention, Some(ffn(2112)), Some(moe.clone()))
    };
    let groups = vec![layers(25, sliding), layers(5, full)];
    Model { tie_word_embeddings: true, ..model("gemma-4-26b", 2816, 262_144, 262_144, groups) }
}

pub fn all() -> Vec<Model> {
    vec![
        llama_2_7b(),
        llama_31_70b(),
        llama_31_70b_fp8(),
        qwen25_7b(),
        mixtral_8x7b(),
        llama_4_scout(),
        gpt_oss_20b(),
        deepseek_v3(),
        gemma_4_26b(),
    ]
}

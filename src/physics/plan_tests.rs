//! Hand-worked steps of whole plans.

use crate::deployment::Deployment;
use crate::dtype::{DType, WeightFormat};
use crate::model::Model;
use crate::request::Request;

use super::fixtures::{self, PLAIN, named, run};
use super::{Experts, GraphMode, Kernel, Memory, StepPlan};

fn plan(model: &crate::model::Model, deployment: &Deployment) -> StepPlan {
    StepPlan::new(model, deployment).unwrap()
}

fn gemm(m: u64, n: u64, k: u64, weights: WeightFormat) -> Kernel {
    Kernel::Gemm { m, n, k, copies: 1, weights }
}

/// One product of 128 inputs and 512 outputs for each of 16 heads.
fn absorbed(m: u64) -> Kernel {
    Kernel::Gemm { m, n: 512, k: 128, copies: 16, weights: PLAIN }
}

#[test]
fn a_tensor_parallel_llama_has_the_shapes_of_its_shards() {
    let plan = plan(&fixtures::llama_31_70b(), &Deployment::tensor_parallel(8));
    let operators = run(&plan, &[Request::decode(99), Request::decode(1), Request::prefill(30, 0)]);
    // 32 tokens are a captured size. Eight query heads, one key and one value head of 128 per rank.
    assert_eq!(named(&operators, "qkv_proj").kernel, gemm(32, 10 * 128, 8192, PLAIN));
    assert_eq!(named(&operators, "o_proj").kernel, gemm(32, 8192, 1024, PLAIN));
    assert_eq!(named(&operators, "gate_up_proj").kernel, gemm(32, 7168, 8192, PLAIN));
    assert_eq!(named(&operators, "down_proj").kernel, gemm(32, 8192, 3584, PLAIN));
    assert_eq!(named(&operators, "lm_head").kernel, gemm(3, 16_032, 8192, PLAIN));
    let all_reduce = named(&operators, "all_reduce");
    assert_eq!(all_reduce.count, 160);
    assert_eq!(
        all_reduce.kernel,
        Kernel::AllReduce { message_bytes: 32.0 * 8192.0 * 2.0, num_gpus: 8, is_ring: false }
    );
    assert_eq!(named(&operators, "embedding_all_reduce").count, 1);
    let decode = named(&operators, "attention_decode");
    // 102 keys and values of one head, two queries and outputs of eight heads.
    assert_eq!(decode.bytes as u64, 102 * 2 * 128 * 2 + 2 * 2 * 8 * 128 * 2);
    assert_eq!(decode.flops as u64, 4 * 102 * 8 * 128);
    assert_eq!(decode.count, 80);
}

#[test]
fn operators_come_in_order_of_execution() {
    let plan = plan(&fixtures::llama_2_7b(), &Deployment::default());
    let operators = run(&plan, &[Request::decode(9), Request::prefill(8, 0)]);
    let names: Vec<&str> = operators.iter().map(|o| o.name).collect();
    let expected = [
        "embedding",
        "norms",
        "qkv_proj",
        "rotary",
        "kv_cache_write",
        "attention_prefill",
        "attention_decode",
        "o_proj",
        "gate_up_proj",
        "activation",
        "down_proj",
        "final_norm",
        "lm_head",
        "sampling",
    ];
    assert_eq!(names, expected);
}

#[test]
fn decodes_are_padded_to_the_graph_but_their_attention_is_not() {
    let plan = plan(&fixtures::llama_2_7b(), &Deployment::default());
    let batch = vec![Request::decode(63); 9];
    let shape = plan.batch_sums(&batch).unwrap();
    assert_eq!((plan.graph_mode(&shape), plan.padded_tokens(&shape)), (GraphMode::Full, 16));
    let operators = run(&plan, &batch);
    assert_eq!(named(&operators, "qkv_proj").kernel, gemm(16, 12_288, 4096, PLAIN));
    assert_eq!(named(&operators, "lm_head").kernel, gemm(9, 32_000, 4096, PLAIN));
    assert_eq!(named(&operators, "attention_decode").flops as u64, 4 * 9 * 64 * 4096);
}

#[test]
fn chunks_that_sample_nothing_have_no_lm_head() {
    let chunk = Request::partial_prefill(8192, 0);
    let operators = run(&plan(&fixtures::llama_31_70b(), &Deployment::default()), &[chunk]);
    assert!(operators.iter().all(|o| o.name != "lm_head" && o.name != "sampling" && o.name != "attention_decode"));
}

#[test]
fn few_kv_heads_are_replicated() {
    // Eight KV heads on sixteen ranks: four query heads and a copy of one KV head each.
    let plan = plan(&fixtures::gpt_oss_20b(), &Deployment::tensor_parallel(16));
    let operators = run(&plan, &[Request::decode(999)]);
    assert_eq!(named(&operators, "qkv_proj").kernel, gemm(1, 6 * 64, 2880, PLAIN));
    assert_eq!(plan.memory.kv_bytes_per_token() as u64, 24 * 2 * 64 * 2);
}

#[test]
fn alternating_windows_share_projections_and_split_attention() {
    let operators = run(&plan(&fixtures::gpt_oss_20b(), &Deployment::default()), &[Request::decode(999)]);
    assert_eq!(named(&operators, "qkv_proj").count, 24);
    let (sliding, full) = (named(&operators, "attention_decode_sliding"), named(&operators, "attention_decode"));
    assert_eq!((sliding.count, full.count), (12, 12));
    assert_eq!((sliding.flops as u64, full.flops as u64), (4 * 128 * 64 * 64, 4 * 1000 * 64 * 64));
    let experts = named(&operators, "experts");
    assert_eq!((experts.compute_dtype, experts.flops as u64), (DType::Bfloat16, 6 * 4 * 2880 * 2880));
    // One token visits exactly four experts of 17/32 bytes a weight.
    let weights = 4.0 * 3.0 * 2880.0 * 2880.0 * 17.0 / 32.0;
    let activations = 4.0 * 2.0 * 7.0 * 2880.0 + 4.0 * 2.0 * 2880.0;
    assert!((experts.bytes / (weights + activations) - 1.0).abs() < 1e-9, "{}", experts.bytes);
}

#[test]
fn two_attention_geometries_keep_their_own_projections() {
    let operators = run(&plan(&fixtures::gemma_4_26b(), &Deployment::default()), &[Request::decode(9)]);
    assert_eq!(named(&operators, "qkv_proj_sliding").kernel, gemm(1, (16 + 8 + 8) * 256, 2816, PLAIN));
    // Values are the keys: sixteen query heads and two key heads.
    assert_eq!(named(&operators, "qkv_proj").kernel, gemm(1, 18 * 512, 2816, PLAIN));
    assert_eq!((named(&operators, "qkv_proj_sliding").count, named(&operators, "qkv_proj").count), (25, 5));
    assert_eq!(named(&operators, "gate_up_proj").count, 30);
    assert_eq!(named(&operators, "experts").count, 30);
}

#[test]
fn absorbed_decodes_and_projected_chunks_of_mla_are_exact() {
    let deployment = Deployment { enforce_eager: true, ..Deployment::tensor_parallel(8) };
    let plan = plan(&fixtures::deepseek_v3(), &deployment);
    let operators = run(&plan, &[Request::decode(99), Request::prefill(10, 20)]);
    let fp8 = WeightFormat::Fp8Block { rows: 128, columns: 128 };
    assert_eq!(named(&operators, "qkv_a_proj").kernel, gemm(11, 1536 + 576, 7168, fp8));
    assert_eq!(named(&operators, "q_b_proj").kernel, gemm(11, 16 * 192, 1536, fp8));
    assert_eq!(named(&operators, "kv_b_proj").kernel, gemm(10, 16 * 256, 512, fp8));
    assert_eq!(named(&operators, "kv_b_proj_context").kernel, gemm(20, 16 * 256, 512, fp8));
    assert_eq!(named(&operators, "q_absorb").kernel, absorbed(1));
    assert_eq!(named(&operators, "q_absorb").flops as u64, 2 * 16 * 128 * 512);
    // Sixteen matrices of 128 × 512, inputs of 16·128, outputs of 16·512 values.
    assert_eq!(named(&operators, "q_absorb").bytes as u64, 2 * 16 * (128 * 512 + 128 + 512));
    assert_eq!(named(&operators, "v_up").flops as u64, 2 * 16 * 128 * 512);
    let decode = named(&operators, "attention_decode");
    assert_eq!(decode.flops as u64, 2 * 100 * 16 * (576 + 512));
    assert_eq!(decode.bytes as u64, 100 * 576 * 2 + 16 * (576 + 512) * 2);
    let prefill = named(&operators, "attention_prefill");
    assert_eq!(prefill.flops as u64, 2 * 255 * 16 * (192 + 128));
    assert_eq!(named(&operators, "router").count, 58);
    assert_eq!(named(&operators, "gate_up_proj").count, 3);
    // The latent is on every rank, whatever the tensor-parallel size.
    assert_eq!(plan.memory.kv_bytes_per_token() as u64, 61 * 576 * 2);
}

#[test]
fn absorbed_projections_are_padded_only_inside_a_full_graph() {
    let plan = plan(&fixtures::deepseek_v3(), &Deployment::tensor_parallel(8));
    let mut batch = vec![Request::decode(63); 9];
    assert_eq!(named(&run(&plan, &batch), "q_absorb").kernel, absorbed(16));
    batch.push(Request::prefill(1, 0));
    assert_eq!(named(&run(&plan, &batch), "q_absorb").kernel, absorbed(9));
}

#[test]
fn experts_are_sliced_or_spread_over_tensor_and_data_parallel_ranks() {
    let sliced = Deployment { data_parallel_size: 4, enforce_eager: true, ..Deployment::tensor_parallel(2) };
    let spread = Deployment { enable_expert_parallel: true, ..sliced.clone() };
    for (deployment, width, local) in [(sliced, 256, 256), (spread, 2048, 32)] {
        let operators = run(&plan(&fixtures::deepseek_v3(), &deployment), &[Request::prefill(100, 0)]);
        let experts = named(&operators, "experts");
        let Kernel::Moe { num_tokens, experts: Experts { intermediate_size, local_experts, .. } } = experts.kernel
        else {
            panic!("{experts:?}")
        };
        assert_eq!((num_tokens, intermediate_size, local_experts), (400, width, local));
        // An eighth of 400 tokens' work either way.
        assert_eq!(experts.flops as u64, 6 * 400 * 8 * 7168 * 2048 / 8);
    }
}

#[test]
fn tensor_parallel_ranks_share_the_tokens_around_experts_that_are_spread() {
    let sliced = Deployment { data_parallel_size: 4, enforce_eager: true, ..Deployment::tensor_parallel(2) };
    let spread = Deployment { enable_expert_parallel: true, ..sliced.clone() };
    let model = Model { model_type: "deepseek_v3".to_owned(), ..fixtures::deepseek_v3() };
    let exchanges = |deployment| {
        let operators = run(&plan(&model, deployment), &[Request::prefill(100, 0)]);
        let of = |name: &str| operators.iter().find(|operator| operator.name == name);
        ["moe_dispatch", "moe_combine", "moe_all_gather", "all_reduce"]
            .map(|name| of(name).map(|of| (of.bytes as u64, of.count)))
    };
    let row = 100 * 7168 * 2;
    // Each of four replicas gets the tokens of the others; sums after the attention and the feed-forward part of 61 layers.
    assert_eq!(exchanges(&sliced), [Some((3 * row, 58)), Some((3 * row, 58)), None, Some((row, 122))]);
    // Each of eight ranks sends half of its replica's tokens to seven others, and the halves are gathered in place of a sum.
    assert_eq!(
        exchanges(&spread),
        [Some((7 * row / 2, 58)), Some((7 * row / 2, 58)), Some((row / 2, 58)), Some((row, 64))]
    );
}

#[test]
fn fp8_layers_multiply_in_fp8_and_quantise_their_inputs() {
    let operators = run(&plan(&fixtures::llama_31_70b_fp8(), &Deployment::default()), &[Request::prefill(600, 0)]);
    let qkv = named(&operators, "qkv_proj");
    assert_eq!(qkv.compute_dtype, DType::Fp8);
    assert_eq!(qkv.bytes as u64, 600 * 8192 + 10_240 * 8192 + 600 * 10_240 * 2);
    let quant = named(&operators, "activation_quant");
    assert_eq!(quant.kernel, Kernel::Elementwise { launches: 4 });
    assert_eq!(quant.bytes as u64, 600 * 3 * (8192 * 3 + 28_672));
    assert_eq!(named(&operators, "lm_head").compute_dtype, DType::Bfloat16);
}

#[test]
fn pipeline_stages_run_in_sequence_with_a_hand_over_between_them() {
    let deployment = Deployment { pipeline_parallel_size: 3, enforce_eager: true, ..Deployment::tensor_parallel(2) };
    let plan = plan(&fixtures::llama_31_70b(), &deployment);
    let operators = run(&plan, &[Request::decode(9)]);
    assert_eq!(named(&operators, "qkv_proj").count, 80);
    let hand_over = named(&operators, "stage_hand_over");
    assert_eq!((hand_over.count, hand_over.bytes as u64), (2, 2 * 8192 * 2 / 2));
    assert_eq!(plan.pipeline_stages, [27, 27, 26]);
    // Two of three stages wait; the longest has 27 of 80 layers.
    for part in ["pipeline_parallel_size = 3", "idles 67 %", "every 34 %"] {
        assert!(plan.notes.iter().any(|note| note.contains(part)), "{part}: {:?}", &plan.notes);
    }
}

#[test]
fn every_misfit_is_reported_with_the_sizes_that_fit() {
    let deployment =
        Deployment { pipeline_parallel_size: 40, gpu_memory_utilization: 1.5, ..Deployment::tensor_parallel(8) };
    let message = StepPlan::new(&fixtures::qwen25_7b(), &deployment).unwrap_err().to_string();
    for part in [
        "tensor_parallel_size = 8 does not divide num_attention_heads = 28",
        "tensor_parallel_size can be 1, 2, 4;",
        "pipeline_parallel_size = 40 is more than the 28 layers",
        "gpu_memory_utilization = 1.5",
    ] {
        assert!(message.contains(part), "{part} not in: {message}");
    }
}

#[test]
fn more_ranks_than_experts_are_refused() {
    let deployment = Deployment { enable_expert_parallel: true, ..Deployment::tensor_parallel(16) };
    let message = StepPlan::new(&fixtures::mixtral_8x7b(), &deployment).unwrap_err().to_string();
    assert!(message.contains("8 experts can't be spread over 16 ranks"), "{message}");
}

#[test]
fn a_batch_beyond_the_scheduler_limits_is_a_warning() {
    let plan = plan(&fixtures::llama_2_7b(), &Deployment { max_num_seqs: 2, ..Deployment::default() });
    let shape = plan.batch_sums(&[Request::prefill(3000, 0); 3]).unwrap();
    let warnings = plan.warnings(&shape);
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    assert!(warnings[0].contains("9000 tokens, more than max_num_batched_tokens = 8192"), "{warnings:?}");
    assert!(plan.warnings(&plan.batch_sums(&[Request::decode(5)]).unwrap()).is_empty());
}

#[test]
fn weight_bytes_are_those_of_the_published_parameter_counts() {
    let single = Deployment::default();
    for (model, parameters) in [
        (fixtures::llama_2_7b(), 6_738_415_616_u64),
        (fixtures::llama_31_70b(), 70_553_706_496),
        (fixtures::qwen25_7b(), 7_615_616_512),
        (fixtures::mixtral_8x7b(), 46_702_792_704),
    ] {
        let memory = Memory::new(&model, &single).unwrap();
        assert_eq!(memory.max_weight_bytes() as u64, 2 * parameters, "{}", model.name);
    }
}

#[test]
fn kv_bytes_are_kept_per_kind_of_window() {
    let memory = Memory::new(&fixtures::gemma_4_26b(), &Deployment::default()).unwrap();
    let bytes: Vec<u64> = memory.kv_cache.iter().map(|kind| kind.bytes_per_token as u64).collect();
    assert_eq!(bytes, [25 * 2 * 8 * 256 * 2, 5 * 2 * 2 * 512 * 2]);
    let fp8 = Deployment { kv_cache_dtype: Some(DType::Fp8), ..Deployment::default() };
    let memory = Memory::new(&fixtures::llama_31_70b(), &fp8).unwrap();
    assert_eq!(memory.kv_bytes_per_token() as u64, 80 * 2 * 8 * 128);
}

#[test]
fn stages_hold_their_layers_and_the_ends_hold_the_vocabulary() {
    let two = Deployment { pipeline_parallel_size: 2, ..Deployment::default() };
    let memory = Memory::new(&fixtures::llama_2_7b(), &two).unwrap();
    let bytes: Vec<u64> = memory.weight_bytes_per_stage.iter().map(|bytes| *bytes as u64).collect();
    let half = 16 * (202_375_168 + 8192);
    assert_eq!(bytes, [2 * (half + 131_072_000), 2 * (half + 131_072_000 + 4096)]);
}

//! Hand-worked layers with a state.
#![allow(clippy::float_cmp)]

use crate::deployment::Deployment;
use crate::model::Model;
use crate::request::Request;

use super::fixtures::{named, run};
use super::{Kernel, Memory, Operator, StateKernel, StepPlan};

fn plan(model: &str, deployment: &Deployment) -> StepPlan {
    StepPlan::new(&Model::find(model).unwrap(), deployment).unwrap()
}

fn shape(operator: &Operator) -> (u64, u64, u64) {
    let Kernel::Gemm { m, n, k, .. } = operator.kernel else { panic!("{operator:?}") };
    (m, n, k)
}

#[test]
fn a_gated_delta_net_has_the_shapes_of_its_shards() {
    // Eight ranks: two key heads and eight value heads of 128, so 2·2·128 + 8·128 = 1536 channels and 1024 values.
    let plan = plan("qwen3.5-397b-a17b", &Deployment::tensor_parallel(8));
    let operators =
        run(&plan, &[Request::decode(99), Request::decode(7000), Request::prefill(28, 0), Request::prefill(2, 50)]);
    assert_eq!(shape(named(&operators, "in_proj_qkvz")), (32, 1536 + 1024, 4096));
    assert_eq!(shape(named(&operators, "in_proj_ba")), (32, 16, 4096));
    assert_eq!(shape(named(&operators, "out_proj")), (32, 4096, 1024));
    // The other 15 layers have queries with gates, and one replicated KV head.
    assert_eq!(shape(named(&operators, "qkv_proj")), (32, 2 * 4 * 256 + 2 * 256, 4096));
    let (update, scan) = (named(&operators, "state_update"), named(&operators, "chunk_scan"));
    assert_eq!((update.count, scan.count, named(&operators, "attention_decode").count), (45, 45, 15));
    let requests = |operator: &Operator| match operator.kernel {
        Kernel::State { kernel, num_requests, num_tokens, .. } => (kernel, num_requests, num_tokens),
        _ => panic!("{operator:?}"),
    };
    assert_eq!(requests(update), (StateKernel::StateUpdate, 2, 2));
    assert_eq!(requests(scan), (StateKernel::ChunkScan, 2, 30));
    // State of 8·128·128 values of 4 bytes, read and written; a token's 2560 values of 2 bytes and 16 gates of 4.
    let (state, token) = (8.0 * 128.0 * 128.0 * 4.0, 2560.0 * 2.0 + 64.0);
    assert_eq!(update.bytes, 2.0 * (2.0 * state + token));
    assert_eq!(scan.bytes, 2.0 * 2.0 * state + 30.0 * token);
    assert_eq!(scan.flops, 30.0 * 8.0 * (64.0 * 10.0 * 128.0 + 6.0 * 128.0 * 128.0));
    assert_eq!(named(&operators, "conv_decode").bytes, 2.0 * (2.0 * 1536.0 * 2.0 + 2.0 * 3.0 * 1536.0 * 2.0));
    assert_eq!(named(&operators, "gated_norm").bytes, 32.0 * 3.0 * 1024.0 * 2.0);
    // One sum after each mixer, one after each layer's experts.
    assert_eq!(named(&operators, "all_reduce").count, 120);
}

#[test]
fn state_kernels_do_not_depend_on_the_context_or_on_padding() {
    let plan = plan("qwen3.5-27b", &Deployment::default());
    let (short, long) = (run(&plan, &[Request::decode(1); 3]), run(&plan, &[Request::decode(100_000); 3]));
    assert_eq!(named(&short, "state_update"), named(&long, "state_update"));
    assert_eq!(named(&short, "conv_decode"), named(&long, "conv_decode"));
    // Four tokens run through the captured graph, three have a state.
    assert_eq!(shape(named(&short, "in_proj_qkvz")).0, 4);
    let alone = run(&plan, &[Request::decode(1)]);
    assert_eq!(named(&short, "state_update").bytes, 3.0 * named(&alone, "state_update").bytes);
}

#[test]
fn layers_of_nemotron_h_are_one_thing_each() {
    let plan = plan("nemotron-3-nano-30b-a3b", &Deployment::tensor_parallel(2));
    let operators = run(&plan, &[Request::decode(99), Request::prefill(63, 0)]);
    // MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME has 23 M, 23 E and 6 *.
    let count = |name: &str| named(&operators, name).count;
    assert_eq!((count("in_proj"), count("experts"), count("qkv_proj"), count("norms")), (23, 23, 6, 52));
    assert_eq!(count("all_reduce"), 52);
    // 32 heads of 64 and four groups of 128 on a rank: 2048 values, 3072 channels, 32 step sizes.
    assert_eq!(shape(named(&operators, "in_proj")), (64, 2048 + 3072 + 32, 2688));
    assert_eq!(shape(named(&operators, "out_proj")), (64, 2688, 2048));
    assert_eq!(shape(named(&operators, "shared_up_proj")), (64, 3712 / 2, 2688));
    assert!(operators.iter().all(|operator| operator.name != "rotary"), "Nemotron-H has no rotary embedding");
    // Two matrices of 2688 x 928 to an expert, for 64·6 pairs.
    assert_eq!(named(&operators, "experts").flops, 2.0 * 2.0 * 64.0 * 6.0 * 2688.0 * 928.0);
    // Piece of 128: scores per group, values weighed and states per head.
    let scan = named(&operators, "chunk_scan");
    assert_eq!(scan.flops, 63.0 * (32.0 * (2.0 * 128.0 * 64.0 + 4.0 * 64.0 * 128.0) + 4.0 * 2.0 * 128.0 * 128.0));
}

#[test]
fn experts_in_a_latent_space_are_projected_to_and_from() {
    let json = r#"{"model_type": "nemotron_h", "hidden_size": 1024, "hybrid_override_pattern": "M*E", "num_attention_heads": 8,
        "num_key_value_heads": 2, "head_dim": 64, "vocab_size": 6400, "max_position_embeddings": 4096, "mamba_num_heads": 16,
        "mamba_head_dim": 64, "n_groups": 2, "ssm_state_size": 32, "conv_kernel": 4, "chunk_size": 128, "n_routed_experts": 32,
        "num_experts_per_tok": 4, "moe_intermediate_size": 512, "n_shared_experts": 1, "moe_latent_size": 256,
        "moe_shared_expert_intermediate_size": 768, "torch_dtype": "bfloat16"}"#;
    let model = Model::from_config_str("latent", "config.json", json, None).unwrap();
    assert_eq!(model.num_layers(), 3, "as many as the pattern has");
    let plan = StepPlan::new(&model, &Deployment { enforce_eager: true, ..Deployment::default() }).unwrap();
    let operators = run(&plan, &[Request::prefill(10, 0)]);
    assert_eq!(shape(named(&operators, "fc1_latent_proj")), (10, 256, 1024));
    assert_eq!(shape(named(&operators, "fc2_latent_proj")), (10, 1024, 256));
    assert_eq!(named(&operators, "experts").flops, 2.0 * 2.0 * 10.0 * 4.0 * 256.0 * 512.0);
    // Each of four ranks sends half of its replica's latents to three others; the halves of whole rows are gathered after the projection.
    let spread = Deployment { data_parallel_size: 2, enable_expert_parallel: true, ..Deployment::tensor_parallel(2) };
    let plan = StepPlan::new(&model, &Deployment { enforce_eager: true, ..spread }).unwrap();
    let operators = run(&plan, &[Request::prefill(10, 0)]);
    let sent_bytes = |name| named(&operators, name).bytes;
    assert_eq!([sent_bytes("moe_dispatch"), sent_bytes("moe_combine")], [3.0 * 10.0 * 256.0; 2]);
    assert_eq!(sent_bytes("moe_all_gather"), 10.0 * 1024.0);
    let names = operators.iter().map(|operator| operator.name);
    let is_exchange = |name: &&str| ["moe_dispatch", "moe_combine", "moe_all_gather"].contains(name);
    let order: Vec<&str> = names.filter(|name| is_exchange(name) || name.contains("latent")).collect();
    assert_eq!(order, ["fc1_latent_proj", "moe_dispatch", "moe_combine", "fc2_latent_proj", "moe_all_gather"]);
    // Embedding and head; norms; Mamba, attention and experts by hand.
    let mamba = 1024 * (1024 + 1024 + 128 + 16) + 1024 * 1024 + (1024 + 128) * 5 + 3 * 16 + 1024;
    let attention = 1024 * (8 + 4) * 64 + 512 * 1024;
    let experts = 32 * 2 * 256 * 512 + 2 * 1024 * 768 + 2 * 1024 * 256 + 32 * 1024 + 32;
    let total = 2 * 6400 * 1024 + 4 * 1024 + mamba + attention + experts;
    assert_eq!(model.parameters().total, total);
}

#[test]
fn states_in_memory_are_those_of_the_rank() {
    let model = Model::find("qwen3.5-397b-a17b").unwrap();
    let state = Memory::new(&model, &Deployment::tensor_parallel(8)).unwrap().state.unwrap();
    assert_eq!((state.layers, state.bytes_per_layer), (45.0, 3.0 * 1536.0 * 2.0 + 8.0 * 128.0 * 128.0 * 4.0));
    let memory = Memory::new(&model, &Deployment::default()).unwrap();
    // 15 layers with keys and values of two heads of 256.
    assert_eq!(memory.kv_bytes_per_token(), 15.0 * 2.0 * 2.0 * 256.0 * 2.0);
    assert!((memory.max_weight_bytes() / model.weight_bytes() - 1.0).abs() < 1e-12);
    // The state of Qwen3-Next is in the model's format, and two stages have half of it each.
    let next = Model::find("qwen3-next-80b-a3b-instruct").unwrap();
    let staged = Deployment { pipeline_parallel_size: 2, ..Deployment::default() };
    let state = Memory::new(&next, &staged).unwrap().state.unwrap();
    assert_eq!((state.layers, state.bytes_per_layer), (18.0, 3.0 * 8192.0 * 2.0 + 32.0 * 128.0 * 128.0 * 2.0));
    assert_eq!(Memory::new(&Model::find("qwen3-8b").unwrap(), &staged).unwrap().state, None);
}

#[test]
fn ranks_share_heads_and_groups_evenly() {
    let refused = |model: &str, tensor: u32| {
        StepPlan::new(&Model::find(model).unwrap(), &Deployment::tensor_parallel(tensor)).unwrap_err().to_string()
    };
    assert!(refused("nemotron-3-nano-30b-a3b", 16).contains("tensor_parallel_size = 16 does not divide n_groups = 8"));
    assert!(refused("qwen3.5-397b-a17b", 32).contains("does not divide linear_num_key_heads = 16"));
}

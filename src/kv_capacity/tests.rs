//! Tests of the memory equation: terms worked out by hand, laws over deployments, messages.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::float_cmp)]

use crate::error::ErrorKind;
use approx::assert_relative_eq;
use proptest::prelude::*;

use super::*;
use crate::model::Window;
use crate::physics::KvCacheBytes;

fn h100() -> Hardware {
    Hardware::find("h100").unwrap()
}

fn small_steps(tensor_parallel_size: u32) -> Deployment {
    Deployment {
        max_num_seqs: 128,
        max_num_batched_tokens: 2048,
        max_model_len: Some(4096),
        ..Deployment::tensor_parallel(tensor_parallel_size)
    }
}

/// The capacity under vLLM 0.15, for which the terms are worked out.
fn fitted(model: &Model, hardware: &Hardware, deployment: &Deployment) -> Result<KvCapacity> {
    KvCapacity::for_engine(model, hardware, deployment, &Engine::fitted())
}

fn problems(model: &str, hardware: &str, deployment: &Deployment) -> Vec<String> {
    let result = fitted(&Model::find(model).unwrap(), &Hardware::find(hardware).unwrap(), deployment);
    match result {
        Err(error) if error.kind() == ErrorKind::Invalid => error.problems().to_vec(),
        other => panic!("expected Error::Invalid, got {other:?}"),
    }
}

#[test]
fn every_term_of_llama_2_7b_is_as_worked_out_on_paper() {
    let capacity = fitted(&Model::find("llama-2-7b").unwrap(), &h100(), &small_steps(1)).unwrap();
    // 80 GiB, 99 % of them from CUDA, 90 % of those for the engine.
    assert_relative_eq!(capacity.device_memory_bytes, 85_040_352_460.8, max_relative = 1e-12);
    // 6,738,415,616 published parameters in 2 bytes.
    assert_eq!(capacity.weight_bytes, 13_476_831_232.0);
    // 4096 positions of 128 values in 2 bytes.
    assert_eq!(capacity.position_table_bytes, 1_048_576.0);
    // 2048 tokens x (2 x 4096 + 3 x 11008) x 2 bytes; query, key, value and output are narrower with 4 x 4096.
    assert_eq!(capacity.forward_bytes, 168_820_736.0);
    // 128 x 32000 x 38 and 2 x 2048 x 4096 x 2 bytes.
    assert_eq!(capacity.sampling_bytes, 155_648_000.0 + 33_554_432.0);
    assert_eq!(capacity.activation_bytes, capacity.sampling_bytes);
    // 32 layers x 2 x 32 heads x 128 values x 2 bytes.
    assert_eq!(capacity.kv_bytes_per_token, 524_288.0);
    // 76,536,317,214.72 - 13,476,831,232 - 1,048,576 - 189,202,432 - 644,245,094.4 = 62,224,989,880.32 of 8 MiB blocks.
    assert_relative_eq!(capacity.kv_cache_bytes, 62_224_989_880.32, max_relative = 1e-12);
    assert_eq!(capacity.num_gpu_blocks, 7417);
    assert_eq!(capacity.usable_tokens(), 7416 * 16);
}

#[test]
fn terms_sum_to_the_kv_cache_and_are_printed() {
    let capacity = fitted(&Model::find("llama-3.1-70b").unwrap(), &h100(), &small_steps(4)).unwrap();
    let sum: f64 = capacity.equation().iter().map(|(_, bytes)| bytes).sum();
    assert_relative_eq!(sum, capacity.kv_cache_bytes, max_relative = 1e-9);
    let text = capacity.to_string();
    assert!(text.contains("device memory") && text.contains("79.20 GiB"), "{text}");
    assert!(text.contains(&format!("= {} blocks", capacity.num_gpu_blocks)), "{text}");
    // No layer has a window, so that term is not shown.
    assert!(!text.contains("windows"), "{text}");
}

#[test]
fn a_table_of_ten_million_positions_takes_two_and_a_half_gib() {
    let capacity = fitted(&Model::find("llama-4-scout-fp8-dynamic").unwrap(), &h100(), &small_steps(2)).unwrap();
    assert_eq!(capacity.position_table_bytes, 2.5 * GIB);
}

#[test]
fn weights_on_the_host_leave_room_on_the_gpu() {
    let model = Model::find("llama-2-7b").unwrap();
    let with = |cpu_offload_gb| fitted(&model, &h100(), &Deployment { cpu_offload_gb, ..small_steps(1) });
    let (none, some, all) = (with(0.0).unwrap(), with(4.0).unwrap(), with(1000.0).unwrap());
    // Ten layers of 404,766,720 bytes, and of the eleventh qkv_proj, o_proj and all of gate_up_proj, which passes the 4 GiB.
    assert_eq!(some.offloaded_bytes, 4_047_667_200.0 + 100_663_296.0 + 33_554_432.0 + 180_355_072.0);
    // That is 520.02 blocks of 8 MiB.
    assert!((520..=521).contains(&(some.num_gpu_blocks - none.num_gpu_blocks)));
    // Embedding, LM head and the last norm stay.
    assert_eq!(all.weight_bytes, 2.0 * 32_000.0 * 4096.0 * 2.0 + 8192.0);
    for wrong in [-1.0, f64::NAN, f64::INFINITY] {
        assert!(matches!(with(wrong), Err(error) if error.kind() == ErrorKind::Invalid), "{wrong}");
    }
}

#[test]
fn the_last_stage_alone_samples_and_the_fewest_blocks_count() {
    let model = Model::find("llama-2-7b").unwrap();
    let deployment = Deployment { pipeline_parallel_size: 2, ..small_steps(1) };
    let capacity = fitted(&model, &h100(), &deployment).unwrap();
    // Both stages have 16 layers; embedding and LM head are as large as each other, but the last stage has a norm more and samples.
    assert_eq!(capacity.stage, 1);
    assert_eq!(capacity.kv_bytes_per_token, 262_144.0);
    assert!(capacity.sampling_bytes > 0.0);
}

#[test]
fn windows_share_the_pool_with_other_layers() {
    let model = Model::find("gpt-oss-20b").unwrap();
    let deployment = Deployment { max_model_len: Some(131_072), ..small_steps(1) };
    let capacity = fitted(&model, &h100(), &deployment).unwrap();
    // 12 layers of 8 KV heads x 64 values, keys and values in 2 bytes, see all; 12 see 128 tokens, which touch 9 blocks.
    assert_eq!((capacity.kv_bytes_per_token, capacity.window_share, capacity.window_blocks), (24_576.0, 1.0, 9));
    // The tokens of a step are there before those that leave the windows are freed.
    assert_eq!(capacity.window_bytes, 24_576.0 * 2048.0);
    assert_eq!([1, 9, 500].map(|blocks| capacity.blocks_of_windows(blocks)), [1, 9, 9]);
    let all_bytes = capacity.kv_cache_bytes + capacity.window_bytes;
    assert_eq!(f64::from(capacity.pool_blocks), (capacity.kv_cache_bytes / 24_576.0 / 16.0).floor());
    // The log of 0.15 counts tokens that both groups keep, that of 0.21 those of requests of the longest context.
    assert_eq!(f64::from(capacity.num_gpu_blocks), (all_bytes / 49_152.0 / 16.0).floor());
    let engine = Engine::parse("vllm", Some("0.21")).unwrap();
    let later = KvCapacity::for_engine(&model, &h100(), &deployment, &engine).unwrap();
    let bytes = later.kv_cache_bytes + later.window_bytes;
    let tokens = 131_072.0 * bytes / (24_576.0 * (131_072.0 + 16.0 * 137.0));
    assert_eq!(f64::from(later.num_gpu_blocks), (tokens / 16.0).floor());
}

/// 52 layers with a window and 10 without are seven groups of ten, so that a token that all keep costs 70 layers.
#[test]
fn a_group_that_is_not_full_is_padded() {
    let kind = |window, layers| KvCacheBytes { window, layers, bytes_per_token: 100.0 * layers };
    let pool = WindowedPool::new(&[kind(Window::Full, 10.0), kind(Window::Sliding(1024), 52.0)]).unwrap();
    assert_eq!((pool.full_bytes, pool.windowed_bytes, pool.blocks(16)), (1000.0, 6000.0, 65));
    // 21 and 20 layers are two groups of 21.
    let pool = WindowedPool::new(&[kind(Window::Full, 21.0), kind(Window::Sliding(1024), 20.0)]).unwrap();
    assert_eq!((pool.full_bytes, pool.windowed_bytes), (2100.0, 2100.0));
    assert!(WindowedPool::new(&[kind(Window::Sliding(1024), 20.0)]).is_none());
}

#[test]
fn limits_that_do_not_bind_leave_the_pool_as_it_is() {
    let model = Model::find("gpt-oss-20b").unwrap();
    let of = |max_num_seqs| {
        let deployment = Deployment { max_num_seqs, ..Deployment::default() };
        fitted(&model, &h100(), &deployment).unwrap()
    };
    let (few, many) = (of(4), of(256));
    let sampling_bytes = many.activation_bytes - few.activation_bytes;
    assert!((few.kv_cache_bytes - many.kv_cache_bytes - sampling_bytes).abs() < 1.0);
    assert!(f64::from(many.pool_blocks) > 0.9 * f64::from(few.pool_blocks));
}

#[test]
fn a_model_of_windows_alone_is_charged_for_every_token() {
    // Every layer of the first Mistral sees 4096 tokens: 128 such windows would be 64 GiB.
    let model = Model::find("mistral-7b").unwrap();
    let capacity = fitted(&model, &h100(), &small_steps(1)).unwrap();
    assert_eq!((capacity.window_bytes, capacity.kv_bytes_per_token), (0.0, 131_072.0));
}

#[test]
fn chunked_layers_are_charged_for_every_token() {
    let capacity = fitted(&Model::find("llama-4-scout-fp8-dynamic").unwrap(), &h100(), &small_steps(2)).unwrap();
    assert_eq!((capacity.window_bytes, capacity.kv_bytes_per_token), (0.0, 98_304.0));
}

#[test]
fn weights_that_do_not_fit_say_by_how_much_and_on_how_many_gpus_they_would() {
    // 131.4 GiB of weights on 79.2 x 0.9 = 71.3 GiB; half of them fits, with 4 GiB for the cache.
    let found = problems("llama-3.1-70b", "h100", &small_steps(1));
    assert!(found[0].contains("weights do not fit") && found[0].contains("131.4 GiB"), "{found:?}");
    assert!(found[0].contains("60.1 GiB more than gpu_memory_utilization = 0.9 of 79.2 GiB"), "{found:?}");
    assert_eq!(found[1..], ["tensor_parallel_size = 2 would do", "pipeline_parallel_size = 2 would do"]);
}

#[test]
fn a_context_that_does_not_fit_names_the_longest_that_does() {
    // 71.28 GiB - 65.71 (weights) - 0.03 (positions) - 0.64 (sampling) - 0.6: 4.295 GiB of blocks of 2.5 MiB are 1759, one of
    // them the engine's.
    let deployment = Deployment { max_model_len: Some(32_768), ..small_steps(2) };
    let found = problems("llama-3.1-70b", "h100", &deployment);
    let estimate =
        KvCapacity::estimate(&Model::find("llama-3.1-70b").unwrap(), &h100(), &deployment, &Engine::fitted());
    let tokens = estimate.unwrap().usable_tokens();
    assert_eq!(tokens, 1758 * 16);
    assert!(found[0].contains(&format!("room for {tokens} tokens")), "{found:?}");
    assert!(found[0].contains("less than one request of max_model_len = 32768"), "{found:?}");
    assert_eq!(found[1], format!("max_model_len can be at most {tokens}"));
    assert!(found[2].starts_with("gpu_memory_utilization = 0.9") && found[2].ends_with("would do"), "{found:?}");
    assert_eq!(found[3], "tensor_parallel_size = 4 would do");
    // What is said to fit does.
    let shorter = Deployment { max_model_len: u32::try_from(tokens).ok(), ..deployment };
    assert!(fitted(&Model::find("llama-3.1-70b").unwrap(), &h100(), &shorter).is_ok());
}

#[test]
fn stages_help_where_heads_can_not_be_split_further() {
    // 40 heads are split by at most 8 of the powers of two, which leaves 93.8 GiB of weights on each GPU.
    let found = problems("llama-4-maverick", "h100", &small_steps(1));
    assert_eq!(found.last().unwrap(), "pipeline_parallel_size = 16 would do");
    let deployment = Deployment { pipeline_parallel_size: 16, ..small_steps(1) };
    assert!(fitted(&Model::find("llama-4-maverick").unwrap(), &h100(), &deployment).is_ok());
}

#[test]
fn what_no_number_of_gpus_holds_says_so() {
    let found = problems("kimi-k2", "l4", &Deployment::default());
    assert!(found.last().unwrap().contains("no single argument would do"), "{found:?}");
}

#[test]
fn steps_and_blocks_that_are_too_large_are_named() {
    // 4 million tokens x (2 x 4096 + 3 x 14336) x 2 bytes are 400 GiB; sampling for a million, 1,000,000 x 128,256 x 38 bytes, 4.5 TB.
    let tokens = Deployment { max_num_batched_tokens: 1 << 22, ..Deployment::default() };
    let found = problems("llama-3.1-8b", "h100", &tokens);
    assert!(found[0].contains("activations (400.0 GiB)"), "{found:?}");
    assert!(found.contains(&"max_num_batched_tokens = 262144 would do".to_owned()), "{found:?}");
    let requests = Deployment { max_num_seqs: 1_000_000, max_num_batched_tokens: 1_000_000, ..Deployment::default() };
    let found = problems("llama-3.1-8b", "h100", &requests);
    assert!(found.iter().any(|problem| problem.ends_with("would do")), "{found:?}");
    let blocks = Deployment { block_size: u32::MAX, ..Deployment::default() };
    let found = problems("llama-3.1-8b", "h100", &blocks);
    assert!(found.contains(&"block_size = 16 would do".to_owned()), "{found:?}");
}

#[test]
fn the_largest_arguments_do_not_overflow() {
    let largest = Deployment {
        max_num_seqs: u32::MAX,
        max_num_batched_tokens: u32::MAX,
        max_model_len: Some(u32::MAX),
        block_size: u32::MAX,
        ..Deployment::default()
    };
    for name in MODELS {
        let capacity = estimate(name, &largest).unwrap();
        assert!(capacity.kv_cache_bytes.is_finite() && capacity.activation_bytes.is_finite(), "{name}");
        assert_eq!(capacity.num_gpu_blocks, 0, "{name}");
    }
}

fn any_deployment() -> impl Strategy<Value = Deployment> {
    (0_u32..4, 1_u32..3, 1_u32..600, 1_u32..20_000, 256_u32..40_000, 0.2_f64..0.95).prop_map(
        |(tensor_power, pipeline, seqs, tokens, length, utilization)| Deployment {
            tensor_parallel_size: 1 << tensor_power,
            pipeline_parallel_size: pipeline,
            max_num_seqs: seqs,
            max_num_batched_tokens: tokens,
            max_model_len: Some(length),
            gpu_memory_utilization: utilization,
            ..Deployment::default()
        },
    )
}

const MODELS: [&str; 8] = [
    "llama-2-7b",
    "llama-3.1-70b",
    "qwen3-30b-a3b-fp8",
    "gpt-oss-20b",
    "gemma-3-27b",
    "mistral-7b",
    "deepseek-v2-lite",
    "llama-4-scout",
];

fn estimate(model: &str, deployment: &Deployment) -> Option<KvCapacity> {
    KvCapacity::estimate(&Model::find(model).unwrap(), &h100(), deployment, &Engine::fitted()).ok()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn more_of_the_memory_never_means_fewer_blocks(model in 0..MODELS.len(), base in any_deployment(), more in 0.0_f64..0.05) {
        let Some(before) = estimate(MODELS[model], &base) else { return Ok(()) };
        let larger = Deployment { gpu_memory_utilization: base.gpu_memory_utilization + more, ..base };
        prop_assert!(estimate(MODELS[model], &larger).unwrap().num_gpu_blocks >= before.num_gpu_blocks);
    }

    #[test]
    fn more_gpus_never_mean_fewer_blocks(model in 0..MODELS.len(), base in any_deployment()) {
        let wider = Deployment { tensor_parallel_size: base.tensor_parallel_size * 2, ..base.clone() };
        let (Some(before), Some(after)) = (estimate(MODELS[model], &base), estimate(MODELS[model], &wider)) else { return Ok(()) };
        prop_assert!(after.num_gpu_blocks >= before.num_gpu_blocks, "{before:?} {after:?}");
    }

    #[test]
    fn larger_steps_and_more_requests_never_mean_more_blocks(
        model in 0..MODELS.len(), base in any_deployment(), tokens in 0_u32..20_000, seqs in 0_u32..600
    ) {
        let Some(before) = estimate(MODELS[model], &base) else { return Ok(()) };
        let larger = Deployment { max_num_batched_tokens: base.max_num_batched_tokens + tokens, max_num_seqs: base.max_num_seqs + seqs, ..base };
        prop_assert!(estimate(MODELS[model], &larger).unwrap().num_gpu_blocks <= before.num_gpu_blocks);
    }

    #[test]
    fn what_is_accepted_holds_a_request_of_the_longest_context(model in 0..MODELS.len(), base in any_deployment()) {
        if let Ok(capacity) = fitted(&Model::find(MODELS[model]).unwrap(), &h100(), &base) {
            prop_assert!(capacity.usable_tokens() >= u64::from(base.max_model_len.unwrap()));
            prop_assert!(capacity.kv_cache_bytes >= f64::from(capacity.num_gpu_blocks) * capacity.block_bytes());
        }
    }
}

/// By vLLM's formula, for a state of 533,504 bytes and 1,024 bytes of cache per token and layer.
#[test]
fn a_block_of_a_hybrid_model_holds_a_state() {
    let model = Model::find("qwen3.5-397b-a17b").unwrap();
    let deployment = Deployment::tensor_parallel(8);
    let capacity = fitted(&model, &Hardware::find("h200").unwrap(), &deployment).unwrap();
    // ⌈533,504 / (16·1,024)⌉ = 33 blocks of 16. 15 layers attend, 45 keep a state: one group with a cache, three with states.
    assert_eq!((capacity.block_size, capacity.state_blocks_per_request), (528, 3));
    assert_eq!(capacity.kv_bytes_per_token, 15.0 * 1024.0);
    let blocks = (capacity.kv_cache_bytes / (528.0 * 15.0 * 1024.0)).floor();
    assert_eq!(f64::from(capacity.num_gpu_blocks), blocks);
    assert_eq!(capacity.usable_tokens(), 528 * (u64::from(capacity.num_gpu_blocks) - 4));
    // A larger block is kept: of 1,024 tokens one is enough for a state.
    let large = Deployment { block_size: 1024, ..deployment };
    let capacity = fitted(&model, &Hardware::find("h200").unwrap(), &large).unwrap();
    assert_eq!((capacity.block_size, capacity.state_blocks_per_request), (1024, 3));
}

#[test]
fn groups_of_layers_are_as_large_as_the_rarer_kind() {
    // 6 layers attend, 23 keep a state: four groups with a state, one padded. A token takes 2·2·128·2 bytes in a layer, a state
    // 3·6144·2 + 64·64·128·4 = 2,134,016 bytes, so ⌈2,134,016 / (16·1,024)⌉ = 131 blocks of 16.
    let model = Model::find("nemotron-3-nano-30b-a3b").unwrap();
    let capacity = fitted(&model, &Hardware::find("h100").unwrap(), &Deployment::default()).unwrap();
    assert_eq!((capacity.block_size, capacity.state_blocks_per_request), (2096, 4));
    assert_eq!(capacity.kv_bytes_per_token, 6.0 * 1024.0);
    let plain = fitted(&Model::find("qwen3-8b").unwrap(), &Hardware::find("h100").unwrap(), &Deployment::default());
    assert_eq!(plain.unwrap().state_blocks_per_request, 0);
}

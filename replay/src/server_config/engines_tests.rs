//! Servers of SGLang and TensorRT-LLM: their launch lines, defaults, memory and faults.

#![expect(clippy::float_cmp, reason = "figures are exact")]

use ridgepoint::{Engine, Hardware, Model};
use serde_json::json;

use super::{Beside, ServedEngine, ServerConfig};
use crate::{CapacitySchedulerPolicy, EngineRules};

fn line(text: &str) -> ridgepoint::Result<ServerConfig> {
    let over = json!({"hardware": "h100"}).as_object().cloned().unwrap();
    ServerConfig::parse_with("the serve command", text, &Beside { over, ..Beside::default() })
}

fn served(text: &str) -> ServedEngine {
    let server = line(text).unwrap();
    let (model, hardware) = (server.find_model(None).unwrap().0, server.find_hardware(None).unwrap());
    server.engine_config(&model, &hardware, &Engine::default()).unwrap()
}

#[test]
fn a_line_of_sglang_has_its_rules_defaults_and_memory() {
    let of =
        served("python3 -m sglang.launch_server --model-path llama-3.1-8b --schedule-conservativeness 0.5 --port 1");
    let EngineRules::Sglang(options) = of.config.rules else { panic!("{:?}", of.config.rules) };
    // Chunks of a GPU of 80 GiB.
    assert_eq!(
        (options.chunked_prefill_size, options.max_prefill_tokens, options.scheduler_recv_interval),
        (8192, 16_384, 1)
    );
    assert_eq!((options.schedule_conservativeness, of.config.max_num_seqs, of.config.block_size), (0.5, 2048, 16));
    assert_eq!(of.deployment.max_cudagraph_capture_size, Some(256));
    // 81,920 MiB less 512 + 1.5 · 8,192 + 2 · 256 + 1,024 / 8 = 13,440.
    assert_eq!(of.deployment.gpu_memory_utilization, 0.836);
    let held = of.capacity.weight_bytes + of.capacity.position_table_bytes + of.capacity.overhead_bytes;
    assert_eq!(of.capacity.kv_cache_bytes, of.capacity.device_memory_bytes * 0.836 - held);
    let terms: f64 = of.capacity.equation().iter().map(|(_, bytes)| bytes).sum();
    assert!((terms - of.capacity.kv_cache_bytes).abs() < 1.0, "the terms of the equation add up");
}

#[test]
fn flags_of_sglang_set_what_they_say() {
    let of = served(
        "python -m sglang.launch_server --model llama-3.1-8b --tp 4 --chunked-prefill-size -1 --max-running-requests 64 --disable-radix-cache \
         --mem-fraction-static 0.5 --cuda-graph-max-bs 32 --disable-overlap-schedule --page-size 64 --enable-mixed-chunk --max-total-tokens 65536",
    );
    let EngineRules::Sglang(options) = of.config.rules else { panic!("{:?}", of.config.rules) };
    assert!(options.enable_mixed_chunk && options.chunk().is_none());
    assert_eq!((of.config.max_num_seqs, of.config.block_size, of.config.num_gpu_blocks), (64, 64, 1024));
    assert!(!of.config.scheduler.enable_prefix_caching && !of.config.scheduler.async_scheduling);
    assert_eq!((of.deployment.max_cudagraph_capture_size, of.deployment.gpu_memory_utilization), (Some(32), 0.5));
    // The reserved one of 1,024 pages of 64 tokens holds nothing.
    assert_eq!(of.config.max_model_len, 65_472);
    assert!(of.notes.iter().any(|note| note.contains("longer requests are refused")), "{:?}", of.notes);
    // Four ranks share every layer, and 512 decodes a graph would be their default.
    assert_eq!(of.deployment.tensor_parallel_size, 4);
}

#[test]
fn attention_is_divided_as_each_engine_says() {
    let sizes = |text: &str| {
        line(text).map(|server| {
            let of = server.deployment;
            (of.tensor_parallel_size, of.data_parallel_size, of.max_num_seqs)
        })
    };
    let sglang = "python -m sglang.launch_server --model-path deepseek-v3 --tp 8 --enable-dp-attention --max-running-requests 512 --dp";
    assert_eq!(sizes(&format!("{sglang} 4")).unwrap(), (2, 4, 128));
    assert!(sizes(&format!("{sglang} 3")).unwrap_err().to_string().contains("divides tp_size = 8 by dp_size = 3"));
    let trtllm =
        serde_json::json!({"model": "deepseek-v3", "hardware": "h200", "tp_size": 8, "enable_attention_dp": true});
    let beside = Beside { engine: Engine::parse("trtllm", None).unwrap(), ..Beside::default() };
    let server = ServerConfig::from_values_with("a body", trtllm.as_object().unwrap(), &beside).unwrap();
    assert_eq!((server.deployment.tensor_parallel_size, server.deployment.data_parallel_size), (1, 8));
}

#[test]
fn a_line_of_tensorrt_llm_comes_behind_its_file() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("extra.yml");
    let keys = "max_num_tokens: 4096\nkv_cache_config: {free_gpu_memory_fraction: 0.5, enable_block_reuse: false}\n\
                cuda_graph_config: {enable_padding: true, max_batch_size: 64}\nscheduler_config: {capacity_scheduler_policy: MAX_UTILIZATION}\n\
                stream_interval: 10\nmoe_config: {backend: CUTLASS}\n";
    std::fs::write(&file, keys).unwrap();
    let text = "trtllm-serve llama-3.1-8b --max_num_tokens 8192 --max_batch_size 256 --extra_llm_api_options";
    let of = served(&format!("{text} {}", file.display()));
    let EngineRules::Trtllm(options) = of.config.rules else { panic!("{:?}", of.config.rules) };
    assert_eq!(options.capacity_scheduler_policy, CapacitySchedulerPolicy::MaxUtilization);
    assert_eq!((of.config.max_num_batched_tokens, of.config.max_num_seqs, of.config.block_size), (4096, 256, 32));
    assert!(!of.config.scheduler.enable_chunked_prefill && !of.config.scheduler.enable_prefix_caching);
    assert_eq!(of.config.scheduler.stream_interval, 10);
    assert_eq!((of.deployment.max_cudagraph_capture_size, of.deployment.enable_padding), (Some(64), true));
    let c = &of.capacity;
    let free = c.device_memory_bytes - c.weight_bytes - c.position_table_bytes - c.activation_bytes - c.overhead_bytes;
    assert!((c.kv_cache_bytes / (0.5 * free) - 1.0).abs() < 1e-12, "half of what is free");
    let missing = line(&format!("{text} {}", dir.path().join("none.yml").display())).unwrap_err().to_string();
    assert!(missing.contains("none.yml"), "{missing}");
    let variable = line(&format!("{text} $EXTRA")).unwrap_err().to_string();
    assert!(variable.contains("has the shell variable EXTRA: write the path of the file"), "{variable}");
}

#[test]
fn a_file_of_vllm_comes_behind_its_line() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("serve.yaml");
    std::fs::write(&file, "max-num-seqs: 32\nmax-model-len: 4096\n").unwrap();
    let of = served(&format!("vllm serve llama-3.1-8b --max-num-seqs 64 --config {}", file.display()));
    assert_eq!((of.config.max_num_seqs, of.config.max_model_len), (64, 4096));
}

#[test]
fn arguments_of_another_engine_name_it() {
    let problems = |text: &str| line(text).unwrap_err().problems().join("; ");
    let known = "is an argument of sglang, which vllm does not have: leave it out, or name the engine that has it";
    for flag in ["chunked-prefill-size 4096", "mem-fraction-static 0.8", "schedule-conservativeness 1"] {
        let found = problems(&format!("vllm serve llama-3.1-8b --{flag}"));
        let name = flag.split(' ').next().unwrap().replace('-', "_");
        assert!(found.contains(&format!("{name} {known}")), "{found}");
    }
    let found = problems("python -m sglang.launch_server --model-path llama-3.1-8b --max-num-batched-tokens 4096");
    assert!(found.contains("max_num_batched_tokens is an argument of vllm, which sglang does not have"), "{found}");
    let found = problems("trtllm-serve llama-3.1-8b --scheduler-recv-interval 2 --speculative_config x");
    assert!(found.contains("scheduler_recv_interval is an argument of sglang, which trtllm does not have"), "{found}");
    assert!(found.contains("speculative_config = \"x\" must be an object or its JSON"), "{found}");
    // vLLM's name of what an engine has stands for its own.
    assert_eq!(served("trtllm-serve llama-3.1-8b --max-num-seqs 8").config.max_num_seqs, 8);
    let spread = served("python -m sglang.launch_server --model-path qwen3-30b-a3b --tp 2 --enable-expert-parallel");
    assert!(spread.deployment.enable_expert_parallel);
    let twice =
        problems("python -m sglang.launch_server --model-path llama-3.1-8b --max-running-requests 8 --max-num-seqs 9");
    assert!(twice.contains("contradict each other: keep one"), "{twice}");
}

#[test]
fn a_line_and_the_named_engine_must_agree() {
    let server = line("python -m sglang.launch_server --model-path llama-3.1-8b").unwrap();
    let (model, hardware) = (Model::find("llama-3.1-8b").unwrap(), Hardware::find("h100").unwrap());
    let other = Engine::parse("trtllm", None).unwrap();
    let error = server.engine_config(&model, &hardware, &other).unwrap_err().to_string();
    assert!(error.contains("starts sglang, and the engine is trtllm: give --engine sglang"), "{error}");
    let versioned = Engine::parse("sglang", Some("0.5.9")).unwrap();
    assert_eq!(server.engine_or(&versioned).unwrap(), versioned);
}

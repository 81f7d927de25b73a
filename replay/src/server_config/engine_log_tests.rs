use super::*;

use serde_json::json;

fn read(lines: &[&str]) -> EngineLog {
    let mut log = EngineLog::default();
    lines.iter().for_each(|line| log.take(line));
    log
}

const ENGINE: &str = "(EngineCore pid=1) INFO 01-02 03:04:05 [core.py:1] Initializing a V1 LLM engine (v0.31.5) with config: \
                      model='org/small', tensor_parallel_size=2, compilation_config={'cudagraph_capture_sizes': [1, 2, 4]}";

#[test]
fn lines_of_a_start_are_settings() {
    let found = read(&[
        "(APIServer pid=1) INFO 01-02 03:04:05 [api_utils.py:1] non-default args: {'model': 'org/small', 'served_model_name': ['chat', 'c'], \
         'block_size': 32, 'max_num_seqs': 64}",
        "(APIServer pid=1) INFO 01-02 03:04:05 [scheduler.py:1] Chunked prefill is enabled with max_num_batched_tokens=4096.",
        ENGINE,
        "(EngineCore pid=1) INFO 01-02 03:04:05 [kv_cache_utils.py:1] GPU KV cache size: 6,400 tokens, Maximum concurrency: 2x",
    ]);
    assert_eq!((found.model.as_deref(), found.served_model.as_deref()), (Some("org/small"), Some("chat")));
    assert_eq!((found.engine_version.as_deref(), found.tensor_parallel_size), (Some("vllm-0.31.5"), Some(2)));
    assert_eq!(
        (found.max_num_seqs, found.max_num_batched_tokens, found.kv_blocks()),
        (Some(64), Some(4096), Some(200))
    );
    assert_eq!(found.note().unwrap(), "the server has 200 KV blocks of 32 tokens; CUDA graphs of 1, 2, 4 tokens");
}

#[test]
fn what_the_log_states_counts_before_what_follows_from_tokens() {
    let size = "(EngineCore pid=2) INFO 04-22 19:59:51 [kv_cache_utils.py:1] GPU KV cache size: 2,591,776 tokens";
    let stated = "(APIServer pid=1) DEBUG 04-22 20:00:21 [loggers.py:310] Engine 000: vllm cache_config_info with initialization after \
                  num_gpu_blocks is: 323972";
    assert_eq!(read(&[size]).kv_blocks(), Some(161_986));
    assert_eq!(read(&[size, stated]).kv_blocks(), Some(323_972));
    assert_eq!(read(&[stated, size]).kv_blocks(), Some(323_972));
    assert_eq!(
        read(&["INFO 01-02 03:04:05 executor_base.py:1] # GPU blocks: 27890, # CPU blocks: 2048"]).kv_blocks(),
        Some(27_890)
    );
    assert_eq!(read(&["x num_gpu_blocks is: 0", size]).kv_blocks(), Some(161_986));
}

#[test]
fn limits_that_vllm_takes_by_default_are_read() {
    let line = |key: &str, value: &str| {
        format!(
            "(APIServer pid=1) DEBUG 04-22 19:58:48 [arg_utils.py:2242] Defaulting {key} to {value} for OPENAI_API_SERVER usage context."
        )
    };
    let lines = [
        line("max_num_seqs", "1024"),
        line("max_num_batched_tokens", "8192"),
        line("other", "7"),
        line("max_num_seqs", "None"),
    ];
    let found = read(&lines.iter().map(String::as_str).collect::<Vec<&str>>());
    assert_eq!((found.max_num_seqs, found.max_num_batched_tokens), (Some(1024), Some(8192)));
}

#[test]
fn settings_of_graphs_are_read_from_old_and_new_releases() {
    let old = "Initializing a V1 LLM engine (v0.10.2) with config: model='org/small', max_seq_len=4096, tensor_parallel_size=2, \
               pipeline_parallel_size=3, data_parallel_size=1, enforce_eager=False, \
               compilation_config={\"level\":3,\"cudagraph_mode\":[2,1],\"cudagraph_capture_sizes\":[8,4,2,1]}";
    let new = "Initializing a V1 LLM engine (v0.15.1) with config: model='org/small', enforce_eager=True, \
               compilation_config={'cudagraph_mode': <CUDAGraphMode.PIECEWISE: 1>, 'cudagraph_capture_sizes': [1, 2]}";
    let (old, new) = (read(&[old]), read(&[new]));
    assert_eq!((old.cudagraph_mode, old.capture_sizes()), (Some("FULL_AND_PIECEWISE"), vec![1, 2, 4, 8]));
    assert_eq!((old.pipeline_parallel_size, old.max_model_len), (Some(3), Some(4096)));
    assert_eq!((old.enforce_eager, new.enforce_eager), (Some(false), Some(true)));
    assert_eq!((new.cudagraph_mode, new.capture_sizes()), (Some("PIECEWISE"), vec![1, 2]));
}

#[test]
fn blocks_that_are_not_logged_are_vllms_default_with_a_note() {
    let gpu = read(&["[x] GPU KV cache size: 6,400 tokens, Maximum"]);
    assert_eq!(gpu.kv_blocks(), Some(400));
    assert!(gpu.note().unwrap().contains("16 tokens, vLLM's default"), "{gpu:?}");
    let cpu = read(&[
        "[x] CPU KV cache size: 6,400 tokens, Maximum",
        "[y] Overriding num_gpu_blocks=9 with num_gpu_blocks_override=7",
    ]);
    assert_eq!(cpu.kv_blocks(), Some(7));
    let eager = read(&[&ENGINE.replace("[1, 2, 4]", "[]"), "[x] CPU KV cache size: 6,400 tokens, Maximum"]);
    assert!(!eager.note().unwrap().contains("CUDA graphs"), "{eager:?}");
    assert_eq!(read(&["nothing"]), EngineLog::default());
    assert!(EngineLog::begins(ENGINE) && !EngineLog::begins("Initializing"));
}

#[test]
fn what_a_log_says_are_arguments_of_a_server() {
    let found = read(&[
        "INFO 01-02 03:04:05 [utils.py:233] non-default args: {'model_tag': 'org/small', 'model': 'org/small', 'max_model_len': 8192, \
         'gpu_memory_utilization': 0.95, 'kv_cache_dtype': 'fp8', 'enable_prefix_caching': False, 'quantization': None, 'api_key': ['k']}",
        "Defaulting max_num_seqs to 1024 for OPENAI_API_SERVER usage context.",
        "Initializing a V1 LLM engine (v0.19.0) with config: model='org/small', max_seq_len=8192, tensor_parallel_size=2, \
         enforce_eager=False, enable_prefix_caching=False, kv_cache_dtype=fp8",
        "[x] GPU KV cache size: 2,591,776 tokens",
    ]);
    let expected = json!({
        "model": "org/small", "max_model_len": 8192, "gpu_memory_utilization": 0.95, "kv_cache_dtype": "fp8", "enable_prefix_caching": false,
        "max_num_seqs": 1024, "tensor_parallel_size": 2, "kv_cache_tokens": 2_591_776
    });
    assert_eq!(Value::Object(found.arguments()), expected);
}

#[test]
fn other_sources_of_the_size_are_read() {
    let metrics = read(&[
        "vllm:cache_config_info{block_size=\"32\",cache_dtype=\"auto\",engine=\"0\",num_gpu_blocks=\"27890\"} 1.0",
    ]);
    assert_eq!(Value::Object(metrics.arguments()), json!({"block_size": 32, "num_gpu_blocks_override": 27_890}));
    let sglang = read(&[
        "[2026-01-02 03:04:05] server_args=ServerArgs(model_path='org/small', tp_size=2, chunked_prefill_size=4096, max_running_requests=None)",
        "[2026-01-02 03:04:06 TP0] max_total_num_tokens=446000, chunked_prefill_size=8192, max_running_requests=2048, context_len=131072",
    ]);
    let expected = json!({
        "model": "org/small", "tensor_parallel_size": 2, "max_num_batched_tokens": 8192, "max_num_seqs": 2048, "max_model_len": 131_072,
        "kv_cache_tokens": 446_000
    });
    assert_eq!(Value::Object(sglang.arguments()), expected);
}

#[test]
fn the_last_start_of_a_log_counts_and_a_file_without_one_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("server.log");
    let start = |seqs: u32, tokens: &str| {
        format!("non-default args: {{'max_num_seqs': {seqs}}}\nGPU KV cache size: {tokens} tokens\n")
    };
    std::fs::write(&path, start(64, "9,999") + &start(32, "6,400")).unwrap();
    let found = EngineLog::read(&path).unwrap();
    assert_eq!(Value::Object(found.arguments()), json!({"max_num_seqs": 32, "kv_cache_tokens": 6400}));
    std::fs::write(&path, "hello\n").unwrap();
    assert!(EngineLog::read(&path).unwrap_err().to_string().contains("GPU KV cache size"));
}

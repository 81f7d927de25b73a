use std::io::Write;
use std::path::Path;

use ridgepoint_replay::cold_start::CompileCache;

use super::{StartLog, read_start_logs};

fn read(text: &str) -> ridgepoint::Result<Vec<StartLog>> {
    let mut file = tempfile::Builder::new().suffix(".log").tempfile().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    read_start_logs(file.path())
}

fn one(text: &str) -> StartLog {
    let mut starts = read(text).unwrap();
    assert_eq!(starts.len(), 1);
    starts.remove(0)
}

/// As vLLM 0.10 writes it, with two ranks, JSON in the engine's configuration and a cold compile cache.
const V0_10: &str = "\
INFO 03-01 10:00:00 [__init__.py:1] Automatically detected platform cuda.
(APIServer pid=1) INFO 03-01 10:00:02 [api_server.py:1] vLLM API server version 0.10.2
(APIServer pid=1) INFO 03-01 10:00:02 [utils.py:1] non-default args: {'model_tag': 'meta-llama/Llama-3.1-8B', 'max_num_seqs': 16}
(EngineCore_DP0 pid=2) INFO 03-01 10:00:10 [core.py:1] Initializing a V1 LLM engine (v0.10.2) with config: model='meta-llama/Llama-3.1-8B', max_seq_len=8192, tensor_parallel_size=2, pipeline_parallel_size=1, data_parallel_size=1, enforce_eager=False, compilation_config={\"cudagraph_mode\":[2,1],\"cudagraph_capture_sizes\":[32,24,16,8,4,2,1]}
(Worker_TP0 pid=3) INFO 03-01 10:00:20 [gpu_model_runner.py:1] Starting to load model meta-llama/Llama-3.1-8B...
(Worker_TP1 pid=4) INFO 03-01 10:00:21 [gpu_model_runner.py:1] Starting to load model meta-llama/Llama-3.1-8B...
(Worker_TP0 pid=3) INFO 03-01 10:00:26 [default_loader.py:1] Loading weights took 5.25 seconds
(Worker_TP1 pid=4) INFO 03-01 10:00:27 [default_loader.py:1] Loading weights took 5.75 seconds
(Worker_TP0 pid=3) INFO 03-01 10:00:27 [gpu_model_runner.py:1] Model loading took 7.5123 GiB and 6.000000 seconds
(Worker_TP1 pid=4) INFO 03-01 10:00:28 [gpu_model_runner.py:1] Model loading took 7.5123 GiB and 6.750000 seconds
(Worker_TP0 pid=3) INFO 03-01 10:00:34 [backends.py:1] Dynamo bytecode transform time: 5.50 s
(Worker_TP1 pid=4) INFO 03-01 10:00:34 [backends.py:1] Dynamo bytecode transform time: 5.25 s
(Worker_TP0 pid=3) INFO 03-01 10:00:54 [backends.py:1] Compiling a graph for dynamic shape takes 18.00 s
(Worker_TP0 pid=3) INFO 03-01 10:00:56 [monitor.py:1] torch.compile takes 23.50 s in total
(Worker_TP1 pid=4) INFO 03-01 10:00:56 [monitor.py:1] torch.compile takes 22.50 s in total
(Worker_TP0 pid=3) INFO 03-01 10:00:58 [gpu_worker.py:1] Available KV cache memory: 60.25 GiB
(Worker_TP1 pid=4) INFO 03-01 10:00:58 [gpu_worker.py:1] Available KV cache memory: 60.25 GiB
(EngineCore_DP0 pid=2) INFO 03-01 10:00:58 [kv_cache_utils.py:1] GPU KV cache size: 987,120 tokens
Capturing CUDA graphs (mixed prefill-decode, PIECEWISE):   0%|          | 0/7 [00:00<?, ?it/s]\rCapturing CUDA graphs (mixed prefill-decode, PIECEWISE):  57%|#####     | 4/7 [00:00<00:00, 19.00it/s]\rCapturing CUDA graphs (mixed prefill-decode, PIECEWISE): 100%|##########| 7/7 [00:00<00:00, 14.00it/s]
Capturing CUDA graphs (decode, FULL): 100%|##########| 5/5 [00:00<00:00, 20.00it/s]
(Worker_TP0 pid=3) INFO 03-01 10:01:01 [gpu_model_runner.py:1] Graph capturing finished in 3 secs, took 0.45 GiB
(Worker_TP1 pid=4) INFO 03-01 10:01:01 [gpu_model_runner.py:1] Graph capturing finished in 3 secs, took 0.45 GiB
(EngineCore_DP0 pid=2) INFO 03-01 10:01:01 [core.py:1] init engine (profile, create kv cache, warmup model) took 32.75 seconds
(APIServer pid=1) INFO 03-01 10:01:03 [api_server.py:1] Starting vLLM API server 0 on http://0.0.0.0:8000
";

/// As vLLM 0.32 writes it: tags, a compile cache that is warm, and no line of Dynamo.
const V0_32: &str = "\
(APIServer pid=1) INFO 12-31 23:59:50 [api_utils.py:1]  ## ## #     #     # #  version 0.32.0
(APIServer pid=1) INFO 12-31 23:59:50 [api_utils.py:1] non-default args: {'model_tag': '/models/mine', 'max_num_seqs': 16}
(EngineCore pid=2) INFO 12-31 23:59:58 [core.py:1] Initializing a V1 LLM engine (v0.32.0) with config: model='/models/mine', max_seq_len=4096, tensor_parallel_size=1, pipeline_parallel_size=2, data_parallel_size=1, enforce_eager=False, compilation_config={'cudagraph_mode': <CUDAGraphMode.FULL_DECODE_ONLY: (2, 0)>, 'cudagraph_capture_sizes': [1, 2, 4, 8, 16]}
(Worker_PP0 pid=3) INFO 01-01 00:00:05 [gpu_model_runner.py:1] Starting to load model /models/mine...
(Worker_PP0 pid=3) INFO 01-01 00:00:06 [default_loader.py:1] Loading weights took 1.00 seconds
(Worker_PP1 pid=4) INFO 01-01 00:00:07 [default_loader.py:1] Loading weights took 1.50 seconds
(Worker_PP0 pid=3) INFO 01-01 00:00:07 [gpu_model_runner.py:1] Model loading took 7.5 GiB memory and 2.000000 seconds
(Worker_PP0 pid=3) INFO 01-01 00:00:08 [decorators.py:1] [backbone] Directly load AOT compilation from path /cache/rank_0_0/model
(Worker_PP0 pid=3) INFO 01-01 00:00:09 [monitor.py:1] [backbone] torch.compile took 1.75 s in total
(Worker_PP0 pid=3) INFO 01-01 00:00:09 [monitor.py:1] [encoder] torch.compile took 0.25 s in total
(Worker_PP0 pid=3) INFO 01-01 00:00:10 [monitor.py:1] [backbone] Initial profiling/warmup run took 0.50 s
(Worker_PP0 pid=3) INFO 01-01 00:00:10 [gpu_worker.py:1] Available KV cache memory: 61.5 GiB
(EngineCore pid=2) INFO 01-01 00:00:10 [kv_cache_utils.py:1] GPU KV cache size: 9,600 tokens, Maximum concurrency for 4,096 tokens per request: 2.34x
(Worker_PP0 pid=3) INFO 01-01 00:00:12 [gpu_model_runner.py:1] Graph capturing finished in 2 secs, took 0.25 GiB
(EngineCore pid=2) INFO 01-01 00:00:13 [core.py:1] init engine (profile, create kv cache, warmup model) took 6.50 s (compilation: 2.00 s)
(APIServer pid=1) INFO 01-01 00:00:14 [entry.py:1] Starting vLLM server on http://127.0.0.1:8123
";

#[test]
fn a_log_of_0_10_reports_every_rank_and_both_kinds_of_graphs() {
    let log = one(V0_10);
    let ranks: Vec<(&str, Option<u32>, Option<f64>)> =
        log.ranks.iter().map(|(name, rank)| (name.as_str(), rank.tensor_rank, rank.weights_s)).collect();
    assert_eq!(ranks, [("Worker_TP0", Some(0), Some(5.25)), ("Worker_TP1", Some(1), Some(5.75))]);
    assert_eq!(log.slowest(|rank| rank.weights_s), Some(5.75));
    assert_eq!(log.slowest(|rank| rank.model_s), Some(6.75));
    assert_eq!(log.slowest(|rank| rank.weights_gib), Some(7.5123));
    assert_eq!((log.slowest(|rank| rank.dynamo_s), log.slowest(|rank| rank.compile_s)), (Some(5.5), Some(23.5)));
    assert_eq!((log.piecewise, log.full), (Some((7, 0.5)), Some((5, 0.25))));
    assert_eq!((log.slowest(|rank| rank.graphs_s), log.slowest(|rank| rank.kv_cache_gib)), (Some(3.0), Some(60.25)));
    assert_eq!((log.engine_s, log.compile_cache), (Some(32.75), Some(CompileCache::Cold)));
    // From the first line at 10:00:00, before the banner.
    assert_eq!((log.launch_s, log.ready_s), (Some(20.0), Some(63.0)));
    assert_eq!(log.labels.capture_sizes(), [1, 2, 4, 8, 16, 24, 32]);
}

#[test]
fn a_log_of_0_32_reports_a_warm_cache_and_pipeline_ranks() {
    let log = one(V0_32);
    assert_eq!(log.compile_cache, Some(CompileCache::Warm));
    // The language model and a vision tower are compiled one after the other.
    assert_eq!((log.slowest(|rank| rank.compile_s), log.slowest(|rank| rank.dynamo_s)), (Some(2.0), None));
    assert_eq!((log.slowest(|rank| rank.weights_s), log.slowest(|rank| rank.graphs_s)), (Some(1.5), Some(2.0)));
    assert_eq!(log.slowest(|rank| rank.profile_s), Some(0.5));
    assert_eq!(log.ranks["Worker_PP1"].pipeline_rank, Some(1));
    // Over the turn of the year.
    assert_eq!((log.launch_s, log.ready_s), (Some(15.0), Some(24.0)));
    assert_eq!((log.engine_s, log.labels.cudagraph_mode), (Some(6.5), Some("FULL_DECODE_ONLY")));
}

#[test]
fn a_server_that_starts_again_is_another_start() {
    let again = V0_10.replace("Loading weights took 5", "Loading weights took 1").replace(" 10:", " 11:");
    let starts = read(&format!("{V0_10}{again}")).unwrap();
    let weights: Vec<Option<f64>> = starts.iter().map(|start| start.slowest(|rank| rank.weights_s)).collect();
    assert_eq!(weights, [Some(5.75), Some(1.75)]);
    // The line before the second banner belongs to the first start.
    assert_eq!(starts[1].launch_s, Some(18.0));
    assert!(starts[0].name.ends_with("#1") && starts[1].name.ends_with("#2"), "{}", starts[1].name);
}

#[test]
fn a_log_without_a_whole_start_is_refused() {
    let steps =
        "(APIServer pid=1) INFO 03-01 10:00:00 [loggers.py:1] Engine 000: Avg prompt throughput: 0.6 tokens/s\n";
    let error = read(steps).unwrap_err().to_string();
    assert!(error.contains("has no start-up line of vLLM"), "{error}");
    for (until, last) in [
        ("Initializing a V1", "the engine's configuration"),
        ("Loading weights took 5.75", "loading the weights"),
        ("torch.compile takes 22", "torch.compile"),
        ("Graph capturing finished in", "the CUDA graphs"),
    ] {
        let end = V0_10.find(until).unwrap() + V0_10[V0_10.find(until).unwrap()..].find('\n').unwrap();
        let error = read(&V0_10[..end]).unwrap_err().to_string();
        assert!(error.contains(&format!("ends after {last}: the line 'init engine")), "{until}: {error}");
    }
}

/// Six starts of vLLM 0.32 on a CPU, where `RIDGEPOINT_DATA` has them.
#[test]
#[allow(clippy::print_stdout)]
fn real_logs_report_their_times() {
    let Some(dir) = std::env::var_os("RIDGEPOINT_DATA").map(|dir| Path::new(&dir).join("vllm-cpu")) else {
        println!("skipped: needs RIDGEPOINT_DATA pointing at the logs of a real server");
        return;
    };
    for (name, launch_s, weights_s, engine_s, ready_s) in [
        ("a-default", 63.0, 0.04, 40.28, 105.0),
        ("b-all", 27.0, 0.05, 21.93, 52.0),
        ("c-chunk", 59.0, 0.11, 43.35, 106.0),
        ("d-preempt", 79.0, 0.08, 0.03, 84.0),
        ("e-offload", 73.0, 0.22, 0.12, 76.0),
        ("f-mixtral", 94.0, 0.08, 0.04, 102.0),
    ] {
        let log = read_start_logs(&dir.join(format!("startup_{name}.log"))).unwrap().remove(0);
        assert_eq!((log.launch_s, log.slowest(|rank| rank.weights_s)), (Some(launch_s), Some(weights_s)), "{name}");
        assert_eq!((log.engine_s, log.ready_s), (Some(engine_s), Some(ready_s)), "{name}");
    }
}

//! Tests of a server's file: names, values, what is refused, and the engine that it makes.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::float_cmp)]

use ridgepoint::ErrorKind;

use super::*;
use crate::SchedulingPolicy;

const SERVER: &str = "model: llama-3.1-8b\nhardware: H100\n";

fn parse(more: &str) -> Result<ServerConfig> {
    ServerConfig::parse("server.yaml", &format!("{SERVER}{more}"))
}

fn problems(result: Result<ServerConfig>) -> Vec<String> {
    match result {
        Err(error) if error.kind() == ErrorKind::Invalid => {
            assert_eq!(error.location().unwrap().path, "server.yaml");
            error.problems().to_vec()
        }
        other => panic!("expected ErrorKind::Invalid, got {other:?}"),
    }
}

fn engine(more: &str) -> Result<ServedEngine> {
    let server = parse(more).unwrap();
    let (model, _) = server.find_model(None).unwrap();
    server.engine_config(&model, &server.find_hardware(None).unwrap(), &ridgepoint::Engine::default())
}

#[test]
fn names_of_experiments_and_of_vllm_mean_the_same() {
    let experiment = "tensor_parallelism: 2\nmax_model_len: 4096\nmax_num_batched_tokens: 2048\nmax_num_seqs: 128\nprecision: bf16\ntotal_kv_blocks: 7463\ngpu_memory_utilization: 0.85\n";
    let dashes = "tensor-parallel-size: 2\nmax-model-len: 4096\nmax-num-batched-tokens: 2048\nmax-num-seqs: 128\nprecision: bfloat16\nnum-gpu-blocks-override: 7463\n--gpu-memory-utilization: 0.85\nserved-model-name: x\n";
    let (one, other) = (parse(experiment).unwrap(), parse(dashes).unwrap());
    assert_eq!(other.notes, ["1 argument has no influence on times: served_model_name"]);
    assert_eq!(one, ServerConfig { notes: Vec::new(), ..other });
    assert_eq!(one.deployment.tensor_parallel_size, 2);
    assert_eq!(one.num_gpu_blocks_override, Some(7463));
    assert_eq!(one.deployment.gpu_memory_utilization, 0.85);
    assert_eq!(one.precision, Some(MatmulFormat::Bfloat16));
}

#[test]
fn json_is_read_as_well() {
    let text = r#"{"model": "llama-3.1-8b", "hardware": "H100", "enable_prefix_caching": false, "block_size": 32,
        "scheduling_policy": "priority", "kv_cache_dtype": "fp8", "max_model_len": null}"#;
    let server = ServerConfig::parse("server.json", text).unwrap();
    assert!(!server.scheduler.enable_prefix_caching);
    assert_eq!(server.scheduler.scheduling_policy, SchedulingPolicy::Priority);
    assert_eq!(server.deployment.block_size, 32);
    assert_eq!(server.deployment.kv_cache_dtype, Some(ridgepoint::DType::Fp8));
    assert_eq!(server.deployment.max_model_len, None);
}

#[test]
fn a_page_of_problems_is_enough() {
    let many: String = (0..10_000).map(|i| format!("max_num_seq{i}: {}\n", "9".repeat(50))).collect();
    let found = problems(parse(&many));
    assert_eq!((found.len(), found[20].as_str()), (21, "and 9980 more"));
    let long = problems(parse(&format!("{}: 1\nmax_num_seqs: \"{}\"\n", "k".repeat(1000), "v".repeat(1_000_000))));
    assert!(long.len() == 2 && long.iter().all(|problem| problem.len() < 1500), "{long:?}");
}

#[test]
fn unknown_keys_are_named_with_near_matches() {
    let found = problems(parse("max_num_seq: 128\nspeculative_config: x\nenable_lora: true\n"));
    assert_eq!(found.len(), 3, "{found:?}");
    assert!(
        found.iter().any(|p| p.starts_with("max_num_seq is not a known key: did you mean max_num_seqs")),
        "{found:?}"
    );
    let lora = "enable_lora = true is not modelled: there are no LoRA adapters";
    let speculative = "speculative_config = \"x\" must be an object or its JSON";
    assert!([lora, speculative].iter().all(|text| found.iter().any(|problem| problem == text)), "{found:?}");
}

#[test]
fn graphs_of_a_compilation_config_are_the_arguments_themselves() {
    let nested =
        parse("compilation-config: {cudagraph_mode: PIECEWISE, cudagraph_capture_sizes: [1, 8], pass_config: {}}\n");
    let nested = nested.expect("possible");
    assert_eq!(nested.deployment.cudagraph_mode, Some(ridgepoint::CudagraphMode::Piecewise));
    assert_eq!(nested.deployment.cudagraph_capture_sizes, [1, 8]);
    assert!(nested.notes.iter().any(|note| note == "compilation_config.pass_config has no influence here"));
    let found = problems(parse("compilation_config: {cudagraph_mode: NONE}\ncudagraph_mode: FULL\n"));
    assert!(found.iter().any(|problem| problem.contains("cudagraph_mode = ")), "{found:?}");
    assert!(problems(parse("compilation_config: 3\n"))[0].starts_with("compilation_config"));
}

#[test]
fn two_names_of_one_argument_must_agree() {
    assert!(parse("tensor_parallelism: 2\ntensor_parallel_size: 2\n").is_ok());
    let found = problems(parse("tensor_parallelism: 2\ntensor-parallel-size: 4\n"));
    assert_eq!(found, ["tensor_parallel_size = 4 and tensor_parallelism = 2 are names of one setting: keep one"]);
    let found = problems(parse("enable_prefix_caching: true\nno_enable_prefix_caching: true\n"));
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(
        found[0]
            .starts_with("enable_prefix_caching = true and no_enable_prefix_caching = true are names of one setting"),
        "{found:?}"
    );
    assert!(parse("enable_prefix_caching: true\nno-enable-prefix-caching: false\n").is_ok());
    assert!(matches!(parse("block_size: 16\nblock_size: 16\n"), Err(error) if error.kind() == ErrorKind::Parse));
}

#[test]
fn values_out_of_range_are_all_reported() {
    let found = problems(parse(
        "tensor_parallelism: 0\nmax_num_seqs: 1.5\nmax_num_batched_tokens: \"many\"\ngpu_memory_utilization: 1.2\nkv_cache_dtype: fp7\nprecision: fp7\nenforce_eager: 3\nscheduling_policy: lifo\ncpu_offload: yes please\ntotal_kv_blocks: -4\ndtype: float32\nlong_prefill_token_threshold: .nan\n",
    ));
    for key in [
        "tensor_parallelism = 0 must be a whole number from 1",
        "max_num_seqs = 1.5",
        "max_num_batched_tokens = \"many\"",
        "gpu_memory_utilization = 1.2 must be a share",
        "kv_cache_dtype = \"fp7\" must be auto, fp8",
        "precision = \"fp7\" must be bf16",
        "enforce_eager = 3 must be true or false",
        "scheduling_policy = \"lifo\" must be fcfs or priority",
        "cpu_offload = \"yes please\"",
        "total_kv_blocks = -4",
        "dtype = \"float32\"",
        "long_prefill_token_threshold = ",
    ] {
        assert!(found.iter().any(|problem| problem.starts_with(key)), "{key} is not in {found:?}");
    }
    assert_eq!(found.len(), 12, "{found:?}");
}

#[test]
fn a_server_has_a_model_and_a_gpu() {
    let missing = |text: &str| problems(ServerConfig::parse("server.yaml", text));
    assert_eq!(missing("max_num_seqs: 1\n"), ["model is missing", "hardware is missing"]);
    assert_eq!(missing("model: 7\nhardware: ''\n").len(), 2);
    for text in ["", "# nothing\n", "- model\n", "model", "model: [", "model: a\nmodel: b\n"] {
        let fault = ServerConfig::parse("server.yaml", text);
        let fault = fault.unwrap_err();
        assert_eq!(
            (fault.kind(), fault.location().unwrap().path.as_str()),
            (ErrorKind::Parse, "server.yaml"),
            "{text}"
        );
    }
    assert!(matches!(ServerConfig::read(Path::new("no/such/file.yaml")), Err(error) if error.kind() == ErrorKind::Io));
}

#[test]
fn other_arguments_take_the_place_of_those_in_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("server.yaml");
    let text = "hardware: H100\nmax-num-seqs: 7\nprecision: fp8\ntotal_kv_blocks: 9000\nno-async-scheduling: true\n\
                tensor_parallelism: 4\ncpu_offload: 3\n";
    std::fs::write(&path, text).unwrap();
    assert!(ServerConfig::read(&path).is_err());
    let over = |json: &str| {
        ServerConfig::read_with(&path, &Beside { over: serde_json::from_str(json).unwrap(), ..Beside::default() })
    };
    let server = over(
        r#"{"model": "qwen3-8b", "hardware": "h200", "tensor_parallel_size": 2, "num_gpu_blocks_override": "auto",
            "async_scheduling": true, "no_enable_prefix_caching": true, "cpu_offload_gb": 1}"#,
    )
    .unwrap();
    assert_eq!((server.model.as_str(), server.hardware.as_str(), server.precision), ("qwen3-8b", "h200", None));
    assert_eq!((server.deployment.max_num_seqs, server.deployment.tensor_parallel_size), (7, 2));
    assert_eq!((server.num_gpu_blocks_override, server.deployment.cpu_offload_gb), (None, 1.0));
    assert!(server.scheduler.async_scheduling && !server.scheduler.enable_prefix_caching);
    assert!(server.given.contains("async_scheduling") && !server.given.contains("enable_chunked_prefill"));
    assert_eq!(over(r#"{"model": "qwen3-8b"}"#).unwrap().num_gpu_blocks_override, Some(9000));
}

#[test]
fn given_blocks_are_used_and_surprising_ones_remarked_on() {
    let found = engine("max_model_len: 4096\ntotal_kv_blocks: 1000\n").unwrap();
    assert!(found.blocks_are_given && found.notes.is_empty(), "{:?}", found.notes);
    assert_eq!((found.config.num_gpu_blocks, found.config.max_model_len), (1000, 4096));
    let found = engine("max_model_len: 4096\ntotal_kv_blocks: 100000\n").unwrap();
    assert_eq!(found.config.num_gpu_blocks, 100_000);
    assert!(found.notes[0].contains("num_gpu_blocks_override = 100000: the memory equation finds room for"));
    // 256 blocks hold 4096 tokens, and the engine needs one for itself.
    let short = engine("max_model_len: 4096\ntotal_kv_blocks: 256\n").unwrap_err().to_string();
    assert!(short.starts_with("server.yaml: num_gpu_blocks = 256 holds 4080 tokens"), "{short}");
}

#[test]
fn the_equation_gives_the_blocks_and_the_model_the_context_where_neither_is_given() {
    let found =
        engine("no_enable_prefix_caching: true\nasync-scheduling: false\nlong_prefill_token_threshold: 512\n").unwrap();
    assert!(!found.blocks_are_given);
    assert_eq!(found.config.num_gpu_blocks, found.capacity.num_gpu_blocks);
    assert_eq!(found.config.max_model_len, 131_072);
    assert!(
        !found.config.scheduler.enable_prefix_caching
            && !found.config.scheduler.async_scheduling
            && found.config.scheduler.enable_chunked_prefill
    );
    assert_eq!(found.config.scheduler.long_prefill_token_threshold, 512);
    assert!(!found.config.scheduler.scheduler_reserve_full_isl);
    assert!(engine("scheduler-reserve-full-isl: true\n").unwrap().config.scheduler.scheduler_reserve_full_isl);
    let whole = engine("enable_chunked_prefill: false\n").unwrap();
    assert_eq!(whole.deployment.max_num_batched_tokens, 131_072, "room for the longest prompt");
    let whole = engine("enable_chunked_prefill: false\nmax_num_batched_tokens: 8192\n").unwrap_err().to_string();
    assert!(whole.contains("max_num_batched_tokens = 8192 is less than max_model_len = 131072"), "{whole}");
}

#[test]
fn offload_is_a_size_or_a_switch() {
    assert_eq!(parse("cpu_offload: false\n").unwrap().deployment.cpu_offload_gb, 0.0);
    assert_eq!(parse("cpu_offload: 4\n").unwrap().deployment.cpu_offload_gb, 4.0);
    assert_eq!(parse("cpu_offload: true\ncpu-offload-gb: 2.5\n").unwrap().deployment.cpu_offload_gb, 2.5);
    let switched = parse("cpu_offload: true\n").unwrap();
    assert!(switched.notes[0].contains("cpu_offload = true has no size"), "{:?}", switched.notes);
    assert_eq!(problems(parse("cpu_offload: false\ncpu_offload_gb: 2\n")).len(), 1);
    assert_eq!(problems(parse("cpu_offload: 3\ncpu_offload_gb: 2\n")).len(), 1);
    let found = engine("cpu_offload_gb: 8\n").unwrap();
    assert_eq!(found.notes, Vec::<String>::new());
}

#[test]
fn precision_is_compared_with_what_the_checkpoint_stores() {
    let found = |model: &str, precision: &str| {
        let text = format!("model: {model}\nhardware: H100\nprecision: {precision}\n");
        ServerConfig::parse("server.yaml", &text)
            .unwrap()
            .find_model(None)
            .map(|(model, notes)| (model.name.clone(), notes))
    };
    let none = |name: &str| (name.to_owned(), Vec::new());
    assert_eq!(found("meta-llama/Llama-2-7b-hf", "bf16").unwrap(), none("llama-2-7b"));
    let scout = "RedHatAI/Llama-4-Scout-17B-16E-Instruct-FP8-dynamic";
    assert_eq!(found(scout, "fp8").unwrap(), none("llama-4-scout-fp8-dynamic"));
    assert_eq!(found("gpt-oss-20b", "mxfp4").unwrap(), none("gpt-oss-20b"));
    let (name, notes) = found(scout, "bf16").unwrap();
    assert_eq!(name, "llama-4-scout-fp8-dynamic");
    assert!(notes[0].contains("stores its weights as fp8, which is predicted"), "{notes:?}");
    let (name, notes) = found("meta-llama/Llama-3.1-8B-Instruct", "fp8").unwrap();
    assert_eq!(name, "llama-3.1-8b-fp8");
    assert!(notes[0].contains("fp8 is requested: llama-3.1-8b stores its weights as bfloat16"), "{notes:?}");
    for (precision, expected) in
        [("int4", "llama-3.1-8b-int4"), ("int8", "llama-3.1-8b-w8a8"), ("fp4", "llama-3.1-8b-nvfp4")]
    {
        assert_eq!(found("llama-3.1-8b", precision).unwrap().0, expected);
    }
    let refused = found(scout, "int4").unwrap_err().to_string();
    assert!(
        refused.contains("int4_wo is requested, but llama-4-scout-fp8-dynamic stores its weights as fp8"),
        "{refused}"
    );
    let path = format!("{}/../models/llama-3.1-8b.json", env!("CARGO_MANIFEST_DIR"));
    let refused = found(&path, "fp8").unwrap_err().to_string();
    assert!(refused.contains("give the config.json of the quantised checkpoint"), "{refused}");
}

#[test]
fn the_server_of_an_experiment_takes_vllms_key() {
    let parse = |more: &str| ServerConfig::parse("e.yaml", &format!("model: llama-3.1-8b\nhardware: h100\n{more}"));
    assert_eq!(parse("").unwrap().deployment.generation_config, ridgepoint::GenerationConfig::Auto);
    assert_eq!(
        parse("generation-config: vllm\n").unwrap().deployment.generation_config,
        ridgepoint::GenerationConfig::Vllm
    );
    let refused = parse("generation_config: /models/mine\n").unwrap_err().to_string();
    assert!(refused.contains(r#"generation_config = "/models/mine" must be auto or vllm"#), "{refused}");
}

#[test]
fn a_default_follows_the_version_of_the_engine_unless_it_is_given() {
    let on = |version: &str, more: &str| {
        let server = parse(more).unwrap();
        let (model, hardware) = (server.find_model(None).unwrap().0, server.find_hardware(None).unwrap());
        let kernels = ridgepoint::Engine::parse("vllm", Some(version)).unwrap();
        let served = server.engine_config(&model, &hardware, &kernels).unwrap();
        (served.config.scheduler.async_scheduling, served.notes.iter().any(|note| note.contains("is the default of")))
    };
    assert_eq!([on("0.13", ""), on("0.14", "")], [(false, true), (true, false)]);
    assert_eq!(on("0.12", "async-scheduling: true\n"), (true, false));
    assert_eq!(on("0.24", "no-async-scheduling: true\n"), (false, false));
}

#[test]
fn variables_of_a_script_have_their_values_or_are_named() {
    let script =
        "TP=2\nvllm serve llama-3.1-8b -tp $TP --max-model-len ${LEN:-4096} --max-num-seqs $SEQS --port $PORT\n";
    let read = |json: &str| {
        let beside = Beside { over: serde_json::from_str(json).unwrap(), ..Beside::default() };
        ServerConfig::parse_with("serve.sh", script, &beside)
    };
    let error = read("{\"hardware\": \"h100\"}").unwrap_err().to_string();
    assert!(
        error.contains("max_num_seqs = $SEQS has the shell variable SEQS: write its value, or give --max-num-seqs"),
        "{error}"
    );
    let found = read("{\"hardware\": \"h100\", \"max_num_seqs\": 8}").unwrap().deployment;
    assert_eq!((found.tensor_parallel_size, found.max_num_seqs, found.max_model_len), (2, 8, Some(4096)));
}

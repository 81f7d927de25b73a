//! `ridgepoint simulate`: every kind of load, the keys of its JSON, its output files, and arguments at their limits. Messages about
//! bad input are in `simulate_faults`.

use crate::cli_support;

use cli_support::{Folder, run, simulate};
use serde_json::{Value, json};

const SERVER: &str = "--model llama-3.1-8b --hardware h100 --max-model-len 4096";
const LOOP: &str = "--concurrency 2 --num-requests 4 --input-len 8 --output-len 4";

/// Two stages of 2 × 5 and 4 × 2.5 requests; 2 × 3 prompts of 30 tokens.
const PROFILE: &str = "load:
  type: constant
  stages: [{rate: 2, duration: 5}, {rate: 4, duration: 2.5}]
data:
  type: shared_prefix
  shared_prefix: {num_groups: 2, num_prompts_per_group: 3, system_prompt_len: 10, question_len: 20, output_len: 5}
";
const CSV: &str = "arrival,input_len,output_len\n0,100,3\n0.5,200,5\n2,300,7\n";

fn json_of(line: &str) -> Value {
    simulate(&format!("{SERVER} {line} --format json")).json()
}

/// Requests, stages, prompt and output tokens of a run in which every request finished.
fn sums(json: &Value) -> (u64, usize, u64, u64) {
    let (run, stages) = (&json["stages"][0], json["stages"].as_array().unwrap().len() - 1);
    let number = |key: &str| run[key].as_u64().unwrap_or_else(|| panic!("{key} in {run}"));
    assert_eq!((number("finished"), number("rejected"), number("unfinished")), (number("requests"), 0, 0));
    (number("requests"), stages, number("input_tokens"), number("output_tokens"))
}

fn keys(value: &Value) -> Vec<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

#[test]
fn every_kind_of_profile_is_replayed() {
    let folder = Folder::new();
    let random = |load: &str| {
        let fixed = |n: u32| format!("{{min: {n}, max: {n}, mean: {n}, std_dev: 0}}");
        format!(
            "load: {load}\ndata: {{type: random, input_distribution: {}, output_distribution: {}}}\n",
            fixed(40),
            fixed(6)
        )
    };
    for (text, expected) in [
        (PROFILE.to_owned(), (20, 2, 20 * 30, 20 * 5)),
        (PROFILE.replace('\n', "\r\n"), (20, 2, 20 * 30, 20 * 5)),
        (random("{type: poisson, stages: [{rate: 3, duration: 4}]}"), (12, 1, 12 * 40, 12 * 6)),
        (random("{type: concurrent, stages: [{concurrency_level: 2, num_requests: 7}]}"), (7, 1, 7 * 40, 7 * 6)),
        (
            "{\n\t\"load\": {\"stages\": [{\"rate\": 1, \"duration\": 4}]},\n\t\"data\": {\"type\": \"mock\"}\n}\n"
                .to_owned(),
            (4, 1, 4 * 3, 4 * 30),
        ),
    ] {
        let path = folder.write("profile.yaml", text);
        assert_eq!(sums(&json_of(&format!("--profile {path}"))), expected);
    }
}

#[test]
fn every_kind_of_request_file_is_replayed_and_known_by_its_content() {
    let folder = Folder::new();
    let azure =
        "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 23:59:59.5000000,100,3\n2023-11-17 00:00:00.5,200,5\n";
    let bench = r#"{"date": "x", "request_rate": "inf", "input_lens": [100, 200, 9], "output_lens": [3, 5, 0],
        "start_times": [8.5, 8.0, 1.0], "errors": ["", "", "timeout"]}"#;
    for (name, kind, text, expected) in [
        ("r.csv", "csv", CSV, (3, 1, 600, 15)),
        (
            "b.csv",
            "csv",
            "\u{feff}arrival_ms,prompt_len,output_tokens,stage\r\n0,100,3,0\r\n500,200,5,1\r\n",
            (2, 2, 300, 8),
        ),
        (
            "r.jsonl",
            "jsonl",
            "{\"arrival\":0,\"input_len\":100,\"output_len\":3}\n\n{\"arrival\":1,\"input_len\":200,\"output_len\":5}",
            (2, 1, 300, 8),
        ),
        (
            "m.jsonl",
            "mooncake",
            "{\"timestamp\":0,\"input_length\":513,\"output_length\":3,\"hash_ids\":[1,2]}\n{\"timestamp\":500,\"input_length\":512,\"output_length\":5,\"hash_ids\":[1]}\n",
            (2, 1, 1025, 8),
        ),
        ("a.csv", "azure", azure, (2, 1, 300, 8)),
        ("v.json", "vllm-bench", bench, (2, 1, 300, 8)),
        (
            "l.jsonl",
            "llmservingsim",
            "{\"input_toks\":3,\"output_toks\":5,\"arrival_time_ns\":0,\"input_tok_ids\":[1,2,3]}\n",
            (1, 1, 3, 5),
        ),
    ] {
        let path = folder.write(name, text);
        let named = json_of(&format!("--requests {path} --requests-format {kind}"));
        assert_eq!(sums(&named), expected, "{name}");
        assert_eq!(named, json_of(&format!("--requests {path}")), "{name}");
    }
    let left_out = simulate(&format!("{SERVER} --requests {}", folder.path("v.json")));
    let text = left_out.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains("1 of 3 requests failed in the benchmark and are left out"), "{text}");
}

#[test]
fn loads_without_a_file_are_replayed() {
    let ten_rounds = json_of("--concurrency 3 --input-len 20 --output-len 6");
    assert_eq!(sums(&ten_rounds), (30, 1, 600, 180));
    assert_eq!(ten_rounds["counters"]["max_running"], 3);
    assert_eq!(sums(&json_of(LOOP)), (4, 1, 32, 16));
    let more_slots_than_requests = "--concurrency 4294967295 --num-requests 4 --input-len 8 --output-len 4";
    assert_eq!(sums(&json_of(more_slots_than_requests)), (4, 1, 32, 16));
    for more in ["", "--burstiness 0.5", "--burstiness 1000"] {
        let json = json_of(&format!("--request-rate 100 --num-requests 50 --input-len 20 --output-len 6 {more}"));
        assert_eq!(sums(&json), (50, 1, 1000, 300), "{more}");
    }
}

#[test]
fn an_engine_whose_first_tokens_were_found_far_off_has_a_wide_interval_of_them() {
    let load = "--concurrency 2 --num-requests 4 --input-len 100 --output-len 11";
    let line = format!("simulate --model llama-3.1-8b --hardware b200 --engine sglang {load} --format json");
    let json = run(&line.split_ascii_whitespace().collect::<Vec<_>>()).json();
    let factor = |metric: &str| json["intervals"][metric]["upper_factor"].as_f64();
    assert!(factor("ttft") > Some(2.0) && factor("ttft") > factor("tpot"), "{}", json["intervals"]);
    assert!(json["intervals"]["e2e"].is_null(), "{}", json["intervals"]);
    let warned =
        |words: &str| json["warnings"].as_array().unwrap().iter().any(|of| of.as_str().unwrap().contains(words));
    assert!(warned("TTFT within its interval in 84 % of 153 closed loops on b200_sxm once "), "{}", json["warnings"]);
    let vllm = json_of(load);
    assert!(vllm["interval_coverage"]["tpot"]["held_pct"].as_f64().unwrap() > 40.0);
}

#[test]
fn the_json_has_every_key_of_the_contract() {
    let folder = Folder::new();
    let path = folder.write("profile.yaml", PROFILE);
    let json = json_of(&format!("--profile {path} --tp 2 --max-num-seqs 64 --no-enable-prefix-caching"));
    let top = [
        "correction",
        "counters",
        "deployment",
        "engine",
        "hardware",
        "interval_coverage",
        "intervals",
        "kv_blocks_from",
        "latency_model",
        "load",
        "load_state",
        "model",
        "notes",
        "serving_engine",
        "stages",
        "warnings",
    ];
    assert_eq!(keys(&json), top);
    assert_eq!(keys(&json["intervals"]), ["e2e", "itl", "tpot", "ttft"]);
    assert_eq!((&json["model"], &json["hardware"]), (&json!("llama-3.1-8b"), &json!("h100_sxm")));
    assert_eq!(json["deployment"]["tensor_parallel_size"], 2);
    assert_eq!(json["engine"]["enable_prefix_caching"], false);
    assert_eq!((&json["engine"]["max_num_seqs"], &json["engine"]["max_model_len"]), (&json!(64), &json!(4096)));
    let stages = json["stages"].as_array().unwrap();
    assert_eq!(stages.iter().map(|of| of["stage"].as_i64().unwrap()).collect::<Vec<_>>(), [-1, 0, 1]);
    for stage in stages {
        for metric in ["ttft_ms", "tpot_ms", "itl_ms", "e2e_ms", "queued_ms"] {
            let of = |key: &str| stage[metric][key].as_f64().unwrap_or_else(|| panic!("{metric}.{key} in {stage}"));
            assert!(of("min") <= of("p50") && of("p50") <= of("p90") && of("p90") <= of("p99"), "{stage}");
            assert!(of("mean") >= of("min") && of("mean") <= of("max") && of("std") >= 0.0, "{stage}");
        }
        let mean = |metric: &str| stage[metric]["mean"].as_f64().unwrap();
        // Five output tokens: four gaps.
        assert!((mean("ttft_ms") + 4.0 * mean("tpot_ms") - mean("e2e_ms")).abs() < 1e-6, "{stage}");
        let rate = stage["finished"].as_f64().unwrap() / stage["duration_s"].as_f64().unwrap();
        assert!((stage["requests_per_s"].as_f64().unwrap() / rate - 1.0).abs() < 1e-12, "{stage}");
    }
    // 20 prompts of 30 tokens, and 4 more steps of each.
    assert_eq!(json["counters"]["prefill_tokens"], 600);
    assert_eq!(json["counters"]["scheduled_tokens"], 680);
}

#[test]
fn the_seed_fixes_every_byte() {
    let folder = Folder::new();
    let profile = folder.write("profile.yaml", PROFILE);
    let csv = folder.write("r.csv", CSV);
    let outcome = |load: &str, seed: u64| {
        let names = ["a.json", "a.csv", "a.trace"];
        let [json, rows, trace] = names.map(|name| folder.path(name));
        let line = format!(
            "{SERVER} {load} --seed {seed} --output-json {json} --save-detailed --output-csv {rows} --trace {trace} --format json"
        );
        let run = simulate(&line);
        assert_eq!(run.code, 0, "{}", run.stderr);
        (run.stdout, names.map(|name| folder.read(name)))
    };
    for load in
        [format!("--profile {profile}"), "--request-rate 50 --num-requests 40 --input-len 9 --output-len 3".into()]
    {
        assert_eq!(outcome(&load, 7), outcome(&load, 7), "{load}");
        let (one, other) = (outcome(&load, 7), outcome(&load, 8));
        assert_ne!(one.0, other.0, "{load}");
        assert!(one.1.iter().zip(&other.1).all(|(one, other)| one != other), "{load}");
    }
    let fixed = format!("--requests {csv}");
    assert_eq!(outcome(&fixed, 7), outcome(&fixed, u64::MAX));
}

#[test]
fn the_files_hold_what_vllm_and_perfetto_read() {
    let folder = Folder::new();
    let load = folder.write("r.csv", CSV);
    let [bench, rows, trace] = ["bench.json", "rows.csv", "trace.json"].map(|name| folder.path(name));
    folder.write("rows.csv", "request,stage,outcome,prompt_tokens,of,an,earlier,run\n");
    let line = format!(
        "{SERVER} --requests {load} --output-json {bench} --save-detailed --output-csv {rows} --trace {trace} --format json"
    );
    let stdout = simulate(&line).json();
    assert_eq!(folder.names(), ["bench.json", "r.csv", "rows.csv", "trace.json"], "no temporary file is left");

    let bench: Value = serde_json::from_str(&folder.read("bench.json")).unwrap();
    for key in ["duration", "request_throughput", "output_throughput", "total_token_throughput"] {
        assert!(bench[key].as_f64().unwrap() > 0.0, "{key}");
    }
    for metric in ["ttft", "tpot", "itl", "e2el"] {
        for statistic in ["mean", "median", "std", "p90", "p95", "p99"] {
            assert!(bench[format!("{statistic}_{metric}_ms")].is_number(), "{statistic} {metric}");
        }
    }
    assert_eq!((&bench["completed"], &bench["failed"], &bench["num_prompts"]), (&json!(3), &json!(0), &json!(3)));
    assert_eq!((&bench["input_lens"], &bench["output_lens"]), (&json!([100, 200, 300]), &json!([3, 5, 7])));
    assert_eq!(bench["start_times"], json!([0.0, 0.5, 2.0]));
    let gaps: Vec<usize> = bench["itls"].as_array().unwrap().iter().map(|of| of.as_array().unwrap().len()).collect();
    assert_eq!(gaps, [2, 4, 6]);
    assert_eq!(bench["mean_ttft_ms"], stdout["stages"][0]["ttft_ms"]["mean"]);

    let csv = folder.read("rows.csv");
    let lines: Vec<&str> = csv.lines().collect();
    assert_eq!(lines.len(), 1 + 3);
    assert!(lines[0].starts_with("request,stage,outcome,prompt_tokens,output_tokens,cached_tokens"), "{csv}");
    assert!(lines[3].starts_with("2,0,finished,300,7,0,0,2.000000000,"), "{csv}");

    let trace: Value = serde_json::from_str(&folder.read("trace.json")).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let steps = events.iter().filter(|event| event["ph"] == "X").count() as u64;
    assert_eq!(Some(steps), stdout["counters"]["steps"].as_u64());
    // A bench result is itself a load.
    assert_eq!(sums(&json_of(&format!("--requests {}", folder.path("bench.json")))), (3, 1, 600, 15));
}

#[test]
fn the_memory_equation_is_printed_on_request() {
    let line = format!("{SERVER} {LOOP} --print-kv-capacity");
    let table = simulate(&line);
    let blocks = json_of(LOOP)["engine"]["num_gpu_blocks"].as_u64().unwrap();
    for text in ["device memory", "weights", "activations of the profiling run", &format!("= {blocks} blocks")] {
        assert!(table.stdout.contains(text), "{text}: {}", table.stdout);
    }
    assert!(!simulate(&format!("{SERVER} {LOOP}")).stdout.contains("device memory"));
    let json = simulate(&format!("{line} --format json"));
    assert_eq!(json.json()["kv_capacity"]["num_gpu_blocks"].as_u64(), Some(blocks), "{}", json.stdout);
    let given = simulate(&format!("{line} --num-gpu-blocks-override 300"));
    assert!(given.stdout.contains("not used: num_gpu_blocks = 300 was given"), "{}", given.stdout);
}

#[test]
fn requests_that_are_too_long_are_counted_and_the_others_run() {
    let folder = Folder::new();
    let rows = "arrival,input_len,output_len\n0,4000,96\n0,4000,97\n0,10000000,10000000\n1,1,1\n";
    let path = folder.write("r.csv", rows);
    let out = folder.path("rows.csv");
    let json = json_of(&format!("--requests {path} --output-csv {out}"));
    let run = &json["stages"][0];
    assert_eq!((&run["requests"], &run["finished"], &run["rejected"]), (&json!(4), &json!(2), &json!(2)));
    assert!(
        json["warnings"]
            .to_string()
            .contains("2 of 4 requests rejected: prompt and output are longer than max_model_len = 4096")
    );
    let outcomes: Vec<String> =
        folder.read("rows.csv").lines().skip(1).map(|row| row.split(',').nth(2).unwrap().to_owned()).collect();
    assert_eq!(outcomes, ["finished", "rejected", "rejected", "finished"]);

    for load in ["--concurrency 3 --num-requests 50", "--request-rate 5 --num-requests 50"] {
        let json = json_of(&format!("{load} --input-len 4096 --output-len 1"));
        assert_eq!((&json["stages"][0]["rejected"], &json["stages"][0]["ttft_ms"]), (&json!(50), &Value::Null));
        let warnings = json["warnings"].to_string();
        assert!(
            warnings.contains("50 of 50 requests rejected") && warnings.contains("nothing to measure"),
            "{warnings}"
        );
        let table = simulate(&format!("{SERVER} {load} --input-len 4096 --output-len 1"));
        assert!(table.code == 0 && table.stdout.contains("nothing to measure"), "{}", table.stderr);
    }
}

/// A column of the csv that a run writes, by request.
fn column(folder: &Folder, line: &str, name: &str) -> Vec<f64> {
    let out = folder.path("rows.csv");
    let run = simulate(&format!("{SERVER} {line} --output-csv {out}"));
    assert_eq!(run.code, 0, "{}", run.stderr);
    let text = folder.read("rows.csv");
    let mut lines = text.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let at = lines.next().unwrap().iter().position(|column| *column == name).unwrap();
    lines.map(|row| row[at].parse().unwrap()).collect()
}

#[test]
fn priorities_are_lowest_first_up_to_their_limits() {
    let folder = Folder::new();
    let rows = "arrival,input_len,output_len,priority\n0,8,4,2147483647\n0,8,4,0\n0,8,4,-2147483648\n";
    let line = format!("--requests {} --max-num-seqs 1", folder.write("r.csv", rows));
    let order = |line: &str| {
        let first = column(&folder, line, "first_token_s");
        let mut order: Vec<usize> = (0..first.len()).collect();
        order.sort_by(|one, other| first[*one].total_cmp(&first[*other]));
        order
    };
    assert_eq!(order(&format!("{line} --scheduling-policy priority")), [2, 1, 0]);
    assert_eq!(order(&line), [0, 1, 2]);
}

#[test]
fn shared_prefixes_are_cached_in_whole_blocks() {
    let folder = Folder::new();
    let rows = "arrival,input_len,output_len,prefix_group,prefix_len\n0,64,4,a,40\n1,64,4,a,40\n2,40,4,a,40\n3,64,4,b,64\n4,64,4,b,64\n";
    let line = format!("--requests {}", folder.write("r.csv", rows));
    let cached = |more: &str| column(&folder, &format!("{line} {more}"), "cached_tokens");
    // Of 40 tokens two blocks are full; of 64 all four are, but the last token has to be computed.
    assert_eq!(cached(""), [0.0, 32.0, 32.0, 0.0, 48.0]);
    assert_eq!(cached("--block-size 1"), [0.0, 40.0, 39.0, 0.0, 63.0]);
    assert_eq!(cached("--block-size 64"), [0.0; 5]);
    assert_eq!(cached("--no-enable-prefix-caching"), [0.0; 5]);
}

#[test]
fn arguments_at_their_limits_run() {
    for more in [
        "--block-size 1",
        "--block-size 4096",
        "--max-num-seqs 1 --max-num-batched-tokens 1 --block-size 1",
        "--max-num-seqs 4294967295",
        "--max-num-batched-tokens 4294967295 --num-gpu-blocks-override 1000",
        "--long-prefill-token-threshold 1",
        "--scheduler-reserve-full-isl",
        "--scheduler-reserve-full-isl --no-scheduler-reserve-full-isl",
        "--long-prefill-token-threshold 4294967295",
        "--num-gpu-blocks-override 257",
        "--pipeline-parallel-size 8",
        "--pipeline-parallel-size 32 --no-async-scheduling",
        "--data-parallel-size 8",
        "--enforce-eager",
        "--kv-cache-dtype fp8",
        "--no-async-scheduling --no-enable-chunked-prefill --max-num-batched-tokens 4096",
        "--gpu-memory-utilization 1",
        "--cpu-offload-gb 13",
    ] {
        assert_eq!(sums(&json_of(&format!("{LOOP} {more}"))), (4, 1, 32, 16), "{more}");
    }
    // One of eight ranks gets one of the four requests.
    let one_of_eight = json_of(&format!("{LOOP} --data-parallel-size 8 --kv-metrics"));
    assert_eq!(sums(&one_of_eight), (1, 1, 8, 4));
    let rate = |of: &serde_json::Value| of["output_tokens_per_s"].as_f64().unwrap();
    assert!((rate(&one_of_eight["all_replicas"]) / rate(&one_of_eight["stages"][0]) - 8.0).abs() < 1e-12);
    assert_eq!(json_of(LOOP)["all_replicas"], serde_json::Value::Null);
    let refused = json_of(&format!("{LOOP} --block-size 7 --max-num-seqs 9 --max-num-batched-tokens 8"));
    let said = refused["warnings"].to_string();
    assert!(said.contains("vLLM refuses block_size = 7"), "{said}");
    assert!(said.contains("vLLM refuses max_num_batched_tokens = 8 that is less than max_num_seqs = 9"), "{said}");
    let tight = format!("--model llama-3.1-8b --hardware h100 {LOOP} --max-model-len 12 --num-gpu-blocks-override 2");
    let json = simulate(&format!("{tight} --format json")).json();
    assert_eq!((sums(&json), &json["counters"]["max_running"]), ((4, 1, 32, 16), &json!(1)));
    // One token a step: 8 of the prompt and 3 that follow the first output, of 4 requests.
    let json = json_of(&format!("{LOOP} --max-num-batched-tokens 1"));
    assert_eq!((&json["counters"]["steps"], &json["counters"]["scheduled_tokens"]), (&json!(44), &json!(44)));
}

#[test]
fn every_built_in_model_runs_on_gpus_enough() {
    for model in ridgepoint::model::builtin_names() {
        let runs = [(1, 1), (2, 1), (4, 1), (8, 1), (16, 1), (8, 2), (8, 4)].into_iter().any(|(tensor, stages)| {
            let server = format!("--model {model} --hardware h100 --tp {tensor} --pp {stages} --max-model-len 2048");
            let load = "--concurrency 4 --num-requests 8 --input-len 100 --output-len 5 --format json";
            let run = simulate(&format!("{server} {load}"));
            let says_why = ["would do", "can be"].iter().any(|way| run.stderr.contains(way));
            assert!(says_why || run.code == 0, "{model}: {}", run.stderr);
            run.code == 0 && sums(&run.json()) == (8, 1, 800, 40)
        });
        assert!(runs, "{model}");
    }
}

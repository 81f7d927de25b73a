//! `ridgepoint plan`: the cheapest deployment that holds, launch lines that read back, and messages about bad input.

use crate::cli_support;

use cli_support::{Folder, run};
use serde_json::Value;

/// Qwen3-8B on H100 with limits that a server holds at some rate.
const ASKED: [&str; 14] = [
    "plan",
    "--model",
    "qwen3-8b",
    "--hardware",
    "h100",
    "--server",
    "tensor_parallel_size=1,2",
    "--server",
    "max_num_batched_tokens=2048",
    "--input-len=512",
    "--output-len=64",
    "--limit",
    "ttft_p95_ms=400",
    "--limit=tpot_mean_ms=30",
];

fn plan(more: &[&str]) -> Value {
    run(&[&ASKED[..], more, &["--format", "json"]].concat()).json()
}

fn text<'a>(of: &'a Value, key: &str) -> &'a str {
    of[key].as_str().unwrap_or_else(|| panic!("no {key} in {of}"))
}

#[test]
fn more_load_takes_more_replicas_and_each_command_is_the_server_that_was_replayed() {
    let few = plan(&["--request-rate=10", "--price-per-gpu-hour=2"]);
    let best = &few["deployments"][0];
    assert_eq!((&best["num_gpus"], &best["replicas"], &best["cost_per_hour"]), (&1.into(), &1.into(), &2.0.into()));
    assert_eq!(best["router"], Value::Null);
    assert!(best["margin_pct"].as_f64() > Some(0.0) && best["highest_load"].as_f64() > Some(10.0), "{best}");
    let command = text(best, "serve_command");
    assert_eq!(command, "vllm serve Qwen/Qwen3-8B --max-num-batched-tokens 2048 --tensor-parallel-size 1");
    // Beyond what one does, by its own figure.
    let rate = best["highest_load"].as_f64().unwrap() * 1.3;
    let more = plan(&[&format!("--request-rate={rate}"), "--price-per-gpu-hour=2", "--router=least-requests"]);
    let best = &more["deployments"][0];
    assert_eq!((&best["num_gpus"], &best["cost_per_hour"]), (&2.into(), &4.0.into()));
    // Replayed by hand with another seed, it holds within 3 %.
    let replicas = best["replicas"].to_string();
    let own = format!(
        "simulate --hardware h100 --request-rate {rate} --num-requests 20000 --input-len 512 --output-len 64 --seed 77 --format json --replicas \
         {replicas} --router least-requests --serve-command"
    );
    let own: Vec<&str> = own.split(' ').chain([text(best, "serve_command")]).collect();
    let own = if best["replicas"] == 1 {
        own.into_iter().filter(|word| !["--replicas", "1", "--router", "least-requests"].contains(word)).collect()
    } else {
        own
    };
    let replayed = run(&own).json();
    let stage = &replayed["stages"][0];
    assert!(stage["ttft_ms"]["p95"].as_f64() < Some(1.03 * 400.0), "{}", stage["ttft_ms"]);
    assert!(stage["tpot_ms"]["mean"].as_f64() < Some(1.03 * 30.0), "{}", stage["tpot_ms"]);
    // Growth counts as load.
    let grown = plan(&["--request-rate=10", "--growth=0.5"]);
    assert_eq!(grown["load"], 15.0);
    assert_eq!(grown["deployments"][0]["cost_per_hour"], Value::Null);
}

#[test]
fn without_enough_gpus_the_nearest_miss_says_what_would_help() {
    let answer = plan(&["--request-rate=400", "--gpus=2"]);
    assert_eq!(answer["deployments"].as_array().map(Vec::len), Some(0));
    let miss = &answer["nearest_miss"];
    assert_eq!((&miss["num_gpus"], &miss["hardware"]), (&2.into(), &"h100_sxm".into()));
    assert!(miss["miss_pct"].as_f64() > Some(0.0) && text(miss, "limits_broken").len() > 5, "{miss}");
    assert!(miss["help"][0].as_str().is_some_and(|help| help.starts_with("more GPUs: ")), "{miss}");
    let left_out = answer["left_out"].as_array().unwrap();
    assert!(left_out.iter().any(|of| text(of, "reason").contains("which are not there")), "{left_out:?}");
    // A limit that no server meets.
    let answer = plan(&["--request-rate=4", "--limit=ttft_p50_ms=1"]);
    assert!(text(&answer["left_out"][0], "reason").starts_with("no number of replicas holds"), "{answer}");
}

#[test]
fn other_engines_are_started_by_their_own_flags() {
    let asked = [
        "plan",
        "--model=qwen3-8b",
        "--hardware=h100",
        "--server=engine=sglang,trtllm",
        "--server=tp_size=1",
        "--request-rate=8",
    ];
    let more = ["--input-len=512", "--output-len=64", "--limit=tpot_mean_ms=40", "--format=json"];
    let folder = Folder::new();
    let answer = run(&[&asked[..], &more, &["--write", &folder.path(".")]].concat()).json();
    assert_eq!(folder.names(), ["deployment.yaml", "serve.sh"], "llm-d's chart starts vLLM");
    let commands: Vec<&str> =
        answer["deployments"].as_array().unwrap().iter().map(|of| text(of, "serve_command")).collect();
    let sglang = "python -m sglang.launch_server --model-path Qwen/Qwen3-8B --tp-size 1";
    assert!(commands.contains(&sglang), "{commands:?}");
    assert!(commands.contains(&"trtllm-serve Qwen/Qwen3-8B --tp_size 1"), "{commands:?}");
    let differs = |of: &&Value| of["metrics"]["warnings"].as_str().is_some_and(|text| text.contains("launch line"));
    assert!(!answer["deployments"].as_array().unwrap().iter().any(|of| differs(&of)), "{answer}");
}

#[test]
fn pools_apart_hold_what_long_prompts_beside_decodes_break() {
    let asked = [
        "plan",
        "--model=qwen3-8b",
        "--hardware=h100",
        "--gpus=4",
        "--server=tensor_parallel_size=1",
        "--input-len=4000",
    ];
    let more = [
        "--server=max_num_batched_tokens=8192",
        "--output-len=100",
        "--limit=itl_p99_ms=20",
        "--request-rate=8",
        "--format=json",
    ];
    let answer = |pools: &str| run(&[&asked[..], &more, &["--pools", pools]].concat()).json();
    let together = answer("together");
    assert!(
        together["deployments"].as_array().is_some_and(Vec::is_empty),
        "prompts between decodes take longer than 20 ms: {together}"
    );
    let apart = answer("together,apart");
    let best = &apart["deployments"][0];
    assert!(best["prefill_replicas"].as_u64() > Some(0) && best["router"] == "round-robin", "{best}");
    let replicas = best["prefill_replicas"].as_u64().unwrap() + best["replicas"].as_u64().unwrap();
    assert_eq!(best["num_gpus"], replicas);
    assert!(text(best, "prefill_command").contains("NixlConnector"), "{best}");
    assert_eq!(best["metrics"]["ttft_lower_ms"], Value::Null);
    assert!(text(&best["metrics"], "warnings").contains("was not measured"), "{best}");
}

#[test]
fn a_plan_of_a_file_is_written_as_files_that_start_it() {
    let folder = Folder::new();
    let file = folder.write(
        "plan.toml",
        "[server]\nmodel = \"qwen3-8b\"\nhardware = [\"h100\", \"h200\"]\ntensor_parallel_size = 1\nmax_num_batched_tokens = 2048\n\
         [load]\nconcurrency = 8\ninput_len = 512\noutput_len = 64\n[slo]\ntpot_mean_ms = 30\n\
         [plan]\ngpus = { h100 = 2, h200 = 1 }\nprice_per_gpu_hour = { h100 = 3, h200 = 2 }\n",
    );
    let answer = run(&["plan", &file, "--write", &folder.path("."), "--format", "json"]).json();
    let best = &answer["deployments"][0];
    assert_eq!(
        (&best["hardware"], &answer["load_is_users"], &answer["load"]),
        (&"h200_sxm".into(), &true.into(), &8.0.into())
    );
    let script = folder.read("serve.sh");
    assert!(script.ends_with(&format!("exec {} --port 8000\n", text(best, "serve_command"))), "{script}");
    let manifest = folder.path("deployment.yaml");
    let read = run(&[
        "simulate",
        "--config",
        &manifest,
        "--hardware",
        "h200",
        "--concurrency=1",
        "--input-len=9",
        "--output-len=2",
        "--format=json",
    ]);
    assert_eq!(read.json()["deployment"]["max_num_batched_tokens"], 2048);
    assert!(folder.read("llm-d-values.yaml").contains("replicas: 1"));
}

#[test]
fn bad_plans_are_refused_by_their_key() {
    let refused = |more: &[&str], expected: &str| {
        run(&[&ASKED[..], more].concat()).fails(1, &[expected]);
    };
    refused(&[], "give request_rate, concurrency (users), or requests");
    refused(&["--request-rate=4", "--price-per-gpu-hour=-1"], "plan.price_per_gpu_hour = -1 must be");
    refused(&["--request-rate=4", "--gpus=0"], "plan.gpus = 0 must be");
    refused(&["--request-rate=4", "--gpus=h200=4"], "names h200_sxm, which server.hardware does not have");
    refused(&["--request-rate=4", "--growth=-0.5"], "plan.growth = -0.5 must be");
    refused(&["--request-rate=4", "--replicas=0"], "replicas.count = 0 must be");
    refused(&["--request-rate=4", "--router=nginx"], "replicas.router = \"nginx\" must be");
    refused(&["--request-rate=4", "--limit=ttft_p42_ms=3"], "ttft_p42_ms");
}

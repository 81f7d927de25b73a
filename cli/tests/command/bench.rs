//! `ridgepoint evaluate bench` and `ridgepoint fit --bench`: results of a load generator on a server whose costs are known.

use crate::cli_support;

use cli_support::{Folder, Run, run};
use ridgepoint::Correction;
use ridgepoint::correction::Term;
use serde_json::{Value, json};

const SERVE: &str = "vllm serve meta-llama/Llama-3.1-8B --max-model-len 8192";

/// A server that takes 1.4 times as long for decodes, 1.3 times for prompts and 2 ms more a step than its kernels.
fn planted(folder: &Folder) -> String {
    let mut correction = Correction::neutral();
    let [decode, prefill] = [1.4, 1.3];
    for (term, factor) in [
        (Term::Projections, decode),
        (Term::AttentionDecode, decode),
        (Term::SmallKernels, decode),
        (Term::AttentionPrefill, prefill),
        (Term::ProjectionsWithChunks, prefill),
        (Term::SmallKernelsWithChunks, prefill),
    ] {
        correction.coefficients[term.index()] = factor;
    }
    correction.coefficients[Term::Steps.index()] = 2000.0;
    correction.source.hardware = vec!["h100_sxm".to_owned()];
    folder.write("planted.toml", correction.to_toml_string().unwrap())
}

/// The result of a load on the planted server.
fn measured(folder: &Folder, name: &str, load: &str) -> String {
    let (out, planted) = (folder.path(name), folder.path("planted.toml"));
    let mut args = vec!["simulate", "--serve-command", SERVE, "--hardware", "h100", "--correction", &planted];
    args.extend(["--output-json", &out, "--format", "json"]);
    args.extend(load.split_ascii_whitespace());
    run(&args).json();
    out
}

fn with_server(args: &[&str], rest: &[&str]) -> Run {
    run(&[args, &["--serve-command", SERVE, "--hardware", "h100"], rest].concat())
}

fn errors(judged: &Value) -> Vec<(String, f64)> {
    let rows = judged["results"][0]["rows"].as_array().unwrap();
    rows.iter().map(|row| (row["figure"].as_str().unwrap().to_owned(), row["error_pct"].as_f64().unwrap())).collect()
}

#[test]
fn a_fit_to_one_result_predicts_other_loads_of_the_server() {
    let folder = Folder::new();
    planted(&folder);
    let seen = measured(&folder, "seen.json", "--concurrency 48 --num-requests 300 --input-len 900 --output-len 120");
    let other = measured(&folder, "other.json", "--concurrency 12 --num-requests 120 --input-len 2500 --output-len 60");
    let mine = folder.path("mine.toml");
    let fitted =
        with_server(&["fit", "--bench", &seen], &["--prior", "none", "--out", &mine, "--format", "json"]).json();
    let verdict = &fitted["verdict"];
    assert!(verdict["before_pct"].as_f64() > Some(15.0) && verdict["after_pct"].as_f64() < Some(3.0), "{verdict}");
    let names: Vec<&str> =
        fitted["parameters"].as_array().unwrap().iter().map(|of| of["name"].as_str().unwrap()).collect();
    assert_eq!(
        names,
        ["decode", "prefill", "step_us", "request_us", "prefill_request_us", "queueing_us", "front_end_us"]
    );
    let judge = |correction: &str| {
        let args = ["--correction", correction, "--format", "json"];
        errors(&with_server(&["evaluate", "bench", &other], &args).json())
    };
    let (before, after) = (judge("none"), judge(&mine));
    for figure in ["total_tokens", "ttft_mean", "tpot_mean"] {
        let of = |errors: &[(String, f64)]| errors.iter().find(|(name, _)| name == figure).unwrap().1.abs();
        assert!(of(&before) > 12.0 && of(&after) < 10.0, "{figure}: {} then {}", of(&before), of(&after));
    }
}

#[test]
fn the_first_line_is_the_verdict_and_a_printed_table_is_a_result() {
    let folder = Folder::new();
    planted(&folder);
    let file = measured(&folder, "seen.json", "--concurrency 16 --num-requests 160 --input-len 500 --output-len 100");
    let of: Value = serde_json::from_str(&folder.read("seen.json")).unwrap();
    let number = |key: &str| of[key].as_f64().unwrap();
    let text = format!(
        "Maximum request concurrency: 16\n==== Serving Benchmark Result ====\nSuccessful requests: {}\nBenchmark duration (s): {}\n\
         Total input tokens: {}\nTotal generated tokens: {}\nMean TTFT (ms): {}\nMean TPOT (ms): {}\n====\n",
        number("completed"),
        number("duration"),
        number("total_input_tokens"),
        number("total_output_tokens"),
        number("mean_ttft_ms"),
        number("mean_tpot_ms")
    );
    let printed = folder.write("printed.txt", text);
    let judged =
        |path: &str| with_server(&["evaluate", "bench", path], &["--correction", "none", "--format", "json"]).json();
    let (of_file, of_text) = (judged(&file), judged(&printed));
    for (figure, error) in errors(&of_text) {
        let same = errors(&of_file).into_iter().find(|(name, _)| *name == figure).unwrap().1;
        assert!((same - error).abs() < 0.1, "{figure}: {error} of the text, {same} of the file");
    }
    let mine = folder.path("mine.toml");
    let fitted = with_server(&["fit", "--bench", &printed], &["--prior", "none", "--out", &mine]);
    assert_eq!(fitted.code, 0, "{}", fitted.stderr);
    assert!(fitted.stdout.starts_with("Use it for this server: fitted figures are"), "{}", fitted.stdout);
    assert!(fitted.stdout.contains("not identified by these figures"), "{}", fitted.stdout);
}

fn result(change: &[(&str, Value)]) -> String {
    let mut result = json!({
        "backend": "vllm", "num_prompts": 100, "completed": 100, "duration": 20.0, "max_concurrency": 10,
        "total_input_tokens": 50_000, "total_output_tokens": 10_000, "mean_ttft_ms": 50.0, "mean_tpot_ms": 19.0,
    });
    change.iter().for_each(|(key, value)| result[*key] = value.clone());
    result.to_string()
}

#[test]
fn results_that_cannot_be_of_the_server_are_refused() {
    let folder = Folder::new();
    let mine = folder.path("mine.toml");
    let refused = |change: &[(&str, Value)], said: &[&str]| {
        let path = folder.write("result.json", result(change));
        with_server(&["evaluate", "bench", &path], &[]).fails(1, said);
        with_server(&["fit", "--bench", &path], &["--out", &mine]).fails(1, said);
        assert!(!folder.names().contains(&"mine.toml".to_owned()));
    };
    refused(&[("model_id", json!("Qwen/Qwen3-32B"))], &["Qwen3-32B", "llama-3.1-8b"]);
    refused(&[("mean_e2el_ms", json!(20.0))], &["e2e_mean = 20 ms is shorter than ttft_mean"]);
    refused(&[("mean_ttft_ms", json!(30_000.0))], &["ttft_mean = 30000 ms is longer than the whole run"]);
    refused(&[("mean_tpot_ms", json!(60.0))], &["requests were in flight on average", "max_concurrency is 10"]);
    refused(&[("total_output_tokens_retokenized", json!(5000))], &["another model's tokenizer"]);
    refused(&[("completed", json!(1e12))], &["completed = 1000000000000 must be at most 1000000"]);
    refused(&[("duration", json!(0))], &["duration is missing or not above 0"]);
    refused(&[("mean_ttft_ms", Value::Null), ("mean_tpot_ms", Value::Null)], &["neither TTFT nor TPOT nor E2E"]);
    let path = folder.write("notes.txt", "Nothing of the kind: 5\n");
    with_server(&["evaluate", "bench", &path], &[]).fails(1, &["notes.txt", "holds no result of a load generator"]);
    // 100 requests in 2 s that decode for 1.9 s each are 95 at once; the server runs 64.
    let many = [("duration", json!(2.0)), ("max_concurrency", json!(200)), ("mean_e2el_ms", json!(1950.0))];
    let path = folder.write("many.json", result(&many));
    let args = ["--max-num-seqs", "64"];
    with_server(&["evaluate", "bench", &path], &args).fails(1, &["95 requests decoding at once", "at most 64"]);
}

#[test]
fn arguments_that_do_not_go_together_are_wrong_usage() {
    run(&["fit", "--serving", "a", "--serve-command", SERVE, "--out", "x.toml"]).fails(2, &["--serve-command"]);
    run(&["fit", "--bench", "a.json", "--out", "x.toml"]).fails(2, &["--bench needs the server", "--serve-command"]);
    run(&["fit", "--bench", "a.json", "--serving", "b", "--out", "x.toml"]).fails(2, &["--serving"]);
}

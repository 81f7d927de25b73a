//! `ridgepoint fit --steps` is judged by what clients see: later requests, replayed on the server that the capture shows or that is named.

use serde_json::Value;

use crate::cli_support::{Folder, Run, run};
use crate::training::{SERVER, planted};

fn fit(folder: &Folder, inputs: &str, more: &[&str]) -> Run {
    let (inputs, out) = (folder.path(inputs), folder.path("my.toml"));
    let args = ["fit", "--steps", &inputs, "--level", "model", "--model", "llama-3.1-8b", "--hardware", "h100"];
    let rest = ["--split", "first60", "--allow-worse", "--force", "--out", &out];
    run(&[&args[..], &rest, more].concat())
}

fn kind<'a>(report: &'a Value, name: &str) -> Option<&'a Value> {
    report["verdict"]["kinds"].as_array().unwrap().iter().find(|of| of["kind"] == name)
}

fn mean_pct(of: &Value, by: &str) -> f64 {
    of[by]["mean_pct"].as_f64().unwrap_or_else(|| panic!("no {by} in {of}"))
}

const CAPTURED: [&str; 6] = ["--tp", "1", "--max-num-seqs", "24", "--format", "json"];

#[test]
fn later_requests_judge_a_fit_beside_simpler_predictions() {
    let folder = planted();
    let fitted = fit(&folder, "trace.json", &CAPTURED);
    assert_eq!(fitted.code, 0, "{}", fitted.stderr);
    let report = fitted.json();
    for name in ["ttft", "tpot", "e2e"] {
        let of = kind(&report, name).unwrap_or_else(|| panic!("no {name} in {report}"));
        // Arrivals turn from fast to slow: those after 60 % of the steps are fewer than 40 % of the requests.
        assert!((80..180).contains(&of["rows"].as_u64().unwrap()), "{of}");
        assert!(mean_pct(of, "correction").abs() < 4.0, "{of}");
        assert!(mean_pct(of, "trees").abs() < 12.0 && mean_pct(of, "line").abs() < 12.0, "{of}");
        assert!(mean_pct(of, "operators").abs() > 15.0, "{of}");
    }
    let table = fit(&folder, "trace.json", &CAPTURED[..4]).stdout;
    let first: String = table.split("\n\n").next().unwrap().replace('\n', " ");
    assert!(first.contains("of later requests its mean TTFT is ") && first.contains("its mean E2E "), "{first}");
}

#[test]
fn ttft_tells_the_delay_before_the_queue_where_nothing_else_does() {
    let folder = planted();
    let tables = folder.path("tables");
    assert_eq!(run(&["ingest", &folder.path("trace.json"), "--out", &tables]).code, 0);
    let text = folder.read("tables/requests.csv");
    let unknown = ["handed_over_ns", "queued_ns", "scheduled_ns", "first_token_ns", "finished_ns"];
    let steps = ["scheduled_step", "first_token_step", "finished_step"];
    let header: Vec<&str> = text.lines().next().unwrap().split(',').collect();
    let blanked = text.lines().enumerate().map(|(line, row)| {
        let cells = row.split(',').zip(&header);
        let of_client = |(cell, column): (&str, &&str)| {
            let is_known = line == 0 || !(unknown.contains(column) || steps.contains(column));
            if is_known { cell.to_owned() } else { String::new() }
        };
        cells.map(of_client).collect::<Vec<_>>().join(",") + "\n"
    });
    folder.write("tables/requests.csv", blanked.collect::<String>());
    let fitted = fit(&folder, "tables", &CAPTURED);
    assert_eq!(fitted.code, 0, "{}", fitted.stderr);
    let report = fitted.json();
    let value = |name: &str| {
        let all = report["fit"]["parameters"].as_array().unwrap();
        all.iter().find(|of| of["name"] == name).and_then(|of| of["value"].as_f64()).unwrap()
    };
    // Planted: 3 ms before the queue and 1 ms behind the engine. Clients see the sum.
    let sum_us = value("queueing_us") + 300.0 * value("queueing_us_per_token") + value("output_token_us");
    assert!((sum_us - 4000.0).abs() < 800.0, "{sum_us}");
    assert!(report["fit"]["notes"].to_string().contains("is not separable from it"), "{}", report["fit"]["notes"]);
    assert!(mean_pct(kind(&report, "ttft").unwrap(), "correction").abs() < 5.0);
}

#[test]
fn a_server_that_did_not_write_the_capture_is_named() {
    let folder = planted();
    let few = fit(&folder, "trace.json", &["--tp", "1", "--max-num-seqs", "8", "--format", "json"]);
    let report = few.json();
    let remarks = report["verdict"]["remarks"].to_string();
    assert!(remarks.contains("22 requests run at a time in the capture, and max_num_seqs = 8"), "{remarks}");
    assert!(kind(&report, "ttft").is_none() && kind(&report, "decodes").is_some());

    let line = "vllm serve meta-llama/Llama-3.1-8B --max-num-seqs 24 --max-model-len 4096 --no-async-scheduling";
    let named = fit(&folder, "trace.json", &["--serve-command", line, "--format", "json"]);
    assert_eq!(named.code, 0, "{}", named.stderr);
    assert!(mean_pct(kind(&named.json(), "e2e").unwrap(), "correction").abs() < 4.0);

    std::fs::remove_file(folder.path("my.toml")).unwrap();
    let other = "vllm serve Qwen/Qwen3-8B --max-num-seqs 24 --max-model-len 4096";
    let out = folder.path("my.toml");
    let args = ["fit", "--steps", &folder.path("trace.json"), "--serve-command", other, "--hardware", "h100"];
    let refused = run(&[&args[..], &["--out", &out]].concat());
    refused.fails(1, &["is of the model", "llama-3.1-8b", "the server has qwen3-8b"]);
    assert!(!folder.names().contains(&"my.toml".to_owned()));
    assert!(SERVER.contains(&"llama-3.1-8b"));
}

#[test]
fn a_front_end_that_requests_share_is_found() {
    let folder = Folder::new();
    let mut planted = ridgepoint::Correction::neutral();
    planted.host.front_end_us = 4000.0;
    planted.host.queueing_us = 2500.0;
    let correction = folder.write("planted.toml", planted.to_toml_string().unwrap());
    // Bursts of one to six, 20 µs apart, every 150 ms.
    let bursts = (1..=6).cycle().zip(0..).flat_map(|(size, burst)| (0..size).map(move |at| (burst, at))).take(400);
    let rows = bursts.enumerate().map(|(n, (burst, at))| {
        format!("{},{},{}\n", 150.0 * f64::from(burst) + 0.02 * f64::from(at), 60 + 97 * n % 1201, 10 + 31 * n % 83)
    });
    let list = folder.write("requests.csv", "arrival_ms,input_len,output_len\n".to_owned() + &rows.collect::<String>());
    let trace = folder.path("trace.json");
    let args = ["simulate", "--requests", &list, "--correction", &correction, "--output-otlp", &trace];
    assert_eq!(run(&[&args[..], &SERVER].concat()).code, 0);
    let fitted = fit(&folder, "trace.json", &CAPTURED);
    assert_eq!(fitted.code, 0, "{}", fitted.stderr);
    let report = fitted.json();
    let parameters = report["fit"]["parameters"].as_array().unwrap();
    let of = parameters.iter().find(|of| of["name"] == "front_end_us").unwrap();
    let off = of["value"].as_f64().unwrap() - 4000.0;
    assert!(off.abs() < 3.0 * of["sd"].as_f64().unwrap().max(40.0) && of["identified"] == true, "{of}");
    assert!(folder.read("my.toml").contains("front_end_us = "));
    assert!(mean_pct(kind(&report, "ttft").unwrap(), "correction").abs() < 4.0);
}

#[test]
fn token_times_alone_tell_the_delay_before_the_queue() {
    let folder = planted();
    let trace = folder.path("tokens.jsonl");
    let (list, line) = (folder.path("requests.csv"), folder.path("planted.toml"));
    let args = ["simulate", "--requests", &list, "--latency", &line, "--output-tokens", &trace];
    assert_eq!(run(&[&args[..], &SERVER].concat()).code, 0);
    let fitted = fit(&folder, "tokens.jsonl", &CAPTURED);
    assert_eq!(fitted.code, 0, "{}", fitted.stderr);
    let report = fitted.json();
    let parameters = report["fit"]["parameters"].as_array().unwrap();
    let of = |name: &str| parameters.iter().find(|of| of["name"] == name).unwrap();
    let seen_us = of("queueing_us")["value"].as_f64().unwrap() + of("output_token_us")["value"].as_f64().unwrap();
    // What clients see: 3 ms before the queue and 1 ms behind the engine.
    let sd_us = of("queueing_us")["sd"].as_f64().unwrap();
    assert!((seen_us - 4000.0).abs() < 2.0 * sd_us && of("output_token_us")["identified"] == false, "{parameters:?}");
    assert!(mean_pct(kind(&report, "e2e").unwrap(), "correction").abs() < 5.0, "{}", report["verdict"]);
}

//! `ridgepoint evaluate capture`: what `simulate` writes is judged without an error, and one's own captures request by request.

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};

use crate::cli_support::{Folder, run};

const SERVER: [&str; 8] =
    ["--model", "llama-3.1-8b", "--hardware", "h100", "--max-model-len", "2048", "--max-num-seqs", "24"];

fn with_server<'a>(args: &[&'a str]) -> Vec<&'a str> {
    args.iter().copied().chain(SERVER).collect()
}

/// 120 prompts, one every 2 ms, in three groups that share a prefix. On a server with few KV blocks they wait and are preempted.
fn requests() -> String {
    (0..120).fold("arrival_ms,input_len,output_len,prefix_group,prefix_len\n".to_owned(), |rows, at| {
        rows + &format!(
            "{},{},{},g{},{}\n",
            2 * at,
            200 + 13 * (at % 17),
            20 + 7 * (at % 11),
            at % 3,
            64 + 16 * (at % 3)
        )
    })
}

/// Converts a file of the folder into tables and returns the report.
fn ingested(folder: &Folder, file: &str) -> String {
    let run = run(&["ingest", &folder.path(file), "--out", &folder.path("tables")]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    run.stdout
}

/// Simulates the requests with these outputs.
fn simulated(outputs: &[(&str, &str)], more: &[&str]) -> Folder {
    let folder = Folder::new();
    folder.write("requests.csv", requests());
    let list = folder.path("requests.csv");
    let files: Vec<(&str, String)> = outputs.iter().map(|(flag, file)| (*flag, folder.path(file))).collect();
    let mut args = with_server(&["simulate", "--requests", &list]);
    files.iter().for_each(|(flag, file)| args.extend([*flag, file.as_str()]));
    args.extend(more);
    let run = run(&args);
    assert_eq!(run.code, 0, "{}", run.stderr);
    folder
}

fn judged(paths: &[String], more: &[&str]) -> Value {
    let mut args = with_server(&["evaluate", "capture", "--format", "json"]);
    args.extend(paths.iter().map(String::as_str));
    args.extend(more);
    let run = run(&args);
    assert_eq!(run.code, 0, "{}", run.stderr);
    serde_json::from_str(&run.stdout).unwrap()
}

#[track_caller]
fn has_no_error(folder: &Folder, path: &str, more: &[&str], metrics: &[&str]) {
    let csv = folder.path("judged.csv");
    let mut args = vec!["--output-csv", &csv, "--force"];
    args.extend(more);
    let report = judged(&[folder.path(path)], &args);
    assert_eq!((&report["requests"], &report["passed"]), (&json!(120), &json!(true)), "{report}");
    let rows = report["metrics"].as_array().unwrap();
    for metric in metrics {
        assert!(rows.iter().any(|row| row["metric"] == *metric), "{metric} is not in {report}");
    }
    assert!(rows.iter().filter(|row| row["metric"] != "step_mean").all(|row| row["ape_pct"] == 0.0), "{report}");
    let table = folder.read("judged.csv");
    let mut lines = table.lines();
    let names: Vec<&str> = lines.next().unwrap().split(',').collect();
    let measured = |name: &str| names.iter().position(|known| *known == format!("measured_{name}")).unwrap();
    let mut counted = 0;
    for line in lines {
        let cells: Vec<&str> = line.split(',').collect();
        for at in ["queue_wait_ms", "ttft_ms", "tpot_ms", "e2e_ms"].map(measured) {
            assert!(cells[at].is_empty() || cells[at] == cells[at + 1], "{} differs in {line}", names[at]);
        }
        counted += 1;
    }
    assert_eq!(counted, 120);
}

const FEW_BLOCKS: [&str; 2] = ["--num-gpu-blocks-override", "300"];

#[test]
fn per_token_jsonl_comes_back_without_an_error() {
    let folder = simulated(&[("--output-tokens", "t.jsonl")], &FEW_BLOCKS);
    has_no_error(&folder, "t.jsonl", &FEW_BLOCKS, &["e2e_p99", "ttft_mean", "itl_mean", "itl_p99", "tpot_p50"]);
    let lines = folder.read("t.jsonl");
    assert!(lines.lines().skip(1).any(|line| !line.contains("\"cached_tokens\":0,")), "prefixes are hit");
}

#[test]
fn gzip_comes_back_without_an_error_and_may_be_cut_at_a_line() {
    let folder = simulated(&[("--output-tokens", "t.jsonl")], &FEW_BLOCKS);
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(folder.read("t.jsonl").as_bytes()).unwrap();
    let packed = packed.finish().unwrap();
    std::fs::write(folder.path("t.jsonl.gz"), &packed).unwrap();
    has_no_error(&folder, "t.jsonl.gz", &FEW_BLOCKS, &["itl_p99"]);
    std::fs::write(folder.path("live.jsonl.gz"), &packed[..packed.len() * 2 / 3]).unwrap();
    let report = judged(&[folder.path("live.jsonl.gz")], &[]);
    assert!(report["requests"].as_u64().unwrap() > 20, "{report}");
    assert!(
        report["notes"].to_string().contains("the gzip stream ends early: its complete lines are read"),
        "{report}"
    );
}

#[test]
fn otlp_comes_back_without_an_error_and_with_its_queue() {
    // Spans do not report shared KV blocks, which shorten attention.
    let alone = ["--no-enable-prefix-caching"];
    let folder = simulated(&[("--output-otlp", "o.json")], &alone);
    has_no_error(&folder, "o.json", &alone, &["e2e_p99", "ttft_p99", "queue_wait_mean", "itl_mean", "step_mean"]);
}

#[test]
fn spans_say_that_they_omit_which_requests_share_a_prefix() {
    let folder = Folder::new();
    let trace = folder.path("o.json");
    let warned = |requests: String| {
        let list = folder.write("requests.csv", requests);
        let args = ["simulate", "--requests", &list, "--output-otlp", &trace, "--force", "--format", "json"];
        run(&with_server(&args)).json()["warnings"].to_string().contains("--output-otlp: OTLP spans omit prompts")
    };
    assert!(warned(requests()));
    assert!(!warned("arrival_ms,input_len,output_len\n0,200,20\n5,200,20\n".to_owned()));
}

#[test]
fn preemptions_are_in_the_spans_with_their_times() {
    let folder = simulated(&[("--output-otlp", "o.json")], &FEW_BLOCKS);
    ingested(&folder, "o.json");
    let table = folder.read("tables/requests.csv");
    let names: Vec<&str> = table.lines().next().unwrap().split(',').collect();
    let at = |name: &str| names.iter().position(|known| *known == name).unwrap();
    let mut preempted = 0;
    for line in table.lines().skip(1) {
        let cells: Vec<&str> = line.split(',').collect();
        let count = |name: &str| cells[at(name)].split_whitespace().count();
        let preemptions: usize = cells[at("num_preemptions")].parse().unwrap();
        assert_eq!(
            (count("preempted_ns"), count("resumed_ns"), count("resumed_steps")),
            (preemptions, preemptions, preemptions)
        );
        preempted += preemptions;
    }
    assert!(preempted > 0);
}

#[test]
fn the_benchs_json_comes_back_without_an_error() {
    let folder = Folder::new();
    let bench = folder.path("b.json");
    let load = ["--concurrency", "30", "--input-len", "300", "--output-len", "40", "--num-prompts", "120"];
    let mut args = with_server(&["simulate", "--output-json", &bench, "--save-detailed"]);
    args.extend(load);
    let run = run(&args);
    assert_eq!(run.code, 0, "{}", run.stderr);
    has_no_error(&folder, "b.json", &[], &["e2e_mean", "itl_p99"]);
}

#[test]
fn tables_of_ingest_come_back_without_an_error() {
    let folder = simulated(&[("--output-tokens", "t.jsonl")], &FEW_BLOCKS);
    let report = ingested(&folder, "t.jsonl");
    assert!(report.contains("tokens.csv"), "{report}");
    has_no_error(&folder, "tables", &FEW_BLOCKS, &["itl_p99", "ttft_p50"]);
}

#[test]
fn another_server_is_judged_as_such() {
    let folder = simulated(&[("--output-tokens", "t.jsonl")], &[]);
    let capture = folder.path("t.jsonl");
    let slower = ["--efficiency", "ideal", "--correction", "none"];
    let report = judged(std::slice::from_ref(&capture), &slower);
    assert_eq!(report["passed"], false, "{report}");
    let row = &report["metrics"][0];
    assert_eq!(row["metric"], "e2e_mean");
    assert!(row["error_pct"].as_f64().unwrap() < -10.0, "{row}");
    let mut args = with_server(&["evaluate", "capture", &capture, "--max-e2e-mean-pct", "5"]);
    args.extend(slower);
    let run = run(&args);
    assert_eq!(run.code, 1);
    assert!(
        run.stderr.contains("above the tolerance of 5 %") && run.stdout.contains("fails: e2e_mean"),
        "{}",
        run.stderr
    );
}

#[track_caller]
fn refused(paths: &[String], more: &[&str], said: &[&str]) {
    let mut args = with_server(&["evaluate", "capture"]);
    args.extend(paths.iter().map(String::as_str));
    args.extend(more);
    let run = run(&args);
    assert_eq!((run.code, run.stdout.as_str()), (1, ""), "{}", run.stderr);
    for part in said {
        assert!(run.stderr.contains(part), "'{part}' is not in: {}", run.stderr);
    }
}

#[test]
fn captures_that_cannot_be_judged_say_why() {
    let folder = Folder::new();
    let line = "{\"prompt_tokens\":9,\"output_tokens\":2,\"ttft_ms\":5,\"itl_ms\":[3],\"arrival_ms\":1}\n";
    folder.write("other.jsonl", format!("{{\"meta\":{{\"model\":\"llama-3.1-70b\"}}}}\n{line}"));
    refused(
        &[folder.path("other.jsonl")],
        &[],
        &["the capture is of the model llama-3.1-70b", "`ridgepoint ingest --model`"],
    );
    folder.write("one.jsonl", line);
    folder.write("two.jsonl", line);
    let both = [folder.path("one.jsonl"), folder.path("two.jsonl")];
    refused(&both, &[], &["holds 2 runs", "one, two"]);
    refused(&both, &["--experiment", "three"], &["has no run 'three'"]);
    assert_eq!(judged(&both, &["--experiment", "two"])["experiment"], "two");
    folder.write("none.jsonl", "{\"meta\":{}}\n{\"prompt_tokens\":9,\"output_tokens\":2,\"ttft_ms\":5}\n");
    refused(&[folder.path("none.jsonl")], &[], &["has requests with their times (1 incomplete)"]);
    refused(&[folder.path("nowhere")], &[], &["nowhere"]);
    // A table that names a run twice would mix them.
    refused(&[folder.path("one.jsonl"), folder.path("one.jsonl")], &[], &["so does another file"]);
}

#[test]
fn lines_at_fault_are_counted_by_reason() {
    let folder = Folder::new();
    let request =
        |more: &str| format!("{{\"prompt_tokens\":9,\"output_tokens\":3,\"ttft_ms\":5,\"arrival_ms\":1{more}}}\n");
    let sound = request(",\"itl_ms\":[3,4]");
    let faults = [
        request(",\"itl_ms\":[3,-4]"),
        request(",\"itl_ms\":[3,4],\"itl_tokens\":[1]"),
        request(",\"itl_ms\":[3,4],\"itl_ctx\":{\"num_running\":[1],\"prefill_tokens\":[0,0]}"),
        request(",\"itl_ms\":[3,4,5]"),
        request(""),
        request(",\"itl_ms\":[3,4],\"finish_reason\":\"error\""),
    ];
    let summary = request(",\"itl_summary\":{\"mean_ms\":3.5,\"count\":2},\"colour\":\"red\"");
    let cut = "{\"prompt_tokens\":9,\"outp";
    folder.write("c.jsonl", format!("{sound}{}{summary}{cut}", faults.concat()));
    let report = judged(&[folder.path("c.jsonl")], &[]);
    assert_eq!(report["requests"], 2);
    assert_eq!(report["left_out"], json!({"bad_value": 4, "incomplete": 1, "failed": 1}));
    let notes = report["notes"].to_string();
    for note in ["line 9 is the last one and cut short", "colour (1)", "1 requests have the mean of their gaps alone"] {
        assert!(notes.contains(note), "'{note}' is not in {notes}");
    }
}

/// 240 requests in bursts of three rates, which wait and are preempted on few KV blocks.
fn bursts(seed: u64) -> String {
    let mut arrival_ms = 0;
    (0..240).fold("arrival_ms,input_len,output_len\n".to_owned(), |rows, at: u64| {
        let drawn = (seed + at) * 2_654_435_761 % 65_536;
        arrival_ms += drawn % [30, 300, 100][(at / 40) as usize % 3];
        rows + &format!("{arrival_ms},{},{}\n", 50 + drawn % 1350, 40 + drawn / 64 % 260)
    })
}

#[test]
fn one_load_predicts_another_and_the_perturbed_prices_are_named() {
    let folder = Folder::new();
    let server = [
        "--model",
        "mistral-7b-v0.3",
        "--hardware",
        "h100",
        "--max-model-len",
        "4096",
        "--num-gpu-blocks-override",
        "1500",
        "--no-async-scheduling",
    ];
    let mut planted = ridgepoint::Correction::neutral();
    planted.source.hardware = vec!["h100_sxm".to_owned()];
    planted.host.scheduling_us_per_waiting = 60.0;
    planted.host.preemption_us = 4000.0;
    let correction = folder.write("planted.toml", planted.to_toml_string().unwrap());
    for (name, seed) in [("a", 1), ("b", 777)] {
        let list = folder.write(&format!("{name}.csv"), bursts(seed));
        let trace = folder.path(&format!("{name}.json"));
        let args = ["simulate", "--requests", &list, "--correction", &correction, "--output-otlp", &trace];
        let run = run(&[&args[..], &server].concat());
        assert_eq!(run.code, 0, "{}", run.stderr);
    }
    let (a, b) = (folder.path("a.json"), folder.path("b.json"));
    let args = ["evaluate", "capture", "--fit-from", &a, "--judge", &b, "--format", "json"];
    let run = run(&[&args[..], &server].concat());
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert!(run.stderr.contains("fitted on a.json: Use it"), "{}", run.stderr);
    let report = run.json();
    for (name, cost) in [("scheduling_us_per_waiting", 60.0), ("preemption_us", 4000.0)] {
        let all = report["coefficients"].as_array().unwrap();
        let of = all.iter().find(|of| of["name"] == name).unwrap();
        assert_eq!(of["identified"], true, "{of}");
        let within = of["lower"].as_f64().unwrap()..=of["upper"].as_f64().unwrap();
        assert!(within.contains(&cost), "{of}");
    }
    let e2e = report["metrics"].as_array().unwrap().iter().find(|row| row["metric"] == "e2e_mean").unwrap();
    assert!(e2e["ape_pct"].as_f64().unwrap() < 3.0, "{e2e}");
    assert_eq!(report["passed"], true, "{report}");
}

#[test]
fn a_closed_loop_is_judged_as_one() {
    let folder = Folder::new();
    let slow = folder.write("slow.toml", {
        let mut slow = ridgepoint::Correction::neutral();
        slow.host.scheduling_us = 15_000.0;
        slow.to_toml_string().unwrap()
    });
    let trace = folder.path("closed.jsonl");
    let load = ["--concurrency", "8", "--num-requests", "160", "--input-len", "300", "--output-len", "40"];
    let simulate = ["simulate", "--output-tokens", &trace];
    assert_eq!(run(&with_server(&[&simulate[..], &load].concat())).code, 0);
    let error_pct = |more: &[&str]| {
        let report = judged(std::slice::from_ref(&trace), more);
        let of = |name: &str| {
            let row = report["metrics"].as_array().unwrap().iter().find(|row| row["metric"] == name).unwrap();
            row["error_pct"].as_f64().unwrap()
        };
        (of("e2e_mean"), of("tpot_mean"))
    };
    assert_eq!(error_pct(&["--max-concurrency", "8"]), (0.0, 0.0));
    // With slower steps requests pile up at captured times; in a closed loop as many are in flight as were.
    let closed = error_pct(&["--max-concurrency", "8", "--correction", &slow]);
    let captured = error_pct(&["--correction", &slow]);
    assert!(closed.0 > 20.0 && captured.0 > 1.1 * closed.0, "{captured:?} {closed:?}");
    let none = run(&with_server(&["evaluate", "capture", &trace, "--max-concurrency", "0"]));
    none.fails(2, &["--max-concurrency"]);
}

#[test]
fn a_fit_takes_the_place_of_a_correction() {
    let folder = simulated(&[("--output-otlp", "o.json")], &[]);
    let trace = folder.path("o.json");
    let fit_from = ["evaluate", "capture", "--fit-from", &trace, "--judge", &trace];
    let both = run(&with_server(&[&fit_from[..], &["--correction", "global"]].concat()));
    both.fails(2, &["--correction", "cannot be used with", "--fit-from"]);
    // A correction that was built in is not warned of where it is not used.
    let fitted = run(&[&fit_from[..], &SERVER, &["--hardware", "a100", "--format", "json"]].concat());
    assert!(!fitted.stderr.contains("was fitted on h100"), "{}", fitted.stderr);
}

#[test]
fn a_fit_finds_the_prices_of_the_example_that_a_replay_wrote() {
    let folder = Folder::new();
    let examples = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples");
    let (trace, server) = (format!("{examples}/capture.json.gz"), format!("{examples}/capture.yaml"));
    let (mine, correction) = (folder.path("mine"), folder.path("mine.toml"));
    let model = ["--model", "llama-3.1-8b"];
    let ingest = ["ingest", &trace, "--out", &mine, "--hardware", "h100", "--tensor-parallel-size", "1"];
    let ingest = run(&[&ingest[..], &model].concat());
    assert_eq!(ingest.code, 0, "{}", ingest.stderr);
    let judged = |more: &[&str]| {
        let args = ["evaluate", "capture", &mine, "--config", &server, "--format", "json"];
        run(&[&args[..], more].concat()).json()
    };
    let ape_pct = |report: &Value, metric: &str| {
        let rows = report["metrics"].as_array().unwrap().clone();
        rows.iter().find(|row| row["metric"] == metric).unwrap()["ape_pct"].as_f64().unwrap()
    };
    let before = judged(&[]);
    let fit = run(&[&["fit", "--steps", &mine, "--level", "model", "--out", &correction][..], &model].concat());
    assert!(fit.code == 0 && fit.stdout.starts_with("Use it: on "), "{} {}", fit.stdout, fit.stderr);
    // The refit on all rows keeps the scatter of the windows that judged it.
    let notes = fit.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(notes.contains("from windows that were held out") && !notes.contains("none was held out"), "{notes}");
    let after = judged(&["--correction", &correction]);
    let (before_pct, after_pct) = (ape_pct(&before, "e2e_mean"), ape_pct(&after, "e2e_mean"));
    assert!(before_pct > 1.5 && after_pct < 0.2 * before_pct, "{before} {after}");
    assert!(ape_pct(&after, "step_mean") < 0.5 && after["passed"] == true, "{after}");
}

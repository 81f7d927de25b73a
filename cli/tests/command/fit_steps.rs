//! `ridgepoint fit --steps`: from traces to a correction, and what is refused with nothing written.

use crate::cli_support;
#[allow(dead_code)]
use crate::ingest_support;

use std::fmt::Write as _;

use cli_support::{Folder, Run, run};
use ingest_support::{at, event, export, span};
use ridgepoint::Correction;
use ridgepoint::correction::Level;
use serde_json::{Value, json};

const HEADER: &str = "step.id,step.ts_start_ns,batch.num_prefill_reqs,batch.num_decode_reqs,batch.prefill_tokens,\
                      batch.decode_tokens,kv.blocks_total_gpu,kv.blocks_free_gpu,queue.running_depth,experiment_id,model,tp\n";
const LABELS: [&str; 2] = ["--hardware", "h100"];

/// Decodes of a step.
fn decodes(index: u64) -> u64 {
    20 + (index * 37) % 100
}

/// Time of a step, ns: 6.2 ms and 45 µs per decode, give or take 1 %.
fn period_ns(index: u64) -> u64 {
    (6_200_000 + 45_000 * decodes(index)) * (990 + (index * 7919) % 21) / 1000
}

/// Steps of Llama-3.1-8B as csv, every third one sampled.
pub fn steps(experiment: &str, count: u64) -> String {
    let mut text = HEADER.to_owned();
    let mut start_ns = 5_000_000_000;
    for index in 0..3 * count {
        if index % 3 == 0 {
            let (id, n) = (1000 + index, decodes(index));
            writeln!(text, "{id},{start_ns},0,{n},0,{n},4000,{},{n},{experiment},llama-3.1-8b,1", 4000 - 30 * n)
                .unwrap();
        }
        start_ns += period_ns(index);
    }
    text
}

fn fit(folder: &Folder, inputs: &[&str], more: &[&str]) -> Run {
    let (inputs, out): (Vec<String>, _) =
        (inputs.iter().map(|name| folder.path(name)).collect(), folder.path("my.toml"));
    let mut args = vec!["fit", "--steps"];
    args.extend(inputs.iter().map(String::as_str));
    args.extend(["--out", &out]);
    args.extend(more);
    run(&args)
}

fn parameter<'a>(json: &'a Value, name: &str) -> &'a Value {
    let all = json["fit"]["parameters"].as_array().unwrap();
    all.iter().find(|of| of["name"] == name).unwrap_or_else(|| panic!("no {name} in {json}"))
}

/// A trace of the engine's steps and of requests: 4 ms and 3 µs per prompt token until a request reaches the engine, which takes it
/// when the step at hand ends; 1.5 ms to the client.
fn trace(count: u64) -> String {
    let mut start_ns = 5_000_000_000;
    let mut lines = Vec::new();
    let resource = [("service.name", json!("vllm")), ("service.version", json!("0.15.1"))];
    for index in 0..count {
        let n = decodes(index);
        let summary = event(
            "step.BATCH_SUMMARY",
            &[
                ("step.id", json!(1000 + index)),
                ("step.ts_start_ns", json!(start_ns)),
                ("batch.num_prefill_reqs", json!(0)),
                ("batch.num_decode_reqs", json!(n)),
                ("batch.scheduled_tokens", json!(n)),
                ("batch.prefill_tokens", json!(0)),
                ("batch.decode_tokens", json!(n)),
                ("queue.running_depth", json!(n)),
                ("kv.blocks_total_gpu", json!(4000)),
                ("kv.blocks_free_gpu", json!(4000 - 30 * n)),
            ],
        );
        lines.push(export(&resource, "vllm.scheduler", vec![span("scheduler_steps", &[], vec![summary])]).to_string());
        if index % 4 == 0 {
            let tokens = 100 + 53 * (index % 31);
            let (id, queued_ns) = (format!("cmpl-{index}"), start_ns);
            let first_ns = queued_ns + 30_000_000;
            let waited_ns = index.checked_sub(1).map_or(0, period_ns) * (index * 2_654_435_761 % 4096) / 4096;
            let prompt = [("prefill_total_tokens", json!(tokens))];
            let core = span(
                "llm_core",
                &[("gen_ai.request.id", json!(id))],
                vec![
                    at("journey.QUEUED", queued_ns, &prompt),
                    at("journey.SCHEDULED", queued_ns + 1000, &[("schedule.kind", json!("FIRST")), prompt[0].clone()]),
                    at("journey.FIRST_TOKEN", first_ns, &[]),
                    at("journey.FINISHED", first_ns + 900_000_000, &[("finish.status", json!("stopped"))]),
                ],
            );
            let api = span(
                "llm_request",
                &[("gen_ai.request.id", json!(id))],
                vec![
                    at("api.ARRIVED", queued_ns - waited_ns - 4_000_000 - 3_000 * tokens, &[]),
                    at("api.FIRST_RESPONSE", first_ns + 1_500_000, &[]),
                    at("api.DEPARTED", first_ns + 950_000_000, &[]),
                ],
            );
            lines.push(export(&resource, "vllm.scheduler", vec![core]).to_string());
            lines.push(export(&resource, "vllm.api", vec![api]).to_string());
        }
        start_ns += period_ns(index);
    }
    lines.join("\n") + "\n"
}

#[test]
fn a_newcomers_trace_becomes_a_correction_that_predictions_take() {
    let folder = Folder::new();
    folder.write("trace.json", trace(400));
    let labels = ["--model", "llama-3.1-8b", "--hardware", "h100", "--tensor-parallel-size", "1"];
    let run_of = fit(&folder, &["trace.json"], &[&labels[..], &["--format", "json"]].concat());
    let json = run_of.json();
    assert_eq!(json["runs"][0]["model"], "llama-3.1-8b");
    assert!(json["runs"][0]["fitted"]["median_ape_pct"].as_f64().unwrap() < 2.0, "{json}");
    for (name, expected, within) in
        [("queueing_us", 4000.0, 900.0), ("queueing_us_per_token", 3.0, 0.9), ("output_token_us", 1500.0, 1.0)]
    {
        let of = parameter(&json, name);
        assert!((of["value"].as_f64().unwrap() - expected).abs() < within, "{of}");
        assert_eq!(of["identified"], true, "{of}");
    }
    assert_eq!(parameter(&json, "scheduling_us_per_waiting")["identified"], false);
    let correction = Correction::load(folder.path("my.toml")).unwrap();
    assert_eq!(correction.level, Level::Global);
    let source = &correction.source;
    let split = "all, after a fit of the first 60 % of each run was judged on the rest";
    assert_eq!((source.data.as_str(), source.split.as_str(), source.rows), ("trace.json", split, 399));
    assert_eq!(json["verdict"]["use_it"], true, "{json}");
    assert!(json["verdict"]["held_out"]["median_ape_pct"].as_f64().unwrap() < 2.0, "{json}");
    assert_eq!((source.models.len(), source.hardware[0].as_str(), source.rows_sha256.len()), (1, "h100_sxm", 64));
    assert!(source.converged && (correction.host.output_token_us - 1500.0).abs() < 1.0, "{correction:?}");
    let predicted = run(&[
        "predict-step",
        "--model",
        "llama-3.1-8b",
        "--hardware",
        "h100",
        "--decode",
        "70x480",
        "--engine-version",
        // The kernels that the trace is of.
        source.engine_versions[0].trim_start_matches("vllm-"),
        "--correction",
        &folder.path("my.toml"),
        "--format",
        "json",
    ])
    .json();
    // 6.2 ms and 70 times 45 µs.
    let us = predicted["step_time_us"].as_f64().unwrap();
    assert!((us / 9350.0 - 1.0).abs() < 0.02, "{us}");
    // A second time the file is there.
    fit(&folder, &["trace.json"], &labels).fails(1, &["is there already"]);
}

#[test]
fn the_first_part_is_fitted_and_the_rest_judges() {
    let folder = Folder::new();
    folder.write("chat.csv", steps("chat", 600));
    let more = [&LABELS[..], &["--split", "first60", "--level", "model", "--model", "llama-3.1-8b"]].concat();
    let run_of = fit(&folder, &["chat.csv"], &[&more[..], &["--data", "our cluster"]].concat());
    assert_eq!(run_of.code, 0, "{}", run_of.stderr);
    for said in ["held-out rows", "chat", "projections", "not identified: times of 0 requests", "held out"] {
        assert!(run_of.stdout.contains(said), "'{said}' is not in: {}", run_of.stdout);
    }
    let correction = Correction::load(folder.path("my.toml")).unwrap();
    assert_eq!(correction.level, Level::Model { model: "llama-3.1-8b".to_owned() });
    let source = &correction.source;
    assert_eq!((source.data.as_str(), source.split.as_str()), ("our cluster", "first 60 % of each run"));
    assert!((355..=365).contains(&source.rows), "{}", source.rows);
}

#[test]
fn a_correction_that_is_worse_than_none_is_not_written() {
    let folder = Folder::new();
    // Until late in the run, steps take half as long again as after it.
    let text = steps("chat", 900);
    let slow = |line: &str| {
        let mut cells: Vec<String> = line.split(',').map(str::to_owned).collect();
        let ns: u64 = cells[1].parse().unwrap();
        let cut = 19_000_000_000;
        cells[1] = (if ns < cut { 3 * ns / 2 } else { cut / 2 + ns }).to_string();
        cells.join(",")
    };
    let lines: Vec<String> = text.lines().skip(1).map(slow).collect();
    folder.write("chat.csv", HEADER.to_owned() + &lines.join("\n") + "\n");
    let more = [&LABELS[..], &["--tp", "1"]].concat();
    let refused = fit(&folder, &["chat.csv"], &more);
    assert!(refused.stdout.starts_with("Do not use it: on "), "{}", refused.stdout);
    assert_eq!(refused.code, 1);
    assert!(refused.stderr.contains("Nothing is written; --allow-worse writes"), "{}", refused.stderr);
    assert_eq!(folder.names(), ["chat.csv"]);
    let told_to = fit(&folder, &["chat.csv"], &[&more[..], &["--allow-worse"]].concat());
    assert_eq!(told_to.code, 0, "{}", told_to.stderr);
    assert_eq!(folder.names(), ["chat.csv", "my.toml"]);
}

#[test]
fn a_trace_of_another_model_is_named_first() {
    let folder = Folder::new();
    folder.write("chat.csv", steps("chat", 600).replace("llama-3.1-8b", "unnamed"));
    let other = ["--model", "qwen3-32b", "--hardware", "h100", "--tp", "1"];
    let run_of = fit(&folder, &["chat.csv"], &[&other[..], &["--allow-worse"]].concat());
    let first = run_of.stdout.lines().take(4).collect::<Vec<_>>().join(" ");
    assert!(first.starts_with("Do not use it") && first.contains("faster than the roofline of qwen3-32b"), "{first}");
}

#[test]
fn folders_have_tables_of_steps_and_of_requests() {
    let folder = Folder::new();
    folder.write("trace.json", trace(400));
    let labels = ["--model", "llama-3.1-8b", "--hardware", "h100", "--tp", "1"];
    let ingest = run(&[&["ingest", &folder.path("trace.json"), "--out", &folder.path("my_run")][..], &labels].concat());
    assert_eq!(ingest.code, 0, "{}", ingest.stderr);
    folder.write("my_run/notes.csv", "a,b\n1,2\n");
    let run_of = fit(&folder, &["my_run"], &["--format", "json"]);
    assert!(run_of.stderr.contains("notes.csv") && run_of.stderr.contains("left out"), "{}", run_of.stderr);
    let json = run_of.json();
    assert_eq!(parameter(&json, "queueing_us")["identified"], true);
    assert_eq!(json["source"]["data"], "requests.csv, steps.csv");
    std::fs::create_dir(folder.path("empty")).unwrap();
    fit(&folder, &["empty"], &["--force"]).fails(1, &["empty: has no csv file", "ridgepoint ingest"]);
    fit(&folder, &["my_run/requests.csv"], &["--force"]).fails(1, &["hold requests and no steps"]);
}

#[test]
fn labels_fill_and_never_contradict() {
    let folder = Folder::new();
    folder.write("chat.csv", steps("chat", 100));
    fit(&folder, &["chat.csv"], &[]).fails(1, &["chat", "does not name its hardware; add --hardware"]);
    let other = fit(&folder, &["chat.csv"], &[&LABELS[..], &["--model", "qwen3-32b", "--tp", "2"]].concat());
    other.fails(1, &["says --model llama-3.1-8b, and the command qwen3-32b", "says --tensor-parallel-size 1"]);
    let level = [&LABELS[..], &["--level", "model", "--model", "qwen3-32b"]].concat();
    fit(&folder, &["chat.csv"], &level).fails(1, &["says --model llama-3.1-8b"]);
    folder.write("tuned.csv", steps("tuned", 100).replace("llama-3.1-8b", "our-finetune"));
    fit(&folder, &["tuned.csv"], &LABELS).fails(1, &["unknown model 'our-finetune'"]);
    let named = fit(&folder, &["tuned.csv"], &[&LABELS[..], &["--model", "llama-3.1-8b"]].concat());
    assert_eq!(named.code, 0, "{}", named.stderr);
    assert_eq!(folder.names(), ["chat.csv", "my.toml", "tuned.csv"]);
}

#[test]
fn what_can_not_be_fitted_is_named_and_nothing_is_written() {
    let row = |id: u64, ns: i64, n: i64| format!("{id},{ns},0,{n},0,{n},4000,2000,{n},a,llama-3.1-8b,1\n");
    let rows =
        |ids: &[(u64, i64, i64)]| ids.iter().fold(HEADER.to_owned(), |text, (id, ns, n)| text + &row(*id, *ns, *n));
    let constant: Vec<(u64, i64, i64)> = (0..50).map(|i| (1000 + i, 1 + 10_000_000 * i as i64, 5 + i as i64)).collect();
    let cut = trace(20);
    for (name, text, said) in [
        ("none.csv", HEADER.to_owned(), "has no rows"),
        ("empty.csv", String::new(), "is empty"),
        ("one.csv", rows(&[(1000, 1, 5), (1001, 10_000_001, 6)]), "there is one row"),
        ("alone.csv", rows(&[(1000, 1, 5)]), "1 last step"),
        ("constant.csv", rows(&constant), "all 30 rows have the same time, 10000 µs"),
        ("nan.csv", rows(&[(1000, 1, 5), (1001, 10, 6)]).replace(",10,", ",NaN,"), "NaN"),
        ("negative.csv", rows(&[(1000, 1, 5), (1001, 10_000_001, -6)]), "-6"),
        ("twice.csv", rows(&[(1000, 1, 5), (1000, 1, 5)]), "1 duplicate"),
        ("backwards.csv", rows(&[(1000, 90_000_000, 5), (1001, 50_000_000, 6), (1002, 10_000_000, 7)]), "clock jump"),
        ("unit.csv", rows(&constant).replace("ts_start_ns", "ts_start_ms"), "step.ts_start_ms"),
        ("seconds.csv", rows(&(0..50).map(|i| (1000 + i, 5 + i as i64, 5)).collect::<Vec<_>>()), "seconds.csv"),
        ("cut.json", cut[..cut.len() - 40].to_owned(), "cut.json"),
        ("other.json", "{\"a\": 1}".to_owned(), "none of the known formats"),
    ] {
        let folder = Folder::new();
        folder.write(name, text);
        fit(&folder, &[name], &LABELS).fails(1, &[said]);
        assert_eq!(folder.names(), [name]);
        folder.write("my.toml", "precious");
        let forced = fit(&folder, &[name], &[&LABELS[..], &["--force"]].concat());
        assert_eq!((forced.code, folder.read("my.toml").as_str()), (1, "precious"), "{name}");
    }
}

#[test]
fn faulty_rows_among_sound_ones_are_counted() {
    let folder = Folder::new();
    // Rows in any order, one of them twice.
    let text = steps("chat", 300);
    let mut lines: Vec<&str> = text.lines().collect();
    let twice = lines[40];
    lines[1..].reverse();
    lines.push(twice);
    folder.write("chat.csv", lines.join("\n") + "\n");
    let json = fit(&folder, &["chat.csv"], &[&LABELS[..], &["--format", "json"]].concat()).json();
    assert_eq!(json["runs"][0]["dropped"], json!({"duplicate": 1, "last_step": 1}));
    assert_eq!(json["fit"]["rows"], 299);
}

#[test]
fn a_split_is_judged_with_what_is_fitted_on_its_other_rows() {
    let folder = Folder::new();
    let chat = folder.write("chat.csv", steps("chat", 600));
    let base = ["evaluate", "steps", &chat, "--hardware", "h100"];
    run(&[&base[..], &["--refit", "global"]].concat()).fails(2, &["--refit", "--split"]);
    for level in ["global", "model"] {
        let json = run(&[&base[..], &["--judge-from", "0.6", "--refit", level, "--format", "json"]].concat()).json();
        let of = &json["experiments"][0];
        assert!(of["correction"]["name"].as_str().unwrap().starts_with("refit on the training rows"), "{of}");
        let error = |of: &Value| of["step_mean"]["median_ape_pct"].as_f64().unwrap();
        assert!(error(&json["summary"]) < 1.5, "{of}");
        assert!(error(&json["summary"]) < error(&json["baselines"]["given_correction"]), "{of}");
    }
}

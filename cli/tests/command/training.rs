//! `ridgepoint fit --training-tables` and `simulate --latency`: planted prices come back through tables and a file.

use serde_json::Value;

use crate::cli_support::{Folder, Run, run};

/// 5 ms a step, 15 µs a prompt token, 80 µs a decode, 900 µs a prompt; 3 ms to the queue, 1 ms to the client.
const PLANTED: &str = "method = 'by hand'\ndata = 'nothing'\nmodel = 'llama-3.1-8b'\nhardware = 'h100_sxm'\n\
                       tensor_parallel_size = 1\nrows = 0\n[black_box]\nbeta0_us = 5000.0\nbeta1_us = 15.0\n\
                       beta2_us = 80.0\nprefill_request_us = 900.0\nalpha0_us = 3000.0\nalpha2_us = 1000.0\n";
pub const SERVER: [&str; 11] = [
    "--model",
    "llama-3.1-8b",
    "--hardware",
    "h100",
    "--max-model-len",
    "4096",
    "--max-num-seqs",
    "24",
    "--no-async-scheduling",
    "--num-gpu-blocks-override",
    "900",
];

/// 400 prompts that come faster than they are answered, then slower, in turns.
fn requests() -> String {
    let mut arrival_ms = 0;
    (0..400).fold("arrival_ms,input_len,output_len\n".to_owned(), |rows, at| {
        arrival_ms += [11, 90, 40][(at / 40) % 3];
        rows + &format!("{arrival_ms},{},{}\n", 60 + 97 * at % 1201, 10 + 31 * at % 83)
    })
}

fn simulate(folder: &Folder, latency: &str, more: &[&str]) -> Run {
    let (list, latency) = (folder.path("requests.csv"), folder.path(latency));
    let args = ["simulate", "--requests", &list, "--latency", &latency, "--format", "json"];
    run(&[&args[..], &SERVER, more].concat())
}

pub fn planted() -> Folder {
    let folder = Folder::new();
    folder.write("requests.csv", requests());
    folder.write("planted.toml", PLANTED);
    let run = simulate(&folder, "planted.toml", &["--output-otlp", &folder.path("trace.json")]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    folder
}

fn fit(folder: &Folder, out: &str, more: &[&str]) -> Run {
    let (trace, out, tables) = (folder.path("trace.json"), folder.path(out), folder.path("tables"));
    let args =
        ["fit", "--steps", &trace, "--hardware", "h100", "--tp", "1", "--out", &out, "--training-tables", &tables];
    run(&[&args[..], &["--allow-worse"], more].concat())
}

fn e2e_ms(run: &Run) -> f64 {
    let json: Value = serde_json::from_str(&run.stdout).unwrap();
    assert!(json["intervals"].is_null() && json["correction"]["name"].is_null(), "{json}");
    json["stages"][0]["e2e_ms"]["mean"].as_f64().unwrap()
}

#[test]
fn planted_prices_come_back_and_are_replayed() {
    let folder = planted();
    let fitted = fit(&folder, "my.toml", &["--format", "json"]);
    assert_eq!(fitted.code, 0, "{}", fitted.stderr);
    let alpha = folder.read("tables/alpha.csv");
    let header = "alpha_latency_ms,prompt_tokens,cached_tokens,queue_depth,running_depth,kv_ratio,since_step_ms,max_output_tokens,arrival_ns,model,hardware,tp,run";
    assert_eq!((alpha.lines().next(), alpha.lines().count()), (Some(header), 401));
    let beta = folder.read("tables/beta.csv");
    assert!(beta.starts_with(
        "step_duration_us,num_prefill,num_decode,prefill_tokens,decode_tokens,kv_ratio,kv_tokens,tables_us,"
    ));
    let json: Value = serde_json::from_str(&fitted.stdout).unwrap();
    assert_eq!(json["training"]["beta_rows"], beta.lines().count() - 1);
    let before = e2e_ms(&simulate(&folder, "planted.toml", &[]));
    for (at, method) in ["ridge", "lasso"].into_iter().enumerate() {
        let line = &json["training"]["beta_lines"][at];
        assert!(line["held_out"]["median_ape_pct"].as_f64().unwrap() < 1.0, "{line}");
        for (column, price_us) in [("prefill_tokens", 15.0), ("num_decode", 80.0), ("num_prefill", 900.0)] {
            let value = line["coefficients"][column].as_f64().unwrap();
            assert!((value / price_us - 1.0).abs() < 0.05, "{method}: {column} = {value}");
        }
        let again = simulate(&folder, &format!("tables/{method}.toml"), &[]);
        assert_eq!((again.code, again.stderr.as_str()), (0, ""));
        let after = e2e_ms(&again);
        assert!((after / before - 1.0).abs() < 0.03, "{method}: {after} ms, planted {before} ms");
    }
    // Tables of an earlier fit are replaced, other files are not.
    let table = fit(&folder, "again.toml", &[]).stdout;
    for text in ["alpha.csv: 400 rows", "beta.csv: ", "queue wait, ms: lasso", "step, µs (ridge): "] {
        assert!(table.contains(text), "'{text}' is not in {table}");
    }
    folder.write("tables/beta.csv", "mine");
    let refused = fit(&folder, "third.toml", &[]);
    assert!(refused.code == 1 && refused.stderr.contains("is there already"), "{}", refused.stderr);
    assert!(!folder.names().contains(&"third.toml".to_owned()));
}

#[test]
fn a_capture_is_judged_by_a_line() {
    let folder = planted();
    let (trace, line) = (folder.path("trace.json"), folder.path("planted.toml"));
    let judge = |more: &[&str]| run(&[&["evaluate", "capture", &trace][..], &SERVER, more].concat());
    let json = judge(&["--latency", &line, "--format", "json"]).json();
    let row = |name: &str| json["metrics"].as_array().unwrap().iter().find(|row| row["metric"] == name).unwrap();
    // Its own server: every time comes back, and a line knows no interval.
    for metric in ["e2e_mean", "ttft_mean", "queue_wait_p99", "step_mean"] {
        assert!(row(metric)["ape_pct"].as_f64().unwrap() < 0.1, "{}", row(metric));
        assert_eq!(row(metric)["lower_ms"], row(metric)["upper_ms"], "{metric}");
    }
    assert_eq!((&json["latency_model"], &json["correction"]["name"]), (&"by hand".into(), &Value::Null));
    let table = judge(&["--latency", &line]).stdout;
    assert!(table.contains("predicted by the by hand line in place of the tables"), "{table}");
    judge(&["--latency", &line, "--correction", "global"]).fails(2, &["--latency", "--correction"]);
    folder.write("other.toml", PLANTED.replace("h100_sxm", "a100_sxm"));
    let other = judge(&["--latency", &folder.path("other.toml")]);
    assert!(other.stderr.contains("was fitted on llama-3.1-8b on 1 x a100_sxm"), "{}", other.stderr);
}

#[test]
fn the_replayed_wait_stands_beside_the_lines() {
    let folder = planted();
    let trace = folder.path("trace.json");
    let judge = |more: &[&str]| {
        let run = run(&[&["evaluate", "capture", "--format", "json"][..], more, &SERVER].concat());
        assert_eq!(run.code, 0, "{}", run.stderr);
        serde_json::from_str::<Value>(&run.stdout).unwrap()["queue_waits"].clone()
    };
    let own = judge(&[trace.as_str()]);
    assert_eq!((&own["replay"]["rows"], &own["lines"][0]["rows"]), (&160.into(), &240.into()), "{own}");
    assert_eq!(own["lines"][1]["held_out"]["rows"], own["replay"]["rows"]);
    assert_eq!(own["lines"][1]["held_out"]["mean"], own["replay"]["mean"]);
    let other = judge(&["--fit-from", trace.as_str(), "--judge", trace.as_str()]);
    assert_eq!((&other["replay"]["rows"], &other["lines"][0]["rows"]), (&400.into(), &400.into()), "{other}");
    let table = run(&[&["evaluate", "capture", trace.as_str()][..], &SERVER].concat()).stdout;
    assert!(table.contains("ridge line") && table.contains("Lines are fitted on the first 60 %"), "{table}");
}

#[test]
fn a_latency_model_that_cannot_be_is_refused_and_one_of_another_server_is_reported() {
    let folder = planted();
    folder.write("bad.toml", PLANTED.replace("15.0", "-15.0"));
    let bad = simulate(&folder, "bad.toml", &[]);
    assert_eq!((bad.code, bad.stdout.as_str()), (1, ""));
    assert!(bad.stderr.contains("bad.toml: black_box.beta1_us = -15 must be from 0 to"), "{}", bad.stderr);
    assert_eq!(simulate(&folder, "none.toml", &[]).code, 1);
    assert_eq!(simulate(&folder, "planted.toml", &["--correction", "global"]).code, 2);
    let noise = simulate(&folder, "planted.toml", &["--noise"]);
    assert!(noise.code == 2 && noise.stderr.contains("give it, as in --noise 0.05"), "{}", noise.stderr);
    folder.write("other.toml", PLANTED.replace("h100_sxm", "a100_sxm"));
    let other = simulate(&folder, "other.toml", &[]);
    assert_eq!(other.code, 0);
    assert!(other.stdout.contains("was fitted on llama-3.1-8b on 1 x a100_sxm"), "{}", other.stdout);
}

//! `ridgepoint evaluate steps` on handmade traces: scores, plots, and what is refused.

use crate::cli_support;
use crate::common;

use cli_support::{Folder, Run, run};

const HEADER: &str = "step.id,step.ts_start_ns,queue.running_depth,batch.num_prefill_reqs,batch.num_decode_reqs,\
                      batch.prefill_tokens,batch.decode_tokens,kv.blocks_total_gpu,kv.blocks_free_gpu,experiment_id,\
                      model,workload,tp\n";

/// Steps of 64 decodes on 2,000 of 20,000 blocks, `period_ms` each.
fn steps(model: &str, count: u64, period_ms: u64) -> String {
    (0..count).fold(HEADER.to_owned(), |text, index| {
        let start_ms = period_ms * index;
        text + &format!("{},{start_ms}000000,64,0,64,0,64,20000,18000,chat,{model},general,4\n", 200 + index)
    })
}

fn evaluate(folder: &Folder, text: &str, more: &[&str]) -> Run {
    folder.write("chat.csv", text);
    let file = folder.path("chat.csv");
    let mut args = vec!["evaluate", "steps", &file];
    args.extend(more);
    run(&args)
}

fn judged(text: &str, more: &[&str]) -> Run {
    evaluate(&Folder::new(), text, more)
}

const NONE: [&str; 4] = ["--hardware", "h100", "--correction", "none"];

#[test]
fn constant_targets_are_judged_and_have_no_correlation() {
    let run = judged(&steps("llama-2-70b", 121, 20), &[&NONE[..], &["--format", "json", "--window", "40"]].concat());
    let json = run.json();
    let of = &json["experiments"][0];
    for (key, expected) in
        [("name", "chat"), ("model", "llama-2-70b"), ("hardware", "h100_sxm"), ("workload", "general")]
    {
        assert_eq!(of[key], expected, "{key}");
    }
    assert_eq!(of["tensor_parallel_size"], 4);
    assert_eq!(of["rows"].as_u64(), Some(120));
    assert_eq!(of["dropped"], serde_json::json!({"last_step": 1}));
    assert_eq!(of["correction"], serde_json::json!({"name": null, "level": "none"}));
    let rows = of["metrics"].as_array().unwrap();
    assert_eq!(
        (rows.len(), rows[0]["metric"].as_str(), rows[0]["measured_ms"].as_f64()),
        (3, Some("step_mean"), Some(20.0))
    );
    let group = &json["split"]["groups"]["chat"];
    let errors = &group["summary"]["step_mean"];
    assert_eq!((errors["pearson_r"].is_null(), errors["rows"].as_u64()), (true, Some(3)));
    let bias = errors["bias_pct"].as_f64().unwrap();
    assert!((-40.0..40.0).contains(&bias) && (bias.abs() - errors["mean_ape_pct"].as_f64().unwrap()).abs() < 1e-9);
    let ideal = &group["baselines"]["ideal_roofline"]["step_mean"];
    assert!(ideal.get("coverage_pct").is_none() && ideal["bias_pct"].as_f64().unwrap() < bias);
    assert!(group["baselines"].get("calibrated_roofline").is_none(), "it is the prediction");
    assert_eq!(json["summary"]["step_mean"], *errors);
    let judged = "all rows are judged, none is learned from; sampled steps are judged in windows of 40 or more";
    assert!(json["notes"] == serde_json::json!([judged]) && json["skipped"] == serde_json::json!([]));
    assert_eq!(run.stderr, "");
}

#[test]
fn a_constant_run_is_known_to_a_black_box_after_a_part_of_it() {
    let more = [&NONE[..], &["--format", "json", "--judge-from", "0.6", "--window", "10"]].concat();
    let json = judged(&steps("llama-2-70b", 101, 20), &more).json();
    let of = &json["experiments"][0];
    assert_eq!((of["rows"].as_u64(), of["metrics"].as_array().map(Vec::len)), (Some(40), Some(4)));
    assert!(json["baselines"]["black_box"]["step_mean"]["mean_ape_pct"].as_f64().unwrap() < 1e-6);
    let judged = json["notes"][0].as_str().unwrap();
    assert!(judged.starts_with("the last 40 % of each run's time is judged; what comes before is learned from"));
}

#[test]
fn the_table_says_what_was_judged_and_how_requests_were_found() {
    let run = judged(&steps("llama-2-70b", 121, 20), &NONE);
    assert_eq!(run.code, 0, "{}", run.stderr);
    for said in [
        "chat (1 run): step_mean",
        "120 rows in 2 windows; left out: 1 last step",
        "(ideal roofline)",
        "estimated from KV",
        "max_num_seqs = 1024",
    ] {
        assert!(run.stdout.contains(said), "'{said}' is not in: {}", run.stdout);
    }
}

#[test]
fn step_tables_are_judged_as_the_trace_they_are_of() {
    let folder = Folder::new();
    let text = steps("llama-2-70b", 121, 20);
    let direct = evaluate(&folder, &text, &[&NONE[..], &["--format", "json"]].concat()).json();
    let (file, out) = (folder.path("chat.csv"), folder.path("out"));
    assert_eq!(run(&["ingest", &file, "--out", &out, "--hardware", "h100"]).code, 0);
    let table = folder.path("out/steps.csv");
    let again = run(&["evaluate", "steps", &table, "--correction", "none", "--format", "json"]).json();
    assert_eq!(direct, again);
}

#[test]
fn what_cannot_be_judged_says_why() {
    let text = steps("llama-2-70b", 121, 20);
    judged(HEADER, &NONE).fails(1, &["chat.csv", "no rows"]);
    judged(&steps("llama-2-70b", 1, 20), &NONE).fails(1, &["chat: ", "1 last step", "a step needs one after it"]);
    judged(&text, &["--correction", "none"]).fails(1, &["the trace does not name its hardware; add --hardware"]);
    judged(&steps("llama-2-71b", 9, 20), &NONE).fails(1, &["unknown model 'llama-2-71b'", "llama-2-70b"]);
    judged(&text, &["--hardware", "h101"]).fails(1, &["unknown hardware 'h101'"]);
    judged(&text, &["--hardware", "h100", "--correction", "/no/such.toml"])
        .fails(1, &["/no/such.toml", "none, global, auto"]);
    judged(&text, &[&NONE[..], &["--split", "leave-one-model-out"]].concat())
        .fails(1, &["'llama-2-70b' is all there is"]);
    judged(&text, &[&NONE[..], &["--split", "leave-one-model-out", "--judge-from", "0.5"]].concat())
        .fails(2, &["--judge-from splits by time"]);
    for wrong in ["0", "1", "1.5", "nan", "x"] {
        judged(&text, &[&NONE[..], &["--judge-from", wrong]].concat()).fails(2, &["above 0 and below 1"]);
    }
    judged(&text, &[&NONE[..], &["--window", "0"]].concat()).fails(2, &["--window"]);
    let early = steps("llama-2-70b", 50, 20).replace("\n2", "\n");
    judged(&early, &NONE).fails(1, &["warm up"]);
}

#[test]
fn a_lone_row_is_a_window_and_a_missed_tolerance_fails() {
    let text = steps("llama-2-70b", 2, 20);
    let json = judged(&text, &[&NONE[..], &["--format", "json"]].concat()).json();
    assert_eq!(
        (json["experiments"][0]["rows"].as_u64(), json["summary"]["step_mean"]["rows"].as_u64()),
        (Some(1), Some(1))
    );
    assert_eq!(judged(&text, &[&NONE[..], &["--max-median-ape-pct", "99"]].concat()).code, 0);
    let missed = judged(&text, &[&NONE[..], &["--max-median-ape-pct", "0"]].concat());
    assert_eq!(missed.code, 1);
    assert!(missed.stderr.contains("above the tolerance of 0 %") && missed.stdout.contains("step_mean"));
}

#[test]
fn the_same_run_twice_is_refused() {
    let folder = Folder::new();
    folder.write("a.csv", steps("llama-2-70b", 9, 20));
    folder.write("b.csv", steps("llama-2-70b", 9, 20));
    let (a, b) = (folder.path("a.csv"), folder.path("b.csv"));
    run(&["evaluate", "steps", &a, &b, "--hardware", "h100"]).fails(1, &["a.csv and", "both hold a run 'chat'"]);
}

#[test]
fn plots_are_whole_files_under_stable_names() {
    let folder = Folder::new();
    let plots = folder.path("plots/here");
    let text = steps("llama-2-70b", 121, 20);
    let run = evaluate(&folder, &text, &[&NONE[..], &["--plot", &plots]].concat());
    assert_eq!(run.code, 0, "{}", run.stderr);
    for name in ["steps-predicted-over-measured", "steps-itl-survival-1-chat", "steps-period-qq-1-chat"] {
        let svg = folder.read(&format!("plots/here/{name}.svg"));
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>") && svg.contains("<text"), "{name}");
    }
    assert_eq!(std::fs::read_dir(&plots).unwrap().count(), 3);
    let taken = folder.path("chat.csv");
    evaluate(&folder, &text, &[&NONE[..], &["--plot", &taken]].concat()).fails(1, &["chat.csv"]);
}

#[test]
fn steps_of_the_data_pack() {
    let Some(data) = common::data_pack("steps_of_the_data_pack") else { return };
    let folder = data.join("steps").to_string_lossy().into_owned();
    let mut files: Vec<String> = std::fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().path().to_string_lossy().into_owned())
        .filter(|path| path.ends_with(".csv"))
        .collect();
    files.sort();
    let mut args = vec!["evaluate", "steps"];
    args.extend(files.iter().map(String::as_str));
    args.extend(["--hardware", "h100_sxm", "--correction", "none", "--judge-from", "0.6", "--format", "json"]);
    let json = run(&args).json();
    let pct =
        |of: &serde_json::Value, key: &str| of[key].as_f64().map_or("-".to_owned(), |value| format!("{value:.2}"));
    for of in json["experiments"].as_array().unwrap() {
        println!("{} later 40 %: {} rows", of["name"], of["rows"]);
        let group = &json["split"]["groups"][of["name"].as_str().unwrap()];
        let errors = &group["summary"]["step_mean"];
        let mut judged = vec![("prediction", errors)];
        judged
            .extend(group["baselines"].as_object().unwrap().iter().map(|(name, of)| (name.as_str(), &of["step_mean"])));
        for (name, of) in &judged {
            let [median, bias, r, coverage] =
                ["median_ape_pct", "bias_pct", "pearson_r", "coverage_pct"].map(|key| pct(of, key));
            println!("  {name}: median {median} %, bias {bias} %, r {r}, coverage {coverage} %");
        }
        // Physics and kernels alone, nothing fitted on any step.
        let ideal = &group["baselines"]["ideal_roofline"]["step_mean"];
        let [own, ideal] = [errors, ideal].map(|of| of["median_ape_pct"].as_f64());
        assert!(own < Some(10.0) && ideal > Some(20.0), "{of}");
        assert!(errors["coverage_pct"].as_f64() >= Some(90.0), "{of}");
    }
}

#[test]
fn a_step_table_with_impossible_times_is_refused() {
    let folder = Folder::new();
    let file = folder.write("chat.csv", steps("llama-2-70b", 121, 20));
    assert_eq!(run(&["ingest", &file, "--out", &folder.path("out"), "--hardware", "h100"]).code, 0);
    let table = folder.read("out/steps.csv");
    for time in ["1e-308", "1e300", "inf", "0", "1e13"] {
        let text = table.replacen(",20000.0,", &format!(",{time},"), 1);
        assert_ne!(text, table);
        evaluate(&folder, &text, &["--plot", &folder.path("plots")])
            .fails(1, &["column 'period_us'", "a number from 1e-3 to 1e12 µs"]);
    }
}

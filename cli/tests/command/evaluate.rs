//! `ridgepoint evaluate serving` and `closed-loop` on made-up runs: tables, JSON, and what is refused.

use crate::cli_support;
use crate::evaluate_support;

use std::path::Path;

use cli_support::{Run, run};
use evaluate_support::{LOOP_HEADER, MEASURED, PROFILE, SERVER, loop_row, write, write_plain};
use tempfile::tempdir;

fn serving(paths: &[&Path], more: &[&str]) -> Run {
    let mut args = vec!["evaluate", "serving"];
    args.extend(paths.iter().map(|path| path.to_str().unwrap()));
    args.extend(more);
    run(&args)
}

fn closed_loop(text: &str, more: &[&str]) -> Run {
    let dir = tempdir().unwrap();
    let path = dir.path().join("loops.csv");
    std::fs::write(&path, text).unwrap();
    run(&[&["evaluate", "closed-loop", path.to_str().unwrap()], more].concat())
}

#[test]
fn json_has_the_keys_of_the_contract() {
    let dir = tempdir().unwrap();
    for name in ["a", "b"] {
        write_plain(dir.path(), name);
    }
    let json = serving(&[dir.path()], &["--correction", "none", "--format", "json"]).json();
    let experiments = json["experiments"].as_array().unwrap();
    assert_eq!((experiments[0]["name"].as_str(), experiments[1]["name"].as_str()), (Some("a"), Some("b")));
    let row = &experiments[0]["metrics"][0];
    assert_eq!((row["stage"].as_i64(), row["metric"].as_str()), (Some(-1), Some("e2e_mean")));
    assert_eq!(row["measured_ms"].as_f64(), Some(400.0));
    let (predicted_ms, error_pct) = (row["predicted_ms"].as_f64().unwrap(), row["error_pct"].as_f64().unwrap());
    assert!((error_pct - (predicted_ms - 400.0) / 4.0).abs() < 1e-9, "{row}");
    assert_eq!(row["ape_pct"].as_f64(), Some(error_pct.abs()));
    for baseline in ["ideal_roofline", "black_box"] {
        assert!(row["baselines"][baseline].as_f64().unwrap() > 0.0, "{row}");
        assert!(json["baselines"][baseline]["e2e_mean"]["median_ape_pct"].is_number(), "{baseline}");
    }
    for metric in ["e2e_mean", "ttft_mean", "itl_mean"] {
        for key in ["median_ape_pct", "mean_ape_pct", "max_ape_pct", "bias_pct"] {
            assert!(json["summary"][metric][key].is_number(), "{metric} {key}");
        }
    }
    assert_eq!(json["summary_by_stage"]["ttft_mean"]["rows"].as_u64(), Some(4));
    for experiment in experiments {
        assert_eq!(experiment["correction"], serde_json::json!({"name": null, "level": "none"}));
        assert!(experiment["metrics"][0]["baselines"].get("calibrated_roofline").is_none());
    }
    assert!(json.get("split").is_none());
}

#[test]
fn the_table_has_stages_baselines_and_a_summary() {
    let dir = tempdir().unwrap();
    let run = serving(&[&write_plain(dir.path(), "chat")], &["--split", "workload"]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    for text in [
        "correction: global",
        "calibrated",
        "chat  all    e2e_mean",
        "      1      ttft_mean",
        "ideal roofline",
        "(single stages)",
        "300 in, 40 out (1 run): e2e_mean",
        "no black box",
    ] {
        assert!(run.stdout.contains(text), "'{text}' is not in: {}", run.stdout);
    }
    let line = run.stdout.lines().find(|line| line.starts_with("chat  all    e2e_mean")).unwrap();
    assert!(line.contains("400.00") && (line.contains(" -") || line.contains(" +")), "{line}");
}

#[test]
fn attribution_judges_predictions_with_a_component_replaced() {
    let dir = tempdir().unwrap();
    let path = write_plain(dir.path(), "a");
    let json = serving(&[&path], &["--attribute", "--correction", "none", "--format", "json"]).json();
    let replaced = ["scaled_step_times", "no_limits", "no_prefix_caching", "no_preemption", "no_async_scheduling"];
    let host = ["no_queueing", "no_scheduling", "no_output_processing", "no_host_overhead"];
    for baseline in replaced.into_iter().chain(host) {
        assert!(json["baselines"][baseline]["e2e_mean"]["median_ape_pct"].is_number(), "{baseline}");
    }
    assert!(json["baselines"]["no_kv_offload"].is_null(), "a server without a tier");
    let server = format!("{SERVER}kv_offloading_size: 4\n");
    let tier = write(dir.path(), "tier", PROFILE, &server, MEASURED);
    let json = serving(&[&tier], &["--attribute", "--correction", "none", "--format", "json"]).json();
    for baseline in ["no_kv_offload", "no_kv_transfer_time"] {
        assert!(json["baselines"][baseline]["e2e_mean"]["median_ape_pct"].is_number(), "{baseline}");
    }
    assert!(json["baselines"]["no_kv_disk"].is_null(), "a tier without a disk");
    let extra =
        "{spec_name: TieringOffloadingSpec, num_cpu_blocks: 2000, secondary_tiers: [{type: fs, root_dir: /kv}]}";
    let disk = format!(
        "{SERVER}kv_transfer_config: {{kv_connector: OffloadingConnector, kv_connector_extra_config: {extra}}}\n"
    );
    let disk = write(dir.path(), "disk", PROFILE, &disk, MEASURED);
    let json = serving(&[&disk], &["--attribute", "--correction", "none", "--format", "json"]).json();
    assert!(json["baselines"]["no_kv_disk"]["e2e_mean"]["median_ape_pct"].is_number());
    let table = serving(&[&path], &["--attribute", "--correction", "none"]);
    assert_eq!((table.code, table.stderr.as_str()), (0, ""));
    for text in ["scaled step times", "no prefix caching", "no output processing"] {
        assert!(table.stdout.contains(text), "'{text}' is not in: {}", table.stdout);
    }
}

#[test]
fn a_missed_tolerance_exits_with_1_after_the_result() {
    let dir = tempdir().unwrap();
    let path = write_plain(dir.path(), "a");
    let missed = serving(&[&path], &["--correction", "none", "--max-median-e2e-pct", "0.001"]);
    assert_eq!(missed.code, 1);
    assert!(missed.stdout.contains("e2e_mean"), "{}", missed.stdout);
    assert!(missed.stderr.contains("above the tolerance of 0.001 %"), "{}", missed.stderr);
    assert_eq!(serving(&[&path], &["--correction", "none", "--max-median-e2e-pct", "1000"]).code, 0);
    let without = MEASURED.replace("-1,e2e_mean,400\n", "");
    let path = write(dir.path(), "b", PROFILE, SERVER, &without);
    let missed = serving(&[&path], &["--max-median-e2e-pct", "1000"]);
    assert!(missed.code == 1 && missed.stderr.contains("no run has a measured e2e_mean"), "{}", missed.stderr);
}

#[test]
fn a_scorecard_fails_where_a_run_does() {
    let dir = tempdir().unwrap();
    write_plain(&dir.path().join("serving"), "mixtral-general");
    write(&dir.path().join("serving-2"), "b", PROFILE, SERVER, &MEASURED.replace("e2e_mean,400", "e2e_mean,4000"));
    let data = dir.path().to_str().unwrap();
    let card = run(&["evaluate", "scorecard", data, "--correction", "none", "--format", "json"]);
    assert_eq!(card.code, 1, "{}", card.stderr);
    assert!(card.stderr.contains("E2E mean within 10 %: "), "{}", card.stderr);
    let json: serde_json::Value = serde_json::from_str(&card.stdout).unwrap();
    let runs = json["experiments"].as_array().unwrap();
    assert_eq!((runs[0]["name"].as_str(), runs[1]["name"].as_str()), (Some("mixtral-general"), Some("b")));
    assert!(runs[1]["e2e_mean_pct"].as_f64().unwrap() < -80.0 && runs[1]["passed_p1"] == false, "{}", runs[1]);
    assert_eq!((json["passed"].as_bool(), json["passed_p1"].as_u64().unwrap() < 2), (Some(false), true));
    assert_eq!(json["paper"].as_array().unwrap().len(), 16);
    assert!(json["transfers"][0]["errors"].is_null() && json["coverage"].is_array());
    let table = run(&["evaluate", "scorecard", data, "--correction", "none"]);
    for text in ["FAIL", "no data", "h100_sxm to a100_sxm", "P1 (E2E within 10 %): "] {
        assert!(table.stdout.contains(text), "'{text}' is not in: {}", table.stdout);
    }
    run(&["evaluate", "scorecard", "nowhere"]).fails(1, &["nowhere"]);
}

#[test]
fn bad_experiments_are_refused_with_every_problem() {
    let dir = tempdir().unwrap();
    serving(&[dir.path()], &[]).fails(1, &["no experiment", "measured.csv"]);
    serving(&[&dir.path().join("nowhere")], &[]).fails(1, &["nowhere"]);
    write(dir.path(), "a", PROFILE, SERVER, &MEASURED.replace("400", "-400"));
    write(dir.path(), "b", &PROFILE.replace("rate: 2", "rate: 0"), SERVER, MEASURED);
    serving(&[dir.path()], &[]).fails(1, &["row 1: column 'value_ms': found -400", "b/profile.yaml", "rate"]);
    let path = write_plain(dir.path(), "c");
    serving(&[&path], &["--correction", "mine.toml"]).fails(1, &["correction", "mine.toml", "none, global, auto"]);
    serving(&[&path], &["--split", "gpu"]).fails(2, &["gpu", "model, workload, hardware, backend-version"]);
    serving(&[&path], &["--max-median-e2e-pct", "-1"]).fails(2, &["at least 0"]);
    serving(&[], &[]).fails(2, &["<PATH>"]);
    run(&["evaluate"]).fails(2, &["serving", "closed-loop"]);
}

#[test]
fn a_model_that_is_not_known_is_listed_and_the_others_run() {
    let dir = tempdir().unwrap();
    write_plain(dir.path(), "a");
    write(dir.path(), "b", PROFILE, &SERVER.replace("llama-3.1-8b", "acme-7b"), MEASURED);
    let run = serving(&[dir.path()], &["--correction", "none", "--format", "json"]);
    assert!(run.stderr.contains("1 of 2 runs could not be judged"), "{}", run.stderr);
    let json = run.json();
    assert_eq!((json["experiments"].as_array().unwrap().len(), json["skipped"][0]["id"].as_str()), (1, Some("b")));
    assert!(json["skipped"][0]["reason"].as_str().unwrap().contains("acme-7b"));
}

#[test]
fn closed_loop_rows_are_judged_or_listed_with_their_reason() {
    let text =
        [LOOP_HEADER, &loop_row("a", "vllm", 4), &loop_row("b", "trtllm", 4), &loop_row("c", "vllm", 8)].concat();
    let json = closed_loop(
        &text,
        &["--correction", "none", "--backend", "vllm", "--split", "backend-version", "--format", "json"],
    )
    .json();
    let experiments = json["experiments"].as_array().unwrap();
    let names: Vec<&str> = experiments.iter().map(|experiment| experiment["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["a", "c"]);
    let metrics = experiments[0]["metrics"].as_array().unwrap();
    let found: Vec<(i64, &str)> =
        metrics.iter().map(|row| (row["stage"].as_i64().unwrap(), row["metric"].as_str().unwrap())).collect();
    assert_eq!(found, [(-1, "ttft_mean"), (-1, "tpot_mean")]);
    assert_eq!(metrics[1]["measured_ms"].as_f64(), Some(8.25));
    assert_eq!(json["skipped"][0]["id"], "b");
    assert!(json["skipped"][0]["reason"].as_str().unwrap().starts_with("backend: 'trtllm'"));
    assert_eq!(json["split"]["groups"]["0.12.0"]["experiments"].as_u64(), Some(2));

    let all = closed_loop(&text, &["--correction", "none"]);
    assert_eq!((all.code, all.stderr.as_str()), (0, ""));
    for text in ["measured ms", "black box", "ttft_mean", "tpot_mean"] {
        assert!(all.stdout.contains(text), "'{text}' is not in: {}", all.stdout);
    }
    assert!(all.stdout.lines().any(|line| line.starts_with("b ") && line.contains("30.50")), "{}", all.stdout);
}

#[test]
fn the_seed_moves_random_lengths_and_nothing_else() {
    let text = [LOOP_HEADER, &loop_row("a", "vllm", 4).replace(",256,32,", ",1024,1024,")].concat();
    let with = |seed: &str| closed_loop(&text, &["--seed", seed, "--format", "json"]).stdout;
    assert_eq!(with("1"), with("1"));
    assert_ne!(with("1"), with("2"));
}

#[test]
fn bad_closed_loop_files_are_refused() {
    let with = |rows: &[String]| closed_loop(&[LOOP_HEADER, &rows.concat()].concat(), &[]);
    let good = loop_row("a", "vllm", 4);
    with(&[]).fails(1, &["loops.csv", "no rows"]);
    with(&[good.clone(), good.clone()]).fails(1, &["row 2", "'id'", "found a"]);
    with(&[good.replace(",4,1,1,", ",four,1,1,")]).fails(1, &["row 1", "'concurrency'", "found four"]);
    with(&[good.replace("30.5", "")]).fails(1, &["row 1", "'ttft_ms'", "found nothing"]);
    let other = closed_loop(&[LOOP_HEADER, &loop_row("a", "sglang", 4)].concat(), &["--backend", "vllm"]);
    other.fails(1, &["nothing could be judged", "backend: 'sglang'"]);
    closed_loop("id,isl\na,1\n", &[]).fails(1, &["'concurrency' is missing"]);
    let separate = LOOP_HEADER.replace("concurrency", "mode,decode_num_workers");
    closed_loop(&separate, &[])
        .fails(1, &["loops.csv", "separate workers are not modelled here", "'decode_num_workers'"]);
    run(&["evaluate", "closed-loop", "/nowhere.csv"]).fails(1, &["/nowhere.csv"]);
}

#[test]
fn plots_of_runs_are_whole_files() {
    let dir = tempdir().unwrap();
    write_plain(dir.path(), "a");
    let plots = dir.path().join("plots");
    let run = serving(&[&dir.path().join("a")], &["--correction", "none", "--plot", plots.to_str().unwrap()]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    let svg = std::fs::read_to_string(plots.join("serving-predicted-over-measured.svg")).unwrap();
    assert!(svg.trim_end().ends_with("</svg>"));
}

#[test]
fn every_help_has_examples() {
    for command in ["serving", "closed-loop", "steps"] {
        let help = run(&["evaluate", command, "--help"]);
        assert_eq!((help.code, help.stderr.as_str()), (0, ""));
        assert!(help.stdout.contains("Examples:"), "{command}");
        assert!(help.stdout.contains(&format!("ridgepoint evaluate {command}")), "{command}");
    }
    assert!(run(&["evaluate", "--help"]).stdout.contains("Examples:"));
}

#[test]
fn predictions_have_intervals_and_summaries_their_coverage() {
    let dir = tempdir().unwrap();
    let path = write_plain(dir.path(), "a");
    for correction in ["none", "global"] {
        let json = serving(&[&path], &["--correction", correction, "--format", "json"]).json();
        let rows = json["experiments"][0]["metrics"].as_array().unwrap();
        let of = |row: &serde_json::Value, key: &str| row[key].as_f64().unwrap();
        for row in rows {
            let (lower, predicted, upper) = (of(row, "lower_ms"), of(row, "predicted_ms"), of(row, "upper_ms"));
            assert!(0.0 < lower && lower < predicted && predicted < upper, "{row}");
        }
        for metric in ["e2e_mean", "ttft_mean", "itl_mean"] {
            let is_of = |row: &&serde_json::Value| row["stage"] == -1 && row["metric"] == metric;
            let row = rows.iter().find(is_of).unwrap();
            let measured = of(row, "measured_ms");
            let is_held = of(row, "lower_ms") <= measured && measured <= of(row, "upper_ms");
            let expected = if is_held { 100.0 } else { 0.0 };
            assert_eq!(json["summary"][metric]["coverage_pct"].as_f64(), Some(expected), "{metric}: {row}");
            assert!(json["baselines"]["ideal_roofline"][metric].get("coverage_pct").is_none());
        }
        let width = |metric: &str| {
            let row = rows.iter().find(|row| row["stage"] == -1 && row["metric"] == metric).unwrap();
            of(row, "upper_ms") / of(row, "predicted_ms")
        };
        // What is left of TTFT scatters more than what is left of steps.
        assert!(width("ttft_mean") > width("e2e_mean") + 1e-9);
    }
}

#[test]
fn leaving_out_fits_anew_and_needs_two_groups() {
    let dir = tempdir().unwrap();
    write_plain(dir.path(), "a");
    let all = [dir.path()];
    let conflict = serving(&all, &["--leave-one-out", "model", "--correction", "global"]);
    conflict.fails(2, &["--leave-one-out", "--correction"]);
    serving(&all, &["--leave-one-out", "stage"]).fails(2, &["stage", "model, workload, hardware"]);
    for group in ["model", "workload", "experiment"] {
        let one = serving(&all, &["--leave-one-out", group]);
        one.fails(1, &["runs to leave out", "leaving it out leaves nothing to fit on"]);
    }
    // Runs of the same model stay one group, and are two experiments.
    write_plain(dir.path(), "b");
    serving(&all, &["--leave-one-out", "model"]).fails(1, &["llama-3.1-8b", "leaves nothing to fit on"]);
    let json = serving(&all, &["--leave-one-out", "experiment", "--format", "json"]).json();
    for (index, name) in ["all but a", "all but b"].into_iter().enumerate() {
        assert_eq!(json["experiments"][index]["correction"]["name"], name);
        assert!(json["experiments"][index]["metrics"][0]["baselines"]["calibrated_roofline"].is_number());
    }
}

#[test]
fn times_that_no_clock_measures_are_refused() {
    let dir = tempdir().unwrap();
    for time in ["1e-308", "1e308", "1e300", "1e-9"] {
        let path = write(dir.path(), "a", PROFILE, SERVER, &MEASURED.replace("400", time));
        let said = ["measured.csv: row 1: column 'value_ms'", "a number from 1e-6 to 1e9 ms"];
        serving(&[&path], &["--plot", dir.path().join("plots").to_str().unwrap()]).fails(1, &said);
        let out = dir.path().join("mine.toml");
        run(&["fit", "--serving", path.to_str().unwrap(), "--out", out.to_str().unwrap()]).fails(1, &said);
        assert!(!out.exists());
        let text = format!("{LOOP_HEADER}{}", loop_row("a", "vllm", 4).replace("8.25", time));
        closed_loop(&text, &[]).fails(1, &["loops.csv: row 1: column 'tpot_ms'", "from 1e-6 to 1e9 ms"]);
    }
}

#[test]
fn the_longest_and_the_shortest_times_are_drawn_and_finite() {
    let dir = tempdir().unwrap();
    for time in ["1e-6", "1e9"] {
        let path = write(dir.path(), "a", PROFILE, SERVER, &MEASURED.replace("400", time).replace(",20\n", ",1e-6\n"));
        let plots = dir.path().join("plots");
        let run = serving(&[&path], &["--plot", plots.to_str().unwrap(), "--correction", "none"]);
        assert_eq!(run.code, 0, "{}", run.stderr);
        assert!(!run.stdout.contains("inf %") && !run.stdout.contains("NaN"), "{}", run.stdout);
        let json = serving(&[&path], &["--format", "json", "--correction", "none"]).json();
        assert!(json["experiments"][0]["metrics"][0]["error_pct"].is_number(), "{json}");
        let svg = std::fs::read_to_string(plots.join("serving-predicted-over-measured.svg")).unwrap();
        assert!(svg.contains("</svg>") && svg.len() < 100_000);
        std::fs::remove_dir_all(plots).unwrap();
    }
}

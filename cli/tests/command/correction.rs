//! `--correction` of `predict-step` and `simulate`: its choice, its effect, and what is refused.

use crate::cli_support;

use cli_support::{Folder, Run, run};
use ridgepoint::Correction;
use ridgepoint::correction::{Level, Scatter, Term, builtin_corrections};
use ridgepoint::latency::HostTimes;
use serde_json::{Value, json};

const LLAMA: &str = "--model llama-3.1-8b --hardware h100";

fn command(subcommand: &str, line: &str) -> Run {
    run(&[&[subcommand][..], &line.split_ascii_whitespace().collect::<Vec<_>>()].concat())
}

fn step(line: &str) -> Value {
    command("predict-step", &format!("{line} --format json")).json()
}

fn time_us(json: &Value) -> f64 {
    json["step_time_us"].as_f64().unwrap()
}

/// The file of a correction that changes nothing but what `change` does.
fn file(folder: &Folder, name: &str, change: impl FnOnce(&mut Correction)) -> String {
    let mut correction = Correction::neutral();
    correction.source.hardware = vec!["h100_sxm".to_owned()];
    change(&mut correction);
    folder.write(name, correction.to_toml_string().unwrap())
}

#[test]
fn a_file_adds_what_it_says_and_is_named() {
    let folder = Folder::new();
    let plain = step(&format!("{LLAMA} --decode 32x1000 --correction none"));
    assert_eq!(plain["correction"], json!({"name": null, "level": "none"}));
    let path = file(&folder, "mine.toml", |correction| {
        correction.coefficients[Term::Steps.index()] = 1000.0;
        correction.coefficients[Term::Requests.index()] = 2.5;
        correction.coefficients[Term::SmallKernels.index()] = 2.0;
    });
    let corrected = step(&format!("{LLAMA} --decode 32x1000 --correction {path}"));
    assert_eq!(corrected["correction"], json!({"name": path, "level": "global"}));
    let group_us = |json: &Value, name: Value| {
        let groups = json["groups"].as_array().unwrap();
        groups.iter().find(|group| group["group"] == name).map_or(0.0, |group| group["time_us"].as_f64().unwrap())
    };
    let small_us = group_us(&plain, json!("small_kernels"));
    assert!(small_us > 10.0, "{small_us}");
    assert!((group_us(&corrected, json!("small_kernels")) - 2.0 * small_us).abs() < 1e-6);
    // 1,000 µs a step and 2.5 µs for each of 32 requests.
    assert!((group_us(&corrected, Value::Null) - 1080.0).abs() < 1e-6, "{}", corrected["groups"]);
    assert!((time_us(&corrected) - time_us(&plain) - small_us - 1080.0).abs() < 1e-6);
    let learned: Vec<(&str, f64)> = corrected["operators"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|operator| operator["provenance"] == "learned")
        .map(|operator| (operator["name"].as_str().unwrap(), operator["time_us"].as_f64().unwrap()))
        .collect();
    assert_eq!(learned, [("per_step", 1000.0), ("per_request", 80.0)]);
}

#[test]
fn top_p_of_the_models_own_defaults_is_priced_and_explained() {
    let folder = Folder::new();
    let path = file(&folder, "mine.toml", |correction| correction.coefficients[Term::Sampling.index()] = 2.0);
    let line = format!("{LLAMA} --engine-version 0.15 --decode 10x1000 --correction {path}");
    let sorted = step(&line);
    let neutral = step(&format!("{line} --generation-config vllm"));
    // Ten rows of 128,256 logits. The sort moves 156 bytes a logit at half of 3.35 TB/s, sum and mask 54 at 0.85 of it. Tiles of 1.25 µs:
    // 126 of the sum, 24 of the mask's softmax. 19 launches of 1.85 µs. The correction doubles all of it.
    let expected_us = 1.282_56 * (156.0 / (0.5 * 3.35) + 54.0 / (0.85 * 3.35)) + 150.0 * 1.25 + 19.0 * 1.85;
    assert!((time_us(&sorted) - time_us(&neutral) - 2.0 * expected_us).abs() < 1e-6);
    let table = command(
        "predict-step",
        &format!("{LLAMA} --engine-version 0.15 --decode 128x1000 --correction {path} --explain"),
    );
    for said in ["correction ", "mine.toml (for any model)", "- top_p_sort ("] {
        assert!(table.stdout.contains(said), "'{said}' is not in {}", table.stdout);
    }
    assert!(table.stdout.contains("--generation-config"), "{}", table.stdout);
}

#[test]
fn auto_is_the_models_own_else_the_global_one() {
    let corrections = builtin_corrections().unwrap();
    let has_own = |model: &str| corrections.iter().any(|correction| correction.name == model);
    let without = ridgepoint::model::builtin_names().into_iter().find(|name| !has_own(name)).unwrap();
    let line = format!("--model {without} --hardware h200 --tp 8 --decode 8x500");
    let auto = step(&line);
    assert_eq!(auto["correction"], json!({"name": "global", "level": "global"}));
    assert_eq!(auto, step(&format!("{line} --correction global")));
    assert!(!auto["warnings"].to_string().contains("no correction"), "{}", auto["warnings"]);
    for own in corrections.iter().filter(|correction| correction.level != Level::Global) {
        let json = step(&format!("--model {} --hardware h200 --tp 4 --decode 8x500", own.name));
        assert_eq!(json["correction"], json!({"name": own.name, "level": "model"}));
    }
}

#[test]
fn a_correction_of_other_gpus_is_carried_over_with_a_warning() {
    let folder = Folder::new();
    let path = file(&folder, "mine.toml", |_| ());
    let warned = |gpu: &str| {
        let json = step(&format!("--model llama-3.1-8b --hardware {gpu} --decode 8x500 --correction {path}"));
        json["warnings"].to_string().contains("was fitted on h100_sxm and is carried over")
    };
    assert!(!warned("h100") && warned("l40s"));
}

/// The flags of `vllm-0.24`.
fn engine_flags(engine: &str) -> String {
    let (name, version) = engine.split_once('-').unwrap();
    format!("--engine {name} --engine-version {version}")
}

#[test]
fn a_correction_of_another_version_is_carried_over_with_one_warning() {
    let folder = Folder::new();
    for (fitted, engine, said) in [
        ("0.15.1", "vllm-0.24", Some("was fitted on vllm-0.15 and is carried over to vllm-0.24")),
        ("vllm-0.24", "vllm-0.14", Some("was fitted on vllm-0.24 and is carried over to vllm-0.14")),
        ("0.14.0", "sglang-0.5", Some("was fitted on vllm-0.14 and is carried over to sglang-0.5")),
        ("0.24.3", "vllm-0.24", None),
        ("a nightly", "vllm-0.24", None),
    ] {
        let path = file(&folder, "mine.toml", |correction| correction.source.engine_versions = vec![fitted.to_owned()]);
        let warnings = |gpu: &str| {
            let line = format!(
                "--model llama-3.1-8b --hardware {gpu} --decode 8x500 --correction {path} {}",
                engine_flags(engine)
            );
            let json = step(&line);
            let all = json["warnings"].as_array().unwrap().iter().map(|warning| warning.as_str().unwrap().to_owned());
            all.filter(|warning| warning.contains("carried over")).collect::<Vec<_>>()
        };
        match (said, warnings("h100").as_slice()) {
            (Some(said), [warning]) => assert!(warning.contains(said), "{warning}"),
            (said, warnings) => assert!(said.is_none() && warnings.is_empty(), "{fitted} {engine}: {warnings:?}"),
        }
        let [warning] = warnings("l40s").try_into().unwrap();
        assert!(warning.contains("was fitted on h100_sxm") && warning.contains("l40s"), "{warning}");
        assert_eq!(warning.contains(" with "), said.is_some(), "{warning}");
    }
    // What is built in was fitted on vLLM 0.15, which its documentation says.
    let built_in =
        step("--model llama-3.1-8b --hardware h100 --decode 8x500 --correction global --engine-version 0.24");
    assert!(!built_in["warnings"].to_string().contains("carried over"), "{}", built_in["warnings"]);
}

#[test]
fn a_file_that_is_missing_or_is_no_correction_is_refused() {
    let folder = Folder::new();
    let of = |path: &str| command("predict-step", &format!("{LLAMA} --decode 1x5 --correction {path}"));
    of("nowhere.toml").fails(1, &["correction: 'nowhere.toml'", "none, global, auto or the path of a file"]);
    of(&folder.write("torn.toml", "level = ")).fails(1, &["torn.toml", "line 1"]);
    of(&folder.write("other.toml", "colour = \"red\"\n")).fails(1, &["other.toml", "colour"]);
    let good = Correction::neutral().to_toml_string().unwrap();
    let broken = good
        .replace("level = \"global\"", "level = \"galactic\"")
        .replace("[coefficients.projections]\nvalue = 1.0", "[coefficients.projections]\nvalue = 7.0")
        .replace("[coefficients.step_us]\nvalue = 0.0", "[coefficients.step_us]\nvalue = -3.0")
        .replace("[coefficients.prompt_token_us]", "[coefficients.prompt_tokens_us]")
        .replace("scheduling_us = 1000.0", "scheduling_us = -1.0")
        .replace("step = 0.03", "step = 30.0");
    of(&folder.write("broken.toml", broken)).fails(
        1,
        &[
            "broken.toml",
            "level = 'galactic'",
            "coefficients.projections.value = 7 must be from 0.3 to 3",
            "coefficients.step_us.value = -3 must be from 0 to",
            "coefficients.prompt_tokens_us is not known",
            "coefficients.prompt_token_us is missing",
            "host.scheduling_us = -1 must be from 0 to",
            "scatter.step = 30 must be from 0 to 3",
        ],
    );
}

#[test]
fn a_file_of_another_model_is_refused() {
    let folder = Folder::new();
    let path = file(&folder, "mine.toml", |correction| {
        correction.level = Level::Model { model: "qwen3-32b".to_owned() };
    });
    let said =
        ["mine.toml", "is meant for qwen3-32b and not for llama-3.1-8b", "the global correction is for any model"];
    command("predict-step", &format!("{LLAMA} --decode 1x5 --correction {path}")).fails(1, &said);
    let load = "--concurrency 2 --input-len 10 --output-len 5";
    command("simulate", &format!("{LLAMA} {load} --correction {path}")).fails(1, &said);
    let own = step(&format!("--model qwen3-32b --hardware h100 --decode 1x5 --correction {path}"));
    assert_eq!(own["correction"]["level"], "model");
}

#[test]
fn nothing_is_learned_on_top_of_the_textbook_roofline() {
    let ideal = format!("{LLAMA} --decode 1x5 --efficiency ideal");
    let none = json!({"name": null, "level": "none"});
    assert_eq!(step(&ideal)["correction"], none);
    assert_eq!(step(&format!("{ideal} --correction none"))["correction"], none);
    let said = ["correction: 'global' requires calibrated tables", "see --correction"];
    command("predict-step", &format!("{ideal} --correction global")).fails(1, &said);
    let load = "--concurrency 2 --input-len 10 --output-len 5 --efficiency ideal";
    command("simulate", &format!("{LLAMA} {load} --correction global")).fails(1, &said);
}

#[test]
fn a_simulation_takes_steps_and_host_times_of_its_correction() {
    let folder = Folder::new();
    let host = HostTimes { queueing_us: 50_000.0, ..HostTimes::default() };
    let slow = file(&folder, "slow.toml", |correction| {
        correction.host = host;
        correction.coefficients[Term::Steps.index()] = 2000.0;
    });
    let load = "--concurrency 1 --num-requests 3 --input-len 100 --output-len 11";
    let replayed = |correction: &str| {
        command("simulate", &format!("{LLAMA} {load} --correction {correction} --format json")).json()
    };
    let (plain, corrected) = (replayed("none"), replayed(&slow));
    let added_ms = |metric: &str| {
        let mean = |json: &Value| json["stages"][0][metric]["mean"].as_f64().unwrap();
        mean(&corrected) - mean(&plain)
    };
    // 48.7 ms more until the engine has the request, and each step 2 ms longer.
    assert!((added_ms("ttft_ms") - 50.7).abs() < 0.01, "{}", added_ms("ttft_ms"));
    assert!((added_ms("tpot_ms") - 2.0).abs() < 0.01, "{}", added_ms("tpot_ms"));
    assert_eq!(corrected["correction"], json!({"name": slow, "level": "global"}));
    assert_eq!(plain["correction"], json!({"name": null, "level": "none"}));
    let table = command("simulate", &format!("{LLAMA} {load} --correction global"));
    assert!(table.stdout.contains("with the correction global, host overheads included"), "{}", table.stdout);
}

#[test]
fn intervals_of_a_simulation_are_those_of_its_correction() {
    let folder = Folder::new();
    // Coefficients that are known exactly, for tables of the fitted GPU: the scatter is all that is left.
    let path = file(&folder, "mine.toml", |correction| {
        correction.covariance = Correction::neutral().covariance.map(|row| row.map(|_| 0.0));
        correction.scatter = Scatter { step: 0.04, ttft: 0.1 };
    });
    let load = "--concurrency 2 --num-requests 4 --input-len 100 --output-len 11";
    let intervals = |correction: &str| {
        let json = command("simulate", &format!("{LLAMA} {load} --correction {correction} --format json")).json();
        ["ttft", "tpot", "itl", "e2e"].map(|metric| {
            let of = |end: &str| json["intervals"][metric][end].as_f64().unwrap();
            (of("lower_factor"), of("upper_factor"))
        })
    };
    let [ttft, tpot, itl, e2e] = intervals(&path);
    assert_eq!((itl, e2e), (tpot, tpot));
    for ((lower, upper), sd) in [(ttft, 0.1f64), (tpot, 0.04)] {
        // Tables that are held at their edge may widen it a little, and nothing makes it narrower.
        assert!(upper >= (1.645 * sd).exp() - 1e-12 && upper < (1.645 * 1.5 * sd).exp(), "{upper} at {sd}");
        assert!((lower * upper - 1.0).abs() < 1e-12, "{lower} {upper}");
    }
    // Without a correction, an interval is that of the tables with what it lacked on public runs.
    let json = command("simulate", &format!("{LLAMA} {load} --correction none --format json")).json();
    for metric in ["ttft", "tpot"] {
        let of = |end: &str| json["intervals"][metric][end].as_f64().unwrap();
        let (lower, upper) = (of("lower_factor"), of("upper_factor"));
        assert!(lower + upper >= 2.0 - 1e-12 && upper > 1.02 && upper < 1.6, "{metric}: {lower} {upper}");
    }
}

#[test]
fn a_correction_beyond_all_sense_is_refused_and_no_interval_is_infinite() {
    let folder = Folder::new();
    let good = Correction::neutral().to_toml_string().unwrap();
    let changed = |from: &str, to: &str| {
        assert!(good.contains(from), "{from}");
        folder.write("bad.toml", good.replacen(from, to, 1))
    };
    for (from, to, said) in [
        ("sd = 300.0", "sd = 1e7", "coefficients.step_us.sd = 10000000 must be from 0 to 30000"),
        ("value = 0.0", "value = 1e308", "_us.value = 1000"),
        ("scheduling_us = 1000.0", "scheduling_us = 1e300", "host.scheduling_us = 1000"),
    ] {
        let path = changed(from, to);
        command("predict-step", &format!("{LLAMA} --decode 8x100 --correction {path}")).fails(1, &["bad.toml", said]);
    }
    // The most that a file may have.
    let wide = file(&folder, "wide.toml", |correction| {
        for term in Term::ALL {
            correction.covariance[term.index()][term.index()] = (99.0 * term.prior_sd()).powi(2);
        }
    });
    let step = step(&format!("{LLAMA} --decode 8x100 --correction {wide}"));
    assert!(step["upper_us"].is_number() && step["lower_us"].is_number(), "{step}");
}

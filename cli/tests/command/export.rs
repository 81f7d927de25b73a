//! Exports for other simulators: the JSON evaluated by the rule that docs/export.md states, the example there, the Go file.

use crate::cli_support;

use std::process::Command;

use cli_support::{Folder, run};
use ridgepoint::internals::correction::{Correction, HostTimes, Term};
use ridgepoint::{CorrectionChoice, Options};
use ridgepoint::{Deployment, Hardware, Model, Request, StepModel};
use serde_json::Value;

const DOCS: &str = include_str!("../../../docs/export.md");

fn export(line: &str) -> cli_support::Run {
    run(&[&["fit", "--export"][..], &line.split_ascii_whitespace().collect::<Vec<_>>()].concat())
}

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect()
}

fn number(value: &Value, key: &str) -> f64 {
    value[key].as_f64().unwrap()
}

fn around(at: &[f64], x: f64) -> (usize, usize, f64) {
    let upper = at.iter().position(|point| *point >= x).unwrap_or(at.len() - 1).max(1);
    (upper - 1, upper, ((x - at[upper - 1]) / (at[upper] - at[upper - 1])).max(0.0))
}

fn line(table: &Value, x: f64) -> f64 {
    let (at, times) = (numbers(&table["at"]), numbers(&table["time_us"]));
    if x <= number(table, "padded_up_to") {
        return times[at.iter().position(|point| *point >= x).unwrap()];
    }
    let (i, j, way) = around(&at, x);
    (times[i] + way * (times[j] - times[i])).max(0.0)
}

fn sheet(table: &Value, row: f64, column: f64) -> f64 {
    let (i, j, down) = around(&numbers(&table["rows"]), row);
    let (k, l, right) = around(&numbers(&table["columns"]), column);
    let of = |r: usize| {
        let times = numbers(&table["time_us"][r]);
        times[k] + right * (times[l] - times[k])
    };
    (of(i) + down * (of(j) - of(i))).max(0.0)
}

/// The documented rule, from the JSON alone.
fn step_us(e: &Value, batch: &[Request]) -> f64 {
    let (decodes, chunks): (Vec<&Request>, Vec<&Request>) = batch.iter().partition(|r| r.is_decode());
    let (n, chunk_count) = (decodes.len() as f64, chunks.len() as f64);
    let tokens: f64 = batch.iter().map(|r| f64::from(r.num_scheduled_tokens)).sum();
    let sampled = batch.iter().filter(|r| r.samples).count() as f64;
    let price = |key| number(&e["prices"], key);
    let mut us = price("step_us") + price("request_us") * (n + chunk_count) + price("token_us") * tokens;
    us += price("chunk_us") * chunk_count + price("sampled_us") * sampled;
    if n > 0.0 {
        let computed: f64 = decodes.iter().map(|r| f64::from(r.num_computed_tokens)).sum();
        us += sheet(&e["decode_attention"], n, computed / n);
    }
    if chunks.is_empty() {
        return us + line(&e["decode_only"], n);
    }
    let sum = |of: fn(f64, f64) -> f64| -> f64 {
        chunks.iter().map(|r| of(f64::from(r.num_scheduled_tokens), f64::from(r.num_computed_tokens))).sum()
    };
    let scheduled = sum(|q, _| q);
    let q = scheduled / chunk_count;
    let c = sum(|q, c| q * c + q * q / 2.0) / scheduled - q / 2.0;
    let further_us = (chunk_count - 1.0) * sheet(&e["further_chunk_attention"], q, c);
    let beside_us = if n > 0.0 { number(e, "saved_beside_decodes_us") } else { 0.0 };
    let attention_us = (sheet(&e["chunk_attention"], q, c) + further_us - beside_us).max(0.0);

    let sampled_us = if sampled > 0.0 { line(&e["sampled"], sampled) } else { 0.0 };
    us + price("step_with_chunks_us") + line(&e["with_chunks"], tokens) + sampled_us + attention_us
}

fn priced() -> Correction {
    let mut correction = Correction::neutral();
    for (term, value) in [
        (Term::Projections, 1.1),
        (Term::AttentionDecode, 0.8),
        (Term::Steps, 500.0),
        (Term::Layers, 3.0),
        (Term::Requests, 7.0),
        (Term::Tokens, 0.5),
        (Term::PrefillRequests, 90.0),
        (Term::PiecewiseLayers, 11.0),
        (Term::SortedMegalogits, 150.0),
    ] {
        correction.coefficients[term.index()] = value;
    }
    correction
}

/// Batches by hand: sizes on and between the tables' points, equal and unequal lengths, chunks alone and beside decodes.
fn batches() -> Vec<Vec<Request>> {
    let mut batches = Vec::new();
    for (n, computed) in [(1u32, 30u32), (3, 700), (17, 2048), (63, 2048), (64, 900), (130, 333), (200, 1200)] {
        let decodes: Vec<Request> = (0..n).map(|i| Request::decode(computed / 2 + computed * i / n + 1)).collect();
        batches.push(decodes.clone());
        for (q, c) in [(40, 0), (512, 0), (700, 1500), (1500, 100)] {
            let mut mixed = decodes.clone();
            mixed.push(Request::prefill(q, c));
            batches.push(mixed.clone());
            mixed.push(Request::partial_prefill(150, 2000));
            batches.push(mixed);
        }
    }
    batches.push(vec![Request::prefill(1, 0)]);
    batches.push(vec![Request::prefill(2048, 0), Request::partial_prefill(3000, 4096)]);
    batches
}

#[test]
fn the_documented_rule_keeps_the_stated_error() {
    let folder = Folder::new();
    let correction = priced();
    let path = folder.write("mine.toml", correction.to_toml_string().unwrap());
    let (model, gpu) = (Model::find("llama-3.1-8b").unwrap(), Hardware::find("h100").unwrap());
    for eager in [false, true] {
        let flag = if eager { "--enforce-eager" } else { "" };
        let json = export(&format!("json --model llama-3.1-8b --hardware h100 --correction {path} {flag}")).json();
        let deployment = Deployment { enforce_eager: eager, ..Deployment::default() };
        let options = Options { correction: CorrectionChoice::Given(correction.clone().into()), ..Options::default() };
        let steps = StepModel::with_options(&model, &gpu, &deployment, &options).unwrap();
        let library = ridgepoint::internals::export::export(&steps, model.name(), gpu.name(), &deployment);
        for batch in batches() {
            let time_us = library.step_time_us(&batch);
            assert!((time_us / step_us(&json, &batch) - 1.0).abs() < 1e-9, "{batch:?}");
            let idle = [&batch[..], &[Request::prefill(0, 700)]].concat();
            assert_eq!(library.step_time_us(&idle).to_bits(), time_us.to_bits(), "an idle request counts: {batch:?}");
        }
        let (decodes, chunks): (Vec<_>, Vec<_>) =
            batches().into_iter().partition(|batch| batch.iter().all(Request::is_decode));
        for (batches, key, most_pct) in [(decodes, "decode_only", 1.0), (chunks, "with_chunks", 2.0)] {
            let stated = &json["error"][key];
            assert!(number(stated, "median_ape_pct") < most_pct && number(stated, "p90_ape_pct") < 4.0, "{stated}");
            let error_pct =
                |batch: &Vec<Request>| 100.0 * (step_us(&json, batch) / steps.step_time_us(batch) - 1.0).abs();
            let errors: Vec<f64> = batches.iter().map(error_pct).collect();
            let within = |key| errors.iter().filter(|error| **error <= number(stated, key)).count();
            assert!(within("p90_ape_pct") * 2 >= errors.len(), "{stated} {errors:?}");
            assert_eq!(within("max_ape_pct"), errors.len(), "{stated} {errors:?}");
        }
    }
}

#[test]
fn an_export_carries_the_correction_and_the_host() {
    let folder = Folder::new();
    let mut correction = priced();
    correction.host = HostTimes { queueing_us: 4321.0, ..HostTimes::default() };
    let path = folder.write("mine.toml", correction.to_toml_string().unwrap());
    let json = export(&format!("json --model llama-3.1-8b --hardware h100 --correction {path}")).json();
    assert_eq!(json["version"], 1);
    assert_eq!(json["correction"]["name"], path.as_str());
    assert_eq!(
        (number(&json["host"], "queueing_us"), number(&json["coefficients"]["step_us"], "value")),
        (4321.0, 500.0)
    );
    // 500 µs and 32 layers of 3 µs; 32 of 11 µs; top_p of the model's own defaults sorts 128,256 logits.
    let prices = &json["prices"];
    assert_eq!((number(prices, "step_us"), number(prices, "step_with_chunks_us")), (596.0, 352.0));
    assert_eq!((number(prices, "request_us"), number(prices, "chunk_us")), (7.0, 90.0));
    assert!((number(prices, "sampled_us") - 150.0 * 0.128_256).abs() < 1e-3);
    let plain = export("json --model llama-3.1-8b --hardware h100 --correction none").json();
    assert_eq!((plain["correction"]["level"].as_str(), number(&plain["prices"], "step_us")), (Some("none"), 0.0));
    assert_eq!(plain["coefficients"], serde_json::json!({}));
}

#[test]
fn the_example_in_the_docs_prints_what_they_say() {
    let folder = Folder::new();
    let path = folder.path("export.json");
    let made = export(&format!("json --model llama-3.1-8b --hardware h100 --correction none --out {path}"));
    assert_eq!(made.code, 0, "{}", made.stderr);
    assert!(made.stdout.contains("against the step model, random batches"), "{}", made.stdout);
    let json: Value = serde_json::from_str(&folder.read("export.json")).unwrap();
    let decodes = vec![Request::decode(2048); 63];
    let mut mixed = vec![Request::decode(1500); 40];
    mixed.extend([Request::prefill(512, 0), Request::partial_prefill(300, 1000)]);
    let (model, gpu) = (Model::find("llama-3.1-8b").unwrap(), Hardware::find("h100").unwrap());
    let steps = StepModel::with_options(&model, &gpu, &Deployment::default(), &Options::uncorrected()).unwrap();
    let printed = format!("{:.0} {:.0}", step_us(&json, &decodes), step_us(&json, &mixed));
    let said = format!(
        "It prints `{printed}`; the step model says {:.0} and {:.0} µs.",
        steps.step_time_us(&decodes),
        steps.step_time_us(&mixed)
    );
    assert!(DOCS.contains(&said), "docs/export.md must say: {said}");

    let (_, after) = DOCS.split_once("```python\n").unwrap();
    let script = folder.write("example.py", after.split_once("```").unwrap().0);
    let mut python = Command::new("python3");
    match python.arg(script).current_dir(std::path::Path::new(&path).parent().unwrap()).output() {
        Ok(ran) => {
            assert_eq!(String::from_utf8_lossy(&ran.stdout).trim(), printed, "{}", String::from_utf8_lossy(&ran.stderr))
        }
        Err(_) => eprintln!("skipped: no python3 to run the example with"),
    }
}

#[test]
fn the_go_file_compiles_where_there_is_a_compiler() {
    let folder = Folder::new();
    let path = folder.path("ridgepoint.go");
    let line = format!("go --model llama-3.1-8b --hardware h100 --correction none --out {path}");
    assert_eq!(export(&line).code, 0);
    export(&line).fails(1, &["ridgepoint.go", "is there already", "--force"]);
    assert_eq!(export(&format!("{line} --force")).code, 0);
    let text = folder.read("ridgepoint.go");
    for part in ["package ridgepoint\n", "func StepTimeUs(batch []Request) float64", "= 3000.0\n"] {
        assert!(text.contains(part), "'{part}' is not in the file");
    }
    assert_eq!(text.matches('{').count(), text.matches('}').count());
    folder.write("go.mod", "module ridgepoint\n\ngo 1.21\n");
    let mut go = Command::new("go");
    match go.arg("vet").arg("./...").current_dir(std::path::Path::new(&path).parent().unwrap()).output() {
        Ok(ran) => assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr)),
        Err(_) => eprintln!("skipped: no go to compile the export with"),
    }
}

#[test]
fn what_can_not_be_exported_writes_nothing() {
    let folder = Folder::new();
    let out = folder.path("out.json");
    export(&format!("json --model no-such --hardware no-gpu --out {out}")).fails(1, &["no-such", "no-gpu"]);
    export(&format!("json --model llama-3.1-8b --hardware h100 --tp 3 --out {out}"))
        .fails(1, &["tensor_parallel_size"]);
    export(&format!("json --model llama-3.1-8b --hardware h100 --correction no.toml --out {out}"))
        .fails(1, &["no.toml"]);
    assert!(folder.names().is_empty());
}

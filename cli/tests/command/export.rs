//! Exports for other languages: what a file says of itself, and what is refused. `bindings/go` compares the times.

use crate::cli_support;

use cli_support::{Folder, run};
use ridgepoint::Correction;
use ridgepoint::correction::Term;
use ridgepoint::latency::HostTimes;
use serde_json::Value;

fn export(line: &str) -> cli_support::Run {
    run(&[&["export"][..], &line.split_ascii_whitespace().collect::<Vec<_>>()].concat())
}

#[test]
fn a_file_has_its_provenance_the_correction_and_finite_numbers() {
    let folder = Folder::new();
    let mut correction = Correction::neutral();
    correction.coefficients[Term::Requests.index()] = 7.0;
    correction.coefficients[Term::PrefillRequests.index()] = 90.0;
    correction.host = HostTimes { queueing_us: 4321.0, ..HostTimes::default() };
    let mine = folder.write("mine.toml", correction.to_toml_string().unwrap());
    let out = folder.path("tables.json");
    let line = format!("--model llama-3.1-8b --hardware h100 --tp 2 --max-num-seqs 64 --correction {mine} --out {out}");
    let said = export(&format!("{line} --format json")).json();
    let text = folder.read("tables.json");
    assert_eq!((said["path"].as_str(), said["bytes"].as_u64()), (Some(out.as_str()), Some(text.len() as u64)));
    let tables: Value = serde_json::from_str(&text).unwrap();
    let head = serde_json::json!({
        "version": 5, "ridgepoint_version": env!("CARGO_PKG_VERSION"), "model": "llama-3.1-8b", "hardware": "h100_sxm",
        "efficiency": "tables", "windows": ["full"], "max_decodes": 1024, "request_us": 7.0, "chunk_us": 90.0,
    });
    for (key, value) in head.as_object().unwrap() {
        assert_eq!(&tables[key], value, "{key}");
    }
    assert_eq!(tables["correction"]["name"], mine.as_str());
    assert_eq!(tables["host"]["queueing_us"], 4321.0);
    assert_eq!(
        (&tables["deployment"]["tensor_parallel_size"], &tables["deployment"]["max_num_seqs"]),
        (&2.into(), &64.into())
    );
    assert!(!text[text.find("\"by_decodes\"").unwrap()..].contains("null"));
    // Readers in other languages find these by their keys, whatever the fields are called here.
    assert!(tables["by_decodes_beside_chunks"].is_array(), "{:?}", tables.as_object().unwrap().keys());
    assert_eq!(tables["chunk_attention"][0]["beside"], 0);

    let said = export(&format!("--model llama-3.1-8b --hardware h100 --tp 2 --correction none --out {out}"));
    assert!(said.stdout.contains("tables.json: llama-3.1-8b on 2 NVIDIA H100"), "{}", said.stdout);
    assert!(said.stdout.contains("correction none"), "{}", said.stdout);
}

#[test]
fn a_failed_export_writes_nothing() {
    let folder = Folder::new();
    let out = folder.path("out.json");
    export(&format!("--model no-such --hardware no-gpu --out {out}")).fails(1, &["no-such", "no-gpu"]);
    export(&format!("--model llama-3.1-8b --hardware h100 --tp 3 --out {out}")).fails(1, &["tensor_parallel_size"]);
    export(&format!("--model llama-3.1-8b --hardware h100 --correction no.toml --out {out}")).fails(1, &["no.toml"]);
    export("--model llama-3.1-8b --hardware h100").fails(2, &["--out"]);
    assert!(folder.names().is_empty());
}

/// The value of a flag in a command line.
fn value(said: &Value, flag: &str) -> String {
    let flags = said["flags"].as_array().unwrap();
    let found = flags.iter().find(|of| of["name"] == flag).unwrap_or_else(|| panic!("no {flag} in {said}"));
    found["value"].as_str().unwrap().to_owned()
}

/// Microseconds of a duration as llm-d-inference-sim reads it.
fn us(duration: &str) -> f64 {
    match duration.strip_suffix("us") {
        Some(us) => us.parse().unwrap(),
        None => 1000.0 * duration.strip_suffix("ms").unwrap().parse::<f64>().unwrap(),
    }
}

#[test]
fn flags_of_llm_d_inference_sim_follow_from_predicted_steps() {
    let server = "--as llm-d-inference-sim --model llama-3.1-8b --hardware h100 --max-num-seqs 64 --max-model-len 4096";
    let said = export(&format!("{server} --correction none --format json")).json();
    assert_eq!((value(&said, "--max-num-seqs"), value(&said, "--max-model-len")), ("64".to_owned(), "4096".to_owned()));
    let step = |batch: &str| {
        let line = format!(
            "predict-step --model llama-3.1-8b --hardware h100 --correction none --format json --decode {batch}"
        );
        run(&line.split(' ').collect::<Vec<_>>()).json()["step_time_us"].as_f64().unwrap()
    };
    let (one, full) = (step("1x1024"), step("64x1024"));
    assert!((us(&value(&said, "--inter-token-latency")) / one - 1.0).abs() < 2e-3);
    let factor: f64 = value(&said, "--time-factor-under-load").parse().unwrap();
    assert!((factor / (full / one) - 1.0).abs() < 2e-3, "{factor}");
    // Without a correction the host takes 6.5 ms of each prompt, and 2 µs of each of its tokens.
    assert!(us(&value(&said, "--prefill-overhead")) > 6500.0 && us(&value(&said, "--prefill-time-per-token")) > 2.0);
    assert!(said["notes"].to_string().contains("standard deviations are left out"), "{said}");
    let command = said["command"].as_str().unwrap();
    assert!(command.starts_with("llm-d-inference-sim --model llama-3.1-8b --max-num-seqs 64 "), "{command}");
    let corrected = export(&format!("{server} --format json")).json();
    assert!(us(&value(&corrected, "--inter-token-latency-std-dev")) > 0.0);
    let sizes = "--as llm-d-inference-sim --model llama-3.1-8b --hardware h100 --max-num-seqs 4000000000";
    export(sizes).fails(1, &["max_num_seqs is 4000000000, expected at most 1000000"]);
    let table = export(server).stdout;
    assert!(table.contains("  --prefill-overhead ") && table.contains("note: "), "{table}");
}

#[test]
fn flags_of_llm_d_inference_sim_follow_from_a_capture() {
    let folder = Folder::new();
    let line = |ttft: u32, gaps: &str| {
        format!("{{\"prompt_tokens\":9,\"output_tokens\":3,\"ttft_ms\":{ttft},\"itl_ms\":{gaps},\"arrival_ms\":1}}\n")
    };
    let capture = folder.write("c.jsonl", line(90, "[10,10]") + &line(110, "[10,50]"));
    let server = "--as llm-d-inference-sim --model llama-3.1-8b --hardware h100";
    let said = export(&format!("{server} --capture {capture} --format json")).json();
    // Gaps of 10, 10, 10 and 50 ms: mean 20, deviation 17.3, of which 6 are accepted.
    for (flag, wanted) in [
        ("--time-to-first-token", "100ms"),
        ("--time-to-first-token-std-dev", "10ms"),
        ("--inter-token-latency", "20ms"),
        ("--inter-token-latency-std-dev", "6ms"),
    ] {
        assert_eq!(value(&said, flag), wanted, "{flag}");
    }
    assert!(
        said["notes"].to_string().contains("is capped at 30 % of --inter-token-latency, 6ms: it would be 17321us"),
        "{said}"
    );
    export(&format!("{server} --out {}", folder.path("t.json"))).fails(2, &["--out is for tables"]);
    let tables = format!("--model llama-3.1-8b --hardware h100 --out {}", folder.path("t.json"));
    export(&format!("{tables} --capture {capture}")).fails(2, &["--capture", "--as llm-d-inference-sim"]);
    export(&format!("{server} --capture {}", folder.path("none.jsonl"))).fails(1, &["none.jsonl"]);
}

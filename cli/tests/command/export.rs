//! Exports for other languages: what a file says of itself, and what is refused. `bindings/go` compares the times.

use crate::cli_support;

use cli_support::{Folder, run};
use ridgepoint::internals::correction::{Correction, HostTimes, Term};
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
        "version": 2, "ridgepoint_version": env!("CARGO_PKG_VERSION"), "model": "llama-3.1-8b", "hardware": "h100_sxm",
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

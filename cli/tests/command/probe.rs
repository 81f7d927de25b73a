//! `ridgepoint probe`: the binary against servers with planted delays, and from there to a fitted prediction.

use std::time::Duration;

use crate::cli_support::{Folder, run};
use crate::mock::{Mock, document, stream};
use crate::planted::{Prices, start};

fn probe(url: &str, more: &[&str]) -> crate::cli_support::Run {
    run(&[&["probe", url][..], more].concat())
}

#[test]
fn a_cold_start_is_measured_and_written() {
    let mock = Mock::start(|incoming, out| {
        let ttft = Duration::from_millis(if incoming.number == 0 { 500 } else { 50 });
        stream(incoming, out, ttft, Duration::from_millis(5))
    });
    let folder = Folder::new();
    let (markdown, capture) = (folder.path("ttft.md"), folder.path("mine.jsonl.gz"));
    let more = [
        "--max-tokens",
        "4",
        "--warm",
        "3",
        "--remote",
        "--markdown",
        &markdown,
        "--out",
        &capture,
        "--format",
        "json",
    ];
    let found = probe(&mock.url(), &more);
    let json = found.json();
    assert!(json["cold"]["ttft_ms"].as_f64().unwrap() >= 499.0, "{json}");
    assert!(json["warm"]["ttft_ms"]["min"].as_f64().unwrap() >= 49.0 && json["warm"]["requests"] == 3, "{json}");
    assert!(json["warm"]["itl_ms"]["median"].as_f64().unwrap() >= 4.0, "{json}");
    let penalty = json["cold"]["ttft_ms"].as_f64().unwrap() / json["warm"]["ttft_ms"]["median"].as_f64().unwrap();
    assert!((json["penalty"].as_f64().unwrap() - penalty).abs() < 1e-9, "{json}");
    // Of a server elsewhere neither disks nor memory are seen.
    assert_eq!(json["diagnosis"], "undecided");
    assert!(json["evidence"]["missing"].as_array().unwrap().len() >= 5, "{json}");
    let text = folder.read("ttft.md");
    for said in ["# TTFT Baseline (Tier 1)", "- MODEL = planted", "| cold_1 | 0.5", "## Warm Variance", "4) Next: "] {
        assert!(text.contains(said), "'{said}' is not in {text}");
    }
    // Its own files are replaced, others are not.
    assert_eq!(probe(&mock.url(), &more).code, 0);
    folder.write("ttft.md", "mine");
    let before = mock.completions.load(std::sync::atomic::Ordering::SeqCst);
    probe(&mock.url(), &more).fails(1, &["ttft.md", "is there already"]);
    assert_eq!(mock.completions.load(std::sync::atomic::Ordering::SeqCst), before);
    let table = probe(
        &mock.url(),
        &["--max-tokens", "4", "--warm", "1", "--ladder-concurrency", "2", "--ladder-input-len", "64"],
    );
    for said in ["cold_1", "penalty", "diagnosis", "speaks for", "output tokens/s", "8 of 8", "outcomes   11 ok"] {
        assert!(table.stdout.contains(said), "'{said}' is not in {}", table.stdout);
    }
}

#[test]
fn a_run_without_a_warm_request_fails_and_names_the_reason() {
    let folder = Folder::new();
    // No server of another test has port 1, as one that is free now may.
    let refused =
        probe("http://127.0.0.1:1", &["--model", "m", "--out", &folder.path("mine.jsonl"), "--format", "json"]);
    assert_eq!(refused.code, 1);
    let json: serde_json::Value = serde_json::from_str(&refused.stdout).unwrap();
    assert_eq!(json["outcomes"], serde_json::json!({"connection_refused": 1}));
    assert!(refused.stderr.contains("error: no warm request succeeded"), "{}", refused.stderr);
    assert!(folder.names().is_empty());
    let mock =
        Mock::start(|_, out| document(out, 500, "application/json", r#"{"error": {"message": "out of memory"}}"#));
    let failed = probe(&mock.url(), &[]);
    assert_eq!(failed.code, 1);
    assert!(failed.stdout.contains("3 server_error") && failed.stdout.contains("out of memory"), "{}", failed.stdout);
}

/// A server that puts a text, in place of `KEY` what it was sent as authorisation, into its errors or into its output.
fn repeats(is_error: bool) -> Mock {
    Mock::start(move |incoming, out| {
        let sent = incoming.headers.lines().find(|line| line.to_ascii_lowercase().starts_with("authorization"));
        let key = sent.and_then(|line| line.split_once(": ")).map_or("none", |(_, value)| value.trim());
        if is_error {
            return document(out, 401, "application/json", &format!(r#"{{"error": {{"message": "bad {key}"}}}}"#));
        }
        let body = format!(
            "data: {{\"choices\": [{{\"index\": 0, \"text\": \"{key}\", \"finish_reason\": \"{key}\"}}], \
             \"usage\": {{\"prompt_tokens\": 9, \"completion_tokens\": 1}}}}\n\ndata: [DONE]\n\n"
        );
        document(out, 200, "text/event-stream", &body)
    })
}

#[test]
fn a_key_that_a_server_repeats_is_nowhere() {
    let folder = Folder::new();
    let (key, out, markdown) =
        (folder.write("key", "sk-SECRET-KEY-123456\n"), folder.path("o.jsonl"), folder.path("o.md"));
    for is_error in [true, false] {
        let mock = repeats(is_error);
        for format in ["json", "table"] {
            let more =
                ["--api-key-file", &key, "--warm", "1", "--format", format, "--out", &out, "--markdown", &markdown];
            let found = probe(&mock.url(), &more);
            let kept = ["o.jsonl", "o.md"].into_iter().filter(|name| folder.names().iter().any(|of| of == name));
            let files: String = kept.map(|name| folder.read(name)).collect();
            let all = [found.stdout, found.stderr, files].concat();
            assert!(all.contains("[secret]") && !all.contains("SECRET-KEY"), "{all}");
        }
    }
}

#[test]
fn the_fault_comes_first_and_files_of_authorities_end() {
    let refused = probe("http://127.0.0.1:1", &[]);
    assert!(refused.stderr.contains("GET /v1/models ended with connection_refused"), "{}", refused.stderr);
    assert!(!refused.stderr.contains("--model"), "{}", refused.stderr);
    #[cfg(target_os = "linux")]
    probe("http://127.0.0.1:1", &["--ca-file", "/dev/zero"]).fails(1, &["/dev/zero: has more than 16 MiB"]);
}

#[test]
fn wrong_usage_says_how() {
    probe("127.0.0.1:8000", &[]).fails(2, &["http://127.0.0.1:8000"]);
    probe("http://h", &["--prompt", "a", "--prompt-file", "b"]).fails(2, &["cannot be used with"]);
    probe("http://h", &["--header", "no colon"]).fails(2, &["NAME: VALUE"]);
    probe("http://h", &["--timeout-s", "0"]).fails(2, &["above zero"]);
    probe("http://h", &["--api-key-file", "no-such-file"]).fails(1, &["no-such-file"]);
    probe("https://h", &["--ca-file", "no-such.pem"]).fails(1, &["no-such.pem"]);
}

/// A CPU without measured kernels, on which every price is left to the fit.
const SERVER: &str = "model: examples/vllm_cpu/config.json\nhardware: examples/vllm_cpu/cpu.toml\nmax_model_len: 4096\n\
                      max_num_seqs: 32\nmax_num_batched_tokens: 2048\nnum_gpu_blocks_override: 4096\n\
                      enable_prefix_caching: false\nasync_scheduling: false\nenforce_eager: true\n";

#[test]
fn a_probe_is_fitted_and_predicts_its_own_load() {
    let mock = start(Prices { step_us: 12_000.0, decode_us: 500.0, prefill_token_us: 60.0, cold_us: 200_000.0 });
    let folder = Folder::new();
    let (capture, fitted) = (folder.path("mine.jsonl.gz"), folder.path("mine.toml"));
    let ladder = ["--ladder-input-len", "64,512", "--ladder-concurrency", "1,4", "--requests-per-rung", "12"];
    let probed = probe(&mock.url(), &[&ladder[..], &["--max-tokens", "12", "--warm", "2", "--out", &capture]].concat());
    assert_eq!(probed.code, 0, "{}", probed.stderr);
    let config = ["--model", "examples/vllm_cpu/config.json", "--hardware", "examples/vllm_cpu/cpu.toml", "--tp", "1"];
    let fit = ["fit", "--steps", &capture, "--level", "model", "--out", &fitted, "--format", "json"];
    let fit = run(&[&fit[..], &config].concat()).json();
    let notes = fit["fit"]["notes"].to_string();
    assert!(notes.contains("steps are those of token times at the client"), "{notes}");
    let server = folder.write("server.yaml", SERVER);
    let judged =
        run(&["evaluate", "capture", &capture, "--config", &server, "--correction", &fitted, "--format", "json"])
            .json();
    let error = |metric: &str| {
        let rows = judged["metrics"].as_array().unwrap();
        rows.iter().find(|row| row["metric"] == metric).unwrap()["ape_pct"].as_f64().unwrap()
    };
    // A busy machine stretches steps at random; without a fit these are off by 90 % and more.
    assert!(error("e2e_mean") < 25.0 && error("itl_mean") < 25.0 && error("ttft_mean") < 40.0, "{}", judged["metrics"]);
    // The folder of `ingest` has the same steps.
    let out = folder.path("tables");
    assert_eq!(run(&[&["ingest", &capture, "--out", &out][..], &config].concat()).code, 0);
    let again = run(&[
        &["fit", "--steps", &out, "--level", "model", "--out", &folder.path("again.toml"), "--format", "json"][..],
        &config,
    ]
    .concat())
    .json();
    assert_eq!(again["fit"]["parameters"][0]["value"], fit["fit"]["parameters"][0]["value"]);
}

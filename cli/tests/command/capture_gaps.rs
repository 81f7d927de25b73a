//! `ridgepoint evaluate capture`: how gaps between tokens are distributed, in the report and in plots.

use serde_json::Value;

use crate::cli_support::{Folder, Run, run};

/// Two requests. The first has gaps of 10, 10 and 10 ms; then a chunk of two tokens after 60 ms, which count as 30 ms each.
const CAPTURE: &str = "{\"prompt_tokens\":9,\"output_tokens\":4,\"ttft_ms\":5,\"itl_ms\":[10,10,10],\"arrival_ms\":0}
{\"prompt_tokens\":9,\"output_tokens\":4,\"ttft_ms\":5,\"itl_ms\":[10,60],\"itl_tokens\":[1,2],\"arrival_ms\":1}
";

fn judged(capture: &str, more: &[&str]) -> Run {
    let args =
        ["evaluate", "capture", capture, "--model", "llama-3.1-8b", "--hardware", "h100", "--max-model-len", "64"];
    run(&[&args[..], more].concat())
}

fn is(got: &Value, want: f64) {
    assert!((got.as_f64().unwrap() - want).abs() < 1e-6, "got {got}, want {want}");
}

#[test]
fn gaps_are_counted_by_token_and_by_request() {
    let folder = Folder::new();
    let capture = folder.write("c.jsonl", CAPTURE);
    let report = judged(&capture, &["--format", "json"]).json();
    let of = &report["distributions"];
    assert_eq!((of["tokens"].as_u64(), of["requests"].as_u64()), (Some(6), Some(2)));
    // Four gaps of 10 and two of 30 ms: mean 100 / 6, deviation √(4 · 6.67² + 2 · 13.33²) / √6 = 9.428, above 30 % of the mean.
    is(&of["gaps"]["captured"]["mean_ms"], 100.0 / 6.0);
    is(&of["knob"]["measured_std_dev_ms"], 9.428_090_4);
    is(&of["knob"]["std_dev_ms"], 5.0);
    assert_eq!(of["knob"]["is_capped"], true);
    is(&of["gaps"]["knob"]["max_ms"], 1.7 * 100.0 / 6.0);
    // The threshold is twice the median, 20 ms.
    is(&of["threshold_ms"], 20.0);
    is(&of["gaps"]["captured"]["share_above_threshold"], 1.0 / 3.0);
    // Φ((20 − 16.667) / 5) = 0.7474925.
    is(&of["gaps"]["knob"]["share_above_threshold"], 1.0 - 0.747_507_5);
    // Requests have means of 10 and of 70 / 3 ms.
    is(&of["request_means"]["captured"]["max_ms"], 70.0 / 3.0);
    // No step of this model on an H100 takes 10 ms: every predicted gap is shorter.
    is(&of["ks_distance"]["predicted"], 1.0);
    let own = judged(&capture, &["--format", "json", "--long-gap-ms", "30"]).json();
    is(&own["distributions"]["gaps"]["captured"]["share_above_threshold"], 0.0);
    let table = judged(&capture, &[]).stdout;
    for part in ["gap between tokens, ms", "KS distance to captured", "above 20.000", "capped at 30 % of the mean"] {
        assert!(table.contains(part), "'{part}' is not in {table}");
    }
    // Without token times there is nothing to compare.
    let means = "{\"prompt_tokens\":9,\"output_tokens\":3,\"ttft_ms\":5,\"itl_summary\":{\"mean_ms\":3.5,\"count\":2},\"arrival_ms\":1}\n";
    let report = judged(&folder.write("m.jsonl", means), &["--format", "json"]).json();
    assert_eq!(report.get("distributions"), None);
}

#[test]
fn a_replay_has_the_distribution_of_its_own_tokens() {
    let folder = Folder::new();
    let tokens = folder.path("t.jsonl");
    let server = ["--model", "llama-3.1-8b", "--hardware", "h100", "--max-model-len", "2048"];
    let load =
        ["simulate", "--request-rate", "20", "--num-requests", "80", "--input-len", "1500", "--output-len", "40"];
    let load = [&load[..], &["--output-tokens", &tokens]].concat();
    assert_eq!(run(&[&load[..], &server].concat()).code, 0);
    let plots = folder.path("plots");
    let args = ["evaluate", "capture", &tokens, "--format", "json", "--plot", &plots];
    let report = run(&[&args[..], &server].concat()).json();
    let of = &report["distributions"];
    is(&of["ks_distance"]["predicted"], 0.0);
    // Prompts in a step make a second shelf of gaps, which a normal distribution does not have.
    assert!(of["ks_distance"]["knob"].as_f64().unwrap() > 0.3, "{of}");
    assert_eq!(of["gaps"]["captured"], of["gaps"]["predicted"]);
    let mut names: Vec<String> =
        std::fs::read_dir(&plots).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    let expected = ["itl-by-request", "itl-qq", "itl-survival", "predicted-over-measured"];
    assert_eq!(names, expected.map(|name| format!("capture-{name}.svg")));
    let svg = std::fs::read_to_string(folder.path("plots/capture-itl-survival.svg")).unwrap();
    for part in ["captured", "predicted", "best knobs of llm-d-inference-sim", "</svg>"] {
        assert!(svg.contains(part), "{part}");
    }
}

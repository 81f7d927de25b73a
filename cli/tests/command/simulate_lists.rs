//! `ridgepoint simulate` with lists of requests that have times, and with those that have none.

use crate::cli_support;

use cli_support::{Folder, simulate};
use serde_json::Value;

const SERVER: &str = "--model llama-3.1-8b --hardware h100 --max-model-len 4096";

fn json_of(line: &str) -> Value {
    simulate(&format!("{SERVER} {line} --format json")).json()
}

/// Finished requests, their prompt and output tokens.
fn sums(json: &Value) -> [Option<u64>; 3] {
    ["finished", "input_tokens", "output_tokens"].map(|key| json["stages"][0][key].as_u64())
}

#[test]
fn a_list_without_arrivals_is_sent_at_a_rate_or_a_concurrency() {
    let folder = Folder::new();
    let lengths =
        folder.write("lengths.csv", "num_prefill_tokens,num_decode_tokens,pd_ratio\n100,3,1\n200,5,1\n300,7,1\n");
    for sent in ["--request-rate 2", "--request-rate 2 --burstiness 0.5", "--concurrency 1"] {
        assert_eq!(sums(&json_of(&format!("--requests {lengths} {sent}"))), [Some(3), Some(600), Some(15)], "{sent}");
    }
    let duration_s =
        |sent: &str| json_of(&format!("--requests {lengths} {sent}"))["stages"][0]["duration_s"].as_f64().unwrap();
    assert!(duration_s("--request-rate 0.1") > duration_s("--request-rate 100"));
    assert!(duration_s("--concurrency 1") > duration_s("--concurrency 3"));
    simulate(&format!("{SERVER} --requests {lengths}"))
        .fails(1, &["lengths.csv", "does not say when its requests arrive: give request_rate or concurrency"]);
}

#[test]
fn a_list_with_arrivals_takes_neither() {
    let folder = Folder::new();
    let timed = folder.write("timed.csv", "Timestamp,Model,Request tokens,Response tokens\n5,A,100,3\n45,A,200,5\n");
    let json = json_of(&format!("--requests {timed}"));
    assert_eq!(sums(&json), [Some(2), Some(300), Some(8)]);
    assert!(json["stages"][0]["duration_s"].as_f64().is_some_and(|duration_s| (40.0..41.0).contains(&duration_s)));
    for sent in ["--request-rate 2", "--concurrency 1"] {
        simulate(&format!("{SERVER} --requests {timed} {sent}"))
            .fails(1, &["timed.csv", "says when its requests arrive: leave out request_rate and concurrency"]);
    }
    simulate(&format!("{SERVER} --requests {timed} --burstiness 2")).fails(1, &["no burstiness changes"]);
}

#[test]
fn lengths_may_be_spread() {
    let mean = |line: &str| {
        let json = json_of(&format!("--concurrency 2 --num-requests 200 --output-len 4 {line}"));
        json["stages"][0]["input_tokens"].as_f64().unwrap() / 200.0
    };
    for (line, low, high) in [
        ("--input-len 400 --random-range-ratio 0.5", 380.0, 420.0),
        ("--input-len {\"min\":100,\"max\":300}", 190.0, 210.0),
        ("--input-len {\"mean\":400,\"std_dev\":50}", 390.0, 410.0),
        ("--input-len {\"p50\":100,\"p90\":600}", 230.0, 290.0),
    ] {
        let found = mean(line);
        assert!((low..=high).contains(&found) && (found - found.round()).abs() > 1e-9, "{line}: {found}");
    }
    let line = format!("{SERVER} --concurrency 2 --output-len 4 --input-len {{\"min\":5,\"max\":4}}");
    simulate(&line).fails(2, &["--input-len", "{ min, max } (uniform)"]);
    let line =
        format!("{SERVER} --concurrency 2 --output-len 4 --input-len {{\"min\":1,\"max\":4}} --random-range-ratio 0.1");
    simulate(&line).fails(1, &["random_range_ratio spreads input_len and output_len"]);
}

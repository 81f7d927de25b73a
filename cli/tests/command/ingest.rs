//! `ridgepoint ingest`: handmade files become tables; unusable ones are refused and nothing is written.

use crate::cli_support;
#[allow(dead_code)]
use crate::ingest_support;

use cli_support::{Folder, Run, run};
use ingest_support::{api_span, core_span, export, span, summary};
use serde_json::json;

const HEADER: &str = "step.id,step.ts_start_ns,batch.num_prefill_reqs,batch.num_decode_reqs,batch.prefill_tokens,\
                      batch.decode_tokens,batch.num_preempted,experiment_id,model,workload,tp\n";

/// Steps of 64 decodes, `period_ms` each, from number `first`.
fn steps(experiment: &str, first: u64, count: u64, period_ms: u64) -> String {
    (0..count).fold(HEADER.to_owned(), |text, index| {
        let start_ms = period_ms * index;
        let preempted = u64::from(index == 7);
        text + &format!("{},{start_ms}000000,0,64,0,64,{preempted},{experiment},llama-2-70b,general,4\n", first + index)
    })
}

pub fn ingest(folder: &Folder, files: &[&str], more: &[&str]) -> Run {
    let (files, out): (Vec<String>, _) = (files.iter().map(|name| folder.path(name)).collect(), folder.path("out"));
    let mut args = vec!["ingest"];
    args.extend(files.iter().map(String::as_str));
    args.extend(["--out", &out]);
    args.extend(more);
    run(&args)
}

fn with_steps(text: &str) -> Folder {
    let folder = Folder::new();
    folder.write("chat.csv", text);
    folder
}

#[test]
fn a_step_csv_becomes_a_step_table() {
    let folder = with_steps(&steps("chat", 98, 12, 20));
    let run = ingest(&folder, &["chat.csv"], &["--hardware", "h100", "--engine-version", "vllm-0.15.1"]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert_eq!(run.stderr, "");
    for said in ["step-csv", "2 warm up, 1 preemption, 1 last step", "20.000 ms", "llama-2-70b", "written: "] {
        assert!(run.stdout.contains(said), "'{said}' is not in: {}", run.stdout);
    }
    let table = folder.read("out/steps.csv");
    let rows: Vec<&str> = table.lines().collect();
    assert_eq!(rows.len(), 13);
    for (row, start, end) in [(1, "98,0,0,64,0,64,", ",,,warm_up,"), (3, "100,40000000,0,64,", ",1,20000.0,,")] {
        let start = format!("chat,llama-2-70b,h100,4,general,vllm-0.15.1,,,{start}");
        assert!(rows[row].starts_with(&start) && rows[row].ends_with(end), "{}", rows[row]);
    }
    assert!(rows[12].contains(",109,220000000,") && rows[12].ends_with(",last_step,"), "{}", rows[12]);
    assert_eq!(folder.names(), ["chat.csv", "out"]);
}

#[test]
fn json_has_counts_by_reason() {
    let folder = with_steps(&steps("chat", 98, 12, 20));
    let json = ingest(&folder, &["chat.csv"], &["--format", "json"]).json();
    let file = &json["files"][0];
    assert_eq!((file["format"].as_str(), file["steps"]["read"].as_u64()), (Some("step-csv"), Some(12)));
    assert_eq!(file["steps"]["kept"].as_u64(), Some(8));
    assert_eq!(file["steps"]["dropped"], serde_json::json!({"warm_up": 2, "preemption": 1, "last_step": 1}));
    let of = &json["runs"][0];
    assert_eq!((of["experiment"].as_str(), of["timed"].as_str()), (Some("chat"), Some("period")));
    assert_eq!((of["steps"].as_u64(), of["median_time_us"].as_f64()), (Some(8), Some(20_000.0)));
    assert!(json["written"][0].as_str().unwrap().ends_with("steps.csv"));
}

#[test]
fn cleaning_follows_the_flags() {
    let folder = with_steps(&steps("chat", 98, 12, 20));
    let json =
        ingest(&folder, &["chat.csv"], &["--warm-up-steps", "0", "--keep-preemptions", "--format", "json"]).json();
    assert_eq!(json["files"][0]["steps"]["dropped"], serde_json::json!({"last_step": 1}));
}

#[test]
fn a_table_that_is_read_again_is_the_same() {
    let folder = with_steps(&steps("chat", 98, 12, 20));
    assert_eq!(ingest(&folder, &["chat.csv"], &[]).code, 0);
    let before = folder.read("out/steps.csv");
    folder.write("again.csv", &before);
    let again = ingest(&folder, &["again.csv"], &[]);
    assert_eq!(again.code, 0, "{}", again.stderr);
    assert_eq!(folder.read("out/steps.csv"), before);
}

#[test]
fn labels_take_the_place_of_what_the_file_says() {
    let folder = with_steps(&steps("chat", 1000, 12, 20).replace("llama-2-70b", "our-finetune"));
    let labels = ["--model", "llama-3.1-70b", "--tp", "8", "--experiment", "night", "--workload", "code"];
    let more = ["--max-num-seqs", "128", "--max-num-batched-tokens", "2048"];
    assert_eq!(ingest(&folder, &["chat.csv"], &[&labels[..], &more[..]].concat()).code, 0);
    assert!(folder.read("out/steps.csv").contains("\nnight,llama-3.1-70b,,8,code,,128,2048,1000,"));
    folder.write("other.csv", steps("chat", 1000, 12, 20).replace("llama-2-70b", "our-finetune"));
    let unknown = ingest(&folder, &["other.csv"], &["--hardware", "h1000"]);
    unknown.fails(1, &["unknown model 'our-finetune'", "--model puts another name", "unknown hardware 'h1000'"]);
    ingest(&folder, &["chat.csv"], &["--tp", "0"]).fails(2, &["0 is not in 1.."]);
    ingest(&folder, &["chat.csv"], &["--model", ""]).fails(2, &["--model"]);
}

#[test]
fn what_a_prediction_needs_and_the_files_lack_is_said() {
    let folder = with_steps(&steps("chat", 1000, 12, 20).replace("llama-2-70b,general,4", ",,"));
    let run = ingest(&folder, &["chat.csv"], &[]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert!(run.stderr.contains("pass --model, --hardware, --tensor-parallel-size"), "{}", run.stderr);
}

#[test]
fn runs_that_can_not_be_distinguished_are_refused() {
    let folder = with_steps(&steps("chat", 1000, 12, 20));
    folder.write("again.csv", steps("chat", 1000, 12, 20));
    ingest(&folder, &["chat.csv", "again.csv"], &[]).fails(1, &["both hold a run 'chat'", "its own --experiment"]);
    folder.write("other.csv", steps("code", 1000, 12, 20));
    ingest(&folder, &["chat.csv", "other.csv"], &["--experiment", "x"]).fails(1, &["--experiment names one run"]);
    assert_eq!(ingest(&folder, &["chat.csv", "other.csv"], &[]).code, 0);
    assert_eq!(folder.read("out/steps.csv").lines().count(), 25);
}

#[test]
fn nothing_to_use_is_an_error_and_nothing_is_written() {
    let one = steps("chat", 1000, 1, 20);
    let constant = steps("chat", 1000, 9, 0);
    let warm = steps("chat", 0, 9, 20);
    let truncated = steps("chat", 1000, 9, 20);
    let unit = HEADER.replace("ts_start_ns", "ts_start_ms") + "1,2,0,1,0,1,0,a,,,\n";
    for (text, said) in [
        (HEADER.to_owned(), "has no rows"),
        (String::new(), "chat.csv"),
        (one, "nothing in it can be used: 1 steps, left out: 1 last step"),
        (constant, "1 preemption, 7 clock jump, 1 last step"),
        (warm, "9 steps, left out: 9 warm up"),
        (truncated[..truncated.len() - 20].to_owned(), "line 10: has"),
        (steps("chat", 1000, 9, 20).replace(",64,0,64,", ",64,NaN,64,"), "9 of 9 rows can't be used"),
        (steps("chat", 1000, 9, 20).replace(",0,64,0,64,", ",0,-64,0,64,"), "found -64"),
        (unit, "'step.ts_start_ms' is not known"),
        (steps("chat", 1000, 9, 20).replace("000000,", ","), "is it in nanoseconds?"),
    ] {
        let folder = with_steps(&text);
        ingest(&folder, &["chat.csv"], &[]).fails(1, &[said]);
        assert_eq!(folder.names(), ["chat.csv"], "{said}");
    }
}

#[test]
fn every_file_at_fault_is_named() {
    let folder = with_steps("colour,size\n1,2\n");
    folder.write("b.csv", HEADER);
    folder.write("good.csv", steps("chat", 1000, 9, 20));
    let run = ingest(&folder, &["chat.csv", "good.csv", "b.csv", "missing.csv"], &[]);
    run.fails(1, &["chat.csv", "b.csv: has no rows", "missing.csv: No such file"]);
    assert!(!run.stderr.contains("good.csv"), "{}", run.stderr);
    assert!(!folder.names().contains(&"out".to_owned()));
    ingest(&folder, &["good.csv"], &["--input-format", "forward-pass"]).fails(1, &["good.csv: line 1 column 1"]);
    ingest(&folder, &["good.csv"], &["--input-format", "parquet"]).fails(2, &["step-csv"]);
    run_without_files();
}

fn run_without_files() {
    run(&["ingest", "--out", "x"]).fails(2, &["<FILE>"]);
    run(&["ingest", "a.csv"]).fails(2, &["--out"]);
}

#[test]
fn tables_of_earlier_calls_are_named() {
    let folder = with_steps(&steps("chat", 1000, 12, 20));
    std::fs::create_dir(folder.path("out")).unwrap();
    folder.write("out/requests.csv", "old");
    let run = ingest(&folder, &["chat.csv"], &[]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert!(run.stderr.contains("requests.csv: was there before and is not of these files"), "{}", run.stderr);
    assert_eq!(folder.read("out/requests.csv"), "old");
    folder.write("file", "");
    let (csv, out) = (folder.path("chat.csv"), folder.path("file"));
    cli_support::run(&["ingest", csv.as_str(), "--out", out.as_str()]).fails(1, &["file"]);
}

#[test]
fn forward_passes_are_said_to_be_of_the_gpu() {
    let record = |counter: u64| {
        format!(
            "{{\"version\":1,\"worker_id\":\"w\",\"dp_rank\":0,\"counter_id\":{counter},\
             \"timing_scope\":\"execute_model_cuda\",\"wall_time\":0.0185,\"scheduled_requests\":{{\
             \"num_prefill_requests\":0,\"sum_prefill_tokens\":0,\"num_decode_requests\":3,\"sum_decode_kv_tokens\":99}}}}\n"
        )
    };
    let folder = Folder::new();
    folder.write("fpm.jsonl", record(500) + &record(501));
    let json = ingest(&folder, &["fpm.jsonl"], &["--model", "llama-3.1-8b", "--format", "json"]).json();
    assert_eq!(json["files"][0]["format"].as_str(), Some("forward-pass"));
    assert_eq!((json["runs"][0]["timed"].as_str(), json["runs"][0]["steps"].as_u64()), (Some("forward_pass"), Some(2)));
    assert!(folder.read("out/steps.csv").contains(",500,0,0,3,0,3,,99,"));
}

/// Steps 30 to 69 of 20 ms each, from 1 s on, and a request that is queued as step 41 begins.
fn otlp() -> String {
    let steps = (30..70).map(|id| summary(id, 1_000_000_000 + 20_000_000 * (id - 30), (0, 0), 8)).collect();
    let queued_ns = 1_000_000_000 + 20_000_000 * 11;
    let resource = [("service.name", json!("chat"))];
    let exports = [
        export(&resource, "vllm.scheduler.step", vec![span("scheduler_steps", &[], steps)]),
        export(&resource, "vllm.scheduler", vec![core_span("cmpl-1", queued_ns)]),
        export(&resource, "vllm.api", vec![api_span("cmpl-1", queued_ns)]),
    ];
    exports.iter().map(|export| export.to_string() + "\n").collect()
}

#[test]
fn an_otlp_file_becomes_both_tables_and_its_journeys_are_joined() {
    let folder = Folder::new();
    folder.write("traces.json", otlp());
    let more = ["--model", "llama-2-70b", "--warm-up-steps", "0", "--keep-preemptions"];
    let json = ingest(&folder, &["traces.json"], &[&more[..], &["--format", "json"]].concat()).json();
    assert_eq!(json["files"][0]["format"].as_str(), Some("otlp"));
    let of = &json["runs"][0];
    assert_eq!((of["steps"].as_u64(), of["requests"].as_u64()), (Some(39), Some(1)), "{json}");
    assert_eq!(of["median_time_us"].as_f64(), Some(20_000.0));
    let join = &json["joins"][0];
    assert_eq!((join["step_found"].as_u64(), join["mismatched"].as_u64()), (Some(1), Some(0)), "{join}");
    assert_eq!(join["delays"]["arrival_to_queued_us"], json!({"count": 1, "median_us": 3000.0}));
    assert_eq!(join["delays"]["token_to_client_us"], json!({"count": 1, "median_us": 2000.0}));
    assert_eq!(json["written"].as_array().unwrap().len(), 2);
    assert_eq!(folder.read("out/requests.csv").lines().count(), 2);
    // Both tables again, now as input: the same tables.
    let (steps, requests) = (folder.read("out/steps.csv"), folder.read("out/requests.csv"));
    folder.write("s.csv", &steps);
    folder.write("r.csv", &requests);
    let table = ingest(&folder, &["s.csv", "r.csv"], &more);
    assert_eq!(table.code, 0, "{}", table.stderr);
    assert!(table.stdout.contains("first step in the trace 1"), "{}", table.stdout);
    assert!(table.stdout.contains("arrival to queued 3.000 ms in the median of 1"), "{}", table.stdout);
    assert_eq!((folder.read("out/steps.csv"), folder.read("out/requests.csv")), (steps, requests));
}

#[test]
fn an_otlp_file_that_was_cut_short_is_refused() {
    let folder = Folder::new();
    let text = otlp();
    folder.write("traces.json", &text[..text.len() - 100]);
    ingest(&folder, &["traces.json"], &["--warm-up-steps", "0"]).fails(1, &["traces.json"]);
    assert_eq!(folder.names(), ["traces.json"]);
}

/// Reads a copy of a written table, which must succeed.
#[track_caller]
fn reads_again(folder: &Folder, table: &str) {
    let text = folder.read(table);
    assert!(!text.contains(",inf") && !text.contains("NaN"), "{text}");
    folder.write("again.csv", &text);
    let again = ingest(folder, &["again.csv"], &["--warm-up-steps", "0"]);
    assert_eq!(again.code, 0, "{}", again.stderr);
}

#[test]
fn what_ingest_writes_it_reads_whatever_the_source_holds() {
    let record = |counter: u64, wall_time: &str, tokens: &str| {
        format!(
            "{{\"version\":1,\"worker_id\":\"w\",\"dp_rank\":0,\"counter_id\":{counter},\
             \"timing_scope\":\"execute_model_cuda\",\"wall_time\":{wall_time},\"scheduled_requests\":{{\
             \"num_prefill_requests\":1,\"sum_prefill_tokens\":{tokens},\"num_decode_requests\":3,\
             \"sum_decode_kv_tokens\":99}}}}\n"
        )
    };
    let folder = Folder::new();
    let mut text: String = (0..297).map(|counter| record(500 + counter, "0.02", "7")).collect();
    for (counter, wall_time, tokens) in
        [(900, "1e308", "7"), (901, "1e-308", "7"), (902, "0.02", "18446744073709551615")]
    {
        text.push_str(&record(counter, wall_time, tokens));
    }
    folder.write("fpm.jsonl", &text);
    let json = ingest(&folder, &["fpm.jsonl"], &["--format", "json"]).json();
    assert_eq!(json["files"][0]["steps"]["dropped"], json!({"bad_value": 3}));
    reads_again(&folder, "out/steps.csv");

    let request = |id: &str| {
        json!({
            "request_id": id, "prompt_tokens": 5, "output_tokens": 2,
            "info": {"timings": {"request_start": 1.0, "first_token_iteration": 1.5, "request_end": 2.0}}
        })
    };
    let requests = json!({"successful": [request(""), request("a"), request("")], "errored": [], "incomplete": []});
    folder.write("guidellm.json", json!({"args": {}, "benchmarks": [{"requests": requests}]}).to_string());
    let run = ingest(&folder, &["guidellm.json"], &[]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert_eq!(folder.read("out/requests.csv").lines().count(), 4);
    reads_again(&folder, "out/requests.csv");
}

#[test]
fn more_tokens_than_any_engine_schedules_are_a_broken_row() {
    // The sum of two such counts does not fit 64 bits.
    let text = steps("chat", 1000, 12, 20).replace(",0,64,0,64,", ",1,64,18446744073709551615,64,");
    let folder = with_steps(&text);
    ingest(&folder, &["chat.csv"], &[]).fails(1, &["12 of 12 rows can't be used", "batch.prefill_tokens", "at most"]);
}

#[test]
fn periods_longer_than_any_run_are_left_out() {
    let mut text = steps("chat", 1000, 12, 20);
    text.push_str("1012,18446744073709551615,0,64,0,64,0,chat,llama-2-70b,general,4\n");
    let folder = with_steps(&text);
    let json = ingest(&folder, &["chat.csv"], &["--format", "json"]).json();
    assert_eq!(json["files"][0]["steps"]["dropped"]["clock_jump"].as_u64(), Some(1));
    reads_again(&folder, "out/steps.csv");
}

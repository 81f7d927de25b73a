//! A step table written and read back is the same; what is not as documented is refused.

use std::path::PathBuf;

use proptest::prelude::*;

use super::dropped::DropReason;
use super::periods::{Cleaning, Periods, periods};
use super::step::{Interval, Run, StepRecord, StepTrace};
use super::step_table::{COLUMNS, TableRun, read, read_runs, write};
use ridgepoint::Request;

fn written(runs: &[TableRun]) -> String {
    let mut out = Vec::new();
    write(&mut out, runs).unwrap();
    String::from_utf8(out).unwrap()
}

fn file(text: &str) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("steps.csv");
    std::fs::write(&path, text).unwrap();
    (dir, path)
}

fn read_text(text: &str) -> ridgepoint::Result<Vec<TableRun>> {
    let (_dir, path) = file(text);
    read_runs(&path)
}

fn example() -> TableRun {
    let run = Run {
        experiment: "chat, \"8 req/s\"".into(),
        model: Some("llama-2-70b".into()),
        tensor_parallel_size: Some(4),
        ..Run::default()
    };
    let step = |step_id, start_ns| StepRecord {
        step_id,
        start_ns,
        num_prefill_requests: 1,
        num_decode_requests: 2,
        prefill_tokens: 7,
        decode_tokens: 2,
        kv_blocks_free: Some(30788),
        requests: Some(vec![Request::prefill(7, 568), Request::decode(1055), Request::decode(1055)]),
        ..StepRecord::default()
    };
    let steps = vec![step(5, 1_000), step(200, 2_000), step(203, 57_002_000)];
    let trace = StepTrace { run, steps };
    let periods = periods(&trace, &Cleaning::default());
    TableRun { trace, periods }
}

#[test]
fn a_row_says_what_is_known_and_leaves_the_rest_empty() {
    let text = written(&[example()]);
    let rows: Vec<&str> = text.lines().collect();
    assert_eq!(rows[0], *COLUMNS);
    let labels = "\"chat, \"\"8 req/s\"\"\",llama-2-70b,,4,,,,";
    let (counts, requests) = ("1,2,7,2,,,,,,,,30788,,", "7@568 2x1@1055");
    assert_eq!(rows[1], format!("{labels},5,1000,{counts},,,warm_up,{requests}"));
    assert_eq!(rows[2], format!("{labels},200,2000,{counts},3,19000.0,,{requests}"));
    assert_eq!(rows[3], format!("{labels},203,57002000,{counts},,,last_step,{requests}"));
}

#[test]
fn steps_and_times_come_back() {
    let text = written(&[example()]);
    assert_eq!(read_text(&text).unwrap(), [example()]);
    let (_dir, path) = file(&text);
    let found = read(&path).unwrap();
    assert_eq!((found.steps_read(), &found.steps[0]), (3, &example().trace));
}

/// The table with one row, the cell of a column replaced.
fn with_cell(column: &str, cell: &str) -> String {
    let mut row: Vec<String> = COLUMNS.split(',').map(|_| String::new()).collect();
    let mut set = |column: &str, cell: &str| {
        let index = COLUMNS.split(',').position(|name| name == column).unwrap();
        row[index] = cell.to_owned();
    };
    for (column, cell) in [("experiment", "a"), ("step_id", "1"), ("start_ns", "1"), ("steps_to_next", "1")] {
        set(column, cell);
    }
    for (column, cell) in [("period_us", "10"), ("num_prefill_requests", "0"), ("num_decode_requests", "1")] {
        set(column, cell);
    }
    for (column, cell) in [("prefill_tokens", "0"), ("decode_tokens", "1"), ("requests", "1@9")] {
        set(column, cell);
    }
    set(column, cell);
    format!("{}\n{}\n", *COLUMNS, row.join(","))
}

#[test]
fn cells_that_are_not_as_documented_name_row_and_column() {
    assert_eq!(read_text(&with_cell("workload", "chat")).unwrap().len(), 1);
    for (column, cell) in [
        ("experiment", ""),
        ("tensor_parallel_size", "0"),
        ("max_num_seqs", "many"),
        ("step_id", ""),
        ("step_id", "-1"),
        ("step_id", "1.5"),
        ("start_ns", "NaN"),
        ("steps_to_next", "0"),
        ("steps_to_next", ""),
        ("period_us", "0"),
        ("period_us", "-3"),
        ("period_us", "inf"),
        ("period_us", "NaN"),
        ("left_out", "gap"),
        ("num_decode_requests", "4294967296"),
        ("prefill_tokens", "500"),
        ("decode_tokens", "0"),
        ("decode_kv_tokens", "1099511627777"),
        ("gpu_time_us", "-1"),
        ("requests", "2x1@9"),
        ("requests", "1-9"),
    ] {
        let message = read_text(&with_cell(column, cell)).unwrap_err().to_string();
        assert!(message.contains(&format!("row 1: column '{column}'")), "{column} {cell}: {message}");
    }
    let message = read_text(&with_cell("period_us", "")).unwrap_err().to_string();
    assert!(message.contains("or a reason in left_out"), "{message}");
}

#[test]
fn headers_are_checked_and_all_faults_are_named() {
    let text = with_cell("workload", "").replace("start_ns", "start_us").replace("requests\n", "model\n");
    let message = read_text(&text).unwrap_err().to_string();
    for said in ["'start_us' is not known", "'start_ns' is missing", "'requests' is missing", "'model' appears twice"] {
        assert!(message.contains(said), "{said}: {message}");
    }
    assert!(read_text("").unwrap_err().to_string().contains("is empty"));
    assert!(read_text(&format!("{}\n", *COLUMNS)).unwrap_err().to_string().contains("no rows"));
    let cut_short = written(&[example()]);
    let message = read_text(&cut_short[..cut_short.len() - 30]).unwrap_err().to_string();
    assert!(message.contains("line 4: has"), "{message}");
}

#[test]
fn steps_of_a_run_go_up() {
    let text = with_cell("workload", "");
    let row = text.lines().last().unwrap();
    let message = read_text(&format!("{text}{row}\n")).unwrap_err().to_string();
    assert!(message.contains("row 2: column 'step_id'"), "{message}");
}

fn label() -> impl Strategy<Value = Option<String>> {
    proptest::option::of("[a-z ,\"/\n0-9é]{1,12}")
}

fn reason() -> impl Strategy<Value = DropReason> {
    prop_oneof![
        Just(DropReason::WarmUp),
        Just(DropReason::Gap),
        Just(DropReason::ClockJump),
        Just(DropReason::LastStep)
    ]
}

fn request() -> impl Strategy<Value = Request> {
    (any::<u32>(), 1u32..9000, any::<bool>())
        .prop_map(|(computed, scheduled, samples)| Request::new(computed, scheduled, samples))
}

prop_compose! {
    fn record()(
        start_ns in any::<u64>(),
        requests in proptest::collection::vec(request(), 0..6),
        decodes in 0usize..4,
        known in any::<bool>(),
        counts in proptest::option::of(any::<u32>()),
        tokens in proptest::option::of(any::<u64>()),
        gpu_time_us in proptest::option::of(1e-3f64..1e9),
        kv_usage_ratio in proptest::option::of(0f64..=1.0),
    ) -> StepRecord {
        let (decodes, prefills) = requests.split_at(requests.len().min(decodes));
        let tokens_of = |of: &[Request]| of.iter().map(|request| u64::from(request.num_scheduled_tokens)).sum();
        let count = |of: &[Request]| u32::try_from(of.len()).unwrap();
        StepRecord {
            start_ns, gpu_time_us, kv_usage_ratio,
            num_prefill_requests: count(prefills),
            num_decode_requests: count(decodes),
            prefill_tokens: tokens_of(prefills),
            decode_tokens: tokens_of(decodes),
            prefill_kv_tokens: tokens.map(|tokens| tokens >> 24), kv_blocks_total: tokens,
            num_running: counts, num_preempted: counts,
            requests: known.then_some(requests),
            ..StepRecord::default()
        }
    }
}

prop_compose! {
    fn run(experiment: &'static str)(
        labels in (label(), label(), label()),
        count in proptest::option::of(1u32..),
        steps in proptest::collection::vec((record(), 1u64..50, proptest::option::of((1u64..99, 1_000u64..1_000_000_000_000)), reason()), 1..9),
    ) -> TableRun {
        let mut made = TableRun::default();
        made.trace.run = Run {
            experiment: experiment.to_owned(),
            model: labels.0, hardware: labels.1, engine_version: labels.2,
            max_num_seqs: count, ..Run::default()
        };
        let mut step_id = 0;
        for (index, (record, gap, interval, reason)) in steps.into_iter().enumerate() {
            step_id += gap;
            made.trace.steps.push(StepRecord { step_id, ..record });
            match interval {
                Some((steps, span_ns)) => {
                    let span_us = span_ns as f64 / 1e3;
                    made.periods.times.push(Ok(Interval { first: index, steps, span_us }));
                }
                None => made.periods.times.push(Err(reason)),
            }
        }
        made
    }
}

proptest! {
    #[test]
    fn what_is_written_comes_back(runs in (run("first"), run("second"))) {
        let runs = [runs.0, runs.1];
        let text = written(&runs);
        let back = read_text(&text).unwrap();
        prop_assert_eq!(&runs[..], &back[..]);
        prop_assert_eq!(written(&back), text);
    }

    #[test]
    fn no_text_makes_the_reader_panic(text in "[a-z0-9,.@x\n\" -]{0,200}") {
        let _ = read_text(&text);
        let _ = read_text(&format!("{}\n{text}", *COLUMNS));
    }
}

#[test]
fn an_empty_periods_is_no_table() {
    assert_eq!(written(&[]), "");
    assert_eq!(Periods::default().median_period_us(), None);
}

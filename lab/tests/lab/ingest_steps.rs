//! Step csv and forward-pass metrics: what is read, counted and refused, and the periods of real traces.

use crate::common;

use std::fmt::Write as _;
use std::path::PathBuf;

use proptest::prelude::*;
use ridgepoint_lab::ingest::{Capture, Cleaning, DropReason, forward_pass, periods, step_csv};

const HEADER: &str = "step.id,step.ts_start_ns,batch.num_prefill_reqs,batch.num_decode_reqs,batch.prefill_tokens,\
                      batch.decode_tokens,experiment_id,model,workload,tp";

fn file(name: &str, text: &str) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(name);
    std::fs::write(&path, text).unwrap();
    (dir, path)
}

fn csv(text: &str) -> ridgepoint::Result<Capture> {
    let (_dir, path) = file("chat.csv", text);
    step_csv::read(&path)
}

fn fault(text: &str) -> String {
    csv(text).unwrap_err().to_string()
}

fn row(id: u64, start_ms: u64) -> String {
    format!("{id},{}000000,1,8,40,8,chat,llama-2-70b,general,4\n", start_ms)
}

fn table(rows: impl IntoIterator<Item = (u64, u64)>) -> String {
    rows.into_iter().fold(format!("{HEADER}\n"), |text, (id, start_ms)| text + &row(id, start_ms))
}

/// 200 steps of 20 ms from number 1000, with the row of step 1050 replaced.
fn with_row(replacement: &str) -> String {
    let mut text = format!("{HEADER}\n");
    for id in 0..200 {
        if id == 50 {
            writeln!(text, "{replacement}").unwrap();
        } else {
            text.push_str(&row(1000 + id, 20 * id));
        }
    }
    text
}

#[test]
fn runs_labels_and_counts_are_read() {
    let text =
        format!("{HEADER},queue.waiting_depth\n{}", row(1, 0).replace('\n', ",3\n") + &row(2, 20).replace('\n', ",\n"))
            + "1,5,0,1,0,1,other,,,,\n";
    let found = csv(&text).unwrap();
    assert_eq!((found.steps_read(), found.steps.len()), (3, 2));
    let run = &found.steps[0].run;
    assert_eq!((run.experiment.as_str(), run.model.as_deref()), ("chat", Some("llama-2-70b")));
    assert_eq!((run.workload.as_deref(), run.tensor_parallel_size, &run.hardware), (Some("general"), Some(4), &None));
    let steps = &found.steps[0].steps;
    assert_eq!((steps[0].prefill_tokens, steps[0].decode_tokens, steps[0].num_waiting), (40, 8, Some(3)));
    assert_eq!((steps[1].start_ns, steps[1].num_waiting, steps[1].num_running), (20_000_000, None, None));
    assert_eq!((found.steps[1].run.model.as_ref(), found.steps[1].run.tensor_parallel_size), (None, None));
}

#[test]
fn columns_stand_in_any_order_and_a_file_without_names_is_one_run() {
    let found = csv("batch.decode_tokens,batch.prefill_tokens,batch.num_decode_reqs,batch.num_prefill_reqs,\
                     step.ts_start_ns,step.id,step.duration_us\n8,0,8,0,7000000000,41.0,12\n")
    .unwrap();
    assert_eq!(found.steps[0].run.experiment, "chat");
    let step = &found.steps[0].steps[0];
    assert_eq!((step.step_id, step.start_ns, step.num_decode_requests), (41, 7_000_000_000, 8));
}

#[test]
fn headers_name_every_fault() {
    let message = fault("step.id,step.ts_start_us,batch.num_prefill_reqs,batch.colour,step.id\n1,2,3,4,5\n");
    for said in [
        "'step.ts_start_us' is not known",
        "'batch.colour' is not known",
        "'step.id' appears twice",
        "'step.ts_start_ns' is missing",
        "'batch.decode_tokens' is missing",
        "the columns are step.id, step.ts_start_ns",
    ] {
        assert!(message.contains(said), "{said}: {message}");
    }
    assert!(fault("").contains("chat.csv: is empty"));
    assert!(fault(&format!("{HEADER}\n")).contains("no rows"));
    let cut_short = table([(1, 0), (2, 20)]);
    assert!(fault(&cut_short[..cut_short.len() - 12]).contains("line 3: has 8 cells, the header has 10"));
}

#[test]
fn a_broken_row_in_two_hundred_is_counted_and_dropped() {
    for bad in [
        "1050,1000000000,1,8,NaN,8,chat,llama-2-70b,general,4",
        "1050,-5,1,8,40,8,chat,llama-2-70b,general,4",
        "1050,1000000000,1,8.5,40,8,chat,llama-2-70b,general,4",
        "1050,1000000000,2,8,1,8,chat,llama-2-70b,general,4",
        "1050,1000000000,1,8,40,7,chat,llama-2-70b,general,4",
        "1050,,1,8,40,8,chat,llama-2-70b,general,4",
        "1050,1000000000,1,8,40,8,chat,llama-2-70b,general,0",
        "1050,1000000000,1,8,40,8,,llama-2-70b,general,4",
    ] {
        let found = csv(&with_row(bad)).unwrap();
        assert_eq!(found.dropped_steps.count(DropReason::BadValue), 1, "{bad}");
        assert_eq!((found.steps_read(), found.steps[0].steps.len()), (200, 199), "{bad}");
    }
    assert_eq!(csv(&with_row(row(1050, 1000).trim())).unwrap().dropped_steps.total(), 0);
}

#[test]
fn a_file_of_broken_rows_names_the_first() {
    let text = with_row(
        "1050,1000000000,1,8,40,-8,chat,m,w,4\nx,1000000000,1,8,40,8,chat,m,w,4\n1052,1,1,8,40,8,chat,m,w,NaN",
    );
    let message = fault(&text);
    assert!(message.contains("3 of 202 rows can't be used, more than 1 %"), "{message}");
    assert!(message.contains("row 51: column 'batch.decode_tokens': found -8"), "{message}");
    assert!(
        fault(&table([(1, 0)]).replace(",40,", ",nan,")).contains("row 1: column 'batch.prefill_tokens': found nan")
    );
}

#[test]
fn contradicting_sums_and_blocks_are_broken_rows() {
    let header = format!("{HEADER},batch.scheduled_tokens,kv.blocks_total_gpu,kv.blocks_free_gpu\n");
    let message = fault(&(header.clone() + &row(1, 0).replace('\n', ",49,,\n")));
    assert!(message.contains("expected the sum of 40 prefill and 8 decode tokens"), "{message}");
    let message = fault(&(header.clone() + &row(1, 0).replace('\n', ",48,10,11\n")));
    assert!(message.contains("at most 10, the number of blocks"), "{message}");
    assert_eq!(
        csv(&(header + &row(1, 0).replace('\n', ",48,10,10\n"))).unwrap().steps[0].steps[0].kv_blocks_free,
        Some(10)
    );
}

#[test]
fn unsorted_and_repeated_steps_are_sorted_and_counted() {
    let found = csv(&table([(1003, 60), (1000, 0), (1002, 40), (1001, 20), (1002, 41)])).unwrap();
    let ids: Vec<u64> = found.steps[0].steps.iter().map(|step| step.step_id).collect();
    assert_eq!(ids, [1000, 1001, 1002, 1003]);
    assert_eq!(found.dropped_steps.count(DropReason::Duplicate), 1);
    assert!(found.notes[0].contains("have been sorted"), "{:?}", found.notes);
    let periods = periods(&found.steps[0], &Cleaning::default());
    assert_eq!(periods.median_period_us(), Some(20_000.0));
}

#[test]
fn microseconds_in_a_column_of_nanoseconds_are_reported() {
    let rows = (0..50).fold(format!("{HEADER}\n"), |text, id| {
        text + &format!("{},{},0,8,0,8,chat,llama-2-70b,general,4\n", 1000 + id, 18_500 * id)
    });
    let message = fault(&rows);
    assert!(message.contains("is 18.5 µs") && message.contains("is it in nanoseconds?"), "{message}");
}

#[test]
fn one_row_and_constant_times_leave_nothing_to_use() {
    let one = csv(&table([(1000, 0)])).unwrap();
    let of_one = periods(&one.steps[0], &Cleaning::default());
    assert_eq!((of_one.intervals().count(), of_one.dropped().count(DropReason::LastStep)), (0, 1));
    let constant = csv(&table((0..9).map(|id| (1000 + id, 5)))).unwrap();
    let of_constant = periods(&constant.steps[0], &Cleaning::default());
    assert_eq!((of_constant.intervals().count(), of_constant.dropped().count(DropReason::ClockJump)), (0, 8));
}

fn record(counter: u64, wall_time: &str) -> String {
    format!(
        "{{\"version\": 1, \"worker_id\": \"w0\", \"dp_rank\": 0, \"counter_id\": {counter}, \
         \"timing_scope\": \"execute_model_cuda\", \"wall_time\": {wall_time}, \"scheduled_requests\": \
         {{\"num_prefill_requests\": 1, \"sum_prefill_tokens\": 512, \"var_prefill_length\": 0.0, \
         \"sum_prefill_kv_tokens\": 64, \"num_decode_requests\": 9, \"sum_decode_kv_tokens\": 9000, \
         \"var_decode_kv_tokens\": 12.5}}, \"queued_requests\": {{\"num_prefill_requests\": 2, \
         \"sum_prefill_tokens\": 99, \"var_prefill_length\": 0.0, \"num_decode_requests\": 1, \
         \"sum_decode_kv_tokens\": 5, \"var_decode_kv_tokens\": 0.0}}}}\n"
    )
}

fn metrics(text: &str) -> ridgepoint::Result<Capture> {
    let (_dir, path) = file("fpm.jsonl", text);
    forward_pass::read(&path)
}

#[test]
fn forward_passes_are_timed_steps() {
    let found = metrics(&(record(500, "0.0185") + "\n" + &record(501, "0.02"))).unwrap();
    let trace = &found.steps[0];
    assert_eq!((trace.run.experiment.as_str(), trace.steps.len()), ("fpm", 2));
    let step = &trace.steps[0];
    assert_eq!((step.step_id, step.start_ns, step.num_waiting), (500, 0, Some(3)));
    assert_eq!((step.prefill_tokens, step.prefill_kv_tokens), (512, Some(64)));
    assert_eq!((step.decode_tokens, step.decode_kv_tokens), (9, Some(9000)));
    let periods = periods(trace, &Cleaning::default());
    assert_eq!(periods.intervals().count(), 2);
    let first = periods.intervals().next().unwrap();
    assert!((first.period_us() - 18_500.0).abs() < 1e-6 && first.steps == 1);
}

#[test]
fn workers_and_ranks_are_runs_of_their_own() {
    let text = record(500, "0.01") + &record(500, "0.02").replace("\"dp_rank\": 0", "\"dp_rank\": 1");
    let found = metrics(&(text + &record(7, "0.02").replace("\"w0\"", "5"))).unwrap();
    let names: Vec<&str> = found.steps.iter().map(|trace| trace.run.experiment.as_str()).collect();
    assert_eq!(names, ["fpm worker 5 rank 0", "fpm worker w0 rank 0", "fpm worker w0 rank 1"]);
}

#[test]
fn idle_heartbeats_are_empty_and_repeats_are_duplicates() {
    let heartbeat = record(501, "0.0")
        .replacen("\"num_prefill_requests\": 1", "\"num_prefill_requests\": 0", 1)
        .replacen("\"num_decode_requests\": 9", "\"num_decode_requests\": 0", 1);
    let found = metrics(&(record(500, "0.01") + &heartbeat + &record(500, "0.01"))).unwrap();
    assert_eq!(
        (found.dropped_steps.count(DropReason::Empty), found.dropped_steps.count(DropReason::Duplicate)),
        (1, 1)
    );
    assert_eq!((found.steps_read(), found.steps[0].steps.len()), (3, 1));
}

#[test]
fn unknown_versions_scopes_units_and_keys_are_errors() {
    let good = record(500, "0.01");
    for (text, said) in [
        (good.replace("\"version\": 1", "\"version\": 2"), "row 1: column 'version': found 2, expected 1"),
        (good.replace("execute_model_cuda", "host"), "column 'timing_scope': found host, expected execute_model_cuda"),
        (good.replace("\"timing_scope\": \"execute_model_cuda\", ", ""), "column 'timing_scope' is missing"),
        (good.replace("wall_time", "wall_time_ms"), "column 'wall_time_ms' is not known"),
        (record(500, "18.5"), "is it in seconds?"),
        (record(500, "-0.1"), "column 'wall_time': found -0.1"),
        (record(500, "NaN"), "line 1 column"),
        (record(500, "null"), "column 'wall_time': found nothing"),
        (good.replace("\"num_decode_requests\": 9", "\"num_decode_requests\": -9"), "column 'scheduled_requests'"),
        (
            good.replacen("\"num_prefill_requests\": 1", "\"num_prefill_requests\": 0", 1),
            "expected for prefill_tokens at least one for each of 0 requests, else 0",
        ),
        (good.replace("\"sum_decode_kv_tokens\": 9000", "\"sum_decode_kv_tokens\": 2e12"), "'scheduled_requests'"),
        (good[..200].to_owned(), "EOF while parsing"),
        (format!("{good}[1]\n"), "line 2 column 1: is not a JSON object"),
        (String::new(), "has no rows"),
    ] {
        let message = metrics(&text).unwrap_err().to_string();
        assert!(message.contains(said) && message.contains("fpm.jsonl"), "{said}: {message}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_file_makes_the_readers_panic(
        bytes in proptest::collection::vec(any::<u8>(), 0..300),
        cells in "[0-9eE.,\\-+naif\n]{0,300}",
        cut in 0usize..600,
    ) {
        let (_dir, path) = file("any", "");
        let record = record(500, "0.01");
        let cut_short = record.get(..cut.min(record.len())).unwrap().to_owned() + &cells;
        for content in [bytes, format!("{HEADER}\n{cells}").into_bytes(), cut_short.into_bytes()] {
            std::fs::write(&path, content).unwrap();
            for found in [step_csv::read(&path), forward_pass::read(&path)].into_iter().flatten() {
                for trace in &found.steps {
                    let periods = periods(trace, &Cleaning::default());
                    prop_assert_eq!(periods.times.len(), trace.steps.len());
                    prop_assert!(periods.intervals().all(|of| of.span_us > 0.0 && of.steps > 0));
                }
            }
        }
    }
}

#[test]
fn real_traces_keep_their_steps() {
    let Some(data) = common::data_pack("real_traces_keep_their_steps") else { return };
    for (name, fastest_us, slowest_us) in [
        ("20260217-202857-llama-2-70b-tp4-general", 17e3, 20e3),
        ("20260218-150304-codellama-34b-tp2-general", 13e3, 16e3),
    ] {
        let found = step_csv::read(&data.join("steps").join(format!("{name}.csv"))).unwrap();
        assert_eq!((found.steps.len(), found.dropped_steps.total(), found.notes.len()), (1, 0, 0));
        let trace = &found.steps[0];
        assert_eq!(trace.run.experiment, name);
        let periods = periods(trace, &Cleaning::default());
        let share = periods.intervals().count() as f64 / found.steps_read() as f64;
        let median_us = periods.median_period_us().unwrap();
        eprintln!(
            "{name}: {} of {} steps kept, median period {median_us:.0} µs, left out {:?}",
            periods.intervals().count(),
            found.steps_read(),
            periods.dropped()
        );
        assert!(share >= 0.95, "{share}");
        assert!((fastest_us..slowest_us).contains(&median_us), "{median_us}");
        // The engine stood still once in each run, for more than half a second, after a step without tokens.
        assert_eq!(periods.dropped().count(DropReason::Empty), 1);
        assert!(periods.intervals().all(|of| of.period_us() < 60e3));
    }
}

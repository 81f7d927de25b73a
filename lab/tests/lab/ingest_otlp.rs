//! OpenTelemetry traces as collectors write them. Broken ones are in `ingest_otlp_faults`.

use crate::ingest_support;

use std::fmt::Write as _;

use ridgepoint::{Request, Result};
use ridgepoint_lab::ingest::{Capture, DirectionLog, DropReason, RequestRow, StepRecord, Whole, otlp};
use serde_json::{Value, json};

use ingest_support::{api_span, attributes, core_span, event, export, snapshot, span, summary};

pub fn read_text(text: &str) -> Result<Capture> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run-7.json");
    std::fs::write(&path, text).unwrap();
    otlp::read(&path)
}

pub fn read_lines(exports: &[Value]) -> Capture {
    let text = exports.iter().fold(String::new(), |mut text, export| {
        writeln!(text, "{export}").unwrap();
        text
    });
    read_text(&text).unwrap()
}

pub fn message(text: &str) -> String {
    let message = read_text(text).map(|_| ()).unwrap_err().to_string();
    assert!(message.contains("run-7.json"), "{message}");
    message
}

pub const ENGINE: &str = "vllm.scheduler";
pub const STEPS: &str = "vllm.scheduler.step";

pub fn service() -> Vec<(&'static str, Value)> {
    vec![("service.name", json!("vllm-server")), ("service.version", json!("0.15.1+steps"))]
}

pub fn whole_run() -> Vec<Value> {
    vec![
        export(&service(), "vllm.api", vec![api_span("cmpl-a1-b2", 50_000_000_000)]),
        export(
            &service(),
            STEPS,
            vec![span(
                "scheduler_steps",
                &[],
                vec![
                    summary(42, 50_010_000_000, (1, 511), 1),
                    snapshot(42, "cmpl-a1-b2-0", "PREFILL", (64, 511, 575, 0)),
                    snapshot(42, "other", "DECODE", (900, 1, 890, 11)),
                    summary(41, 50_000_000_000, (0, 0), 2),
                ],
            )],
        ),
        export(&service(), ENGINE, vec![core_span("cmpl-a1-b2-0", 50_000_000_000)]),
    ]
}

pub fn check_whole_run(read: &Capture) {
    assert_eq!((read.steps.len(), read.requests.len()), (1, 1));
    assert_eq!((read.steps_read(), read.requests_read()), (2, 1));
    assert_eq!(read.dropped_steps.total() + read.dropped_requests.total(), 0);
    let (run, steps) = (&read.steps[0].run, &read.steps[0].steps);
    assert_eq!(run.experiment, "run-7");
    assert_eq!(run.model.as_deref(), Some("llama-2-70b"));
    assert_eq!(run.engine_version.as_deref(), Some("0.15.1+steps"));
    assert_eq!((steps[0].step_id, steps[1].step_id), (41, 42));
    assert_eq!(read.requests[0].requests[0].max_output_tokens, Some(Whole::from(16)));
    // A share stands in where blocks are not counted.
    let uncounted = StepRecord { kv_blocks_free: None, kv_usage_ratio: Some(0.5), ..steps[0].clone() };
    assert_eq!(
        (steps[0].kv_usage_ratio, steps[0].kv_ratio(), uncounted.kv_ratio()),
        (Some(0.25), Some(0.25), Some(0.5))
    );
    assert_eq!((steps[1].start_ns, steps[1].num_prefill_requests, steps[1].prefill_tokens), (50_010_000_000, 1, 511));
    assert_eq!((steps[1].kv_blocks_total, steps[1].kv_blocks_free), (Some(1000), Some(750)));
    assert_eq!((steps[1].num_waiting, steps[1].num_preempted), (Some(3), Some(1)));
    assert_eq!((steps[1].prefill_kv_tokens, steps[1].decode_kv_tokens), (Some(64), Some(900)));
    assert_eq!(steps[1].requests, Some(vec![Request::prefill(511, 64), Request::decode(900)]));
    assert_eq!(steps[0].requests, None);

    let row = &read.requests[0].requests[0];
    assert_eq!(&read.requests[0].run, run);
    assert_eq!(&*row.request_id, "cmpl-a1-b2-0");
    assert_eq!((row.arrived_ns, row.handed_over_ns), (Some(49_997_000_000.into()), Some(49_999_500_000.into())));
    assert_eq!((row.queued_ns, row.scheduled_ns), (Some(50_000_000_000.into()), Some(50_001_000_000.into())));
    assert_eq!((row.first_token_ns, row.finished_ns), (Some(50_021_000_000.into()), Some(50_101_000_000.into())));
    assert_eq!((row.first_response_ns, row.departed_ns), (Some(50_023_000_000.into()), Some(50_104_000_000.into())));
    assert_eq!(
        (row.scheduled_step, row.first_token_step, row.finished_step),
        (Some(41.into()), Some(46.into()), Some(61.into()))
    );
    // 575 prompt tokens when queued; the 579 after the preemption hold generated ones. 64 of them were cached.
    assert_eq!((row.num_prompt_tokens, row.num_cached_tokens), (Some(575.into()), Some(64.into())));
    assert_eq!((row.num_output_tokens, row.num_preemptions), (Some(16.into()), Some(1.into())));
    assert_eq!(row.finish_status.as_deref(), Some("length"));
}

#[test]
fn a_run_reads_the_same_from_lines_one_document_and_a_list() {
    let exports = whole_run();
    check_whole_run(&read_lines(&exports));
    let spans: Vec<Value> = exports.iter().flat_map(|one| one["resourceSpans"].as_array().unwrap().clone()).collect();
    check_whole_run(&read_text(&json!({ "resourceSpans": spans }).to_string()).unwrap());
    check_whole_run(&read_text(&serde_json::to_string_pretty(&exports).unwrap()).unwrap());
    check_whole_run(&read_text(&format!("\u{feff}{}\r\n", Value::Array(exports))).unwrap());
}

#[test]
fn the_order_of_lines_and_of_keys_does_not_matter() {
    let mut exports = whole_run();
    exports.reverse();
    check_whole_run(&read_lines(&exports));
    // The span's events before its name, its scope after its spans, the resource last.
    let swapped: Vec<String> = whole_run()
        .iter()
        .map(|export| {
            let resource = &export["resourceSpans"][0];
            let scope = &resource["scopeSpans"][0];
            let one = &scope["spans"][0];
            format!(
                r#"{{"resourceSpans":[{{"scopeSpans":[{{"spans":[{{"events":{},"new":[{{}}],"attributes":{},"name":{},
                "startTimeUnixNano":17}}],"scope":{}}}],"later":null,"resource":{}}}]}}"#,
                one["events"], one["attributes"], one["name"], scope["scope"], resource["resource"]
            )
        })
        .collect();
    check_whole_run(&read_text(&swapped.join("\n")).unwrap());
}

#[test]
fn bare_names_numbers_and_seconds_are_read_too() {
    let times = |name: &str, seconds: f64| event(name, &[("ts.monotonic", json!(seconds)), ("request.id", json!("r"))]);
    let step = event(
        "BATCH_SUMMARY",
        &[
            ("step.id", json!({ "intValue": 7 })),
            ("step.ts_start_ns", json!({ "intValue": 9_000_000_000u64 })),
            ("batch.num_prefill_reqs", json!({ "doubleValue": 0.0 })),
            ("batch.num_decode_reqs", json!({ "intValue": "2" })),
            ("batch.prefill_tokens", json!(0)),
            ("batch.decode_tokens", json!(2)),
        ],
    );
    let read = read_lines(&[export(
        &[],
        "",
        vec![
            span("llm_core", &[], vec![times("QUEUED", 9.5), times("SCHEDULED", 9.75)]),
            span("steps", &[], vec![step]),
        ],
    )]);
    let (step, row) = (&read.steps[0].steps[0], &read.requests[0].requests[0]);
    assert_eq!((step.step_id, step.start_ns, step.num_decode_requests), (7, 9_000_000_000, 2));
    assert_eq!(step.kv_blocks_total, None);
    assert_eq!((row.queued_ns, row.scheduled_ns), (Some(9_500_000_000.into()), Some(9_750_000_000.into())));
    assert_eq!(row.arrived_ns, None);
}

#[test]
fn stock_spans_become_requests_on_the_unix_clock() {
    let latency = |e2e: Value| {
        span(
            "llm_request",
            &[
                ("gen_ai.request.id", json!("chatcmpl-1")),
                ("gen_ai.usage.prompt_tokens", json!(100)),
                ("gen_ai.usage.completion_tokens", json!(9)),
                ("gen_ai.latency.e2e", e2e),
                ("gen_ai.latency.time_to_first_token", json!(0.25)),
                ("gen_ai.latency.time_in_queue", json!(0.01)),
                ("gen_ai.request.temperature", json!(0.0)),
                ("gen_ai.request.top_p", json!(1.0)),
            ],
            vec![],
        )
    };
    let read = read_lines(&[export(&service(), "vllm.llm_engine", vec![latency(json!(1.5))])]);
    let row = &read.requests[0].requests[0];
    assert_eq!(row.arrived_ns, Some(1_700_000_000_000_000_000.into()));
    assert_eq!(row.first_response_ns, Some(1_700_000_000_250_000_000.into()));
    assert_eq!(row.departed_ns, Some(1_700_000_001_500_000_000.into()));
    assert_eq!((row.num_prompt_tokens, row.num_output_tokens, row.queued_ns), (Some(100.into()), Some(9.into()), None));
    assert_eq!((row.temperature, row.top_p), (Some(0.0), Some(1.0)));
    // A negative, a missing and a too short duration.
    for (e2e, reason) in
        [(json!(-1.5), DropReason::BadValue), (json!({}), DropReason::Incomplete), (json!(0.125), DropReason::BadValue)]
    {
        let read = read_lines(&[export(&service(), "vllm.llm_engine", vec![latency(e2e)])]);
        assert_eq!((read.requests_read(), read.dropped_requests.count(reason)), (1, 1));
    }
}

#[test]
fn engine_times_of_stock_spans_are_as_late_as_the_responses_allow() {
    let latency = |key: &str, seconds: f64| (format!("gen_ai.latency.{key}"), json!(seconds));
    let row = |first: f64| {
        let latencies = [
            latency("e2e", 1.5),
            latency("time_to_first_token", first),
            latency("time_in_queue", 0.0625),
            latency("time_in_model_prefill", 0.125),
            latency("time_in_model_decode", 1.25),
            latency("time_in_model_inference", 1.375),
        ];
        let mut pairs = vec![("gen_ai.request.id", json!("chatcmpl-1"))];
        pairs.extend(latencies.iter().map(|(key, value)| (key.as_str(), value.clone())));
        let read = read_lines(&[export(&service(), "vllm.tracing.otel", vec![span("llm_request", &pairs, vec![])])]);
        assert_eq!(read.notes, [""; 0]);
        read.requests[0].requests[0].clone()
    };
    let us = |row: &RequestRow, at: Option<Whole>| at.unwrap().since(row.arrived_ns.unwrap()).unwrap() / 1000;
    // The last token 1.4375 s after it was queued, and the last response 1.5 s after the arrival: 62.5 ms before the queue. The
    // first response would allow 312.5 ms.
    let late = row(0.5);
    let times = [late.queued_ns, late.scheduled_ns, late.first_token_ns, late.finished_ns];
    assert_eq!(times.map(|at| us(&late, at)), [62_500, 125_000, 250_000, 1_500_000]);
    // The first response allows 31.25 ms.
    let early = row(0.218_75);
    let times = [early.queued_ns, early.scheduled_ns, early.first_token_ns, early.finished_ns];
    assert_eq!(times.map(|at| us(&early, at)), [31_250, 93_750, 218_750, 1_468_750]);
}

#[test]
fn names_that_are_not_read_are_counted() {
    let mut step = summary(7, 9_000_000_000, (0, 0), 2);
    let more = attributes(&[("batch.colour", json!("red"))]);
    step["attributes"].as_array_mut().unwrap().extend(more.as_array().unwrap().clone());
    let resource = [("service.name", json!("a")), ("team", json!("b"))];
    let spans = vec![
        span("scheduler_steps", &[], vec![step, event("step.NEWS", &[]), event("step.NEWS", &[])]),
        span("Load weights", &[("code.lineno", json!(5))], vec![]),
    ];
    let notes = read_lines(&[export(&resource, STEPS, spans)]).notes;
    for said in [
        "spans that are not read: Load weights (1)",
        "events that are not read: step.NEWS (2)",
        "attributes that are not read: batch.colour (1), team (1)",
    ] {
        assert!(notes.iter().any(|note| note == said), "'{said}' is not in {notes:?}");
    }
    // What the background papers' and unmodified servers' traces hold is known.
    assert!(read_lines(&whole_run()).notes.iter().all(|note| !note.contains("not read")));
}

#[test]
fn transfers_in_the_step_span_are_counted() {
    let transfer = |name: &str, ms: u64| {
        let pairs = [
            ("transfer.id", json!(7)),
            ("request.id", json!("r")),
            ("kv.src", json!("GPU")),
            ("kv.dst", json!("CPU")),
            ("kv.num_blocks", json!(4)),
            ("scheduler.step", json!(3)),
        ];
        let mut event = event(name, &pairs);
        event["timeUnixNano"] = json!((1_000_000_000_000_000_000 + ms * 1_000_000).to_string());
        event
    };
    let events = vec![
        summary(7, 9_000_000_000, (0, 0), 2),
        transfer("TransferInitiated", 0),
        transfer("TransferCompleted", 250),
        event("CacheStoreCommitted", &[("kv.num_blocks", json!(-4))]),
    ];
    let read = read_lines(&[export(&service(), STEPS, vec![span("scheduler_steps", &[], events)])]);
    let log = read.transfers.as_ref().unwrap();
    assert_eq!(log.directions[0], DirectionLog { count: 1, failed: 0, blocks: 4 });
    let of = &log.transfers[0];
    assert_eq!(((of.noticed_us - of.begun_us).round(), of.blocks), (250_000.0, 4));
    assert_eq!(read.kv_events.map(|events| events.batches), Some(2));
    assert!(read.notes.iter().any(|note| note.starts_with("1 KV events left out")), "{:?}", read.notes);
}

#[test]
fn services_models_and_engines_are_runs_of_their_own() {
    let of = |name: &str, instance: &str| {
        [("service.name", json!(name)), ("service.instance.id", json!(instance)), ("process.pid", json!(17))]
    };
    let steps = |ids: [u64; 2]| {
        span("s", &[], ids.iter().map(|id| summary(*id, 1_000_000_000 + id * 20_000_000, (0, 0), 1)).collect())
    };
    let read = read_lines(&[
        export(&of("a", "0"), STEPS, vec![steps([1, 2])]),
        export(&of("b", "0"), STEPS, vec![steps([1, 2])]),
        export(&of("a", "1"), STEPS, vec![steps([1, 2])]),
        export(&of("a", "0"), STEPS, vec![steps([3, 4])]),
        // The server's process is another one than the engine's.
        export(
            &of("b", "api"),
            "vllm.api",
            vec![api_span("cmpl-1", 50_000_000_000), api_span("cmpl-2", 60_000_000_000)],
        ),
        export(&of("b", "0"), ENGINE, vec![core_span("cmpl-1-0-9f8e7d6c", 50_000_000_000)]),
    ]);
    let names: Vec<_> = read.steps.iter().map(|one| (one.run.experiment.as_str(), one.steps.len())).collect();
    assert_eq!(names, [("run-7/a/0/17", 4), ("run-7/a/1/17", 2), ("run-7/b/0/17", 2)]);
    assert_eq!(read.dropped_steps.total(), 0);
    assert_eq!(read.requests.len(), 1);
    assert_eq!(read.requests[0].run.experiment, "run-7/b/0/17");
    let rows = &read.requests[0].requests;
    assert_eq!((&*rows[0].request_id, rows[0].queued_ns.is_some()), ("cmpl-1-0-9f8e7d6c", true));
    assert_eq!((&*rows[1].request_id, rows[1].queued_ns.is_some()), ("cmpl-2", false));
    assert_eq!(rows[0].arrived_ns, Some(49_997_000_000.into()));
}

#[test]
fn prompts_that_share_a_request_have_its_arrival_and_not_its_responses() {
    let read = read_lines(&[export(
        &service(),
        ENGINE,
        vec![
            core_span("cmpl-1-0", 50_000_000_000),
            core_span("cmpl-1-1", 50_000_000_000),
            api_span("cmpl-1", 50_000_000_000),
        ],
    )]);
    let rows = &read.requests[0].requests;
    assert_eq!(rows.len(), 2);
    for row in rows {
        assert_eq!((row.arrived_ns, row.first_response_ns), (Some(49_997_000_000.into()), None));
        assert_eq!((row.temperature, row.top_p), (Some(0.5), None));
    }
}

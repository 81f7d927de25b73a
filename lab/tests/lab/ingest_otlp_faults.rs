//! Broken OpenTelemetry traces: what is counted and left out, what is refused, and a reader that never panics.

use proptest::prelude::*;
use ridgepoint_lab::ingest::format::Format;
use ridgepoint_lab::ingest::{DropReason, otlp};
use serde_json::{Value, json};

use crate::ingest_otlp::{ENGINE, STEPS, message, read_lines, read_text, service};
use crate::ingest_support::{at, attributes, core_span, event, export, snapshot, span, summary};

#[test]
fn bad_records_are_counted_by_reason_and_the_rest_is_kept() {
    let with = |key: &str, value: Value| {
        let mut bad = summary(3, 1_000, (0, 0), 1);
        let list = bad["attributes"].as_array_mut().unwrap();
        list.retain(|one| one["key"] != key);
        list.extend(attributes(&[(key, value)]).as_array().unwrap().clone());
        bad
    };
    let mut incomplete = summary(3, 1_000, (0, 0), 1);
    incomplete["attributes"].as_array_mut().unwrap().retain(|one| one["key"] != "step.ts_start_ns");
    let read = read_lines(&[export(
        &service(),
        STEPS,
        vec![span(
            "s",
            &[],
            vec![
                summary(9, 180_000_000, (0, 0), 1),
                summary(8, 160_000_000, (0, 0), 1),
                summary(9, 180_000_000, (0, 0), 1),
                with("step.ts_start_ns", json!(-5)),
                with("batch.decode_tokens", json!(7)),
                with("kv.blocks_free_gpu", json!({ "doubleValue": "NaN" })),
                with("batch.num_decode_reqs", json!(0)),
                with("batch.num_decode_reqs", json!({ "stringValue": "several" })),
                incomplete,
                event("step.SOMETHING_NEW", &[]),
            ],
        )],
    )]);
    assert_eq!(read.steps[0].steps.iter().map(|step| step.step_id).collect::<Vec<_>>(), [8, 9]);
    assert_eq!(read.steps_read(), 9);
    let count = |reason| read.dropped_steps.count(reason);
    assert_eq!((count(DropReason::Duplicate), count(DropReason::BadValue), count(DropReason::Incomplete)), (1, 5, 1));
    assert!(read.notes.iter().any(|note| note.contains("sorted")), "{:?}", read.notes);

    let backwards = span(
        "llm_core",
        &[("gen_ai.request.id", json!("r1"))],
        vec![at("journey.SCHEDULED", 5_000, &[]), at("journey.QUEUED", 6_000, &[])],
    );
    let strange = span(
        "llm_core",
        &[("gen_ai.request.id", json!("r2"))],
        vec![event("journey.QUEUED", &[("ts.monotonic", json!(1.7e18))])],
    );
    let unnamed = span("llm_core", &[], vec![at("journey.QUEUED", 6_000, &[])]);
    let wall = {
        let mut queued = at("journey.QUEUED", 6_000, &[]);
        queued["attributes"] = json!([]);
        span("llm_core", &[("gen_ai.request.id", json!("r3"))], vec![queued])
    };
    let twice = core_span("r4", 7_000_000);
    let read = read_lines(&[export(
        &service(),
        ENGINE,
        vec![backwards, strange, unnamed, wall, twice.clone(), twice, span("GET /health", &[], vec![])],
    )]);
    assert_eq!(read.requests[0].requests.len(), 1);
    assert_eq!(read.requests_read(), 6);
    let count = |reason| read.dropped_requests.count(reason);
    assert_eq!((count(DropReason::Duplicate), count(DropReason::BadValue), count(DropReason::Incomplete)), (1, 2, 2));
    assert!(read.notes.iter().any(|note| note == "spans that are not read: GET /health (1)"), "{:?}", read.notes);
}

#[test]
fn snapshots_that_contradict_are_left_out_and_the_summary_kept() {
    let read = read_lines(&[export(
        &service(),
        STEPS,
        vec![span(
            "s",
            &[],
            vec![
                summary(1, 1_000_000, (0, 0), 2),
                snapshot(1, "a", "DECODE", (70, 1, 65, 5)),
                summary(2, 2_000_000, (0, 0), 1),
                snapshot(2, "a", "DECODE", (71, 1, 65, 6)),
            ],
        )],
    )]);
    let steps = &read.steps[0].steps;
    assert_eq!((steps[0].requests.is_none(), steps[1].requests.is_some()), (true, true));
    assert!(
        read.notes.iter().any(|note| note.starts_with("1 snapshots left out: they contradict")),
        "{:?}",
        read.notes
    );
}

#[test]
fn requests_on_a_clock_in_another_unit_are_bad_values() {
    // Milliseconds as integers, while the time of day passes a million times as many ns.
    let mut spans = Vec::new();
    for id in 0..3u64 {
        let mut one = core_span(&format!("r{id}"), 50_000_000_000);
        for event in one["events"].as_array_mut().unwrap() {
            let ns: u64 = event["timeUnixNano"].as_str().unwrap().parse().unwrap();
            event["attributes"][0]["value"] = json!({ "intValue": (ns % 1_000_000_000_000) / 1_000_000 });
        }
        spans.push(one);
    }
    let read = read_lines(&[export(&service(), ENGINE, spans)]);
    assert_eq!((read.requests_read(), read.dropped_requests.count(DropReason::BadValue)), (3, 3));
    assert!(read.notes[0].contains("ts.monotonic advances 1.000e-6 times"), "{:?}", read.notes);
}

#[test]
fn files_that_are_no_trace_say_where_and_why() {
    let whole = export(&service(), ENGINE, vec![core_span("r", 7_000_000)]).to_string();
    let cut = format!("{whole}\n{}", &whole[..whole.len() / 2]);
    let text = message(&cut);
    assert!(
        text.contains(&format!("line 2 column {}", whole.len() / 2)) && text.contains("is the file cut short?"),
        "{text}"
    );
    for (text, parts) in [
        ("", vec!["no step.BATCH_SUMMARY event", "--otlp-traces-endpoint"]),
        ("{\"resourceSpans\": []}", vec!["no llm_request", "step or journey tracing"].split_off(1)),
        ("{\"resourceSpans\": [{}]} {", vec!["line 1 column 25", "is the file cut short?"]),
        ("{\"resource_spans\": []}", vec!["no step.BATCH_SUMMARY event", "format: json"]),
        ("[[]]", vec!["no step.BATCH_SUMMARY event"]),
        ("17", vec!["invalid type: integer `17`, expected an object or a list of objects"]),
        ("{\"resourceSpans\": 5}", vec!["no step.BATCH_SUMMARY"]),
        ("step.id,step.ts_start_ns\n1,2\n", vec!["line 1 column 1", "is not well-formed JSON"]),
        ("{\"resourceMetrics\": [{\"a\": [1, 2]}]}", vec!["no step.BATCH_SUMMARY"]),
    ] {
        let message = message(text);
        assert!(parts.iter().all(|part| message.contains(part)), "{text}: {message}");
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.json");
    std::fs::write(&path, b"\x28\xb5\x2f\xfd").unwrap();
    assert!(Format::detect(&path).unwrap_err().to_string().contains("is zstd: unpack it"));
    assert!(otlp::read(&folder.path().join("absent.json")).unwrap_err().to_string().contains("absent.json"));
}

fn json_values() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[a-zA-Z0-9._-]{0,12}".prop_map(Value::from),
        Just(json!("llm_core")),
        Just(json!("BATCH_SUMMARY")),
    ];
    const KEYS: [&str; 14] = [
        "resourceSpans",
        "scopeSpans",
        "spans",
        "events",
        "attributes",
        "name",
        "resource",
        "scope",
        "key",
        "value",
        "intValue",
        "timeUnixNano",
        "spanId",
        "doubleValue",
    ];
    leaf.prop_recursive(8, 64, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((prop::sample::select(&KEYS[..]), inner), 0..5).prop_map(|pairs| Value::Object(
                pairs.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
            )),
        ]
    })
}

proptest! {
    #[test]
    fn no_bytes_make_the_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), bytes).unwrap();
        let _ = otlp::read(file.path());
    }

    #[test]
    fn no_json_makes_the_reader_panic(value in json_values()) {
        let _ = read_text(&json!({ "resourceSpans": value.clone() }).to_string());
        let spans = json!([{ "scopeSpans": [{ "spans": [{ "name": "llm_core", "events": value.clone() }, value.clone()] }] }]);
        let _ = read_text(&json!({ "resourceSpans": spans }).to_string());
    }

    #[test]
    fn no_attribute_makes_the_reader_panic(value in json_values(), index in 0usize..16, cut in 0usize..2000) {
        let mut event = summary(1, 1_000, (1, 5), 2);
        event["attributes"][index]["value"] = value.clone();
        let mut core = core_span("r", 5_000_000);
        core["events"][index % 6]["attributes"][0]["value"] = value;
        let text = export(&[], STEPS, vec![span("s", &[], vec![event]), core]).to_string();
        let read = read_text(&text).unwrap();
        prop_assert_eq!((read.steps_read(), read.requests_read()), (1, 1));
        let end = text.char_indices().map(|(at, _)| at).nth(cut).unwrap_or(0);
        prop_assert!(read_text(&text[..end]).is_err());
    }
}

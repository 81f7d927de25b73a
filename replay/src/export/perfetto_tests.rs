use ridgepoint::{Request, Step};
use serde_json::{Value, json};

use super::super::fixtures::{Full, three};
use super::*;

const BATCH: [Request; 3] = [Request::new(100, 1, true), Request::new(0, 64, false), Request::new(7, 1, true)];

/// Step `index` from `start` to `end` µs, scheduled 10 µs before.
fn step(index: u64, start_us: u64, end_us: u64, batch: &[Request]) -> StepEvent<'_> {
    StepEvent {
        index,
        scheduled_ns: start_us * 1000 - 10_000,
        start_ns: start_us * 1000,
        end_ns: end_us * 1000 + 500,
        step: Step::from(batch),
        records: &[0, 1, 2],
        num_running: 3,
        num_waiting: 1,
        blocks_in_use: 11,
        cached_tokens: 0,
        preempted: &[3, 4],
    }
}

fn traced(steps: &[StepEvent<'_>], records: &[RequestRecord]) -> Value {
    let mut out = Vec::new();
    let mut trace = PerfettoTrace::new(&mut out);
    steps.iter().for_each(|step| trace.step(step));
    trace.finish(records, None).unwrap();
    serde_json::from_slice(&out).unwrap()
}

fn events<'a>(trace: &'a Value, ph: &str) -> Vec<&'a Value> {
    trace["traceEvents"].as_array().unwrap().iter().filter(|event| event["ph"] == ph).collect()
}

#[test]
fn steps_are_complete_events_with_what_was_in_them() {
    let steps = [step(0, 1000, 2000, &BATCH), step(1, 2001, 3000, &BATCH[..1]), step(2, 3001, 4000, &BATCH[1..2])];
    let trace = traced(&steps, &[]);
    let complete = events(&trace, "X");
    assert_eq!(
        *complete[0],
        json!({
            "name": "mixed", "ph": "X", "ts": 1000.0, "dur": 1000.5, "pid": 1, "tid": 1,
            "args": {
                "step": 0, "tokens": 66, "decodes": 2, "prefills": 1, "prefill_tokens": 64, "running": 3, "waiting": 1,
                "blocks_in_use": 11, "preempted": 2, "ahead_us": 10.0,
            },
        })
    );
    let names: Vec<&Value> = complete.iter().map(|event| &event["name"]).collect();
    assert_eq!(names, ["mixed", "decode", "prefill"]);
    assert!(complete.iter().all(|event| event["tid"] == 1), "one after the other on one track");
    assert_eq!(trace["otherData"], json!({"steps": 3, "requests": 0}));
}

#[test]
fn steps_in_flight_at_once_are_on_tracks_of_their_own() {
    let steps = [step(0, 1000, 2000, &BATCH), step(1, 1500, 2500, &BATCH), step(2, 2001, 3000, &BATCH)];
    let trace = traced(&steps, &[]);
    let tracks: Vec<&Value> = events(&trace, "X").into_iter().map(|event| &event["tid"]).collect();
    assert_eq!(tracks, [1, 2, 1]);
    let names: Vec<&Value> = events(&trace, "M").into_iter().map(|event| &event["args"]["name"]).collect();
    assert_eq!(names, ["engine", "requests", "engine steps", "engine steps in flight, 2"]);
}

#[test]
fn counters_are_written_where_they_change() {
    let steps = [
        step(0, 1000, 2000, &BATCH),
        step(1, 2001, 3000, &BATCH),
        StepEvent { blocks_in_use: 12, ..step(2, 3001, 4000, &BATCH) },
    ];
    let trace = traced(&steps, &[]);
    let counters: Vec<(&Value, &Value, &Value)> =
        events(&trace, "C").into_iter().map(|event| (&event["name"], &event["ts"], &event["args"])).collect();
    let expected = [
        (json!("queues"), json!(990.0), json!({"running": 3, "waiting": 1})),
        (json!("KV blocks"), json!(990.0), json!({"in_use": 11})),
        (json!("KV blocks"), json!(2991.0), json!({"in_use": 12})),
    ];
    assert_eq!(counters, expected.iter().map(|(name, ts, args)| (name, ts, args)).collect::<Vec<_>>());
}

#[test]
fn cached_tokens_are_a_counter_from_the_first_hit_on() {
    let steps = [
        step(0, 1000, 2000, &BATCH),
        StepEvent { cached_tokens: 64, ..step(1, 2001, 3000, &BATCH) },
        StepEvent { cached_tokens: 64, ..step(2, 3001, 4000, &BATCH) },
        StepEvent { cached_tokens: 96, ..step(3, 4001, 5000, &BATCH) },
    ];
    let trace = traced(&steps, &[]);
    let cached = events(&trace, "C").into_iter().filter(|event| event["name"] == "cached tokens found");
    let values: Vec<(&Value, &Value)> = cached.map(|event| (&event["ts"], &event["args"]["tokens"])).collect();
    assert_eq!(values, [(&json!(1991.0), &json!(64)), (&json!(3991.0), &json!(96))]);
}

#[test]
fn copies_of_each_direction_follow_each_other_on_a_track() {
    let copy = |index, direction, ready_us: u64, end_us: u64| {
        let (ready_ns, end_ns) = (ready_us * 1000, end_us * 1000);
        KvEvent::Transfer(TransferEvent { index, direction, record: 7, num_blocks: 5, ready_ns, end_ns })
    };
    let mut out = Vec::new();
    let mut trace = PerfettoTrace::new(&mut out);
    assert!(trace.wants().contains(Events::KV));
    trace.on(&Event::Kv(&copy(0, TransferDirection::GpuToCpu, 100, 150)));
    trace.on(&Event::Kv(&KvEvent::Stored(vec![1])));
    trace.on(&Event::Kv(&copy(1, TransferDirection::CpuToGpu, 110, 140)));
    // It waits for 20 µs until the first store has ended.
    trace.on(&Event::Kv(&copy(2, TransferDirection::GpuToCpu, 130, 180)));
    trace.finish(&[], None).unwrap();
    let trace: Value = serde_json::from_slice(&out).unwrap();
    let copies = events(&trace, "X");
    let of = |event: &Value| [&event["tid"], &event["ts"], &event["dur"]].map(|value| value.as_f64().unwrap());
    let expected = [[2.0, 100.0, 50.0], [1.0, 110.0, 30.0], [2.0, 150.0, 30.0]];
    assert_eq!(copies.iter().map(|event| of(event)).collect::<Vec<_>>(), expected);
    assert_eq!(copies[2]["args"], json!({"copy": 2, "request": 7, "blocks": 5, "waited_us": 20.0}));
    assert!(copies.iter().all(|event| event["pid"] == 3), "{copies:?}");
    let names: Vec<&Value> = events(&trace, "M").into_iter().map(|event| &event["args"]["name"]).collect();
    assert_eq!(names[2..], ["KV copies", "stores to the host", "loads from the host"]);
}

#[test]
fn requests_have_their_phases_inside() {
    let replay = three();
    let trace = traced(&[step(0, 1_210_000, 1_300_000, &BATCH)], &replay.records);
    let of = |id: u64| -> Vec<(String, String, f64)> {
        let all = trace["traceEvents"].as_array().unwrap().iter().filter(|event| event["id"] == id);
        all.map(|event| {
            let text = |key: &str| event[key].as_str().unwrap().to_owned();
            (text("name"), text("ph"), event["ts"].as_f64().unwrap())
        })
        .collect()
    };
    let expected = |events: &[(&str, &str, f64)]| -> Vec<(String, String, f64)> {
        events.iter().map(|(name, ph, ts)| ((*name).to_owned(), (*ph).to_owned(), *ts)).collect()
    };
    assert_eq!(
        of(0),
        expected(&[
            ("request", "b", 1_000_000.0),
            ("queued", "b", 1_000_000.0),
            ("queued", "e", 1_010_000.001),
            ("prefill", "b", 1_010_000.001),
            ("prefill", "e", 1_050_000.0),
            ("decode", "b", 1_050_000.0),
            ("decode", "e", 1_100_000.0),
            ("request", "e", 1_100_000.0),
        ])
    );
    assert_eq!(of(1), expected(&[("request", "b", 1_200_000.0), ("request", "e", 1_200_500.0)]));
    // Still queued when the last step ended.
    assert_eq!(
        of(2),
        expected(&[
            ("request", "b", 1_200_000.0),
            ("queued", "b", 1_200_000.0),
            ("queued", "e", 1_300_000.5),
            ("request", "e", 1_300_000.5),
        ])
    );
    let begun = events(&trace, "b");
    let args = &begun[0]["args"];
    assert_eq!(
        (&args["outcome"], &args["ttft_ms"], &args["cached_tokens"]),
        (&json!("finished"), &json!(50.0), &json!(64))
    );
    assert!(begun.iter().all(|event| event["cat"] == "request" && event["pid"] == 2), "{begun:?}");
    assert_eq!(trace["otherData"], json!({"steps": 1, "requests": 3}));
}

#[test]
fn an_empty_trace_is_json_as_well() {
    let trace = traced(&[], &[]);
    assert_eq!(trace["traceEvents"].as_array().unwrap().len(), 2);
}

#[test]
fn the_first_error_of_the_writer_comes_back_at_the_end() {
    let mut trace = PerfettoTrace::new(Full { room: 20_000 });
    for index in 0..10_000 {
        trace.step(&step(index, 1000 * (index + 1), 1000 * (index + 2) - 1, &BATCH));
    }
    let error = trace.finish(&[], None).unwrap_err();
    assert_eq!((error.kind(), error.to_string()), (io::ErrorKind::StorageFull, "no room".to_owned()));
}

use ridgepoint::Deployment;
use ridgepoint::latency::FixedLatency;
use serde_json::Value;

use super::*;
use crate::workload::RecordedContents;
use crate::workload::{FixedList, Segment, WorkloadRequest};
use crate::{EngineConfig, SchedulerOptions, replay};

fn written(requests: Vec<WorkloadRequest>) -> Vec<Value> {
    let latency = FixedLatency { step_us: 10_000.0, ..FixedLatency::default() };
    let config = EngineConfig {
        scheduler: SchedulerOptions {
            async_scheduling: false,
            ..EngineConfig::new(&Deployment::default(), 4096, 1000).scheduler
        },
        ..EngineConfig::new(&Deployment::default(), 4096, 1000)
    };
    let mut list = FixedList::new(requests).unwrap();
    let mut load = RecordedContents::of(&mut list, true);
    let mut tokens = TokenSteps::default();
    let replayed = replay(&latency, &config, &mut load, &mut [&mut tokens]).unwrap();
    let meta = TokenMeta { model: "m", gpu: "g", tp: 1, max_num_seqs: 8, block_size: 16, source: "test" };
    let mut out = Vec::new();
    tokens.write(&mut out, &meta, &replayed.records, &load.contents).unwrap();
    String::from_utf8(out).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_line_has_the_gaps_of_a_request_and_the_steps_that_closed_them() {
    // Steps of 10 ms: [0, 10) prefills the first, [10, 20) decodes it with the prefill of the second, [20, 30) decodes both.
    let lines = written(vec![WorkloadRequest::new(0, 100, 3), WorkloadRequest::new(5_000_000, 50, 2)]);
    assert_eq!(lines[0]["meta"]["block_size"], 16);
    let first = &lines[1];
    assert_eq!((&first["request_id"], &first["ttft_ms"]), (&Value::from("0"), &Value::from(10.0)));
    assert_eq!(first["itl_ms"], serde_json::json!([10.0, 10.0]));
    // The second gap's step runs both; only the first gap's step ended a prefill.
    assert_eq!(first["itl_ctx"], serde_json::json!({"num_running": [2, 2], "prefill_tokens": [50, 0]}));
    let second = &lines[2];
    assert_eq!((&second["arrival_ms"], &second["ttft_ms"]), (&Value::from(5.0), &Value::from(15.0)));
    assert_eq!((&first["concurrency"], &second["concurrency"]), (&Value::from(1), &Value::from(2)));
    assert!(second.get("block_hashes").is_none());
}

#[test]
fn prompts_that_begin_alike_have_the_same_hashes_so_far() {
    let with = |arrival_ns, segments: &[(u64, u32)]| {
        let content = segments.iter().map(|(id, num_tokens)| Segment { id: *id, num_tokens: *num_tokens }).collect();
        WorkloadRequest { content: Some(content), ..WorkloadRequest::new(arrival_ns, 64, 1) }
    };
    let lines = written(vec![with(0, &[(1, 32), (2, 32)]), with(100_000_000, &[(1, 32), (3, 32)])]);
    let hashes = |line: &Value| line["block_hashes"].as_array().unwrap().clone();
    let (one, other) = (hashes(&lines[1]), hashes(&lines[2]));
    assert_eq!((one.len(), &one[..2]), (4, &other[..2]));
    assert_ne!(one[2], other[2]);
    assert_eq!((&lines[1]["cached_tokens"], &lines[2]["cached_tokens"]), (&Value::from(0), &Value::from(32)));
}

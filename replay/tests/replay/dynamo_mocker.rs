//! A second witness for the three schedulers: Dynamo's mocker of the engines (ai-dynamo-runtime 1.6.1). `fixtures/dynamo_mocker/make.py` says what
//! the arrays hold.

use std::io::Read;

use ridgepoint::latency::{HostTimes, LatencyModel, TransferDirection};
use ridgepoint::units::NS_PER_MS;
use ridgepoint::{Deployment, Step};
use ridgepoint_replay::workload::{Segment, WorkloadRequest};
use ridgepoint_replay::{EngineConfig, EngineRules, SchedulerOptions, SglangOptions, TrtllmOptions, replay};
use serde_json::Value;

use crate::loads::load;

/// A step with a prompt and one with a decode take so long; one with both takes both.
struct Fixed {
    prefill_us: f64,
    decode_us: f64,
}

impl LatencyModel for Fixed {
    fn step_time_us(&self, step: &Step<'_>) -> f64 {
        let has = |is_decode: bool| f64::from(u8::from(step.requests.iter().any(|of| of.is_decode() == is_decode)));
        has(false) * self.prefill_us + has(true) * self.decode_us
    }
    fn host(&self) -> HostTimes {
        HostTimes::NONE
    }
    fn kv_transfer_time_us(&self, _: TransferDirection, _: u64) -> f64 {
        0.0
    }
}

fn number(of: &Value, key: &str) -> u32 {
    of[key].as_u64().unwrap() as u32
}

fn config(engine: &Value) -> EngineConfig {
    let rules = match engine["backend"].as_str().unwrap() {
        "sglang" => EngineRules::Sglang(SglangOptions {
            chunked_prefill_size: engine["sglang"]["chunked_prefill_size"].as_i64().unwrap() as i32,
            ..SglangOptions::default()
        }),
        "trtllm" => EngineRules::Trtllm(TrtllmOptions::default()),
        _ => EngineRules::Vllm,
    };
    let deployment = Deployment {
        max_num_seqs: number(engine, "max_num_seqs"),
        max_num_batched_tokens: number(engine, "max_num_batched_tokens"),
        block_size: number(engine, "block_size"),
        ..Deployment::default()
    };
    EngineConfig {
        scheduler: SchedulerOptions { async_scheduling: false, ..SchedulerOptions::default() },
        rules,
        ..EngineConfig::new(&deployment, 8192, number(engine, "num_gpu_blocks"))
    }
}

#[test]
fn the_engines_are_those_of_dynamos_mocker() {
    let mut text = String::new();
    let packed: &[u8] = include_bytes!("../fixtures/dynamo_mocker/cases.jsonl.gz");
    flate2::read::GzDecoder::new(packed).read_to_string(&mut text).unwrap();
    let mut compared = 0;
    for line in text.lines() {
        let case: Value = serde_json::from_str(line).unwrap();
        let engine = &case["engine"];
        let timing = |key: &str| 1e3 * engine["timing_model"][key].as_f64().unwrap();
        let latency = Fixed { prefill_us: timing("prefill_ms"), decode_us: timing("decode_ms") };
        let rows: Vec<[u64; 4]> = serde_json::from_value(case["requests"].clone()).unwrap();
        let requests = rows.iter().map(|&[ms, prompt, output, text]| WorkloadRequest {
            content: Some(vec![Segment { id: text, num_tokens: 64 }].into()),
            ..WorkloadRequest::new(ms * NS_PER_MS, prompt as u32, output as u32)
        });
        let replayed = replay(&latency, &config(engine), load(requests.collect(), None).as_mut(), &mut []).unwrap();
        let ms = |ns: u64| ns as f64 / NS_PER_MS as f64;
        let ours: Vec<(f64, f64, f64)> = replayed
            .records
            .iter()
            .map(|of| (ms(of.first_token_ns), ms(of.finish_ns), f64::from(of.num_cached_tokens)))
            .collect();
        let theirs: Vec<(f64, f64, f64)> = serde_json::from_value(case["times"].clone()).unwrap();
        let near = |a: f64, b: f64| (a - b).abs() < 1e-3;
        for (a, b) in ours.iter().zip(&theirs) {
            let is_same = near(a.0, b.0) && near(a.1, b.1) && near(a.2, b.2);
            assert!(is_same, "{engine}\n{rows:?}\nours   {ours:?}\ntheirs {theirs:?}");
            compared += 1;
        }
    }
    println!("{compared} requests have equal times");
    assert!(compared > 900);
}

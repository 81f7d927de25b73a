//! Compiled steps, batches kept as sums and the five delays allocate nothing.

use std::hint::black_box;

use allocation_counter::measure;
use ridgepoint::latency::{CalibratedRoofline, LatencyModel};
use ridgepoint::{Deployment, Hardware, Model, Request, RequestColumns, Step, StepModel};

/// Dense under a full window, windows of both kinds, experts, latent attention: (model, GPUs).
const MODELS: [(&str, u32); 5] =
    [("llama-3.1-8b", 1), ("gemma-3-27b", 2), ("gpt-oss-120b", 2), ("llama-4-scout", 8), ("deepseek-v3", 8)];

fn step_model(model: &str, gpus: u32) -> StepModel {
    let (model, hardware) = (Model::find(model).unwrap(), Hardware::find("h100").unwrap());
    StepModel::new(&model, &hardware, &Deployment::tensor_parallel(gpus)).unwrap()
}

fn decodes(count: u32) -> Vec<Request> {
    (0..count).map(|i| Request::decode(1000 + 8 * i)).collect()
}

/// A name and a batch each, all of them within what tables hold.
fn batches() -> Vec<(&'static str, Vec<Request>)> {
    let chunk = Request::prefill(2048, 1024);
    let mut silent = decodes(64);
    silent.iter_mut().step_by(3).for_each(|request| request.samples = false);
    let many_chunks: Vec<Request> = (1..=12).map(|i| Request::new(100 * i, 37 * i, i % 2 == 0)).collect();
    vec![
        ("none", Vec::new()),
        ("1 decode", decodes(1)),
        ("128 decodes", decodes(128)),
        ("256 decodes", decodes(256)),
        ("decodes of which some sample nothing", silent),
        ("a chunk first", [vec![chunk], decodes(64)].concat()),
        ("a chunk last", [decodes(64), vec![chunk]].concat()),
        ("a chunk in the middle", [decodes(31), vec![chunk], decodes(33)].concat()),
        ("a prompt alone", vec![Request::prefill(700, 0)]),
        ("many chunks", many_chunks.clone()),
        ("many chunks among decodes", [decodes(50), many_chunks, decodes(50)].concat()),
        ("a request that schedules nothing", [decodes(8), vec![Request::new(7, 0, true)]].concat()),
    ]
}

/// Allocations of ten calls.
fn allocations<T>(mut call: impl FnMut() -> T) -> u64 {
    let counted = measure(|| {
        for _ in 0..10 {
            black_box(call());
        }
    });
    counted.count_total
}

#[test]
fn allocations_are_counted() {
    assert_eq!(allocations(|| vec![1u8; 100]), 10);
    let steps = step_model("llama-3.1-8b", 1);
    assert!(allocations(|| steps.estimate_unchecked(&decodes(8))) >= 20, "an estimate holds lists");
}

#[test]
fn steps_allocate_nothing() {
    for (name, gpus) in MODELS {
        let steps = step_model(name, gpus);
        for (batch_name, batch) in batches() {
            assert_eq!(allocations(|| steps.step_time_us(black_box(&batch))), 0, "{name}: {batch_name}");
        }
    }
}

#[test]
fn steps_of_columns_allocate_nothing() {
    for (name, gpus) in MODELS {
        let steps = step_model(name, gpus);
        for (batch_name, batch) in batches() {
            let computed: Vec<u32> = batch.iter().map(|r| r.num_computed_tokens).collect();
            let scheduled: Vec<u32> = batch.iter().map(|r| r.num_scheduled_tokens).collect();
            let samples: Vec<bool> = batch.iter().map(|r| r.samples).collect();
            let count = allocations(|| {
                let all = RequestColumns::new(black_box(&computed), &scheduled).unwrap();
                let some = all.with_samples(&samples).unwrap();
                (steps.step_time_us(&all), steps.step_time_us(&some))
            });
            assert_eq!(count, 0, "{name}: {batch_name}");
        }
    }
}

#[test]
fn steps_kept_as_sums_allocate_nothing() {
    for (name, gpus) in MODELS {
        let steps = step_model(name, gpus);
        for (batch_name, mut batch) in batches() {
            let count = allocations(|| {
                let mut state = steps.state();
                batch.iter().for_each(|request| state.add(request));
                let first_us = steps.step_time_us(&state);
                batch.iter_mut().for_each(|request| state.advance(request));
                let second_us = steps.step_time_us(&state);
                if let [first, .., last] = &batch[..] {
                    state.replace(first, &Request::prefill(500, 0));
                    state.remove(last);
                }
                (first_us, second_us, steps.step_time_us(&state), state.num_requests(), state.num_tokens())
            });
            assert_eq!(count, 0, "{name}: {batch_name}");
        }
    }
}

#[test]
fn the_five_delays_allocate_nothing() {
    for (name, gpus) in MODELS {
        let roofline = CalibratedRoofline::new(step_model(name, gpus));
        let latency: &dyn LatencyModel = &roofline;
        for (batch_name, batch) in batches() {
            let prompt = Request::prefill(700, 0);
            let count = allocations(|| {
                let host = latency.host();
                latency.step_time_us(&Step::from(black_box(&batch)))
                    + host.queueing_time_us(black_box(&prompt))
                    + host.output_token_processing_time_us()
                    + host.scheduling_processing_time_us()
                    + host.preemption_processing_time_us()
            });
            assert_eq!(count, 0, "{name}: {batch_name}");
        }
    }
}

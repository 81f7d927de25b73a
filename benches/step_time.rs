//! How long a prediction takes: one step of 128 decodes, mixed and large batches, and building a model.
//!
//! `cargo bench --bench step_time --no-default-features`

#![allow(missing_docs, clippy::unwrap_used)]

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use ridgepoint::{Deployment, Hardware, Model, Request, StepModel};

fn step_time(criterion: &mut Criterion) {
    let hardware = Hardware::find("h100").unwrap();
    let mut group = criterion.benchmark_group("step_time");
    for name in ["llama-3.1-8b", "llama-4-scout", "deepseek-v3"] {
        let model = Model::find(name).unwrap();
        let deployment = Deployment::tensor_parallel(8);
        let steps = StepModel::new(&model, &hardware, &deployment).unwrap();
        let decodes: Vec<Request> = (0..128).map(|i| Request::decode(1000 + 8 * i)).collect();
        group.bench_with_input(BenchmarkId::new("128 decodes", name), &decodes, |bencher, batch| {
            bencher.iter(|| steps.step_time(black_box(batch)).step_time_us);
        });
        let mut mixed = vec![Request::prefill(2048, 1024)];
        mixed.extend_from_slice(&decodes[..64]);
        group.bench_with_input(BenchmarkId::new("2048-token chunk and 64 decodes", name), &mixed, |bencher, batch| {
            bencher.iter(|| steps.step_time(black_box(batch)).step_time_us);
        });
    }
    group.finish();
}

fn new(criterion: &mut Criterion) {
    let hardware = Hardware::find("h100").unwrap();
    let mut group = criterion.benchmark_group("StepModel::new");
    group.sample_size(20);
    for name in ["llama-3.1-8b", "deepseek-v3"] {
        let model = Model::find(name).unwrap();
        let deployment = Deployment::tensor_parallel(8);
        group.bench_function(name, |bencher| {
            bencher.iter(|| StepModel::new(black_box(&model), &hardware, &deployment).unwrap());
        });
    }
    group.finish();
}

criterion_group!(benches, step_time, new);
criterion_main!(benches);

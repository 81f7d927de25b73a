//! How long a prediction takes, and how that compares, in one run: compiled steps against their operators one by one, the
//! black-box formula and a formula of a peer's shape, by batch, hot and cold; hybrid models; and building a model.
//!
//! `cargo bench -p ridgepoint-benches --bench step_time`; with `-- --list` or a filter as criterion has them. At the end comes
//! a table of the best of many runs, in which what is compared takes turns: noise of the machine only ever adds.

#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss
)]

#[path = "step_time/against.rs"]
mod against;
#[path = "step_time/table.rs"]
mod table;

use std::hint::black_box;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion};
use ridgepoint::latency::LatencyModel;
use ridgepoint::{Deployment, Hardware, Model, Step, StepModel};

use against::{Against, batches, decodes};

/// Models that are built: dense, wide, quantised, windows, many experts, latent attention.
pub const MODELS: [(&str, u32); 6] = [
    ("llama-3.1-8b", 1),
    ("llama-3.1-405b", 8),
    ("qwen3-235b-a22b-fp8", 8),
    ("gemma-3-27b", 2),
    ("llama-4-scout", 8),
    ("deepseek-v3", 8),
];

/// Models with two kinds of token mixers, whose steps have more to add up; the aim for [`HYBRID_DECODES`] is 60 ns.
pub const HYBRIDS: [(&str, u32); 2] = [("qwen3-next-80b-a3b-instruct", 4), ("qwen3.5-397b-a17b", 8)];

/// Decodes in a batch of a hybrid model.
pub const HYBRID_DECODES: u32 = 128;

fn hybrids(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group(format!("hybrids, {HYBRID_DECODES} decodes"));
    group.sample_size(10).warm_up_time(Duration::from_millis(100)).measurement_time(Duration::from_millis(300));
    let requests = decodes(HYBRID_DECODES);
    for (name, gpus) in HYBRIDS {
        let against = Against::new(name, gpus);
        group.bench_with_input(BenchmarkId::new("compiled, slice", name), &requests, |bencher, requests| {
            bencher.iter(|| against.steps.step_time_us(black_box(requests)));
        });
    }
    group.finish();
}

fn step_time(criterion: &mut Criterion) {
    for batch in batches() {
        let mut group = criterion.benchmark_group(batch.name);
        group.sample_size(10).warm_up_time(Duration::from_millis(100)).measurement_time(Duration::from_millis(300));
        let against = Against::new("llama-3.1-8b", 1);
        let (requests, columns, state) = (&batch.requests, batch.columns(), against.state(&batch.requests));
        group.bench_function("compiled, slice", |bencher| {
            bencher.iter(|| against.steps.step_time_us(black_box(requests)));
        });
        group.bench_function("compiled, columns", |bencher| {
            bencher.iter(|| against.steps.step_time_us(black_box(&columns)));
        });
        group.bench_function("compiled, state", |bencher| {
            bencher.iter(|| against.steps.step_time_us(black_box(&state)));
        });
        group.bench_function("operators", |bencher| {
            bencher.iter(|| against.steps.estimate_unchecked(black_box(requests)).step_time_us);
        });
        group.bench_function("black box", |bencher| {
            bencher.iter(|| against.line.step_time_us(&Step::from(black_box(requests))))
        });
        group.bench_function("peer-shaped, not the peer", |bencher| {
            bencher.iter(|| against.peer.step_time_us(black_box(requests)));
        });
        group.finish();
    }
}

fn new(criterion: &mut Criterion) {
    let hardware = Hardware::find("h100").unwrap();
    let mut group = criterion.benchmark_group("StepModel::new");
    group.sample_size(10).warm_up_time(Duration::from_millis(100)).measurement_time(Duration::from_millis(500));
    for (name, gpus) in MODELS {
        let (model, deployment) = (Model::find(name).unwrap(), Deployment::tensor_parallel(gpus));
        group.bench_with_input(BenchmarkId::from_parameter(name), &model, |bencher, model| {
            bencher.iter(|| StepModel::new(black_box(model), &hardware, &deployment).unwrap());
        });
    }
    group.finish();
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    step_time(&mut criterion);
    hybrids(&mut criterion);
    new(&mut criterion);
    criterion.final_summary();
    // `cargo test --benches` and `--list` want nothing measured.
    if std::env::args().any(|argument| argument == "--bench") && !std::env::args().any(|argument| argument == "--list")
    {
        table::print();
    }
}

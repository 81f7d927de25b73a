//! How long replays take, on one core: the published 20-minute run of 16,800 requests, and a million requests of a Poisson
//! process. Prints requests and steps per second of the best of a few runs. An argument selects the loads whose names contain it.
//!
//! `cargo bench -p ridgepoint-benches --bench replay`

#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss
)]

use std::time::Instant;

use ridgepoint::latency::{BlackBox, CalibratedRoofline, LatencyModel};
use ridgepoint::{Deployment, Hardware, Model, StepModel};
use ridgepoint_replay::workload::profile::Profile;
use ridgepoint_replay::workload::{ArrivalPattern, OpenLoop, RequestShape, Workload};
use ridgepoint_replay::{EngineConfig, KvOffload, Outcome, replay};

/// The shape of the published run 20260217-231439: 8, then 20 requests per second, ten minutes each.
const TWENTY_MINUTES: &str = "
load: {type: constant, stages: [{rate: 8, duration: 600}, {rate: 20, duration: 600}]}
data:
  type: shared_prefix
  shared_prefix:
    {num_unique_system_prompts: 9, num_users_per_system_prompt: 5, system_prompt_len: 100, question_len: 447, output_len: 248}
";

const RUNS: usize = 3;

fn measure(name: &str, latency: &dyn LatencyModel, config: &EngineConfig, load: &dyn Fn() -> Box<dyn Workload>) {
    if std::env::args().skip(1).any(|part| !part.starts_with("--") && !name.contains(&part)) {
        return;
    }
    let mut best_s = f64::INFINITY;
    let mut last = None;
    for _ in 0..RUNS {
        let mut workload = load();
        let started = Instant::now();
        let replayed = replay(latency, config, &mut *workload, &mut []).unwrap();
        best_s = best_s.min(started.elapsed().as_secs_f64());
        last = Some(replayed);
    }
    let Some(replayed) = last else { return };
    let finished = replayed.records.iter().filter(|r| r.outcome == Outcome::Finished).count();
    let steps = replayed.counters.steps;
    println!(
        "{name:44} {:>9} requests, {finished:>9} finished, {steps:>9} steps, {:>8.1} s simulated in {best_s:7.3} s: {:>9.0} requests/s, {:>9.0} steps/s",
        replayed.records.len(),
        replayed.counters.end_ns as f64 / 1e9,
        replayed.records.len() as f64 / best_s,
        steps as f64 / best_s,
    );
}

fn main() {
    let model = Model::find("llama-2-7b").unwrap();
    let hardware = Hardware::find("h100").unwrap();
    let deployment = Deployment {
        max_num_seqs: 128,
        max_num_batched_tokens: 2048,
        max_model_len: Some(4096),
        ..Deployment::default()
    };
    let roofline = CalibratedRoofline::new(StepModel::new(&model, &hardware, &deployment).unwrap());
    let line = BlackBox { beta0_us: 6000.0, beta1_us: 20.0, beta2_us: 60.0, ..BlackBox::default() };
    let config = EngineConfig::new(&deployment, 4096, 7463);
    let profile = Profile::parse("bench", TWENTY_MINUTES).unwrap();
    let million = || -> Box<dyn Workload> {
        Box::new(OpenLoop::new(ArrivalPattern::Poisson, 20.0, 1_000_000, RequestShape::new(200, 60), 0).unwrap())
    };
    measure("20 minutes, calibrated roofline", &roofline, &config, &|| profile.workload(0));
    // 20,000 blocks hold nearly three times the tokens of the GPU, 2,000 hold the prompts, and 200 less than the running requests.
    for num_cpu_blocks in [20_000, 2_000, 200] {
        let tier = KvOffload {
            num_cpu_blocks,
            block_bytes: 16 << 19,
            offload_prompt_only: false,
            contention: 1.0,
            disk: None,
        };
        let config = EngineConfig { kv_offload: Some(tier), ..config.clone() };
        let name = format!("20 minutes, {num_cpu_blocks} KV blocks on the host");
        measure(&name, &roofline, &config, &|| profile.workload(0));
    }
    measure("20 minutes, black box (the loop alone)", &line, &config, &|| profile.workload(0));
    measure("a million requests, calibrated roofline", &roofline, &config, &million);
    measure("a million requests, black box", &line, &config, &million);
}

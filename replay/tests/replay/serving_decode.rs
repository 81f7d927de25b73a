//! Predicted decode steps against measured serving runs, without a correction: at the batch of Little's law, the step must explain the
//! measured time per output token. Needs `RIDGEPOINT_DATA`.

use crate::data_pack as common;

use std::path::Path;

use ridgepoint::{Deployment, Engine, Hardware, Model, Options, Request, StepModel};
use serde_json::Value;

/// Largest error of a run, percent.
const MAX_ERROR_PCT: f64 = 20.0;
/// Largest median error, percent.
const MAX_MEDIAN_ERROR_PCT: f64 = 10.0;

/// Keys of the flat `key: value` file that describes a server.
fn server_key(text: &str, key: &str) -> String {
    let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
    line.unwrap_or_else(|| panic!("no {key}")).trim().to_owned()
}

fn measured_ms(text: &str, stage: i64, metric: &str) -> f64 {
    let row = text.lines().find_map(|line| line.strip_prefix(&format!("{stage},{metric},")));
    row.unwrap_or_else(|| panic!("no {metric} of stage {stage}")).parse().expect("a number")
}

struct Run {
    name: String,
    measured_ms: f64,
    predicted_ms: f64,
    bound_ms: f64,
    batch: f64,
}

fn run(dir: &Path) -> Run {
    let read = |name: &str| std::fs::read_to_string(dir.join(name)).expect("a file of the run");
    let (server, measured) = (read("exp-config.yaml"), read("measured.csv"));
    let profile: Value = serde_json::from_str(&read("profile.yaml")).expect("the profiles are JSON");
    let number = |key: &str| server_key(&server, key).parse::<u32>().expect("a number");
    let deployment = Deployment {
        tensor_parallel_size: number("tensor_parallelism"),
        max_model_len: Some(number("max_model_len")),
        max_num_batched_tokens: number("max_num_batched_tokens"),
        max_num_seqs: number("max_num_seqs"),
        ..Deployment::default()
    };
    let model = Model::find(&server_key(&server, "model")).expect("a known model");
    let hardware = Hardware::find(&server_key(&server, "hardware")).expect("a known GPU");
    // The runs are of vLLM 0.15.1.
    let options = Options { engine: Engine::fitted(), ..Options::uncorrected() };
    let steps = StepModel::with_options(&model, &hardware, &deployment, &options).expect("a possible deployment");

    let prefix = &profile["data"]["shared_prefix"];
    let tokens = |key: &str| prefix[key].as_f64().expect("a length");
    let output = tokens("output_len");
    let kv_tokens = tokens("system_prompt_len") + tokens("question_len") + output / 2.0;
    let (mut measured_sum, mut predicted_sum, mut bound_sum, mut batch_sum, mut requests) = (0.0, 0.0, 0.0, 0.0, 0.0);
    for (stage, load) in profile["load"]["stages"].as_array().expect("stages").iter().enumerate() {
        let rate = load["rate"].as_f64().expect("a rate");
        let count = rate * load["duration"].as_f64().expect("a duration");
        let ms = |metric: &str| measured_ms(&measured, stage as i64, metric);
        let decoding_ms = ms("e2e_mean") - ms("ttft_mean");
        let in_flight = (rate * decoding_ms / 1e3).max(1.0);
        // Between two whole batches, as the batch varies over time.
        let at = |n: f64| steps.estimate_unchecked(&vec![Request::decode(kv_tokens as u32); n as usize]);
        let (low, high) = (at(in_flight.floor()), at(in_flight.ceil()));
        let share = in_flight.fract();
        // The load generator asks for exactly this many tokens (`ignore_eos`). Its own count of what came back is lower
        // where a model goes on past its end of text: what it then generates has no text to count.
        measured_sum += count * decoding_ms / output;
        predicted_sum += count * (low.step_time_us * (1.0 - share) + high.step_time_us * share) / 1e3;
        bound_sum += count * low.bound_us / 1e3;
        batch_sum += count * in_flight;
        requests += count;
    }
    Run {
        name: dir.file_name().expect("a folder").to_string_lossy().into_owned(),
        measured_ms: measured_sum / requests,
        predicted_ms: predicted_sum / requests,
        bound_ms: bound_sum / requests,
        batch: batch_sum / requests,
    }
}

#[test]
fn decode_steps_explain_the_measured_time_per_output_token() {
    let Some(data) = common::data_pack("serving_decode") else { return };
    let mut dirs: Vec<_> = std::fs::read_dir(data.join("serving")).expect("serving runs").flatten().collect();
    dirs.sort_by_key(std::fs::DirEntry::path);
    let runs: Vec<Run> = dirs.iter().map(|dir| run(&dir.path())).collect();
    assert!(runs.len() >= 13, "{} runs", runs.len());

    println!("{:55} {:>6} {:>9} {:>9} {:>9} {:>8}", "run", "batch", "bound ms", "predicted", "measured", "error");
    let mut errors = Vec::new();
    for run in &runs {
        let error_pct = 100.0 * (run.predicted_ms / run.measured_ms - 1.0);
        println!(
            "{:55} {:6.1} {:9.2} {:9.2} {:9.2} {:+7.1}%",
            run.name, run.batch, run.bound_ms, run.predicted_ms, run.measured_ms, error_pct
        );
        errors.push(error_pct.abs());
    }
    errors.sort_by(f64::total_cmp);
    let median = errors[errors.len() / 2];
    println!("median {median:.1} %, largest {:.1} %", errors[errors.len() - 1]);
    assert!(median <= MAX_MEDIAN_ERROR_PCT, "median error {median:.1} %");
    assert!(errors.iter().all(|e| *e <= MAX_ERROR_PCT), "largest error {:.1} %", errors[errors.len() - 1]);
}

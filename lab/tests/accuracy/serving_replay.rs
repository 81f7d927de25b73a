//! Replays without a correction against 13 measured open-loop runs and servers at a fixed concurrency. Needs `RIDGEPOINT_DATA`.

use crate::common;

use ridgepoint_lab::evaluate::closed_loop::closed_loop_cases;
use ridgepoint_lab::evaluate::closed_loop_row::read_closed_loop;
use ridgepoint_lab::evaluate::experiment::{Experiment, serving_cases};
use ridgepoint_lab::evaluate::judge::judge;
use ridgepoint_lab::evaluate::metric::Metric;
use ridgepoint_lab::evaluate::report::{Baseline, EvaluationReport};

const SEED: u64 = 42;
/// Largest median errors of the runs' means, percent.
const MAX_MEDIAN_E2E_PCT: f64 = 10.0;
const MAX_MEDIAN_TTFT_PCT: f64 = 20.0;
/// Every so many rows of the closed-loop file are replayed here; the command replays all.
const EVERY: usize = 8;
/// Largest median error of the time per output token at fixed concurrency, percent.
const MAX_MEDIAN_TPOT_PCT: f64 = 15.0;

fn print(evaluation: &EvaluationReport, metrics: &[Metric]) {
    for experiment in &evaluation.experiments {
        print!("{:85}", experiment.labels.name);
        for metric in metrics {
            let row = experiment.metrics.iter().find(|row| row.stage == -1 && row.metric == *metric);
            let row = row.unwrap_or_else(|| panic!("{} has no {metric}", experiment.labels.name));
            print!(" {metric} {:9.2} {:9.2} {:+7.1}%", row.measured_ms, row.predicted_ms, row.error_pct);
        }
        println!();
    }
    for (metric, of) in &evaluation.summary {
        let errors =
            format!("median {:.1} %, mean {:.1} %, max {:.1} %", of.median_ape_pct, of.mean_ape_pct, of.max_ape_pct);
        println!("{metric:10} {errors}, bias {:+.1} %", of.bias_pct);
    }
}

#[test]
fn open_loop_runs_are_met_without_any_fit() {
    let Some(data) = common::data_pack("serving_replay") else { return };
    let experiments = Experiment::find(&[data.join("serving")]).expect("serving runs");
    let (cases, skipped) = serving_cases(&experiments, None);
    assert!(cases.len() >= 13 && skipped.is_empty(), "{} runs, {skipped:?}", cases.len());
    let evaluation = judge(&cases, skipped, SEED, &[], &|| {}).expect("replays");
    print(&evaluation, &[Metric::E2E_MEAN, Metric::TTFT_MEAN, Metric::ITL_MEAN]);
    let median = |metric| evaluation.summary[&metric].median_ape_pct;
    assert!(median(Metric::E2E_MEAN) <= MAX_MEDIAN_E2E_PCT, "E2E {:.1} %", median(Metric::E2E_MEAN));
    assert!(median(Metric::TTFT_MEAN) <= MAX_MEDIAN_TTFT_PCT, "TTFT {:.1} %", median(Metric::TTFT_MEAN));
    let ideal = evaluation.baselines[&Baseline::IdealRoofline][&Metric::E2E_MEAN].median_ape_pct;
    assert!(median(Metric::E2E_MEAN) < 0.5 * ideal, "the ideal roofline is at {ideal:.1} %");
}

#[test]
fn servers_at_fixed_concurrency_are_run_or_listed() {
    let Some(data) = common::data_pack("serving_replay") else { return };
    let rows = read_closed_loop(&[data.join("closed_loop/h100_sxm.csv")]).expect("rows");
    let (mut cases, skipped) = closed_loop_cases(&rows, &[], None);
    assert_eq!(cases.len() + skipped.len(), rows.len());
    let vllm: Vec<&str> = rows.iter().filter(|row| row.backend == "vllm").map(|row| row.id.as_str()).collect();
    assert!(skipped.iter().all(|skipped| !vllm.contains(&skipped.id.as_str())), "every row of vLLM runs: {skipped:?}");
    let mut index = 0;
    cases.retain(|_| {
        index += 1;
        index % EVERY == 0
    });
    let evaluation = judge(&cases, skipped, SEED, &[], &|| {}).expect("replays");
    print(&evaluation, &[Metric::TTFT_MEAN, Metric::TPOT_MEAN]);
    let median = evaluation.summary[&Metric::TPOT_MEAN].median_ape_pct;
    assert!(median <= MAX_MEDIAN_TPOT_PCT, "TPOT {median:.1} %");
}

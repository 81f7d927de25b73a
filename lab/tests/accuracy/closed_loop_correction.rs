//! The global correction on servers at a fixed concurrency, none of which it was fitted on. Needs `RIDGEPOINT_DATA`.

use crate::common;

use std::collections::BTreeMap;

use ridgepoint::Model;
use ridgepoint_lab::evaluate::case::{Case, correct};
use ridgepoint_lab::evaluate::closed_loop::closed_loop_cases;
use ridgepoint_lab::evaluate::closed_loop_row::read_closed_loop;
use ridgepoint_lab::evaluate::measured::WHOLE_RUN;
use ridgepoint_lab::evaluate::metric::{Metric, predicted_ms};
use ridgepoint_lab::stats::ErrorSummary;
use ridgepoint_replay::Metrics;

const SEED: u64 = 42;
/// Every so many rows are replayed here; the command replays all.
const EVERY: usize = 3;
/// Largest median errors of the time per output token, percent.
const MAX_DENSE_PCT: f64 = 8.0;
const MAX_EXPERTS_PCT: f64 = 15.0;

fn has_experts(model: &str) -> bool {
    Model::find(model).expect("a model that ran").layers.iter().any(|group| group.moe.is_some())
}

/// Measured and predicted time per output token, ms.
fn tpot_ms(case: &Case) -> Option<(f64, f64)> {
    let measured_ms = case.measured.get(WHOLE_RUN, Metric::TPOT_MEAN)?;
    let metrics = Metrics::of(&case.replay(case.rooflines.predicted.as_ref(), SEED, &mut []).expect("a replay"));
    predicted_ms(&metrics, None, Metric::TPOT_MEAN).map(|predicted_ms| (measured_ms, predicted_ms))
}

#[test]
fn the_global_correction_carries_over_to_fixed_concurrency() {
    let Some(data) = common::data_pack("closed_loop_correction") else { return };
    let rows = read_closed_loop(&[data.join("closed_loop/h100_sxm.csv")]).expect("rows");
    let (cases, _) = closed_loop_cases(&rows, &["vllm".to_owned()], None);
    let mut cases: Vec<Case> = cases.into_iter().step_by(EVERY).collect();
    correct(&mut cases, "global").expect("built in");

    let mut by_kind: BTreeMap<bool, Vec<(f64, f64)>> = BTreeMap::new();
    let mut by_version: BTreeMap<(bool, String), Vec<(f64, f64)>> = BTreeMap::new();
    for case in &cases {
        let correction = case.rooflines.correction().expect("corrected");
        assert_eq!(correction.name, "global");
        let has_experts = has_experts(&case.labels.model);
        let pair = tpot_ms(case).expect("measured and finished");
        by_kind.entry(has_experts).or_default().push(pair);
        let version = case.labels.backend_version.clone().unwrap_or_default();
        by_version.entry((has_experts, version)).or_default().push(pair);
    }
    let named = |has_experts: bool| if has_experts { "experts" } else { "dense" };
    for ((has_experts, version), pairs) in &by_version {
        let of = ErrorSummary::of(pairs.clone()).expect("rows");
        println!("{:8} {version:14} {} rows, TPOT bias {:+.1} %", named(*has_experts), of.rows, of.bias_pct);
    }
    for (has_experts, most_pct) in [(false, MAX_DENSE_PCT), (true, MAX_EXPERTS_PCT)] {
        let of = ErrorSummary::of(by_kind[&has_experts].clone()).expect("rows");
        let said = format!(
            "{}: {} rows, TPOT median {:.1} %, max {:.1} %, bias {:+.1} %",
            named(has_experts),
            of.rows,
            of.median_ape_pct,
            of.max_ape_pct,
            of.bias_pct
        );
        println!("{said}");
        assert!(of.rows >= 10 && of.median_ape_pct <= most_pct, "{said}, at most {most_pct} %");
    }
}

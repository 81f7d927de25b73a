//! Corrections fitted to serving runs: a known one is recovered from made-up runs, and with `RIDGEPOINT_DATA` each measured model is
//! predicted with a correction that has not seen it.

use crate::common;
use crate::evaluate_support;

use std::path::Path;
use std::sync::Arc;

use evaluate_support::{SERVER, write};
use ridgepoint::Correction;
use ridgepoint::correction::Term;
use ridgepoint::latency::CalibratedRoofline;
use ridgepoint_lab::evaluate::case::Case;
use ridgepoint_lab::evaluate::experiment::{Experiment, serving_cases};
use ridgepoint_lab::evaluate::fold::GroupBy;
use ridgepoint_lab::evaluate::judge::judge;
use ridgepoint_lab::evaluate::measured::{Measured, WHOLE_RUN};
use ridgepoint_lab::evaluate::metric::{Metric, predicted_ms};
use ridgepoint_lab::fit::{Prior, fit_serving, leave_out, scatter};
use ridgepoint_replay::Metrics;

const SEED: u64 = 42;
/// Models whose own defaults sort and penalise (Qwen), sort (Llama), and do neither (Nemo).
const MODELS: [&str; 3] = ["qwen2.5-7b", "llama-3.1-8b", "mistral-nemo-12b"];
/// Requests per second in two stages, and the lengths that they ask for.
const LOADS: [(f64, f64, u32, u32); 5] =
    [(4.0, 90.0, 200, 180), (2.0, 36.0, 800, 120), (10.0, 90.0, 100, 240), (1.0, 80.0, 300, 240), (6.0, 60.0, 500, 90)];
/// The bars of leaving models out, percent.
const MAX_MEDIAN_E2E_PCT: f64 = 4.0;
const MAX_WORST_E2E_PCT: f64 = 12.0;
const MAX_MEDIAN_TTFT_PCT: f64 = 10.0;

/// Runs of each model under each load, as yet with measured values that nobody measured.
fn made_up(dir: &Path, models: &[&str]) -> Vec<Case> {
    let mut paths = Vec::new();
    for model in models {
        for (index, (slow, fast, prompt, output)) in LOADS.iter().enumerate() {
            let profile = format!(
                "load: {{type: constant, stages: [{{rate: {slow}, duration: 6}}, {{rate: {fast}, duration: 6}}]}}\n\
                 data: {{type: shared_prefix, shared_prefix: {{num_unique_system_prompts: 3, \
                 num_users_per_system_prompt: 2, system_prompt_len: 50, question_len: {prompt}, output_len: {output}}}}}\n"
            );
            let server = SERVER.replace("llama-3.1-8b", model).replace("max_num_seqs: 64", "max_num_seqs: 256");
            let measured = "stage,metric,value_ms\n0,e2e_mean,400\n";
            paths.push(write(dir, &format!("{model}-{index}"), &profile, &server, measured));
        }
    }
    let (cases, skipped) = serving_cases(&Experiment::find(&paths).unwrap(), None);
    assert!(skipped.is_empty(), "{skipped:?}");
    cases
}

fn replayed(case: &Case, correction: &Correction) -> Metrics {
    let steps = case.rooflines.calibrated.steps().clone().with_correction(Arc::new(correction.clone()));
    Metrics::of(&case.replay(&CalibratedRoofline::new(steps), SEED, &mut []).unwrap())
}

const STAGES: [(i32, Option<u32>); 3] = [(WHOLE_RUN, None), (0, Some(0)), (1, Some(1))];

/// What clients would have measured, had `truth` been all there is to know.
fn measure(cases: &mut [Case], truth: &Correction) {
    for case in cases {
        let metrics = replayed(case, truth);
        let of = |(stage, replayed): (i32, Option<u32>)| {
            [Metric::E2E_MEAN, Metric::TTFT_MEAN]
                .map(|metric| ((stage, metric), predicted_ms(&metrics, replayed, metric).unwrap()))
        };
        case.measured = Measured::new(STAGES.into_iter().flat_map(of));
    }
}

#[test]
fn a_known_correction_is_found_again() {
    let dir = tempfile::tempdir().unwrap();
    let mut cases = made_up(dir.path(), &MODELS);
    let mut truth = Correction::neutral();
    truth.coefficients[Term::Sampling.index()] = 1.2;
    truth.coefficients[Term::PenalisedRequests.index()] = 20.0;
    truth.coefficients[Term::Projections.index()] = 1.03;
    truth.host.queueing_us = 2600.0;
    measure(&mut cases, &truth);

    let cases: Vec<&Case> = cases.iter().collect();
    let prior = Prior::of_any_model();
    let (learned, is_still) = fit_serving("made-up runs", &cases, &prior, &prior.means, SEED, &|| {}).unwrap();
    assert!(is_still && learned.report.solution.converged, "{:?}", learned.report);
    assert!(learned.report.solution.cost_after < 0.05 * learned.report.solution.cost_before, "{:?}", learned.report);
    let found = &learned.correction;
    // Two figures of each of two stages.
    assert_eq!((found.source.rows, found.source.models.len()), (4 * cases.len() as u64, MODELS.len()));
    assert_eq!(found.source.hardware, ["h100_sxm"]);

    for term in Term::ALL {
        let (value, wanted) = (found.coefficient(term), truth.coefficient(term));
        let sd = found.covariance[term.index()][term.index()].sqrt();
        println!("{term:22} {value:10.4} ± {sd:.4}, was {wanted}, identified {}", found.identified[term.index()]);
        if found.identified[term.index()] {
            assert!((value - wanted).abs() <= 1.96 * sd, "{term}: {value} ± {sd}, was {wanted}");
        }
    }
    println!("queueing_us {} of 2600", found.host.queueing_us);
    // The sampler's work sets models apart, so that it can't hide in another term.
    assert!(found.identified[Term::Sampling.index()]);
    assert!(found.coefficient(Term::Sampling) > 1.1 && found.coefficient(Term::PenalisedRequests) > 5.0);
    assert!((found.host.queueing_us - 2600.0).abs() < 260.0, "{}", found.host.queueing_us);

    for case in cases {
        let metrics = replayed(case, found);
        for (stage, replayed) in STAGES {
            let measured_ms = case.measured.get(stage, Metric::E2E_MEAN).unwrap();
            let error_pct = 100.0 * (predicted_ms(&metrics, replayed, Metric::E2E_MEAN).unwrap() / measured_ms - 1.0);
            assert!(error_pct.abs() <= 1.0, "{}: stage {stage}: {error_pct} %", case.labels.name);
        }
    }
}

#[test]
fn a_fit_is_the_same_again_and_needs_two_groups_to_leave_one_out() {
    let dir = tempfile::tempdir().unwrap();
    let mut cases = made_up(dir.path(), &MODELS[..1]);
    cases.truncate(3);
    let mut truth = Correction::neutral();
    truth.coefficients[Term::Steps.index()] = 200.0;
    measure(&mut cases, &truth);
    let cases: Vec<&Case> = cases.iter().collect();
    let prior = Prior::of_any_model();
    let fit = || fit_serving("runs", &cases, &prior, &prior.means, SEED, &|| {}).unwrap().0.correction;
    let once = fit();
    assert_eq!(once, fit());

    let folds = |by| leave_out(&cases, by, &prior, &once, SEED, &|| {});
    match folds(GroupBy::Model) {
        Err(error) => {
            let message = error.to_string();
            assert!(message.contains(MODELS[0]) && message.contains("leaves nothing to fit on"), "{message}");
        }
        other => panic!("{other:?}"),
    }
    let folds = folds(GroupBy::Experiment).unwrap();
    let left_out: Vec<&str> = folds.iter().map(|fold| fold.group.as_str()).collect();
    assert_eq!(left_out, ["qwen2.5-7b-0", "qwen2.5-7b-1", "qwen2.5-7b-2"]);
    for fold in &folds {
        assert_eq!(fold.correction.source.rows, 8, "{}: two runs of two stages and two figures", fold.group);
        assert!(fold.correction.scatter.step >= 0.01 && fold.correction.scatter.ttft >= 0.01);
    }
    // Nothing but the prior's pull sets such runs apart from their predictions.
    assert!(scatter(&folds).step < 0.03, "{:?}", scatter(&folds));
}

#[test]
fn models_that_a_correction_has_not_seen_are_met() {
    let Some(data) = common::data_pack("fit_serving") else { return };
    let experiments = Experiment::find(&[data.join("serving")]).expect("serving runs");
    let (mut cases, skipped) = serving_cases(&experiments, None);
    assert!(cases.len() >= 13 && skipped.is_empty(), "{} runs, {skipped:?}", cases.len());
    let folds = {
        let cases: Vec<&Case> = cases.iter().collect();
        let prior = Prior::of_serving_runs();
        let (all, _) = fit_serving("all", &cases, &prior, &prior.means, SEED, &|| {}).expect("a fit");
        leave_out(&cases, GroupBy::Model, &prior, &all.correction, SEED, &|| {}).expect("folds")
    };
    for fold in folds {
        assert!(!fold.correction.source.models.contains(&fold.group), "{}", fold.group);
        let correction = Arc::new(fold.correction);
        for case in cases.iter_mut().filter(|case| case.labels.model == fold.group) {
            case.rooflines.predicted = Arc::new(case.rooflines.corrected(&correction));
        }
    }
    let evaluation = judge(&cases, skipped, SEED, &[], &|| {}).expect("replays");
    for experiment in &evaluation.experiments {
        print!("{:85}", experiment.labels.name);
        for metric in [Metric::E2E_MEAN, Metric::TTFT_MEAN] {
            let row =
                experiment.metrics.iter().find(|row| row.stage == WHOLE_RUN && row.metric == metric).expect("a row");
            print!(
                " {metric} {:+6.1} % (90 % within {:.1} %)",
                row.error_pct,
                100.0 * (row.upper_ms / row.predicted_ms - 1.0)
            );
        }
        println!();
    }
    for (metric, of) in &evaluation.summary {
        let coverage_pct = of.coverage_pct.expect("a prediction has intervals");
        println!(
            "{metric:10} median {:.1} %, max {:.1} %, bias {:+.1} %, coverage {coverage_pct:.0} % of {}",
            of.median_ape_pct, of.max_ape_pct, of.bias_pct, of.rows
        );
    }
    let of = |metric: Metric| &evaluation.summary[&metric];
    let (e2e, ttft) = (of(Metric::E2E_MEAN), of(Metric::TTFT_MEAN));
    assert!(e2e.median_ape_pct <= MAX_MEDIAN_E2E_PCT, "E2E median {:.1} %", e2e.median_ape_pct);
    assert!(e2e.max_ape_pct <= MAX_WORST_E2E_PCT, "E2E worst {:.1} %", e2e.max_ape_pct);
    assert!(ttft.median_ape_pct <= MAX_MEDIAN_TTFT_PCT, "TTFT median {:.1} %", ttft.median_ape_pct);
}

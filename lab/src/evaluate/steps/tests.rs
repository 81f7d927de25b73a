//! Splits, cases and judging on traces made by hand, where the answer is known.

use super::case::{StepCase, step_cases};
use super::judge::{JudgeOptions, judge_steps};
use super::read::ReadRun;
use super::split::{StepFold, StepSplit, folds};
use crate::evaluate::fold::GroupBy;
use crate::evaluate::metric::Metric;
use crate::evaluate::report::{Baseline, EvaluationReport, MetricSummary};
use crate::ingest::step_table::TableRun;
use crate::ingest::{Cleaning, Run, StepRecord, StepTrace, periods};
use ridgepoint::correction::Term;
use ridgepoint::{Correction, Result};

/// A run of sampled steps: each of `(decodes, period µs, steps to the next)`.
fn run(name: &str, model: &str, steps: &[(u32, u64, u64)]) -> ReadRun {
    let (mut step_id, mut start_ns) = (1000, 0);
    let mut records = Vec::new();
    for (decodes, period_us, steps) in steps.iter().chain([&(8, 0, 1)]) {
        records.push(StepRecord {
            step_id,
            start_ns,
            num_decode_requests: *decodes,
            decode_tokens: u64::from(*decodes),
            decode_kv_tokens: Some(u64::from(*decodes) * 500),
            ..StepRecord::default()
        });
        step_id += steps;
        start_ns += period_us * 1000 * steps;
    }
    let labels = Run {
        experiment: name.to_owned(),
        model: Some(model.to_owned()),
        hardware: Some("h100".to_owned()),
        tensor_parallel_size: Some(1),
        workload: Some(format!("workload of {name}")),
        ..Run::default()
    };
    let trace = StepTrace { run: labels, steps: records };
    let periods = periods(&trace, &Cleaning::default());
    ReadRun { run: TableRun { trace, periods }, ..ReadRun::default() }
}

fn cases(runs: Vec<ReadRun>) -> Vec<StepCase> {
    let (cases, refused) = step_cases(runs, "none", None);
    assert!(refused.is_empty(), "{refused:?}");
    cases
}

/// Errors of the windows of a run.
fn errors(found: &EvaluationReport, run: usize) -> MetricSummary {
    let rows: Vec<_> = found.experiments[run].metrics.iter().collect();
    MetricSummary::of(&rows, Metric::STEP_MEAN, None).unwrap()
}

fn judge(cases: &[StepCase], split: StepSplit, window: usize) -> EvaluationReport {
    judge_steps(cases, Vec::new(), &JudgeOptions { split, window, fitter: None }, &|_| ()).unwrap()
}

/// What the calibrated tables say of a step of `decodes`, ns as the clock would show it.
fn predicted_us(decodes: u32) -> f64 {
    let case = cases(vec![run("probe", "llama-3.1-8b", &[(decodes, 20_000, 1)])]).remove(0);
    case.calibrated.estimate_unchecked(&case.requests(&case.rows[0])).step_time_us
}

const TEMPORAL: StepSplit = StepSplit::Temporal { judge_from: 0.8 };

#[test]
fn a_trace_that_is_as_predicted_has_no_error() {
    // Periods in whole µs: the rest is less than a ten-thousandth.
    let (short_us, long_us) = (predicted_us(8).round() as u64, predicted_us(64).round() as u64);
    assert!(long_us > short_us);
    let steps: Vec<_> = (0..40).map(|index| if index % 2 == 0 { (8, short_us, 1) } else { (64, long_us, 1) }).collect();
    let cases = cases(vec![run("exact", "llama-3.1-8b", &steps)]);
    for window in [1, 7, 50] {
        let found = judge(&cases, StepSplit::All, window);
        let errors = errors(&found, 0);
        assert!(errors.mean_ape_pct < 0.02 && errors.bias_pct.abs() < 0.02, "{window}: {errors:?}");
        assert_eq!(errors.coverage_pct, Some(100.0));
        assert_eq!(found.experiments[0].trace.as_ref().unwrap().rows, 40);
    }
    let single = judge(&cases, StepSplit::All, 1);
    assert!(errors(&single, 0).pearson_r.is_some_and(|r| r > 0.999));
    assert_eq!(single.experiments[0].trace.as_ref().unwrap().single_steps_ms.len(), 40);
    // Half as long as measured: every error is -50 %, wherever windows are cut.
    let halved: Vec<_> = steps.iter().map(|(decodes, period_us, _)| (*decodes, 2 * period_us, 1)).collect();
    let found = judge(&self::cases(vec![run("slow", "llama-3.1-8b", &halved)]), StepSplit::All, 10);
    let errors = found.summary[&Metric::STEP_MEAN];
    assert!((errors.bias_pct + 50.0).abs() < 0.02, "{errors:?}");
    assert!((errors.mean_ape_pct - 50.0).abs() < 0.02);
    assert_eq!(errors.coverage_pct, Some(0.0));
}

#[test]
fn unsampled_steps_count_in_the_measured_time() {
    // 10 ms a step over 1 + 9 steps and 14 ms over 2: 128 ms for 12 steps, not the mean of three periods.
    let steps = [(8, 10_000, 1), (8, 10_000, 9), (8, 14_000, 2)];
    let found = judge(&cases(vec![run("a", "llama-3.1-8b", &steps)]), StepSplit::All, 50);
    let row = &found.experiments[0].metrics[0];
    assert!((row.measured_ms - 128.0 / 12.0).abs() < 1e-9, "{row:?}");
    assert!((row.predicted_ms - predicted_us(8) / 1e3).abs() < 1e-9, "{row:?}");
}

#[test]
fn a_temporal_split_cuts_by_time_and_nothing_is_on_both_sides() {
    // 8 rows of 10 ms in 10 steps each, then 20 of 10 ms: 800 ms and 200 ms.
    let steps: Vec<_> = [(8, 10_000, 10); 8].into_iter().chain([(8, 10_000, 1); 20]).collect();
    let cases = cases(vec![run("a", "llama-3.1-8b", &steps), run("b", "qwen3-8b", &steps)]);
    let folds = folds(&cases, TEMPORAL).unwrap();
    assert_eq!(folds.len(), 2);
    for fold in &folds {
        // 800 ms are eight rows.
        assert_eq!(fold.judged.rows, 8..28);
        assert!(fold.training.iter().all(|training| training.rows == (0..8)));
        let (closest, scope) = fold.closest_training_runs().unwrap();
        assert!(closest.len() == 1 && scope.contains(SAME_DEPLOYMENT), "{scope}");
        assert_eq!(closest[0].case.labels.name, fold.judged.case.labels.name);
    }
    let later = super::split::folds(&cases, StepSplit::Temporal { judge_from: 0.4 }).unwrap();
    assert_eq!((later[0].judged.rows.clone(), later[0].training[0].rows.clone()), (4..28, 0..4));
    assert!(super::split::folds(&cases, StepSplit::Temporal { judge_from: 1.0 }).unwrap()[0].judged.rows.is_empty());
}

#[test]
fn a_group_that_is_left_out_is_not_learned_from() {
    let steps = [(8, 10_000, 1); 12];
    let cases =
        cases(vec![run("a", "llama-3.1-8b", &steps), run("b", "qwen3-8b", &steps), run("c", "llama-3.1-8b", &steps)]);
    for fold in folds(&cases, StepSplit::LeaveOneOut(GroupBy::Model)).unwrap() {
        assert_eq!(fold.judged.rows, 0..12);
        let is_other = |of: &StepCase| of.labels.model != fold.judged.case.labels.model;
        assert!(!fold.training.is_empty() && fold.training.iter().all(|of| is_other(of.case)));
        assert!(scope(&fold).starts_with("other models or sizes on h100"));
    }
    let by_workload = folds(&cases, StepSplit::LeaveOneOut(GroupBy::Workload)).unwrap();
    assert_eq!(by_workload[0].training.len(), 2);
    // The same model under another workload is closer than another model.
    let (closest, _) = by_workload[0].closest_training_runs().unwrap();
    assert_eq!((closest.len(), closest[0].case.labels.name.as_str()), (1, "c"));
    assert!(scope(&by_workload[0]).contains(SAME_DEPLOYMENT));
    assert!(scope(&by_workload[1]).starts_with("other models or sizes on h100"));

    let alone = folds(&cases[..1], StepSplit::LeaveOneOut(GroupBy::Model)).unwrap_err().to_string();
    assert!(alone.contains("'llama-3.1-8b' is all there is"), "{alone}");
    let mut silent = cases.clone();
    silent[1].labels.workload = None;
    let error = folds(&silent, StepSplit::LeaveOneOut(GroupBy::Workload)).unwrap_err();
    assert!(error.to_string().contains("b does not name its workload"), "{error}");
    assert_eq!(error.location().and_then(|place| place.key.as_deref()), Some("workload"));
}

const SAME_DEPLOYMENT: &str = " at tensor_parallel_size = 1";

fn scope(fold: &StepFold<'_>) -> String {
    fold.closest_training_runs().unwrap().1
}

#[test]
fn black_boxes_of_other_models_carry_their_times_over() {
    let cases =
        cases(vec![run("fast", "llama-3.1-8b", &[(8, 10_000, 1); 40]), run("slow", "qwen3-8b", &[(8, 20_000, 1); 40])]);
    let left_out = judge(&cases, StepSplit::LeaveOneOut(GroupBy::Model), 5);
    let bias = |found: &EvaluationReport, run: usize| {
        let rows: Vec<_> = found.experiments[run].metrics.iter().collect();
        MetricSummary::of(&rows, Metric::STEP_MEAN, Some(Baseline::BlackBox)).unwrap().bias_pct
    };
    assert!((bias(&left_out, 0) - 100.0).abs() < 1e-6 && (bias(&left_out, 1) + 50.0).abs() < 1e-6);
    let note = |found: &EvaluationReport, text: &str| found.experiments[0].notes.iter().any(|note| note.contains(text));
    // 40 rows in windows of 5.
    assert!(note(&left_out, "fitted on 8 windows of other models or sizes on h100_sxm"));
    let temporal = judge(&cases, TEMPORAL, 5);
    assert!(bias(&temporal, 0).abs() < 1e-6 && bias(&temporal, 1).abs() < 1e-6);
    assert_eq!(temporal.experiments[0].trace.as_ref().unwrap().rows, 8);
    let all = judge(&cases, StepSplit::All, 5);
    assert!(!all.baselines.contains_key(&Baseline::BlackBox));
}

#[test]
fn the_fitter_sees_training_rows_and_its_correction_is_judged() {
    let cases = cases(vec![run("a", "llama-3.1-8b", &[(8, 10_000, 1); 20])]);
    // A fit of one price: what the training rows took beyond the tables.
    let fit = |fold: &StepFold<'_>| -> Result<Correction> {
        let training = &fold.training[0];
        assert_eq!((training.rows.clone(), fold.judged.rows.clone()), (0..16, 16..20));
        let row = &training.case.rows[0];
        let missing_us = row.span_us - training.case.basis(row).time_us(&Term::ALL.map(Term::neutral));
        let mut correction = neutral();
        correction.coefficients[Term::Steps.index()] = missing_us;
        Ok(correction)
    };
    let options = JudgeOptions { split: TEMPORAL, window: 2, fitter: Some(&fit) };
    let found = judge_steps(&cases, Vec::new(), &options, &|_| ()).unwrap();
    let of = &found.experiments[0];
    assert!(errors(&found, 0).mean_ape_pct < 1e-6, "{:?}", errors(&found, 0));
    assert!(found.baselines[&Baseline::CalibratedRoofline][&Metric::STEP_MEAN].mean_ape_pct > 5.0);
    assert_eq!(of.correction.name.as_deref(), Some("made"));
}

/// A correction that changes nothing.
fn neutral() -> Correction {
    use ridgepoint::correction::{Level, NUM_TERMS, Scatter, Source};
    use ridgepoint::latency::HostTimes;
    Correction {
        range: None,
        name: "made".to_owned(),
        level: Level::Global,
        coefficients: Term::ALL.map(Term::neutral),
        covariance: [[0.0; NUM_TERMS]; NUM_TERMS],
        identified: [true; NUM_TERMS],
        host: HostTimes::NONE,
        scatter: Scatter { step: 0.05, ttft: 0.05 },
        source: Source { hardware: vec!["h100_sxm".to_owned()], ..Source::default() },
    }
}

#[test]
fn runs_without_rows_say_what_became_of_them() {
    let reason = |run: ReadRun| {
        let (cases, refused) = step_cases(vec![run], "none", None);
        assert!(cases.is_empty());
        refused[0].1.to_string()
    };
    let alone = reason(run("a", "llama-3.1-8b", &[]));
    assert!(alone.contains("(1 last step): a step needs one after it"), "{alone}");
    let mut unknown = run("a", "llama-3.1-8b", &[(8, 10_000, 1)]);
    unknown.run.trace.steps.iter_mut().for_each(|step| step.decode_kv_tokens = None);
    assert!(reason(unknown).contains("1 incomplete"));
    let mut nameless = run("a", "llama-9", &[(8, 10_000, 1)]);
    nameless.run.trace.run.hardware = None;
    assert!(reason(nameless.clone()).contains("the trace does not name its hardware"));
    nameless.run.trace.run.hardware = Some("h100".to_owned());
    assert!(reason(nameless).contains("unknown model 'llama-9'"));
    // Nothing left to judge after the split: one row begins at time 0.
    let cases = cases(vec![run("a", "llama-3.1-8b", &[(8, 10_000, 1)])]);
    let options = JudgeOptions { split: TEMPORAL, window: 50, fitter: None };
    let error = judge_steps(&cases, Vec::new(), &options, &|_| ()).unwrap_err().to_string();
    assert!(error.contains("none of its 1 rows falls into the judged part"), "{error}");
}

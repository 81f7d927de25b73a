//! Corrections fitted to steps: made-up steps with a known correction, and with `RIDGEPOINT_DATA` two real traces.

use crate::common;

use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, Normal};
use rand_pcg::Pcg64;
use ridgepoint::correction::{Level, Term};
use ridgepoint::{Correction, CorrectionChoice, EfficiencyMode};
use ridgepoint_lab::evaluate::steps::between::Journey;
use ridgepoint_lab::evaluate::steps::case::{StepCase, step_cases};
use ridgepoint_lab::evaluate::steps::read::{ReadRun, read_runs};
use ridgepoint_lab::evaluate::steps::split::{StepSplit, folds};
use ridgepoint_lab::fit::{Alignment, Prior, StepRun, StepRunReport, fit_with_scatter};
use ridgepoint_lab::ingest::step_table::TableRun;
use ridgepoint_lab::ingest::{Cleaning, Interval, Run, StepRecord, StepTrace, periods};

const STEPS: usize = 30_000;

/// Steps of a load that drifts: decodes, tokens in the cache, and a prompt chunk in one step of three.
fn composition(random: &mut Pcg64) -> Vec<StepRecord> {
    let mut load: f64 = 0.5;
    (0..STEPS)
        .map(|i| {
            load = (load + random.random_range(-0.01..0.01)).clamp(0.05, 1.0);
            let decodes = 1 + (200.0 * load) as u32;
            let prompt: u64 = if random.random_bool(0.33) { random.random_range(4..64) } else { 0 };
            StepRecord {
                step_id: 1000 + i as u64,
                num_decode_requests: decodes,
                decode_tokens: u64::from(decodes),
                decode_kv_tokens: Some(u64::from(decodes) * random.random_range(800..1200)),
                num_prefill_requests: u32::from(prompt > 0),
                prefill_tokens: prompt,
                prefill_kv_tokens: Some(0),
                ..StepRecord::default()
            }
        })
        .collect()
}

/// A run of Llama-3.1-8B on an H100.
pub fn case_of(steps: Vec<StepRecord>) -> StepCase {
    case_with(steps, Vec::new())
}

/// The same with the journeys of its requests.
pub fn case_with(steps: Vec<StepRecord>, journeys: Vec<Journey>) -> StepCase {
    let run = Run {
        experiment: "made up".to_owned(),
        model: Some("llama-3.1-8b".to_owned()),
        hardware: Some("h100".to_owned()),
        tensor_parallel_size: Some(1),
        ..Run::default()
    };
    let trace = StepTrace { run, steps };
    let run = TableRun { periods: periods(&trace, &Cleaning::default()), trace };
    let read = ReadRun { run, journeys, ..ReadRun::default() };
    StepCase::new(read, "none", None).unwrap()
}

/// One step in ten of a run that a correction rules, each step 2 % off.
fn sampled(truth: &Correction, seed: u64) -> StepCase {
    let mut random = Pcg64::seed_from_u64(seed);
    let mut steps = composition(&mut random);
    // A first pass with any times, to have the terms.
    steps.iter_mut().enumerate().for_each(|(i, step)| step.start_ns = i as u64 * 10_000_000);
    let whole = case_of(steps.clone());
    let noise = Normal::new(0.0, 0.02).unwrap();
    let mut start_ns = 1_000_000_000.0;
    for (index, step) in steps.iter_mut().enumerate() {
        step.start_ns = start_ns as u64;
        let row = Interval { first: index, steps: 1, span_us: 1.0 };
        start_ns += 1e3 * truth.time_us(&whole.basis(&row)) * (1.0 + noise.sample(&mut random));
    }
    steps.retain(|_| random.random_bool(0.1));
    case_of(steps)
}

#[test]
fn a_known_correction_is_found_in_a_tenth_of_its_steps() {
    let mut truth = Correction::neutral();
    for (term, value) in [
        (Term::Projections, 1.08),
        (Term::AttentionDecode, 0.9),
        (Term::SmallKernels, 1.2),
        (Term::Steps, 350.0),
        (Term::Requests, 8.0),
        (Term::Sampling, 1.2),
    ] {
        truth.coefficients[term.index()] = value;
    }
    let case = sampled(&truth, 7);
    let half = case.rows.len() / 2;
    let run = StepRun::new(&case, 0..half, half..case.rows.len(), &Prior::of_any_model());
    assert_eq!(run.alignment, Alignment::Own, "{:?}", run.slopes);
    let mut runs = [run];
    let learned = fit_with_scatter("made up", &mut runs, &Prior::of_any_model(), &Level::Global).unwrap();
    let found = &learned.correction;
    for term in [Term::Projections, Term::AttentionDecode, Term::Steps, Term::Requests, Term::Sampling] {
        let sd = found.covariance[term.index()][term.index()].sqrt();
        let (value, true_value) = (found.coefficient(term), truth.coefficient(term));
        assert!((value - true_value).abs() <= 1.96 * sd, "{term}: {value} ± {sd}, not {true_value}");
    }
    let report = StepRunReport::of(&runs[0], found);
    let held_out = report.held_out.unwrap();
    assert!(held_out.median_ape_pct < 1.0 && held_out.windows > 25, "{held_out:?}");
    // Of one model alone no scatter below the expected one is believed.
    let notes = learned.report.notes.join("; ");
    assert!((found.scatter.step - 0.03).abs() < 1e-12 && notes.contains("one alone"), "{notes}");
    let off = StepRunReport::of(&runs[0], &Correction::neutral()).held_out.unwrap();
    assert!(off.median_ape_pct > 5.0, "the truth is no neutral correction: {off:?}");
    let own = Level::Model { model: "llama-3.1-8b".to_owned() };
    let own = fit_with_scatter("made up", &mut runs, &Prior::around(found), &own).unwrap();
    let notes = own.report.notes.join("; ");
    assert!(own.correction.scatter.step < 0.02 && notes.contains("held out"), "{notes}");
    assert_eq!(own.correction.source.hardware, ["h100_sxm"]);
}

fn pack_cases(test: &str, correction: &str) -> Option<Vec<StepCase>> {
    let folder = common::data_pack(test)?.join("steps");
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let label = |run: &mut Run| {
        run.hardware = Some("h100".to_owned());
        // As the data's README says.
        run.engine_version = Some("0.15.1".to_owned());
        Ok(())
    };
    let runs = read_runs(&files, None, false, &label).unwrap().runs;
    let (cases, skipped) = step_cases(runs, correction, None);
    assert!(skipped.is_empty(), "{skipped:?}");
    Some(cases)
}

#[test]
fn later_steps_of_the_data_pack_are_met_by_the_global_correction() {
    let Some(cases) = pack_cases("later_steps_of_the_data_pack_are_met_by_the_global_correction", "none") else {
        return;
    };
    let global = CorrectionChoice::Global.resolve("any model", EfficiencyMode::Tables).unwrap().unwrap();
    for fold in folds(&cases, StepSplit::Temporal { judge_from: 0.6 }).unwrap() {
        let fitted = 0..fold.judged.rows.start;
        let run = StepRun::new(fold.judged.case, fitted, fold.judged.rows, &Prior::of_any_model());
        let later = StepRunReport::of(&run, &global).held_out.unwrap();
        eprintln!(
            "{}: median {:.2} %, bias {:+.2} % of {} windows",
            fold.judged.case.labels.name, later.median_ape_pct, later.bias_pct, later.windows
        );
        assert!(later.median_ape_pct < 5.0, "{}: {later:?}", fold.judged.case.labels.name);
    }
}

#[test]
fn corrections_of_the_first_part_of_the_data_pack_meet_the_later_one() {
    let Some(cases) = pack_cases("corrections_of_the_first_part_of_the_data_pack_meet_the_later_one", "none") else {
        return;
    };
    let mut runs: Vec<StepRun<'_>> = folds(&cases, StepSplit::Temporal { judge_from: 0.6 })
        .unwrap()
        .into_iter()
        .map(|fold| {
            let fitted = 0..fold.judged.rows.start;
            StepRun::new(fold.judged.case, fitted, fold.judged.rows, &Prior::of_any_model())
        })
        .collect();
    let learned = fit_with_scatter("pack", &mut runs, &Prior::of_any_model(), &Level::Global).unwrap();
    for run in &runs {
        // vLLM 0.15.1 schedules asynchronously: the GPU's work is in the time after the step's own.
        let (own, before) = run.slopes.unwrap();
        eprintln!("{}: {own:.2} of the step itself, {before:.2} of the one before", run.case.labels.name);
        assert!(before > 0.7 && own < 0.4 && run.alignment == Alignment::Before, "{own} {before}");
    }
    eprintln!("{:?}", learned.report.notes);
    assert!(learned.report.solution.converged && learned.report.rows > 8000);
    for run in &runs {
        let later = StepRunReport::of(run, &learned.correction).held_out.unwrap();
        eprintln!("{}: median {:.2} %", run.case.labels.name, later.median_ape_pct);
        assert!(later.median_ape_pct < 2.0, "{later:?}");
    }
}

//! Terms of intervals by hand.

use super::super::step_scatter::align;
use super::*;
use crate::evaluate::steps::read::ReadRun;
use crate::ingest::step_table::TableRun;
use crate::ingest::{Cleaning, Run, StepRecord, StepTrace, periods};
use ridgepoint::correction::Term;

/// A run of steps (number, start in µs, decodes), each decode with 500 tokens in the cache.
pub(in crate::fit) fn case(steps: &[(u64, u64, u32)]) -> StepCase {
    let step = |(step_id, start_us, decodes): &(u64, u64, u32)| StepRecord {
        step_id: *step_id,
        start_ns: start_us * 1000,
        num_decode_requests: *decodes,
        decode_tokens: u64::from(*decodes),
        decode_kv_tokens: Some(500 * u64::from(*decodes)),
        ..StepRecord::default()
    };
    let run = Run {
        experiment: "made up".to_owned(),
        model: Some("llama-3.1-8b".to_owned()),
        hardware: Some("h100".to_owned()),
        tensor_parallel_size: Some(1),
        ..Run::default()
    };
    let trace = StepTrace { run, steps: steps.iter().map(step).collect() };
    let run = TableRun { periods: periods(&trace, &Cleaning::default()), trace };
    let read = ReadRun { run, ..ReadRun::default() };
    StepCase::new(read, "none", None).unwrap()
}

/// A run whose rows of a range are fitted.
fn run(case: &StepCase, fitted: Range<usize>) -> StepRun<'_> {
    let end = fitted.end;
    StepRun::new(case, fitted, end..end, &Prior::of_any_model())
}

fn decodes(run: &StepRun<'_>) -> Vec<f64> {
    run.terms(&run.fitted).iter().map(|(_, basis)| basis.get(Term::Requests)).collect()
}

#[test]
fn unsampled_steps_are_the_mean_of_those_around() {
    // Rows: 10 decodes for one step, 40 for two, 20 for two; mean 70 / 3.
    let case = case(&[(200, 0, 10), (201, 10_000, 40), (203, 30_000, 20), (205, 50_000, 30)]);
    let mut all = run(&case, 0..3);
    let mean = 70.0 / 3.0;
    let close = |found: &[f64], expected: &[f64]| {
        assert!(found.len() == expected.len(), "{found:?}");
        assert!(found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-9), "{found:?}, not {expected:?}");
    };
    close(&decodes(&all), &[10.0, (40.0 + mean) / 2.0, (20.0 + mean) / 2.0]);
    all.alignment = Alignment::Before;
    // The first row holds the step before, which was not sampled; the second holds steps 200 and 201; the third 202 and 203.
    close(&decodes(&all), &[mean, (10.0 + 40.0) / 2.0, (20.0 + mean) / 2.0]);
    // Nothing outside a range has a part in it: the mean is (40 + 20) / 2.
    let last = StepRun { fitted: 1..3, ..all };
    close(&decodes(&last), &[(40.0 + 30.0) / 2.0, (20.0 + 30.0) / 2.0]);
}

#[test]
fn rows_count_by_the_correlation_of_their_errors() {
    // Every other step is 10 % longer; or every other run of ten steps is.
    for (of_a_kind, counts_as) in [(1, 133.3..133.4), (10, 6.0..40.0)] {
        let mut start_us = 0;
        let steps: Vec<(u64, u64, u32)> = (0..201)
            .map(|i| {
                let began_us = start_us;
                start_us += if i / of_a_kind % 2 == 0 { 10_000 } else { 11_000 };
                (200 + i, began_us, 10)
            })
            .collect();
        let case = case(&steps);
        let run = run(&case, 0..200);
        let fit_rows = |by| run.fit_rows(&run.described(true), by, true, ROWS_PER_ROW);
        let neutral = Correction::neutral();
        let rows = fit_rows(Some(&neutral));
        let weights: f64 = rows.iter().map(|of| of.weight).sum();
        assert!(counts_as.contains(&weights), "{of_a_kind}: {weights}");
        let expected = fit_rows(None);
        assert!(expected.iter().all(|of| (of.sd - 0.03).abs() < 1e-12 && (of.weight - 1.0).abs() < 1e-12));
    }
}

#[test]
fn constant_times_and_single_rows_are_refused() {
    let constant = case(&[(200, 0, 10), (201, 10_000, 40), (203, 30_000, 20), (205, 50_000, 30)]);
    let said = |range: Range<usize>| {
        fit_steps("made.csv", &[&run(&constant, range)], &Prior::of_any_model()).unwrap_err().to_string()
    };
    assert!(said(0..3).contains("made.csv: all 3 rows have the same time, 10000 µs"), "{}", said(0..3));
    assert!(said(0..1).contains("there is one row"), "{}", said(0..1));
    assert!(said(0..0).contains("there are no rows"), "{}", said(0..0));
}

#[test]
fn the_work_of_the_step_before_is_identified_by_its_length() {
    // 20 and 200 decodes in turn by a pattern that repeats every seven; times follow the step, or the one before.
    let decodes: Vec<u32> = (0..300).map(|i| if (i * i) % 7 < 3 { 20 } else { 200 }).collect();
    for (lag, expected) in [(0, Alignment::Own), (1, Alignment::Before)] {
        let us = |i: usize| 8_000 + 10 * u64::from(decodes[(i + 300 - lag) % 300]);
        let mut start_us = 0;
        let steps: Vec<(u64, u64, u32)> = (0..300)
            .map(|i| {
                let step = (200 + i as u64, start_us, decodes[i]);
                start_us += us(i);
                step
            })
            .collect();
        let case = case(&steps);
        let run = run(&case, 0..299);
        let (own, before) = run.slopes.unwrap();
        assert!((own - before).abs() > 0.2 && own.min(before).abs() < 0.05, "{own} {before}");
        assert_eq!(run.alignment, expected, "{:?}", run.slopes);
    }
}

#[test]
fn runs_of_one_engine_have_one_alignment() {
    let case = case(&(0..40).map(|i| (200 + i, 10_000 * i, 10)).collect::<Vec<_>>());
    let with = |slopes| StepRun { slopes: Some(slopes), ..run(&case, 0..39) };
    let mut runs = [with((0.5, 0.45)), with((0.3, 0.6))];
    align(&mut runs);
    assert_eq!(runs.map(|run| run.alignment), [Alignment::Before, Alignment::Before]);
}

//! Errors on rows that were held out, by kind of batch, of a correction and of what is simpler: the operators alone, a straight line, the mean.

use std::ops::Range;

use serde::Serialize;

use super::batch_kind::BatchKind;
use super::fit_steps::StepRun;
use super::window_errors::{WindowErrors, points_of};
use crate::evaluate::black_box::{StepSample, fit_steps};
use crate::ingest::Interval;
use crate::stats::{error_pct, mean, median, quantile};
use ridgepoint::Correction;
use ridgepoint::correction::{Basis, Term};
use ridgepoint::latency::BlackBox;

/// Fewer rows of a kind than this judge nothing.
const LEAST_ROWS: usize = 20;
/// Percentage points by which a straight line must be nearer to be named.
const CLEARLY_NEARER_PCT: f64 = 2.0;

/// Errors of predicted times, percent of the measured ones; above zero where predictions are too long.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct TimeErrors {
    /// Of their mean.
    pub mean_pct: f64,
    /// Of their median.
    pub p50_pct: f64,
    /// Of their 99th percentile.
    pub p99_pct: f64,
    /// Median absolute error of a single time.
    pub median_ape_pct: f64,
}

/// A kind of held-out rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RowKind {
    /// Steps of decodes alone.
    Decodes,
    /// Steps with prompt tokens.
    WithPrompts,
    /// Times of several steps.
    SeveralSteps,
    /// Rows of the first three kinds while requests wait.
    Waiting,
    /// Steps that preempt requests.
    Preempting,
}

impl RowKind {
    const ALL: [RowKind; 5] =
        [RowKind::Decodes, RowKind::WithPrompts, RowKind::SeveralSteps, RowKind::Waiting, RowKind::Preempting];

    /// In words.
    pub fn in_words(self) -> &'static str {
        match self {
            RowKind::Decodes => "decodes alone",
            RowKind::WithPrompts => "steps with prompts",
            RowKind::SeveralSteps => "times of several steps",
            RowKind::Waiting => "steps while requests wait",
            RowKind::Preempting => "steps that preempt",
        }
    }
}

impl From<BatchKind> for RowKind {
    fn from(kind: BatchKind) -> Self {
        match kind {
            BatchKind::Decodes => RowKind::Decodes,
            BatchKind::WithPrompts => RowKind::WithPrompts,
            BatchKind::Several => RowKind::SeveralSteps,
        }
    }
}

/// Errors on the rows of one kind that were held out.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct KindErrors {
    /// The kind.
    pub kind: RowKind,
    /// Rows.
    pub rows: usize,
    /// Of the correction.
    pub correction: TimeErrors,
    /// Of the operators alone.
    pub operators: TimeErrors,
    /// Of a straight line by prompt tokens and decodes, fitted on the same rows as the correction.
    pub line: Option<TimeErrors>,
    /// Of the mean time of the fitted rows.
    pub mean: Option<TimeErrors>,
}

/// The simpler predictions of a run's times.
struct Simpler {
    line: Option<BlackBox>,
    mean_us: Option<f64>,
}

impl Simpler {
    /// Fitted on the rows that a correction is fitted on.
    fn of(runs: &[StepRun<'_>]) -> Simpler {
        let sample = |(row, (_, basis)): (&Interval, (BatchKind, Basis))| sample(row.period_us(), &basis);
        let samples: Vec<StepSample> = runs
            .iter()
            .flat_map(|run| run.part(&run.fitted).0.iter().zip(run.terms(&run.fitted)).map(sample))
            .collect();
        let times: Vec<f64> = samples.iter().map(|of| of.step_us).collect();
        Simpler { line: fit_steps(&samples), mean_us: mean(&times) }
    }
}

fn sample(step_us: f64, basis: &Basis) -> StepSample {
    let decodes = basis.get(Term::Requests) - basis.get(Term::PrefillRequests);
    StepSample { step_us, prompt_tokens: basis.get(Term::PromptTokens), decodes }
}

fn line_us(line: &BlackBox, basis: &Basis) -> f64 {
    let StepSample { prompt_tokens, decodes, .. } = sample(0.0, basis);
    line.beta0_us + line.beta1_us * prompt_tokens + line.beta2_us * decodes
}

/// A held-out time: kind, whether requests waited, and the measured and predicted times, µs.
struct LaterRow {
    kind: RowKind,
    waits: bool,
    measured: f64,
    predicted: [Option<f64>; 4],
}

/// Errors on the rows that were held out: of all of them by kind, and of windows by the straight line.
pub(super) struct LaterRows {
    pub(super) kinds: Vec<KindErrors>,
    pub(super) line: Option<WindowErrors>,
}

impl LaterRows {
    /// Of the rows of runs.
    pub(super) fn of(runs: &[StepRun<'_>], correction: &Correction) -> LaterRows {
        let simpler = Simpler::of(runs);
        let judged: Vec<LaterRow> = runs.iter().flat_map(|run| judged(run, correction, &simpler)).collect();
        let kinds = RowKind::ALL.into_iter().filter_map(|kind| {
            let of_kind = |of: &&LaterRow| match kind {
                RowKind::Waiting => of.waits && of.kind != RowKind::Preempting,
                _ => of.kind == kind,
            };
            let rows: Vec<&LaterRow> = judged.iter().filter(of_kind).collect();
            let errors = |by: usize| {
                let pairs = rows.iter().map(|of| Some((of.measured, (*of.predicted.get(by)?)?)));
                pairs.collect::<Option<Vec<_>>>().and_then(|pairs| time_errors(&pairs))
            };
            let (correction, operators) = (errors(0)?, errors(1)?);
            Some(KindErrors { kind, rows: rows.len(), correction, operators, line: errors(2), mean: errors(3) })
        });
        let windows = |line: &BlackBox| {
            let of = |run: &StepRun<'_>| {
                let terms = run.known_terms(&run.held_out);
                points_of(run, &run.held_out, &|at| terms.get(at).map_or(0.0, |basis| line_us(line, basis)))
            };
            WindowErrors::of(
                &runs.iter().flat_map(of).collect::<Vec<_>>(),
                runs.iter().map(|run| run.held_out.len()).sum(),
            )
        };
        LaterRows { kinds: kinds.collect(), line: simpler.line.as_ref().and_then(windows) }
    }

    /// Says where the straight line is clearly nearer; `with` are the correction's errors of windows.
    pub(super) fn nearer_line(&self, with: Option<&WindowErrors>) -> Option<String> {
        let windows = with
            .zip(self.line.as_ref())
            .map(|(with, line)| ("means of 50 steps", with.median_ape_pct, line.median_ape_pct));
        let kinds = self
            .kinds
            .iter()
            .filter(|of| of.rows >= LEAST_ROWS)
            .filter_map(|of| Some((of.kind.in_words(), of.correction.mean_pct.abs(), of.line?.mean_pct.abs())));
        let nearer = windows.into_iter().chain(kinds).filter(|(_, with, line)| with - line > CLEARLY_NEARER_PCT);
        let (of, with, line) = nearer.max_by(|a, b| (a.1 - a.2).total_cmp(&(b.1 - b.2)))?;
        Some(format!(
            "A straight line by prompt tokens and decodes is nearer: {line:.1} % off on {of}, this correction {with:.1} %; \
             --training-tables writes lines for `simulate --latency`"
        ))
    }
}

fn judged(run: &StepRun<'_>, correction: &Correction, simpler: &Simpler) -> Vec<LaterRow> {
    let time = |kind: RowKind, row: &Interval, basis: &Basis, bound_us: f64| LaterRow {
        kind,
        waits: run.case.queues(row).num_waiting > 0,
        measured: row.period_us(),
        predicted: [
            Some(correction.time_us(basis).max(bound_us) + run.case.queues_us(correction, row)),
            Some(Correction::neutral().time_us(basis).max(bound_us)),
            simpler.line.as_ref().map(|line| line_us(line, basis)),
            simpler.mean_us,
        ],
    };
    let range: &Range<usize> = &run.held_out;
    let rows = run.part(range).0;
    let terms = run.terms(range);
    let mut found: Vec<LaterRow> =
        rows.iter().zip(&terms).map(|(row, (kind, basis))| time((*kind).into(), row, basis, 0.0)).collect();
    found.extend(run.preempting(range).map(|row| {
        let (basis, bound_us) = run.case.terms(row);
        time(RowKind::Preempting, row, &basis, bound_us)
    }));
    found
}

/// `None` without times.
fn time_errors(pairs: &[(f64, f64)]) -> Option<TimeErrors> {
    let (mut measured, mut predicted): (Vec<f64>, Vec<f64>) = pairs.iter().copied().unzip();
    let mean_pct = error_pct(mean(&measured)?, mean(&predicted)?);
    measured.sort_by(f64::total_cmp);
    predicted.sort_by(f64::total_cmp);
    let at = |q: f64| Some(error_pct(quantile(&measured, q)?, quantile(&predicted, q)?));
    let off = pairs.iter().map(|(measured, predicted)| error_pct(*measured, *predicted).abs()).collect();
    Some(TimeErrors { mean_pct, p50_pct: at(0.5)?, p99_pct: at(0.99)?, median_ape_pct: median(off)? })
}

//! Errors on rows that were held out, by kind of batch, and on the times of later requests, of a correction and of what is simpler: the
//! operators alone, a straight line, the mean, regression trees.

use std::ops::Range;

use serde::Serialize;

use super::batch_kind::BatchKind;
use super::clients::Latencies;
use super::fit_steps::StepRun;
use super::simpler::{Predicted, Simpler, line_us};
use super::window_errors::{WindowErrors, points_of};
use crate::evaluate::capture::RequestTimes;
use crate::ingest::Interval;
use crate::stats::{error_pct, mean, median, quantile};
use ridgepoint::Correction;
use ridgepoint::correction::Basis;
use ridgepoint::latency::BlackBox;

/// Fewer rows of a kind than this judge nothing.
const LEAST_ROWS: usize = 20;
/// Waits in the queue below this share of TTFT, by their means, judge nothing.
const LEAST_WAIT_SHARE: f64 = 0.05;
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
    /// Times to the first token of requests that arrive later, by a replay.
    Ttft,
    /// Times per output token of these requests.
    Tpot,
    /// Times to the last token of these requests.
    E2e,
    /// Waits of these requests in the scheduler's queue.
    QueueWait,
}

impl RowKind {
    /// The kinds of steps.
    const OF_STEPS: [RowKind; 5] =
        [RowKind::Decodes, RowKind::WithPrompts, RowKind::SeveralSteps, RowKind::Waiting, RowKind::Preempting];

    /// In words.
    pub fn in_words(self) -> &'static str {
        match self {
            RowKind::Decodes => "decodes alone",
            RowKind::WithPrompts => "steps with prompts",
            RowKind::SeveralSteps => "times of several steps",
            RowKind::Waiting => "steps while requests wait",
            RowKind::Preempting => "steps that preempt",
            RowKind::Ttft => "TTFT of later requests",
            RowKind::Tpot => "TPOT of later requests",
            RowKind::E2e => "E2E of later requests",
            RowKind::QueueWait => "waits of later requests",
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
    /// Of regression trees, fitted on the same rows.
    pub trees: Option<TimeErrors>,
}

/// A held-out time: kind, whether requests waited, and the measured and predicted times.
struct LaterRow {
    kind: RowKind,
    waits: bool,
    measured: f64,
    predicted: Predicted<f64>,
}

/// Errors on the rows that were held out: of all of them by kind, and of windows by the straight line.
pub(super) struct LaterRows {
    pub(super) kinds: Vec<KindErrors>,
    pub(super) line: Option<WindowErrors>,
}

impl LaterRows {
    /// Of the rows of runs.
    pub(super) fn of(runs: &[StepRun<'_>], correction: &Correction, simpler: &Simpler) -> LaterRows {
        let judged: Vec<LaterRow> = runs.iter().flat_map(|run| judged(run, correction, simpler)).collect();
        let kinds = RowKind::OF_STEPS.into_iter().filter_map(|kind| {
            let of_kind = |of: &&LaterRow| match kind {
                RowKind::Waiting => of.waits && of.kind != RowKind::Preempting,
                _ => of.kind == kind,
            };
            errors(kind, judged.iter().filter(of_kind).map(|of| (of.measured, of.predicted)).collect())
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

    /// Adds the times of requests that arrive later, by replays with each prediction.
    pub(super) fn add_clients(&mut self, latencies: &Latencies) {
        type OfClient = fn(&RequestTimes) -> Option<f64>;
        let times: [(RowKind, OfClient); 4] = [
            (RowKind::Ttft, |of| of.ttft_ms),
            (RowKind::Tpot, |of| of.tpot_ms),
            (RowKind::E2e, |of| of.e2e_ms),
            (RowKind::QueueWait, |of| of.queue_wait_ms),
        ];
        let sum = |rows: &[(f64, Predicted<f64>)]| rows.iter().map(|(measured, _)| measured).sum::<f64>();
        let shortest_wait = LEAST_WAIT_SHARE * sum(&latencies.pairs(|of| of.ttft_ms));
        let judged = |(kind, time): (RowKind, OfClient)| {
            let rows = latencies.pairs(time);
            let is_short = kind == RowKind::QueueWait && sum(&rows) < shortest_wait;
            if is_short { None } else { errors(kind, rows) }
        };
        self.kinds.extend(times.into_iter().filter_map(judged));
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

/// Errors of measured times with their predictions; `None` without any, or where a prediction of the correction or the operators lacks.
fn errors(kind: RowKind, rows: Vec<(f64, Predicted<f64>)>) -> Option<KindErrors> {
    let by = |by: usize| {
        let pairs = rows.iter().map(|(measured, predicted)| Some((*measured, (*predicted.get(by)?)?)));
        pairs.collect::<Option<Vec<_>>>().and_then(|pairs| time_errors(&pairs))
    };
    let (correction, operators) = (by(0)?, by(1)?);
    Some(KindErrors { kind, rows: rows.len(), correction, operators, line: by(2), mean: by(3), trees: by(4) })
}

fn judged(run: &StepRun<'_>, correction: &Correction, simpler: &Simpler) -> Vec<LaterRow> {
    let range: &Range<usize> = &run.held_out;
    let terms = run.terms(range).into_iter().zip(run.part(range).0);
    let mut rows: Vec<(RowKind, &Interval, Basis, f64)> =
        terms.map(|((kind, basis), row)| (kind.into(), row, basis, 0.0)).collect();
    rows.extend(run.preempting(range).map(|row| {
        let (basis, bound_us) = run.case.terms(row);
        (RowKind::Preempting, row, basis, bound_us)
    }));
    let bases: Vec<Basis> = rows.iter().map(|(_, _, basis, _)| *basis).collect();
    let by_trees = simpler.trees.as_ref().map(|trees| trees.times_us(&bases)).unwrap_or_default();
    let later = |(at, (kind, row, basis, bound_us)): (usize, (RowKind, &Interval, Basis, f64))| LaterRow {
        kind,
        waits: run.case.queues(row).num_waiting > 0,
        measured: row.period_us(),
        predicted: [
            Some(correction.time_us(&basis).max(bound_us) + run.case.queues_us(correction, row)),
            Some(Correction::neutral().time_us(&basis).max(bound_us)),
            simpler.line.as_ref().map(|line| line_us(line, &basis)),
            simpler.mean_us,
            by_trees.get(at).copied(),
        ],
    };
    rows.into_iter().enumerate().map(later).collect()
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

//! The training tables of runs, and what lines through them say.

use std::collections::BTreeSet;
use std::io::Write;

use serde::Serialize;

use super::lines::LineFit;
use super::queue_rows::{QueueRow, queue_rows, queue_wait_lines};
use super::step_rows::{StepRow, step_lines};
use crate::evaluate::steps::case::StepCase;
use crate::evaluate::steps::split::FIRST;
use crate::fit::Alignment;
use crate::ingest::{DropReason, Dropped, RequestTrace, write_rows};
use ridgepoint::latency::{BlackBox, FittedBlackBox, HostTimes};

/// The labels of a row, behind its own columns.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct RowLabels {
    model: String,
    hardware: String,
    tp: u32,
    run: String,
}

/// The rows of a run, in the order of time.
#[derive(Debug, Clone, PartialEq)]
struct TrainingRun {
    labels: RowLabels,
    queue: Vec<QueueRow>,
    steps: Vec<StepRow>,
}

/// The rows of all runs, and their report.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Training {
    /// The report.
    #[serde(flatten)]
    pub report: TrainingReport,
    #[serde(skip)]
    runs: Vec<TrainingRun>,
}

/// Sizes of the tables, and the lines through them. Keys of its JSON are stable.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct TrainingReport {
    /// Rows of `alpha.csv`.
    pub alpha_rows: usize,
    /// Requests that are no rows, by reason.
    pub alpha_left_out: Dropped,
    /// Rows of `beta.csv`.
    pub beta_rows: usize,
    /// Steps that are no rows, by reason.
    pub beta_left_out: Dropped,
    /// Lines of waits in the queue.
    pub alpha_lines: Vec<LineFit>,
    /// Lines of steps.
    pub beta_lines: Vec<LineFit>,
    /// Remarks.
    pub notes: Vec<String>,
}

impl Training {
    /// The tables of traces, whose durations are aligned like this, and lines through them.
    pub fn of(cases: &[StepCase], alignments: &[Alignment], requests: &[RequestTrace]) -> Self {
        let mut report = TrainingReport::default();
        let mut runs = Vec::new();
        for (case, alignment) in cases.iter().zip(alignments) {
            let (queue, left_out) = queue_rows(case, requests);
            report.alpha_left_out.add_many(DropReason::Incomplete, left_out as u64);
            report.beta_left_out.merge(&case.dropped);
            let steps = StepRow::of(case, *alignment);
            report.alpha_rows += queue.len();
            report.beta_rows += steps.len();
            let labels = RowLabels {
                model: case.labels.model.clone(),
                hardware: case.labels.hardware.clone(),
                tp: case.labels.tensor_parallel_size,
                run: case.labels.name.clone(),
            };
            runs.push(TrainingRun { labels, queue, steps });
        }
        let servers: BTreeSet<_> =
            runs.iter().map(|of| (&of.labels.model, &of.labels.hardware, of.labels.tp)).collect();
        if servers.len() == 1 {
            let (training, judged) = parts(&runs, |run| &run.queue);
            report.alpha_lines = queue_wait_lines(&training, &judged);
            if report.alpha_lines.is_empty() {
                report
                    .notes
                    .push("no line of waits in the queue: too few requests, or all of them wait alike".to_owned());
            }
            let (training, judged) = parts(&runs, |run| &run.steps);
            report.beta_lines = step_lines(&training, &judged);
        } else {
            let note =
                "no lines: they know neither model nor GPU, so that all runs must be of one server, and these are of";
            report.notes.push(format!("{note} {}", servers.len()));
        }
        Training { report, runs }
    }

    /// Writes the table of waits in the queue.
    ///
    /// # Errors
    /// Those of `out`, and a zero byte in a label.
    pub fn write_alpha(&self, out: impl Write) -> std::io::Result<()> {
        write_rows(out, self.runs.iter().flat_map(|run| run.queue.iter().map(move |row| (row, &run.labels))))
    }

    /// Writes the table of steps.
    ///
    /// # Errors
    /// Those of `out`, and a zero byte in a label.
    pub fn write_beta(&self, out: impl Write) -> std::io::Result<()> {
        write_rows(out, self.runs.iter().flat_map(|run| run.steps.iter().map(move |row| (row, &run.labels))))
    }

    /// The lines of steps as latency models. The way to the queue and out of a step takes what `host` says.
    pub fn black_boxes(&self, data: &str, host: &HostTimes) -> Vec<FittedBlackBox> {
        let Some(RowLabels { model, hardware, tp, .. }) = self.runs.first().map(|run| &run.labels) else {
            return Vec::new();
        };
        let of = |step: &LineFit| {
            let delays = BlackBox { beta0_us: step.intercept, ..BlackBox::default() }.with_host(host);
            let wait = self.report.alpha_lines.iter().filter(|of| of.method == step.method).flat_map(|of| {
                let intercept = std::iter::once(("intercept", of.intercept));
                intercept.chain(of.coefficients.clone()).map(|(name, value)| (name.to_owned(), value))
            });
            FittedBlackBox {
                method: step.method.to_string(),
                data: data.to_owned(),
                model: model.clone(),
                hardware: hardware.clone(),
                tensor_parallel_size: *tp,
                rows: step.rows as u64,
                black_box: delays.with_prices(BlackBox::COLUMNS.map(|column| step.coefficient(column))),
                queue_wait_ms: wait.collect(),
            }
        };
        self.report.beta_lines.iter().map(of).collect()
    }
}

/// The first part of each run's rows, and the rest; both in the order of their place in their run.
fn parts<T>(runs: &[TrainingRun], rows: fn(&TrainingRun) -> &Vec<T>) -> (Vec<&T>, Vec<&T>) {
    let of_run = |run| rows(run).iter().enumerate().map(move |(at, row)| (at as f64 / rows(run).len() as f64, row));
    let mut all: Vec<(f64, &T)> = runs.iter().flat_map(of_run).collect();
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (training, judged): (Vec<_>, Vec<_>) = all.into_iter().partition(|(place, _)| *place < FIRST);
    let [training, judged] = [training, judged].map(|of| of.into_iter().map(|(_, row)| row).collect());
    (training, judged)
}

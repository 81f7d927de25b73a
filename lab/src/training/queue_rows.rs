//! Rows of the table of waits in the queue: what a request waited, and the queues as it found them.

use serde::Serialize;

use super::lines::{LineFit, TrainingRow, lines};
use crate::evaluate::steps::case::StepCase;
use crate::ingest::{RequestRow, RequestTrace, StepRecord};
use ridgepoint::units::ns_to_ms;

/// A row, with its fields in the order of the table's columns. Depths and the share of KV blocks are those of the last traced step before
/// the request was queued.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct QueueRow {
    /// From the queue to the first step, ms.
    pub alpha_latency_ms: f64,
    /// Prompt tokens.
    pub prompt_tokens: Option<u64>,
    /// Of these in the prefix cache.
    pub cached_tokens: Option<u64>,
    /// Waiting requests.
    pub queue_depth: Option<u32>,
    /// Running requests.
    pub running_depth: Option<u32>,
    /// Share of the KV blocks that is in use.
    pub kv_ratio: Option<f64>,
    /// From the start of that step to the queue, ms: the scheduler decides again when the step ends.
    pub since_step_ms: Option<f64>,
    /// The most tokens that it may generate.
    pub max_output_tokens: Option<u64>,
    /// When the request arrived.
    pub arrival_ns: Option<u64>,
    #[serde(skip)]
    pub(super) queued_ns: u64,
}

/// What the line of waits is drawn through. Whatever is constant in a run, as a share of its most running requests or a model's layers,
/// scales a coefficient and needs no column.
const QUEUE_COLUMNS: [&str; 8] = [
    "queue_depth",
    "running_depth",
    "kv_ratio",
    "prompt_tokens",
    "cached_tokens",
    "since_step_ms",
    "queue_depth*kv_ratio",
    "prompt_tokens*running_depth",
];

impl QueueRow {
    /// The row of a request; `None` if the trace does not know when it was queued and scheduled. `steps` are in the order of their starts.
    pub fn of(request: &RequestRow, steps: &[StepRecord]) -> Option<Self> {
        let queued = request.queued_ns?;
        let (wait_ns, queued_ns) = (request.scheduled_ns?.since(queued)?, queued.get());
        let has_clock = steps.first().zip(steps.last()).is_some_and(|(first, last)| first.start_ns < last.start_ns);
        let before = steps.partition_point(|step| step.start_ns <= queued_ns).checked_sub(1);
        let found = before.and_then(|at| steps.get(at)).filter(|_| has_clock);
        Some(QueueRow {
            alpha_latency_ms: ns_to_ms(wait_ns),
            prompt_tokens: request.num_prompt_tokens.map(u64::from),
            cached_tokens: request.num_cached_tokens.map(u64::from),
            queue_depth: found.and_then(|step| step.num_waiting),
            running_depth: found.and_then(|step| step.num_running),
            kv_ratio: found.and_then(StepRecord::kv_ratio),
            since_step_ms: found.and_then(|step| Some(ns_to_ms(queued_ns.checked_sub(step.start_ns)?))),
            max_output_tokens: request.max_output_tokens.map(u64::from),
            arrival_ns: request.arrival_ns(),
            queued_ns,
        })
    }

    pub(super) fn columns_and_target(&self) -> TrainingRow {
        let [prompt, cached] = [self.prompt_tokens, self.cached_tokens].map(|tokens| tokens.map(|count| count as f64));
        let [waiting, running] = [self.queue_depth, self.running_depth].map(|depth| depth.map(f64::from));
        let times = |a: Option<f64>, b: Option<f64>| Some(a? * b?);
        let products = [times(waiting, self.kv_ratio), times(prompt, running)];
        let x = [waiting, running, self.kv_ratio, prompt, cached, self.since_step_ms];
        TrainingRow { x: x.into_iter().chain(products).collect(), y: self.alpha_latency_ms }
    }

    /// What a line predicts of it, ms.
    pub fn predicted_ms(&self, line: &LineFit) -> Option<f64> {
        line.predict(&self.columns_and_target().x)
    }
}

/// The rows of a trace's requests, in the order in which these were queued, and the number of requests that are none.
pub fn queue_rows(case: &StepCase, requests: &[RequestTrace]) -> (Vec<QueueRow>, usize) {
    let of_run = requests.iter().filter(|of| of.run.experiment == case.labels.name).flat_map(|of| &of.requests);
    let rows: Vec<Option<QueueRow>> = of_run.map(|request| QueueRow::of(request, case.steps())).collect();
    let all = rows.len();
    let mut rows: Vec<QueueRow> = rows.into_iter().flatten().collect();
    rows.sort_by_key(|row| row.queued_ns);
    let left_out = all - rows.len();
    (rows, left_out)
}

/// Ridge and lasso of waits in the queue, in the order of time, judged on other rows.
pub fn queue_wait_lines(training: &[&QueueRow], judged: &[&QueueRow]) -> Vec<LineFit> {
    let all = |rows: &[&QueueRow]| rows.iter().map(|row| row.columns_and_target()).collect::<Vec<TrainingRow>>();
    lines("queue wait, ms", &QUEUE_COLUMNS, (&all(training), &all(judged)), false)
}

//! A trace ready to be judged: its model compiled for its GPU, and the sampled steps that have a time and requests.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;

use super::between::{RebuiltRow, rebuilt};
use super::read::ReadRun;
use super::reconstruct::{Origin, requests};
use crate::evaluate::case::uncorrected;
use crate::evaluate::fold::{Judged, Labels};
use crate::evaluate::report::sort_out;
use crate::ingest::{DropReason, Dropped, Interval, Run, StepRecord};
use crate::prediction::engine_named;
use ridgepoint::correction::Basis;
use ridgepoint::kv_capacity::KvCapacity;
use ridgepoint::latency::Queues;
use ridgepoint::model::OwnSampling;
use ridgepoint::{
    Correction, CorrectionChoice, Deployment, EfficiencyMode, Engine, Error, Hardware, Location, Model, Request,
    Result, StepModel,
};

/// A trace that can be judged.
#[derive(Debug, Clone)]
pub struct StepCase {
    /// What was run.
    pub labels: Labels,
    /// Times of the steps that have requests, in the order of the trace.
    pub rows: Vec<Interval>,
    /// Single steps that preempted requests and are no rows for that.
    pub preempting: Vec<Interval>,
    /// Steps without a time or requests, by reason.
    pub dropped: Dropped,
    /// Remarks on the trace.
    pub notes: Vec<String>,
    /// Why the model does not fit on the GPUs, if it does not.
    pub too_large: Option<String>,
    /// Whether times are forward passes that the engine timed, without the host's share of a period.
    pub is_timed: bool,
    /// Whether times are those of the steps themselves, as token times are.
    pub is_of_tokens: bool,
    /// Whether the cached tokens of some steps are estimates, from the KV blocks in use.
    pub is_kv_estimated: bool,
    /// Calibrated tables without a correction.
    pub calibrated: StepModel,
    /// The textbook roofline.
    pub ideal: StepModel,
    /// The correction to judge.
    pub correction: Option<Arc<Correction>>,
    steps: Vec<StepRecord>,
    /// What the journeys of requests tell of steps that were not sampled, by the position of the step before them.
    rebuilt: HashMap<usize, RebuiltRow>,
    block_size: u32,
}

/// The traces that can be judged as cases, and the others by name with the reason; both in order. `correction` is `none`, `global`,
/// `auto` or a path, as [`CorrectionChoice`] takes it. Files of `data_dir` come before the built-in ones.
pub fn step_cases(
    runs: Vec<ReadRun>,
    correction: &str,
    data_dir: Option<&Path>,
) -> (Vec<StepCase>, Vec<(String, Error)>) {
    let case = |read: ReadRun| (read.run.trace.run.experiment.clone(), StepCase::new(read, correction, data_dir));
    sort_out(runs.into_iter().map(case))
}

/// The error of a run without labels that are needed. Its location has them as key.
pub(super) fn missing_labels(problems: Vec<String>, labels: &[&str]) -> Error {
    Error::invalid(Location::of("labels").key(labels.join(", ")), problems)
}

impl StepCase {
    /// Compiles the model of a trace and finds the requests of its steps.
    ///
    /// # Errors
    /// Missing or unknown labels, a deployment that the model cannot have, a correction that is not there, and a trace without a
    /// step that has a time and requests.
    pub fn new(read: ReadRun, correction: &str, data_dir: Option<&Path>) -> Result<StepCase> {
        let mut read = read;
        let (model, hardware, deployment) = deployment(&read.run.trace.run, data_dir, &mut read.notes)?;
        let correction = CorrectionChoice::from(correction).resolve(&model.name, EfficiencyMode::Tables)?;
        let case = StepCase::on(read, (&model, &hardware, &deployment), data_dir)?;
        Ok(StepCase { correction, ..case })
    }

    /// The trace of a server that is known, without a correction.
    ///
    /// # Errors
    /// A deployment that the model cannot have, and a trace without a step that has a time and requests.
    pub fn on(read: ReadRun, server: (&Model, &Hardware, &Deployment), data_dir: Option<&Path>) -> Result<StepCase> {
        let ReadRun { run, mut dropped, mut notes, own_sampling, is_of_tokens, journeys } = read;
        let (periods, trace) = (run.periods, run.trace);
        let (model, hardware, deployment) = server;
        let too_large = KvCapacity::new(model, hardware, deployment).err().map(|error| error.to_string());
        let [calibrated, ideal] = uncorrected(model, hardware, deployment, &engine_of(&trace.run), data_dir)?;
        let [calibrated, ideal] = [calibrated, ideal].map(|steps| steps.with_own_sampling(&own_sampling));
        notes.extend(note_on_sampling(&own_sampling));
        notes.extend(calibrated.notes());
        dropped.merge(&periods.dropped());
        let preempting = periods.preempting(&trace);
        let mut rows: Vec<Interval> = periods.times.into_iter().flatten().collect();
        let mut origins: BTreeMap<Origin, usize> = BTreeMap::new();
        rows.retain(|row| {
            let found = trace.steps.get(row.first).and_then(|step| requests(step, deployment.block_size));
            match &found {
                Some((_, origin)) => *origins.entry(*origin).or_default() += 1,
                None => dropped.add(DropReason::Incomplete),
            }
            found.is_some()
        });
        if rows.is_empty() {
            let problem = format!(
                "none of its steps can be judged ({dropped}): a step needs one after it, and requests, cached tokens or KV blocks in use"
            );
            return Err(Error::invalid("trace", vec![problem]));
        }
        let is_kv_estimated = origins.contains_key(&Origin::KvBlocks);
        notes.extend(origins.into_iter().filter_map(|(origin, count)| note_on(origin, count, rows.len())));
        let is_timed = trace.is_timed();
        if is_timed {
            notes.push("times are forward passes on the GPU, without the host's share of a period".to_owned());
        }
        let rebuilt = rebuilt(&rows, &trace.steps, journeys, &calibrated);
        if !rebuilt.is_empty() {
            notes.push(format!(
                "steps between {} of {} pairs of sampled ones are rebuilt from the journeys of requests",
                rebuilt.len(),
                rows.iter().filter(|row| row.steps > 1).count()
            ));
        }
        Ok(StepCase {
            labels: Labels {
                name: trace.run.experiment,
                model: model.name.clone(),
                hardware: hardware.name.clone(),
                tensor_parallel_size: deployment.tensor_parallel_size,
                workload: trace.run.workload,
                backend_version: trace.run.engine_version,
            },
            rows,
            preempting,
            dropped,
            notes,
            too_large,
            is_timed,
            is_of_tokens,
            is_kv_estimated,
            calibrated,
            ideal,
            correction: None,
            steps: trace.steps,
            rebuilt,
            block_size: deployment.block_size,
        })
    }

    /// The trace's steps, in order.
    pub fn steps(&self) -> &[StepRecord] {
        &self.steps
    }

    /// The record of a row's step.
    pub fn record(&self, row: &Interval) -> Option<&StepRecord> {
        self.steps.get(row.first)
    }

    /// The requests of a row's step.
    pub fn requests(&self, row: &Interval) -> Vec<Request> {
        let found = self.record(row).and_then(|step| requests(step, self.block_size));
        found.map(|(requests, _)| requests).unwrap_or_default()
    }

    /// The queues of a row's step; 0 where the trace does not count them.
    pub fn queues(&self, row: &Interval) -> Queues {
        self.record(row).map(StepRecord::queues).unwrap_or_default()
    }

    /// What is known of the steps of a row that were not sampled; `None` where that is nothing.
    pub fn rebuilt(&self, row: &Interval) -> Option<&RebuiltRow> {
        self.rebuilt.get(&row.first).filter(|_| row.steps > 1)
    }

    /// Whether some steps that were not sampled are known.
    pub fn has_rebuilt(&self) -> bool {
        !self.rebuilt.is_empty()
    }

    /// Running, waiting, preempted and resumed requests of a row, as a mean over its steps where these are known, else of its sampled step.
    pub fn queue_counts(&self, row: &Interval) -> [f64; 4] {
        let [running, waiting, preempted, resumed] = self.queues(row).counts();
        let mean_waiting = self.rebuilt(row).and_then(|of| of.mean_waiting);
        [running, mean_waiting.unwrap_or(waiting), preempted, resumed]
    }

    /// Share of a row's queues in its period by a correction, µs; 0 for an engine that hides it behind its steps.
    pub fn queues_us(&self, by: &Correction, row: &Interval) -> f64 {
        if !by.source.steps_hold_scheduling {
            return 0.0;
        }
        self.queue_counts(row).iter().zip(by.host.queue_prices_us()).map(|(count, price)| count * price).sum()
    }

    /// Time of a row's period with these terms by a correction, µs.
    pub fn period_us(&self, by: &Correction, row: &Interval, basis: &Basis) -> f64 {
        by.time_us(basis) + self.queues_us(by, row)
    }

    /// Whether no kernel of the chip was measured: its times are bounds of the datasheet, as those of a CPU are.
    pub fn is_unmeasured(&self) -> bool {
        self.calibrated.efficiency() == EfficiencyMode::Ideal
    }

    /// The terms of a row's step, for a fit, and its roofline bound, µs.
    pub fn terms(&self, row: &Interval) -> (Basis, f64) {
        let requests = self.requests(row);
        (self.calibrated.basis(&requests), self.calibrated.estimate_unchecked(&requests).bound_us)
    }

    /// The terms of a row's step.
    pub fn basis(&self, row: &Interval) -> Basis {
        self.calibrated.basis(&self.requests(row))
    }
}

impl Judged for StepCase {
    fn labels(&self) -> &Labels {
        &self.labels
    }
    fn rows(&self) -> usize {
        self.rows.len()
    }
}

/// A note where steps are taken to have requests of every kind of sampling parameters.
pub(in crate::evaluate) fn note_on_sampling(own: &[OwnSampling]) -> Option<String> {
    match own.len() {
        0 => None,
        1 => Some("requests have the sampling parameters that the capture reports, instead of the server's".to_owned()),
        kinds => Some(format!(
            "requests have sampling parameters of {kinds} kinds: a traced step is taken to have all of them"
        )),
    }
}

/// The engine of a trace; without a version the newest that has kernels of its own for the GPU.
fn engine_of(run: &Run) -> Engine {
    run.engine_version.as_deref().and_then(engine_named).unwrap_or_default()
}

/// Model, GPU and deployment of a trace. A note says what was assumed.
fn deployment(run: &Run, data_dir: Option<&Path>, notes: &mut Vec<String>) -> Result<(Model, Hardware, Deployment)> {
    let (Some(model), Some(hardware), Some(size)) = (&run.model, &run.hardware, run.tensor_parallel_size) else {
        let known = [run.model.is_some(), run.hardware.is_some(), run.tensor_parallel_size.is_some()];
        let labels = ["model", "hardware", "tensor_parallel_size"].into_iter().zip(known);
        let missing: Vec<&str> = labels.filter(|(_, known)| !known).map(|(label, _)| label).collect();
        return Err(missing_labels(vec![format!("the trace does not name its {}", missing.join(", "))], &missing));
    };
    let (model, hardware) = (Model::find_in(data_dir, model)?, ridgepoint_replay::find_hardware(data_dir, hardware)?);
    let usual = Deployment::tensor_parallel(size).on(&[].into(), &Engine::default(), &hardware);
    let deployment = Deployment {
        max_num_seqs: run.max_num_seqs.unwrap_or(usual.max_num_seqs),
        max_num_batched_tokens: run.max_num_batched_tokens.unwrap_or(usual.max_num_batched_tokens),
        ..usual
    };
    let Deployment { max_num_seqs, max_num_batched_tokens, .. } = &deployment;
    let assumed = [
        run.max_num_seqs.is_none().then(|| format!("max_num_seqs = {max_num_seqs}")),
        run.max_num_batched_tokens.is_none().then(|| format!("max_num_batched_tokens = {max_num_batched_tokens}")),
    ];
    let assumed: Vec<String> = assumed.into_iter().flatten().collect();
    if !assumed.is_empty() {
        notes.push(format!("assumed, as the trace does not say: {}", assumed.join(", ")));
    }
    Ok((model, hardware, deployment))
}

fn note_on(origin: Origin, count: usize, all: usize) -> Option<String> {
    let of = if count == all { "all steps".to_owned() } else { format!("{count} of {all} steps") };
    let cached = match origin {
        Origin::Snapshots => return None,
        Origin::Aggregates => "decodes share the cached tokens equally, and so do prefills",
        Origin::KvBlocks => {
            "cached tokens are estimated from KV blocks in use, where shared prefixes count once, so that they are a lower bound"
        }
    };
    Some(format!("requests of {of} are reconstructed from aggregates: {cached}"))
}

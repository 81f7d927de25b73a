//! A run made ready to be judged: its model on its GPU compiled, and the rows that have a time and requests. Uses `read`,
//! `reconstruct`, `step_model`, `correction`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use super::read::ReadRun;
use super::reconstruct::{Origin, requests};
use crate::evaluate::comparison::Skipped;
use crate::ingest::{Dropped, Reason, Run, StepRecord};
use ridgepoint::Deployment;
use ridgepoint::Error;
use ridgepoint::Hardware;
use ridgepoint::Model;
use ridgepoint::Request;
use ridgepoint::internals::correction::{Basis, Correction, Level};
use ridgepoint::internals::efficiency::EfficiencyMode;
use ridgepoint::{CorrectionChoice, Options, StepModel};

/// A sampled step, and the time from it to the next one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepRow {
    /// Index among the run's steps.
    pub step: usize,
    /// Start on the engine's clock, ns.
    pub start_ns: u64,
    /// Steps that the time covers, at least 1.
    pub steps: u64,
    /// How long they took together, µs.
    pub span_us: f64,
}

impl StepRow {
    /// Mean time of a step, µs.
    pub fn period_us(&self) -> f64 {
        self.span_us / self.steps as f64
    }
}

/// A run that can be judged.
#[derive(Debug, Clone)]
pub struct StepCase {
    /// Name of the run.
    pub name: String,
    /// The model, by its short name.
    pub model: String,
    /// The GPU, by its short name.
    pub hardware: String,
    /// GPUs that share every layer.
    pub tensor_parallel_size: u32,
    /// Version of the serving engine, where the trace says.
    pub engine_version: Option<String>,
    /// Name of the workload, where the trace says.
    pub workload: Option<String>,
    /// Rows with a time, in the order of steps.
    pub rows: Vec<StepRow>,
    /// Rows without one, by reason.
    pub dropped: Dropped,
    /// What to know of the run.
    pub notes: Vec<String>,
    /// Calibrated tables, no correction.
    pub calibrated: StepModel,
    /// The textbook roofline.
    pub ideal: StepModel,
    /// The correction to judge, where there is one.
    pub correction: Option<Arc<Correction>>,
    steps: Vec<StepRecord>,
    block_size: u32,
}

/// How cases are made.
#[derive(Debug, Clone, Default)]
pub struct CaseOptions {
    /// Folder whose files come before the built-in ones.
    pub data_dir: Option<PathBuf>,
    /// `none`, `global`, `auto` or a path, as [`CorrectionChoice`] takes it.
    pub correction: String,
}

/// The cases of runs, and the runs that none can be made of, with reasons.
pub fn step_cases(runs: Vec<ReadRun>, options: &CaseOptions) -> (Vec<StepCase>, Vec<Skipped>) {
    let (mut cases, mut skipped) = (Vec::new(), Vec::new());
    for read in runs {
        let id = read.run.trace.run.experiment.clone();
        match StepCase::new(read, options) {
            Ok(case) => cases.push(case),
            Err(reason) => skipped.push(Skipped { id, reason }),
        }
    }
    (cases, skipped)
}

impl StepCase {
    /// A run with its model compiled.
    ///
    /// # Errors
    /// Why it can't be judged, in words: labels that are missing or unknown, a model that the deployment can't split, a
    /// correction that is not there, no row with a time and requests.
    pub fn new(read: ReadRun, options: &CaseOptions) -> std::result::Result<StepCase, String> {
        let ReadRun { run, dropped, mut notes, .. } = read;
        let (periods, trace) = (run.periods, run.trace);
        let (model, hardware, tensor_parallel_size) = named(&trace.run, options)?;
        let said = |error: Error| error.to_string();
        let (deployment, assumed) = deployment(&trace.run, tensor_parallel_size);
        notes.extend(assumed);
        let correction = CorrectionChoice::from(options.correction.as_str());
        let correction = correction.resolve(model.name(), EfficiencyMode::Tables).map_err(said)?;
        notes.extend(correction.as_ref().map(|correction| fitted_on(correction, model.name())));
        let compiled = |efficiency| {
            let options = Options { efficiency, data_dir: options.data_dir.clone(), ..Options::uncorrected() };
            StepModel::with_options(&model, &hardware, &deployment, &options).map_err(said)
        };
        let calibrated = compiled(EfficiencyMode::Tables)?;
        notes.extend(calibrated.notes().iter().cloned());

        let mut case = StepCase {
            name: trace.run.experiment,
            model: model.name().to_owned(),
            hardware: hardware.name().to_owned(),
            tensor_parallel_size,
            engine_version: trace.run.engine_version,
            workload: trace.run.workload,
            rows: Vec::with_capacity(periods.intervals.len()),
            dropped,
            notes,
            ideal: compiled(EfficiencyMode::Ideal)?,
            calibrated,
            correction,
            steps: trace.steps,
            block_size: deployment.block_size,
        };
        case.dropped.merge(&periods.dropped());
        let mut origins: BTreeMap<Origin, usize> = BTreeMap::new();
        for interval in &periods.intervals {
            let Some(step) = case.steps.get(interval.first) else { continue };
            match requests(step, case.block_size) {
                Some((_, origin)) => {
                    *origins.entry(origin).or_default() += 1;
                    let (steps, span_us) = (interval.steps, interval.span_us);
                    case.rows.push(StepRow { step: interval.first, start_ns: step.start_ns, steps, span_us });
                }
                None => case.dropped.add(Reason::Incomplete),
            }
        }
        if case.rows.is_empty() {
            return Err(no_rows(&case));
        }
        case.notes.extend(origins.into_iter().filter_map(|(origin, count)| said_of(origin, count, case.rows.len())));
        if case.steps.iter().any(|step| step.gpu_time_us.is_some()) {
            case.notes.push("times are forward passes on the GPU, without the host's share of a period".to_owned());
        }
        Ok(case)
    }

    /// The record of a row's step.
    pub fn record(&self, row: &StepRow) -> Option<&StepRecord> {
        self.steps.get(row.step)
    }

    /// The requests of a row's step, from snapshots or by [`requests`].
    pub fn requests(&self, row: &StepRow) -> Vec<Request> {
        let found = self.record(row).and_then(|step| requests(step, self.block_size));
        found.map(|(requests, _)| requests).unwrap_or_default()
    }

    /// The terms of a row's step, for a fit.
    pub fn basis(&self, row: &StepRow) -> Basis {
        self.calibrated.basis(&self.requests(row))
    }
}

fn named(run: &Run, options: &CaseOptions) -> std::result::Result<(Model, Hardware, u32), String> {
    let data_dir = options.data_dir.as_deref();
    let missing = |what: &str, flag: &str| format!("does not say its {what}: add {flag}");
    let said = |error: Error| error.to_string();
    let model = run.model.as_deref().ok_or_else(|| missing("model", "--model NAME"));
    let model = model.and_then(|name| Model::find_in(data_dir, name).map_err(said));
    let hardware = run.hardware.as_deref().ok_or_else(|| missing("GPU", "--hardware NAME"));
    let hardware = hardware.and_then(|name| Hardware::find_in(data_dir, name).map_err(said));
    let size = run.tensor_parallel_size.ok_or_else(|| missing("tensor_parallel_size", "--tensor-parallel-size N"));
    match (model, hardware, size) {
        (Ok(model), Ok(hardware), Ok(size)) => Ok((model, hardware, size)),
        (model, hardware, size) => {
            let problems: Vec<String> = [model.err(), hardware.err(), size.err()].into_iter().flatten().collect();
            Err(problems.join("; "))
        }
    }
}

/// The deployment, with a note where it is not all known.
fn deployment(run: &Run, tensor_parallel_size: u32) -> (Deployment, Option<String>) {
    let usual = Deployment::tensor_parallel(tensor_parallel_size);
    let mut assumed = Vec::new();
    let mut or_usual = |name: &str, value: Option<u32>, usual: u32| {
        if value.is_none() {
            assumed.push(format!("{name} = {usual}"));
        }
        value.unwrap_or(usual)
    };
    let max_num_seqs = or_usual("max_num_seqs", run.max_num_seqs, usual.max_num_seqs);
    let max_num_batched_tokens =
        or_usual("max_num_batched_tokens", run.max_num_batched_tokens, usual.max_num_batched_tokens);
    let note = (!assumed.is_empty()).then(|| format!("the trace does not say, taken: {}", assumed.join(", ")));
    (Deployment { max_num_seqs, max_num_batched_tokens, ..usual }, note)
}

/// On what a correction was fitted: whether these rows were among it is for the reader to judge.
fn fitted_on(correction: &Correction, model: &str) -> String {
    let level = match &correction.level {
        Level::Global => "for any model",
        Level::Model { .. } => "for this model",
    };
    let seen = if correction.source.models.iter().any(|known| known == model) {
        "this model among them"
    } else {
        "this model not among them"
    };
    let (data, split) = (&correction.source.data, &correction.source.split);
    format!("correction {} {level}, fitted on {data} ({split}), {seen}", correction.name)
}

fn said_of(origin: Origin, count: usize, all: usize) -> Option<String> {
    let whose = if count == all { "all steps".to_owned() } else { format!("{count} of {all} steps") };
    match origin {
        Origin::Snapshots => None,
        Origin::Aggregates => Some(format!(
            "requests of {whose} reconstructed from aggregates: tokens in the cache shared equally, prompt chunks too"
        )),
        Origin::KvBlocks => Some(format!(
            "requests of {whose} reconstructed from aggregates: tokens in the cache estimated from KV blocks in use, where \
             prefixes that requests share count once, so that they are a lower bound"
        )),
    }
}

fn no_rows(case: &StepCase) -> String {
    if case.steps.is_empty() {
        return "has no steps".to_owned();
    }
    let reasons: Vec<String> =
        case.dropped.iter().map(|(reason, count)| format!("{count} {}", reason.name())).collect();
    let way_out = if case.dropped.count(Reason::WarmUp) > 0 {
        "; --warm-up-steps N counts fewer steps as warm-up"
    } else if case.dropped.count(Reason::Incomplete) > 0 {
        "; a prediction needs requests, tokens in the cache or KV blocks in use"
    } else {
        "; a time needs a step and one after it"
    };
    format!("no step has a time and requests: {}{way_out}", reasons.join(", "))
}

//! The server and the requests of a captured run, for what clients see.

use std::path::Path;

use ridgepoint::{CorrectionChoice, Model, Options};
use ridgepoint_lab::evaluate::capture::traced_blocks;
use ridgepoint_lab::evaluate::steps::case::StepCase;
use ridgepoint_lab::evaluate::steps::read::ReadRun;
use ridgepoint_lab::fit::Clients;
use ridgepoint_lab::ingest::{RequestRow, RequestTrace, Run};
use ridgepoint_lab::prediction::engine_named;
use ridgepoint_lab::served::Served;
use ridgepoint_replay::find_hardware;
use ridgepoint_replay::server_config::ServedEngine;
use serde_json::{Map, Value};

use super::args::Fit;
use crate::flags::Flags;
use crate::outcome::Failure;
use crate::output::Outputs;
use crate::server::ServerArgs;

/// The server that `--serve-command` or `--config` names, with remarks; `None` without them.
///
/// # Errors
/// A server that cannot be read, or does not fit.
pub fn named_server(
    args: &Fit,
    options: &Options,
    outputs: &mut Outputs,
) -> Result<Option<(Served, ServedEngine, Vec<String>)>, Failure> {
    let is_named = args.serve_command.is_some() || args.config.is_some();
    is_named.then(|| args.server().open(&uncorrected(options), Map::new(), outputs)).transpose()
}

fn uncorrected(options: &Options) -> Options {
    Options { correction: CorrectionChoice::None, ..options.clone() }
}

/// The requests of a single run, or of the runs of its token times, and the engine on which they are replayed: the named one, or one with
/// the arguments that the capture shows. A note says why there are none.
pub fn clients(
    (cases, requests): (&[StepCase], &[RequestTrace]),
    run: Option<Run>,
    named: Option<ServedEngine>,
    options: &Options,
    (outputs, notes): (&mut Outputs, &mut Vec<String>),
) -> Option<Clients> {
    let (Some(run), [case, ..]) = (run, cases) else { return None };
    let of_run = |of: &&RequestTrace| case.is_of_tokens || of.run.experiment == case.labels.name;
    let of_run = requests.iter().filter(of_run).flat_map(|of| &of.requests);
    let requests: Vec<RequestRow> = of_run.filter(|row| row.num_output_tokens.is_some()).cloned().collect();
    if requests.is_empty() {
        return None;
    }
    let blocks = traced_blocks(case.steps());
    if let Some(mut engine) = named {
        engine.config.num_gpu_blocks =
            blocks.filter(|_| !engine.blocks_are_given).unwrap_or(engine.config.num_gpu_blocks);
        return Some(Clients { requests, engine: engine.config, is_assumed: false });
    }
    let lengths = |row: &RequestRow| {
        let length = |of: Option<_>| of.map_or(0, u64::from);
        length(row.num_prompt_tokens).saturating_add(length(row.num_output_tokens))
    };
    let longest = requests.iter().map(lengths).max();
    let given: [(&str, Option<Value>); 7] = [
        ("model", run.model.map(Value::from)),
        ("hardware", run.hardware.map(Value::from)),
        ("tensor_parallel_size", run.tensor_parallel_size.map(Value::from)),
        ("max_num_seqs", run.max_num_seqs.map(Value::from)),
        ("max_num_batched_tokens", run.max_num_batched_tokens.map(Value::from)),
        ("num_gpu_blocks_override", blocks.map(Value::from)),
        ("max_model_len", longest.map(Value::from)),
    ];
    let given = given.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect();
    let engine = run.engine_version.as_deref().and_then(engine_named).unwrap_or_else(|| options.engine.clone());
    let options = Options { engine, ..uncorrected(options) };
    match ServerArgs::new(None, None, Flags::of(given)).open(&options, Map::new(), outputs) {
        Ok((_, engine, _)) => Some(Clients { requests, engine: engine.config, is_assumed: true }),
        Err(failure) => {
            let reason = match failure {
                Failure::Input(problems) => problems.join("; "),
                Failure::Usage(problem) => problem,
            };
            notes.push(format!("what clients see is not judged, --serve-command tells the server: {reason}"));
            None
        }
    }
}

/// Refuses runs of another server than the named one, as far as they say.
///
/// # Errors
/// Another model, GPU or number of GPUs.
pub fn check_server(runs: &[ReadRun], served: &Served, data_dir: Option<&Path>) -> Result<(), Failure> {
    let mut problems = Vec::new();
    for Run { experiment, model, hardware, tensor_parallel_size, .. } in runs.iter().map(|run| &run.run.trace.run) {
        let is_other = |found: ridgepoint::Result<String>, own: &str| found.is_ok_and(|found| found != own);
        let mut check = |what: &str, said: &str, own: &str, is_other: bool| {
            if is_other {
                problems.push(format!("{experiment}: is of the {what} {said}, and the server has {own}"));
            }
        };
        if let Some(model) = model {
            let found = Model::find_in(data_dir, model).map(|of| of.name);
            check("model", model, &served.model.name, is_other(found, &served.model.name));
        }
        if let Some(hardware) = hardware {
            let found = find_hardware(data_dir, hardware).map(|of| of.name);
            check("GPU", hardware, &served.hardware.name, is_other(found, &served.hardware.name));
        }
        if let Some(size) = tensor_parallel_size {
            let own = served.deployment.tensor_parallel_size;
            check("tensor_parallel_size", &size.to_string(), &own.to_string(), *size != own);
        }
    }
    if problems.is_empty() { Ok(()) } else { Err(Failure::Input(problems)) }
}

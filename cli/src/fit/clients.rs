//! The server and the requests of a captured run, for what clients see.

use std::fmt::Display;
use std::path::Path;

use ridgepoint::{CorrectionChoice, Options};
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
use crate::evaluate::capture::check_model;
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

/// The requests of the only run, or of the only run whose token times became several; `None` for several runs or without requests.
pub fn requests_of_one(cases: &[StepCase], requests: &[RequestTrace]) -> Option<Vec<RequestRow>> {
    let first = cases.first()?;
    let is_one = cases.len() == 1 || (requests.len() == 1 && first.is_of_tokens);
    let of_run = |of: &&RequestTrace| first.is_of_tokens || of.run.experiment == first.labels.name;
    let of_run = requests.iter().filter(of_run).flat_map(|of| &of.requests);
    let rows: Vec<RequestRow> = of_run.filter(|row| row.num_output_tokens.is_some()).cloned().collect();
    (is_one && !rows.is_empty()).then_some(rows)
}

/// Requests on a server that is known, with the KV blocks of the capture where it does not give its own.
pub fn clients_on(requests: Vec<RequestRow>, cases: &[StepCase], engine: &ServedEngine) -> Clients {
    let traced = cases.first().and_then(|case| traced_blocks(case.steps())).filter(|_| !engine.blocks_are_given);
    let mut engine = engine.config.clone();
    engine.num_gpu_blocks = traced.unwrap_or(engine.num_gpu_blocks);
    Clients { requests, engine, is_assumed: false }
}

/// The requests of a single run and the engine on which they are replayed: the named one, or one with the arguments that the capture shows.
/// A note says why there are none.
pub fn clients(
    (cases, requests): (&[StepCase], &[RequestTrace]),
    run: Option<Run>,
    named: Option<&ServedEngine>,
    options: &Options,
    (outputs, notes): (&mut Outputs, &mut Vec<String>),
) -> Option<Clients> {
    let run = run?;
    let requests = requests_of_one(cases, requests)?;
    if let Some(engine) = named {
        return Some(clients_on(requests, cases, engine));
    }
    let blocks = cases.first().and_then(|case| traced_blocks(case.steps()));
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

/// Refuses runs whose labels name another model, GPU or tensor-parallel size than the server's.
///
/// # Errors
/// Every label of another server.
pub fn check_server(runs: &[ReadRun], served: &Served, data_dir: Option<&Path>) -> Result<(), Failure> {
    let mut problems = Vec::new();
    for Run { experiment, model, hardware, tensor_parallel_size, .. } in runs.iter().map(|run| &run.run.trace.run) {
        if let Err(Failure::Input(found)) = check_model(model.as_deref(), &served.model, data_dir) {
            problems.extend(found);
        }
        let other = |what: &str, said: &dyn Display, own: &dyn Display| {
            format!("{experiment}: is of the {what} {said}, and the server has {own}")
        };
        let own = &served.hardware.name;
        let is_other = |name: &&String| find_hardware(data_dir, name).is_ok_and(|found| found.name != *own);
        problems.extend(hardware.as_ref().filter(is_other).map(|name| other("GPU", name, own)));
        let own = served.deployment.tensor_parallel_size;
        let size = tensor_parallel_size.filter(|size| *size != own);
        problems.extend(size.map(|size| other("tensor_parallel_size", &size, &own)));
    }
    if problems.is_empty() { Ok(()) } else { Err(Failure::Input(problems)) }
}

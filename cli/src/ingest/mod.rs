//! `ridgepoint ingest`: captures of engines and load generators become tables of steps, requests and tokens. Everything is read and
//! checked before anything is written.

mod args;
mod table;

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};

use ridgepoint::latency::KvTransfers;
use ridgepoint::{Error, Model};
use ridgepoint_lab::ingest::folder::{self, ExperimentFile};
use ridgepoint_lab::ingest::format::Format;
use ridgepoint_lab::ingest::{
    Ingestion, Run, RunReport, ServerLog, Tables, known_rates, request_table, step_table, token_table,
};

pub use args::{CleaningArgs, Ingest, Labels};

use crate::common::Common;
use crate::outcome::{Failure, Outcome};
use crate::output::{Kind, OutputFile, OutputFolder, Outputs};
use crate::progress;

/// Reads files and writes tables.
///
/// # Errors
/// Files that can't be read or are at fault, each with its problem; models and GPUs of unknown names; runs that can't be distinguished
/// apart; nothing that can be used; tables that can't be written.
pub fn run(args: &Ingest, common: &Common) -> Result<Outcome<Ingestion>, Failure> {
    let mut tables = read(args)?;
    let mut notes: Vec<String> = tables
        .report
        .files
        .iter()
        .flat_map(|file| file.notes.iter().map(move |note| format!("{}: {note}", file.file)))
        .collect();
    tables.add_totals(args.since_start).map_err(|problem| Failure::Input(vec![problem]))?;
    let has_steps = !tables.steps.is_empty();
    let is_timed = tables.compare();
    let has_rows = is_timed || !tables.requests.is_empty() || !tables.tokens.is_empty();
    if !has_rows && !tables.has_counts() {
        return Err(Failure::Input(tables.report.files.iter().map(table::unusable).collect()));
    }
    if has_steps && !is_timed {
        notes.push("no step has a time that can be used: only the request table is written".to_owned());
    }
    let way_out = match &args.labels.experiment {
        Some(_) => "--experiment names one run: leave it out, or read the files one at a time",
        None => "read them one at a time, each with its own --experiment",
    };
    let mut problems: Vec<String> = tables.twins.iter().map(|twins| format!("{twins}; {way_out}")).collect();
    problems.extend(unknown_names(&tables.report.runs, common.data_dir()));
    if !problems.is_empty() {
        problems.dedup();
        return Err(Failure::Input(problems));
    }
    let rates = rates(&mut tables, args, common, &mut notes)?;
    if args.since_start && tables.report.metrics.is_empty() {
        notes.push("--since-start changes nothing: no file is a reply of /metrics".to_owned());
    }
    if args.kv_block_bytes.is_some() && tables.report.transfers.is_empty() {
        notes.push("--kv-block-bytes changes nothing: no file reports transfers of KV blocks".to_owned());
    }
    let missing = missing_labels(&tables.report.runs);
    if !missing.is_empty() {
        notes.push(format!("some runs lack metadata needed for prediction; pass {}", missing.join(", ")));
    }
    if !has_rows {
        notes.push("the files hold counts alone: no table is written".to_owned());
    }
    let mut outputs = Outputs::new(common, args.force);
    let rates_file = rates.map(|(path, rates)| written_rates(path, &rates, &mut outputs)).transpose()?;
    if has_rows {
        write(&mut tables, &args.out, outputs, &mut notes)?;
    }
    if let Some((file, path)) = rates_file {
        file.keep()?;
        tables.report.written.push(path.display().to_string());
    }
    Ok(Outcome { notes, ..Outcome::of(tables.report) })
}

/// Fits the rates of transfers. Returns what `--output-transfers` writes, and where to.
fn rates<'a>(
    tables: &mut Tables,
    args: &'a Ingest,
    common: &Common,
    notes: &mut Vec<String>,
) -> Result<Option<(&'a Path, KvTransfers)>, Failure> {
    notes.extend(tables.fit_transfers(args.kv_block_bytes, common.data_dir())?);
    let Some(path) = &args.output_transfers else { return Ok(None) };
    let of = known_rates(&tables.report.transfers, &tables.report.transfer_contention);
    let (rates, note) = of.map_err(|error| Failure::input(format!("--output-transfers: {error}")))?;
    notes.extend(note);
    Ok(Some((path, rates)))
}

/// Writes the rates of transfers to a file that does not have its name yet.
fn written_rates<'a>(
    path: &'a Path,
    rates: &KvTransfers,
    outputs: &mut Outputs,
) -> Result<(OutputFile, &'a Path), Failure> {
    let mut file = outputs.create(path, Kind::TransferRates)?;
    file.write(|to| {
        serde_json::to_writer_pretty(&mut *to, rates)?;
        writeln!(to)
    })?;
    Ok((file, path))
}

/// Reads all files.
fn read(args: &Ingest) -> Result<Tables, Failure> {
    let size = |file: &Path| std::fs::metadata(file).map_or(0, |of| of.len());
    let (inputs, mut errors) = inputs(&args.files);
    let bytes = inputs.iter().map(|(file, _)| size(file)).sum();
    let bar = progress::bar(bytes, "{spinner} {msg} [{bar:30}] {bytes}/{total_bytes}, {elapsed}");
    let mut found = Vec::new();
    for (file, experiment) in &inputs {
        let name = file.display().to_string();
        bar.set_message(name.clone());
        let format = Format::named(&args.input_format).map_or_else(|| Format::detect(file), Ok);
        match format.and_then(|format| Ok((format, format.read(file)?))) {
            Ok((format, capture)) => found.push((name, experiment, format, capture)),
            Err(error) => errors.push(error),
        }
        bar.inc(size(file));
    }
    bar.finish_and_clear();
    if !errors.is_empty() {
        return Err(errors.into());
    }
    let servers: Vec<ServerLog> = found.iter().filter_map(|(.., capture)| capture.server.clone()).collect();
    let (mut tables, mut problems) = (Tables::default(), Vec::new());
    for (name, experiment, format, mut capture) in found {
        let label = |run: &mut Run| {
            if let Some(experiment) = experiment {
                experiment.put_over(run);
            }
            args.labels.put_over(run);
        };
        match &servers[..] {
            [] => {}
            [server] => problems.extend(
                capture
                    .label(server, &label)
                    .into_iter()
                    .map(|problem| format!("{name}: {problem}: leave the log out, or give the right one as a label")),
            ),
            _ if capture.server.is_some() => {}
            _ => {
                capture.notes.push("several logs of servers are there: none labels the runs of other files".to_owned())
            }
        }
        tables.add(&name, format, capture, &args.cleaning.given().unwrap_or_default(), &label);
    }
    if problems.is_empty() { Ok(tables) } else { Err(Failure::Input(problems)) }
}

/// The files to read: those that are named, and those of experiment folders with their labels.
fn inputs(files: &[PathBuf]) -> (Vec<(PathBuf, Option<ExperimentFile>)>, Vec<Error>) {
    let (mut inputs, mut errors) = (Vec::new(), Vec::new());
    for file in files {
        if !folder::is_experiment(file) {
            inputs.push((file.clone(), None));
            continue;
        }
        match folder::files(file) {
            Ok(of_folder) => inputs.extend(of_folder.into_iter().map(|of| (of.path.clone(), Some(of)))),
            Err(error) => errors.push(error),
        }
    }
    let mut known = BTreeSet::new();
    for (file, _) in &inputs {
        // Counts of a file that is read twice would be twice too large.
        if !known.insert(file.canonicalize().unwrap_or_else(|_| file.clone())) {
            errors.push(Error::parse(&**file, "is named twice: name it once"));
        }
    }
    (inputs, errors)
}

/// Models and GPUs that are not known.
fn unknown_names(runs: &[RunReport], data_dir: Option<&Path>) -> BTreeSet<String> {
    let models: BTreeSet<&String> = runs.iter().filter_map(|report| report.run.model.as_ref()).collect();
    let gpus: BTreeSet<&String> = runs.iter().filter_map(|report| report.run.hardware.as_ref()).collect();
    let models = models.into_iter().filter_map(|name| Some(("--model", Model::find_in(data_dir, name).err()?)));
    let gpus = gpus
        .into_iter()
        .filter_map(|name| Some(("--hardware", ridgepoint_replay::find_hardware(data_dir, name).err()?)));
    models.chain(gpus).map(|(flag, error)| format!("{error}; {flag} puts another name in its place")).collect()
}

/// The flags of labels that a prediction needs and some run lacks.
fn missing_labels(runs: &[RunReport]) -> Vec<&'static str> {
    let is_missing = |of: fn(&Run) -> bool| runs.iter().any(|report| of(&report.run));
    let labels = [
        ("--model", is_missing(|run| run.model.is_none())),
        ("--hardware", is_missing(|run| run.hardware.is_none())),
        ("--tensor-parallel-size", is_missing(|run| run.tensor_parallel_size.is_none())),
    ];
    labels.into_iter().filter(|(_, is_missing)| *is_missing).map(|(flag, _)| flag).collect()
}

/// Writes the tables that have rows; all or none.
fn write(tables: &mut Tables, out: &Path, mut outputs: Outputs, notes: &mut Vec<String>) -> Result<(), Failure> {
    let folder = OutputFolder::make(out.to_owned())?;
    let steps = |to: &mut File| step_table::write(BufWriter::new(to), &tables.steps);
    let requests = |to: &mut File| request_table::write(BufWriter::new(to), &tables.requests);
    let tokens = |to: &mut File| token_table::write(BufWriter::new(to), &tables.tokens);
    let mut files = Vec::new();
    for (name, kind, is_empty, rows) in [
        ("steps.csv", Kind::StepTable, tables.steps.is_empty(), &steps as &dyn Fn(&mut File) -> std::io::Result<()>),
        ("requests.csv", Kind::RequestTable, tables.requests.is_empty(), &requests),
        ("tokens.csv", Kind::TokenTable, tables.tokens.is_empty(), &tokens),
    ] {
        let path = folder.path.join(name);
        if !is_empty {
            files.push((outputs.create(&path, kind)?, path, rows));
        } else if path.exists() {
            notes.push(format!("{}: was there before and is not of these files", path.display()));
        }
    }
    for (file, _, rows) in &mut files {
        file.write(rows)?;
    }
    for (file, path, _) in files {
        file.keep()?;
        tables.report.written.push(path.display().to_string());
    }
    Ok(())
}

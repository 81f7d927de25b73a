//! Published experiment folders: the files of one server's run, and the labels that `exp-config.yaml` gives them.

use std::path::{Path, PathBuf};

use ridgepoint::{Error, Result};
use ridgepoint_replay::server_config::ServerConfig;

use super::file_name;
use super::step::Run;

/// The server's settings, which make a folder an experiment.
const CONFIG: &str = "exp-config.yaml";

/// Files that are read, and what the names of their runs have behind the folder's. Traces and logs both hold the engine's steps, traces and
/// reports both hold requests: they stay apart.
const FILES: [(&str, &str); 4] = [
    ("traces.json", ""),
    ("results/per_request_lifecycle_metrics.json", "/client"),
    ("vllm.log", "/log"),
    ("kv_events.jsonl", ""),
];

/// A file of an experiment.
#[derive(Debug, Clone, PartialEq)]
pub struct ExperimentFile {
    /// Its path.
    pub path: PathBuf,
    /// What the folder says of its runs.
    labels: Run,
}

impl ExperimentFile {
    /// Puts the labels of the folder over those of a run. Where a file holds several, their names stay apart.
    pub fn put_over(&self, run: &mut Run) {
        let rest = run.experiment.strip_prefix(&file_name(&self.path)).unwrap_or_default();
        let experiment = format!("{}{rest}", self.labels.experiment);
        *run = Run { experiment, ..self.labels.clone() }.or(run);
    }
}

/// Whether a path is an experiment folder.
pub fn is_experiment(path: &Path) -> bool {
    path.is_dir() && path.join(CONFIG).is_file()
}

/// The files of an experiment folder, plain or gzip.
///
/// # Errors
/// A configuration that cannot be read, and a folder with none of the files.
///
/// # Source
/// The published folders of inference-sim.
pub fn files(folder: &Path) -> Result<Vec<ExperimentFile>> {
    let server = ServerConfig::read(&folder.join(CONFIG))?;
    let full = std::path::absolute(folder).map_err(|error| Error::io(folder, error))?;
    let name = full.file_name().map_or_else(|| "run".to_owned(), |name| name.to_string_lossy().into_owned());
    let given = |name: &str| server.given.contains(name);
    let labels = Run {
        model: Some(server.model).filter(|name| !name.is_empty()),
        hardware: Some(server.hardware).filter(|name| !name.is_empty()),
        tensor_parallel_size: Some(server.deployment.tensor_parallel_size),
        max_num_seqs: given("max_num_seqs").then_some(server.deployment.max_num_seqs),
        max_num_batched_tokens: given("max_num_batched_tokens").then_some(server.deployment.max_num_batched_tokens),
        ..Run::default()
    };
    let mut found = Vec::new();
    for (file, suffix) in FILES {
        let paths = [folder.join(file), folder.join(format!("{file}.gz"))];
        let path = paths.into_iter().find(|path| path.is_file());
        let labels = Run { experiment: format!("{name}{suffix}"), ..labels.clone() };
        found.extend(path.map(|path| ExperimentFile { path, labels }));
    }
    if found.is_empty() {
        let names = FILES.map(|(name, _)| name).join(", ");
        return Err(Error::parse(folder, format!("has {CONFIG} and none of the files that are read: {names}")));
    }
    Ok(found)
}

//! Serving runs on disk: folders with a load, a server and what clients measured. They become cases.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::case::{Case, MAX_MEMORY_GIB, Rooflines};
use super::fold::Labels;
use super::measured::Measured;
use super::report::{Skipped, sort_out};
use ridgepoint::{Engine, Error, Result};
use ridgepoint_replay::server_config::ServerConfig;
use ridgepoint_replay::workload::profile::Profile;
use ridgepoint_replay::workload::{StageLoad, check_memory};

/// The files of an experiment: the load, the server, what clients measured.
pub const FILES: [&str; 3] = ["profile.yaml", "exp-config.yaml", "measured.csv"];

/// A serving run as its folder describes it.
#[derive(Debug, Clone)]
pub struct Experiment {
    /// Name of the folder, or its path if another experiment has the same name.
    pub name: String,
    /// The folder.
    pub dir: PathBuf,
    /// The load.
    pub profile: Profile,
    /// The server.
    pub server: ServerConfig,
    /// What clients measured.
    pub measured: Measured,
}

impl Experiment {
    /// Reads a folder.
    ///
    /// # Errors
    /// `ErrorKind::Invalid` for a measured stage that the load does not have; otherwise as the readers of the three files.
    pub fn read(dir: &Path) -> Result<Self> {
        let [profile, server, measured] = FILES.map(|name| dir.join(name));
        let experiment = Experiment {
            name: folder_name(dir),
            dir: dir.to_owned(),
            profile: Profile::read(&profile)?,
            server: ServerConfig::read(&server)?,
            measured: Measured::read(&measured)?,
        };
        let stages = experiment.profile.stages.len();
        if let Some(last) = experiment.measured.last_stage().filter(|last| *last as usize >= stages) {
            let problem = format!("stage {last} is measured, but profile.yaml has {stages}, counted from 0");
            return Err(Error::invalid(measured.as_path(), vec![problem]));
        }
        Ok(experiment)
    }

    /// Reads experiments and folders of experiments. Those of a folder are sorted by name; each is read once.
    ///
    /// # Errors
    /// Every problem: paths that are no folders or hold no experiment, and as [`Experiment::read`].
    pub fn find(paths: &[PathBuf]) -> std::result::Result<Vec<Experiment>, Vec<Error>> {
        let mut known = BTreeSet::new();
        let (mut experiments, mut errors) = (Vec::new(), Vec::new());
        for path in paths {
            match folders(path) {
                Err(error) => errors.push(error),
                Ok(mut dirs) => {
                    dirs.retain(|dir| known.insert(dir.canonicalize().unwrap_or_else(|_| dir.clone())));
                    for read in dirs.iter().map(|dir| Experiment::read(dir)) {
                        read.map_or_else(|error| errors.push(error), |experiment| experiments.push(experiment));
                    }
                }
            }
        }
        if !errors.is_empty() {
            return Err(errors);
        }
        let names: Vec<String> = experiments.iter().map(|experiment| experiment.name.clone()).collect();
        for experiment in &mut experiments {
            if names.iter().filter(|name| **name == experiment.name).count() > 1 {
                experiment.name = experiment.dir.display().to_string();
            }
        }
        Ok(experiments)
    }

    /// The experiment ready to be replayed.
    ///
    /// # Errors
    /// Unknown models and GPUs, deployments that do not fit them, and loads whose replay may take more than
    /// [`MAX_MEMORY_GIB`].
    pub fn case(&self, data_dir: Option<&Path>) -> Result<Case> {
        check_memory(self.profile.num_requests(), 1, MAX_MEMORY_GIB)?;
        let (model, mut notes) = self.server.find_model(data_dir)?;
        let hardware = self.server.find_hardware(data_dir)?;
        let engine = self.server.engine_config(&model, &hardware, &Engine::fitted())?;
        let rooflines =
            Rooflines::new(&model, &hardware, &engine.deployment, &Engine::fitted(), data_dir)?.served_by(&engine)?;
        notes.extend(rooflines.calibrated.steps().notes());
        notes.extend([&self.profile.notes, &self.server.notes, &engine.notes].into_iter().flatten().cloned());
        let concurrency = |stage: &StageLoad| match stage {
            StageLoad::Concurrent { concurrency_level, .. } => Some(*concurrency_level),
            StageLoad::Constant { .. } | StageLoad::Poisson { .. } => None,
        };
        let (profile, load) = (self.profile.clone(), self.profile.summary(0));
        Ok(Case {
            client_us: 0.0,
            labels: Labels {
                name: self.name.clone(),
                model: model.name.clone(),
                hardware: hardware.name.clone(),
                tensor_parallel_size: self.server.deployment.tensor_parallel_size,
                workload: Some(format!("{:.0} in, {:.0} out", load.mean_input_tokens, load.mean_output_tokens)),
                backend_version: None,
            },
            measured: self.measured.clone(),
            engine: engine.config,
            rooflines,
            concurrency: self.profile.stages.iter().map(concurrency).collect(),
            curve: None,
            load: Box::new(move |seed: u64| profile.workload(seed)),
            notes,
        })
    }
}

/// The experiments that can be run as cases, and the others with their reasons; both in order.
pub fn serving_cases(experiments: &[Experiment], data_dir: Option<&Path>) -> (Vec<Case>, Vec<Skipped>) {
    sort_out(experiments.iter().map(|of| (of.name.clone(), of.case(data_dir))))
}

/// The path itself if it holds a file of an experiment; otherwise its folders that do.
fn folders(path: &Path) -> Result<Vec<PathBuf>> {
    let is_experiment = |dir: &Path| FILES.into_iter().any(|name| dir.join(name).is_file());
    let entries = std::fs::read_dir(path).map_err(|error| Error::io(path, error))?;
    if is_experiment(path) {
        return Ok(vec![path.to_owned()]);
    }
    let dirs: std::io::Result<Vec<PathBuf>> = entries.map(|entry| Ok(entry?.path())).collect();
    let mut dirs = dirs.map_err(|error| Error::io(path, error))?;
    dirs.retain(|dir| is_experiment(dir));
    if dirs.is_empty() {
        let problems = vec![format!("no experiment: neither it nor a folder in it has {}", FILES.join(", "))];
        return Err(Error::invalid(path, problems));
    }
    dirs.sort();
    Ok(dirs)
}

/// The folder's own name, also of `.` and of a path that ends with `..`: what was measured, without saying on whose disk.
pub fn folder_name(dir: &Path) -> String {
    let whole = dir.canonicalize().unwrap_or_else(|_| dir.to_owned());
    whole.file_name().map_or_else(|| dir.display().to_string(), |name| name.to_string_lossy().into_owned())
}

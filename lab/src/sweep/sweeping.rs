//! A grid with its models, GPUs and corrections found, and its configurations run in parallel. A row depends on its configuration
//! alone, so neither threads nor order change it.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rayon::prelude::*;
use ridgepoint::internals::correction::Correction;
use ridgepoint::internals::efficiency::EfficiencyMode;
use ridgepoint::internals::input::check;
use ridgepoint::internals::step_model;
use ridgepoint::server_config::ServerConfig;
use ridgepoint::{CorrectionChoice, Error, Hardware, MatmulFormat, Model, Result};

use super::grid::{Configuration, Grid};
use super::point::{Point, SharedLatency, reason};
use super::row::Row;

/// Choices that are not the grid's.
#[derive(Debug, Clone)]
pub struct Options {
    /// Calibrated tables, or the textbook roofline.
    pub efficiency: EfficiencyMode,
    /// `none`, `global`, `auto` (the best for each model, and none for the textbook roofline) or the path of a file.
    pub correction: String,
    /// Folder whose `hardware/`, `models/` and `bench_data/` take precedence over the built-in ones.
    pub data_dir: Option<PathBuf>,
}

impl Default for Options {
    fn default() -> Self {
        Options { efficiency: EfficiencyMode::Tables, correction: "auto".to_owned(), data_dir: None }
    }
}

impl Options {
    pub(super) fn of_step_model(&self, found: &FoundModel) -> step_model::Options {
        step_model::Options {
            efficiency: self.efficiency,
            data_dir: self.data_dir.clone(),
            correction: found.correction.clone().map_or(CorrectionChoice::None, CorrectionChoice::Given),
            ..step_model::Options::default()
        }
    }
}

/// A model in the precision that servers ask for.
#[derive(Debug)]
pub(super) struct FoundModel {
    /// The model and remarks on it, or why it does not exist in this precision.
    pub(super) model: std::result::Result<(Model, Vec<String>), String>,
    /// The correction of its step times.
    pub(super) correction: Option<Arc<Correction>>,
}

/// A model by name and precision.
type ModelKey = (String, Option<MatmulFormat>);

/// A grid that is ready to run.
#[derive(Debug)]
pub struct Sweep {
    grid: Grid,
    options: Options,
    models: HashMap<ModelKey, FoundModel>,
    hardware: HashMap<String, Hardware>,
}

impl Sweep {
    /// Finds everything that the grid names.
    ///
    /// # Errors
    /// All problems: unknown models and GPUs, files that cannot be read, corrections that do not exist, are for another model or do not
    /// go with the textbook roofline, two names of one model or GPU. A server that cannot run is no error: its row says so.
    pub fn new(grid: Grid, options: Options) -> Result<Self> {
        let mut problems = Vec::new();
        let mut models: Vec<(ModelKey, FoundModel)> = Vec::new();
        let mut hardware: Vec<(String, Hardware)> = Vec::new();
        let mut refused: Vec<ModelKey> = Vec::new();
        for server in grid.servers.iter().map(|server| &server.value) {
            let key = model_key(server);
            if !refused.contains(&key) && !models.iter().any(|(known, _)| *known == key) {
                match found_model(server, &options) {
                    Ok(found) => models.push((key, found)),
                    Err(problem) => {
                        problems.push(problem);
                        refused.push(key);
                    }
                }
            }
            if !hardware.iter().any(|(known, _)| *known == server.hardware) {
                match Hardware::find_in(options.data_dir.as_deref(), &server.hardware) {
                    Ok(found) => hardware.push((server.hardware.clone(), found)),
                    Err(error) => problems.push(error.to_string()),
                }
            }
        }
        problems.extend(two_names(
            "model",
            models.iter().filter_map(|((name, precision), found)| {
                Some((name.as_str(), (*precision, found.model.as_ref().ok()?)))
            }),
        ));
        problems.extend(two_names("hardware", hardware.iter().map(|(name, found)| (name.as_str(), found))));
        problems.sort();
        problems.dedup();
        check(grid.origin.as_str(), problems)?;
        let (models, hardware) = (models.into_iter().collect(), hardware.into_iter().collect());
        Ok(Sweep { grid, options, models, hardware })
    }

    /// The grid.
    pub fn grid(&self) -> &Grid {
        &self.grid
    }

    /// The columns of each configuration that are known before anything runs.
    pub(super) fn described(&self) -> Vec<Row> {
        let points = self.grid.configurations().map(|configuration| self.point(configuration));
        points.enumerate().filter_map(|(index, point)| Some(point?.described(index))).collect()
    }

    /// The files and folders whose content the rows depend on.
    pub(super) fn inputs(&self) -> Vec<&Path> {
        let named = self.grid.servers.iter().flat_map(|server| [&server.value.model, &server.value.hardware]);
        let named = named.chain([&self.options.correction]).map(Path::new).filter(|path| path.is_file());
        let mut inputs: Vec<&Path> = named.collect();
        inputs.extend(self.grid.source.path().map(PathBuf::as_path));
        inputs.extend(self.options.data_dir.as_deref());
        inputs.sort_unstable();
        inputs.dedup();
        inputs
    }

    /// Runs all configurations and returns their rows, in order. Those in `known`, by configuration, are not run again. Each new row
    /// goes to `finished` as soon as it is there, from any thread. `threads` of 0 is one per core.
    ///
    /// # Errors
    /// Those of `finished`, after which nothing new begins; threads that cannot be started.
    pub fn run(
        &self,
        threads: usize,
        known: &[Option<Row>],
        finished: &(dyn Fn(&Row) -> Result<()> + Sync),
    ) -> Result<Vec<Row>> {
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .build()
            .map_err(|error| Error::io("threads of the sweep", std::io::Error::other(error)))?;
        let num_loads = self.grid.loads.len();
        // The loads of a server share its latency model, which is dropped after the last of them.
        let of_server = |at: usize| -> Result<Vec<Row>> {
            let latency = SharedLatency::new();
            let row = |load: usize| {
                let index = at * num_loads + load;
                if let Some(Some(row)) = known.get(index) {
                    return Ok(row.clone());
                }
                let configuration = Configuration { server: &self.grid.servers[at], load: &self.grid.loads[load] };
                let row = self.point(configuration).map_or_else(Row::default, |point| point.row(index, &latency));
                finished(&row)?;
                Ok(row)
            };
            (0..num_loads).into_par_iter().with_max_len(1).map(row).collect()
        };
        let servers = 0..self.grid.servers.len();
        let rows: Result<Vec<Vec<Row>>> =
            pool.install(|| servers.into_par_iter().with_max_len(1).map(of_server).collect());
        Ok(rows?.into_iter().flatten().collect())
    }

    fn point<'a>(&'a self, configuration: Configuration<'a>) -> Option<Point<'a>> {
        let server = configuration.server();
        Some(Point {
            configuration,
            source: &self.grid.source,
            slo: self.grid.slo.as_ref(),
            model: self.models.get(&model_key(server))?,
            hardware: self.hardware.get(&server.hardware)?,
            options: &self.options,
        })
    }
}

fn model_key(server: &ServerConfig) -> ModelKey {
    (server.model.clone(), server.precision)
}

fn found_model(server: &ServerConfig, options: &Options) -> std::result::Result<FoundModel, String> {
    let data_dir = options.data_dir.as_deref();
    let named = Model::find_in(data_dir, &server.model).map_err(|error| error.to_string())?;
    let model = server.find_model(data_dir).map_err(reason);
    let name = model.as_ref().map_or(named.name(), |(model, _)| model.name());
    let correction = CorrectionChoice::from(options.correction.as_str());
    let correction = correction.resolve(name, options.efficiency).map_err(|error| error.to_string())?;
    Ok(FoundModel { model, correction })
}

/// A problem for each name that means the same as one before it: all its rows would be there twice.
fn two_names<'a, T: PartialEq>(key: &str, found: impl Iterator<Item = (&'a str, T)>) -> Vec<String> {
    let mut known: Vec<(&str, T)> = Vec::new();
    let mut problems = Vec::new();
    for (name, value) in found {
        match known.iter().find(|(_, other)| *other == value) {
            Some((first, _)) => {
                problems.push(format!("server.{key} = \"{name}\" is the same as \"{first}\": leave one of them out"));
            }
            None => known.push((name, value)),
        }
    }
    problems
}

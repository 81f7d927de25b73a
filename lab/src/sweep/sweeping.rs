//! A grid with its models, GPUs and corrections found, and its configurations run in parallel. Rows are those of one
//! configuration alone, so that neither threads nor order change them. Uses `point` for a configuration, `hash`, `steps`.

use std::collections::HashMap;
use std::fmt::Debug;
use std::hash::Hash;
use std::path::PathBuf;
use std::sync::Arc;

use rayon::prelude::*;

use super::grid::{Configuration, Grid};
use super::hash;
use super::point::{Point, reason};
use super::row::Row;
use super::steps::SharedSteps;
use ridgepoint::Hardware;
use ridgepoint::Model;
use ridgepoint::internals::correction::Correction;
use ridgepoint::internals::efficiency::EfficiencyMode;
use ridgepoint::internals::step_model;
use ridgepoint::server_config::ServerConfig;
use ridgepoint::{CorrectionChoice, Error, Result};

/// First line of the text that is hashed: another layout or meaning of rows gets another number.
const LAYOUT: &str = "ridgepoint sweep 1";

/// Problems listed of one sweep; the rest is counted.
const MAX_PROBLEMS: usize = 20;

/// Choices that are not the grid's.
#[derive(Debug, Clone)]
pub struct Options {
    /// Calibrated tables, or the textbook roofline.
    pub efficiency: EfficiencyMode,
    /// `none`, `global`, `auto` (the best there is of each model, and none for the textbook roofline) or the path of a file.
    pub correction: String,
    /// Folder whose `hardware/`, `models/` and `bench_data/` come before the built-in ones.
    pub data_dir: Option<PathBuf>,
}

impl Default for Options {
    fn default() -> Self {
        Options { efficiency: EfficiencyMode::Tables, correction: "auto".to_owned(), data_dir: None }
    }
}

/// A model as a server asks for it.
#[derive(Debug)]
pub(super) struct FoundModel {
    /// The model and what there is to say of it, or why there is none in this precision.
    pub(super) model: std::result::Result<(Model, Vec<String>), String>,
    /// What its steps are corrected with.
    pub(super) correction: Option<Arc<Correction>>,
}

/// A grid that is ready to run.
#[derive(Debug)]
pub struct Sweep {
    grid: Grid,
    options: Options,
    models: Vec<FoundModel>,
    hardware: Vec<Hardware>,
    /// Of each configuration: its model, its GPU, and its latency model.
    places: Vec<(usize, usize, usize)>,
    num_step_models: usize,
    keys: Vec<String>,
}

impl Sweep {
    /// Finds everything that the grid names.
    ///
    /// # Errors
    /// `ErrorKind::Invalid` with all problems: unknown models and GPUs, files of them that can't be read, corrections that are not
    /// there or meant for another model or go with no textbook roofline, several names of one model or GPU. What can't be served is no error but a row that
    /// says so.
    pub fn new(grid: Grid, options: Options) -> Result<Self> {
        let mut problems = Vec::new();
        let mut models: Index<(String, String), FoundModel> = Index::default();
        let mut hardware: Index<String, Hardware> = Index::default();
        let mut deployments: Index<String, ()> = Index::default();
        let mut places = Vec::with_capacity(grid.configurations().len());
        for Configuration { server, .. } in grid.configurations() {
            let model = models.place((format!("{:?}", server.precision), server.model.clone()), || {
                found_model(server, &options).map_err(|problem| problems.push(problem)).ok()
            });
            let gpu = hardware.place(server.hardware.clone(), || {
                let found = Hardware::find_in(options.data_dir.as_deref(), &server.hardware);
                found.map_err(|error| problems.push(error.to_string())).ok()
            });
            let steps = deployments.place(format!("{model:?} {gpu:?} {:?}", server.deployment), || Some(()));
            if let (Some(model), Some(gpu), Some(steps)) = (model, gpu, steps) {
                places.push((model, gpu, steps));
            }
        }
        problems.dedup();
        let named_models = models.names.iter().map(|(precision, name)| (precision.as_str(), name.as_str()));
        let found_models = models.values.iter().map(|found| found.model.as_ref().ok());
        problems.extend(twice("model", named_models.zip(found_models)));
        let named_hardware = hardware.names.iter().map(|name| ("", name.as_str()));
        problems.extend(twice("hardware", named_hardware.zip(hardware.values.iter().map(Some))));
        if problems.len() > MAX_PROBLEMS {
            let more = problems.len() - MAX_PROBLEMS;
            problems.truncate(MAX_PROBLEMS);
            problems.push(format!("and {more} more"));
        }
        if !problems.is_empty() {
            return Err(Error::invalid(grid.origin().to_owned(), problems));
        }
        let (models, hardware, num_step_models) = (models.values, hardware.values, deployments.values.len());
        let mut sweep = Sweep { grid, options, models, hardware, places, num_step_models, keys: Vec::new() };
        sweep.keys = sweep.hashes()?;
        Ok(sweep)
    }

    /// What is run.
    pub fn grid(&self) -> &Grid {
        &self.grid
    }

    /// Of each configuration the hash of all that its row depends on: this version, server, load and limits, the model, the GPU, the
    /// correction, the file of requests, and the tables of the data directory.
    pub fn keys(&self) -> &[String] {
        &self.keys
    }

    /// The rows of all configurations, in their order. Those in `known` by their key are taken from there; for any other `finished`
    /// is told key and row as soon as it is there, from any thread. `threads` of 0 is one per core.
    ///
    /// # Errors
    /// Those of `finished`, after which nothing more is begun; `ErrorKind::Io` where threads can't be started.
    pub fn run(
        &self,
        threads: usize,
        known: &HashMap<String, Row>,
        finished: &(dyn Fn(&str, &Row) -> Result<()> + Sync),
    ) -> Result<Vec<Row>> {
        let mut users = vec![0; self.num_step_models];
        for (key, (_, _, steps)) in self.keys.iter().zip(&self.places) {
            if let Some(users) = users.get_mut(*steps).filter(|_| !known.contains_key(key)) {
                *users += 1;
            }
        }
        let steps: Vec<SharedSteps> = users.into_iter().map(SharedSteps::new).collect();
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .build()
            .map_err(|error| Error::io("threads of the sweep", std::io::Error::other(error)))?;
        let of = |index: usize, key: &String| -> Result<Row> {
            if let Some(row) = known.get(key) {
                return Ok(Row { configuration: index as u64, ..row.clone() });
            }
            let point = self.point(index, &steps);
            let row = point.as_ref().map_or_else(Row::default, |point| point.row(index));
            finished(key, &row)?;
            if let Some(point) = point {
                point.steps.leave();
            }
            Ok(row)
        };
        pool.install(|| self.keys.par_iter().enumerate().with_max_len(1).map(|(index, key)| of(index, key)).collect())
    }

    fn point<'a>(&'a self, index: usize, steps: &'a [SharedSteps]) -> Option<Point<'a>> {
        let (model, hardware, shared) = *self.places.get(index)?;
        Some(Point {
            configuration: self.grid.configurations().get(index)?,
            source: self.grid.source(),
            slo: self.grid.slo(),
            model: self.models.get(model)?,
            hardware: self.hardware.get(hardware)?,
            steps: steps.get(shared)?,
            options: &self.options,
        })
    }

    fn hashes(&self) -> Result<Vec<String>> {
        let text = |value: &dyn std::fmt::Debug| format!("{value:?}");
        let models: Vec<String> = self.models.iter().map(|found| text(found)).collect();
        let hardware: Vec<String> = self.hardware.iter().map(|found| text(found)).collect();
        let common = [
            LAYOUT.to_owned(),
            env!("CARGO_PKG_VERSION").to_owned(),
            text(&self.options.efficiency),
            text(&self.grid.slo()),
            text(&self.grid.source().path()),
            self.grid.source().path().map_or_else(|| Ok(String::new()), |path| hash::of_file(path))?,
            match &self.options.data_dir {
                Some(folder) => hash::of_folder(&folder.join("bench_data"))?,
                None => String::new(),
            },
        ];
        let common = hash::sha256(common.iter().map(String::as_bytes));
        let one = |(configuration, (model, gpu, _)): (&Configuration, &(usize, usize, usize))| {
            let of = |texts: &[String], at: usize| texts.get(at).cloned().unwrap_or_default();
            let (server, load) = (text(&configuration.server), text(&configuration.load));
            let parts = [common.clone(), server, load, of(&models, *model), of(&hardware, *gpu)];
            hash::sha256(parts.iter().map(String::as_bytes))
        };
        Ok(self.grid.configurations().par_iter().zip(&self.places).map(one).collect())
    }
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

/// The options that a step model of `found` is built with.
pub(super) fn step_options(options: &Options, found: &FoundModel) -> step_model::Options {
    step_model::Options {
        efficiency: options.efficiency,
        data_dir: options.data_dir.clone(),
        correction: found.correction.clone().map_or(CorrectionChoice::None, CorrectionChoice::Given),
        ..step_model::Options::default()
    }
}

/// A problem for each name that means what one before it in the same scope does: all its rows would be there twice.
fn twice<'a, T: Debug + 'a>(
    key: &str,
    found: impl Iterator<Item = ((&'a str, &'a str), Option<&'a T>)>,
) -> Vec<String> {
    let mut known: HashMap<(&str, String), &str> = HashMap::new();
    let mut problems = Vec::new();
    for ((scope, name), value) in found {
        let Some(value) = value else { continue };
        let first = *known.entry((scope, format!("{value:?}"))).or_insert(name);
        if first != name {
            problems.push(format!("server.{key} = \"{name}\" is the same as \"{first}\": leave one of them out"));
        }
    }
    problems
}

/// Values in the order in which their names were first asked for.
struct Index<K, T> {
    places: HashMap<K, Option<usize>>,
    names: Vec<K>,
    values: Vec<T>,
}

impl<K, T> Default for Index<K, T> {
    fn default() -> Self {
        Index { places: HashMap::new(), names: Vec::new(), values: Vec::new() }
    }
}

impl<K: Clone + Eq + Hash, T> Index<K, T> {
    /// Where the value of this name is, from `find` the first time; `None` where that finds none.
    fn place(&mut self, name: K, find: impl FnOnce() -> Option<T>) -> Option<usize> {
        if let Some(place) = self.places.get(&name) {
            return *place;
        }
        let place = find().map(|value| {
            self.names.push(name.clone());
            self.values.push(value);
            self.values.len() - 1
        });
        self.places.insert(name, place);
        place
    }
}

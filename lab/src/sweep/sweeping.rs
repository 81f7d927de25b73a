//! A grid with its models, GPUs and corrections found, and its configurations run in parallel. A row depends on its configuration
//! alone, so neither threads nor order change it.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use rayon::prelude::*;
use ridgepoint::dtype::MatmulFormat;
use ridgepoint::input::{MAX_PROBLEMS, check};
use ridgepoint::latency::KvTransfers;
use ridgepoint::model::builtin_models;
use ridgepoint::{CorrectionChoice, Error, Hardware, Model, Options, Result};
use ridgepoint_replay::EngineConfig;
use ridgepoint_replay::server_config::{KvTransfersSource, ServerConfig};
use ridgepoint_replay::workload::{Summary, check_block_memory, check_memory};

use super::grid::{Configuration, Grid, Setting};
use super::load::LoadPoint;
use super::point::{FoundModel, Point, SharedLatency, reason};
use super::row::Row;
use super::search::largest;
use super::shard::Shard;

/// A grid that is ready to run.
#[derive(Debug)]
pub struct Sweep {
    pub(super) grid: Grid,
    options: Options,
    models: HashMap<(String, Option<MatmulFormat>), FoundModel>,
    pub(super) hardware: HashMap<String, Hardware>,
    /// Files of measured KV transfers, whose times the servers of the grid have by now.
    transfers: Vec<PathBuf>,
    /// Set from another thread to end the replays that run.
    stop: Arc<AtomicBool>,
    /// The part of the grid that is run; `None` is all of it.
    shard: Option<Shard>,
}

/// A model and a GPU that all servers of a grid have, whatever names the grid has for them. Nothing is looked up for those names.
#[derive(Debug, Clone, Default)]
pub struct InPlace {
    /// The model.
    pub model: Option<Model>,
    /// The GPU.
    pub hardware: Option<Hardware>,
}

impl Sweep {
    /// Finds everything that the grid names. `options` are those of all step models.
    ///
    /// # Errors
    /// All problems: unknown models and GPUs, files that cannot be read, corrections that do not exist, are for another model or do not
    /// go with the textbook roofline. A server that cannot run is no error: its row says so.
    pub fn new(grid: Grid, options: Options) -> Result<Self> {
        Sweep::with(grid, options, &InPlace::default())
    }

    /// The same of a grid whose model or GPU is given.
    ///
    /// # Errors
    /// Those of [`Sweep::new`].
    pub fn with(mut grid: Grid, options: Options, given: &InPlace) -> Result<Self> {
        let mut problems: Vec<String> = Vec::new();
        let transfers = read_transfers(&mut grid, &mut problems);
        let (mut models, mut hardware) = (HashMap::new(), HashMap::new());
        let data_dir = options.data_dir.as_deref();
        for server in grid.servers.iter().map(|server| &server.value) {
            // Stop at the display limit; the last entry says that the rest was not checked.
            if problems.len() + 1 >= MAX_PROBLEMS {
                problems.push("no other model or GPU of the grid was looked up".to_owned());
                break;
            }
            if let Entry::Vacant(entry) = models.entry(model_key(server)) {
                let found = found_model(server, given.model.as_ref(), &options).map(|found| entry.insert(found));
                problems.extend(found.err().map(|error| error.to_string()));
            }
            if let Entry::Vacant(entry) = hardware.entry(server.hardware.clone()) {
                let hardware = given.hardware.clone().map_or_else(|| server.find_hardware(data_dir), Ok);
                let found = hardware.map(|found| entry.insert(found));
                problems.extend(found.err().map(|error| error.to_string()));
            }
        }
        check(grid.origin.as_str(), problems)?;
        Ok(Sweep { grid, options, models, hardware, transfers, stop: Arc::default(), shard: None })
    }

    /// The same sweep with a flag that ends its replays soon after it is set. Their rows are then of no use: `finished` of
    /// [`Sweep::run`] should return an error.
    #[must_use]
    pub fn stopped_by(self, stop: Arc<AtomicBool>) -> Self {
        Sweep { stop, ..self }
    }

    /// The same sweep of one shard of the grid alone. Its rows are those that the whole sweep has of these configurations.
    #[must_use]
    pub fn of_shard(self, shard: Shard) -> Self {
        Sweep { shard: Some(shard), ..self }
    }

    /// The grid.
    pub fn grid(&self) -> &Grid {
        &self.grid
    }

    /// The options of all step models.
    pub(super) fn options(&self) -> &Options {
        &self.options
    }

    /// The name by which an engine loads a server's model: its first Hugging Face id if it is built in, else as the grid has it.
    pub(super) fn served_name(&self, of: &ServerConfig) -> String {
        let built_in = self.models.get(&model_key(of)).and_then(|found| found.model.as_ref().ok());
        let named = built_in.filter(|_| !of.model.contains('/'));
        let id = named.and_then(|(model, _)| builtin_models().iter().find(|of| of.name == model.name)?.hf_ids.first());
        id.map_or_else(|| of.model.clone(), Clone::clone)
    }

    /// The part of the grid that is run; `None` is all of it.
    pub fn shard(&self) -> Option<Shard> {
        self.shard
    }

    /// Whether the configuration at this index of the grid is run.
    pub fn runs(&self, configuration: usize) -> bool {
        self.shard.is_none_or(|shard| shard.holds(&self.grid, configuration))
    }

    /// The number of configurations that are run.
    pub fn num_configurations(&self) -> usize {
        (0..self.grid.num_configurations()).filter(|configuration| self.runs(*configuration)).count()
    }

    /// Refuses loads whose replays may take more than `max_memory_gib` together, on as many `threads` as [`Sweep::run`] gets.
    ///
    /// # Errors
    /// `ErrorKind::InvalidArgument` with the estimates of memory and time.
    pub fn check_memory(&self, threads: usize, max_memory_gib: f64) -> Result<()> {
        let source = &self.grid.source;
        let is_lengthened = self.grid.slo.is_some() && source.is_drawn();
        let most_replicas = self.grid.replicas.iter().map(|of| of.value.replicas()).max().unwrap_or(1);
        let replayed = |load: &Setting<LoadPoint>| match is_lengthened {
            true => largest(&load.value, most_replicas),
            false => (load.value, 1),
        };
        let loads: Vec<(LoadPoint, usize)> = self.grid.loads.iter().map(replayed).collect();
        let threads = if threads == 0 { rayon::current_num_threads() } else { threads };
        let most_seeds = loads.iter().map(|(_, seeds)| *seeds).max().unwrap_or(1);
        let at_once = threads.min(self.num_configurations().saturating_mul(most_seeds));
        let requests = loads.iter().map(|(load, _)| source.num_requests(load)).max();
        check_memory(requests.unwrap_or(0), at_once, max_memory_gib)?;
        let summaries: Vec<Summary> = loads.iter().map(|(load, _)| source.summary(load)).collect();
        // The row of a server that cannot run says so; it replays nothing.
        let fits = |server: &Setting<ServerConfig>| match self.engine(&server.value) {
            Some(engine) => summaries
                .iter()
                .try_for_each(|load| check_block_memory(load, (&engine, most_replicas), at_once, max_memory_gib)),
            None => Ok(()),
        };
        self.grid.servers.par_iter().try_for_each(fits)
    }

    /// The engine of a server of the grid, if it can run.
    fn engine(&self, server: &ServerConfig) -> Option<EngineConfig> {
        let (model, _) = self.models.get(&model_key(server))?.model.as_ref().ok()?;
        let hardware = self.hardware.get(&server.hardware)?;
        Some(server.engine_config(model, hardware, &self.options.engine).ok()?.config)
    }

    /// The columns of each configuration that are known before anything runs.
    pub(super) fn described(&self) -> Vec<Row> {
        let points = self.grid.configurations().map(|configuration| self.point(configuration));
        points.enumerate().filter_map(|(index, point)| Some(point?.described(index))).collect()
    }

    /// The files and folders whose content the rows depend on.
    pub fn inputs(&self) -> impl Iterator<Item = &Path> {
        let servers = self.grid.servers.iter().map(|server| &server.value);
        let named = servers.flat_map(|server| [Path::new(&server.model), Path::new(&server.hardware)]);
        let correction = if let CorrectionChoice::File(path) = &self.options.correction { Some(path) } else { None };
        let others =
            [self.grid.source.path().map(Path::new), correction.map(|path| &**path), self.options.data_dir.as_deref()];
        let is_path = |path: &&Path| path.is_file() || path.join("config.json").is_file();
        named.filter(is_path).chain(self.transfers.iter().map(PathBuf::as_path)).chain(others.into_iter().flatten())
    }

    /// Runs all configurations, or those of the shard, and returns their rows, in order. Those in `known`, by configuration, are not run again. Each new row
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
        let pool = thread_pool(threads, "threads of the sweep")?;
        let num_loads = self.grid.num_loads();
        // The loads of a server share its latency model, which is dropped after the last of them.
        let of_server = |(at, server): (usize, &Setting<ServerConfig>)| -> Result<Vec<Row>> {
            let latency = SharedLatency::new();
            let index = |load_at: usize| at * num_loads + load_at;
            let row = |(load_at, configuration): (usize, Configuration<'_>)| -> Result<Row> {
                let index = index(load_at);
                if let Some(Some(row)) = known.get(index) {
                    return Ok(row.clone());
                }
                let point = self.point(configuration);
                let row = point.map_or_else(Row::default, |point| point.row(index, &latency));
                finished(&row)?;
                Ok(row)
            };
            let configurations: Vec<_> =
                self.grid.of_server(server).enumerate().filter(|(load_at, _)| self.runs(index(*load_at))).collect();
            configurations.into_par_iter().with_max_len(1).map(row).collect()
        };
        let servers = self.grid.servers.par_iter().enumerate().with_max_len(1);
        let rows: Result<Vec<Vec<Row>>> = pool.install(|| servers.map(of_server).collect());
        Ok(rows?.into_iter().flatten().collect())
    }

    pub(super) fn point<'a>(&'a self, configuration: Configuration<'a>) -> Option<Point<'a>> {
        let server = &configuration.server.value;
        Some(Point {
            configuration,
            grid: &self.grid,
            model: self.models.get(&model_key(server))?,
            hardware: self.hardware.get(&server.hardware)?,
            options: &self.options,
            stop: &self.stop,
        })
    }
}

/// A pool of so many threads; 0 is one per core. Errors call it `name`.
pub(super) fn thread_pool(threads: usize, name: &str) -> Result<rayon::ThreadPool> {
    let built = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
    built.map_err(|error| Error::io(name, std::io::Error::other(error)))
}

/// Reads each file of measured KV transfers once, for all servers that name it. Returns their paths.
fn read_transfers(grid: &mut Grid, problems: &mut Vec<String>) -> Vec<PathBuf> {
    let mut read: BTreeMap<PathBuf, Option<KvTransfers>> = BTreeMap::new();
    for Setting { value: server, .. } in &mut grid.servers {
        let Some(path) = server.transfers_file().map(Path::to_owned) else { continue };
        let transfers = read.entry(path).or_insert_with(|| {
            server.measured_transfers().map_err(|error| problems.push(error.to_string())).ok().flatten()
        });
        server.kv_transfers = transfers.map(KvTransfersSource::Given);
    }
    read.into_keys().collect()
}

fn model_key(server: &ServerConfig) -> (String, Option<MatmulFormat>) {
    (server.model.clone(), server.precision)
}

fn found_model(server: &ServerConfig, given: Option<&Model>, options: &Options) -> Result<FoundModel> {
    if let Some(model) = given {
        let correction = options.correction.resolve(&model.name, options.efficiency)?;
        return Ok(FoundModel { model: Ok((model.clone(), Vec::new())), correction });
    }
    let data_dir = options.data_dir.as_deref();
    let named = ServerConfig { precision: None, ..server.clone() }.find_model(data_dir)?.0;
    let model = server.find_model(data_dir).map_err(reason);
    let name = model.as_ref().map_or(&named.name, |(model, _)| &model.name);
    let correction = options.correction.resolve(name, options.efficiency)?;
    Ok(FoundModel { model, correction })
}

//! A grid, read from TOML and checked as a whole: its servers, its loads and its limits.

use std::collections::HashSet;
use std::path::Path;

use ridgepoint::DEPLOYMENT_ARGUMENTS;
use ridgepoint::input::{FileKind, Keys, Log, parse_toml, read_text, shown};
use ridgepoint::{Engine, Error, ErrorKind, Result};
use ridgepoint_replay::server_config::{Beside, ServerConfig, server_arguments};
use serde_json::{Map, Value};

use super::load::{LoadPoint, Source};
use super::load_keys::{FILE_KEYS, Loads};
use super::replica_keys::Sharing;
use super::slo::Slo;

/// Most configurations of a grid.
pub const MAX_CONFIGURATIONS: usize = 100_000;

/// Most bytes of long keys and values, over all servers or all loads of a grid: each of them repeats what it has one value of.
const MAX_TEXT_BYTES: usize = 16 << 20;

/// A longer key with its value is a long one.
const USUAL_BYTES: usize = 128;

/// Bytes of an entry of a list or object besides its text.
const ENTRY_BYTES: usize = 32;

/// More keys than a server or load can have. A section with more has unknown ones, and is not multiplied out.
const MAX_KEYS: usize = 100;

/// Servers, replicas of them and loads to go through. Every combination of their values is a configuration.
///
/// ```
/// use ridgepoint_lab::sweep::Grid;
///
/// let grid = Grid::parse("grid.toml", r#"
///     [server]
///     model = ["llama-3.1-8b", "qwen3-32b"]
///     hardware = "h100"
///     tensor_parallel_size = [1, 2, 4]
///     [load]
///     request_rate_per_s = [1, 2]
///     input_len_tokens = 1024
///     output_len_tokens = 128
///     num_requests = 500
/// "#)?;
/// assert_eq!(grid.num_configurations(), 2 * 3 * 2);
/// # Ok::<(), ridgepoint::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Grid {
    pub(super) origin: String,
    pub(super) servers: Vec<Setting<ServerConfig>>,
    /// How many of a server share each load.
    pub(super) replicas: Vec<Setting<Sharing>>,
    pub(super) loads: Vec<Setting<LoadPoint>>,
    pub(super) source: Source,
    pub(super) slo: Option<Slo>,
}

/// A server or load of a grid with its keys and values.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Setting<T> {
    pub(super) value: T,
    /// Its keys as they were given.
    pub(super) keys: Map<String, Value>,
    /// All of its keys, with their values.
    pub(super) all: String,
    /// The keys that differ within the grid, with their values.
    pub(super) varied: String,
}

/// One server under one load, or several of it.
#[derive(Debug, Clone, Copy)]
pub struct Configuration<'a> {
    pub(super) server: &'a Setting<ServerConfig>,
    pub(super) replicas: &'a Setting<Sharing>,
    pub(super) load: &'a Setting<LoadPoint>,
}

impl Configuration<'_> {
    /// The keys that distinguish it from the other configurations of its grid, with their values.
    pub fn varied(&self) -> String {
        let mut varied = self.server.varied.clone();
        append(&mut varied, &self.replicas.varied);
        append(&mut varied, &self.load.varied);
        varied
    }
}

impl Grid {
    /// Reads a file.
    ///
    /// # Errors
    /// A file that cannot be read, and those of [`Grid::parse`].
    pub fn read(path: &Path) -> Result<Self> {
        Self::read_with(path, Map::new(), &Engine::default())
    }

    /// [`Grid::read`] where the servers have the arguments of one log that they do not have themselves.
    ///
    /// # Errors
    /// Those of [`Grid::read`], and a grid of servers that differ in what a log is of.
    pub fn read_with(path: &Path, logged: Map<String, Value>, engine: &Engine) -> Result<Self> {
        let origin = path.display().to_string();
        let value = parse_toml(&origin, &read_text(FileKind::Grid, path)?)?;
        Self::from_keys(&origin, &value, GridLimits { logged, engine: engine.clone(), ..GridLimits::default() })
    }

    /// Reads the text of a file that messages call `origin`. Paths in it are relative to the current folder.
    ///
    /// # Errors
    /// A text that is not TOML; all problems: unknown keys, values out of range or listed twice, loads and limits that do not go
    /// together, files of requests that cannot be read, more than [`MAX_CONFIGURATIONS`].
    pub fn parse(origin: &str, text: &str) -> Result<Self> {
        Self::from_keys(origin, &parse_toml(origin, text)?, GridLimits::default())
    }

    /// Reads the keys of a grid from JSON.
    ///
    /// # Errors
    /// Those of [`Grid::parse`] but for the TOML, and those of the limits.
    pub fn from_keys(origin: &str, value: &Value, limits: GridLimits) -> Result<Self> {
        let GridLimits { configurations, names_only, logged, engine } = limits;
        let log = Log::default();
        let keys = Keys::new("", value, &log);
        let server = keys.section_or_empty("server");
        if server.entries().next().is_none() && logged.is_empty() {
            log.problem("[server] is missing or empty: give at least model and hardware");
        }
        let slo = keys.section("slo").map(Slo::read);
        let load = keys.section_or_empty("load");
        if names_only && FILE_KEYS.into_iter().any(|key| load.has(key)) {
            FILE_KEYS.into_iter().for_each(|key| load.refuse(key, "names a file, and no files are read here"));
            keys.finish();
            log.finish(origin, Some(()))?;
            return Err(Error::invalid(origin, vec!["load: no files are read here".to_owned()]));
        }
        let loads = Loads::read(&load, keys.has("slo"));
        let replicas = keys.section_or_empty("replicas");
        let replica_axes = axes("replicas", replicas.entries(), &log);
        keys.finish();
        let mut server_axes = axes("server", server.entries(), &log);
        server_axes.sort_by_key(|axis| (axis.key != "model", axis.key != "hardware"));
        let load_axes = axes("load", loads.keys.iter().map(|(key, value)| (key, value)), &log);
        check_size(&[&server_axes, &replica_axes, &load_axes], configurations)
            .map_err(|problem| Error::invalid(origin, vec![problem]))?;
        let rows = server_arguments();
        let is_of_a_server = |key: &str| {
            rows.name_of(key).is_some_and(|name| {
                ["model", "hardware"].contains(&name) || DEPLOYMENT_ARGUMENTS.iter().any(|row| row.name == name)
            })
        };
        if let Some(axis) =
            server_axes.iter().find(|axis| !logged.is_empty() && axis.values.len() > 1 && is_of_a_server(axis.key))
        {
            log.problem(format!(
                "server.{} has several values, and the engine's log is of one server: leave the log out",
                axis.key
            ));
        }
        let beside = Beside { engine, under: logged, ..Beside::default() };
        let server = |map: &_| Some(ServerConfig { names_only, ..read_server(map, &beside, &log)? });
        let servers = combinations(&server_axes, server);
        if let Some(path) = servers.iter().find_map(|server| server.value.transfers_file()).filter(|_| names_only) {
            let path = path.display();
            log.problem(format!(
                "server.kv_transfers = {path} names a file, and no files are read here: give its object"
            ));
        }
        let replicas = combinations(&replica_axes, |map| {
            let value = Value::Object(map.clone());
            let keys = Keys::new("replicas", &value, &log);
            let replicas = Sharing::read(&keys);
            keys.finish();
            Some(replicas)
        });
        let load_points = combinations(&load_axes, |map| loads.point(map, &log));
        let replicated = servers.iter().map(|server| server.value.deployment.data_parallel_size).find(|size| *size > 1);
        if let (Source::Profile(profile), Some(size)) = (&loads.source, replicated) {
            log.problem(format!(
                "server.data_parallel_size = {size} with load.profile = {}: a profile cannot be shared out to replicas; give \
                 requests or a rate, or leave data_parallel_size out",
                profile.origin
            ));
        }
        let is_apart = replicas.iter().any(|of| of.value.prefill > 0);
        if is_apart && slo.as_ref().is_some_and(Slo::has_confidence) {
            log.problem(
                "slo.confidence with replicas.prefill: intervals of pools are not known; leave one of them out",
            );
        }
        let grid = Grid { origin: origin.to_owned(), servers, replicas, loads: load_points, source: loads.source, slo };
        Ok(log.finish(origin, Some(grid))?.0)
    }

    /// The number of configurations.
    pub fn num_configurations(&self) -> usize {
        self.servers.len() * self.num_loads()
    }

    /// The number of configurations of one server.
    pub(super) fn num_loads(&self) -> usize {
        self.replicas.len() * self.loads.len()
    }

    /// Every combination: models outermost, then GPUs, then the other keys of the server by name, then the replicas, then those of the load.
    pub fn configurations(&self) -> impl Iterator<Item = Configuration<'_>> {
        self.servers.iter().flat_map(|server| self.of_server(server))
    }

    /// The configurations of a server, in order.
    pub(super) fn of_server<'a>(
        &'a self,
        server: &'a Setting<ServerConfig>,
    ) -> impl Iterator<Item = Configuration<'a>> {
        let of_replicas = move |replicas| self.loads.iter().map(move |load| Configuration { server, replicas, load });
        self.replicas.iter().flat_map(of_replicas)
    }

    /// All keys of a configuration with their values, those of the limits included. They identify it in any grid.
    pub(super) fn settings(&self, of: Configuration<'_>) -> String {
        let limits = self.slo.as_ref().map(|slo| format!("; {}", slo.settings())).unwrap_or_default();
        let replicas = match of.replicas.all.as_str() {
            "" => String::new(),
            all => format!("; replicas {all}"),
        };
        format!("{}{replicas}; {}{limits}", of.server.all, of.load.all)
    }
}

/// What a grid may have.
#[derive(Debug, Clone)]
pub struct GridLimits {
    /// Most configurations.
    pub configurations: usize,
    /// Whether models and GPUs are found by name alone, and no file of requests is read.
    pub names_only: bool,
    /// What a server's log says: arguments that the grid's servers take where they have none.
    pub logged: Map<String, Value>,
    /// The engine whose arguments the servers have.
    pub engine: Engine,
}

impl Default for GridLimits {
    fn default() -> Self {
        GridLimits {
            configurations: MAX_CONFIGURATIONS,
            names_only: false,
            logged: Map::new(),
            engine: Engine::default(),
        }
    }
}

/// Judges a grid before it is multiplied out: the number of its configurations, and the texts that each of them repeats.
fn check_size(all: &[&[Axis<'_>]], most: usize) -> std::result::Result<(), String> {
    let number =
        |axes: &[Axis<'_>]| axes.iter().fold(1_usize, |product, axis| product.saturating_mul(axis.values.len()));
    let total = all.iter().map(|axes| number(axes)).fold(1, usize::saturating_mul);
    if total > most {
        return Err(format!(
            "the grid makes {total} configurations, at most {most} are possible: list fewer values, or split the grid"
        ));
    }
    for axes in all {
        let long = |axis: &Axis<'_>| {
            let longest = axis.values.iter().map(text_bytes).max().unwrap_or(0);
            (axis.key.len() + longest).saturating_sub(USUAL_BYTES)
        };
        let bytes = axes.iter().map(long).fold(0, usize::saturating_add).saturating_mul(number(axes));
        if bytes > MAX_TEXT_BYTES {
            return Err(format!(
                "the {} combinations of the grid's values repeat long texts of up to {} MiB in all, at most {} are possible: list fewer values, or \
                 shorter ones",
                number(axes),
                bytes >> 20,
                MAX_TEXT_BYTES >> 20
            ));
        }
    }
    Ok(())
}

/// Bytes that a value takes, by an estimate.
fn text_bytes(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len(),
        Value::Array(list) => list.iter().map(|value| ENTRY_BYTES + text_bytes(value)).sum(),
        Value::Object(map) => map.iter().map(|(key, value)| ENTRY_BYTES + key.len() + text_bytes(value)).sum(),
        _ => 0,
    }
}

/// A key and its values.
struct Axis<'a> {
    key: &'a str,
    values: &'a [Value],
}

/// The keys of a section, each with one value or a list of them.
fn axes<'a>(section: &str, entries: impl Iterator<Item = (&'a String, &'a Value)>, log: &Log) -> Vec<Axis<'a>> {
    let axis = |(key, value): (&'a String, &'a Value)| {
        let values = match value {
            Value::Array(list) => list,
            one => std::slice::from_ref(one),
        };
        if values.is_empty() {
            log.problem(format!("{section}.{key} = [] has no value: give one, or leave the key out"));
        }
        let mut known = HashSet::new();
        for (at, value) in values.iter().enumerate().filter(|(_, value)| !known.insert(value.to_string())) {
            log.problem(format!("{section}.{key} = {} is listed twice, at place {}: keep one", shown(value), at + 1));
        }
        Axis { key, values }
    };
    let mut axes: Vec<Axis<'a>> = entries.map(axis).filter(|axis| !axis.values.is_empty()).collect();
    if axes.len() > MAX_KEYS {
        axes.iter_mut().for_each(|axis| axis.values = axis.values.get(..1).unwrap_or_default());
    }
    axes
}

/// Every combination of the axes' values; the last axis changes fastest. Those that cannot be read are left out.
fn combinations<T>(axes: &[Axis<'_>], read: impl Fn(&Map<String, Value>) -> Option<T>) -> Vec<Setting<T>> {
    let mut found = vec![Setting { value: (), keys: Map::new(), all: String::new(), varied: String::new() }];
    for axis in axes {
        let with = |mut setting: Setting<()>, value: &Value| {
            let text = format!("{} {}", axis.key, value.as_str().map_or_else(|| value.to_string(), str::to_owned));
            append(&mut setting.all, &text);
            if axis.values.len() > 1 {
                append(&mut setting.varied, &text);
            }
            setting.keys.insert(axis.key.to_owned(), value.clone());
            setting
        };
        found = match axis.values {
            [one] => found.into_iter().map(|setting| with(setting, one)).collect(),
            all => found.iter().flat_map(|setting| all.iter().map(move |value| with(setting.clone(), value))).collect(),
        };
    }
    let read = |Setting { keys, all, varied, .. }| Some(Setting { value: read(&keys)?, keys, all, varied });
    found.into_iter().filter_map(read).collect()
}

fn append(list: &mut String, item: &str) {
    if !list.is_empty() && !item.is_empty() {
        list.push_str(", ");
    }
    list.push_str(item);
}

/// Reads a server. The log keeps equal problems of several servers once.
fn read_server(map: &Map<String, Value>, beside: &Beside, log: &Log) -> Option<ServerConfig> {
    let error = match ServerConfig::from_values_with("[server]", map, beside) {
        Ok(server) => return Some(server),
        Err(error) => error,
    };
    if error.kind() == ErrorKind::Invalid {
        error.problems().iter().for_each(|problem| log.problem(format!("[server] {problem}")));
    } else {
        log.problem(error.to_string());
    }
    None
}

#[cfg(test)]
#[path = "grid_tests.rs"]
mod tests;

//! A grid, read from TOML and checked as a whole: its servers, its loads and its limits.

use std::collections::HashSet;
use std::path::Path;

use ridgepoint::input::{FileKind, Keys, Log, parse_toml, read_text, shown};
use ridgepoint::{Error, ErrorKind, Result};
use ridgepoint_replay::server_config::ServerConfig;
use serde_json::{Map, Value};

use super::load::{LoadPoint, Source};
use super::load_keys::{FILE_KEYS, Loads};
use super::slo::Slo;

/// Most configurations of a grid.
pub const MAX_CONFIGURATIONS: usize = 100_000;

/// More keys than a server or load can have. A section with more has unknown ones, and is not multiplied out.
const MAX_KEYS: usize = 100;

/// Servers and loads to go through. Every combination of their values is a configuration.
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
    pub(super) loads: Vec<Setting<LoadPoint>>,
    pub(super) source: Source,
    pub(super) slo: Option<Slo>,
}

/// A server or load of a grid with its keys and values.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Setting<T> {
    pub(super) value: T,
    /// All of its keys, with their values.
    pub(super) all: String,
    /// The keys that differ within the grid, with their values.
    pub(super) varied: String,
}

/// One server under one load.
#[derive(Debug, Clone, Copy)]
pub struct Configuration<'a> {
    pub(super) server: &'a Setting<ServerConfig>,
    pub(super) load: &'a Setting<LoadPoint>,
}

impl Configuration<'_> {
    /// The keys that tell it from the other configurations of its grid, with their values.
    pub fn varied(&self) -> String {
        let mut varied = self.server.varied.clone();
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
        Self::parse(&path.display().to_string(), &read_text(FileKind::Grid, path)?)
    }

    /// Reads the text of a file that messages call `origin`. Paths in it are relative to the current folder.
    ///
    /// # Errors
    /// A text that is not TOML; all problems: unknown keys, values out of range or listed twice, loads and limits that do not go
    /// together, files of requests that cannot be read, more than [`MAX_CONFIGURATIONS`].
    pub fn parse(origin: &str, text: &str) -> Result<Self> {
        Self::from_keys(origin, &parse_toml(origin, text)?, false)
    }

    /// Reads the keys of a grid from JSON. With `names_only`, models and GPUs are found by name alone, and no file of requests is read.
    ///
    /// # Errors
    /// Those of [`Grid::parse`] but for the TOML, and a file of requests if only names are allowed.
    pub fn from_keys(origin: &str, value: &Value, names_only: bool) -> Result<Self> {
        let log = Log::default();
        let keys = Keys::new("", value, &log);
        let server = keys.section_or_empty("server");
        if server.entries().next().is_none() {
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
        keys.finish();
        let mut server_axes = axes("server", server.entries(), &log);
        server_axes.sort_by_key(|axis| (axis.key != "model", axis.key != "hardware"));
        let load_axes = axes("load", loads.keys.iter().map(|(key, value)| (key, value)), &log);
        let total = server_axes
            .iter()
            .chain(&load_axes)
            .fold(1_usize, |product, axis| product.saturating_mul(axis.values.len()));
        if total > MAX_CONFIGURATIONS {
            let problem = format!(
                "makes {total} configurations, at most {MAX_CONFIGURATIONS} are possible: list fewer values, or split the grid"
            );
            return Err(Error::invalid(origin, vec![problem]));
        }
        let server = |map: &_| Some(ServerConfig { names_only, ..read_server(map, &log)? });
        let servers = combinations(&server_axes, server);
        if let Some(path) = servers.iter().find_map(|server| server.value.transfers_file()).filter(|_| names_only) {
            let path = path.display();
            log.problem(format!(
                "server.kv_transfers = {path} names a file, and no files are read here: give its object"
            ));
        }
        let load_points = combinations(&load_axes, |map| loads.point(Keys::of_map("load", map, &log)));
        let replicated = servers.iter().map(|server| server.value.deployment.data_parallel_size).find(|size| *size > 1);
        if let (Source::Profile(profile), Some(size)) = (&loads.source, replicated) {
            log.problem(format!(
                "server.data_parallel_size = {size} with load.profile = {}: a profile cannot be shared out to replicas; give \
                 requests or a rate, or leave data_parallel_size out",
                profile.origin
            ));
        }
        let grid = Grid { origin: origin.to_owned(), servers, loads: load_points, source: loads.source, slo };
        Ok(log.finish(origin, Some(grid))?.0)
    }

    /// The number of configurations.
    pub fn num_configurations(&self) -> usize {
        self.servers.len() * self.loads.len()
    }

    /// Every combination: models outermost, then GPUs, then the other keys of the server by name, then those of the load.
    pub fn configurations(&self) -> impl Iterator<Item = Configuration<'_>> {
        self.servers.iter().flat_map(|server| self.loads.iter().map(move |load| Configuration { server, load }))
    }

    /// All keys of a configuration with their values, those of the limits included. They tell it from any other, in any grid.
    pub(super) fn settings(&self, of: Configuration<'_>) -> String {
        let limits = self.slo.as_ref().map(|slo| format!("; {}", slo.settings())).unwrap_or_default();
        format!("{}; {}{limits}", of.server.all, of.load.all)
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
    let mut found = vec![Setting { value: Map::new(), all: String::new(), varied: String::new() }];
    for axis in axes {
        let with = |mut setting: Setting<Map<String, Value>>, value: &Value| {
            let text = format!("{} {}", axis.key, value.as_str().map_or_else(|| value.to_string(), str::to_owned));
            append(&mut setting.all, &text);
            if axis.values.len() > 1 {
                append(&mut setting.varied, &text);
            }
            setting.value.insert(axis.key.to_owned(), value.clone());
            setting
        };
        found = match axis.values {
            [one] => found.into_iter().map(|setting| with(setting, one)).collect(),
            all => found.iter().flat_map(|setting| all.iter().map(move |value| with(setting.clone(), value))).collect(),
        };
    }
    let read = |Setting { value, all, varied }| Some(Setting { value: read(&value)?, all, varied });
    found.into_iter().filter_map(read).collect()
}

fn append(list: &mut String, item: &str) {
    if !list.is_empty() && !item.is_empty() {
        list.push_str(", ");
    }
    list.push_str(item);
}

/// Reads a server. The log keeps equal problems of several servers once.
fn read_server(map: &Map<String, Value>, log: &Log) -> Option<ServerConfig> {
    let error = match ServerConfig::from_values("[server]", map) {
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

//! A grid, read from TOML and checked as a whole: its servers, its loads and its limits.

use std::path::Path;

use ridgepoint::internals::input::{Keys, Log, parse_toml, read_text, shown};
use ridgepoint::server_config::ServerConfig;
use ridgepoint::{ErrorKind, Result};
use serde_json::{Map, Value};

use super::keys::values;
use super::load::{LoadPoint, Source};
use super::load_keys;
use super::slo::Slo;

/// Most configurations of a grid.
pub const MAX_CONFIGURATIONS: usize = 100_000;

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
/// assert_eq!(grid.len(), 2 * 3 * 2);
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

impl<T> Setting<T> {
    /// A setting of keys with values; the flag says whether a key differs within the grid.
    pub(super) fn new(value: T, keys: &[(String, bool)]) -> Self {
        let all: Vec<&str> = keys.iter().map(|(text, _)| text.as_str()).collect();
        let varied: Vec<&str> = keys.iter().filter(|(_, varies)| *varies).map(|(text, _)| text.as_str()).collect();
        Setting { value, all: all.join(", "), varied: varied.join(", ") }
    }
}

/// One server under one load.
#[derive(Debug, Clone, Copy)]
pub struct Configuration<'a> {
    pub(super) server: &'a Setting<ServerConfig>,
    pub(super) load: &'a Setting<LoadPoint>,
}

impl Configuration<'_> {
    /// All of its keys with their values, those of the limits included. It tells the configuration from any other, in any grid.
    pub(super) fn settings(&self, slo: Option<&Slo>) -> String {
        let limits = slo.map(|slo| format!("; {}", slo.settings())).unwrap_or_default();
        format!("{}; {}{limits}", self.server.all, self.load.all)
    }

    /// The server.
    pub fn server(&self) -> &ServerConfig {
        &self.server.value
    }

    /// The load.
    pub fn load(&self) -> &LoadPoint {
        &self.load.value
    }

    /// The keys that tell it from the other configurations of its grid, with their values.
    pub fn varied(&self) -> String {
        let parts = [self.server.varied.as_str(), &self.load.varied];
        parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(", ")
    }
}

impl Grid {
    /// Reads a file.
    ///
    /// # Errors
    /// A file that cannot be read, and those of [`Grid::parse`].
    pub fn read(path: &Path) -> Result<Self> {
        Self::parse(&path.display().to_string(), &read_text(path)?)
    }

    /// Reads the text of a file that messages call `origin`. Paths in it are relative to the current folder.
    ///
    /// # Errors
    /// A text that is not TOML; all problems: unknown keys, values out of range or listed twice, values of a key that make the same
    /// server, loads and limits that do not go together, files of requests that cannot be read, more than
    /// [`MAX_CONFIGURATIONS`].
    pub fn parse(origin: &str, text: &str) -> Result<Self> {
        let toml = parse_toml(origin, text)?;
        let log = Log::default();
        let keys = Keys::new("", &toml, &log);
        let servers = servers(&keys.section_or_empty("server"), &log);
        let slo = keys.section("slo").map(Slo::read);
        let load = keys.section_or_empty("load");
        let (source, loads) = load_keys::read(load, keys.has("slo"));
        keys.finish();
        let replicated = servers.iter().map(|server| server.value.deployment.data_parallel_size).find(|size| *size > 1);
        if let (Source::Profile(path, _), Some(size)) = (&source, replicated) {
            log.problem(format!(
                "server.data_parallel_size = {size} with load.profile = {}: a profile cannot be shared out to replicas; give \
                 requests or a rate, or leave data_parallel_size out",
                path.display()
            ));
        }
        let total = servers.len().saturating_mul(loads.len());
        if total > MAX_CONFIGURATIONS {
            log.problem(format!(
                "makes {total} configurations, at most {MAX_CONFIGURATIONS} are possible: list fewer values, or split the grid"
            ));
        }
        let grid = Grid { origin: origin.to_owned(), servers, loads, source, slo };
        Ok(log.finish(origin, Some(grid))?.0)
    }

    /// The number of configurations.
    pub fn len(&self) -> usize {
        self.servers.len() * self.loads.len()
    }

    /// Whether there are none, which a grid that was read never has.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Every combination: models outermost, then GPUs, then the other keys of the server by name, then those of the load.
    pub fn configurations(&self) -> impl Iterator<Item = Configuration<'_>> {
        self.servers.iter().flat_map(|server| self.loads.iter().map(move |load| Configuration { server, load }))
    }
}

/// One engine argument and its values.
struct Axis<'a> {
    key: &'a str,
    values: &'a [Value],
}

/// Every combination of the arguments' values. Problems go to the log, and then there may be none.
fn servers(keys: &Keys<'_>, log: &Log) -> Vec<Setting<ServerConfig>> {
    let mut axes: Vec<Axis<'_>> = keys.entries().map(|(key, value)| Axis { key, values: values(value) }).collect();
    axes.sort_by_key(|axis| (axis.key != "model", axis.key != "hardware"));
    if axes.is_empty() {
        log.problem("[server] is missing or empty: give at least model and hardware");
        return Vec::new();
    }
    let mut is_sound = true;
    for axis in axes.iter().filter(|axis| axis.values.is_empty()) {
        log.problem(format!("server.{} = [] has no value: give one, or leave the key out", axis.key));
        is_sound = false;
    }
    let total = axes.iter().fold(1_usize, |product, axis| product.saturating_mul(axis.values.len()));
    if total > MAX_CONFIGURATIONS {
        log.problem(format!("[server] makes {total} servers, at most {MAX_CONFIGURATIONS} are possible"));
        is_sound = false;
    }
    // Each value beside the first ones of the other keys, so that a fault is reported once and not per combination.
    for (place, axis) in axes.iter().enumerate() {
        let mut known: Vec<ServerConfig> = Vec::new();
        for (at, value) in axis.values.iter().enumerate() {
            let chosen: Vec<usize> = (0..axes.len()).map(|other| if other == place { at } else { 0 }).collect();
            match server(&axes, &chosen) {
                Ok(config) if known.contains(&config) => {
                    let value = shown(value);
                    log.problem(format!(
                        "server.{} = {value} makes the same server as another value: keep one",
                        axis.key
                    ));
                    is_sound = false;
                }
                Ok(config) => known.push(config),
                Err(error) => {
                    match error.kind() {
                        ErrorKind::Invalid => {
                            error.problems().iter().for_each(|problem| log.problem(format!("[server] {problem}")));
                        }
                        _ => log.problem(error.to_string()),
                    }
                    is_sound = false;
                }
            }
        }
    }
    if !is_sound {
        return Vec::new();
    }
    let mut servers = Vec::with_capacity(total);
    for number in 0..total {
        let chosen = chosen(&axes, number);
        let keys: Vec<(String, bool)> = picked(&axes, &chosen)
            .map(|(axis, value)| {
                let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                (format!("{} {value}", axis.key), axis.values.len() > 1)
            })
            .collect();
        match server(&axes, &chosen) {
            Ok(config) => servers.push(Setting::new(config, &keys)),
            Err(error) => log.problem(format!("{}: {error}", Setting::new((), &keys).varied)),
        }
    }
    servers
}

/// The index of each argument's value in combination `number`; the last argument's changes fastest.
fn chosen(axes: &[Axis<'_>], number: usize) -> Vec<usize> {
    let mut rest = number;
    let mut chosen: Vec<usize> = axes
        .iter()
        .rev()
        .map(|axis| {
            let length = axis.values.len().max(1);
            let at = rest % length;
            rest /= length;
            at
        })
        .collect();
    chosen.reverse();
    chosen
}

fn picked<'a>(axes: &'a [Axis<'a>], chosen: &'a [usize]) -> impl Iterator<Item = (&'a Axis<'a>, &'a Value)> {
    axes.iter().zip(chosen).filter_map(|(axis, at)| Some((axis, axis.values.get(*at)?)))
}

fn server(axes: &[Axis<'_>], chosen: &[usize]) -> Result<ServerConfig> {
    let map: Map<String, Value> =
        picked(axes, chosen).map(|(axis, value)| (axis.key.to_owned(), value.clone())).collect();
    ServerConfig::from_values("[server]", &map)
}

#[cfg(test)]
#[path = "grid_tests.rs"]
mod tests;

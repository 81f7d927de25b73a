//! A grid, read from TOML and checked as a whole: its servers, its loads, its limits, and their product. Uses `section`,
//! `load_keys`, `slo`, `server_config`.

use ridgepoint::ErrorKind;
use std::path::Path;

use serde_json::{Map, Number, Value as Json};
use toml::{Table, Value};

use super::load::{LoadPoint, Source};
use super::load_keys;
use super::section::{Section, shown, values};
use super::slo::Slo;
use ridgepoint::server_config::ServerConfig;
use ridgepoint::{Error, Result};

/// Most configurations of a grid.
pub const MAX_CONFIGURATIONS: usize = 100_000;

/// Longest file, bytes.
const MAX_BYTES: u64 = 1 << 20;

/// Problems listed of one grid; the rest is counted.
const MAX_PROBLEMS: usize = 20;

/// One server under one load.
#[derive(Debug, Clone, PartialEq)]
pub struct Configuration {
    /// The server.
    pub server: ServerConfig,
    /// The load.
    pub load: LoadPoint,
    /// What tells it from the others of its grid: the keys of more than one value, with this one's.
    pub varied: String,
}

/// Servers and loads to go through: every combination of their values is a configuration.
///
/// ```
/// use crate::sweep::Grid;
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
/// assert_eq!(grid.configurations().len(), 2 * 3 * 2);
/// # Ok::<(), ridgepoint::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Grid {
    origin: String,
    source: Source,
    slo: Option<Slo>,
    configurations: Vec<Configuration>,
}

impl Grid {
    /// Reads a file.
    ///
    /// # Errors
    /// `ErrorKind::Io` where it can't be read, `ErrorKind::Parse` where it is longer than 1 MiB, else as [`Grid::parse`].
    pub fn read(path: &Path) -> Result<Self> {
        let failed = |error| Error::io(path, error);
        let origin = path.display().to_string();
        if std::fs::metadata(path).map_err(failed)?.len() > MAX_BYTES {
            let message = format!("is longer than {} MiB: is it the right file?", MAX_BYTES >> 20);
            return Err(Error::parse(origin, message));
        }
        Self::parse(&origin, &std::fs::read_to_string(path).map_err(failed)?)
    }

    /// Reads the text of a file that is called `origin` in messages. Paths in it are those of the current folder.
    ///
    /// # Errors
    /// `ErrorKind::Parse` where the text is no TOML; `ErrorKind::Invalid` with all problems: unknown keys with near matches, values out
    /// of range or listed twice, values of a key that make the same server, loads and limits that do not go together, files
    /// of requests that can't be read, more than [`MAX_CONFIGURATIONS`].
    pub fn parse(origin: &str, text: &str) -> Result<Self> {
        let table: Table = text.parse().map_err(|error: toml::de::Error| {
            Error::parse(origin, format!("can't be read as TOML: {}", error.to_string().trim_end()))
        })?;
        let mut problems = Vec::new();
        for (key, value) in &table {
            match (key.as_str(), value) {
                ("server" | "load" | "slo", Value::Table(_)) => {}
                ("server" | "load" | "slo", other) => {
                    problems.push(format!("{key} = {} must be a table, [{key}] with keys below it", shown(other)));
                }
                _ => problems.push(format!(
                    "{key} = {} has no place here: a grid has the tables [server], [load] and [slo]",
                    shown(value)
                )),
            }
        }
        let empty = Table::new();
        let part = |name: &str| table.get(name).and_then(Value::as_table);
        let servers = servers(part("server").unwrap_or(&empty), &mut problems);
        let slo = part("slo").map(|table| Slo::read(Section::new("slo", table, &mut problems)));
        let is_capacity = table.contains_key("slo");
        let loads = load_keys::read(Section::new("load", part("load").unwrap_or(&empty), &mut problems), is_capacity);
        let replicated = servers.iter().find(|server| server.config.deployment.data_parallel_size > 1);
        if let (Source::Profile(path, _), Some(server)) = (&loads.source, replicated) {
            problems.push(format!(
                "server.data_parallel_size = {} with load.profile = {}: a profile can't be shared out to replicas; give requests or a rate, or leave data_parallel_size out",
                server.config.deployment.data_parallel_size,
                path.display()
            ));
        }
        let total = servers.len().saturating_mul(loads.points.len());
        if problems.is_empty() && total > MAX_CONFIGURATIONS {
            problems.push(format!(
                "makes {total} configurations, at most {MAX_CONFIGURATIONS} are possible: list fewer values, or split the grid"
            ));
        }
        if problems.len() > MAX_PROBLEMS {
            let more = problems.len() - MAX_PROBLEMS;
            problems.truncate(MAX_PROBLEMS);
            problems.push(format!("and {more} more"));
        }
        if !problems.is_empty() {
            return Err(Error::invalid(origin, problems));
        }
        let varied = load_keys::varied(&loads.points);
        let configurations = servers
            .iter()
            .flat_map(|server| {
                loads.points.iter().zip(&varied).map(|(load, load_varied)| Configuration {
                    server: server.config.clone(),
                    load: *load,
                    varied: [server.varied.as_str(), load_varied]
                        .into_iter()
                        .filter(|s| !s.is_empty())
                        .collect::<Vec<_>>()
                        .join(", "),
                })
            })
            .collect();
        Ok(Grid { origin: origin.to_owned(), source: loads.source, slo, configurations })
    }

    /// What errors call it.
    pub fn origin(&self) -> &str {
        &self.origin
    }

    /// Every combination; models outermost, then GPUs, then the other keys of the server by name, then those of the load.
    pub fn configurations(&self) -> &[Configuration] {
        &self.configurations
    }

    /// Where requests come from.
    pub fn source(&self) -> &Source {
        &self.source
    }

    /// The limits for which the highest rate is looked for.
    pub fn slo(&self) -> Option<&Slo> {
        self.slo.as_ref()
    }
}

/// A server of the grid.
struct Server {
    config: ServerConfig,
    varied: String,
}

/// One argument and the values that it goes through.
struct Axis<'a> {
    key: &'a str,
    values: Vec<Json>,
}

/// Every combination of the arguments' values; none where there are problems.
fn servers(table: &Table, problems: &mut Vec<String>) -> Vec<Server> {
    let before = problems.len();
    let mut axes: Vec<Axis<'_>> = Vec::new();
    for (key, value) in table {
        let listed = values(value);
        if listed.is_empty() {
            problems.push(format!("server.{key} = [] has no value: give one, or leave the key out"));
        } else {
            axes.push(Axis { key, values: listed.iter().map(json).collect() });
        }
    }
    axes.sort_by_key(|axis| (axis.key != "model", axis.key != "hardware"));
    let total = axes.iter().fold(1_usize, |product, axis| product.saturating_mul(axis.values.len()));
    // Each value by itself, beside the first ones of the other arguments, so that a fault is told once and not per combination.
    for (place, axis) in axes.iter().enumerate() {
        let mut known: Vec<ServerConfig> = Vec::new();
        for (at, value) in axis.values.iter().enumerate() {
            let chosen: Vec<usize> = (0..axes.len()).map(|other| if other == place { at } else { 0 }).collect();
            match server(&axes, &chosen) {
                Ok(config) if known.contains(&config) => problems.push(format!(
                    "server.{} = {value} makes the same server as another of its values: leave one of them out",
                    axis.key
                )),
                Ok(config) => known.push(config),
                Err(error) if error.kind() == ErrorKind::Invalid => {
                    for problem in error.problems().iter().map(|problem| format!("[server] {problem}")) {
                        if !problems.contains(&problem) {
                            problems.push(problem);
                        }
                    }
                }
                Err(error) => problems.push(error.to_string()),
            }
        }
    }
    if axes.is_empty() {
        problems.push("[server] is missing or empty: give at least model and hardware".to_owned());
    }
    if total > MAX_CONFIGURATIONS {
        problems.push(format!("[server] makes {total} servers, at most {MAX_CONFIGURATIONS} are possible"));
    }
    if problems.len() > before {
        return Vec::new();
    }
    let mut servers = Vec::with_capacity(total);
    for number in 0..total {
        let chosen = chosen(&axes, number);
        match server(&axes, &chosen) {
            Ok(config) => servers.push(Server { config, varied: varied(&axes, &chosen) }),
            Err(error) if problems.len() <= MAX_PROBLEMS => {
                problems.push(format!("{}: {error}", varied(&axes, &chosen)))
            }
            Err(_) => {}
        }
    }
    servers
}

/// Which value of each argument combination `number` has: the last argument's changes fastest.
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

fn picked<'a>(axes: &'a [Axis<'a>], chosen: &'a [usize]) -> impl Iterator<Item = (&'a Axis<'a>, &'a Json)> {
    axes.iter().zip(chosen).filter_map(|(axis, at)| Some((axis, axis.values.get(*at)?)))
}

fn server(axes: &[Axis<'_>], chosen: &[usize]) -> Result<ServerConfig> {
    let map: Map<String, Json> =
        picked(axes, chosen).map(|(axis, value)| (axis.key.to_owned(), value.clone())).collect();
    ServerConfig::from_values("[server]", &map)
}

fn varied(axes: &[Axis<'_>], chosen: &[usize]) -> String {
    let parts: Vec<String> = picked(axes, chosen)
        .filter(|(axis, _)| axis.values.len() > 1)
        .map(|(axis, value)| match value {
            Json::String(text) => format!("{} {text}", axis.key),
            other => format!("{} {other}", axis.key),
        })
        .collect();
    parts.join(", ")
}

/// A value as the reader of servers takes it; numbers that JSON has not stay texts, which it refuses.
fn json(value: &Value) -> Json {
    match value {
        Value::String(text) => Json::String(text.clone()),
        Value::Integer(whole) => Json::from(*whole),
        Value::Float(number) => {
            Number::from_f64(*number).map_or_else(|| Json::String(number.to_string()), Json::Number)
        }
        Value::Boolean(switch) => Json::Bool(*switch),
        Value::Datetime(time) => Json::String(time.to_string()),
        Value::Array(list) => Json::Array(list.iter().map(json).collect()),
        Value::Table(table) => Json::Object(table.iter().map(|(key, value)| (key.clone(), json(value))).collect()),
    }
}

#[cfg(test)]
#[path = "grid_tests.rs"]
mod tests;

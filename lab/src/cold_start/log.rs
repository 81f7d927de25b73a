//! vLLM's log of a start: its settings, and the times that its lines state, rank by rank.

use std::collections::BTreeMap;
use std::path::Path;

use ridgepoint::{Error, Result};
use ridgepoint_replay::cold_start::CompileCache;
use ridgepoint_replay::input::for_each_line;
use ridgepoint_replay::server_config::EngineLog;

use super::line::{Bar, bar, elapsed_s, number_after, process, ranks, stamp_s};
use crate::ingest::file_name;

/// The last line of a complete start.
const END: &str = "init engine (profile, create kv cache, warmup model) took ";

/// The times of a rank.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RankLog {
    /// Pipeline stage, from 0, where its process has one in its name.
    pub pipeline_rank: Option<u32>,
    /// Tensor-parallel rank, from 0, where its process has one in its name.
    pub tensor_rank: Option<u32>,
    /// Time to read its weights and copy them, s.
    pub weights_s: Option<f64>,
    /// Time to make the model, weights included, s.
    pub model_s: Option<f64>,
    /// Memory of its weights, GiB.
    pub weights_gib: Option<f64>,
    /// Time in which Dynamo traced the model, s.
    pub dynamo_s: Option<f64>,
    /// Time of `torch.compile`, Dynamo included, s.
    pub compile_s: Option<f64>,
    /// Time of the profiling run, s.
    pub profile_s: Option<f64>,
    /// Time of all captures, whole seconds.
    pub graphs_s: Option<f64>,
    /// Memory left for the KV cache, GiB.
    pub kv_cache_gib: Option<f64>,
}

/// A start of a server as its log has it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct StartLog {
    /// Name of the log; of several starts in a file, with the number of this one.
    pub name: String,
    /// The server's model, version and sizes.
    pub labels: EngineLog,
    /// The ranks that logged a time, by process. Newer releases log those of the first one alone.
    pub ranks: BTreeMap<String, RankLog>,
    /// Captures of graphs between attention calls: their number and their time.
    pub piecewise: Option<(u64, f64)>,
    /// Captures of graphs of whole steps.
    pub full: Option<(u64, f64)>,
    /// Time of the engine's initialisation, which holds the profiling run, compilation, the KV cache and the captures, s.
    pub engine_s: Option<f64>,
    /// Whether compiled graphs were loaded; `None` if the log does not report it.
    pub compile_cache: Option<CompileCache>,
    /// Time from the first line to the first rank that loads its weights, whole seconds.
    pub launch_s: Option<f64>,
    /// Time from the first line until the server listens, whole seconds.
    pub ready_s: Option<f64>,
    first_s: Option<u64>,
    loads_s: Option<u64>,
    has_banner: bool,
    is_started: bool,
}

impl StartLog {
    /// Takes the most of all ranks: the slowest one holds up the others.
    pub fn slowest(&self, of: impl Fn(&RankLog) -> Option<f64>) -> Option<f64> {
        self.ranks.values().filter_map(of).reduce(f64::max)
    }

    fn rank(&mut self, line: &str) -> &mut RankLog {
        let process = process(line);
        self.ranks.entry(process.to_owned()).or_insert_with(|| {
            let (pipeline_rank, tensor_rank) = ranks(process);
            RankLog { pipeline_rank, tensor_rank, ..RankLog::default() }
        })
    }

    /// Takes what a line says; most say nothing.
    ///
    /// # Source
    /// vLLM 0.10 to 0.32: `default_loader.py`, `gpu_model_runner.py`, `gpu_worker.py`, `compilation/monitor.py`,
    /// `compilation/backends.py`, `compilation/decorators.py`, `v1/engine/core.py`. Releases differ in their verbs: torch.compile
    /// "takes" its time in older ones and "took" it in newer ones.
    fn read(&mut self, line: &str) {
        self.labels.take(line);
        self.is_started |= EngineLog::begins(line);
        self.has_banner |= is_banner(line);
        let stamp = stamp_s(line);
        self.first_s = self.first_s.or(stamp);
        let since = |stamp: Option<u64>, first: Option<u64>| Some(elapsed_s(first?, stamp?));
        if line.contains("Starting to load model ") && self.loads_s.is_none() {
            (self.loads_s, self.is_started) = (stamp, true);
            self.launch_s = since(stamp, self.first_s).filter(|_| self.has_banner);
        } else if line.contains("Starting vLLM server on ") || line.contains("Starting vLLM API server ") {
            self.ready_s = self.ready_s.or(since(stamp, self.first_s).filter(|_| self.has_banner));
        } else if let Some(seconds) = number_after(line, "Loading weights took ") {
            self.rank(line).weights_s.get_or_insert(seconds);
            self.is_started = true;
        } else if let Some(gib) = number_after(line, "Model loading took ") {
            let seconds = number_after(line, " and ");
            let rank = self.rank(line);
            rank.weights_gib.get_or_insert(gib);
            rank.model_s = rank.model_s.or(seconds);
            self.is_started = true;
        } else if let Some(seconds) = number_after(line, "Dynamo bytecode transform time: ") {
            *self.rank(line).dynamo_s.get_or_insert(0.0) += seconds;
        } else if let Some(seconds) = ["torch.compile takes ", "torch.compile took ", "run together took "]
            .into_iter()
            .find_map(|text| number_after(line, text).filter(|_| line.contains("torch.compile")))
        {
            // A vision tower and the language model are compiled separately, each with a line of its own.
            *self.rank(line).compile_s.get_or_insert(0.0) += seconds;
        } else if let Some(seconds) = number_after(line, "Initial profiling/warmup run took ") {
            *self.rank(line).profile_s.get_or_insert(0.0) += seconds;
        } else if let Some(seconds) = number_after(line, "Graph capturing finished in ") {
            self.rank(line).graphs_s.get_or_insert(seconds);
        } else if let Some(gib) = number_after(line, "Available KV cache memory: ") {
            self.rank(line).kv_cache_gib.get_or_insert(gib);
        } else if let Some(seconds) = number_after(line, END) {
            self.engine_s = Some(self.engine_s.map_or(seconds, |other: f64| other.max(seconds)));
        } else if line.contains("Compiling a graph for ") || line.contains("saved AOT compiled function") {
            self.compile_cache = Some(CompileCache::Cold);
        } else if line.contains("Directly load ") {
            self.compile_cache = self.compile_cache.or(Some(CompileCache::Warm));
        } else if line.contains("Capturing CUDA graphs (")
            && let Some(Bar { pieces, seconds }) = bar(line)
        {
            let kind = if line.contains("PIECEWISE)") { &mut self.piecewise } else { &mut self.full };
            *kind = Some((pieces, seconds));
        }
    }

    /// What a complete start has and this one lacks.
    fn check(&self) -> std::result::Result<(), String> {
        if self.engine_s.is_some() {
            return Ok(());
        }
        let last = [
            (self.slowest(|rank| rank.graphs_s).is_some(), "the CUDA graphs"),
            (self.slowest(|rank| rank.compile_s).is_some(), "torch.compile"),
            (self.slowest(|rank| rank.weights_s).is_some(), "loading the weights"),
            (self.loads_s.is_some(), "starting to load the weights"),
        ];
        let last =
            last.into_iter().find(|(is_there, _)| *is_there).map_or("the engine's configuration", |(_, name)| name);
        Err(format!(
            "ends after {last}: the line '{}' of a complete start is missing; give the whole log",
            END.trim_end()
        ))
    }
}

/// Whether a server logs this line before everything else of its start.
fn is_banner(line: &str) -> bool {
    ["non-default args: ", "API server version ", "server version ", "  version "]
        .iter()
        .any(|text| line.contains(text))
}

/// Reads the starts in a log. A server that starts again in the same file is another start.
///
/// # Errors
/// A file that cannot be read; `ErrorKind::Invalid` for one without a start, and for a start that is cut short.
pub fn read_start_logs(path: &Path) -> Result<Vec<StartLog>> {
    let mut starts = vec![StartLog::default()];
    for_each_line(path, |_, bytes| {
        let text = String::from_utf8_lossy(bytes);
        // Progress bars return to the start of their line.
        for line in text.split(['\r', '\n']).map(str::trim_end).filter(|line| !line.is_empty()) {
            if is_banner(line) && starts.last().is_some_and(|start| start.is_started) {
                starts.push(StartLog::default());
            }
            starts.iter_mut().last().into_iter().for_each(|start| start.read(line));
        }
        Ok(())
    })?;
    starts.retain(|start| start.is_started || start.engine_s.is_some());
    let (name, several) = (file_name(path), starts.len() > 1);
    let mut problems = Vec::new();
    if starts.is_empty() {
        problems.push(
            "has no start-up line of vLLM, such as 'Loading weights took': give the log from the start of the server"
                .to_owned(),
        );
    }
    for (at, start) in starts.iter_mut().enumerate() {
        start.name = if several { format!("{name}#{}", at + 1) } else { name.clone() };
        if let Err(problem) = start.check() {
            problems.push(if several { format!("start {}: {problem}", at + 1) } else { problem });
        }
    }
    if problems.is_empty() { Ok(starts) } else { Err(Error::invalid(path, problems)) }
}

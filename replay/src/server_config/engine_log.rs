//! What an engine's log says of its server when it starts, and the arguments that follow from it.

use std::path::Path;

use ridgepoint::arguments::ArgumentSupport;
use ridgepoint::{Error, Result};
use serde_json::{Map, Value};

use super::arguments::server_arguments;
use crate::input::{for_each_line, parse_yaml};

/// The settings of a server, as far as its engine has logged them.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct EngineLog {
    /// Name or path of the model.
    pub model: Option<String>,
    /// The name under which clients ask for the model.
    pub served_model: Option<String>,
    /// The engine with its version, as in vllm-0.24.0.
    pub engine_version: Option<String>,
    /// GPUs that share every layer's matrices.
    pub tensor_parallel_size: Option<u32>,
    /// Pipeline stages.
    pub pipeline_parallel_size: Option<u32>,
    /// Replicas of the attention part.
    pub data_parallel_size: Option<u32>,
    /// Most requests in a step.
    pub max_num_seqs: Option<u32>,
    /// Most tokens in a step.
    pub max_num_batched_tokens: Option<u32>,
    /// Longest context, tokens.
    pub max_model_len: Option<u32>,
    /// Whether every kernel is launched from the host.
    pub enforce_eager: Option<bool>,
    /// The steps that replay graphs, by vLLM's name.
    pub cudagraph_mode: Option<&'static str>,
    /// Tokens of a KV block, where the log names them.
    pub block_size: Option<u64>,
    /// Tokens of the KV cache, and whether the device is a CPU.
    kv_cache: Option<(u64, bool)>,
    blocks_override: Option<u64>,
    /// KV blocks that the log states, which may be other than the tokens make: layers in groups share them.
    stated_blocks: Option<u64>,
    graph_sizes: Option<String>,
    /// Further arguments that the server was started with.
    others: Map<String, Value>,
}

/// vLLM's block sizes where none is asked for.
const GPU_BLOCK_SIZE: u64 = 16;
const CPU_BLOCK_SIZE: u64 = 128;

/// What a line that an engine logs when it starts has.
const ENGINE_STARTS: &str = "Initializing a V1 LLM engine (v";
/// What stands before the arguments that a server was started with.
const ARGUMENTS: &str = "non-default args: ";
/// SGLang's line of its arguments.
const SGLANG_ARGUMENTS: &str = "server_args=ServerArgs(";

/// Texts that stand before the number of KV blocks in a line.
///
/// # Source
/// vLLM 0.10 to 0.32: `v1/metrics/loggers.py`; before, `executor_base.py`; last, the gauge of `/metrics`.
const STATED_BLOCKS: [&str; 3] = ["num_gpu_blocks is: ", "# GPU blocks: ", ",num_gpu_blocks=\""];

/// The graphs of vLLM by default.
const USUAL_GRAPHS: &str = "FULL_AND_PIECEWISE";

impl EngineLog {
    /// Reads the log of one server, or its `/metrics`. Where it was started several times, the last start counts.
    ///
    /// # Errors
    /// A file that cannot be read, and one without a line that says what the server is.
    pub fn read(path: &Path) -> Result<Self> {
        let mut log = EngineLog::default();
        for_each_line(path, |_, line| {
            let line = String::from_utf8_lossy(line);
            if line.contains(ARGUMENTS) || line.contains(SGLANG_ARGUMENTS) {
                log = EngineLog::default();
            }
            log.take(&line);
            Ok(())
        })?;
        match log == EngineLog::default() {
            true => Err(Error::parse(
                path.display().to_string(),
                "has no line that an engine logs when it starts, such as `GPU KV cache size: 445,648 tokens`: give the log \
                 from the start of the server",
            )),
            false => Ok(log),
        }
    }

    /// Whether an engine logs this line when it starts.
    pub fn begins(line: &str) -> bool {
        line.contains(ENGINE_STARTS)
    }

    /// Takes what a line says; most say nothing.
    ///
    /// # Source
    /// vLLM 0.15 to 0.32: the arguments (`api_utils.py`), the scheduler's settings, the engine's configuration (`core.py`) and the size of the KV cache
    /// (`kv_cache_utils.py`).
    pub fn take(&mut self, line: &str) {
        if let Some((_, rest)) = line.split_once(ARGUMENTS) {
            self.take_arguments(rest);
        } else if let Some((_, rest)) = line.split_once(ENGINE_STARTS) {
            self.take_engine(rest);
        } else if let Some(tokens) = number(after(line, "Chunked prefill is enabled with max_num_batched_tokens=")) {
            self.max_num_batched_tokens = small(Some(tokens));
        } else if let Some((key, value)) = after(line, "Defaulting ").and_then(|rest| rest.split_once(" to ")) {
            let value = small(leading_number(value));
            match key {
                "max_num_seqs" => self.max_num_seqs = value.or(self.max_num_seqs),
                "max_num_batched_tokens" => self.max_num_batched_tokens = value.or(self.max_num_batched_tokens),
                _ => {}
            }
        } else if let Some(blocks) = STATED_BLOCKS.iter().find_map(|mark| number(after(line, mark))) {
            self.stated_blocks = Some(blocks);
            let size = number(after(line, "cache_config_info{").and_then(|rest| after(rest, "block_size=\"")));
            self.block_size = size.filter(|size| *size > 0).or(self.block_size);
        } else if let Some(blocks) = number(after(line, "with num_gpu_blocks_override=")) {
            self.blocks_override = Some(blocks);
        } else if let Some((device, rest)) = line.split_once(" KV cache size: ") {
            let tokens = rest.split(' ').next().unwrap_or_default().replace(',', "");
            self.kv_cache = tokens.parse().ok().map(|tokens| (tokens, device.ends_with("CPU"))).or(self.kv_cache);
        } else if line.contains("max_total_num_tokens=") || line.contains(SGLANG_ARGUMENTS) {
            self.take_sglang(line);
        }
    }

    /// Takes a dictionary of arguments as Python writes it.
    fn take_arguments(&mut self, text: &str) {
        // Where objects are written as calls it is no YAML, and the arguments that matter most are sought by name.
        let found = parse_yaml("arguments", text.trim_end()).ok();
        let rows = server_arguments();
        if let Some(Value::Object(map)) = found {
            let is_modelled =
                |key: &str| rows.iter().any(|row| row.name == key && row.support == ArgumentSupport::Modelled);
            let given = map.into_iter().filter(|(key, value)| is_modelled(key) && value.as_str() != Some("None"));
            self.others = given.collect();
        }
        let of = |key: &str| number(after(text, &format!("'{key}': ")));
        self.served_model = after(text, "'served_model_name': ['").and_then(until_quote).or(self.served_model.take());
        self.block_size = of("block_size").filter(|size| *size > 0).or(self.block_size);
        self.max_num_seqs = small(of("max_num_seqs")).or(self.max_num_seqs);
        self.max_num_batched_tokens = small(of("max_num_batched_tokens")).or(self.max_num_batched_tokens);
        self.tensor_parallel_size = small(of("tensor_parallel_size")).or(self.tensor_parallel_size);
    }

    /// Takes the line of the engine's configuration from its version on.
    fn take_engine(&mut self, text: &str) {
        let version = text.split(')').next().unwrap_or_default();
        self.engine_version = Some(format!("vllm-{version}"));
        self.model = after(text, "model='").and_then(until_quote);
        self.tensor_parallel_size = small(number(after(text, "tensor_parallel_size=")));
        self.pipeline_parallel_size = small(number(after(text, "pipeline_parallel_size=")));
        self.data_parallel_size = small(number(after(text, "data_parallel_size=")));
        self.max_model_len = small(number(after(text, "max_seq_len=")));
        self.enforce_eager = after(text, "enforce_eager=").map(|rest| rest.starts_with("True"));
        self.cudagraph_mode = after(text, "cudagraph_mode").and_then(graph_mode);
        let sizes = after(text, "cudagraph_capture_sizes").and_then(|rest| Some(rest.split_once(']')?.0));
        let sizes = sizes.map(|sizes| sizes.trim_start_matches(['\'', '"', ':', ' ', '[']));
        let sizes = sizes.filter(|sizes| !sizes.is_empty());
        self.graph_sizes = sizes.map(str::to_owned).or(self.graph_sizes.take());
        if let Some(on) = after(text, "enable_prefix_caching=") {
            self.others.insert("enable_prefix_caching".to_owned(), on.starts_with("True").into());
        }
        let format = after(text, "kv_cache_dtype=").and_then(|rest| rest.split([',', ' ', ')']).next());
        if let Some(format) = format.map(|format| format.trim().trim_matches('\'')).filter(|format| *format != "auto") {
            self.others.insert("kv_cache_dtype".to_owned(), format.into());
        }
    }

    /// Takes a line of SGLang.
    ///
    /// # Source
    /// SGLang 0.5.9: `managers/scheduler.py` (`max_total_num_tokens=`), `server_args.py`.
    fn take_sglang(&mut self, line: &str) {
        let of = |mark: &str| number(after(line, mark));
        self.model = after(line, "model_path='").and_then(until_quote).or(self.model.take());
        self.kv_cache = of("max_total_num_tokens=").map(|tokens| (tokens, false)).or(self.kv_cache);
        for (field, mark) in [
            (&mut self.max_num_batched_tokens, "chunked_prefill_size="),
            (&mut self.max_num_seqs, "max_running_requests="),
            (&mut self.max_model_len, "context_len="),
            (&mut self.tensor_parallel_size, "tp_size="),
        ] {
            *field = small(of(mark)).or(*field);
        }
    }

    /// The sizes that graphs are captured for, ascending; empty where the log does not report them.
    pub fn capture_sizes(&self) -> Vec<u32> {
        let sizes = self.graph_sizes.iter().flat_map(|sizes| sizes.split(','));
        let mut sizes: Vec<u32> = sizes.filter_map(|size| size.trim().parse().ok()).filter(|size| *size > 0).collect();
        sizes.sort_unstable();
        sizes.dedup();
        sizes
    }

    /// The number of KV blocks; `None` where the log does not report it.
    pub fn kv_blocks(&self) -> Option<u64> {
        let of_tokens = || self.kv_cache.map(|(tokens, _)| tokens / self.block_size().0);
        self.stated_blocks().or_else(of_tokens).filter(|blocks| *blocks > 0)
    }

    fn stated_blocks(&self) -> Option<u64> {
        self.blocks_override.or(self.stated_blocks).filter(|blocks| *blocks > 0)
    }

    /// The tokens of a block, and whether they are vLLM's default for want of a line that says so.
    fn block_size(&self) -> (u64, bool) {
        let default = if matches!(self.kv_cache, Some((_, true))) { CPU_BLOCK_SIZE } else { GPU_BLOCK_SIZE };
        (self.block_size.unwrap_or(default), self.block_size.is_none())
    }

    /// Returns the arguments that the log states, by the names of [`ServerConfig`](super::ServerConfig). Sizes of CUDA graphs are left out unless
    /// the server was started with them.
    pub fn arguments(&self) -> Map<String, Value> {
        let mut found = self.others.clone();
        let blocks = self.stated_blocks();
        let tokens = self.kv_cache.map(|(tokens, _)| tokens).filter(|tokens| blocks.is_none() && *tokens > 0);
        let is_usual = self.enforce_eager == Some(true) || self.cudagraph_mode == Some(USUAL_GRAPHS);
        let values = [
            ("model", self.model.clone().map(Value::from)),
            ("tensor_parallel_size", self.tensor_parallel_size.map(Value::from)),
            ("pipeline_parallel_size", self.pipeline_parallel_size.map(Value::from)),
            ("data_parallel_size", self.data_parallel_size.map(Value::from)),
            ("max_num_seqs", self.max_num_seqs.map(Value::from)),
            ("max_num_batched_tokens", self.max_num_batched_tokens.map(Value::from)),
            ("max_model_len", self.max_model_len.map(Value::from)),
            ("enforce_eager", self.enforce_eager.filter(|is_eager| *is_eager).map(Value::from)),
            ("cudagraph_mode", self.cudagraph_mode.filter(|_| !is_usual).map(Value::from)),
            ("block_size", self.block_size.map(Value::from)),
            ("num_gpu_blocks_override", blocks.map(Value::from)),
            ("kv_cache_tokens", tokens.map(Value::from)),
        ];
        found.extend(values.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))));
        found
    }

    /// What is known and has no column, in words.
    pub fn note(&self) -> Option<String> {
        let mut parts = Vec::new();
        if let Some(blocks) = self.kv_blocks() {
            let (size, is_default) = self.block_size();
            let default = if is_default { ", vLLM's default, because the log names no block size" } else { "" };
            parts.push(format!("{blocks} KV blocks of {size} tokens{default}"));
        }
        parts.extend(self.graph_sizes.as_ref().map(|sizes| format!("CUDA graphs of {sizes} tokens")));
        (!parts.is_empty()).then(|| format!("the server has {}", parts.join("; ")))
    }
}

/// The mode of CUDA graphs behind its key. Releases up to 0.10 log the value of the enumeration, later ones its name.
fn graph_mode(text: &str) -> Option<&'static str> {
    let text = text.trim_start_matches(['\'', '"', ':', ' ', '<']);
    let modes = [
        ("FULL_AND_PIECEWISE", "[2,1]"),
        ("FULL_DECODE_ONLY", "[2,0]"),
        ("PIECEWISE", "1"),
        ("FULL", "2"),
        ("NONE", "0"),
    ];
    let name = text.strip_prefix("CUDAGraphMode.").unwrap_or_default();
    let found = modes.into_iter().find(|(known, value)| name.starts_with(known) || text.starts_with(value));
    found.map(|(known, _)| known)
}

/// What follows a text in a line.
fn after<'l>(line: &'l str, text: &str) -> Option<&'l str> {
    Some(line.split_once(text)?.1)
}

fn until_quote(text: &str) -> Option<String> {
    Some(text.split_once('\'')?.0.to_owned())
}

/// The number that a text begins with.
fn number(text: Option<&str>) -> Option<u64> {
    text.and_then(leading_number)
}

/// A size that an engine takes.
fn small(value: Option<u64>) -> Option<u32> {
    value.and_then(|value| u32::try_from(value).ok()).filter(|value| *value > 0)
}

fn leading_number(text: &str) -> Option<u64> {
    text.split(|of: char| !of.is_ascii_digit()).next()?.parse().ok()
}

#[cfg(test)]
#[path = "engine_log_tests.rs"]
mod tests;

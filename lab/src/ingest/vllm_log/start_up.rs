//! What vLLM's log says of a server when it starts.

use crate::ingest::{Run, ServerLog};

/// The settings of a server, as far as they have been logged.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct StartUp {
    pub(crate) run: Run,
    pub(crate) pipeline_parallel_size: Option<u32>,
    pub(crate) data_parallel_size: Option<u32>,
    /// Longest context, tokens.
    pub(crate) max_model_len: Option<u32>,
    pub(crate) enforce_eager: Option<bool>,
    /// The steps that replay graphs, by vLLM's name.
    pub(crate) cudagraph_mode: Option<&'static str>,
    served_model: Option<String>,
    block_size: Option<u64>,
    /// Tokens of the KV cache, and whether the device is a CPU.
    kv_cache: Option<(u64, bool)>,
    blocks_override: Option<u64>,
    graph_sizes: Option<String>,
}

/// vLLM's block sizes where none is asked for.
const GPU_BLOCK_SIZE: u64 = 16;
const CPU_BLOCK_SIZE: u64 = 128;

/// What a line that an engine logs when it starts has.
const ENGINE_STARTS: &str = "Initializing a V1 LLM engine (v";

impl StartUp {
    /// Whether an engine logs this line when it starts.
    pub(crate) fn begins(line: &str) -> bool {
        line.contains(ENGINE_STARTS)
    }

    /// Takes what a line says; most say nothing.
    ///
    /// # Source
    /// vLLM 0.15 to 0.32: the arguments (`api_utils.py`), the scheduler's settings, the engine's configuration (`core.py`) and the size of the KV cache
    /// (`kv_cache_utils.py`).
    pub(crate) fn read(&mut self, line: &str) {
        let number = |text: Option<&str>| text.and_then(leading_number);
        let small = |value: Option<u64>| value.and_then(|value| u32::try_from(value).ok()).filter(|value| *value > 0);
        if let Some((_, rest)) = line.split_once("non-default args: ") {
            let of = |key: &str| number(after(rest, &format!("'{key}': ")));
            self.served_model =
                after(rest, "'served_model_name': ['").and_then(until_quote).or(self.served_model.take());
            self.block_size = of("block_size").filter(|size| *size > 0).or(self.block_size);
            self.run.max_num_seqs = small(of("max_num_seqs")).or(self.run.max_num_seqs);
            self.run.max_num_batched_tokens = small(of("max_num_batched_tokens")).or(self.run.max_num_batched_tokens);
            self.run.tensor_parallel_size = small(of("tensor_parallel_size")).or(self.run.tensor_parallel_size);
        } else if let Some((_, rest)) = line.split_once(ENGINE_STARTS) {
            let version = rest.split(')').next().unwrap_or_default();
            self.run.engine_version = Some(format!("vllm-{version}"));
            self.run.model = after(rest, "model='").and_then(until_quote);
            self.run.tensor_parallel_size = small(number(after(rest, "tensor_parallel_size=")));
            self.pipeline_parallel_size = small(number(after(rest, "pipeline_parallel_size=")));
            self.data_parallel_size = small(number(after(rest, "data_parallel_size=")));
            self.max_model_len = small(number(after(rest, "max_seq_len=")));
            self.enforce_eager = after(rest, "enforce_eager=").map(|rest| rest.starts_with("True"));
            self.cudagraph_mode = after(rest, "cudagraph_mode").and_then(graph_mode);
            let sizes = after(rest, "cudagraph_capture_sizes").and_then(|rest| Some(rest.split_once(']')?.0));
            let sizes = sizes.map(|sizes| sizes.trim_start_matches(['\'', '"', ':', ' ', '[']));
            let sizes = sizes.filter(|sizes| !sizes.is_empty());
            self.graph_sizes = sizes.map(str::to_owned).or(self.graph_sizes.take());
        } else if let Some(tokens) = number(after(line, "Chunked prefill is enabled with max_num_batched_tokens=")) {
            self.run.max_num_batched_tokens = small(Some(tokens));
        } else if let Some(blocks) = number(after(line, "with num_gpu_blocks_override=")) {
            self.blocks_override = Some(blocks);
        } else if let Some((device, rest)) = line.split_once(" KV cache size: ") {
            let tokens = rest.split(' ').next().unwrap_or_default().replace(',', "");
            self.kv_cache = tokens.parse().ok().map(|tokens| (tokens, device.ends_with("CPU"))).or(self.kv_cache);
        }
    }

    /// The sizes that graphs are captured for, ascending; empty where the log does not report them.
    pub(crate) fn capture_sizes(&self) -> Vec<u32> {
        let sizes = self.graph_sizes.iter().flat_map(|sizes| sizes.split(','));
        let mut sizes: Vec<u32> = sizes.filter_map(|size| size.trim().parse().ok()).filter(|size| *size > 0).collect();
        sizes.sort_unstable();
        sizes.dedup();
        sizes
    }

    /// The number of KV blocks; `None` where the log does not report it.
    pub(super) fn kv_blocks(&self) -> Option<u64> {
        let of_tokens = || self.kv_cache.map(|(tokens, _)| tokens / self.block_size().0);
        self.blocks_override.or_else(of_tokens).filter(|blocks| *blocks > 0)
    }

    /// What holds for other files of the same server; `None` where nothing was logged. `name` is the log's.
    pub(super) fn server(&self, name: &str) -> Option<ServerLog> {
        let (run, served_model) = (self.run.clone(), self.served_model.clone());
        let said = run != Run::default() || self.kv_blocks().is_some();
        let run = Run { experiment: name.to_owned(), ..run };
        said.then(|| ServerLog { run, served_model, kv_blocks: self.kv_blocks(), block_size: self.block_size })
    }

    /// The tokens of a block, and whether they are vLLM's default for want of a line that says so.
    fn block_size(&self) -> (u64, bool) {
        let default = if matches!(self.kv_cache, Some((_, true))) { CPU_BLOCK_SIZE } else { GPU_BLOCK_SIZE };
        (self.block_size.unwrap_or(default), self.block_size.is_none())
    }

    /// What is known and has no column, in words.
    pub(super) fn note(&self) -> Option<String> {
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

fn leading_number(text: &str) -> Option<u64> {
    text.split(|of: char| !of.is_ascii_digit()).next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(lines: &[&str]) -> StartUp {
        let mut start_up = StartUp::default();
        lines.iter().for_each(|line| start_up.read(line));
        start_up
    }

    const ENGINE: &str = "(EngineCore pid=1) INFO 01-02 03:04:05 [core.py:1] Initializing a V1 LLM engine (v0.31.5) with config: \
                          model='org/small', tensor_parallel_size=2, compilation_config={'cudagraph_capture_sizes': [1, 2, 4]}";

    #[test]
    fn start_up_lines_are_labels() {
        let found = read(&[
            "(APIServer pid=1) INFO 01-02 03:04:05 [api_utils.py:1] non-default args: {'model': 'org/small', 'served_model_name': ['chat', 'c'], \
             'block_size': 32, 'max_num_seqs': 64}",
            "(APIServer pid=1) INFO 01-02 03:04:05 [scheduler.py:1] Chunked prefill is enabled with max_num_batched_tokens=4096.",
            ENGINE,
            "(EngineCore pid=1) INFO 01-02 03:04:05 [kv_cache_utils.py:1] GPU KV cache size: 6,400 tokens, Maximum concurrency: 2x",
        ]);
        let run = Run {
            model: Some("org/small".to_owned()),
            tensor_parallel_size: Some(2),
            engine_version: Some("vllm-0.31.5".to_owned()),
            max_num_seqs: Some(64),
            max_num_batched_tokens: Some(4096),
            ..Run::default()
        };
        assert_eq!((&found.run, found.kv_blocks()), (&run, Some(200)));
        let server = found.server("log").unwrap();
        assert_eq!((server.run.experiment.as_str(), server.served_model.as_deref()), ("log", Some("chat")));
        assert_eq!((server.kv_blocks, StartUp::default().server("log")), (Some(200), None));
        assert_eq!(found.note().unwrap(), "the server has 200 KV blocks of 32 tokens; CUDA graphs of 1, 2, 4 tokens");
    }

    #[test]
    fn settings_of_graphs_are_read_from_old_and_new_releases() {
        let old = "Initializing a V1 LLM engine (v0.10.2) with config: model='org/small', max_seq_len=4096, tensor_parallel_size=2, \
                   pipeline_parallel_size=3, data_parallel_size=1, enforce_eager=False, \
                   compilation_config={\"level\":3,\"cudagraph_mode\":[2,1],\"cudagraph_capture_sizes\":[8,4,2,1]}";
        let new = "Initializing a V1 LLM engine (v0.15.1) with config: model='org/small', enforce_eager=True, \
                   compilation_config={'cudagraph_mode': <CUDAGraphMode.PIECEWISE: 1>, 'cudagraph_capture_sizes': [1, 2]}";
        let (old, new) = (read(&[old]), read(&[new]));
        assert_eq!((old.cudagraph_mode, old.capture_sizes()), (Some("FULL_AND_PIECEWISE"), vec![1, 2, 4, 8]));
        assert_eq!((old.pipeline_parallel_size, old.max_model_len), (Some(3), Some(4096)));
        assert_eq!((old.enforce_eager, new.enforce_eager), (Some(false), Some(true)));
        assert_eq!((new.cudagraph_mode, new.capture_sizes()), (Some("PIECEWISE"), vec![1, 2]));
    }

    #[test]
    fn blocks_that_are_not_logged_are_vllms_default_with_a_note() {
        let gpu = read(&["[x] GPU KV cache size: 6,400 tokens, Maximum"]);
        assert_eq!(gpu.kv_blocks(), Some(400));
        assert!(gpu.note().unwrap().contains("16 tokens, vLLM's default"), "{gpu:?}");
        let cpu = read(&[
            "[x] CPU KV cache size: 6,400 tokens, Maximum",
            "[y] Overriding num_gpu_blocks=9 with num_gpu_blocks_override=7",
        ]);
        assert_eq!(cpu.kv_blocks(), Some(7));
        let eager = read(&[&ENGINE.replace("[1, 2, 4]", "[]"), "[x] CPU KV cache size: 6,400 tokens, Maximum"]);
        assert!(!eager.note().unwrap().contains("CUDA graphs"), "{eager:?}");
        assert_eq!(read(&["nothing"]), StartUp::default());
        assert!(StartUp::begins(ENGINE) && !StartUp::begins("Initializing"));
    }
}

//! What holds where a server names nothing: the engine's newest version with kernels for the GPU, and its defaults there. Uses `arguments`,
//! `deployment`, `engine`, `hardware`.

use std::collections::BTreeSet;

use crate::arguments::ServedOn;
use crate::default_limits::{TRTLLM_GRAPH_SIZE, sglang_chunk, sglang_graph_size, sglang_static_share};
use crate::deployment::{CudagraphMode, Deployment};
use crate::engine::Engine;
use crate::hardware::Hardware;

use super::fallback_gpus::fallback_gpus;
use super::packed::PackedTable;

/// The engine whose kernels serve on a GPU: `engine` itself if it has a version, else its newest version with kernels of its own for the GPU.
/// A GPU without any takes the newest of the first fallback GPU that has some.
///
/// ```
/// use ridgepoint::{Engine, Hardware, engine_on};
/// let newest = |name| Ok::<_, ridgepoint::Error>(engine_on(&Engine::default(), &Hardware::find(name)?).to_string());
/// assert_eq!((newest("h200")?.as_str(), newest("a100")?.as_str()), ("vllm-0.24", "vllm-0.14"));
/// # Ok::<(), ridgepoint::Error>(())
/// ```
pub fn engine_on(engine: &Engine, hardware: &Hardware) -> Engine {
    if engine.has_version() {
        return engine.clone();
    }
    let newest = |gpu: Option<&str>| {
        let of_gpu = PackedTable::all().filter(|table| gpu.is_none_or(|gpu| table.gpu == gpu));
        let measured = of_gpu.filter_map(|table| Engine::parse(table.engine, None));
        measured.filter(|of| of.has_name_of(engine)).max()
    };
    let mut gpus = std::iter::once(hardware.name.as_str()).chain(fallback_gpus(hardware).iter().copied());
    gpus.find_map(|gpu| newest(Some(gpu))).or_else(|| newest(None)).unwrap_or_else(|| engine.clone())
}

impl Deployment {
    /// This deployment with the engine's own defaults for the GPU in place of the arguments that are not among those `given`. Without
    /// `max_num_seqs` no more requests run than a step has tokens, as in vLLM.
    ///
    /// ```
    /// use ridgepoint::{Deployment, Engine, Hardware};
    /// let limits = |gpu: &str| {
    ///     let served = Deployment::default().on(&[].into(), &Engine::default(), &Hardware::find(gpu)?);
    ///     Ok::<_, ridgepoint::Error>((served.max_num_seqs, served.max_num_batched_tokens))
    /// };
    /// assert_eq!((limits("h100")?, limits("a100")?, limits("l40s")?), ((1024, 8192), (256, 2048), (256, 2048)));
    /// # Ok::<(), ridgepoint::Error>(())
    /// ```
    #[must_use]
    pub fn on(self, given: &BTreeSet<String>, engine: &Engine, hardware: &Hardware) -> Self {
        let on = ServedOn { engine: &engine_on(engine, hardware), hardware };
        let mut served = self.with_ruled_defaults(given, &on, &mut Vec::new());
        if !given.contains("max_num_seqs") {
            served.max_num_seqs = served.max_num_seqs.min(served.max_num_batched_tokens);
        }
        if on.engine.is_sglang() {
            served.take_sglang_limits(given, hardware, sglang_chunk(hardware));
        } else if on.engine.is_trtllm() {
            served.take_graph_size(given, TRTLLM_GRAPH_SIZE);
        }
        served
    }

    /// Takes the largest graph where none is given and graphs are captured.
    fn take_graph_size(&mut self, given: &BTreeSet<String>, size: u32) {
        let is_given =
            ["max_cudagraph_capture_size", "cudagraph_capture_sizes"].iter().any(|name| given.contains(*name));
        let captures = !self.enforce_eager && self.cudagraph_mode != Some(CudagraphMode::None);
        if captures && !is_given {
            self.max_cudagraph_capture_size = Some(size);
        }
    }

    /// Sets SGLang's defaults of the largest CUDA graph and of `gpu_memory_utilization`, unless they were `given`. They depend on the GPU,
    /// the parallel sizes and the tokens of a `chunk`.
    pub fn take_sglang_limits(&mut self, given: &BTreeSet<String>, hardware: &Hardware, chunk: u32) {
        let graph = sglang_graph_size(hardware, self.tensor_parallel_size);
        self.take_graph_size(given, graph);
        if !given.contains("gpu_memory_utilization") {
            let gpus = u64::from(self.tensor_parallel_size) * u64::from(self.pipeline_parallel_size);
            let graph = self.max_cudagraph_capture_size.unwrap_or(graph);
            self.gpu_memory_utilization = sglang_static_share(hardware, chunk, graph, gpus);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gpu_without_kernels_of_the_engine_takes_those_of_the_nearest_that_has_them() {
        let newest = |gpu: &str, engine: &str| {
            engine_on(&Engine::parse(engine, None).unwrap(), &Hardware::find(gpu).unwrap()).to_string()
        };
        assert_eq!(newest("b200", "vllm"), "vllm-0.24");
        assert_eq!(newest("gb300", "vllm"), "vllm-0.24", "its own tables are SGLang's");
        assert_eq!(newest("a100_sxm_40gb", "vllm"), "vllm-0.14", "as its sister card");
        assert_eq!((newest("b300", "trtllm"), newest("h100", "sglang")), ("trtllm-1.3".into(), "sglang-0.5".into()));
        assert_eq!(newest("h200", "vllm-0.15"), "vllm-0.15", "a version that was named");
    }
}

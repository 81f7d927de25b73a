//! What an engine chooses by the GPU and its version where a server gives nothing. Uses `arguments`, `hardware`, `units`.

use serde_json::Value;

use crate::arguments::ServedOn;
use crate::hardware::{Architecture, Hardware};
use crate::units::GIB;

/// Memory from which vLLM takes a GPU for a large one.
const LARGE_GIB: f64 = 70.0;
/// Memory from which it takes a GPU for a very large one, since [`VERY_LARGE_SINCE`].
const VERY_LARGE_GIB: f64 = 160.0;
/// The first version with limits of its own for very large GPUs.
const VERY_LARGE_SINCE: (u32, u32) = (0, 28);

fn is_large(hardware: &Hardware) -> bool {
    // An A100 of 80 GB has the limits of one of 40.
    hardware.hbm_capacity_bytes >= LARGE_GIB * GIB && !hardware.name.contains("a100")
}

/// The default of `max_num_seqs`.
///
/// # Source
/// vLLM 0.10 to 0.32, `EngineArgs` for an API server (`vllm/engine/arg_utils.py`): 1,024 requests on GPUs from 70 GiB whose name is not an A100's,
/// 256 on others, 128 on a CPU. SGLang 0.5.9 has at least 2,048 places for requests (`model_executor/model_runner.py`), and TensorRT-LLM's
/// `max_batch_size` is 2,048 (`llmapi/llm_args.py`).
pub fn max_num_seqs(on: &ServedOn<'_>) -> Option<Value> {
    if !on.engine.is_vllm() {
        return Some(2048.into());
    }
    Some(match on.hardware.architecture {
        Architecture::Cpu => 128.into(),
        _ if is_large(on.hardware) => 1024.into(),
        _ => 256.into(),
    })
}

/// The default of `host_speed`.
///
/// # Source
/// As [`crate::HostSpeed`]: the one public measurement beside an A100 is of a slow one.
pub fn host_speed(on: &ServedOn<'_>) -> Option<Value> {
    on.hardware.name.contains("a100").then(|| "slow".into())
}

/// The default of `gpu_memory_utilization`.
///
/// # Source
/// vLLM, `CacheConfig` (`vllm/config/cache.py`): 0.92 since 0.20, which counts the memory of CUDA graphs.
pub fn gpu_memory_utilization(on: &ServedOn<'_>) -> Option<Value> {
    (on.engine.vllm_version() >= (0, 20)).then(|| 0.92.into())
}

/// The default of `block_size`.
///
/// # Source
/// TensorRT-LLM 1.2, `KvCacheConfig.tokens_per_block` (`llmapi/llm_args.py`).
pub fn block_size(on: &ServedOn<'_>) -> Option<Value> {
    on.engine.is_trtllm().then(|| 32.into())
}

/// Most decodes of a graph under TensorRT-LLM.
///
/// # Source
/// TensorRT-LLM 1.2, `CudaGraphConfig.max_batch_size` (`llmapi/llm_args.py`).
pub const TRTLLM_GRAPH_SIZE: u32 = 128;

/// Tokens of SGLang's chunks by the GPU's memory.
///
/// # Source
/// SGLang 0.5.9, `ServerArgs._handle_gpu_memory_settings` (`server_args.py`).
pub fn sglang_chunk(hardware: &Hardware) -> u32 {
    match hardware.hbm_capacity_bytes / GIB {
        gib if gib < 35.0 => 2048,
        gib if gib < 60.0 => 4096,
        gib if gib < 160.0 => 8192,
        _ => 16_384,
    }
}

/// Most decodes of a graph under SGLang, by the GPU's memory and the GPUs that share every layer.
///
/// # Source
/// As [`sglang_chunk`].
pub fn sglang_graph_size(hardware: &Hardware, tensor_parallel_size: u32) -> u32 {
    let [few, many] = match hardware.hbm_capacity_bytes / GIB {
        gib if gib < 20.0 => [8, 8],
        gib if gib < 35.0 => [24, 80],
        gib if gib < 60.0 => [32, 160],
        gib if gib < 160.0 => [256, 512],
        _ => [512, 512],
    };
    if tensor_parallel_size < 4 { few } else { many }
}

/// Share of a GPU's memory for weights and KV cache under SGLang: what is left of it beside a reserve for activations and graphs.
///
/// # Formula
/// `(m − 512 − 1.5·max(chunk, 2048) − 2·graph − tp·pp/8·1024)/m` with `m` MiB of memory, to three digits.
///
/// # Source
/// As [`sglang_chunk`].
pub fn sglang_static_share(hardware: &Hardware, chunk: u32, graph: u32, gpus: u64) -> f64 {
    let memory_mib = hardware.hbm_capacity_bytes / (1024.0 * 1024.0);
    let reserve_mib = 512.0 + 1.5 * f64::from(chunk.max(2048)) + 2.0 * f64::from(graph) + gpus as f64 / 8.0 * 1024.0;
    ((memory_mib - reserve_mib) / memory_mib * 1000.0).round().max(1.0) / 1000.0
}

/// The default of `max_num_batched_tokens`.
///
/// # Source
/// As [`max_num_seqs`]: 8,192 tokens on GPUs from 70 GiB whose name is not an A100's, 2,048 on others and on a CPU; since 0.28 16,384 from 160 GiB.
/// TensorRT-LLM's `max_num_tokens` is 8,192, SGLang's `max_prefill_tokens` 16,384.
pub fn max_num_batched_tokens(on: &ServedOn<'_>) -> Option<Value> {
    if !on.engine.is_vllm() {
        return Some(if on.engine.is_trtllm() { 8192 } else { 16_384 }.into());
    }
    let is_very_large = on.hardware.hbm_capacity_bytes >= VERY_LARGE_GIB * GIB;
    Some(match on.hardware.architecture {
        Architecture::Cpu => 2048.into(),
        _ if is_very_large && on.engine.vllm_version() >= VERY_LARGE_SINCE => 16_384.into(),
        _ if is_large(on.hardware) => 8192.into(),
        _ => 2048.into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deployment::Deployment;
    use crate::engine::Engine;

    fn limits(gpu: &str, version: &str, given: &[(&str, u32)]) -> (u32, u32) {
        let (engine, hardware) = (Engine::parse("vllm", Some(version)).unwrap(), Hardware::find(gpu).unwrap());
        let mut deployment = Deployment::default();
        for (name, value) in given {
            match *name {
                "max_num_seqs" => deployment.max_num_seqs = *value,
                _ => deployment.max_num_batched_tokens = *value,
            }
        }
        let names = given.iter().map(|(name, _)| (*name).to_owned()).collect();
        let served = deployment.on(&names, &engine, &hardware);
        (served.max_num_seqs, served.max_num_batched_tokens)
    }

    #[test]
    fn limits_are_those_of_the_memory_and_of_the_name() {
        for gpu in ["h100", "h100_pcie", "h200", "rtx_pro_6000_server", "h20", "h200_nvl", "gb10"] {
            assert_eq!(limits(gpu, "0.19", &[]), (1024, 8192), "{gpu}");
            assert_eq!(limits(gpu, "0.30", &[]), (1024, 8192), "{gpu}");
        }
        let below_70_gib_or_a100 =
            ["a100", "a100_sxm_40gb", "a100_pcie", "a100_pcie_40gb", "l40s", "rtx_a6000", "rtx_6000_ada"];
        let small = ["l4", "a10", "rtx_3090", "rtx_4090", "rtx_5090", "v100", "v100_sxm_16gb", "t4"];
        for gpu in below_70_gib_or_a100.into_iter().chain(small) {
            assert_eq!(limits(gpu, "0.19", &[]), (256, 2048), "{gpu}");
        }
        assert_eq!([limits("b200", "0.27", &[]), limits("b200", "0.28", &[])], [(1024, 8192), (1024, 16_384)]);
    }

    #[test]
    fn what_was_given_stays_and_bounds_the_rest() {
        assert_eq!(limits("h100", "0.24", &[("max_num_seqs", 8)]), (8, 8192));
        assert_eq!(limits("h100", "0.24", &[("max_num_batched_tokens", 512)]), (512, 512));
        assert_eq!(limits("l40s", "0.24", &[("max_num_batched_tokens", 4096), ("max_num_seqs", 2000)]), (2000, 4096));
    }
}

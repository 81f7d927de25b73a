//! Memory of a GPU that the driver takes, and that an engine allocates besides weights, activations and KV cache. Uses `hardware`.

use crate::deployment::Deployment;
use crate::engine::Engine;
use crate::hardware::Hardware;
use crate::model::Model;
use crate::physics::cuda_graph::{Captures, CudaGraphs};
use crate::units::GIB;

/// Share of a GPU's memory that its driver keeps for itself (assumed). `cudaMemGetInfo` lists 79.1 to 79.3 GiB on an H100 or
/// A100 of 80, 139.8 on an H200 of 141, 178.4 on a B200 of 180: 0.9 to 1.1 %.
const DRIVER_SHARE: f64 = 0.01;

/// Memory of a rank besides weights, activations and KV cache, bytes (assumed): loaded kernels and their stacks, workspaces of
/// cuBLAS, buffers of the sampler, rounding of the allocator. Eleven servers on H100 that report their block counts leave
/// 0.25 to 0.83 GiB for it. NCCL's buffers and CUDA graphs are outside `gpu_memory_utilization` and do not count.
pub const OVERHEAD_BYTES: f64 = 0.6 * GIB;

/// How far the memory of a server may be from that, bytes: half of the spread that those eleven servers leave, and more than the differences
/// between boards of one kind.
pub const OVERHEAD_SPREAD_BYTES: f64 = 0.3 * GIB;

/// The same of a rank that shares every layer's matrices with others, since vLLM 0.16, bytes.
///
/// # Source
/// Accuracy report of llm-d-planner (vLLM 0.19.0 on H100): 2.07 GiB outside of PyTorch with two or four ranks, 0.27 GiB with one.
pub const COLLECTIVES_OVERHEAD_BYTES: f64 = 2.07 * GIB;

/// The first version whose collectives take that much (assumed): servers of 0.15.1 with four ranks report blocks that leave 0.6 GiB, those of
/// 0.19.0 have 2.07, and nothing between was found.
const COLLECTIVES_SINCE: (u32, u32) = (0, 16);

/// The first version that counts its CUDA graphs, for which its default `gpu_memory_utilization` is 0.92 instead of 0.9.
const GRAPHS_COUNT_SINCE: (u32, u32) = (0, 20);

/// Memory of one layer in one captured graph, bytes (assumed; no log of the engine's own estimate is at hand): 0.5 GiB for the 86 graphs of
/// 32 layers.
const GRAPH_LAYER_BYTES: f64 = 0.2 * 1024.0 * 1024.0;

/// Returns the memory of a rank besides weights, activations and KV cache, bytes. Over PCIe it is assumed to be that of NVLink.
pub fn overhead_bytes(model: &Model, deployment: &Deployment, engine: &Engine) -> f64 {
    let has_collectives = deployment.tensor_parallel_size > 1 && engine.vllm_version() >= COLLECTIVES_SINCE;
    let outside_bytes = if has_collectives { COLLECTIVES_OVERHEAD_BYTES } else { OVERHEAD_BYTES };
    if engine.vllm_version() < GRAPHS_COUNT_SINCE {
        return outside_bytes;
    }
    let Captures { piecewise, full } = CudaGraphs::new(deployment, true, engine).captures(deployment.max_num_seqs);
    let layers = model.num_layers() as f64 / f64::from(deployment.pipeline_parallel_size.max(1));
    outside_bytes + (piecewise + full) as f64 * layers * GRAPH_LAYER_BYTES
}

/// Returns the device memory that CUDA reports, bytes: what the GPU's file says that it does, or the datasheet's figure without error
/// correction and driver.
///
/// # Formula
/// `(capacity − ecc)·(1 − DRIVER_SHARE)`, unless `reported_bytes` is given.
///
/// ```
/// use ridgepoint::Hardware;
/// use ridgepoint::kv_capacity::device_memory_bytes;
/// use ridgepoint::units::GIB;
/// assert_eq!(device_memory_bytes(&Hardware::find("h100")?), 79.2 * GIB);
/// assert_eq!(device_memory_bytes(&Hardware::find("l40s")?), 45.0 * GIB * 0.99);
/// # Ok::<(), ridgepoint::Error>(())
/// ```
pub fn device_memory_bytes(hardware: &Hardware) -> f64 {
    let of_datasheet = (hardware.hbm_capacity_bytes - hardware.ecc_bytes.unwrap_or(0.0)) * (1.0 - DRIVER_SHARE);
    hardware.reported_bytes.unwrap_or(of_datasheet)
}

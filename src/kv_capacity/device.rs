//! Memory of a GPU that the driver takes, and that an engine allocates besides weights, activations and KV cache. Uses `hardware`.

use crate::hardware::Hardware;
use crate::units::GIB;

/// Share of a GPU's memory that its driver keeps for itself (assumed). `cudaMemGetInfo` lists 79.1 to 79.3 GiB on an H100 or
/// A100 of 80, 139.8 on an H200 of 141, 178.4 on a B200 of 180: 0.9 to 1.1 %.
const DRIVER_SHARE: f64 = 0.01;

/// Memory of a rank besides weights, activations and KV cache, bytes (assumed): loaded kernels and their stacks, workspaces of
/// cuBLAS, buffers of the sampler, rounding of the allocator. Eleven servers on H100 that report their block counts leave
/// 0.25 to 0.83 GiB for it. NCCL's buffers and CUDA graphs are outside `gpu_memory_utilization` and do not count.
pub const OVERHEAD_BYTES: f64 = 0.6 * GIB;

/// Returns the device memory that CUDA reports, bytes: the datasheet's figure without error correction and driver.
///
/// # Formula
/// `(capacity − ecc)·(1 − DRIVER_SHARE)`.
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
    (hardware.hbm_capacity_bytes - hardware.ecc_bytes.unwrap_or(0.0)) * (1.0 - DRIVER_SHARE)
}

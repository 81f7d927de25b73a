//! The delays of a serving engine other than its step time.

use std::ffi::{c_char, c_int};

use ridgepoint::Request;
use ridgepoint::latency::{CalibratedRoofline, LatencyModel, TransferDirection};

use crate::handle::{RidgepointModel, loaded};
use crate::status::{Failure, RidgepointStatus, guarded};

/// Time from sending a request until the engine can schedule it, µs: network, HTTP, tokenisation of num_prompt_tokens.
///
/// # Safety
/// `out_us` and `error` are NULL or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ridgepoint_queueing_time_us(
    model: *const RidgepointModel,
    num_prompt_tokens: u32,
    out_us: *mut f64,
    error: *mut *mut c_char,
) -> RidgepointStatus {
    let arrival = Request::prefill(num_prompt_tokens, 0);
    // SAFETY: as the caller promises.
    unsafe { answer(model, ("out_us", out_us), error, |latency| Ok(latency.host().queueing_time_us(&arrival))) }
}

/// Time from the end of the step that sampled a token until the client has it, µs. It delays the token, not the engine.
///
/// # Safety
/// `out_us` and `error` are NULL or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ridgepoint_output_token_processing_time_us(
    model: *const RidgepointModel,
    out_us: *mut f64,
    error: *mut *mut c_char,
) -> RidgepointStatus {
    // SAFETY: as the caller promises.
    unsafe { answer(model, ("out_us", out_us), error, |latency| Ok(latency.host().output_token_processing_time_us())) }
}

/// Time of the engine's host thread per step, µs. Asynchronous scheduling hides it behind the previous step.
///
/// # Safety
/// `out_us` and `error` are NULL or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ridgepoint_scheduling_processing_time_us(
    model: *const RidgepointModel,
    out_us: *mut f64,
    error: *mut *mut c_char,
) -> RidgepointStatus {
    // SAFETY: as the caller promises.
    unsafe { answer(model, ("out_us", out_us), error, |latency| Ok(latency.host().scheduling_processing_time_us())) }
}

/// Time of the engine's host thread per preempted request, µs. The recomputed tokens are part of later steps.
///
/// # Safety
/// `out_us` and `error` are NULL or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ridgepoint_preemption_processing_time_us(
    model: *const RidgepointModel,
    out_us: *mut f64,
    error: *mut *mut c_char,
) -> RidgepointStatus {
    // SAFETY: as the caller promises.
    unsafe { answer(model, ("out_us", out_us), error, |latency| Ok(latency.host().preemption_processing_time_us())) }
}

/// Directions in which KV blocks are copied.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RidgepointTransferDirection {
    /// From the GPU to host memory: a store.
    GpuToCpu = 0,
    /// From host memory to the GPU: a load.
    CpuToGpu = 1,
    /// From host memory to a disk: a write.
    CpuToDisk = 2,
    /// From a disk to host memory: a read.
    DiskToCpu = 3,
}

/// Time to copy `bytes` of KV blocks between the GPU and host memory, or between host memory and a disk, while nothing else is copied,
/// µs. The copy runs concurrently with the steps, and a request that loads its blocks waits for it. `direction` is a RidgepointTransferDirection;
/// another number fails, as does a GPU whose link to the host is not known. On several GPUs, `bytes` are those of one, as all copy
/// their shares at the same time; those of a disk are of all GPUs together.
///
/// # Safety
/// `out_us` and `error` are NULL or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ridgepoint_kv_transfer_time_us(
    model: *const RidgepointModel,
    direction: c_int,
    bytes: u64,
    out_us: *mut f64,
    error: *mut *mut c_char,
) -> RidgepointStatus {
    const GPU_TO_CPU: c_int = RidgepointTransferDirection::GpuToCpu as c_int;
    const CPU_TO_GPU: c_int = RidgepointTransferDirection::CpuToGpu as c_int;
    const CPU_TO_DISK: c_int = RidgepointTransferDirection::CpuToDisk as c_int;
    const DISK_TO_CPU: c_int = RidgepointTransferDirection::DiskToCpu as c_int;
    let time_us = |latency: &CalibratedRoofline| {
        let direction = match direction {
            GPU_TO_CPU => TransferDirection::GpuToCpu,
            CPU_TO_GPU => TransferDirection::CpuToGpu,
            CPU_TO_DISK => TransferDirection::CpuToDisk,
            DISK_TO_CPU => TransferDirection::DiskToCpu,
            other => {
                let said = "must be 0 (GPU to CPU), 1 (CPU to GPU), 2 (CPU to disk) or 3 (disk to CPU)";
                return Err(Failure::argument(format!("direction = {other} {said}")));
            }
        };
        Ok(latency.known_kv_transfer_time_us(direction, bytes)?)
    };
    // SAFETY: as the caller promises.
    unsafe { answer(model, ("out_us", out_us), error, time_us) }
}

/// Share of its speed that a direction of copies keeps while the other one copies too, from 0 to 1: that of kv_transfers_json, or else 1.
///
/// # Safety
/// `out_share` and `error` are NULL or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ridgepoint_kv_contention(
    model: *const RidgepointModel,
    out_share: *mut f64,
    error: *mut *mut c_char,
) -> RidgepointStatus {
    let share = |latency: &CalibratedRoofline| Ok(latency.kv_transfers().map_or(1.0, |transfers| transfers.contention));
    // SAFETY: as the caller promises.
    unsafe { answer(model, ("out_share", out_share), error, share) }
}

unsafe fn answer(
    model: *const RidgepointModel,
    (name, out): (&'static str, *mut f64),
    error: *mut *mut c_char,
    delay: impl FnOnce(&CalibratedRoofline) -> Result<f64, Failure>,
) -> RidgepointStatus {
    let predict = || {
        // SAFETY: as the caller promises.
        let loaded = unsafe { loaded(model) }?;
        if out.is_null() {
            return Err(Failure::null(name));
        }
        let value = delay(&loaded.latency)?;
        // SAFETY: not NULL, and as the caller promises.
        unsafe { out.write(value) };
        Ok(())
    };
    // SAFETY: as the caller promises.
    unsafe { guarded(error, predict) }
}

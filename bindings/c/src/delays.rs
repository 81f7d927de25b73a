//! The four delays of a serving engine beside its step time.

use std::ffi::c_char;

use ridgepoint::Request;
use ridgepoint::latency::{CalibratedRoofline, LatencyModel};

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
    unsafe { answer(model, out_us, error, |latency| latency.queueing_time_us(&arrival)) }
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
    unsafe { answer(model, out_us, error, LatencyModel::output_token_processing_time_us) }
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
    unsafe { answer(model, out_us, error, LatencyModel::scheduling_processing_time_us) }
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
    unsafe { answer(model, out_us, error, LatencyModel::preemption_processing_time_us) }
}

unsafe fn answer(
    model: *const RidgepointModel,
    out_us: *mut f64,
    error: *mut *mut c_char,
    delay: impl FnOnce(&CalibratedRoofline) -> f64,
) -> RidgepointStatus {
    let predict = || {
        // SAFETY: as the caller promises.
        let loaded = unsafe { loaded(model) }?;
        if out_us.is_null() {
            return Err(Failure::null("out_us"));
        }
        // SAFETY: not NULL, and as the caller promises.
        unsafe { out_us.write(delay(&loaded.latency)) };
        Ok(())
    };
    // SAFETY: as the caller promises.
    unsafe { guarded(error, predict) }
}

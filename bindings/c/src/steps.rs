//! Step times from columns of requests. Uses `handle`, `status`.

use std::ffi::c_char;

use ridgepoint::RequestColumns;

use crate::handle::{RidgepointModel, loaded};
use crate::status::{Failure, RidgepointStatus, guarded};

/// Maximum number of values of a column that an address space can hold.
const MOST_REQUESTS: usize = isize::MAX as usize / size_of::<u32>();

/// Predicts the time of one engine step on the GPUs, µs. Request i has num_computed_tokens[i] tokens in the KV cache before the
/// step, and num_scheduled_tokens[i] are processed in it (1 for a decode, the chunk for a prefill). samples[i] is 0 if no token
/// is sampled for it, as for all prefill chunks of a prompt but the last. samples may be NULL: all requests sample.
///
/// All columns have num_requests values. A request that schedules nothing is ignored, and a step with nothing to do takes 0 µs.
/// With num_requests = 0 the columns may be NULL. The order of the requests does not matter. Limits of the deployment
/// (max_num_seqs, max_num_batched_tokens, max_model_len) are not checked; ridgepoint_step_json checks them.
///
/// *out_step_time_us is finite and never negative, and unchanged after a failure. Takes no lock and allocates nothing.
///
/// # Safety
/// Columns have num_requests values; `out_step_time_us` and `error` are NULL or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ridgepoint_step_time_us(
    model: *const RidgepointModel,
    num_computed_tokens: *const u32,
    num_scheduled_tokens: *const u32,
    samples: *const u8,
    num_requests: usize,
    out_step_time_us: *mut f64,
    error: *mut *mut c_char,
) -> RidgepointStatus {
    let predict = || {
        // SAFETY: as the caller promises.
        let (loaded, requests) =
            unsafe { (loaded(model)?, columns(num_computed_tokens, num_scheduled_tokens, samples, num_requests)?) };
        if out_step_time_us.is_null() {
            return Err(Failure::null("out_step_time_us"));
        }
        let step_time_us = loaded.steps().step_time_us(&requests);
        // SAFETY: as the caller promises.
        unsafe { out_step_time_us.write(step_time_us) };
        Ok(())
    };
    // SAFETY: as the caller promises.
    unsafe { guarded(error, predict) }
}

/// Predicts the times of many steps, µs. Step i has the requests from offsets[i] up to, but not including, offsets[i + 1] of the
/// columns, and its time goes to out_step_times_us[i]. There are num_steps + 1 ascending offsets, from 0 to num_requests;
/// otherwise the call fails and writes nothing.
///
/// The times are those of ridgepoint_step_time_us, to the bit.
///
/// # Safety
/// offsets has num_steps + 1 values, columns have num_requests, out_step_times_us has room for num_steps; `error` is NULL or may
/// be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ridgepoint_step_times_us(
    model: *const RidgepointModel,
    offsets: *const usize,
    num_steps: usize,
    num_computed_tokens: *const u32,
    num_scheduled_tokens: *const u32,
    samples: *const u8,
    num_requests: usize,
    out_step_times_us: *mut f64,
    error: *mut *mut c_char,
) -> RidgepointStatus {
    let predict = || {
        // SAFETY: as the caller promises.
        let loaded = unsafe { loaded(model) }?;
        if num_steps > MOST_REQUESTS / 2 - 1 {
            return Err(too_many("num_steps", num_steps));
        }
        if offsets.is_null() {
            return Err(Failure::null("offsets"));
        }
        if out_step_times_us.is_null() && num_steps > 0 {
            return Err(Failure::null("out_step_times_us"));
        }
        // SAFETY: not NULL, and as long as the caller promises.
        let offsets = unsafe { std::slice::from_raw_parts(offsets, num_steps + 1) };
        check(offsets, num_requests)?;
        // SAFETY: as the caller promises.
        unsafe { columns(num_computed_tokens, num_scheduled_tokens, samples, num_requests) }?;
        for (step, ends) in offsets.windows(2).enumerate() {
            let (first, past) = (ends[0], ends[1]);
            // SAFETY: `check` saw that first <= past <= num_requests and step < num_steps.
            unsafe {
                let flags = if samples.is_null() { samples } else { samples.add(first) };
                let (computed, scheduled) = if past > first {
                    (num_computed_tokens.add(first), num_scheduled_tokens.add(first))
                } else {
                    (std::ptr::null(), std::ptr::null())
                };
                let requests = columns(computed, scheduled, flags, past - first)?;
                out_step_times_us.add(step).write(loaded.steps().step_time_us(&requests));
            }
        }
        Ok(())
    };
    // SAFETY: as the caller promises.
    unsafe { guarded(error, predict) }
}

fn check(offsets: &[usize], num_requests: usize) -> Result<(), Failure> {
    let (first, last) = (offsets.first().copied().unwrap_or(0), offsets.last().copied().unwrap_or(0));
    if first != 0 {
        return Err(Failure::argument(format!("offsets[0] = {first} must be 0")));
    }
    if let Some(step) = offsets.windows(2).position(|ends| ends[0] > ends[1]) {
        return Err(Failure::argument(format!(
            "offsets[{}] = {} is smaller than offsets[{step}] = {}",
            step + 1,
            offsets.get(step + 1).copied().unwrap_or(0),
            offsets.get(step).copied().unwrap_or(0)
        )));
    }
    if last != num_requests {
        let index = offsets.len().saturating_sub(1);
        return Err(Failure::argument(format!("offsets[{index}] = {last} must be num_requests = {num_requests}")));
    }
    Ok(())
}

/// Wraps the caller's columns.
///
/// # Safety
/// Columns have `num_requests` values and live for `'a`.
#[inline(always)] // Otherwise the result goes through memory, which costs 5 % of a step time.
pub(crate) unsafe fn columns<'a>(
    num_computed_tokens: *const u32,
    num_scheduled_tokens: *const u32,
    samples: *const u8,
    num_requests: usize,
) -> Result<RequestColumns<'a>, Failure> {
    if num_requests == 0 {
        return Ok(RequestColumns::new(&[], &[])?);
    }
    if num_requests > MOST_REQUESTS {
        return Err(too_many("num_requests", num_requests));
    }
    // SAFETY: as the caller promises.
    let (computed, scheduled) = unsafe {
        (
            column("num_computed_tokens", num_computed_tokens, num_requests)?,
            column("num_scheduled_tokens", num_scheduled_tokens, num_requests)?,
        )
    };
    let requests = RequestColumns::new(computed, scheduled)?;
    if samples.is_null() {
        return Ok(requests);
    }
    // SAFETY: as the caller promises.
    Ok(requests.with_sample_bytes(unsafe { std::slice::from_raw_parts(samples, num_requests) })?)
}

#[inline]
unsafe fn column<'a>(what: &str, values: *const u32, len: usize) -> Result<&'a [u32], Failure> {
    if values.is_null() {
        return Err(Failure::null(what));
    }
    if !values.is_aligned() {
        return Err(unaligned(what));
    }
    // SAFETY: as the caller promises.
    Ok(unsafe { std::slice::from_raw_parts(values, len) })
}

#[cold]
#[inline(never)]
fn unaligned(what: &str) -> Failure {
    Failure::argument(format!("{what}: must lie at a multiple of 4 bytes"))
}

#[cold]
#[inline(never)]
fn too_many(what: &str, found: usize) -> Failure {
    Failure::argument(format!("{what} = {found} is more than fits into memory"))
}

//! Descriptions of a step, a model and the library as JSON.

use std::ffi::c_char;

use ridgepoint::correction::CorrectionInfo;
use ridgepoint::latency::{HostTimes, LatencyModel};
use ridgepoint::step_report::{StepReport, Subject};
use ridgepoint::{Deployment, Request};
use serde::Serialize;

use crate::handle::{Loaded, RidgepointModel, loaded};
use crate::owned_text::give;
use crate::status::{Failure, RidgepointStatus, guarded};
use crate::steps::columns;
use crate::text::emptied;

/// Returns a step's breakdown as a JSON object: step_time_us with its 90 % interval from lower_us to upper_us, the roofline's
/// bound_us, total_flops, total_bytes, mfu, mbu, operators, groups, provenance, warnings. The keys are those of
/// `ridgepoint predict-step --format json`. New keys may be added; keys are never renamed or removed.
///
/// Takes the columns of ridgepoint_step_time_us. A step without requests, a request that schedules nothing and a request beyond
/// max_model_len are errors. A step that the engine would split has a warning. The caller frees *out_json with
/// ridgepoint_string_free; it is NULL after a failure.
///
/// # Safety
/// Columns have num_requests values; `out_json` and `error` are NULL or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ridgepoint_step_json(
    model: *const RidgepointModel,
    num_computed_tokens: *const u32,
    num_scheduled_tokens: *const u32,
    samples: *const u8,
    num_requests: usize,
    out_json: *mut *mut c_char,
    error: *mut *mut c_char,
) -> RidgepointStatus {
    let describe = || {
        // SAFETY: as the caller promises.
        let (loaded, requests) = unsafe {
            emptied("out_json", out_json)?;
            (loaded(model)?, columns(num_computed_tokens, num_scheduled_tokens, samples, num_requests)?)
        };
        let requests: Vec<Request> = requests.iter().collect();
        let step = loaded.steps().estimate(&requests)?;
        let subject = Subject {
            model: &loaded.model,
            hardware: &loaded.hardware,
            deployment: &loaded.deployment,
            serving_engine: loaded.steps().engine(),
            efficiency: loaded.efficiency,
            correction: CorrectionInfo::of(loaded.correction()),
        };
        // SAFETY: not NULL, as `emptied` saw.
        unsafe { write(out_json, &StepReport::new(subject, &step, &[])) }
    };
    // SAFETY: as the caller promises.
    unsafe { guarded(error, describe) }
}

/// Describes a model as a JSON object: model, hardware, deployment, correction, host (delays of the host), notes (assumptions
/// about the model, the deployment and the tables). The caller frees *out_json with ridgepoint_string_free; it is NULL after a
/// failure.
///
/// # Safety
/// `out_json` and `error` are NULL or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ridgepoint_model_json(
    model: *const RidgepointModel,
    out_json: *mut *mut c_char,
    error: *mut *mut c_char,
) -> RidgepointStatus {
    let describe = || {
        // SAFETY: as the caller promises; `out_json` is not NULL, as `emptied` saw.
        unsafe {
            emptied("out_json", out_json)?;
            write(out_json, &Description::of(loaded(model)?))
        }
    };
    // SAFETY: as the caller promises.
    unsafe { guarded(error, describe) }
}

/// Lists the built-in names as a JSON object with the lists models and hardware. The caller frees *out_json with
/// ridgepoint_string_free; it is NULL after a failure.
///
/// # Safety
/// `out_json` and `error` are NULL or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ridgepoint_catalogue_json(
    out_json: *mut *mut c_char,
    error: *mut *mut c_char,
) -> RidgepointStatus {
    let describe = || {
        let (models, hardware) = (ridgepoint::model::builtin_names(), ridgepoint::hardware::builtin_names());
        // SAFETY: as the caller promises; `out_json` is not NULL, as `emptied` saw.
        unsafe {
            emptied("out_json", out_json)?;
            write(out_json, &serde_json::json!({"models": models, "hardware": hardware}))
        }
    };
    // SAFETY: as the caller promises.
    unsafe { guarded(error, describe) }
}

#[derive(Serialize)]
struct Description<'a> {
    model: &'a str,
    hardware: &'a str,
    deployment: &'a Deployment,
    correction: CorrectionInfo,
    host: HostTimes,
    notes: Vec<String>,
}

impl<'a> Description<'a> {
    fn of(loaded: &'a Loaded) -> Self {
        let steps = loaded.steps();
        Description {
            model: &loaded.model,
            hardware: &loaded.hardware,
            deployment: &loaded.deployment,
            correction: CorrectionInfo::of(loaded.correction()),
            host: loaded.latency.host(),
            notes: steps.notes(),
        }
    }
}

/// # Safety
/// `out_json` may be written to.
unsafe fn write(out_json: *mut *mut c_char, value: &impl Serialize) -> Result<(), Failure> {
    let json = serde_json::to_string(value).map_err(|error| {
        Failure::new(RidgepointStatus::Internal, format!("the result can't be written as JSON: {error}"))
    })?;
    // SAFETY: as the caller promises.
    unsafe { out_json.write(give(json)) };
    Ok(())
}

//! The handle of a model.
//!
//! The handle itself, a few words, is never deallocated. A call on a freed model therefore finds its mark and fails, instead
//! of reading memory that has been reused.

use std::sync::Mutex;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use ridgepoint::latency::CalibratedRoofline;
use ridgepoint::{Correction, Deployment, EfficiencyMode, StepModel};

use crate::status::{Failure, RidgepointStatus};

const ALIVE: u64 = 0x7269_6467_6570_6f69;
const FREED: u64 = 0x6672_6565_645f_5f5f;

/// A model on a GPU in a deployment. It is immutable, so any number of threads may use it at once. Calls take no lock, and step
/// times allocate nothing.
///
/// Created by ridgepoint_model_create, freed by ridgepoint_model_free.
pub struct RidgepointModel {
    state: AtomicU64,
    loaded: AtomicPtr<Loaded>,
}

/// The data behind a handle.
pub(crate) struct Loaded {
    pub(crate) latency: CalibratedRoofline,
    pub(crate) model: String,
    pub(crate) hardware: String,
    pub(crate) deployment: Deployment,
    pub(crate) efficiency: EfficiencyMode,
}

impl Loaded {
    pub(crate) fn steps(&self) -> &StepModel {
        self.latency.steps()
    }

    pub(crate) fn correction(&self) -> Option<&Correction> {
        self.steps().correction()
    }
}

/// Handles of freed models. They stay reachable, so that leak checkers do not report them.
static FREED_HANDLES: Mutex<Vec<&'static RidgepointModel>> = Mutex::new(Vec::new());

impl RidgepointModel {
    pub(crate) fn new(loaded: Loaded) -> *mut RidgepointModel {
        let loaded = AtomicPtr::new(Box::into_raw(Box::new(loaded)));
        Box::into_raw(Box::new(RidgepointModel { state: AtomicU64::new(ALIVE), loaded }))
    }
}

/// Returns the handle behind the caller's pointer.
///
/// # Safety
/// `model` is NULL or came from [`RidgepointModel::new`].
#[inline]
unsafe fn handle(model: *const RidgepointModel) -> Result<&'static RidgepointModel, Failure> {
    if model.is_null() {
        return Err(Failure::null("model"));
    }
    if !model.is_aligned() {
        return Err(invalid());
    }
    // SAFETY: handles stay where they are for as long as the program runs.
    Ok(unsafe { &*model })
}

#[cold]
#[inline(never)]
fn invalid() -> Failure {
    Failure::new(RidgepointStatus::InvalidHandle, "model: is already freed, or was never a model")
}

/// Returns the data behind the caller's pointer.
///
/// # Safety
/// `model` is NULL or came from [`RidgepointModel::new`], and nobody frees it during `'a`.
#[inline]
pub(crate) unsafe fn loaded<'a>(model: *const RidgepointModel) -> Result<&'a Loaded, Failure> {
    // SAFETY: as the caller promises.
    let handle = unsafe { handle(model) }?;
    if handle.state.load(Ordering::Acquire) != ALIVE {
        return Err(invalid());
    }
    // SAFETY: alive, so the pointer is that of `new`.
    unsafe { handle.loaded.load(Ordering::Acquire).as_ref() }.ok_or_else(invalid)
}

/// Frees a model. NULL is allowed.
///
/// A call on a model that is already freed, here and in all functions, returns RIDGEPOINT_STATUS_INVALID_HANDLE. The few words
/// of the handle stay allocated for this check. Freeing a model while another thread uses it is undefined behaviour, as is
/// passing a pointer that was never a model.
///
/// # Safety
/// `model` is NULL or came from ridgepoint_model_create, and no thread is in a call on it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ridgepoint_model_free(model: *mut RidgepointModel) -> RidgepointStatus {
    let free = || {
        if model.is_null() {
            return Ok(());
        }
        // SAFETY: as the caller promises.
        let handle = unsafe { handle(model) }?;
        if handle.state.compare_exchange(ALIVE, FREED, Ordering::AcqRel, Ordering::Acquire).is_err() {
            return Err(invalid());
        }
        let loaded = handle.loaded.swap(std::ptr::null_mut(), Ordering::AcqRel);
        if let Ok(mut freed) = FREED_HANDLES.lock() {
            freed.push(handle);
        }
        // SAFETY: `new` made it, and only the thread that changed the state gets here.
        drop(unsafe { Box::from_raw(loaded) });
        Ok(())
    };
    // SAFETY: NULL asks for no text.
    unsafe { crate::status::guarded(std::ptr::null_mut(), free) }
}

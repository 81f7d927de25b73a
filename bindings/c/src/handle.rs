//! The model that callers hold. Uses `status`.
//!
//! The handle itself, a few words, is never given back to the allocator: a call on a freed model finds it marked as such and
//! fails, instead of reading memory that belongs to somebody else by then.

use std::sync::Mutex;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use ridgepoint::internals::correction::Correction;
use ridgepoint::internals::efficiency::EfficiencyMode;
use ridgepoint::latency::CalibratedRoofline;
use ridgepoint::{Deployment, StepModel};

use crate::status::{Failure, RidgepointStatus};

const ALIVE: u64 = 0x7269_6467_6570_6f69;
const FREED: u64 = 0x6672_6565_645f_5f5f;

/// A model on a GPU in a deployment, compiled. It never changes, so any number of threads may ask it at once; calls on it take no
/// lock and step times allocate nothing.
///
/// Made by ridgepoint_model_create, freed by ridgepoint_model_free.
pub struct RidgepointModel {
    state: AtomicU64,
    loaded: AtomicPtr<Loaded>,
}

/// What is behind a handle.
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

/// Handles of freed models, so that leak checkers see that they are meant to stay.
static FREED_HANDLES: Mutex<Vec<&'static RidgepointModel>> = Mutex::new(Vec::new());

impl RidgepointModel {
    pub(crate) fn new(loaded: Loaded) -> *mut RidgepointModel {
        let loaded = AtomicPtr::new(Box::into_raw(Box::new(loaded)));
        Box::into_raw(Box::new(RidgepointModel { state: AtomicU64::new(ALIVE), loaded }))
    }
}

/// The handle behind the caller's pointer.
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
    Failure::new(RidgepointStatus::InvalidHandle, "model: is freed already, or never was a model")
}

/// What is behind the caller's pointer.
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

/// Frees a model; NULL is fine.
///
/// A model that is freed already is left alone, and RIDGEPOINT_STATUS_INVALID_HANDLE says so; so do all other functions. This is
/// checked with the few words of the handle, which stay allocated. To free a model while another thread is in a call on it is
/// undefined, as is a pointer that never was a model.
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

//! The outcome of a call: a status and an error text. Panics become errors.

use ridgepoint::{Error, ErrorKind};
use std::any::Any;
use std::ffi::{c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::owned_text::give;

/// The outcome of a call.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RidgepointStatus {
    /// Success.
    Ok = 0,
    /// A pointer is NULL that must not be.
    NullPointer = 1,
    /// A text is not UTF-8.
    InvalidUtf8 = 2,
    /// A value is out of range, or lengths do not match.
    InvalidArgument = 3,
    /// No model or GPU has this name.
    UnknownName = 4,
    /// A configuration or a file is malformed or inconsistent; the error text lists its problems.
    InvalidInput = 5,
    /// A file cannot be read.
    Io = 6,
    /// The model is already freed, or was never a model.
    InvalidHandle = 7,
    /// A defect of the library; please report it with the error text.
    Internal = 8,
}

impl RidgepointStatus {
    const ALL: [RidgepointStatus; 9] = [
        RidgepointStatus::Ok,
        RidgepointStatus::NullPointer,
        RidgepointStatus::InvalidUtf8,
        RidgepointStatus::InvalidArgument,
        RidgepointStatus::UnknownName,
        RidgepointStatus::InvalidInput,
        RidgepointStatus::Io,
        RidgepointStatus::InvalidHandle,
        RidgepointStatus::Internal,
    ];

    fn text(self) -> &'static std::ffi::CStr {
        match self {
            RidgepointStatus::Ok => c"ok",
            RidgepointStatus::NullPointer => c"a pointer is NULL that must not be",
            RidgepointStatus::InvalidUtf8 => c"a text is not UTF-8",
            RidgepointStatus::InvalidArgument => c"a value is out of range or lengths do not match",
            RidgepointStatus::UnknownName => c"no model or GPU has this name",
            RidgepointStatus::InvalidInput => c"a configuration or a file is malformed or inconsistent",
            RidgepointStatus::Io => c"a file cannot be read",
            RidgepointStatus::InvalidHandle => c"the model is already freed, or was never a model",
            RidgepointStatus::Internal => c"a defect of the library",
        }
    }
}

/// Describes a status in a few words, for callers that passed no error text. The text is static and must not be freed.
#[unsafe(no_mangle)]
pub extern "C" fn ridgepoint_status_text(status: c_int) -> *const c_char {
    let known = RidgepointStatus::ALL.into_iter().find(|known| *known as c_int == status);
    known.map_or(c"no status of this library", RidgepointStatus::text).as_ptr()
}

/// The error of a call.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) status: RidgepointStatus,
    pub(crate) message: String,
}

impl Failure {
    #[cold]
    pub(crate) fn new(status: RidgepointStatus, message: impl Into<String>) -> Self {
        Failure { status, message: message.into() }
    }

    #[cold]
    #[inline(never)]
    pub(crate) fn null(what: &str) -> Self {
        Failure::new(RidgepointStatus::NullPointer, format!("{what} is NULL"))
    }

    #[cold]
    pub(crate) fn argument(message: impl Into<String>) -> Self {
        Failure::new(RidgepointStatus::InvalidArgument, message)
    }
}

impl From<Error> for Failure {
    #[cold]
    fn from(error: Error) -> Self {
        let status = match error.kind() {
            ErrorKind::Io => RidgepointStatus::Io,
            ErrorKind::UnknownModel | ErrorKind::UnknownHardware => RidgepointStatus::UnknownName,
            ErrorKind::EmptyStep | ErrorKind::InvalidRequest | ErrorKind::InvalidArgument => {
                RidgepointStatus::InvalidArgument
            }
            _ => RidgepointStatus::InvalidInput,
        };
        Failure::new(status, error.to_string())
    }
}

/// Does `work`; a failure or a panic becomes a status, and a text where `error` asks for one.
///
/// # Safety
/// `error` is NULL or may be written to.
#[inline]
pub(crate) unsafe fn guarded(error: *mut *mut c_char, work: impl FnOnce() -> Result<(), Failure>) -> RidgepointStatus {
    let failure = match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(())) => {
            if !error.is_null() {
                // SAFETY: as the caller promises.
                unsafe { error.write(std::ptr::null_mut()) };
            }
            return RidgepointStatus::Ok;
        }
        Ok(Err(failure)) => failure,
        Err(payload) => panicked(payload),
    };
    // SAFETY: as the caller promises.
    unsafe { reported(error, failure) }
}

#[cold]
fn panicked(payload: Box<dyn Any + Send>) -> Failure {
    let said = payload.downcast_ref::<&str>().copied();
    let said = said.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message");
    let failure = Failure::new(RidgepointStatus::Internal, format!("internal error: {said}; please report it"));
    // Dropping a payload can panic in its turn.
    std::mem::forget(payload);
    failure
}

#[cold]
unsafe fn reported(error: *mut *mut c_char, failure: Failure) -> RidgepointStatus {
    if !error.is_null() {
        // SAFETY: as the caller promises.
        unsafe { error.write(give(failure.message)) };
    }
    failure.status
}

//! Texts of the caller, and the end of those that it owns.

use std::ffi::{CStr, CString, c_char};

use crate::status::{Failure, RidgepointStatus};

/// Returns the library's version, such as "0.1.0". The text is static and must not be freed.
#[unsafe(no_mangle)]
pub extern "C" fn ridgepoint_version() -> *const c_char {
    const VERSION: &CStr = match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
        Ok(version) => version,
        Err(_) => c"",
    };
    VERSION.as_ptr()
}

/// Frees a text of this library: an error text or JSON. NULL is allowed.
///
/// # Safety
/// `text` is NULL or came from this library and was not freed before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ridgepoint_string_free(text: *mut c_char) {
    if !text.is_null() {
        // SAFETY: `give` made it, and the caller frees it once.
        drop(unsafe { CString::from_raw(text) });
    }
}

/// Reads the caller's text `what`. Returns `None` for NULL.
///
/// # Safety
/// `text` is NULL or ends with a zero byte, and lives for `'a`.
pub(crate) unsafe fn optional<'a>(what: &str, text: *const c_char) -> Result<Option<&'a str>, Failure> {
    if text.is_null() {
        return Ok(None);
    }
    // SAFETY: as the caller promises.
    let bytes = unsafe { CStr::from_ptr(text) };
    match bytes.to_str() {
        Ok(text) => Ok(Some(text)),
        Err(error) => Err(Failure::new(
            RidgepointStatus::InvalidUtf8,
            format!("{what} '{}' is not UTF-8 from byte {} on", cut(&bytes.to_string_lossy()), error.valid_up_to()),
        )),
    }
}

/// Reads the caller's text `what`, which must not be NULL.
///
/// # Safety
/// As [`optional`].
pub(crate) unsafe fn required<'a>(what: &str, text: *const c_char) -> Result<&'a str, Failure> {
    // SAFETY: as the caller promises.
    unsafe { optional(what, text) }?.ok_or_else(|| Failure::null(what))
}

fn cut(text: &str) -> String {
    text.chars().take(60).collect()
}

/// Sets the output `what` to NULL.
///
/// # Safety
/// `out` is NULL or may be written to.
pub(crate) unsafe fn emptied<T>(what: &str, out: *mut *mut T) -> Result<(), Failure> {
    if out.is_null() {
        return Err(Failure::null(what));
    }
    // SAFETY: as the caller promises.
    unsafe { out.write(std::ptr::null_mut()) };
    Ok(())
}

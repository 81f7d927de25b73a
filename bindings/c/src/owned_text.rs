//! Texts that the caller owns and frees with [`crate::ridgepoint_string_free`].

use std::ffi::{CString, c_char};

/// Hands a text over to the caller.
pub(crate) fn give(text: String) -> *mut c_char {
    // A zero byte would end the text early for C.
    let text = if text.contains('\0') { text.replace('\0', "\u{fffd}") } else { text };
    CString::new(text).unwrap_or_default().into_raw()
}

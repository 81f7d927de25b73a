//! The extern functions, called as C calls them.
#![allow(clippy::undocumented_unsafe_blocks, clippy::float_cmp)]

mod bad_input;
mod handles;
mod options;
mod steps;

use std::ffi::{CStr, CString, c_char};
use std::ptr::{null, null_mut};

use crate::{RidgepointModel, RidgepointOptions, RidgepointStatus, ridgepoint_model_create, ridgepoint_string_free};

/// What a call says when it fails.
type CallResult = Result<(), (RidgepointStatus, String)>;

/// Calls with a place for an error text, and takes the text.
fn said(call: impl FnOnce(*mut *mut c_char) -> RidgepointStatus) -> CallResult {
    let mut error: *mut c_char = null_mut();
    let status = call(&raw mut error);
    match (status, taken(error)) {
        (RidgepointStatus::Ok, None) => Ok(()),
        (status, Some(text)) if status != RidgepointStatus::Ok => Err((status, text)),
        other => panic!("a status and a text that don't belong together: {other:?}"),
    }
}

/// A text of the library's, freed.
fn taken(text: *mut c_char) -> Option<String> {
    if text.is_null() {
        return None;
    }
    let owned = unsafe { CStr::from_ptr(text) }.to_str().unwrap().to_owned();
    unsafe { ridgepoint_string_free(text) };
    Some(owned)
}

fn no_options() -> RidgepointOptions {
    RidgepointOptions {
        struct_size: size_of::<RidgepointOptions>(),
        deployment_json: null(),
        correction: null(),
        efficiency: null(),
        data_dir: null(),
        model_config_json: null(),
        model_quant_config_json: null(),
        model_generation_config_json: null(),
        hardware_toml: null(),
        kv_transfers_json: null(),
    }
}

fn created(
    model: &str,
    hardware: &str,
    options: *const RidgepointOptions,
) -> Result<*mut RidgepointModel, (RidgepointStatus, String)> {
    let (model, hardware) = (CString::new(model).unwrap(), CString::new(hardware).unwrap());
    let mut out = std::ptr::dangling_mut::<RidgepointModel>();
    let said = said(|error| unsafe {
        ridgepoint_model_create(model.as_ptr(), hardware.as_ptr(), options, &raw mut out, error)
    });
    assert_eq!(out.is_null(), said.is_err());
    said.map(|()| out)
}

fn llama_8b() -> *mut RidgepointModel {
    created("llama-3.1-8b", "h100", null()).unwrap()
}

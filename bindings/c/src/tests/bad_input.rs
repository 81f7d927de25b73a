//! What is wrong ends in a status and a text that names it.

use std::ptr::{null, null_mut};

use super::{CallResult, created, llama_8b, no_options, said};
use crate::RidgepointStatus as Status;
use crate::status::guarded;
use crate::*;

fn refused(said: CallResult, status: Status, words: &[&str]) {
    let (found, text) = said.unwrap_err();
    assert_eq!(found, status, "{text}");
    for word in words {
        assert!(text.contains(word), "'{word}' is not in: {text}");
    }
}

#[test]
fn every_pointer_that_is_needed_may_be_null_and_is_named() {
    let model = llama_8b();
    let (values, mut us, mut text, mut made) = ([1u32; 2], 7.0f64, null_mut(), null_mut());
    let (ones, out, none) = (values.as_ptr(), &raw mut us, null());
    let step = |model, computed, scheduled, out| {
        said(|e| unsafe { ridgepoint_step_time_us(model, computed, scheduled, null(), 2, out, e) })
    };
    refused(step(null(), ones, ones, out), Status::NullPointer, &["model is NULL"]);
    refused(step(model, none, ones, out), Status::NullPointer, &["num_computed_tokens is NULL"]);
    refused(step(model, ones, none, out), Status::NullPointer, &["num_scheduled_tokens is NULL"]);
    refused(step(model, ones, ones, null_mut()), Status::NullPointer, &["out_step_time_us is NULL"]);
    assert_eq!(us, 7.0, "a failure writes nothing");

    let offsets = [0usize, 2];
    let steps =
        |offsets, out| said(|e| unsafe { ridgepoint_step_times_us(model, offsets, 1, ones, ones, null(), 2, out, e) });
    refused(steps(null(), out), Status::NullPointer, &["offsets is NULL"]);
    refused(steps(offsets.as_ptr(), null_mut()), Status::NullPointer, &["out_step_times_us is NULL"]);

    let json = |out| said(|e| unsafe { ridgepoint_step_json(model, ones, ones, null(), 2, out, e) });
    refused(json(null_mut()), Status::NullPointer, &["out_json is NULL"]);
    refused(
        said(|e| unsafe { ridgepoint_model_json(null(), &raw mut text, e) }),
        Status::NullPointer,
        &["model is NULL"],
    );
    refused(said(|e| unsafe { ridgepoint_catalogue_json(null_mut(), e) }), Status::NullPointer, &["out_json is NULL"]);
    refused(
        said(|e| unsafe { ridgepoint_queueing_time_us(model, 1, null_mut(), e) }),
        Status::NullPointer,
        &["out_us"],
    );

    let (name, gpu) = (c"llama-3.1-8b".as_ptr(), c"h100".as_ptr());
    let create = |name, gpu, out| said(|e| unsafe { ridgepoint_model_create(name, gpu, null(), out, e) });
    refused(create(null(), gpu, &raw mut made), Status::NullPointer, &["model is NULL"]);
    refused(create(name, null(), &raw mut made), Status::NullPointer, &["hardware is NULL"]);
    refused(create(name, gpu, null_mut()), Status::NullPointer, &["out_model is NULL"]);

    unsafe {
        assert_eq!(ridgepoint_step_time_us(null(), ones, ones, null(), 2, out, null_mut()), Status::NullPointer);
        ridgepoint_string_free(null_mut());
        assert_eq!(ridgepoint_model_free(null_mut()), Status::Ok);
        ridgepoint_model_free(model);
    }
}

#[test]
fn directions_that_are_none_and_gpus_without_a_link_are_refused() {
    let (model, mut us) = (llama_8b(), 7.0);
    let copy =
        |model, direction: i32, out| said(|e| unsafe { ridgepoint_kv_transfer_time_us(model, direction, 9, out, e) });
    for direction in [4, -1, i32::MAX] {
        let words = format!("direction = {direction} must be 0 (GPU to CPU), 1 (CPU to GPU), 2 (CPU to disk) or 3");
        refused(copy(model, direction, &raw mut us), Status::InvalidArgument, &[&words]);
    }
    refused(copy(model, 1, null_mut()), Status::NullPointer, &["out_us is NULL"]);
    refused(copy(null(), 1, &raw mut us), Status::NullPointer, &["model is NULL"]);
    unsafe { ridgepoint_model_free(model) };

    let h100 = include_str!("../../../../hardware/h100_sxm.toml");
    let toml = std::ffi::CString::new(h100.split("[host_link]").next().unwrap()).unwrap();
    let options = RidgepointOptions { hardware_toml: toml.as_ptr(), ..no_options() };
    let model = created("llama-3.1-8b", "mine", &raw const options).unwrap();
    refused(copy(model, 1, &raw mut us), Status::InvalidInput, &["the GPU", "host_link", "its file"]);
    assert_eq!(us, 7.0, "a failure writes nothing");
    unsafe { ridgepoint_model_free(model) };
}

#[test]
fn no_requests_need_no_columns() {
    let (model, mut us) = (llama_8b(), f64::NAN);
    said(|e| unsafe { ridgepoint_step_time_us(model, null(), null(), null(), 0, &raw mut us, e) }).unwrap();
    assert_eq!(us, 0.0);
    let offsets = [0usize, 0];
    us = f64::NAN;
    said(|e| unsafe {
        ridgepoint_step_times_us(model, offsets.as_ptr(), 1, null(), null(), null(), 0, &raw mut us, e)
    })
    .unwrap();
    assert_eq!(us, 0.0);
    said(|e| unsafe { ridgepoint_step_times_us(model, offsets.as_ptr(), 0, null(), null(), null(), 0, null_mut(), e) })
        .unwrap();
    unsafe { ridgepoint_model_free(model) };
}

#[test]
fn offsets_and_lengths_that_do_not_fit_are_refused_before_anything_is_written() {
    let model = llama_8b();
    let ones = [1u32; 4];
    let mut times = [7.0f64; 3];
    let mut steps = |offsets: [usize; 4], num_requests: usize| {
        let out = times.as_mut_ptr();
        let said = said(|e| unsafe {
            let column = ones.as_ptr();
            ridgepoint_step_times_us(model, offsets.as_ptr(), 3, column, column, null(), num_requests, out, e)
        });
        assert_eq!(times, [7.0; 3]);
        said
    };
    refused(steps([1, 2, 3, 4], 4), Status::InvalidArgument, &["offsets[0] = 1 must be 0"]);
    refused(steps([0, 3, 2, 4], 4), Status::InvalidArgument, &["offsets[2] = 2 is smaller than offsets[1] = 3"]);
    refused(steps([0, 1, 2, 3], 4), Status::InvalidArgument, &["offsets[3] = 3 must be num_requests = 4"]);
    refused(steps([0, 1, 2, usize::MAX], 4), Status::InvalidArgument, &["must be num_requests = 4"]);
    let whole = [0, 0, 0, usize::MAX];
    refused(steps(whole, usize::MAX), Status::InvalidArgument, &["more than fits into memory"]);

    let mut us = 7.0;
    let long = said(|e| unsafe {
        ridgepoint_step_time_us(model, ones.as_ptr(), ones.as_ptr(), null(), usize::MAX / 4, &raw mut us, e)
    });
    refused(long, Status::InvalidArgument, &["num_requests = 4611686018427387903"]);
    let askew = ones.as_ptr().cast::<u8>().wrapping_add(1).cast::<u32>();
    let askew = said(|e| unsafe { ridgepoint_step_time_us(model, askew, ones.as_ptr(), null(), 2, &raw mut us, e) });
    refused(askew, Status::InvalidArgument, &["num_computed_tokens", "multiple of 4 bytes"]);
    unsafe { ridgepoint_model_free(model) };
}

#[test]
fn a_breakdown_refuses_steps_that_no_engine_runs() {
    let model = llama_8b();
    let json = |computed: &[u32], scheduled: &[u32]| {
        let mut text = std::ptr::dangling_mut();
        let said = said(|e| unsafe {
            let len = computed.len();
            ridgepoint_step_json(model, computed.as_ptr(), scheduled.as_ptr(), null(), len, &raw mut text, e)
        });
        assert!(text.is_null());
        said
    };
    refused(json(&[], &[]), Status::InvalidArgument, &["no requests"]);
    refused(json(&[5, 5], &[1, 0]), Status::InvalidArgument, &["request 1", "num_scheduled_tokens = 0"]);
    refused(json(&[u32::MAX], &[u32::MAX]), Status::InvalidArgument, &["request 0"]);
    unsafe { ridgepoint_model_free(model) };
}

#[test]
fn the_largest_counts_give_a_finite_time() {
    let (model, mut us) = (llama_8b(), f64::NAN);
    let most = [u32::MAX; 3];
    said(|e| unsafe { ridgepoint_step_time_us(model, most.as_ptr(), most.as_ptr(), null(), 3, &raw mut us, e) })
        .unwrap();
    assert!(us.is_finite() && us > 0.0, "{us}");
    unsafe { ridgepoint_model_free(model) };
}

#[test]
fn unknown_names_and_texts_that_are_none_are_refused() {
    let unknown = |model, hardware| created(model, hardware, null()).map(|_| ());
    refused(unknown("llama-3.1-8c", "h100"), Status::UnknownName, &["llama-3.1-8c", "did you mean llama-3.1-8b"]);
    refused(unknown("llama-3.1-8b", "h1000"), Status::UnknownName, &["h1000"]);
    refused(unknown("/nowhere/config.json", "h100"), Status::Io, &["/nowhere/config.json"]);
    refused(unknown("", ""), Status::UnknownName, &[]);

    let mut made = null_mut();
    let latin = c"llama\xff".as_ptr();
    let create = said(|e| unsafe { ridgepoint_model_create(latin, c"h100".as_ptr(), null(), &raw mut made, e) });
    refused(create, Status::InvalidUtf8, &["model", "from byte 5 on"]);
    let options = RidgepointOptions { correction: c"\xfe".as_ptr(), ..no_options() };
    refused(
        created("llama-3.1-8b", "h100", &raw const options).map(|_| ()),
        Status::InvalidUtf8,
        &["options.correction"],
    );
}

#[test]
fn a_panic_becomes_a_status() {
    let quiet = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let said = said(|error| unsafe { guarded(error, || panic!("the {}th wheel", 5)) });
    std::panic::set_hook(quiet);
    refused(said, Status::Internal, &["internal error: the 5th wheel", "report"]);
}

#[test]
fn every_number_has_words() {
    let words = |status| unsafe { std::ffi::CStr::from_ptr(ridgepoint_status_text(status)) }.to_str().unwrap();
    assert_eq!((words(0), words(4)), ("ok", "no model or GPU has this name"));
    assert_eq!((words(-1), words(9)), ("no status of this library", "no status of this library"));
}

//! Models that are freed, and models that many threads ask.

use std::ptr::{null, null_mut};

use super::{llama_8b, said};
use crate::RidgepointStatus as Status;
use crate::*;

/// A pointer that threads may share, as C's are.
#[derive(Clone, Copy)]
struct Shared(*const RidgepointModel);
unsafe impl Send for Shared {}
unsafe impl Sync for Shared {}

#[test]
fn a_freed_model_is_refused_by_every_function() {
    let model = llama_8b();
    unsafe {
        assert_eq!(ridgepoint_model_free(model), Status::Ok);
        assert_eq!(ridgepoint_model_free(model), Status::InvalidHandle);
    }
    // Handles that were made since must not be taken for it.
    let others = [llama_8b(), llama_8b()];
    assert!(!others.contains(&model));
    let (ones, mut us, mut text) = ([1u32], 0.0, null_mut::<std::ffi::c_char>());
    let (column, out, json, offsets) = (ones.as_ptr(), &raw mut us, &raw mut text, [0usize, 1]);
    let calls: [&dyn Fn(*mut *mut std::ffi::c_char) -> Status; 8] = unsafe {
        [
            &|e| ridgepoint_step_time_us(model, column, column, null(), 1, out, e),
            &|e| ridgepoint_step_times_us(model, offsets.as_ptr(), 1, column, column, null(), 1, out, e),
            &|e| ridgepoint_queueing_time_us(model, 1, out, e),
            &|e| ridgepoint_output_token_processing_time_us(model, out, e),
            &|e| ridgepoint_scheduling_processing_time_us(model, out, e),
            &|e| ridgepoint_preemption_processing_time_us(model, out, e),
            &|e| ridgepoint_step_json(model, column, column, null(), 1, json, e),
            &|e| ridgepoint_model_json(model, json, e),
        ]
    };
    for (index, call) in calls.iter().enumerate() {
        let (status, words) = said(call).unwrap_err();
        assert!(status == Status::InvalidHandle && words.contains("freed"), "{index}: {words}");
    }
    for other in others {
        unsafe { ridgepoint_model_free(other) };
    }
    let askew = model.cast::<u8>().wrapping_add(1).cast::<RidgepointModel>();
    assert_eq!(unsafe { ridgepoint_model_free(askew) }, Status::InvalidHandle);
}

#[test]
fn threads_get_the_same_bits() {
    let shared = Shared(llama_8b());
    let step_us = move |seed: u32| {
        let model = { shared }.0;
        let computed: Vec<u32> = (0..64).map(|i| (seed * 7919 + i * 104_729) % 8192).collect();
        let scheduled: Vec<u32> = (0..64).map(|i| if i % 17 == seed % 17 { 300 } else { 1 }).collect();
        let mut us = f64::NAN;
        let (computed, scheduled) = (computed.as_ptr(), scheduled.as_ptr());
        said(|e| unsafe { ridgepoint_step_time_us(model, computed, scheduled, null(), 64, &raw mut us, e) }).unwrap();
        us.to_bits()
    };
    let expected: Vec<u64> = (0..100).map(step_us).collect();
    assert!(expected.windows(2).any(|two| two[0] != two[1]));
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| assert!((0..100).map(step_us).eq(expected.iter().copied())));
        }
    });
    unsafe { ridgepoint_model_free(shared.0.cast_mut()) };
}

//! Times: those of the Rust library, whatever the form of the call.

use std::ptr::{null, null_mut};

use ridgepoint::latency::{CalibratedRoofline, LatencyModel};
use ridgepoint::{Deployment, Hardware, Model, Request, Step, StepModel};

use super::{llama_8b, said, taken};
use crate::*;

const COMPUTED: [u32; 6] = [2048, 100, 0, 1, 0, 7];
const SCHEDULED: [u32; 6] = [1, 1, 512, 1, 0, 64];
const SAMPLES: [u8; 6] = [1, 255, 0, 1, 1, 1];

fn in_rust() -> CalibratedRoofline {
    let (model, hardware) = (Model::find("llama-3.1-8b").unwrap(), Hardware::find("h100").unwrap());
    CalibratedRoofline::new(StepModel::new(&model, &hardware, &Deployment::default()).unwrap())
}

fn requests(samples: &[u8]) -> Vec<Request> {
    let columns = COMPUTED.iter().zip(SCHEDULED).zip(samples);
    columns.map(|((computed, scheduled), sample)| Request::new(*computed, scheduled, *sample != 0)).collect()
}

fn step_us(model: *const RidgepointModel, samples: *const u8, from: usize, to: usize) -> f64 {
    let mut us = f64::NAN;
    let (computed, scheduled) = (&COMPUTED[from..to], &SCHEDULED[from..to]);
    said(|error| unsafe {
        ridgepoint_step_time_us(model, computed.as_ptr(), scheduled.as_ptr(), samples, to - from, &raw mut us, error)
    })
    .unwrap();
    us
}

#[test]
fn a_step_takes_as_long_as_in_rust_to_the_last_bit() {
    let (model, rust) = (llama_8b(), in_rust());
    let of = |samples: &[u8]| rust.step_time_us(&Step::from(&requests(samples))).to_bits();
    assert_eq!(step_us(model, SAMPLES.as_ptr(), 0, 6).to_bits(), of(&SAMPLES));
    assert_eq!(step_us(model, null(), 0, 6).to_bits(), of(&[1; 6]));
    assert_ne!(of(&SAMPLES), of(&[1; 6]));
    assert_eq!(step_us(model, null(), 4, 5), 0.0, "nothing is scheduled");
    unsafe { ridgepoint_model_free(model) };
}

#[test]
fn many_steps_take_as_long_as_one_by_one() {
    let model = llama_8b();
    let offsets = [0usize, 2, 2, 5, 6];
    for samples in [SAMPLES.as_ptr(), null()] {
        let mut times = [f64::NAN; 4];
        said(|error| unsafe {
            ridgepoint_step_times_us(
                model,
                offsets.as_ptr(),
                4,
                COMPUTED.as_ptr(),
                SCHEDULED.as_ptr(),
                samples,
                6,
                times.as_mut_ptr(),
                error,
            )
        })
        .unwrap();
        for (step, ends) in offsets.windows(2).enumerate() {
            let flags = if samples.is_null() { null() } else { SAMPLES[ends[0]..].as_ptr() };
            assert_eq!(times[step].to_bits(), step_us(model, flags, ends[0], ends[1]).to_bits(), "step {step}");
        }
        assert_eq!(times[1], 0.0, "a step without requests");
        assert!(times[0] > 1000.0 && times[2] > times[0], "{times:?}");
    }
    unsafe { ridgepoint_model_free(model) };
}

#[test]
fn the_other_delays_are_those_of_the_host() {
    let (model, host) = (llama_8b(), in_rust().host());
    let mut us = [f64::NAN; 4];
    let [queueing, output, scheduling, preemption] = &mut us;
    said(|error| unsafe { ridgepoint_queueing_time_us(model, 1000, queueing, error) }).unwrap();
    said(|error| unsafe { ridgepoint_output_token_processing_time_us(model, output, error) }).unwrap();
    said(|error| unsafe { ridgepoint_scheduling_processing_time_us(model, scheduling, error) }).unwrap();
    said(|error| unsafe { ridgepoint_preemption_processing_time_us(model, preemption, error) }).unwrap();
    let expected = [
        host.front_end_us + (host.queueing_us + 1000.0 * host.queueing_us_per_token),
        host.output_token_us,
        host.scheduling_us,
        host.preemption_us,
    ];
    assert_eq!(us, expected);
    unsafe { ridgepoint_model_free(model) };
}

#[test]
fn a_copy_of_kv_blocks_takes_its_launch_and_its_bytes() {
    let (model, mut us) = (llama_8b(), f64::NAN);
    let mut time_us = |direction: RidgepointTransferDirection, bytes| {
        let direction = direction as std::ffi::c_int;
        said(|error| unsafe { ridgepoint_kv_transfer_time_us(model, direction, bytes, &raw mut us, error) }).unwrap();
        us
    };
    // 20 µs, and 5.44 MB over 0.85 × 64 GB/s in 100 µs.
    for direction in [RidgepointTransferDirection::GpuToCpu, RidgepointTransferDirection::CpuToGpu] {
        assert!((time_us(direction, 5_440_000) - 120.0).abs() < 1e-9, "{us}");
        assert_eq!(time_us(direction, 0), 20.0);
    }
    // An NVMe disk: 100 µs, and 35 MB at 5 GB/s to it in 7 ms and at 7 GB/s from it in 5 ms.
    assert!((time_us(RidgepointTransferDirection::CpuToDisk, 35_000_000) - 7100.0).abs() < 1e-9);
    assert!((time_us(RidgepointTransferDirection::DiskToCpu, 35_000_000) - 5100.0).abs() < 1e-9);
    unsafe { ridgepoint_model_free(model) };
}

#[test]
fn a_breakdown_sums_up_to_the_time() {
    let model = llama_8b();
    let mut text = null_mut();
    said(|error| unsafe {
        ridgepoint_step_json(model, COMPUTED.as_ptr(), SCHEDULED.as_ptr(), SAMPLES.as_ptr(), 4, &raw mut text, error)
    })
    .unwrap();
    let step: serde_json::Value = serde_json::from_str(&taken(text).unwrap()).unwrap();
    let number = |value: &serde_json::Value| value.as_f64().unwrap();
    let us = step_us(model, SAMPLES.as_ptr(), 0, 4);
    assert!((number(&step["step_time_us"]) / us - 1.0).abs() < 1e-3, "{step}");
    let sum: f64 = step["operators"].as_array().unwrap().iter().map(|o| number(&o["time_us"])).sum();
    assert!((sum / us - 1.0).abs() < 2e-3, "operators sum up to {sum}, the step takes {us}");
    assert!(number(&step["lower_us"]) < us && us < number(&step["upper_us"]));
    // Three decodes and a chunk of 512 tokens that samples nothing.
    assert_eq!((&step["batch"]["num_tokens"], &step["batch"]["num_sampled"]), (&515.into(), &3.into()));
    unsafe { ridgepoint_model_free(model) };
}

#[test]
fn a_model_and_the_library_describe_themselves() {
    let model = llama_8b();
    let (mut description, mut catalogue) = (null_mut(), null_mut());
    said(|error| unsafe { ridgepoint_model_json(model, &raw mut description, error) }).unwrap();
    said(|error| unsafe { ridgepoint_catalogue_json(&raw mut catalogue, error) }).unwrap();
    let json = |text| serde_json::from_str::<serde_json::Value>(&taken(text).unwrap()).unwrap();
    let (description, catalogue) = (json(description), json(catalogue));
    assert_eq!((&description["model"], &description["hardware"]), (&"llama-3.1-8b".into(), &"h100_sxm".into()));
    assert_eq!(description["deployment"]["max_num_seqs"], 1024);
    assert!(description["host"]["scheduling_us"].as_f64().unwrap() >= 0.0);
    let has = |list: &str, name: &str| catalogue[list].as_array().unwrap().contains(&name.into());
    assert!(has("models", "llama-3.1-8b") && has("hardware", "h100_sxm") && !has("models", "h100_sxm"));
    unsafe { ridgepoint_model_free(model) };
}

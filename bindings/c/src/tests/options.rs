//! Options other than model and GPU.

use std::ffi::CString;
use std::ptr::null_mut;

use super::{created, no_options, said, taken};
use crate::RidgepointStatus as Status;
use crate::*;

const TINY: &std::ffi::CStr = c"{\"model_type\": \"llama\", \"hidden_size\": 2048, \"intermediate_size\": 8192, \"num_hidden_layers\": 16, \
    \"num_attention_heads\": 32, \"num_key_value_heads\": 8, \"vocab_size\": 128256, \"max_position_embeddings\": 4096, \
    \"torch_dtype\": \"bfloat16\"}";

/// Time of eight decodes on 1,000 tokens, µs, and what the model says of itself.
fn tried(model: &str, options: &RidgepointOptions) -> Result<(f64, serde_json::Value), (Status, String)> {
    let model = created(model, "h100", &raw const *options)?;
    let (computed, scheduled, mut us, mut text) = ([1000u32; 8], [1u32; 8], f64::NAN, null_mut());
    said(|e| unsafe {
        ridgepoint_step_time_us(model, computed.as_ptr(), scheduled.as_ptr(), std::ptr::null(), 8, &raw mut us, e)
    })?;
    said(|e| unsafe { ridgepoint_model_json(model, &raw mut text, e) })?;
    unsafe { ridgepoint_model_free(model) };
    Ok((us, serde_json::from_str(&taken(text).unwrap()).unwrap()))
}

fn refused(model: &str, options: &RidgepointOptions, status: Status, words: &[&str]) {
    let (found, text) = tried(model, options).unwrap_err();
    assert_eq!(found, status, "{text}");
    for word in words {
        assert!(text.contains(word), "'{word}' is not in: {text}");
    }
}

#[test]
fn a_deployment_of_two_gpus_is_faster_than_one() {
    let (one_us, _) = tried("llama-3.1-8b", &no_options()).unwrap();
    let json = c"{\"tensor_parallel_size\": 2, \"kv_cache_dtype\": \"fp8\"}";
    let (two_us, said) =
        tried("llama-3.1-8b", &RidgepointOptions { deployment_json: json.as_ptr(), ..no_options() }).unwrap();
    assert!(0.4 * one_us < two_us && two_us < 0.8 * one_us, "{two_us} of {one_us}");
    assert_eq!(said["deployment"]["tensor_parallel_size"], 2);
    assert_eq!(said["deployment"]["max_num_seqs"], 1024, "the others are vLLM's for the GPU");
}

#[test]
fn deployments_that_are_none_are_refused() {
    let with = |json: &str, words: &[&str]| {
        let json = CString::new(json).unwrap();
        let options = RidgepointOptions { deployment_json: json.as_ptr(), ..no_options() };
        refused("llama-3.1-8b", &options, Status::InvalidInput, words);
    };
    with("{\"tensor_parallel\": 2}", &["deployment_json", "tensor_parallel"]);
    with("{\"gpu_memory_utilization\": NaN}", &["deployment_json"]);
    with("{\"gpu_memory_utilization\": 1e999}", &["deployment_json"]);
    with("{\"tensor_parallel_size\": -1}", &["deployment_json: tensor_parallel_size = -1 must be a whole number"]);
    let several = "{\"tensor_parallel_size\": 2, \"block_size\": \"many\", \"max_num_seqs\": 1.5, \"speed\": 1}";
    with(several, &["block_size = \"many\" must be", "max_num_seqs = 1.5 must be", "speed is not a known key"]);
    with("{\"block_size\": 16, \"block_size\": 32}", &["key 'block_size' appears twice"]);
    with("", &["deployment_json"]);
    with("[]]", &["deployment_json"]);
    with("{\"max_num_seqs\": 0, \"block_size\": 0}", &["max_num_seqs = 0", "block_size = 0"]);
    with("{\"tensor_parallel_size\": 3}", &["tensor_parallel_size = 3"]);
}

#[test]
fn corrections_and_efficiencies_are_chosen_by_name() {
    let of = |correction: *const std::ffi::c_char, efficiency| {
        tried("llama-3.1-8b", &RidgepointOptions { correction, efficiency, ..no_options() })
    };
    let nothing = std::ptr::null();
    let (auto_us, auto) = of(nothing, nothing).unwrap();
    let (none_us, none) = of(c"none".as_ptr(), c"tables".as_ptr()).unwrap();
    let (ideal_us, ideal) = of(nothing, c"ideal".as_ptr()).unwrap();
    assert!(ideal_us < none_us && none_us < auto_us, "{ideal_us} {none_us} {auto_us}");
    assert_ne!(auto["correction"]["level"], "none");
    assert_eq!((&none["correction"]["level"], &ideal["correction"]["level"]), (&"none".into(), &"none".into()));

    let faults = [
        (c"globe".as_ptr(), nothing, "none, global, auto or the path"),
        (nothing, c"perfect".as_ptr(), "'perfect' must be tables or ideal"),
        (c"global".as_ptr(), c"ideal".as_ptr(), "calibrated tables"),
    ];
    for (correction, efficiency, words) in faults {
        let options = RidgepointOptions { correction, efficiency, ..no_options() };
        refused("llama-3.1-8b", &options, Status::InvalidArgument, &[words]);
    }
}

#[test]
fn a_model_is_made_from_the_text_of_its_configuration() {
    let options = RidgepointOptions { model_config_json: TINY.as_ptr(), ..no_options() };
    let (us, said) = tried("mine", &options).unwrap();
    assert_eq!(said["model"], "mine");
    // 1.24 billion parameters, of which 0.97 in layers and 0.26 in the head: 2.5 GB at 3.35 TB/s are 0.74 ms.
    assert!((700.0..5000.0).contains(&us), "{us}");
    let sampled = RidgepointOptions { model_generation_config_json: c"{\"top_p\": 0.9}".as_ptr(), ..options };
    let (sorted_us, _) = tried("mine", &sampled).unwrap();
    assert!(sorted_us > us, "to sort logits takes time: {sorted_us} and {us}");

    let broken = RidgepointOptions { model_config_json: c"{\"model_type\":".as_ptr(), ..no_options() };
    refused("mine", &broken, Status::InvalidInput, &["options.model_config_json: line 1"]);
    let alone = RidgepointOptions { model_quant_config_json: c"{}".as_ptr(), ..no_options() };
    refused("llama-3.1-8b", &alone, Status::InvalidArgument, &["model_quant_config_json", "which is NULL"]);
}

#[test]
fn a_gpu_is_made_from_the_text_of_its_file() {
    let half = include_str!("../../../../hardware/h100_sxm.toml");
    let line = half.lines().find(|line| line.starts_with("hbm_bytes_per_s")).unwrap();
    let toml = CString::new(half.replace(line, "hbm_bytes_per_s = 1.675e12")).unwrap();
    let (whole_us, _) = tried("llama-3.1-8b", &no_options()).unwrap();
    let options = RidgepointOptions { hardware_toml: toml.as_ptr(), efficiency: c"ideal".as_ptr(), ..no_options() };
    let (half_us, said) = tried("llama-3.1-8b", &options).unwrap();
    assert_eq!(said["hardware"], "h100");
    // On the roofline 15 GB of weights take 9 ms at half the bandwidth, more than real kernels at all of it.
    assert!(half_us > whole_us && half_us > 8900.0, "{half_us} and {whole_us}");
}

#[test]
fn files_are_found_in_the_data_folder() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("models")).unwrap();
    std::fs::write(folder.path().join("models/tiny.json"), TINY.to_bytes()).unwrap();
    let path = CString::new(folder.path().to_str().unwrap()).unwrap();
    let options = RidgepointOptions { data_dir: path.as_ptr(), ..no_options() };
    assert_eq!(tried("tiny", &options).unwrap().1["model"], "tiny");
    refused("tiny", &no_options(), Status::UnknownName, &["tiny"]);
}

/// A caller who was compiled against a newer header, with one option more.
#[repr(C)]
struct NewerOptions {
    known: RidgepointOptions,
    further: usize,
}

#[test]
fn options_of_other_versions_are_read_as_far_as_both_know_them() {
    let older = RidgepointOptions {
        struct_size: 2 * size_of::<usize>(),
        deployment_json: c"{\"tensor_parallel_size\": 2}".as_ptr(),
        // Beyond its size, so nothing that may be read.
        correction: std::ptr::dangling(),
        ..no_options()
    };
    assert_eq!(tried("llama-3.1-8b", &older).unwrap().1["deployment"]["tensor_parallel_size"], 2);
    for struct_size in [0, 7, 12, 5000] {
        let options = RidgepointOptions { struct_size, ..no_options() };
        refused("llama-3.1-8b", &options, Status::InvalidArgument, &[&format!("struct_size = {struct_size}")]);
    }
    let mut newer = NewerOptions { known: no_options(), further: 0 };
    newer.known.struct_size = size_of::<NewerOptions>();
    assert!(created("llama-3.1-8b", "h100", (&raw const newer).cast()).is_ok());
    newer.further = 1;
    let (status, text) = created("llama-3.1-8b", "h100", (&raw const newer).cast()).unwrap_err();
    assert!(status == Status::InvalidArgument && text.contains("use a newer library"), "{text}");
}

#[test]
fn measured_copies_take_the_place_of_the_link() {
    let json = c"{\"gpu_to_cpu\": {\"latency_us\": 5, \"bytes_per_s\": 1e9}, \"cpu_to_gpu\": {\"latency_us\": 100, \"bytes_per_s\": 1e10}, \
        \"contention\": 0.5}";
    let options = RidgepointOptions { kv_transfers_json: json.as_ptr(), ..no_options() };
    let model = created("llama-3.1-8b", "h100", &raw const options).unwrap();
    let (mut us, mut share) = (f64::NAN, f64::NAN);
    // 100 µs and 10 MB at 10 GB/s.
    said(|e| unsafe { ridgepoint_kv_transfer_time_us(model, 1, 10_000_000, &raw mut us, e) }).unwrap();
    said(|e| unsafe { ridgepoint_kv_contention(model, &raw mut share, e) }).unwrap();
    unsafe { ridgepoint_model_free(model) };
    assert!((us - 1100.0).abs() < 1e-9 && share.to_bits() == 0.5f64.to_bits(), "{us} {share}");
    let broken = RidgepointOptions { kv_transfers_json: c"{}".as_ptr(), ..no_options() };
    refused("llama-3.1-8b", &broken, Status::InvalidInput, &["options.kv_transfers_json", "gpu_to_cpu"]);
}

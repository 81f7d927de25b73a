use super::*;

#[test]
fn no_number_of_gpus_wraps_around() {
    // 2³¹ x 2³¹ x 4 is 2⁶⁴, and 0 where it wraps.
    let sizes = Deployment {
        tensor_parallel_size: 1 << 31,
        data_parallel_size: 1 << 31,
        pipeline_parallel_size: 4,
        ..Deployment::default()
    };
    let error = sizes.validate().unwrap_err().to_string();
    assert!(error.contains("18446744073709551615 GPUs is more than 65536"), "{error}");
}

#[test]
fn arguments_of_graphs_that_contradict_each_other_are_named() {
    for (json, expected) in [
        (r#"{"cudagraph_mode": "full", "enforce_eager": true}"#, "cudagraph_mode = FULL contradicts enforce_eager"),
        (
            r#"{"cudagraph_mode": "NONE", "cudagraph_capture_sizes": [1]}"#,
            "cudagraph_capture_sizes contradicts cudagraph_mode = NONE",
        ),
        (r#"{"cudagraph_capture_sizes": [1, 8, 4]}"#, "cudagraph_capture_sizes must ascend, 8, 4 do not"),
        (
            r#"{"cudagraph_capture_sizes": [1, 4096], "max_num_batched_tokens": 2048}"#,
            "cudagraph_capture_sizes has 4096, more than max_num_batched_tokens = 2048",
        ),
        (
            r#"{"cudagraph_capture_sizes": [1, 8], "max_cudagraph_capture_size": 16}"#,
            "max_cudagraph_capture_size = 16 contradicts cudagraph_capture_sizes, whose largest is 8",
        ),
        (r#"{"cudagraph_mode": "PARTIAL"}"#, "cudagraph_mode = \"PARTIAL\" must be FULL_AND_PIECEWISE, FULL, "),
        (r#"{"attention_backend": "XFORMERS"}"#, "attention_backend = \"XFORMERS\" must be a backend of vLLM"),
        (r#"{"cudagraph_capture_sizes": [0]}"#, "cudagraph_capture_sizes = [0] must be a list of numbers"),
    ] {
        let error = Deployment::from_json("options", json).unwrap_err();
        assert!(error.problems().iter().any(|problem| problem.starts_with(expected)), "{json}: {error}");
    }
    let given =
        Deployment::from_json("options", r#"{"cudagraph_mode": "piecewise", "attention_backend": "flashinfer"}"#);
    let given = given.unwrap();
    assert_eq!(given.cudagraph_mode, Some(CudagraphMode::Piecewise));
    assert_eq!(given.attention_backend, Some(AttentionBackend::FlashInfer));
}

#[test]
fn every_fault_of_a_json_object_is_reported() {
    let json = r#"{"tensor_parallel_size": -1, "kv_cache_dtype": "fp7", "enforce_eger": true, "block_size": 16.5}"#;
    let error = Deployment::from_json("options", json).unwrap_err();
    assert_eq!(
        error.location().map(|place| (place.path.as_str(), place.key.as_deref())),
        Some(("options", Some("tensor_parallel_size")))
    );
    let problems = error.problems();
    for start in [
        "tensor_parallel_size = -1 must be a whole number from 1",
        "kv_cache_dtype = \"fp7\" must be auto",
        "enforce_eger is not a known key: did you mean enforce_eager",
        "block_size = 16.5",
    ] {
        assert!(problems.iter().any(|problem| problem.starts_with(start)), "{start}: {problems:?}");
    }
    for word in ["auto", "fp8_e4m3", "float16", "bf16"] {
        let json = format!("{{\"kv_cache_dtype\": \"{word}\"}}");
        assert!(Deployment::from_json("options", &json).is_ok(), "{word}");
        assert!(serde_json::from_str::<Deployment>(&json).is_ok(), "{word}");
    }
    let fp4 = Deployment { kv_cache_dtype: Some(DType::Fp4), ..Deployment::default() };
    assert!(fp4.validate().unwrap_err().to_string().contains("kv_cache_dtype = fp4 must be fp8, bfloat16 or float16"));
}

#[test]
fn weights_on_the_host_are_a_size_of_at_least_zero() {
    let parse = |gb: &str| Deployment::from_json("deployment", &format!("{{\"cpu_offload_gb\": {gb}}}"));
    assert!((parse("2.5").unwrap().cpu_offload_gb - 2.5).abs() < 1e-12);
    assert!(!serde_json::to_string(&parse("0").unwrap()).unwrap().contains("cpu_offload_gb"));
    for wrong in ["-1", "\"all\"", "true"] {
        let error = parse(wrong).unwrap_err().to_string();
        assert!(error.contains("cpu_offload_gb") && error.contains("a number of GiB, at least 0"), "{error}");
    }
}

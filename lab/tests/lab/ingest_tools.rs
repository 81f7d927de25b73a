//! Reports of SGLang and AIPerf, and files of tools that are not read.

use ridgepoint_lab::ingest::{Capture, DropReason, Whole};
use serde_json::{Value, json};

use crate::ingest_reports::{by_format, message, read_text};

#[test]
fn details_without_start_times_are_those_of_a_closed_loop() {
    let result = |rate: Value, most: Value| {
        json!({
            "backend": "sglang", "dataset_name": "random", "request_rate": rate, "max_concurrency": most, "sharegpt_output_len": null,
            "completed": 3, "input_lens": [1000, 800, 900], "output_lens": [4, 3, 2], "ttfts": [0.06, 0.05, 0.055],
            "itls": [[0.008, 0.008, 0.008], [0.01, 0.01], [0.008]], "generated_texts": ["x", "y", "z"], "errors": ["", "", ""]
        })
    };
    let times = |of: &Capture| -> Vec<(u64, u64)> {
        let ms = |time: Option<Whole>| time.unwrap().get() / 1_000_000;
        of.requests[0].requests.iter().map(|row| (ms(row.arrived_ns), ms(row.departed_ns))).collect()
    };
    let read = read_text(by_format, &result("inf".into(), 2.into()).to_string()).unwrap();
    // The second takes 50 + 2 · 10 = 70 ms, and the third is sent then; the first takes 60 + 3 · 8 = 84 ms.
    assert_eq!(times(&read), [(0, 84), (0, 70), (70, 133)]);
    assert_eq!(read.tokens[0].requests.len(), 3);
    assert!(
        read.notes.iter().any(|note| note.contains("are worked out") && note.contains("2 of them")),
        "{:?}",
        read.notes
    );
    let read = read_text(by_format, &result("inf".into(), Value::Null).to_string()).unwrap();
    assert_eq!(times(&read), [(0, 84), (0, 70), (0, 63)]);
    let refused = message(by_format, &result(2.5.into(), Value::Null).to_string());
    assert!(refused.contains("without start_times") && !refused.contains("vllm bench serve"), "{refused}");
    // vLLM's older results have the same lists.
    let mut older = result("inf".into(), 2.into());
    older["backend"] = "vllm".into();
    older.as_object_mut().unwrap().remove("sharegpt_output_len");
    assert_eq!(times(&read_text(by_format, &older.to_string()).unwrap()), [(0, 84), (0, 70), (70, 133)]);
}

#[test]
fn records_of_aiperf_have_lengths_times_and_gaps() {
    let record = |id: &str, start_ns: u64, osl: u64| {
        json!({
            "metadata": { "x_request_id": id, "request_start_ns": start_ns, "request_end_ns": start_ns + 9_000_000, "benchmark_phase": "profiling", "was_cancelled": false },
            "metrics": {
                "input_sequence_length": { "value": 550, "unit": "tokens" }, "output_sequence_length": { "value": osl, "unit": "tokens" },
                "time_to_first_token": { "value": 2.5, "unit": "ms" }, "inter_chunk_latency": { "value": [1500.0, 500.0], "unit": "us" },
                "request_latency": { "value": 0.0045, "unit": "s" }
            },
            "error": null
        })
    };
    let (mut failed, mut warm_up, mut odd) = (record("f", 5, 3), record("w", 5, 3), record("o", 5, 3));
    failed["error"] = json!({ "code": 500 });
    warm_up["metadata"]["benchmark_phase"] = "warmup".into();
    odd["metrics"]["request_latency"]["unit"] = "fortnights".into();
    let start_ns = 1_759_522_419_159_192_408;
    let mut bare = record("", start_ns, 8);
    bare["metrics"] = json!({ "input_sequence_length": { "value": 7 }, "output_sequence_length": { "value": 2 } });
    let records = [record("b", start_ns + 5, 3), record("a", start_ns, 8), bare, failed, warm_up, odd];
    let lines: Vec<String> = records.iter().map(Value::to_string).collect();
    let read = read_text(by_format, &lines.join("\n")).unwrap();
    let dropped = |reason| read.dropped_requests.count(reason);
    assert_eq!((dropped(DropReason::Failed), dropped(DropReason::WarmUp), dropped(DropReason::BadValue)), (1, 1, 1));
    let rows = &read.requests[0].requests;
    let since_start = |time: Option<Whole>| time.map(|time| time.get() - start_ns);
    let found: Vec<_> = rows
        .iter()
        .map(|row| {
            (
                &*row.request_id,
                since_start(row.arrived_ns),
                since_start(row.first_response_ns),
                since_start(row.departed_ns),
            )
        })
        .collect();
    let ms = 1_000_000;
    assert_eq!(
        found,
        [
            ("a", Some(0), Some(5 * ms / 2), Some(9 * ms / 2)),
            ("2", Some(0), None, Some(9 * ms)),
            ("b", Some(5), Some(5 * ms / 2 + 5), Some(9 * ms / 2 + 5))
        ]
    );
    // Three chunks are the tokens of the request with three; which chunks the eight of the other were in is unknown.
    assert_eq!(read.tokens[0].requests.iter().map(|of| of.request_id.as_str()).collect::<Vec<&str>>(), ["b"]);
    assert_eq!(read.tokens[0].requests[0].gaps_ns().collect::<Vec<u64>>(), [3 * ms / 2, ms / 2]);
}

#[test]
fn a_file_of_a_tool_that_is_not_read_says_so_in_a_sentence() {
    for (text, part) in [
        ("[2026-01-10 10:00:00] server_args=ServerArgs(model_path='Qwen/Qwen3-8B')\n", "SGLang's server"),
        (
            "[{\"error_code\": null, \"ttft_s\": 0.3, \"end_to_end_latency_s\": 3.4, \"number_input_tokens\": 550}]",
            "llmperf",
        ),
        ("[TensorRT-LLM][INFO] Engine loaded\n", "TensorRT-LLM"),
    ] {
        let message = message(by_format, text);
        assert!(message.contains(part) && !message.contains("none of the known") && message.len() < 500, "{message}");
    }
}

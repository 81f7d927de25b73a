//! Reports of load generators, the request table, and the detection of formats.

use std::path::Path;

use proptest::prelude::*;
use ridgepoint::Result;
use ridgepoint_lab::ingest::format::Format;
use ridgepoint_lab::ingest::formats::FORMATS;
use ridgepoint_lab::ingest::reports::{guidellm, inference_perf, vllm_bench};
use ridgepoint_lab::ingest::{Capture, DropReason, Numbers, RequestRow, RequestTrace, Run, Whole, request_table};
use serde_json::{Value, json};

pub type Reader = fn(&Path) -> Result<Capture>;

pub fn read_text(reader: Reader, text: &str) -> Result<Capture> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("load-3.json");
    std::fs::write(&path, text).unwrap();
    reader(&path)
}

pub fn message(reader: Reader, text: &str) -> String {
    let message = read_text(reader, text).map(|_| ()).unwrap_err().to_string();
    assert!(message.contains("load-3.json: "), "{message}");
    message
}

pub fn by_format(path: &Path) -> Result<Capture> {
    Format::detect(path)?.read(path)
}

#[test]
fn every_layout_of_inference_perf_is_read() {
    let report = json!([
        {
            "start_time": 1000.5, "end_time": 1002.0, "request": "{\"prompt\": \"…\"}", "response": "data: …",
            "info": { "input_tokens": 575, "output_tokens": 3, "output_token_times": [1000.75, 1000.75, 1001.5, 1002.0] },
            "error": null
        },
        {
            "start_time": 999.0, "end_time": 1001.0,
            "info": {
                "request_metrics": { "text": { "input_tokens": 12 } },
                "response_metrics": { "output_tokens": 2, "output_token_times": [999.25, 1001.0] }
            }
        },
        {
            "start_time": 1100.0, "end_time": 1101.0,
            "info": { "input_tokens": 40, "response_info": { "output_tokens": 2, "output_token_times": [1100.5, 1101.0] } }
        },
        { "start_time": 1.0, "end_time": 2.0, "info": null, "error": { "error_type": "Timeout", "error_msg": "…" } },
        { "start_time": 5.0, "end_time": 4.0, "info": {} },
        { "start_time": -5.0, "end_time": 4.0, "info": {} },
        { "start_time": 5.0, "end_time": "soon", "info": {} },
        { "start_time": 5.0, "end_time": 6.0, "info": { "input_tokens": 1.5 } },
        { "start_time": 5.0, "end_time": 6.0, "info": { "output_token_times": [4.5] } },
        { "start_time": 5.0, "info": {} }
    ]);
    let read = read_text(by_format, &report.to_string()).unwrap();
    assert_eq!(read.requests_read(), 10);
    let count = |reason| read.dropped_requests.count(reason);
    assert_eq!((count(DropReason::Failed), count(DropReason::BadValue), count(DropReason::Incomplete)), (1, 5, 1));
    assert_eq!(read.requests[0].run.experiment, "load-3");
    let expected = RequestRow {
        request_id: "0".into(),
        arrived_ns: Some(1_000_500_000_000.into()),
        first_response_ns: Some(1_000_750_000_000.into()),
        departed_ns: Some(1_002_000_000_000.into()),
        num_prompt_tokens: Some(575.into()),
        num_output_tokens: Some(3.into()),
        ..RequestRow::default()
    };
    let rows = &read.requests[0].requests;
    assert_eq!((rows.len(), &rows[1]), (3, &expected));
    assert_eq!(
        (rows[0].arrived_ns, rows[0].first_response_ns),
        (Some(999_000_000_000.into()), Some(999_250_000_000.into()))
    );
    assert_eq!((rows[0].num_prompt_tokens, rows[0].num_output_tokens), (Some(12.into()), Some(2.into())));
    // 0.5.0 had a third layout.
    assert_eq!((rows[2].num_prompt_tokens, rows[2].num_output_tokens), (Some(40.into()), Some(2.into())));
    assert_eq!(rows[2].first_response_ns, Some(1_100_500_000_000.into()));
}

#[test]
fn summaries_and_broken_reports_of_inference_perf_say_so() {
    let summary = "{\"load_summary\": {\"count\": 9000}, \"successes\": {}}";
    let text = message(by_format, summary);
    assert!(text.contains("per_request_lifecycle_metrics.json") && text.contains("report.request_lifecycle"), "{text}");
    for (text, part) in [
        ("[{\"start_time\": 1.0, \"end_time\": 2.0}", "is the file cut short?"),
        ("[{\"start_time\": NaN, \"end_time\": 2.0}]", "line 1 column 17: is not well-formed JSON"),
        ("[]", "has no requests: set report.request_lifecycle"),
        ("[{\"start_time\": 1.0}] x", "line 1 column 23"),
        ("7", "expected an object or a list of objects"),
    ] {
        let message = message(inference_perf::read, text);
        assert!(message.contains(part), "{text}: {message}");
    }
}

#[test]
fn the_role_event_of_a_chat_is_no_token() {
    // Three tokens after an event with a role: three gaps, where a completion has two.
    let report = json!({
        "model_id": "m", "input_lens": [5, 5], "output_lens": [3, 3], "start_times": [10.0, 20.0], "ttfts": [0.5, 0.5],
        "itls": [[0.25, 0.125, 0.125], [0.125, 0.125]], "errors": ["", ""]
    });
    let read = read_text(vllm_bench::read, &report.to_string()).unwrap();
    let times: Vec<usize> = read.tokens[0].requests.iter().map(|of| of.chunks.len()).collect();
    assert_eq!(times, [3, 3]);
    let rows = &read.requests[0].requests;
    assert_eq!(rows[0].first_response_ns, Some(10_500_000_000.into()));
    assert_eq!(rows[0].departed_ns, Some(11_000_000_000.into()));
}

#[test]
fn the_model_of_a_newer_guidellm_is_in_its_configuration() {
    let benchmark =
        json!({ "requests": { "successful": [guidellm_request("a", 1.0)], "errored": [], "incomplete": [] } });
    let config = json!({ "spec": { "backend": { "model": "Qwen/Qwen3-8B" } } });
    let report = json!({ "metadata": { "version": 2 }, "config": config, "benchmarks": [benchmark] });
    let read = read_text(guidellm::read, &report.to_string()).unwrap();
    assert_eq!(read.requests[0].run.model.as_deref(), Some("Qwen/Qwen3-8B"));
}

fn guidellm_request(id: &str, start: f64) -> Value {
    json!({
        "request_id": id, "prompt_tokens": 128, "output_tokens": 7, "time_to_first_token_ms": 20.0,
        "info": { "timings": {
            "request_start": start, "first_token_iteration": start + 0.5, "last_token_iteration": start + 1.0,
            "request_end": start + 1.25, "token_iterations": 7
        } }
    })
}

#[test]
fn every_benchmark_of_guidellm_is_a_run() {
    let of = |successful: Vec<Value>| json!({ "requests": { "successful": successful, "errored": [{}, {}], "incomplete": [{}] } });
    let report = json!({
        "metadata": { "version": 2, "guidellm_version": "0.5.0" }, "args": { "model": "Qwen/Qwen3-8B" },
        "benchmarks": [
            of(vec![guidellm_request("b", 1_700_000_010.0), guidellm_request("a", 1_700_000_000.0), guidellm_request("b", 3.0)]),
            of(vec![guidellm_request("c", 1_700_000_100.0), json!({ "request_id": "d" })]),
        ]
    });
    let read = read_text(by_format, &report.to_string()).unwrap();
    assert_eq!((read.requests_read(), read.notes.len()), (11, 0));
    let count = |reason| read.dropped_requests.count(reason);
    assert_eq!((count(DropReason::Failed), count(DropReason::Incomplete), count(DropReason::Duplicate)), (4, 3, 1));
    let names: Vec<_> =
        read.requests.iter().map(|trace| (trace.run.experiment.as_str(), trace.requests.len())).collect();
    assert_eq!(names, [("load-3/0", 2), ("load-3/1", 1)]);
    assert_eq!(read.requests[0].run.model.as_deref(), Some("Qwen/Qwen3-8B"));
    let row = &read.requests[0].requests[0];
    assert_eq!((&*row.request_id, row.arrived_ns), ("a", Some(1_700_000_000_000_000_000.into())));
    assert_eq!(row.first_response_ns, Some(1_700_000_000_500_000_000.into()));
    assert_eq!(row.departed_ns, Some(1_700_000_001_250_000_000.into()));
    assert_eq!((row.num_prompt_tokens, row.num_output_tokens), (Some(128.into()), Some(7.into())));

    let other = json!({ "metadata": { "version": 1 }, "benchmarks": [of(vec![guidellm_request("a", 1.0)])] });
    assert!(read_text(guidellm::read, &other.to_string()).unwrap().notes[0].contains("version 1"));
    for (text, part) in [
        ("{\"benchmarks\": []}", "has no requests"),
        ("{\"benchmarks\": [{\"requests\": null}]}", "has no requests: benchmarks[].requests is empty"),
        ("{\"benchmarks\": [{\"requests\": 5}]}", "invalid type: integer `5`"),
        ("{\"metadata\": {}}", "has no requests"),
        ("{\"benchmarks\": [{\"requests\": {", "is the file cut short?"),
    ] {
        let message = message(guidellm::read, text);
        assert!(message.contains(part), "{text}: {message}");
    }
}

#[test]
fn a_detailed_vllm_benchmark_has_responses_from_first_to_last_token() {
    let result = json!({
        "backend": "vllm", "model_id": "meta-llama/Llama-3.1-8B", "num_prompts": 5, "request_rate": "inf",
        "input_lens": [10, 20, 30, 40, 50], "output_lens": [3, 1, 0, 4, 2],
        "start_times": [100.5, 100.25, 99.0, 99.0, 98.0], "ttfts": [0.5, 0.25, 0.0, -0.5, 0.125],
        "itls": [[0.125, 0.25], [], [], [], ["x"]], "errors": ["", "", "timeout", "", ""]
    });
    // `--append-result` puts the results of several loads into one file.
    let appended = read_text(by_format, &format!("{result}\n{result}")).unwrap();
    let names: Vec<&str> = appended.requests.iter().map(|trace| trace.run.experiment.as_str()).collect();
    assert_eq!((appended.requests_read(), names), (10, vec!["load-3/0", "load-3/1"]));
    let read = read_text(by_format, &result.to_string()).unwrap();
    assert_eq!(read.requests_read(), 5);
    assert_eq!(
        (read.dropped_requests.count(DropReason::Failed), read.dropped_requests.count(DropReason::BadValue)),
        (1, 2)
    );
    let trace = &read.requests[0];
    assert_eq!(trace.run.model.as_deref(), Some("meta-llama/Llama-3.1-8B"));
    let times: Vec<_> =
        trace.requests.iter().map(|row| (row.arrived_ns, row.first_response_ns, row.departed_ns)).collect();
    let ms = |ms: u64| Some(Whole::from(ms * 1_000_000));
    assert_eq!(times, [(ms(100_250), ms(100_500), ms(100_500)), (ms(100_500), ms(101_000), ms(101_375))]);
    for (text, parts) in [
        ("{\"backend\": \"vllm\", \"num_prompts\": 1}", vec!["is the summary of a benchmark", "--save-detailed"]),
        (
            "{\"input_lens\": [1], \"output_lens\": [1, 2], \"start_times\": [], \"ttfts\": [1], \"itls\": [[]], \"errors\": [null]}",
            vec!["output_lens has 2 entries, input_lens has 1", "start_times has 0 entries"],
        ),
        (
            "{\"input_lens\": [], \"output_lens\": [], \"start_times\": [], \"ttfts\": [], \"itls\": [], \"errors\": []}",
            vec!["is the summary of a benchmark"],
        ),
        ("{\"input_lens\": [1, ", vec!["is the file cut short?"]),
    ] {
        let message = message(vllm_bench::read, text);
        assert!(parts.iter().all(|part| message.contains(part)), "{text}: {message}");
    }
}

#[test]
fn an_unknown_file_is_refused_with_the_known_formats() {
    for (text, part) in
        [("{\"data\": []}", "begins with the keys data"), ("", "is empty"), ("a,b\n1,2\n", "begins with 'a,b'")]
    {
        let message = message(by_format, text);
        assert!(message.contains(part), "{message}");
        for format in FORMATS {
            assert!(message.contains(format.name), "{message}");
        }
    }
    assert!(Format::detect(Path::new("absent.json")).unwrap_err().to_string().contains("absent.json"));
}

fn row(id: &str) -> RequestRow {
    RequestRow { request_id: id.into(), arrived_ns: Some(5.into()), ..RequestRow::default() }
}

#[test]
fn a_request_table_with_a_fault_names_row_and_column() {
    let mut out = Vec::new();
    let run = Run { experiment: "a".to_owned(), ..Run::default() };
    request_table::write(&mut out, &[RequestTrace { run, requests: vec![row("r"), row("s")] }]).unwrap();
    let sound = String::from_utf8(out).unwrap();
    assert_eq!(read_text(by_format, &sound).unwrap().requests[0].requests, [row("r"), row("s")]);
    for (from, to, parts) in [
        ("s,5,", "r,5,", vec!["row 2", "request_id", "an id that appears once in the run 'a'"]),
        ("s,5,", ",5,", vec!["row 2", "request_id"]),
        ("s,5,", "s,NaN,", vec!["row 2", "arrived_ns", "NaN"]),
        ("s,5,", "s,-5,", vec!["row 2", "arrived_ns", "-5"]),
        ("s,5,,,,,,,,", "s,5,,,,,,,4,", vec!["row 2", "departed_ns", "at least arrived_ns, 5"]),
        ("num_cached_tokens", "cached", vec!["column 'cached' is not known", "column 'num_cached_tokens' is missing"]),
        ("a,,,,,,,,s", "a", vec!["line 3"]),
    ] {
        let message = message(request_table::read, &sound.replace(from, to));
        assert!(parts.iter().all(|part| message.contains(part)), "{message}");
    }
    let header = sound.lines().next().unwrap();
    assert!(message(request_table::read, header).contains("no rows"));
}

fn rows() -> impl Strategy<Value = Vec<RequestRow>> {
    let time = || prop::option::of(any::<u64>().prop_map(Whole::from));
    let one = (
        prop::collection::vec(time(), 4),
        prop::collection::vec(time(), 3),
        (any::<bool>(), any::<u64>()),
        prop::collection::vec(prop::option::of((0u64..1 << 40).prop_map(Whole::from)), 6),
        (time(), prop::option::of("[a-z,\" ]{0,5}[a-z]"), "[a-zA-Z0-9,\"\n -]{0,8}"),
        prop::collection::vec(prop::collection::vec(any::<u64>(), 0..3).prop_map(Numbers::from_iter), 5),
    );
    let row = one.prop_map(|(mut engine, mut server, (is_handed, after), counts, (preemptions, status, id), lists)| {
        for times in [&mut engine, &mut server] {
            let mut known: Vec<Whole> = times.iter().flatten().copied().collect();
            known.sort_unstable();
            let mut known = known.into_iter();
            times.iter_mut().filter(|time| time.is_some()).for_each(|time| *time = known.next());
        }
        RequestRow {
            request_id: id.into(),
            arrived_ns: server[0],
            handed_over_ns: is_handed.then(|| server[0].map_or(0, Whole::get).saturating_add(after).into()),
            queued_ns: engine[0],
            scheduled_ns: engine[1],
            first_token_ns: engine[2],
            finished_ns: engine[3],
            first_response_ns: server[1],
            departed_ns: server[2],
            scheduled_step: counts[0],
            first_token_step: counts[1],
            finished_step: counts[2],
            num_prompt_tokens: counts[3],
            num_cached_tokens: counts[4],
            num_output_tokens: counts[5],
            num_preemptions: preemptions,
            finish_status: status.map(Into::into),
            preempted_ns: lists[0].clone(),
            preempted_steps: lists[1].clone(),
            resumed_ns: lists[2].clone(),
            resumed_steps: lists[3].clone(),
            block_size: (!lists[4].is_empty()).then_some(16),
            block_hashes: lists[4].clone(),
            temperature: counts[0].map(|count| count.get() as f64 / 7.0),
            top_p: counts[1].map(|count| 1.0 / (1.0 + count.get() as f64)),
            max_output_tokens: counts[5],
        }
    });
    prop::collection::vec(row, 1..6).prop_map(|mut rows| {
        for (index, row) in rows.iter_mut().enumerate() {
            row.request_id = format!("{}#{index}", row.request_id).into();
        }
        rows
    })
}

proptest! {
    #[test]
    fn a_request_table_reads_back_as_it_was(one in rows(), other in rows(), tp in prop::option::of(1u32..9)) {
        let run = |experiment: &str| Run {
            experiment: experiment.to_owned(),
            model: Some("llama-2-70b, \"chat\"".to_owned()),
            tensor_parallel_size: tp,
            ..Run::default()
        };
        let traces =
            [RequestTrace { run: run("a"), requests: one }, RequestTrace { run: run("b"), requests: other }];
        let file = tempfile::NamedTempFile::new().unwrap();
        request_table::write(&file, &traces).unwrap();
        let read = by_format(file.path()).unwrap();
        prop_assert_eq!(read.requests_read() as usize, traces[0].requests.len() + traces[1].requests.len());
        prop_assert_eq!(read.requests, traces);
    }

    #[test]
    fn no_text_makes_a_reader_panic(text in "\\PC{0,60}|[\\[{][\\[\\]{}\":,0-9a-z]{0,40}|[a-z_,.]{0,20}\n[0-9,]{0,20}") {
        for reader in [by_format, inference_perf::read, guidellm::read, vllm_bench::read, request_table::read] {
            let _ = read_text(reader, &text);
        }
    }
}

#[test]
fn a_key_that_appears_twice_is_an_error_in_every_report() {
    let twice = "key 'start_time' appears twice";
    assert!(message(inference_perf::read, "[{\"start_time\": 1, \"start_time\": 2}]").contains(twice));
    let export = "{\"resourceSpans\": [{\"start_time\": 1, \"start_time\": 2}]}";
    assert!(message(ridgepoint_lab::ingest::otlp::read, export).contains(twice));
    let timings = "{\"timings\": {\"start_time\": 1, \"start_time\": 2}}";
    let report = format!("{{\"benchmarks\": [{{\"requests\": {{\"successful\": [{{\"info\": {timings}}}]}}}}]}}");
    assert!(message(guidellm::read, &report).contains(twice));
    assert!(message(guidellm::read, "{\"args\": {}, \"args\": {}}").contains("duplicate field `args`"));
}

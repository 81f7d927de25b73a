//! Files that mean harm: a few bytes that become millions of values, and tables that would be refused when they are read.

use std::io::Write;
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;
use proptest::prelude::*;
use ridgepoint_lab::ingest::format::Format;
use ridgepoint_lab::ingest::{Capture, DropReason, request_table, token_table};

use crate::ingest_reports::{by_format, message, read_text};

/// A file that begins with `head`, repeats `unit`, and ends with `tail`, in gzip.
fn packed(head: &str, unit: &str, times: usize, tail: &str) -> Vec<u8> {
    let mut file = GzEncoder::new(Vec::new(), Compression::best());
    file.write_all(format!("{head}{}{tail}", unit.repeat(times)).as_bytes()).unwrap();
    file.finish().unwrap()
}

fn of_bytes(name: &str, bytes: &[u8]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    std::fs::write(&path, bytes).unwrap();
    let read = Format::detect(Path::new(&path)).and_then(|format| format.read(&path));
    read.map(|_| ()).map_or_else(|error| error.to_string(), |()| "accepted".to_owned())
}

#[test]
fn a_few_bytes_of_gzip_become_no_millions_of_values() {
    const SPAN: &str = r#"{"resourceSpans":[{"scopeSpans":[{"spans":[{"name":"llm_request","traceId":"a","spanId":"b","attributes":[{"key":"x","value":{"arrayValue":{"values":["#;
    const TRANSFER: &str = r#"["TransferInitiated",1,"r","GPU","CPU",4,7],"#;
    for (name, head, unit, tail) in [
        ("guidellm.json.gz", r#"{"benchmarks":[{"requests":{"successful":["#, "{},", "{}]}}]}"),
        ("guidellm.json.gz", r#"{"benchmarks":["#, r#"{"requests":{}},"#, "{}]}"),
        ("bench.json.gz", r#"{"backend":"vllm","start_times":[1],"output_lens":[1],"input_lens":["#, "1,", "1]}"),
        ("tokens.jsonl.gz", r#"{"prompt_tokens":5,"output_tokens":1,"ttft_ms":1,"block_hashes":["#, "1,", "1]}\n"),
        ("kv.jsonl.gz", r#"[1.0, [["BlockStored", ["#, "1,", "1], null, [1], 16, null, \"GPU\"]], null, 1]\n"),
        ("kv.jsonl.gz", "[1.0, [", TRANSFER, r#"["AllBlocksCleared"]], null, 1]"#),
        ("otlp.json.gz", SPAN, "{},", "{}]}}}]}]}]}]}"),
    ] {
        let said = of_bytes(name, &packed(head, unit, 1_000_000, tail));
        let is_limited = said.contains("of gzip: unpack it") || said.contains("at most 10000 benchmarks");
        assert!(is_limited, "{head}: {said}");
    }
}

#[test]
fn lists_of_a_plain_file_end_at_a_limit() {
    let list = format!(r#"{{"benchmarks":[{}{{}}]}}"#, r#"{"requests":{}},"#.repeat(10_001));
    assert!(message(by_format, &list).contains("a report has at most 10000 benchmarks"));
    // Requests without any values are counted, not kept.
    let list = format!(r#"{{"benchmarks":[{{"requests":{{"successful":[{}{{}}]}}}}]}}"#, "{},".repeat(9));
    assert_eq!(read_text(by_format, &list).unwrap().dropped_requests.count(DropReason::Incomplete), 10);
}

#[test]
fn known_keys_that_are_not_read_may_hold_anything() {
    let line = r#"{"prompt_tokens":5,"output_tokens":1,"ttft_ms":1,"arrival_ms":1,"mm_hashes":[["a",{"b":[1.5,null,true,-1]}]],"output_token_ids":[1,2]}"#;
    let read = read_text(by_format, line).unwrap();
    assert!(read.requests_read() == 1 && read.notes.is_empty(), "{:?}", read.notes);
}

/// What is read of the tables that would be written of a capture.
fn written_and_read(capture: &Capture) -> Result<(), TestCaseError> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("table.csv");
    if !capture.requests.is_empty() {
        request_table::write(std::fs::File::create(&path).unwrap(), &capture.requests).unwrap();
        prop_assert_eq!(
            &by_format(&path).map_err(|error| TestCaseError::fail(error.to_string()))?.requests,
            &capture.requests
        );
    }
    if !capture.tokens.is_empty() {
        token_table::write(std::fs::File::create(&path).unwrap(), &capture.tokens).unwrap();
        prop_assert_eq!(
            &by_format(&path).map_err(|error| TestCaseError::fail(error.to_string()))?.tokens,
            &capture.tokens
        );
    }
    Ok(())
}

/// Counts and times, ordinary and odd.
fn number() -> impl Strategy<Value = u64> {
    prop_oneof![0..20_u64, Just(65_536), Just(65_537), 60_000..1_000_000_u64, any::<u64>()]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn what_is_made_of_requests_is_read_back(
        lines in prop::collection::vec((number(), number(), number(), prop::collection::vec(number(), 0..3), 0..9_u8), 1..6)
    ) {
        let line = |(prompt, output, arrival, gaps, kind): &(u64, u64, u64, Vec<u64>, u8)| {
            let tokens: Vec<u64> = gaps.iter().map(|gap| gap % 70_000).collect();
            let tokens = if *kind < 3 { format!(r#","itl_tokens":{tokens:?}"#) } else { String::new() };
            format!(
                r#"{{"prompt_tokens":{prompt},"output_tokens":{output},"arrival_ms":{arrival},"ttft_ms":{kind},"itl_ms":{gaps:?}{tokens}}}"#
            )
        };
        let text: Vec<String> = lines.iter().map(line).collect();
        written_and_read(&read_text(by_format, &text.join("\n")).unwrap())?;
    }
}

#[test]
fn a_chunk_that_no_table_holds_is_a_bad_value() {
    let line = |output: u64| {
        format!(r#"{{"prompt_tokens":5,"output_tokens":{output},"ttft_ms":1,"arrival_ms":1,"itl_ms":[1]}}"#)
    };
    let read = read_text(by_format, &[line(65_537), line(65_538)].join("\n")).unwrap();
    assert_eq!((read.tokens[0].requests.len(), read.dropped_requests.count(DropReason::BadValue)), (1, 1));
}

#[test]
fn a_count_that_no_server_reaches_names_its_line() {
    let line = |count: u64| format!("[x] KV Transfer metrics: vllm:kv_offload_store_size_count={count}\n");
    let said = message(
        by_format,
        &format!(
            "(APIServer pid=1) INFO 11-22 02:33:59 [loggers.py:335] Engine 000: Running: 5 reqs\n{}{}",
            line(23),
            line(u64::MAX - 23)
        ),
    );
    assert!(said.contains("line 3") && said.contains("is 18446744073709551592, expected at most"), "{said}");
}

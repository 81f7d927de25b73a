//! Tests of the parser of batch files.

use proptest::prelude::*;

use super::*;

fn fault(text: &str) -> String {
    parse(text.as_bytes()).unwrap_err()
}

#[test]
fn both_names_of_a_key_are_read() {
    let text = r#"{"requests": [{"num_computed_tokens": 5, "num_scheduled_tokens": 1},
        {"progress_index": 0, "num_new_tokens": 7, "samples": false}]}"#;
    let chunk = Request::partial_prefill(7, 0);
    assert_eq!(parse(text.as_bytes()).unwrap(), [Request::decode(5), chunk]);
}

#[test]
fn a_fault_names_request_key_line_and_column() {
    let text = "{\"requests\": [\n{\"num_computed_tokens\": 5, \"num_scheduled_tokens\": 1},\n{\"num_computed_tokens\": -1, \"num_scheduled_tokens\": 1}]}";
    let message = fault(text);
    assert!(
        message.starts_with("requests[1].num_computed_tokens: -1 must be a whole number from 0 to 4294967295"),
        "{message}"
    );
    assert!(message.ends_with("at line 3 column 26") || message.ends_with("at line 3 column 25"), "{message}");
}

#[test]
fn numbers_that_are_no_token_counts_are_refused() {
    for (number, said) in [
        ("4294967296", "4294967296 must be a whole number from 0 to 4294967295"),
        ("18446744073709551616", "must be a whole number"),
        ("1.5", "1.5 must be a whole number"),
        ("1e400", "number out of range"),
        ("\"5\"", "invalid type: string"),
        ("null", "invalid type: null"),
        ("NaN", "expected"),
    ] {
        let message = fault(&format!(r#"{{"requests": [{{"num_computed_tokens": {number}}}]}}"#));
        assert!(message.contains(said) && message.contains("requests[0].num_computed_tokens"), "{message}");
    }
}

#[test]
fn only_the_documented_shape_is_read() {
    for (text, said) in [
        ("", "is empty"),
        ("[]", "invalid type: sequence"),
        ("{}", "missing field `requests`"),
        (r#"{"requests": {}}"#, "expected a sequence"),
        (r#"{"requests": [], "requests": []}"#, "duplicate field"),
        (r#"{"requests": [], "comment": 1}"#, "unknown field `comment`"),
        (r#"{"requests": [[1, 2]]}"#, "requests[0]: invalid type: sequence"),
        (r#"{"requests": [{"num_computed_tokens": 1}]}"#, "requests[0]: missing field `num_scheduled_tokens`"),
        (r#"{"requests": [{"num_scheduled_tokens": 1}]}"#, "requests[0]: missing field `num_computed_tokens`"),
        (r#"{"requests": [{"num_tokens": 1}]}"#, "unknown field `num_tokens`"),
        (r#"{"requests": [{"num_new_tokens": 1, "num_scheduled_tokens": 1}]}"#, "duplicate field"),
        (r#"{"requests": []} x"#, "text after the end"),
        (r#"{"requests": [{"num_computed_tokens": 1, "#, "EOF while parsing"),
    ] {
        let message = fault(text);
        assert!(message.contains(said), "{text}: {message}");
    }
}

#[test]
fn deep_nesting_is_an_error_not_a_crash() {
    let text = format!("{{\"requests\": [{{\"x\": {}", "[".repeat(200_000));
    assert!(!fault(&text).is_empty());
}

proptest! {
    #[test]
    fn no_bytes_make_the_parser_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = parse(&bytes);
    }

    #[test]
    fn no_damage_makes_the_parser_panic(at in 0usize..70, byte: u8, cut in 0usize..80) {
        let mut text = br#"{"requests": [{"num_computed_tokens": 12, "num_scheduled_tokens": 34}]}"#.to_vec();
        text[at] = byte;
        text.truncate(cut);
        let _ = parse(&text);
    }

    #[test]
    fn every_request_reads_back(computed: u32, scheduled: u32, samples: bool) {
        let request = Request::new(computed, scheduled, samples);
        let text = serde_json::json!({"requests": [request]}).to_string();
        prop_assert_eq!(parse(text.as_bytes()).unwrap(), vec![request]);
    }
}

//! Tests of the parser of batch files.

use proptest::prelude::*;

use super::*;

fn parse(origin: &str, text: &str) -> Result<Vec<Request>> {
    Ok(requests(origin, &parse_json(origin, text)?)?.0)
}

fn fault(text: &str) -> String {
    parse("batch.json", text).unwrap_err().to_string()
}

#[test]
fn both_names_of_a_key_are_read() {
    let text = r#"{"requests": [{"num_computed_tokens": 5, "num_scheduled_tokens": 1},
        {"progress_index": 0, "num_new_tokens": 7, "samples": false}]}"#;
    let chunk = Request::partial_prefill(7, 0);
    assert_eq!(parse("batch.json", text).unwrap(), [Request::decode(5), chunk]);
}

#[test]
fn requests_may_set_sampling_parameters() {
    let of = |params: &str| {
        format!(r#"{{"num_computed_tokens": 5, "num_scheduled_tokens": 1, "sampling_params": {params}}}"#)
    };
    let read = |text: String| Batch::from_json("batch.json", &parse_json("batch.json", &text)?);
    let batch = read(format!(r#"{{"requests": [{}, {}]}}"#, of("{}"), of(r#"{"temperature": 0}"#))).unwrap();
    assert!(batch.sampling[0] == OwnSampling::default() && batch.sampling[1] != OwnSampling::default());
    let none = read(format!(r#"{{"requests": [{}]}}"#, of("{}"))).unwrap();
    assert!(none.sampling.is_empty());
    let error = read(format!(r#"{{"requests": [{}]}}"#, of(r#"{"top_q": 1}"#))).err().unwrap().to_string();
    assert!(error.contains("requests[0].sampling_params.top_q is not a known key"), "{error}");
}

#[test]
fn every_fault_names_its_request_key_and_value() {
    let text = "{\"requests\": [\n{\"num_computed_tokens\": 5, \"num_scheduled_tokens\": 1},\n\
                {\"num_computed_tokens\": -1}, [1, 2]]}";
    assert_eq!(
        fault(text),
        "batch.json: requests[1].num_scheduled_tokens is missing (other names: num_new_tokens); \
         requests[1].num_computed_tokens = -1 must be a whole number from 0 to 4294967295; \
         requests[2] = [1,2] must be an object of keys and values"
    );
}

#[test]
fn numbers_that_are_no_token_counts_are_refused() {
    for number in ["4294967296", "18446744073709551616", "1.5", "\"5\""] {
        let message = fault(&format!(r#"{{"requests": [{{"num_computed_tokens": {number}}}]}}"#));
        assert!(
            message.contains("requests[0].num_computed_tokens") && message.contains("must be a whole number"),
            "{message}"
        );
    }
    for number in ["1e400", "NaN"] {
        let message = fault(&format!(r#"{{"requests": [{{"num_computed_tokens": {number}}}]}}"#));
        assert!(message.contains("line 1 column"), "{message}");
    }
}

#[test]
fn only_the_documented_shape_is_read() {
    for (text, said) in [
        ("", "is not well-formed JSON: EOF"),
        ("[]", "[] must be an object of keys"),
        ("{}", "requests is missing; it is a list of requests"),
        (r#"{"requests": {}}"#, "requests = {} must be a list of requests"),
        (r#"{"requests": [], "requests": []}"#, "key 'requests' appears twice"),
        (r#"{"requests": [], "comment": 1}"#, "comment is not a known key"),
        (r#"{"requests": [{"num_computed_tokens": 1}]}"#, "requests[0].num_scheduled_tokens is missing"),
        (
            r#"{"requests": [{"num_computed_tokens": null, "num_scheduled_tokens": 1}]}"#,
            "num_computed_tokens is missing",
        ),
        (r#"{"requests": [{"num_tokens": 1}]}"#, "requests[0].num_tokens is not a known key"),
        (r#"{"requests": [{"num_new_tokens": 2, "num_scheduled_tokens": 1}]}"#, "are names of one setting"),
        (r#"{"requests": []} x"#, "trailing characters"),
        (r#"{"requests": [{"num_computed_tokens": 1, "#, "EOF while parsing"),
    ] {
        let message = fault(text);
        assert!(message.contains(said), "{text}: {message}");
    }
}

#[test]
fn more_requests_than_memory_holds_are_refused() {
    let decode = [Item::decode("4000000000x2048").unwrap()];
    let Err(error) = Batch::of_items("the command line", decode.to_vec()) else { panic!() };
    assert!(error.to_string().contains("4000000000 requests"), "{error}");
}

#[test]
fn deep_nesting_is_an_error_not_a_crash() {
    let text = format!("{{\"requests\": [{{\"x\": {}", "[".repeat(200_000));
    assert!(!fault(&text).is_empty());
}

proptest! {
    #[test]
    fn no_damage_makes_the_parser_panic(at in 0usize..70, byte in 0u8..128, cut in 0usize..80) {
        let mut text = br#"{"requests": [{"num_computed_tokens": 12, "num_scheduled_tokens": 34}]}"#.to_vec();
        text[at] = byte;
        text.truncate(cut);
        let _ = parse("batch.json", &String::from_utf8(text).unwrap());
    }

    #[test]
    fn every_request_reads_back(computed: u32, scheduled: u32, samples: bool) {
        let request = Request::new(computed, scheduled, samples);
        let text = serde_json::json!({"requests": [request]}).to_string();
        prop_assert_eq!(parse("batch.json", &text).unwrap(), vec![request]);
    }
}

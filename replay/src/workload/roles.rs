//! The roles of the columns of published traces: which column says when a request was sent, how long it was, and what it shares. Names
//! are compared without regard to case, separators and counting words, so that `Request tokens`, `ContextTokens` and
//! `number_input_tokens` need no entries of their own. The unit of a time is part of its name.
//!
//! # Source
//! Column names of BurstGPT 1 and 2, AzurePublicDataset 2023 to 2025, Mooncake, qwen-bailian-usagetraces-anon, splitwise-sim, AIPerf 0.13,
//! Vidur, llmperf, and the request table of `ridgepoint ingest`.

use ridgepoint::units::{NS_PER_MS, NS_PER_S, NS_PER_US};

/// The names of each role, as [`plain`] writes them; times without a unit.
const ROLES: [(&str, &[&str]); 6] = [
    (
        "arrival",
        &[
            "arrival",
            "arrival_time",
            "arrived",
            "arrived_at",
            "arrival_timestamp",
            "timestamp",
            "time_stamp",
            "start_timestamp",
            "request_timestamp",
            "start_time",
            "request_time",
            "request_start",
            "request_start_time",
            "sent_at",
            "created_at",
        ],
    ),
    (
        "input_len",
        &[
            "input_length",
            "input_tokens",
            "input_token_length",
            "input_size",
            "input_sequence_length",
            "isl",
            "prompt_length",
            "prompt_tokens",
            "prompt_token_length",
            "prompt_size",
            "prefill_length",
            "prefill_tokens",
            "context_tokens",
            "request_length",
            "request_tokens",
        ],
    ),
    (
        "output_len",
        &[
            "output_length",
            "output_tokens",
            "output_token_length",
            "output_size",
            "output_sequence_length",
            "osl",
            "completion_length",
            "completion_tokens",
            "generation_length",
            "generated_tokens",
            "generation_tokens",
            "decode_length",
            "decode_tokens",
            "response_length",
            "response_tokens",
            "token_size",
        ],
    ),
    ("session_id", &["session_id", "session", "conversation_id", "conv_id", "dialog_id", "dialogue_id"]),
    ("hash_ids", &["hash_ids", "block_hashes", "block_hash_ids", "prefix_hashes"]),
    ("think_time_s", &["delay", "think_time", "inter_turn_delay", "tool_duration"]),
];

/// Endings of names of times, with the nanoseconds of the unit.
const UNITS: [(&str, u64); 10] = [
    ("ns", 1),
    ("nanoseconds", 1),
    ("us", NS_PER_US),
    ("microseconds", NS_PER_US),
    ("ms", NS_PER_MS),
    ("milliseconds", NS_PER_MS),
    ("s", NS_PER_S),
    ("sec", NS_PER_S),
    ("secs", NS_PER_S),
    ("seconds", NS_PER_S),
];

/// Returns the column of a request list that a name stands for.
pub(super) fn role_of(name: &str) -> Option<&'static str> {
    let plain = plain(name);
    let (timeless, unit) = unit_of(&plain);
    let fits = |role: &str, names: &[&str]| {
        let is_time = ["arrival", "think_time_s"].contains(&role);
        names.contains(&plain.as_str()) || (is_time && unit.is_some() && names.contains(&timeless))
    };
    ROLES.iter().find(|(role, names)| fits(role, names)).map(|(role, _)| *role)
}

/// Returns the nanoseconds of the unit that the name of a time ends with.
pub(super) fn ns_per_unit(name: &str) -> Option<u64> {
    unit_of(&plain(name)).1
}

fn unit_of(plain: &str) -> (&str, Option<u64>) {
    let found = plain.rsplit_once('_').and_then(|(rest, end)| {
        UNITS.iter().find(|(unit, _)| *unit == end).map(|(_, ns_per_unit)| (rest, *ns_per_unit))
    });
    found.map_or((plain, None), |(rest, ns_per_unit)| (rest, Some(ns_per_unit)))
}

/// Writes a name in lower case with `_` between its words: `ContextTokens` becomes `context_tokens`. Words that say a number is one are
/// left out, and `len` and `toks` are spelled out.
fn plain(name: &str) -> String {
    let mut words: Vec<String> = Vec::new();
    let mut was_lower = false;
    for character in name.chars() {
        let begins = !character.is_ascii_alphanumeric() || (was_lower && character.is_ascii_uppercase());
        if begins || words.is_empty() {
            words.push(String::new());
        }
        was_lower = character.is_ascii_lowercase() || character.is_ascii_digit();
        if let (true, Some(word)) = (character.is_ascii_alphanumeric(), words.last_mut()) {
            word.push(character.to_ascii_lowercase());
        }
    }
    words.retain(|word| !word.is_empty());
    let counts = ["num", "n", "number", "of", "count"];
    if words.len() > 1 {
        words.retain(|word| !counts.contains(&word.as_str()));
    }
    for word in &mut words {
        match word.as_str() {
            "len" | "lens" | "lengths" => "length".clone_into(word),
            "toks" => "tokens".clone_into(word),
            _ => {}
        }
    }
    if let Some(last) = words.last_mut().filter(|last| *last == "token") {
        "tokens".clone_into(last);
    }
    words.join("_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn public_names_have_their_role() {
        for (role, names) in [
            (
                "arrival",
                "Timestamp TIMESTAMP arrival_timestamp timestamp_ms arrived_ns request_start_ns arrival_time_s",
            ),
            (
                "input_len",
                "ContextTokens prompt_size number_input_tokens isl input_token_count inputTokens num_prompt_tokens",
            ),
            (
                "output_len",
                "GeneratedTokens token_size number_output_tokens osl completion_tokens output_toks num_generated_tokens",
            ),
            ("session_id", "SessionId conversation_id sessionID"),
            ("hash_ids", "hash_ids block_hashes"),
            ("think_time_s", "delay delay_ms think_time_ms inter_turn_delay"),
        ] {
            for name in names.split(' ') {
                assert_eq!(role_of(name), Some(role), "{name}");
            }
        }
        assert_eq!(
            ["Request tokens", "Response tokens", "Session ID", "arrival (ms)"].map(role_of),
            [Some("input_len"), Some("output_len"), Some("session_id"), Some("arrival")]
        );
    }

    #[test]
    fn other_columns_have_none() {
        for name in [
            "Total tokens",
            "Log Type",
            "Model",
            "NumImages",
            "Elapsed time",
            "num_cached_tokens",
            "first_token_ns",
            "token_ids",
            "max_tokens",
            "request_type",
            "batch_size",
            "application_id",
            "tokens",
            "ms",
            "",
        ] {
            assert_eq!(role_of(name), None, "{name}");
        }
    }

    #[test]
    fn units_are_endings() {
        let names =
            ["arrived_ns", "timestamp_ms", "delay_seconds", "arrival (us)", "arrival_timestamp", "arrival_tokens"];
        assert_eq!(names.map(ns_per_unit), [Some(1), Some(NS_PER_MS), Some(NS_PER_S), Some(NS_PER_US), None, None]);
    }
}

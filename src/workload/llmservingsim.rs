//! LLMServingSim's request files: jsonl with lengths, times in ns and, where wanted, the tokens themselves. Uses `rows`,
//! `seed`.
//!
//! # Source
//! Cho et al., "LLMServingSim", IISWC 2024, and the files published with its code.

use std::io::BufRead;

use serde_json::Value;

use super::WorkloadRequest;
use super::request::{Content, Segment};
use super::rows::{Row, Rows, cell, cut, each_json_line};
use super::seed::mixed;
use crate::error::Result;

/// Tokens that are compared as a piece: vLLM's default block.
const PIECE_TOKENS: usize = 16;

pub(super) const KEYS: [&str; 5] = ["input_toks", "output_toks", "arrival_time_ns", "input_tok_ids", "output_tok_ids"];
/// Marks requests that an agent makes one after the other.
pub(super) const SUB_REQUESTS: &str = "sub_requests";

/// Reads a request file.
pub(super) fn read(origin: &str, reader: impl BufRead) -> Result<Rows> {
    let mut rows = Rows::default();
    each_json_line(origin, reader, |row, line| {
        if let Some(requests) = line.get(SUB_REQUESTS) {
            let expected = "requests that do not wait for each other: agentic sessions are not supported; write each \
                            request on a line of its own with the time at which it is sent";
            return Err(row.bad(SUB_REQUESTS, &cut(&requests.to_string()), expected));
        }
        row.check_keys(line, &KEYS)?;
        let text = |key| cell(line, key).unwrap_or_default();
        let arrival = text("arrival_time_ns");
        let arrival_ns = row.time_ns("arrival_time_ns", &arrival, 1)?;
        row.in_order("arrival_time_ns", &arrival, arrival_ns, &rows)?;
        let num_prompt_tokens = row.tokens("input_toks", &text("input_toks"), 1)?;
        let num_output_tokens = row.tokens("output_toks", &text("output_toks"), 1)?;
        let content = match line.get("input_tok_ids") {
            None | Some(Value::Null) => None,
            Some(ids) => Some(pieces(row, ids, num_prompt_tokens)?),
        };
        let request = WorkloadRequest::new(arrival_ns, num_prompt_tokens, num_output_tokens);
        rows.requests.push(WorkloadRequest { content, ..request });
        Ok(())
    })?;
    Ok(rows)
}

/// Prompts that have their first tokens in common have their first pieces in common.
fn pieces(row: Row<'_>, ids: &Value, num_prompt_tokens: u32) -> Result<Content> {
    let listed: Option<Vec<u64>> = ids.as_array().and_then(|ids| ids.iter().map(Value::as_u64).collect());
    let Some(ids) = listed else {
        return Err(row.bad("input_tok_ids", &cut(&ids.to_string()), "a list of whole numbers"));
    };
    if ids.len() != num_prompt_tokens as usize {
        let expected = format!("{num_prompt_tokens}, as input_toks says");
        return Err(row.bad("input_tok_ids", &format!("{} ids", ids.len()), expected));
    }
    let piece = |ids: &[u64]| Segment {
        id: ids.iter().fold(mixed(ids.len() as u64), |id, token| mixed(id ^ token)),
        num_tokens: ids.len() as u32,
    };
    Ok(ids.chunks(PIECE_TOKENS).map(piece).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(text: &str) -> Result<Rows> {
        read("requests.jsonl", text.as_bytes())
    }

    fn line(arrival_ns: u64, ids: &[u64]) -> String {
        let count = ids.len();
        format!(
            "{{\"input_toks\":{count},\"output_toks\":2,\"arrival_time_ns\":{arrival_ns},\"input_tok_ids\":{ids:?}}}\n"
        )
    }

    #[test]
    fn lengths_and_times_are_taken_as_they_are() {
        let rows = load("{\"input_toks\": 128, \"output_toks\": 512, \"arrival_time_ns\": 1500000250}\n").unwrap();
        assert_eq!(rows.requests, [WorkloadRequest::new(1_500_000_250, 128, 512)]);
    }

    #[test]
    fn tokens_in_common_become_pieces_in_common() {
        let one: Vec<u64> = (0..40).collect();
        let mut other = one.clone();
        other[20] = 999;
        let rows = load(&(line(0, &one) + &line(1, &other) + &line(2, &one[..32]))).unwrap();
        let content: Vec<&[Segment]> = rows.requests.iter().map(|r| r.content.as_deref().unwrap()).collect();
        assert_eq!(content[0].iter().map(|s| s.num_tokens).collect::<Vec<u32>>(), [16, 16, 8]);
        assert_eq!(content[0][0], content[1][0]);
        assert_ne!(content[0][1], content[1][1]);
        assert_eq!(content[0][2], content[1][2]);
        assert_eq!(content[0][..2], *content[2]);
    }

    #[test]
    fn agentic_sessions_and_bad_rows_are_errors() {
        for (text, expected) in [
            ("{\"session_id\":1,\"sub_requests\":[{}]}".to_owned(), "agentic sessions are not supported"),
            (line(5, &[1]) + &line(4, &[1]), "row 2: column 'arrival_time_ns': found 4"),
            (line(0, &[1]).replace("[1]", "[1,2]"), "column 'input_tok_ids': found 2 ids, expected 1"),
            (line(0, &[1]).replace("[1]", "[\"a\"]"), "column 'input_tok_ids'"),
            (line(0, &[]), "column 'input_toks': found 0"),
            (line(0, &[1]).replace("output_toks", "out"), "unknown key 'out'"),
        ] {
            let error = load(&text).map(|_| ()).unwrap_err().to_string();
            assert!(error.starts_with("requests.jsonl: row") && error.contains(expected), "{error}");
        }
    }
}

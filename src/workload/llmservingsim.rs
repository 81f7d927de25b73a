//! LLMServingSim's request files: jsonl with lengths, times in ns and, optionally, the tokens themselves.
//!
//! # Source
//! Cho et al., "LLMServingSim", IISWC 2024, and the files published with its code.

use std::io::BufRead;

use super::WorkloadRequest;
use super::request::{Content, Segment};
use super::rows::{Rows, read_all, time_ns, tokens};
use super::seed::mixed;
use crate::error::Result;
use crate::input::{Columns, Row, RowReader};

/// Tokens that are compared as a piece: vLLM's default block.
const PIECE_TOKENS: usize = 16;

pub(super) const COLUMNS: Columns = Columns {
    optional: &["input_tok_ids", "output_tok_ids"],
    ..Columns::exactly(&["input_toks", "output_toks", "arrival_time_ns"])
};
/// The key of requests that an agent makes one after the other.
pub(super) const SUB_REQUESTS: &str = "sub_requests";

/// Reads a request file.
pub(super) fn read(origin: &str, reader: impl BufRead) -> Result<Rows> {
    read_all(RowReader::jsonl(origin, reader, COLUMNS), "arrival_time_ns", |row| {
        let arrival_ns = time_ns(row, "arrival_time_ns", 1)?;
        let (input, output) = (tokens(row, "input_toks")?, tokens(row, "output_toks")?);
        let content = row.optional("input_tok_ids", |row, column| pieces(row, column, input))?;
        Ok(WorkloadRequest { content, ..WorkloadRequest::new(arrival_ns, input, output) })
    })
}

/// Prompts whose first tokens are equal have equal first pieces.
fn pieces(row: &Row<'_>, column: &str, num_prompt_tokens: u32) -> Result<Content> {
    let ids = row.wholes(column)?;
    if ids.len() != num_prompt_tokens as usize {
        return Err(row.bad(column, format!("{num_prompt_tokens} ids, the value of input_toks")));
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
    fn bad_rows_are_errors() {
        for (text, expected) in [
            (line(5, &[1]) + &line(4, &[1]), "row 2: column 'arrival_time_ns': found 4"),
            (line(0, &[1]).replace("[1]", "[1,2]"), "column 'input_tok_ids': found [1,2], expected 1 ids"),
            (line(0, &[1]).replace("[1]", "[\"a\"]"), "column 'input_tok_ids'"),
            (line(0, &[]), "column 'input_toks': found 0"),
            (line(0, &[1]).replace("output_toks", "out"), "column 'out' is not known"),
        ] {
            let error = load(&text).map(|_| ()).unwrap_err().to_string();
            assert!(error.starts_with("requests.jsonl: ") && error.contains(expected), "{error}");
        }
    }
}

//! Mooncake's traces: jsonl with ids of the prompts' blocks.
//!
//! # Source
//! Qin et al., "Mooncake: trading more storage for less computation", FAST 2025, and the traces published with it.

use std::io::BufRead;

use super::WorkloadRequest;
use super::request::{Content, Segment};
use super::rows::{Rows, read_all, time_ns, tokens};
use crate::error::Result;
use crate::input::{Columns, Row, RowReader};
use crate::units::NS_PER_MS;

/// Tokens of a block; the last block of a prompt may have fewer.
const BLOCK_TOKENS: u32 = 512;

pub(super) const COLUMNS: Columns =
    Columns { optional: &["hash_ids"], ..Columns::exactly(&["timestamp", "input_length", "output_length"]) };

/// Reads a trace; `timestamp` is in ms.
pub(super) fn read(origin: &str, reader: impl BufRead) -> Result<Rows> {
    read_all(RowReader::jsonl(origin, reader, COLUMNS), "timestamp", |row| {
        let arrival_ns = time_ns(row, "timestamp", NS_PER_MS)?;
        let (input, output) = (tokens(row, "input_length")?, tokens(row, "output_length")?);
        let content = row.optional("hash_ids", |row, column| blocks(row, column, input))?;
        Ok(WorkloadRequest { content, ..WorkloadRequest::new(arrival_ns, input, output) })
    })
}

fn blocks(row: &Row<'_>, column: &str, num_prompt_tokens: u32) -> Result<Content> {
    let ids = row.wholes(column)?;
    let expected = num_prompt_tokens.div_ceil(BLOCK_TOKENS) as usize;
    if ids.len() != expected {
        return Err(row.bad(column, format!("{expected} ids, one for every 512 of {num_prompt_tokens} tokens")));
    }
    let starts = (0..num_prompt_tokens).step_by(BLOCK_TOKENS as usize);
    let lengths = starts.map(|start| BLOCK_TOKENS.min(num_prompt_tokens - start));
    Ok(ids.into_iter().zip(lengths).map(|(id, num_tokens)| Segment { id, num_tokens }).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(text: &str) -> Result<Rows> {
        read("trace.jsonl", text.as_bytes())
    }

    #[test]
    fn ids_become_blocks_and_the_last_is_cut() {
        let rows = load(
            "{\"timestamp\": 0, \"input_length\": 1100, \"output_length\": 50, \"hash_ids\": [46, 47, 2]}\n\
             {\"timestamp\": 30500, \"input_length\": 512, \"output_length\": 1, \"hash_ids\": [46]}\n\
             {\"timestamp\": 30500, \"input_length\": 9, \"output_length\": 3}\n",
        )
        .unwrap();
        let segment = |id, num_tokens| Segment { id, num_tokens };
        // 1100 = 512 + 512 + 76.
        let first = [segment(46, 512), segment(47, 512), segment(2, 76)];
        assert_eq!(rows.requests[0].content.as_deref(), Some(first.as_slice()));
        assert_eq!(rows.requests[1].content.as_deref(), Some([segment(46, 512)].as_slice()));
        assert_eq!((rows.requests[1].arrival_ns, rows.requests[2].content.as_ref()), (30_500_000_000, None));
    }

    #[test]
    fn bad_rows_name_what_is_wrong() {
        let line = |timestamp: &str, input: &str, ids: &str| {
            format!("{{\"timestamp\":{timestamp},\"input_length\":{input},\"output_length\":1,\"hash_ids\":{ids}}}\n")
        };
        for (text, expected) in [
            (line("0", "513", "[1]"), "column 'hash_ids': found [1], expected 2 ids, one for every 512 of 513 tokens"),
            (line("0", "512", "[1,2]"), "column 'hash_ids': found [1,2], expected 1 ids"),
            (line("0", "512", "[-1]"), "column 'hash_ids': found [-1], expected a list of whole numbers"),
            (line("0", "512", "\"1\""), "column 'hash_ids'"),
            (line("0", "0", "[]"), "column 'input_length': found 0"),
            (line("-5", "1", "[1]"), "column 'timestamp': found -5"),
            (line("9", "1", "[1]") + &line("8", "1", "[1]"), "row 2: column 'timestamp': found 8"),
            ("{\"timestamp\":0,\"input_length\":1}".into(), "column 'output_length' is missing"),
            (
                "{\"timestamp\":0,\"input_length\":1,\"output_length\":1,\"user\":3}".into(),
                "column 'user' is not known",
            ),
        ] {
            let error = load(&text).map(|_| ()).unwrap_err().to_string();
            assert!(error.starts_with("trace.jsonl: ") && error.contains(expected), "{error}");
        }
    }
}

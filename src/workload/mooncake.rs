//! Mooncake's traces: jsonl with ids of the prompts' blocks. Uses `rows`, `units`.
//!
//! # Source
//! Qin et al., "Mooncake: trading more storage for less computation", FAST 2025, and the traces published with it.

use std::io::BufRead;

use serde_json::Value;

use super::WorkloadRequest;
use super::request::{Content, Segment};
use super::rows::{Row, Rows, cell, cut, each_json_line};
use crate::error::Result;
use crate::units::NS_PER_MS;

/// Tokens that one of `hash_ids` stands for; the last one may stand for less.
const BLOCK_TOKENS: u32 = 512;

pub(super) const KEYS: [&str; 4] = ["timestamp", "input_length", "output_length", "hash_ids"];

/// Reads a trace; `timestamp` is in ms.
pub(super) fn read(origin: &str, reader: impl BufRead) -> Result<Rows> {
    let mut rows = Rows::default();
    each_json_line(origin, reader, |row, line| {
        row.check_keys(line, &KEYS)?;
        let text = |key| cell(line, key).unwrap_or_default();
        let timestamp = text("timestamp");
        let arrival_ns = row.time_ns("timestamp", &timestamp, NS_PER_MS)?;
        row.in_order("timestamp", &timestamp, arrival_ns, &rows)?;
        let num_prompt_tokens = row.tokens("input_length", &text("input_length"), 1)?;
        let num_output_tokens = row.tokens("output_length", &text("output_length"), 1)?;
        let content = match line.get("hash_ids") {
            None | Some(Value::Null) => None,
            Some(ids) => Some(blocks(row, ids, num_prompt_tokens)?),
        };
        let request = WorkloadRequest::new(arrival_ns, num_prompt_tokens, num_output_tokens);
        rows.requests.push(WorkloadRequest { content, ..request });
        Ok(())
    })?;
    Ok(rows)
}

fn blocks(row: Row<'_>, ids: &Value, num_prompt_tokens: u32) -> Result<Content> {
    let listed: Option<Vec<u64>> = ids.as_array().and_then(|ids| ids.iter().map(Value::as_u64).collect());
    let Some(ids) = listed else {
        return Err(row.bad("hash_ids", &cut(&ids.to_string()), "a list of whole numbers, one for every 512 tokens"));
    };
    let expected = num_prompt_tokens.div_ceil(BLOCK_TOKENS) as usize;
    if ids.len() != expected {
        let expected = format!("{expected}, one for every 512 of {num_prompt_tokens} tokens");
        return Err(row.bad("hash_ids", &format!("{} ids", ids.len()), expected));
    }
    let whole = (0..num_prompt_tokens).step_by(BLOCK_TOKENS as usize);
    let lengths = whole.map(|start| BLOCK_TOKENS.min(num_prompt_tokens - start));
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
            (line("0", "513", "[1]"), "column 'hash_ids': found 1 ids, expected 2, one for every 512 of 513 tokens"),
            (line("0", "512", "[1,2]"), "column 'hash_ids': found 2 ids, expected 1"),
            (line("0", "512", "[-1]"), "column 'hash_ids': found [-1], expected a list of whole numbers"),
            (line("0", "512", "\"1\""), "column 'hash_ids'"),
            (line("0", "0", "[]"), "column 'input_length': found 0"),
            (line("-5", "1", "[1]"), "column 'timestamp': found -5"),
            (line("9", "1", "[1]") + &line("8", "1", "[1]"), "row 2: column 'timestamp': found 8"),
            ("{\"timestamp\":0,\"input_length\":1}".into(), "column 'output_length': found nothing"),
            ("{\"timestamp\":0,\"input_length\":1,\"output_length\":1,\"user\":3}".into(), "unknown key 'user'"),
        ] {
            let error = load(&text).map(|_| ()).unwrap_err().to_string();
            assert!(error.starts_with("trace.jsonl: row") && error.contains(expected), "{error}");
        }
    }
}

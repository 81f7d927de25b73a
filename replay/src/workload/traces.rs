//! Published traces in jsonl that say which prompts share a prefix.
//!
//! # Source
//! Qin et al., "Mooncake: trading more storage for less computation", FAST 2025, and Cho et al., "LLMServingSim", IISWC 2024, with the
//! files published with them.
#![expect(clippy::cast_possible_truncation, reason = "a list of a line has fewer than 2^32 blocks")]

use ridgepoint::Result;
use ridgepoint::input::Input;
use ridgepoint::units::NS_PER_MS;

use super::WorkloadRequest;
use super::list_remarks::ListRemarks;
use super::request::{Content, Segment};
use super::rows::{Rows, read_all, time_ns, tokens};
use super::seed::mixed;
use crate::input::{Columns, Row, RowReader};

/// Tokens of a block of Mooncake; the last block of a prompt may have fewer.
const BLOCK_TOKENS: u32 = 512;
/// Tokens that are compared as a piece: vLLM's default block.
const PIECE_TOKENS: usize = 16;

/// Reads a trace of Mooncake, with ids of the prompts' blocks; `timestamp` is in ms.
pub(super) fn mooncake(input: Input<'_>) -> Result<Rows> {
    let columns = Columns { optional: "hash_ids", ..Columns::exactly("timestamp,input_length,output_length") };
    let mut remarks = ListRemarks::default();
    let mut rows = read_all(RowReader::jsonl(input, columns.among_others()), "timestamp", |row| {
        remarks.see_others(row)?;
        let arrival_ns = time_ns(row, "timestamp", NS_PER_MS)?;
        let (input, output) = (tokens(row, "input_length")?, tokens(row, "output_length")?);
        let content = row.optional("hash_ids", |row, column| blocks(row, column, input))?;
        Ok(WorkloadRequest { content, ..WorkloadRequest::new(arrival_ns, input, output) })
    })?;
    rows.notes.extend(remarks.notes(true));
    Ok(rows)
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

/// Reads a request file of LLMServingSim, which may have the tokens themselves; times are in ns.
pub(super) fn llmservingsim(input: Input<'_>) -> Result<Rows> {
    let required = Columns::exactly("input_toks,output_toks,arrival_time_ns");
    let columns = Columns { optional: "input_tok_ids,output_tok_ids", ..required };
    read_all(RowReader::jsonl(input, columns), "arrival_time_ns", |row| {
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
    use ridgepoint::input::FileKind;

    use super::*;

    fn mooncake(text: &str) -> Result<Rows> {
        super::mooncake(Input::new(FileKind::Requests, "trace.jsonl", text.as_bytes())?)
    }

    #[test]
    fn ids_become_blocks_and_the_last_is_cut() {
        let rows = mooncake(
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
                "{\"timestamp\":0,\"input_length\":1,\"output_length\":1,\"hash_idz\":[3]}".into(),
                "column 'hash_idz' is not known: did you mean hash_ids?",
            ),
        ] {
            let error = mooncake(&text).map(|_| ()).unwrap_err().to_string();
            assert!(error.starts_with("trace.jsonl: ") && error.contains(expected), "{error}");
        }
    }

    fn llmservingsim(text: &str) -> Result<Rows> {
        super::llmservingsim(Input::new(FileKind::Requests, "requests.jsonl", text.as_bytes())?)
    }

    fn line(arrival_ns: u64, ids: &[u64]) -> String {
        let count = ids.len();
        format!(
            "{{\"input_toks\":{count},\"output_toks\":2,\"arrival_time_ns\":{arrival_ns},\"input_tok_ids\":{ids:?}}}\n"
        )
    }

    #[test]
    fn lengths_and_times_are_taken_as_they_are() {
        let rows =
            llmservingsim("{\"input_toks\": 128, \"output_toks\": 512, \"arrival_time_ns\": 1500000250}\n").unwrap();
        assert_eq!(rows.requests, [WorkloadRequest::new(1_500_000_250, 128, 512)]);
    }

    #[test]
    fn tokens_in_common_become_pieces_in_common() {
        let one: Vec<u64> = (0..40).collect();
        let mut other = one.clone();
        other[20] = 999;
        let rows = llmservingsim(&(line(0, &one) + &line(1, &other) + &line(2, &one[..32]))).unwrap();
        let content: Vec<&[Segment]> = rows.requests.iter().map(|r| r.content.as_deref().unwrap()).collect();
        assert_eq!(content[0].iter().map(|s| s.num_tokens).collect::<Vec<u32>>(), [16, 16, 8]);
        assert_eq!(content[0][0], content[1][0]);
        assert_ne!(content[0][1], content[1][1]);
        assert_eq!(content[0][2], content[1][2]);
        assert_eq!(content[0][..2], *content[2]);
    }

    #[test]
    fn bad_requests_are_errors() {
        for (text, expected) in [
            (line(5, &[1]) + &line(4, &[1]), "row 2: column 'arrival_time_ns': found 4"),
            (line(0, &[1]).replace("[1]", "[1,2]"), "column 'input_tok_ids': found [1,2], expected 1 ids"),
            (line(0, &[1]).replace("[1]", "[\"a\"]"), "column 'input_tok_ids'"),
            (line(0, &[]), "column 'input_toks': found 0"),
            (line(0, &[1]).replace("output_toks", "out"), "column 'out' is not known"),
        ] {
            let error = llmservingsim(&text).map(|_| ()).unwrap_err().to_string();
            assert!(error.starts_with("requests.jsonl: ") && error.contains(expected), "{error}");
        }
    }
}

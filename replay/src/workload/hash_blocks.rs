//! The contents of prompts from the hashes of their blocks, as published traces and request tables have them.

use ridgepoint::Result;

use super::limits::MAX_TOKENS;
use super::request::Segment;
use super::request_list::id_of;
use crate::input::Row;

/// Tokens of a block of Mooncake and AIPerf.
const MOONCAKE_TOKENS: u32 = 512;
/// Tokens of a block of the traces of Bailian, which have this column.
const BAILIAN: (&str, u32) = ("chat_id", 16);

/// The blocks of a prompt of `num_tokens` tokens by a row's hashes; `None` without any.
pub(super) struct HashBlocks {
    /// The blocks, no longer than the prompt.
    pub(super) segments: Vec<Segment>,
    /// Whether the hashes are neither those of all blocks nor those of the full ones.
    pub(super) is_misfit: bool,
}

impl HashBlocks {
    /// Reads the hashes of a row: a list, or numbers in a cell. The block size is that of the row, or of those who publish such rows.
    pub(super) fn read(row: &Row<'_>, num_tokens: u32) -> Result<Option<Self>> {
        let Some(text) = row.text("hash_ids") else { return Ok(None) };
        let usual = if row.others().iter().any(|name| name == BAILIAN.0) { BAILIAN.1 } else { MOONCAKE_TOKENS };
        let block_size = row.optional("block_size", |row, column| row.whole(column, 1..=MAX_TOKENS))?.unwrap_or(usual);
        let hashes =
            text.split(['[', ']', ',', ' ']).map(|hash| hash.trim_matches('"')).filter(|hash| !hash.is_empty());
        let (mut left, mut number) = (num_tokens, 0);
        let mut segments = Vec::new();
        for hash in hashes {
            number += 1;
            let tokens = block_size.min(left);
            left -= tokens;
            if tokens > 0 {
                segments.push(Segment { id: hash.parse().unwrap_or_else(|_| id_of(hash)), num_tokens: tokens });
            }
        }
        let is_misfit =
            number != num_tokens.div_ceil(block_size) as usize && number != (num_tokens / block_size) as usize;
        Ok((number > 0).then_some(HashBlocks { segments, is_misfit }))
    }
}

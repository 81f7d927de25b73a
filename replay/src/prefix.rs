//! Hashes of a request's full blocks, each over its own tokens and all tokens before them, chained as in vLLM
//! (`hash_block_tokens` in `vllm/v1/core/kv_cache_utils.py`). A token is identified by its segment and offset.

use super::block_pool::BlockHash;
use crate::workload::Segment;
use crate::workload::seed::{GOLDEN as SEED, mix};

/// Appends the hashes of the blocks that lie wholly within `content` and the request's first `num_tokens`.
pub(super) fn hash_content(content: &[Segment], num_tokens: u32, block_size: u32, hashes: &mut Vec<BlockHash>) {
    let (mut parent, mut block, mut filled, mut total) = (SEED, SEED, 0, 0);
    for segment in content {
        let mut offset = 0;
        let length = segment.num_tokens.min(num_tokens - total);
        while offset < length {
            let piece = (block_size - filled).min(length - offset);
            block = mix(mix(block ^ segment.id) ^ (u64::from(offset) << 32 | u64::from(piece)));
            offset += piece;
            filled += piece;
            if filled == block_size {
                parent = not_zero(mix(parent ^ block));
                hashes.push(parent);
                (block, filled) = (SEED, 0);
            }
        }
        total += length;
    }
}

/// Hash of the `index`-th block of a request, if no other request can share it.
#[inline]
pub(super) fn hash_own(request: u32, index: usize) -> BlockHash {
    not_zero(mix(mix(SEED ^ (1 << 63 | u64::from(request))) ^ index as u64))
}

#[inline]
fn not_zero(hash: u64) -> BlockHash {
    if hash == 0 { 1 } else { hash }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hashes(content: &[(u64, u32)], num_tokens: u32) -> Vec<BlockHash> {
        let content: Vec<Segment> = content.iter().map(|(id, n)| Segment { id: *id, num_tokens: *n }).collect();
        let mut hashes = Vec::new();
        hash_content(&content, num_tokens, 4, &mut hashes);
        hashes
    }

    #[test]
    fn only_full_blocks_within_content_and_prompt_are_hashed() {
        assert_eq!(hashes(&[(1, 11)], 100).len(), 2);
        assert_eq!(hashes(&[(1, 3), (2, 5)], 100).len(), 2);
        assert_eq!(hashes(&[(1, 12)], 7).len(), 1);
        assert_eq!(hashes(&[], 7).len(), 0);
    }

    #[test]
    fn prompts_share_hashes_up_to_where_they_differ() {
        let (a, b) = (hashes(&[(1, 6), (2, 6)], 12), hashes(&[(1, 6), (3, 6)], 12));
        assert_eq!(a[0], b[0]);
        assert_ne!(a[1], b[1]);
        assert_ne!(a[2], b[2], "equal tokens behind different ones are another block");
    }

    #[test]
    fn the_same_piece_at_another_offset_is_another_block() {
        let all = hashes(&[(1, 8)], 8);
        assert_ne!(all[0], all[1]);
        assert_ne!(hashes(&[(2, 4), (1, 4)], 8)[1], hashes(&[(1, 8)], 8)[1]);
    }

    #[test]
    fn own_blocks_of_two_requests_differ() {
        assert_ne!(hash_own(1, 0), hash_own(2, 0));
        assert_ne!(hash_own(1, 0), hash_own(1, 1));
    }
}

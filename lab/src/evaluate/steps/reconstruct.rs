//! The requests of a step, from snapshots where a trace has them, else from its aggregates. The one home of that
//! reconstruction: whoever fits or judges steps takes the requests from here. Uses `ingest::StepRecord`, `request`.
//!
//! An aggregate says how many requests decode and how many have a prompt chunk, and the tokens of each kind. The rest follows by
//! these rules, in this order:
//!
//! 1. Decodes share `decode_kv_tokens` equally, prompt chunks share `prefill_kv_tokens`.
//! 2. Where a trace does not know these, a running request holds the mean of the KV blocks in use, `(total − free) · block_size /
//!    running` tokens, at least 1. Blocks that requests share (common prefixes) are counted once there, so it is a lower bound.
//! 3. Prompt chunks are as equal as possible. Without `prefill_kv_tokens` a chunk of fewer tokens than that mean is the tail of a
//!    prompt whose head was in the prefix cache, so that the mean is its length after the step; a longer one is a new prompt.
#![expect(clippy::cast_possible_truncation, reason = "at most MAX_REQUESTS")]

use crate::ingest::StepRecord;
use ridgepoint::Request;

/// Where the requests of a step come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Origin {
    /// Snapshots of every request.
    Snapshots,
    /// Aggregates that know the tokens in the cache.
    Aggregates,
    /// Aggregates; tokens in the cache estimated from KV blocks in use.
    KvBlocks,
}

/// More requests than any engine takes into a step: such a record is broken.
const MAX_REQUESTS: u64 = 1 << 14;

/// The requests of a step, and where they come from; `None` where the record knows neither requests nor tokens in the cache nor
/// KV blocks, or holds no request, or more than 16,384.
///
/// ```
/// use ridgepoint::Request;
/// use ridgepoint_lab::evaluate::steps::reconstruct::{Origin, requests};
/// use ridgepoint_lab::ingest::StepRecord;
///
/// // 60 of 100 blocks of 16 tokens are in use by 3 requests: 320 tokens each, and a chunk of 20 tokens ends a prompt.
/// let step = StepRecord {
///     num_prefill_requests: 1, num_decode_requests: 2, prefill_tokens: 20, decode_tokens: 2, num_running: Some(3),
///     kv_blocks_total: Some(100), kv_blocks_free: Some(40), ..StepRecord::default()
/// };
/// let (found, origin) = requests(&step, 16).expect("KV blocks");
/// assert_eq!(found, [Request::decode(320), Request::decode(320), Request::prefill(20, 300)]);
/// assert_eq!(origin, Origin::KvBlocks);
/// ```
pub fn requests(step: &StepRecord, block_size: u32) -> Option<(Vec<Request>, Origin)> {
    if let Some(requests) = &step.requests {
        return (!requests.is_empty()).then(|| (requests.clone(), Origin::Snapshots));
    }
    let (decodes, prefills) = (u64::from(step.num_decode_requests), u64::from(step.num_prefill_requests));
    if !(1..=MAX_REQUESTS).contains(&(decodes + prefills)) {
        return None;
    }
    let needs_blocks =
        (decodes > 0 && step.decode_kv_tokens.is_none()) || (prefills > 0 && step.prefill_kv_tokens.is_none());
    let mean_kv_tokens = if needs_blocks { mean_kv_tokens(step, block_size)? } else { 0 };
    let mut requests = Vec::with_capacity((decodes + prefills) as usize);
    for index in 0..decodes {
        let computed = match step.decode_kv_tokens {
            Some(all) => share(all, decodes, index),
            None => mean_kv_tokens,
        };
        let scheduled = share(step.decode_tokens, decodes, index).max(1);
        // A decode has at least its prompt's first token in the cache; without one it would be a prompt chunk.
        requests.push(request(computed.max(1), scheduled));
    }
    for index in 0..prefills {
        let scheduled = share(step.prefill_tokens, prefills, index).max(1);
        let computed = match step.prefill_kv_tokens {
            Some(all) => share(all, prefills, index),
            None => mean_kv_tokens.saturating_sub(scheduled),
        };
        requests.push(request(computed, scheduled));
    }
    Some((requests, if needs_blocks { Origin::KvBlocks } else { Origin::Aggregates }))
}

/// Tokens in the cache of a running request, by the KV blocks in use.
fn mean_kv_tokens(step: &StepRecord, block_size: u32) -> Option<u64> {
    let used_blocks = step.kv_blocks_used()?;
    let batch = step.num_decode_requests.saturating_add(step.num_prefill_requests);
    let running = step.num_running.unwrap_or(0).max(batch).max(1);
    Some((used_blocks.saturating_mul(u64::from(block_size)) / u64::from(running)).max(1))
}

/// What the one at `index` gets of `all` among `count`, as equally as possible, the first ones more.
fn share(all: u64, count: u64, index: u64) -> u64 {
    all / count + u64::from(index < all % count)
}

fn request(computed: u64, scheduled: u64) -> Request {
    let tokens = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
    Request::new(tokens(computed), tokens(scheduled), true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(prefills: u32, prefill_tokens: u64, decodes: u32) -> StepRecord {
        StepRecord {
            num_prefill_requests: prefills,
            num_decode_requests: decodes,
            prefill_tokens,
            decode_tokens: u64::from(decodes),
            ..StepRecord::default()
        }
    }

    fn with_blocks(of: StepRecord, used: u64, running: u32) -> StepRecord {
        StepRecord { kv_blocks_total: Some(1000), kv_blocks_free: Some(1000 - used), num_running: Some(running), ..of }
    }

    #[test]
    fn snapshots_are_taken_as_they_are() {
        let snapshots = vec![Request::partial_prefill(512, 1024), Request::decode(9)];
        let of = StepRecord { requests: Some(snapshots.clone()), ..with_blocks(step(1, 512, 1), 10, 2) };
        assert_eq!(requests(&of, 16), Some((snapshots, Origin::Snapshots)));
        assert_eq!(requests(&StepRecord { requests: Some(Vec::new()), ..of }, 16), None);
    }

    #[test]
    fn known_tokens_in_the_cache_are_shared_and_none_is_lost() {
        let of = StepRecord { decode_kv_tokens: Some(1001), prefill_kv_tokens: Some(300), ..step(2, 1025, 3) };
        let (found, origin) = requests(&of, 16).unwrap();
        assert_eq!(origin, Origin::Aggregates);
        let decodes = [334, 334, 333].map(Request::decode);
        assert_eq!(found[..3], decodes);
        assert_eq!(found[3..], [Request::prefill(513, 150), Request::prefill(512, 150)]);
    }

    #[test]
    fn a_chunk_longer_than_the_mean_is_a_new_prompt_and_a_shorter_one_a_tail() {
        // 100 blocks of 16 tokens over 4 requests: 400 tokens each.
        let of = |tokens| requests(&with_blocks(step(1, tokens, 3), 100, 4), 16).unwrap().0[3];
        assert_eq!(of(399), Request::prefill(399, 1));
        assert_eq!(of(400), Request::prefill(400, 0));
        assert_eq!(of(2000), Request::prefill(2000, 0));
        // One token on top of a cache is what decode kernels run.
        assert!(of(1).is_decode());
    }

    #[test]
    fn empty_caches_hold_a_token_at_least_and_running_is_at_least_the_batch() {
        let (found, _) = requests(&with_blocks(step(0, 0, 2), 0, 2), 16).unwrap();
        assert_eq!(found, [Request::decode(1); 2]);
        // 10 · 16 / max(1, 2 in the batch).
        let (found, _) = requests(&with_blocks(step(0, 0, 2), 10, 1), 16).unwrap();
        assert_eq!(found, [Request::decode(80); 2]);
    }

    #[test]
    fn what_says_nothing_of_the_cache_is_no_batch() {
        assert_eq!(requests(&step(1, 10, 1), 16), None);
        assert_eq!(requests(&StepRecord { decode_kv_tokens: Some(10), ..step(1, 10, 1) }, 16), None);
        assert_eq!(requests(&step(0, 0, 0), 16), None);
        assert_eq!(requests(&with_blocks(step(0, 0, u32::MAX), 10, 2), 16), None);
        let decodes_only = StepRecord { decode_kv_tokens: Some(10), ..step(0, 0, 1) };
        assert_eq!(requests(&decodes_only, 16), Some((vec![Request::decode(10)], Origin::Aggregates)));
    }

    #[test]
    fn several_tokens_of_a_decode_are_verified_together() {
        let of = StepRecord { decode_tokens: 7, decode_kv_tokens: Some(20), ..step(0, 0, 2) };
        let (found, _) = requests(&of, 16).unwrap();
        assert_eq!(found, [Request::prefill(4, 10), Request::prefill(3, 10)]);
    }
}

//! The look-ups of the disk's blocks, which are answered between two steps.
//!
//! Mirrors `AsyncLookupManager` (vLLM 0.32.0, `vllm/v1/kv_offload/tiering/async_lookup.py`) whose worker answers within a step. An answer
//! is kept as long as a request that asked for it lives, even where the disk has the block later.

use std::collections::{HashMap, HashSet};
use std::hash::BuildHasherDefault;

use super::super::super::block_pool::{AlreadyHashed, BlockHash};
use super::super::super::grown::grown;

/// A look-up of a block.
#[derive(Debug, Default)]
struct LookUp {
    /// Whether the disk has it; `None` until the step ends.
    answer: Option<bool>,
    /// Number of requests that asked for it.
    num_requests: u32,
}

/// The look-ups of all requests.
#[derive(Debug, Default)]
pub(super) struct LookUps {
    by_hash: HashMap<BlockHash, LookUp, BuildHasherDefault<AlreadyHashed>>,
    /// The blocks that each request asked for, by its slot.
    by_slot: Vec<HashSet<BlockHash, BuildHasherDefault<AlreadyHashed>>>,
    /// The blocks that were looked up in this step for the first time.
    unanswered: Vec<BlockHash>,
}

impl LookUps {
    /// Asks for a block. Returns whether the disk has it; `None` if the answer comes with the next step.
    pub(super) fn ask(&mut self, slot: usize, hash: BlockHash) -> Option<bool> {
        let look_up = self.by_hash.entry(hash).or_insert_with(|| {
            self.unanswered.push(hash);
            LookUp::default()
        });
        if grown(&mut self.by_slot, slot, HashSet::default).insert(hash) {
            look_up.num_requests += 1;
        }
        look_up.answer
    }

    /// Answers the look-ups of a step. Returns whether there are any.
    pub(super) fn answer(&mut self, has: impl Fn(BlockHash) -> bool) -> bool {
        let mut any = false;
        for hash in self.unanswered.drain(..) {
            if let Some(look_up) = self.by_hash.get_mut(&hash)
                && look_up.answer.is_none()
            {
                look_up.answer = Some(has(hash));
                any = true;
            }
        }
        any
    }

    /// Notes that the disk no longer has a block.
    pub(super) fn forget(&mut self, hash: BlockHash) {
        if let Some(look_up) = self.by_hash.get_mut(&hash) {
            look_up.answer = look_up.answer.map(|_| false);
        }
    }

    /// Drops the look-ups of a request that has ended, unless others asked for the same.
    pub(super) fn end(&mut self, slot: usize) {
        let Some(asked) = self.by_slot.get_mut(slot) else { return };
        for hash in asked.drain() {
            if let Some(look_up) = self.by_hash.get_mut(&hash) {
                look_up.num_requests -= 1;
                if look_up.num_requests == 0 {
                    self.by_hash.remove(&hash);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_comes_with_the_next_step_and_lives_as_long_as_a_request_that_asked() {
        let mut look_ups = LookUps::default();
        assert_eq!((look_ups.ask(0, 7), look_ups.ask(1, 7), look_ups.ask(0, 8)), (None, None, None));
        assert!(look_ups.answer(|hash| hash == 8));
        assert_eq!((look_ups.ask(0, 7), look_ups.ask(0, 8)), (Some(false), Some(true)));
        look_ups.end(0);
        // The disk has 7 by now, but request 1 still holds the old answer.
        assert!(!look_ups.answer(|_| true));
        assert_eq!((look_ups.ask(0, 7), look_ups.ask(0, 8)), (Some(false), None));
        look_ups.end(0);
        look_ups.end(1);
        assert_eq!(look_ups.ask(0, 7), None);
    }

    #[test]
    fn a_look_up_whose_request_ends_before_its_step_is_asked_anew() {
        let mut look_ups = LookUps::default();
        assert_eq!(look_ups.ask(0, 7), None);
        look_ups.end(0);
        assert_eq!(look_ups.ask(1, 7), None);
        assert!(look_ups.answer(|_| true));
        assert_eq!(look_ups.ask(1, 7), Some(true));
    }
}

//! Uses of the host's blocks that are not entered into their order yet.
//!
//! A request uses all blocks of its chain whenever it fills one more. Entering each use into the order would cost a visit to every block,
//! so only the last ones are kept, and entered when a block that they concern could be evicted. The order is the same.
#![expect(clippy::indexing_slicing, reason = "the tier numbers slots within its lists")]

use super::super::block_pool::BlockHash;
use super::super::kv_cache::hash_of;
use super::super::slot::Slot;

/// The hashes of a request's blocks, and its uses of the first of them: when, and how many. A later use of as many or more stands for an
/// earlier one.
#[derive(Debug, Default)]
struct Chain {
    hashes: Vec<BlockHash>,
    uses: Vec<(u64, usize)>,
    /// Blocks that are marked as used since the uses were entered last, and when that was.
    num_marked: usize,
    round: u64,
}

/// The chains of all requests with uses that are not entered.
#[derive(Debug, Default)]
pub(super) struct Recency {
    chains: Vec<Chain>,
    /// Chains of requests that have ended.
    ended: Vec<Chain>,
    num_ended_blocks: usize,
    now: u64,
    /// Number of times that uses were entered, plus one.
    pub(super) round: u64,
}

impl Recency {
    pub(super) fn new() -> Self {
        Recency { round: 1, ..Recency::default() }
    }

    /// Begins the chain of a new request.
    pub(super) fn add(&mut self, slot: usize) {
        if self.chains.len() <= slot {
            self.chains.resize_with(slot + 1, Chain::default);
        }
        self.end(slot);
    }

    /// Keeps the uses of a request that ends.
    pub(super) fn end(&mut self, slot: usize) {
        let chain = std::mem::take(&mut self.chains[slot]);
        if !chain.uses.is_empty() {
            self.num_ended_blocks += chain.hashes.len();
            self.ended.push(chain);
        }
    }

    /// Number of blocks of ended requests with uses that are not entered.
    pub(super) fn num_ended_blocks(&self) -> usize {
        self.num_ended_blocks
    }

    /// Learns the hashes of a request's first `number` blocks.
    pub(super) fn know(&mut self, slot: usize, state: &Slot, number: usize) {
        let known = &mut self.chains[slot].hashes;
        known.extend((known.len()..number).map(|index| hash_of(state, index)));
    }

    /// The hashes of a request's first `number` blocks, which it knows.
    pub(super) fn hashes(&self, slot: usize, number: usize) -> &[BlockHash] {
        &self.chains[slot].hashes[..number]
    }

    /// Notes a use of a request's first `number` blocks, of which those from `fresh` on are marked as used. Returns the others that have to
    /// be.
    pub(super) fn touch(&mut self, slot: usize, number: usize, fresh: usize) -> &[BlockHash] {
        self.now += 1;
        let chain = &mut self.chains[slot];
        while chain.uses.last().is_some_and(|(_, earlier)| *earlier <= number) {
            chain.uses.pop();
        }
        chain.uses.push((self.now, number));
        if chain.round != self.round {
            (chain.round, chain.num_marked) = (self.round, 0);
        }
        let marked = chain.num_marked.min(fresh);
        chain.num_marked = chain.num_marked.max(number);
        &chain.hashes[marked..fresh]
    }

    /// Takes all uses, the first one first, and hands the hashes of each to `enter`. Returns the round that begins.
    pub(super) fn enter(&mut self, mut enter: impl FnMut(&[BlockHash])) -> u64 {
        let mut uses: Vec<(u64, &[BlockHash])> = Vec::new();
        for chain in self.chains.iter().chain(&self.ended) {
            uses.extend(chain.uses.iter().map(|(at, number)| (*at, &chain.hashes[..*number])));
        }
        uses.sort_unstable_by_key(|(at, _)| *at);
        uses.iter().for_each(|(_, hashes)| enter(hashes));
        self.chains.iter_mut().for_each(|chain| chain.uses.clear());
        self.ended.clear();
        self.num_ended_blocks = 0;
        self.round += 1;
        self.round
    }
}

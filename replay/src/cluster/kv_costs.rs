//! What Dynamo's KV router counts of each replica: prompt tokens that are not computed yet, and full blocks of the prompts in flight, those that
//! several of them share once.
#![expect(clippy::indexing_slicing, reason = "replicas are numbered within their lists")]

use std::collections::HashMap;
use std::hash::BuildHasherDefault;

use super::prefixes::BLOCK_TOKENS;
use crate::block_pool::{AlreadyHashed, BlockHash};

/// The prompt of a request: its tokens, the hashes of the full blocks that others may share, and its other full blocks.
#[derive(Debug, Clone, Default)]
pub(super) struct Prompt {
    pub(super) num_tokens: u32,
    pub(super) hashes: Vec<BlockHash>,
}

impl Prompt {
    fn own_blocks(&self) -> usize {
        (self.num_tokens / BLOCK_TOKENS) as usize - self.hashes.len()
    }

    fn tokens_beyond(&self, known: u32) -> u64 {
        u64::from(self.num_tokens.saturating_sub(BLOCK_TOKENS * known))
    }
}

/// The requests in flight at one replica.
#[derive(Debug, Clone, Default)]
struct InFlight {
    prefill_tokens: u64,
    own_blocks: usize,
    /// Prompts in flight that have a block.
    shared: HashMap<BlockHash, u32, BuildHasherDefault<AlreadyHashed>>,
}

/// The counts of all replicas.
#[derive(Debug)]
pub(super) struct KvCosts {
    replicas: Vec<InFlight>,
    /// Each prompt in flight, with its tokens that are not computed yet.
    prompts: HashMap<u32, (Prompt, u64)>,
}

impl KvCosts {
    pub(super) fn new(replicas: usize) -> Self {
        KvCosts { replicas: vec![InFlight::default(); replicas], prompts: HashMap::new() }
    }

    /// Blocks that a replica has to compute and to hold if it gets a prompt of which it has `known` blocks in its cache.
    ///
    /// # Source
    /// Dynamo 1.6.1 (`lib/kv-router/src/scheduling/selector/default.rs`), with its default weights. The choices of its
    /// mocker have the least cost by this sum (`tests/fixtures/dynamo_mocker/make.py`).
    pub(super) fn cost(&self, replica: usize, prompt: &Prompt, known: u32) -> f64 {
        let of = &self.replicas[replica];
        let to_compute = (of.prefill_tokens + prompt.tokens_beyond(known)) as f64 / f64::from(BLOCK_TOKENS);
        let new = prompt.hashes.iter().filter(|hash| !of.shared.contains_key(*hash)).count();
        to_compute + (of.own_blocks + of.shared.len() + prompt.own_blocks() + new) as f64
    }

    /// A replica gets the `number`-th request.
    pub(super) fn send(&mut self, replica: usize, number: u32, prompt: Prompt, known: u32) {
        let of = &mut self.replicas[replica];
        let tokens = prompt.tokens_beyond(known);
        of.prefill_tokens += tokens;
        of.own_blocks += prompt.own_blocks();
        prompt.hashes.iter().for_each(|hash| *of.shared.entry(*hash).or_default() += 1);
        self.prompts.insert(number, (prompt, tokens));
    }

    /// The `number`-th request has its first token. Returns its prompt's hashes, which the replica's cache then has.
    pub(super) fn computed(&mut self, replica: usize, number: u32) -> &[BlockHash] {
        let Some((prompt, tokens)) = self.prompts.get_mut(&number) else { return &[] };
        self.replicas[replica].prefill_tokens -= std::mem::take(tokens);
        &prompt.hashes
    }

    /// The `number`-th request has ended.
    pub(super) fn ended(&mut self, replica: usize, number: u32) {
        let Some((prompt, tokens)) = self.prompts.remove(&number) else { return };
        let of = &mut self.replicas[replica];
        of.prefill_tokens -= tokens;
        of.own_blocks -= prompt.own_blocks();
        for hash in &prompt.hashes {
            if let Some(count) = of.shared.get_mut(hash) {
                *count -= 1;
                if *count == 0 {
                    of.shared.remove(hash);
                }
            }
        }
    }
}

#[allow(clippy::float_cmp)]
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_that_prompts_share_are_held_once_and_prompts_are_computed_once() {
        let mut costs = KvCosts::new(1);
        let prompt = |num_tokens, own: u64| Prompt { num_tokens, hashes: vec![1, 2, own] };
        // 100 tokens: 6.25 blocks to compute, 6 full ones to hold.
        assert_eq!(costs.cost(0, &prompt(100, 10), 0), 12.25);
        costs.send(0, 0, prompt(100, 10), 0);
        // 64 more: 4 to compute beside 6.25, one more shared and one of its own to hold.
        assert_eq!(costs.cost(0, &prompt(64, 11), 0), 4.0 + 6.25 + 6.0 + 2.0);
        assert_eq!(costs.computed(0, 0), [1, 2, 10]);
        // Two blocks are in the cache.
        assert_eq!(costs.cost(0, &prompt(64, 11), 2), 2.0 + 6.0 + 2.0);
        costs.send(0, 1, prompt(64, 11), 2);
        costs.ended(0, 0);
        assert_eq!(costs.cost(0, &prompt(64, 11), 2), 2.0 + 2.0 + 4.0 + 1.0);
        costs.ended(0, 1);
        assert_eq!(costs.cost(0, &Prompt { num_tokens: 20, hashes: vec![] }, 0), 1.25 + 1.0);
    }
}

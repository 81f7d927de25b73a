//! What a router remembers of the prompts that it sent: which replica was sent a block of tokens last, by its chain of hashes.

use std::collections::HashMap;

use crate::block_pool::BlockHash;
use crate::prefix::hash_content;
use crate::workload::WorkloadRequest;

/// Tokens of a block of the index.
///
/// # Source
/// llm-d's approximate prefix scorer (inference scheduler 520af478): blocks of 16 tokens, at most 256 of a prompt, the least recently sent of a
/// server go beyond 31,250.
const BLOCK_TOKENS: u32 = 16;
const MOST_BLOCKS: usize = 256;
const MOST_OF_A_REPLICA: usize = 31_250;

/// The blocks that were sent to each replica.
#[derive(Debug, Clone)]
pub(super) struct Prefixes {
    /// When a block was last sent to a replica, in requests.
    sent: Vec<HashMap<BlockHash, u64>>,
    now: u64,
    hashes: Vec<BlockHash>,
}

impl Prefixes {
    pub(super) fn new(replicas: usize) -> Self {
        Prefixes { sent: vec![HashMap::new(); replicas], now: 0, hashes: Vec::new() }
    }

    /// Looks up a prompt: the full blocks of it that may be shared, and afterwards [`Prefixes::known`] of each replica.
    pub(super) fn look_up(&mut self, request: &WorkloadRequest) {
        self.hashes.clear();
        if let Some(content) = &request.content {
            hash_content(content, request.num_prompt_tokens, BLOCK_TOKENS, &mut self.hashes);
            self.hashes.truncate(MOST_BLOCKS);
        }
    }

    /// Leading blocks of the prompt that was looked up that a replica was sent.
    pub(super) fn known(&self, replica: usize) -> usize {
        let sent = self.sent.get(replica);
        self.hashes.iter().take_while(|hash| sent.is_some_and(|sent| sent.contains_key(*hash))).count()
    }

    /// Remembers that the prompt was sent to a replica.
    pub(super) fn send(&mut self, replica: usize) {
        self.now += 1;
        let Some(sent) = self.sent.get_mut(replica) else { return };
        sent.extend(self.hashes.iter().map(|hash| (*hash, self.now)));
        if sent.len() > MOST_OF_A_REPLICA + MOST_OF_A_REPLICA / 8 {
            let mut times: Vec<u64> = sent.values().copied().collect();
            let at = times.len() - MOST_OF_A_REPLICA;
            let (_, oldest, _) = times.select_nth_unstable(at);
            let oldest = *oldest;
            sent.retain(|_, last| *last >= oldest);
        }
    }

    /// Number of blocks that a replica was sent and that are remembered.
    pub(super) fn size(&self, replica: usize) -> usize {
        self.sent.get(replica).map_or(0, HashMap::len)
    }

    /// Blocks of a prompt.
    pub(super) fn blocks_of(request: &WorkloadRequest) -> f64 {
        f64::from(request.num_prompt_tokens.div_ceil(BLOCK_TOKENS))
    }
}

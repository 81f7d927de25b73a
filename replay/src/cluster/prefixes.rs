//! What a router remembers of the prompts that it sent: the replicas that were sent a block of tokens, by its chain of hashes.
#![expect(clippy::indexing_slicing, reason = "replicas are numbered within their lists")]
#![expect(clippy::cast_possible_truncation, reason = "there are at most 4,096 replicas")]

use std::collections::{HashMap, VecDeque};
use std::hash::BuildHasherDefault;

use crate::block_pool::{AlreadyHashed, BlockHash};
use crate::prefix::hash_content;
use crate::workload::WorkloadRequest;

/// Tokens of a block of the index, blocks of a prompt that are looked up, and blocks that are remembered of a replica: those that it was sent
/// longest ago go first.
///
/// # Source
/// llm-d's approximate prefix scorer (inference scheduler 520af478).
pub(super) const BLOCK_TOKENS: u32 = 16;
pub(super) const MOST_BLOCKS: usize = 256;
const MOST_OF_A_REPLICA: usize = 31_250;

/// The blocks that were sent to each replica.
#[derive(Debug)]
pub(super) struct Prefixes {
    /// The replicas that were sent a block, each with the number of the request that had it last.
    sent: HashMap<BlockHash, Vec<(u32, u64)>, BuildHasherDefault<AlreadyHashed>>,
    /// The blocks of each replica in the order of sending, with the number of the request; older entries of a block that was sent again are void.
    order: Vec<VecDeque<(BlockHash, u64)>>,
    sizes: Vec<usize>,
    now: u64,
    /// Of the prompt that was looked up: its blocks, and how many of the leading ones each replica was sent.
    pub(super) hashes: Vec<BlockHash>,
    known: Vec<u32>,
    /// Blocks of a prompt that are looked up.
    most_blocks: usize,
}

impl Prefixes {
    pub(super) fn new(replicas: usize, most_blocks: usize) -> Self {
        Prefixes {
            sent: HashMap::default(),
            order: vec![VecDeque::new(); replicas],
            sizes: vec![0; replicas],
            now: 0,
            hashes: Vec::new(),
            known: vec![0; replicas],
            most_blocks,
        }
    }

    /// Looks up a prompt: the full blocks of it that may be shared. [`Prefixes::known`] then is of it.
    pub(super) fn look_up(&mut self, request: &WorkloadRequest) {
        self.hashes.clear();
        self.known.fill(0);
        let Some(content) = &request.content else { return };
        hash_content(content, request.num_prompt_tokens, BLOCK_TOKENS, &mut self.hashes);
        self.hashes.truncate(self.most_blocks);
        for (at, hash) in (0..).zip(&self.hashes) {
            let Some(replicas) = self.sent.get(hash) else { return };
            for (replica, _) in replicas {
                let known = &mut self.known[*replica as usize];
                *known += u32::from(*known == at);
            }
        }
    }

    /// Leading blocks of the prompt that was looked up that a replica was sent.
    pub(super) fn known(&self, replica: usize) -> u32 {
        self.known[replica]
    }

    /// Remembers that the prompt that was looked up was sent to a replica.
    pub(super) fn send(&mut self, replica: usize) {
        let hashes = std::mem::take(&mut self.hashes);
        self.remember(replica, &hashes);
        self.hashes = hashes;
    }

    /// Remembers that a replica has these blocks.
    pub(super) fn remember(&mut self, replica: usize, hashes: &[BlockHash]) {
        self.now += 1;
        for hash in hashes {
            let replicas = self.sent.entry(*hash).or_default();
            match replicas.iter_mut().find(|(of, _)| *of as usize == replica) {
                Some((_, last)) => *last = self.now,
                None => {
                    replicas.push((replica as u32, self.now));
                    self.sizes[replica] += 1;
                }
            }
            self.order[replica].push_back((*hash, self.now));
        }
        self.forget(replica);
    }

    /// Number of blocks that are remembered of a replica.
    pub(super) fn size(&self, replica: usize) -> usize {
        self.sizes[replica]
    }

    /// Blocks of a prompt.
    pub(super) fn blocks_of(request: &WorkloadRequest) -> f64 {
        f64::from(request.num_prompt_tokens.div_ceil(BLOCK_TOKENS))
    }

    /// Forgets the oldest blocks of a replica, and entries that are void.
    fn forget(&mut self, replica: usize) {
        while let Some((hash, of)) = self.order[replica].front().copied() {
            let mut last = 0;
            if let Some(replicas) = self.sent.get(&hash) {
                last = replicas.iter().find(|(at, _)| *at as usize == replica).map_or(0, |(_, last)| *last);
            }
            if last == of && self.sizes[replica] <= MOST_OF_A_REPLICA {
                return;
            }
            self.order[replica].pop_front();
            if last == of {
                self.sizes[replica] -= 1;
                if let Some(replicas) = self.sent.get_mut(&hash) {
                    replicas.retain(|(at, _)| *at as usize != replica);
                    if replicas.is_empty() {
                        self.sent.remove(&hash);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Segment;

    fn on(text: u64, num_tokens: u32) -> WorkloadRequest {
        let content = vec![Segment { id: text, num_tokens }].into();
        WorkloadRequest { content: Some(content), ..WorkloadRequest::new(0, num_tokens, 1) }
    }

    fn known(prefixes: &mut Prefixes, request: &WorkloadRequest) -> Vec<u32> {
        prefixes.look_up(request);
        (0..prefixes.sizes.len()).map(|replica| prefixes.known(replica)).collect()
    }

    #[test]
    fn leading_blocks_are_known_of_the_replicas_that_were_sent_them() {
        let mut prefixes = Prefixes::new(3, MOST_BLOCKS);
        for (replica, request) in [(0, on(1, 64)), (2, on(1, 32)), (2, on(9, 160))] {
            prefixes.look_up(&request);
            prefixes.send(replica);
        }
        assert_eq!(known(&mut prefixes, &on(1, 100)), [4, 0, 2]);
        assert_eq!(known(&mut prefixes, &on(9, 100)), [0, 0, 6]);
        assert_eq!(known(&mut prefixes, &WorkloadRequest::new(0, 100, 1)), [0; 3]);
        assert_eq!([0, 1, 2].map(|replica| prefixes.size(replica)), [4, 0, 12]);
    }

    #[test]
    fn the_blocks_that_were_sent_longest_ago_are_forgotten() {
        let mut prefixes = Prefixes::new(2, MOST_BLOCKS);
        let long = 16 * MOST_BLOCKS as u32;
        let texts = MOST_OF_A_REPLICA / MOST_BLOCKS + 10;
        for text in 0..texts as u64 {
            prefixes.look_up(&on(text, long));
            prefixes.send(1);
            // The first text is sent again and again.
            prefixes.look_up(&on(0, long));
            prefixes.send(1);
        }
        assert_eq!(prefixes.size(1), MOST_OF_A_REPLICA);
        assert_eq!(known(&mut prefixes, &on(0, long)), [0, MOST_BLOCKS as u32]);
        assert_eq!(known(&mut prefixes, &on(1, long)), [0, 0]);
        assert_eq!(known(&mut prefixes, &on(texts as u64 - 1, long))[1], MOST_BLOCKS as u32);
    }
}

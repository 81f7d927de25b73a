//! Chained hashes of KV blocks: one stands for its block and for all blocks before it, so that it has one parent.

use std::collections::HashMap;

/// Remembers the parent with which each hash came first.
#[derive(Debug, Default)]
pub(super) struct HashChains {
    parents: HashMap<u64, Option<u64>>,
}

impl HashChains {
    /// Whether a hash has come.
    pub(super) fn has(&self, hash: u64) -> bool {
        self.parents.contains_key(&hash)
    }

    /// Adds hashes of which each is the parent of the next. Returns how many of them have another parent than before.
    pub(super) fn add<'a>(&mut self, mut parent: Option<u64>, hashes: impl IntoIterator<Item = &'a u64>) -> u64 {
        let mut odd = 0;
        for hash in hashes {
            odd += u64::from(*self.parents.entry(*hash).or_insert(parent) != parent);
            parent = Some(*hash);
        }
        odd
    }
}

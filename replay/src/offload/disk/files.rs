//! The blocks that the disk holds, each a file.
//!
//! Mirrors `batch_store_block` (vLLM 0.32.0, `vllm/v1/kv_offload/tiering/fs/io.py`): a block that the disk has is not written again. vLLM
//! never removes a file; the limit, and the least recently used block that makes room within it, are additions of this replay.

use std::collections::{BTreeMap, HashMap};
use std::hash::BuildHasherDefault;

use super::super::super::block_pool::{AlreadyHashed, BlockHash};

/// A block on the disk.
#[derive(Debug, Default)]
struct DiskBlock {
    /// Whether it is whole, and the time of its last use; `None` while it is written.
    used: Option<u64>,
    /// Number of reads that wait for it or run.
    readers: u32,
}

/// The disk's blocks by their hashes.
#[derive(Debug, Default)]
pub(super) struct Files {
    capacity: Option<u32>,
    held: HashMap<BlockHash, DiskBlock, BuildHasherDefault<AlreadyHashed>>,
    /// Number of blocks that can be read.
    pub(super) num_written: u64,
    /// The blocks that can go by the time of their last use; empty without a limit.
    idle: BTreeMap<u64, BlockHash>,
    now: u64,
}

impl Files {
    pub(super) fn new(capacity: Option<u32>) -> Self {
        Files { capacity, ..Files::default() }
    }

    /// Whether a block can be read.
    pub(super) fn has(&self, hash: BlockHash) -> bool {
        self.held.get(&hash).is_some_and(|file| file.used.is_some())
    }

    /// Begins to write those of the blocks that the disk neither has nor is about to have. Returns them.
    pub(super) fn begin_write(&mut self, hashes: &[BlockHash]) -> Vec<BlockHash> {
        let is_missing = |hash: &&BlockHash| !self.held.contains_key(hash);
        let missing: Vec<BlockHash> = hashes.iter().filter(is_missing).copied().collect();
        self.held.extend(missing.iter().map(|hash| (*hash, DiskBlock::default())));
        missing
    }

    /// Keeps a block until a read of it has ended.
    pub(super) fn begin_read(&mut self, hash: BlockHash) {
        if let Some(file) = self.held.get_mut(&hash) {
            file.readers += 1;
            if let Some(used) = file.used {
                self.idle.remove(&used);
            }
        }
    }

    /// Ends a read or a write. Returns the blocks that have to go now.
    pub(super) fn end(&mut self, hashes: &[BlockHash], is_read: bool) -> Vec<BlockHash> {
        for hash in hashes {
            if let Some(file) = self.held.get_mut(hash) {
                file.readers = file.readers.saturating_sub(u32::from(is_read));
                self.num_written += u64::from(file.used.is_none());
                self.now += 1;
                file.used = Some(self.now);
                if file.readers == 0 && self.capacity.is_some() {
                    self.idle.insert(self.now, *hash);
                }
            }
        }
        self.evict()
    }

    fn evict(&mut self) -> Vec<BlockHash> {
        let Some(capacity) = self.capacity else { return Vec::new() };
        let mut removed = Vec::new();
        while self.num_written > u64::from(capacity)
            && let Some((_, hash)) = self.idle.pop_first()
        {
            self.held.remove(&hash);
            self.num_written -= 1;
            removed.push(hash);
        }
        removed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(files: &mut Files, hashes: &[BlockHash]) -> (Vec<BlockHash>, Vec<BlockHash>) {
        let missing = files.begin_write(hashes);
        let removed = files.end(&missing, false);
        (missing, removed)
    }

    #[test]
    fn a_block_is_written_once_and_never_removed_without_a_limit() {
        let mut files = Files::new(None);
        assert_eq!(files.begin_write(&[1, 2]), [1, 2]);
        // 2 is being written, so that a second write has only 3 to do.
        assert_eq!(files.begin_write(&[2, 3]), [3]);
        assert!(!files.has(2));
        assert!(files.end(&[1, 2], false).is_empty());
        assert_eq!((files.has(2), files.has(3), files.num_written), (true, false, 2));
        assert!(files.begin_write(&[1, 2]).is_empty());
    }

    #[test]
    fn the_least_recently_used_file_makes_room_within_a_limit() {
        let mut files = Files::new(Some(2));
        assert_eq!(written(&mut files, &[1, 2]), (vec![1, 2], vec![]));
        files.begin_read(1);
        // 1 is older and stays, as it is read.
        assert_eq!(written(&mut files, &[3]), (vec![3], vec![2]));
        assert!(files.end(&[1], true).is_empty());
        assert_eq!(written(&mut files, &[4]), (vec![4], vec![3]));
        assert_eq!((files.has(1), files.has(4), files.num_written), (true, true, 2));
    }

    #[test]
    fn a_disk_whose_blocks_are_all_read_takes_no_other() {
        let mut files = Files::new(Some(1));
        written(&mut files, &[1]);
        files.begin_read(1);
        assert_eq!(written(&mut files, &[2]), (vec![2], vec![2]));
        assert!(files.has(1));
    }
}

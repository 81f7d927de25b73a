//! The pool of KV blocks: blocks in use, the free queue, and the cached prefixes that free blocks still hold. Blocks are
//! indices into flat arrays; only the hash map of cached prefixes allocates after the start.
//!
//! Mirrors vLLM's `BlockPool` and `FreeKVCacheBlockQueue` (`vllm/v1/core/block_pool.py`, `kv_cache_utils.py`).
#![expect(clippy::indexing_slicing, reason = "the engine numbers slots, records and blocks within its lists")]
#![expect(clippy::cast_possible_truncation, reason = "2^32 requests would take hundreds of GB; blocks are fewer")]

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasherDefault, Hasher};

use super::block_lives::BlockLives;
use super::list::{Linked, Links, List, NONE};

/// Hash of a block's tokens and of all tokens before it. 0 means that the block is not cached.
pub(super) type BlockHash = u64;

#[derive(Debug, Clone, Copy)]
struct Block {
    references: u32,
    /// A tree of prefixes keeps it, so that it is in no list while no request uses it.
    is_held: bool,
    hash: BlockHash,
    /// Neighbours in the free queue, if the block is free.
    free: Links,
    /// Neighbours in the list of blocks with the same hash, if the block is cached.
    equal: Links,
}

/// The list of free blocks, and those of blocks with the same hash.
const FREE: usize = 0;
const EQUAL: usize = 1;

impl Linked<FREE> for Block {
    #[inline]
    fn links(&mut self) -> &mut Links {
        &mut self.free
    }
}

impl Linked<EQUAL> for Block {
    #[inline]
    fn links(&mut self) -> &mut Links {
        &mut self.equal
    }
}

/// All KV blocks that requests can use.
#[derive(Debug)]
pub(super) struct BlockPool {
    blocks: Vec<Block>,
    /// Blocks are taken at the front and returned at the end.
    free: List<FREE>,
    pub(super) num_free: u32,
    /// References to blocks beyond the first of each.
    pub(super) num_shared: u64,
    /// Blocks with one hash, in the order in which they were cached.
    cached: HashMap<BlockHash, List<EQUAL>, BuildHasherDefault<AlreadyHashed>>,
    /// Follows the blocks, if a caller asks for it.
    pub(super) lives: Option<Box<BlockLives>>,
    /// Blocks that a tree took (true) and gave back.
    #[cfg(test)]
    pub(super) journal: Vec<(bool, u32)>,
}

impl BlockPool {
    pub(super) fn new(num_blocks: u32) -> Self {
        let mut blocks = vec![
            Block { references: 0, is_held: false, hash: 0, free: Links::ALONE, equal: Links::ALONE };
            num_blocks as usize
        ];
        let mut free = List::default();
        (0..num_blocks).for_each(|block| free.push(&mut blocks, block));
        BlockPool {
            blocks,
            free,
            num_free: num_blocks,
            num_shared: 0,
            cached: HashMap::default(),
            lives: None,
            #[cfg(test)]
            journal: Vec::new(),
        }
    }

    pub(super) fn num_in_use(&self) -> u32 {
        self.blocks.len() as u32 - self.num_free
    }

    /// The cached block with this hash.
    pub(super) fn find(&self, hash: BlockHash) -> Option<u32> {
        self.cached.get(&hash).map(|equal| equal.first)
    }

    /// Whether no request uses the block, so that a hit takes it out of the free queue.
    pub(super) fn is_free(&self, block: u32) -> bool {
        self.blocks[block as usize].references == 0
    }

    /// Adds a reference to a cached block that a look-up found.
    #[inline]
    pub(super) fn touch(&mut self, block: u32) {
        self.share(block);
        if let Some(lives) = &mut self.lives {
            lives.hit(block);
        }
    }

    /// Adds a reference to a cached block.
    #[inline]
    pub(super) fn share(&mut self, block: u32) {
        if self.is_free(block) {
            if !self.blocks[block as usize].is_held {
                self.free.unlink(&mut self.blocks, block);
            }
            self.num_free -= 1;
        } else {
            self.num_shared += 1;
        }
        self.blocks[block as usize].references += 1;
    }

    /// A tree of prefixes keeps a block in use.
    #[inline]
    pub(super) fn hold(&mut self, block: u32) {
        self.blocks[block as usize].is_held = true;
        #[cfg(test)]
        self.journal.push((true, block));
    }

    /// The tree keeps a block no longer that no request uses.
    #[inline]
    pub(super) fn let_go(&mut self, block: u32) {
        self.blocks[block as usize].is_held = false;
        self.free.push(&mut self.blocks, block);
        #[cfg(test)]
        self.journal.push((false, block));
    }

    /// Takes the block that has been free for longest and evicts its content from the cache.
    #[inline]
    pub(super) fn take(&mut self) -> Option<u32> {
        let block = self.free.first;
        if block == NONE {
            return None;
        }
        self.free.unlink(&mut self.blocks, block);
        self.num_free -= 1;
        self.forget(block);
        self.blocks[block as usize].references = 1;
        if let Some(lives) = &mut self.lives {
            lives.allocated(block);
        }
        Some(block)
    }

    /// Adds a block in use to the cache.
    pub(super) fn cache(&mut self, block: u32, hash: BlockHash) {
        if self.blocks[block as usize].hash != 0 {
            return;
        }
        self.blocks[block as usize].hash = hash;
        let equal = self.cached.entry(hash).or_default();
        equal.push(&mut self.blocks, block);
    }

    /// Drops a reference. A block without references joins the end of the free queue and stays cached.
    #[inline]
    pub(super) fn release(&mut self, block: u32) {
        let state = &mut self.blocks[block as usize];
        state.references -= 1;
        if state.references == 0 {
            if !state.is_held {
                self.free.push(&mut self.blocks, block);
            }
            self.num_free += 1;
        } else {
            self.num_shared -= 1;
        }
    }

    /// Takes a block out of the cache.
    #[inline]
    fn forget(&mut self, block: u32) {
        let hash = std::mem::take(&mut self.blocks[block as usize].hash);
        if hash == 0 {
            return;
        }
        if let Entry::Occupied(mut equal) = self.cached.entry(hash) {
            equal.get_mut().unlink(&mut self.blocks, block);
            if equal.get().first == NONE {
                equal.remove();
            }
        }
    }
}

/// Passes keys through, as they are hashes already.
#[derive(Debug, Default)]
pub(super) struct AlreadyHashed(u64);

impl Hasher for AlreadyHashed {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }
    fn write_u64(&mut self, key: u64) {
        self.0 = key;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_taken_in_the_order_in_which_they_became_free() {
        let mut pool = BlockPool::new(3);
        assert_eq!((pool.take(), pool.take(), pool.take(), pool.take()), (Some(0), Some(1), Some(2), None));
        pool.release(1);
        pool.release(0);
        assert_eq!((pool.take(), pool.take(), pool.num_free), (Some(1), Some(0), 0));
    }

    #[test]
    fn a_block_is_found_until_it_is_taken_again() {
        let mut pool = BlockPool::new(2);
        let block = pool.take().unwrap_or(NONE);
        pool.cache(block, 7);
        pool.release(block);
        assert_eq!(pool.find(7), Some(block));
        assert_eq!((pool.take(), pool.find(7)), (Some(1), Some(block)));
        assert_eq!((pool.take(), pool.find(7)), (Some(block), None));
    }

    #[test]
    fn a_hit_takes_a_free_block_out_of_the_queue_and_shares_it() {
        let mut pool = BlockPool::new(2);
        let block = pool.take().unwrap_or(NONE);
        pool.cache(block, 7);
        pool.release(block);
        pool.touch(block);
        pool.touch(block);
        assert_eq!((pool.num_free, pool.num_in_use(), pool.num_shared), (1, 1, 1));
        pool.release(block);
        assert_eq!((pool.num_free, pool.num_shared), (1, 0));
        pool.release(block);
        assert_eq!((pool.num_free, pool.num_shared), (2, 0));
    }

    #[test]
    fn equal_blocks_stand_in_for_each_other_when_one_is_evicted() {
        let mut pool = BlockPool::new(3);
        for _ in 0..3 {
            let block = pool.take().unwrap_or(NONE);
            pool.cache(block, 7);
        }
        assert_eq!(pool.find(7), Some(0));
        pool.release(1);
        assert_eq!((pool.take(), pool.find(7)), (Some(1), Some(0)));
        pool.release(0);
        assert_eq!((pool.take(), pool.find(7)), (Some(0), Some(2)));
        pool.release(2);
        assert_eq!((pool.take(), pool.find(7)), (Some(2), None));
    }
}

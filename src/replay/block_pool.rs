//! The pool of KV blocks: blocks in use, the free queue, and the cached prefixes that free blocks still hold. Blocks are
//! indices into flat arrays; only the hash map of cached prefixes allocates after the start.
//!
//! Mirrors vLLM's `BlockPool` and `FreeKVCacheBlockQueue` (`vllm/v1/core/block_pool.py`, `kv_cache_utils.py`).

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Marks the absence of a block.
const NONE: u32 = u32::MAX;

/// Hash of a block's tokens and of all tokens before it. 0 means that the block is not cached.
pub(super) type BlockHash = u64;

#[derive(Debug, Clone, Copy)]
struct Block {
    references: u32,
    hash: BlockHash,
    /// Neighbours in the free queue, if the block is free.
    previous_free: u32,
    next_free: u32,
    /// Neighbours in the list of blocks with the same hash. The map knows the first one.
    previous_equal: u32,
    next_equal: u32,
}

/// All KV blocks that requests can use.
#[derive(Debug)]
pub(super) struct BlockPool {
    blocks: Vec<Block>,
    /// Ends of the free queue. Blocks are taken at the head and returned at the tail.
    head: u32,
    tail: u32,
    num_free: u32,
    cached: HashMap<BlockHash, Equal, BuildHasherDefault<AlreadyHashed>>,
}

/// Blocks with one hash, in the order in which they were cached.
#[derive(Debug, Clone, Copy)]
struct Equal {
    first: u32,
    last: u32,
}

impl BlockPool {
    pub(super) fn new(num_blocks: u32) -> Self {
        let chained = |index: u32| Block {
            references: 0,
            hash: 0,
            previous_free: index.checked_sub(1).unwrap_or(NONE),
            next_free: if index + 1 < num_blocks { index + 1 } else { NONE },
            previous_equal: NONE,
            next_equal: NONE,
        };
        BlockPool {
            blocks: (0..num_blocks).map(chained).collect(),
            head: if num_blocks > 0 { 0 } else { NONE },
            tail: num_blocks.checked_sub(1).unwrap_or(NONE),
            num_free: num_blocks,
            cached: HashMap::default(),
        }
    }

    pub(super) fn num_free(&self) -> u32 {
        self.num_free
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

    /// Adds a reference to a cached block.
    pub(super) fn touch(&mut self, block: u32) {
        if self.is_free(block) {
            self.unlink_free(block);
        }
        self.blocks[block as usize].references += 1;
    }

    /// Takes the block that has been free for longest and evicts its content from the cache.
    pub(super) fn take(&mut self) -> Option<u32> {
        let block = self.head;
        if block == NONE {
            return None;
        }
        self.unlink_free(block);
        self.forget(block);
        self.blocks[block as usize].references = 1;
        Some(block)
    }

    /// Adds a block in use to the cache.
    pub(super) fn cache(&mut self, block: u32, hash: BlockHash) {
        if self.blocks[block as usize].hash != 0 {
            return;
        }
        self.blocks[block as usize].hash = hash;
        let equal = self.cached.entry(hash).or_insert(Equal { first: block, last: block });
        if equal.last != block {
            let last = std::mem::replace(&mut equal.last, block);
            self.blocks[last as usize].next_equal = block;
            self.blocks[block as usize].previous_equal = last;
        }
    }

    /// Drops a reference. A block without references joins the end of the free queue and stays cached.
    pub(super) fn release(&mut self, block: u32) {
        let tail = self.tail;
        let entry = &mut self.blocks[block as usize];
        entry.references -= 1;
        if entry.references > 0 {
            return;
        }
        (entry.previous_free, entry.next_free) = (tail, NONE);
        match tail {
            NONE => self.head = block,
            _ => self.blocks[tail as usize].next_free = block,
        }
        self.tail = block;
        self.num_free += 1;
    }

    fn unlink_free(&mut self, block: u32) {
        let Block { previous_free, next_free, .. } = self.blocks[block as usize];
        match previous_free {
            NONE => self.head = next_free,
            _ => self.blocks[previous_free as usize].next_free = next_free,
        }
        match next_free {
            NONE => self.tail = previous_free,
            _ => self.blocks[next_free as usize].previous_free = previous_free,
        }
        self.num_free -= 1;
    }

    fn forget(&mut self, block: u32) {
        let Block { hash, previous_equal, next_equal, .. } = self.blocks[block as usize];
        if hash == 0 {
            return;
        }
        if previous_equal == NONE && next_equal == NONE {
            self.cached.remove(&hash);
        } else if let Some(equal) = self.cached.get_mut(&hash) {
            match previous_equal {
                NONE => equal.first = next_equal,
                _ => self.blocks[previous_equal as usize].next_equal = next_equal,
            }
            match next_equal {
                NONE => equal.last = previous_equal,
                _ => self.blocks[next_equal as usize].previous_equal = previous_equal,
            }
        }
        let entry = &mut self.blocks[block as usize];
        (entry.hash, entry.previous_equal, entry.next_equal) = (0, NONE, NONE);
    }
}

/// Passes keys through, as they are hashes already.
#[derive(Debug, Default)]
struct AlreadyHashed(u64);

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
        assert_eq!((pool.take(), pool.take(), pool.num_free()), (Some(1), Some(0), 0));
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
        assert_eq!((pool.num_free(), pool.num_in_use()), (1, 1));
        pool.release(block);
        assert_eq!(pool.num_free(), 1);
        pool.release(block);
        assert_eq!(pool.num_free(), 2);
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

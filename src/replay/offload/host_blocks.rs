//! The blocks that the host holds, the least recently used one first.
//!
//! Mirrors `CPUOffloadingManager` with its LRU policy (vLLM 0.19.0, `vllm/v1/kv_offload/cpu/manager.py`, `policies/lru.py`).
#![expect(clippy::indexing_slicing, reason = "the tier numbers its blocks within its list")]
#![expect(clippy::cast_possible_truncation, reason = "the number of blocks is checked against 2^26")]

use std::collections::HashMap;
use std::hash::BuildHasherDefault;

use super::super::block_pool::{AlreadyHashed, BlockHash};
use super::super::list::{Linked, Links, List, NONE};

/// A block of the host.
#[derive(Debug, Clone, Copy)]
struct HostBlock {
    hash: BlockHash,
    /// Number of loads that read it; `None` until it is written.
    readers: Option<u32>,
    /// Number of blocks that had been given room before this one.
    serial: u64,
    /// The last offer of blocks that this one was in.
    offer: u64,
    /// The round of `Recency` in which it was used last, if that use may not be entered yet.
    round: u64,
    order: Links,
}

impl Linked<0> for HostBlock {
    fn links(&mut self) -> &mut Links {
        &mut self.order
    }
}

/// The host's blocks by their hashes, in the order of their use.
#[derive(Debug)]
pub(super) struct HostBlocks {
    capacity: u32,
    blocks: Vec<HostBlock>,
    unused: Vec<u32>,
    by_hash: HashMap<BlockHash, u32, BuildHasherDefault<AlreadyHashed>>,
    /// The least recently used block is the first.
    order: List<0>,
    next_serial: u64,
    offers: u64,
}

/// The blocks that have to go.
enum Oldest {
    Found(Vec<u32>),
    TooFew,
    /// One of them was used, and that is not in the order yet.
    Unsettled,
}

/// Whether the host has a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Absent,
    /// It has room for it.
    BeingWritten,
    Ready,
}

/// Room that the host made for blocks.
#[derive(Debug, Default)]
pub(super) struct Room {
    /// The blocks of the offer that it did not hold yet.
    pub(super) stored: Vec<BlockHash>,
    /// Serial numbers of the blocks that had to go for them.
    pub(super) removed: Vec<u64>,
}

impl HostBlocks {
    pub(super) fn new(capacity: u32) -> Self {
        HostBlocks {
            capacity,
            blocks: Vec::new(),
            unused: Vec::new(),
            by_hash: HashMap::default(),
            order: List::EMPTY,
            next_serial: 0,
            offers: 0,
        }
    }

    /// Number of blocks that it holds or is about to.
    pub(super) fn len(&self) -> u32 {
        self.by_hash.len() as u32
    }

    /// Number of leading `hashes` that can be loaded.
    pub(super) fn lookup(&self, hashes: &[BlockHash]) -> u32 {
        let is_ready = |hash: &&BlockHash| {
            self.by_hash.get(hash).is_some_and(|index| self.blocks[*index as usize].readers.is_some())
        };
        hashes.iter().take_while(is_ready).count() as u32
    }

    /// Whether it has a block.
    pub(super) fn state(&self, hash: BlockHash) -> State {
        match self.by_hash.get(&hash) {
            None => State::Absent,
            Some(index) if self.blocks[*index as usize].readers.is_none() => State::BeingWritten,
            Some(_) => State::Ready,
        }
    }

    /// Marks blocks as used in a round, so that their order is settled before they are evicted.
    pub(super) fn mark(&mut self, hashes: &[BlockHash], round: u64) {
        for hash in hashes {
            if let Some(index) = self.by_hash.get(hash) {
                self.blocks[*index as usize].round = round;
            }
        }
    }

    /// Enters a use of blocks into the order, the last one first, so that a chain loses its end before its beginning.
    pub(super) fn touch(&mut self, hashes: &[BlockHash]) {
        for hash in hashes.iter().rev() {
            if let Some(index) = self.by_hash.get(hash).copied() {
                self.order.unlink(&mut self.blocks, index);
                self.order.push(&mut self.blocks, index);
            }
        }
    }

    /// Keeps blocks until a load of them has ended.
    pub(super) fn begin_load(&mut self, hashes: &[BlockHash]) {
        self.change_readers(hashes, |readers| readers + 1);
    }

    /// Ends a load.
    pub(super) fn end_load(&mut self, hashes: &[BlockHash]) {
        self.change_readers(hashes, |readers| readers.saturating_sub(1));
    }

    fn change_readers(&mut self, hashes: &[BlockHash], change: impl Fn(u32) -> u32) {
        for hash in hashes {
            if let Some(index) = self.by_hash.get(hash) {
                let readers = &mut self.blocks[*index as usize].readers;
                *readers = readers.map(&change);
            }
        }
    }

    /// Makes room for those of the offered blocks that it does not hold. Returns `None`, and changes nothing, if too few of the
    /// others can go: blocks that are written or read stay, and so do those of the offer. Asks `settle` to enter all uses, once,
    /// before it passes a block that was used in `round`, and for the round that begins then. The offered blocks are used in it.
    pub(super) fn make_room(
        &mut self,
        offered: &[BlockHash],
        round: u64,
        settle: impl FnOnce(&mut Self) -> u64,
    ) -> Option<Room> {
        self.offers += 1;
        let (mut stored, mut held, mut round) = (Vec::new(), Vec::new(), round);
        for hash in offered {
            match self.by_hash.get(hash) {
                Some(index) => {
                    self.blocks[*index as usize].offer = self.offers;
                    held.push(*index);
                }
                None => stored.push(*hash),
            }
        }
        let free = self.capacity.saturating_sub(self.len());
        let missing = (stored.len() as u32).saturating_sub(free);
        let leaving = match self.oldest_idle(missing, Some(round)) {
            Oldest::Found(leaving) => leaving,
            Oldest::TooFew => return None,
            Oldest::Unsettled => {
                round = settle(self);
                match self.oldest_idle(missing, None) {
                    Oldest::Found(leaving) => leaving,
                    _ => return None,
                }
            }
        };
        let removed = leaving.iter().map(|index| self.remove(*index)).collect();
        for hash in &stored {
            self.insert(*hash, round);
        }
        for index in held {
            self.blocks[index as usize].round = round;
        }
        Some(Room { stored, removed })
    }

    /// The first `number` blocks in the order that can go. Those that were used in `round` have no settled place.
    fn oldest_idle(&self, number: u32, round: Option<u64>) -> Oldest {
        let mut found = Vec::new();
        let mut index = self.order.first;
        while (found.len() as u32) < number {
            if index == NONE {
                return Oldest::TooFew;
            }
            let block = &self.blocks[index as usize];
            if block.readers == Some(0) && block.offer != self.offers {
                if round == Some(block.round) {
                    return Oldest::Unsettled;
                }
                found.push(index);
            }
            index = block.order.next;
        }
        Oldest::Found(found)
    }

    /// Marks blocks as written. Returns the serial numbers of those that were not.
    pub(super) fn end_store(&mut self, hashes: &[BlockHash]) -> Vec<u64> {
        let mut written = Vec::new();
        for hash in hashes {
            if let Some(index) = self.by_hash.get(hash) {
                let block = &mut self.blocks[*index as usize];
                if block.readers.is_none() {
                    block.readers = Some(0);
                    written.push(block.serial);
                }
            }
        }
        written
    }

    fn insert(&mut self, hash: BlockHash, round: u64) {
        let block =
            HostBlock { hash, readers: None, serial: self.next_serial, offer: self.offers, round, order: Links::ALONE };
        self.next_serial += 1;
        let index = if let Some(index) = self.unused.pop() {
            self.blocks[index as usize] = block;
            index
        } else {
            self.blocks.push(block);
            self.blocks.len() as u32 - 1
        };
        self.by_hash.insert(hash, index);
        self.order.push(&mut self.blocks, index);
    }

    fn remove(&mut self, index: u32) -> u64 {
        self.order.unlink(&mut self.blocks, index);
        let HostBlock { hash, serial, .. } = self.blocks[index as usize];
        self.by_hash.remove(&hash);
        self.unused.push(index);
        serial
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes room in a round of its own, so that no use is open.
    fn room(blocks: &mut HostBlocks, hashes: &[BlockHash]) -> Option<Room> {
        let round = blocks.offers + 1;
        blocks.make_room(hashes, round, |_| panic!("every place is settled"))
    }

    fn stored(blocks: &mut HostBlocks, hashes: &[BlockHash]) -> Option<(Vec<BlockHash>, Vec<u64>)> {
        let room = room(blocks, hashes)?;
        blocks.end_store(hashes);
        Some((room.stored, room.removed))
    }

    #[test]
    fn the_least_recently_used_block_makes_room() {
        let mut blocks = HostBlocks::new(3);
        assert_eq!(stored(&mut blocks, &[1, 2, 3]), Some((vec![1, 2, 3], vec![])));
        blocks.touch(&[1, 2]);
        // 3 was used longest ago, then 2, as the end of a chain goes before its beginning.
        assert_eq!(stored(&mut blocks, &[4]), Some((vec![4], vec![2])));
        assert_eq!(stored(&mut blocks, &[5]), Some((vec![5], vec![1])));
        assert_eq!((blocks.lookup(&[1, 2]), blocks.lookup(&[4, 5, 6]), blocks.len()), (1, 2, 3));
    }

    #[test]
    fn blocks_that_are_read_or_written_or_offered_stay() {
        let mut blocks = HostBlocks::new(2);
        assert_eq!(stored(&mut blocks, &[1]), Some((vec![1], vec![])));
        blocks.begin_load(&[1]);
        assert!(room(&mut blocks, &[2]).is_some());
        // 1 is read and 2 not written yet.
        assert!(room(&mut blocks, &[3]).is_none());
        assert_eq!(blocks.lookup(&[2]), 0);
        assert_eq!(blocks.end_store(&[2]), [1]);
        blocks.end_load(&[1]);
        // 1 is the oldest, but it is in the offer.
        assert_eq!(stored(&mut blocks, &[1, 3]), Some((vec![3], vec![1])));
        assert!(room(&mut blocks, &[1, 3, 4]).is_none());
        assert_eq!(blocks.lookup(&[1, 3]), 2);
    }
}

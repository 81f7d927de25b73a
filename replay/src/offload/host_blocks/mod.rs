//! The blocks that the host holds, and which of them make room for others.
//!
//! Mirrors `CPUOffloadingManager` with its LRU policy (vLLM 0.19.0, `vllm/v1/kv_offload/cpu/manager.py`, `policies/lru.py`). vLLM moves
//! every block of a request to the end of a list with each block that the request fills. Here the blocks that the same requests share
//! are one run with one time of use, so that a use costs a visit to each run and the order is the same.
#![expect(clippy::indexing_slicing, reason = "the tier numbers its runs, blocks and slots within its lists")]
#![expect(clippy::cast_possible_truncation, reason = "the number of blocks is checked against 2^26")]

mod runs;
#[cfg(test)]
mod tests;
mod walk;

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::ops::Range;

use runs::{ChainBlock, Run};

use super::super::block_pool::{AlreadyHashed, BlockHash};
use super::super::kv_cache::hash_of;
use super::super::list::{List, NONE};
use super::super::slot::Slot;
pub(super) use walk::State;

/// A block of the host.
#[derive(Debug, Clone, Copy)]
pub(super) struct HostBlock {
    /// The run that it belongs to.
    run: u32,
    pub(super) is_written: bool,
    /// Number of loads that read it.
    pub(super) num_loads: u32,
    /// Number of writes to the disk that read it.
    pub(super) num_pins: u32,
    /// Number of blocks that had been given room before this one.
    serial: u64,
}

impl HostBlock {
    /// Whether it can go: it is neither written nor read.
    fn is_idle(&self) -> bool {
        self.is_written && self.num_loads == 0 && self.num_pins == 0
    }
}

/// The host's blocks by the chains of the requests that they belong to.
#[derive(Debug, Default)]
pub(super) struct HostBlocks {
    capacity: u32,
    blocks: Vec<HostBlock>,
    unused_blocks: Vec<u32>,
    num_idle: u32,
    /// Number of offers that stored blocks which the chains of other requests may have, too.
    pub(super) num_shared_changes: u64,
    next_serial: u64,
    offers: u64,
    runs: Vec<Run>,
    unused_runs: Vec<u32>,
    /// The run that begins with a hash. A hash stands for all blocks before it, too.
    heads: HashMap<BlockHash, u32, BuildHasherDefault<AlreadyHashed>>,
    /// The run in which the chain of each slot ends.
    ends: Vec<u32>,
    /// Runs that hold blocks, from the least to the most recently used.
    used: List<0>,
    /// The runs that the last call of [`HostBlocks::trace`] found.
    path: Vec<u32>,
    /// Number of these runs that a walk has left behind.
    walked: usize,
    /// Serial numbers of the blocks that made room for others, since the tier noted them.
    pub(super) removed: Vec<u64>,
}

impl HostBlocks {
    pub(super) fn new(capacity: u32) -> Self {
        HostBlocks { capacity, ..HostBlocks::default() }
    }

    /// Number of blocks that it holds or is about to.
    pub(super) fn len(&self) -> u32 {
        (self.blocks.len() - self.unused_blocks.len()) as u32
    }

    /// Number of blocks that it can take without giving up others.
    fn room(&self) -> u32 {
        self.capacity.saturating_sub(self.len())
    }

    /// Number of leading blocks at these positions of a slot's chain that can be loaded; `None` while another request loads one of
    /// them.
    pub(super) fn lookup(&mut self, slot: usize, positions: Range<u32>) -> Option<u32> {
        self.trace(slot, positions.start);
        let mut hits = 0;
        for run in &self.path {
            let run = &self.runs[*run as usize];
            for ChainBlock { block, .. } in &run.places[run.range(positions.clone())] {
                let block = self.blocks.get(*block as usize).filter(|block| block.is_written);
                let Some(block) = block else { return Some(hits) };
                if block.num_loads > 0 {
                    return None;
                }
                hits += 1;
            }
        }
        Some(hits)
    }

    /// Keeps the blocks at these positions of a slot's chain until a load of them has ended, and appends them to `loading`.
    pub(super) fn begin_load(&mut self, slot: usize, positions: Range<u32>, loading: &mut Vec<u32>) {
        self.trace(slot, positions.start);
        let first = loading.len();
        for run in &self.path {
            let run = &self.runs[*run as usize];
            loading.extend(run.places[run.range(positions.clone())].iter().map(|place| place.block));
        }
        self.update(&loading[first..], |block| block.num_loads += 1);
    }

    /// The numbers of blocks in the order in which they were given room.
    pub(super) fn serials(&self, blocks: &[u32]) -> Vec<u64> {
        blocks.iter().map(|block| self.blocks[*block as usize].serial).collect()
    }

    /// Changes the state of blocks, and counts them among the idle ones or no longer.
    pub(super) fn update(&mut self, blocks: &[u32], change: impl Fn(&mut HostBlock)) {
        for block in blocks {
            let state = &mut self.blocks[*block as usize];
            let was_idle = state.is_idle();
            change(state);
            let (index, is_idle) = (state.run, state.is_idle());
            let run = &mut self.runs[index as usize];
            if was_idle && !is_idle {
                self.num_idle -= 1;
                run.num_idle -= 1;
            } else if is_idle && !was_idle {
                self.num_idle += 1;
                run.num_idle += 1;
                run.idle_bound = usize::MAX;
            }
        }
    }

    /// Makes room for those blocks at these positions of a slot's chain that it does not hold, and appends them to `stored`. Returns
    /// their number; an error with a lower bound of it, and changes nothing, if too few others can go: blocks that are written or read
    /// stay, and so do those of the offer.
    pub(super) fn offer(&mut self, slot: usize, positions: Range<u32>, stored: &mut Vec<u32>) -> Result<u32, u32> {
        let room = self.room();
        let surely_missing = self.num_surely_missing(slot, positions.clone());
        if surely_missing > room + self.num_idle {
            return Err(surely_missing);
        }
        self.offers += 1;
        let (missing, num_idle) = self.trace_offer(slot, positions.clone());
        let leaving = missing.saturating_sub(room);
        if leaving > num_idle {
            return Err(missing);
        }
        if leaving > 0 {
            self.evict(leaving, positions.clone());
        }
        if missing > 0 {
            let is_own = self.path.len() == 1 && self.runs[self.path[0] as usize].num_users == 1;
            self.num_shared_changes += u64::from(!is_own);
            for at in 0..self.path.len() {
                self.hold(self.path[at], positions.clone(), stored);
            }
        }
        Ok(missing)
    }

    /// Adds the next block to a slot's chain and makes room for it, where no other request shares the end of the chain. Returns false and
    /// changes nothing where one does, or where nothing can go. Decodes fill most blocks, so that they have this short way.
    pub(super) fn append(&mut self, slot: usize, state: &Slot, position: u32, stored: &mut Vec<u32>) -> bool {
        let index = self.ends[slot];
        let is_own = self.runs.get(index as usize).is_some_and(|run| run.num_users == 1 && run.end == position);
        let has_room = self.room() > 0;
        if !is_own || !has_room && self.num_idle == 0 {
            return false;
        }
        if !has_room {
            self.evict(1, 0..0);
        }
        let block = self.new_block(index);
        stored.push(block);
        let run = &mut self.runs[index as usize];
        run.places.push(ChainBlock { hash: hash_of(state, position as usize), block });
        run.end += 1;
        run.bound = run.places.len();
        run.num_held += 1;
        if run.num_held == 1 {
            self.used.push(&mut self.runs, index);
        }
        true
    }

    /// A block that is about to be written, for a run.
    fn new_block(&mut self, run: u32) -> u32 {
        let block = HostBlock { run, is_written: false, num_loads: 0, num_pins: 0, serial: self.next_serial };
        self.next_serial += 1;
        if let Some(number) = self.unused_blocks.pop() {
            self.blocks[number as usize] = block;
            return number;
        }
        self.blocks.push(block);
        self.blocks.len() as u32 - 1
    }

    /// Number of absent blocks at the end of these positions of a slot's chain; there may be others before them.
    fn num_surely_missing(&self, slot: usize, positions: Range<u32>) -> u32 {
        let held_end = self.runs.get(self.ends[slot] as usize).map_or(0, Run::held_end);
        positions.end.saturating_sub(held_end.max(positions.start))
    }

    /// Marks the runs at these positions of a slot's chain as those of the current offer. Returns the number of absent blocks in the offer,
    /// and of idle blocks outside it.
    fn trace_offer(&mut self, slot: usize, positions: Range<u32>) -> (u32, u32) {
        self.trace(slot, positions.start);
        let (mut missing, mut num_idle) = (0u32, self.num_idle);
        for run in &self.path {
            let run = &mut self.runs[*run as usize];
            run.offer = self.offers;
            let range = run.range(positions.clone());
            if range.len() == run.places.len() {
                missing += range.len() as u32 - run.num_held;
                num_idle -= run.num_idle;
                continue;
            }
            for ChainBlock { block, .. } in &run.places[range] {
                if *block == NONE {
                    missing += 1;
                } else {
                    num_idle -= u32::from(self.blocks[*block as usize].is_idle());
                }
            }
        }
        (missing, num_idle)
    }

    /// Whether an offer that was refused may fit now: so many of its blocks were missing, after so many shared changes.
    pub(super) fn may_fit(&self, missing: u32, num_shared_changes: u64) -> bool {
        self.num_shared_changes != num_shared_changes || missing <= self.room() + self.num_idle
    }

    /// Removes the least recently used idle blocks that are not in the last offer. There are at least `number`.
    fn evict(&mut self, mut number: u32, offered: Range<u32>) {
        let mut index = self.used.first;
        while number > 0 && index != NONE {
            let next = self.next_used(index);
            if self.runs[index as usize].num_idle > 0 {
                number -= self.evict_from(index, number, offered.clone());
                if self.runs[index as usize].num_held == 0 {
                    self.used.unlink(&mut self.runs, index);
                    self.release(index);
                }
            }
            index = next;
        }
    }

    /// Evicts up to `most` idle blocks of a run and returns their number. Blocks of the current offer, at positions `offered`, stay.
    fn evict_from(&mut self, index: u32, most: u32, offered: Range<u32>) -> u32 {
        let run = &mut self.runs[index as usize];
        let kept = if run.offer == self.offers { run.range(offered) } else { 0..0 };
        let before = run.num_held;
        let end = if run.is_forward { run.bound } else { run.bound.min(run.idle_bound) };
        let all_idle = run.num_idle == run.num_held;
        let mut lowers = !run.is_forward;
        for step in 0..end {
            let at = if run.is_forward { step } else { end - 1 - step };
            let block = run.places[at].block;
            if block != NONE && kept.contains(&at) {
                lowers = false;
                continue;
            }
            // The states of blocks are spread over the memory: they are looked at where not all can go.
            if block != NONE && (all_idle || self.blocks[block as usize].is_idle()) {
                self.removed.push(self.blocks[block as usize].serial);
                self.unused_blocks.push(block);
                run.places[at].block = NONE;
                (run.num_held, run.num_idle) = (run.num_held - 1, run.num_idle - 1);
                self.num_idle -= 1;
            }
            if lowers {
                run.idle_bound = at;
            }
            if run.num_idle == 0 || before - run.num_held == most {
                break;
            }
        }
        run.trim();
        before - run.num_held
    }

    /// Gives room to the blocks of a run within `positions` that are not held.
    fn hold(&mut self, index: u32, positions: Range<u32>, stored: &mut Vec<u32>) {
        let run = &mut self.runs[index as usize];
        let (range, held_before) = (run.range(positions), run.num_held);
        run.bound = run.bound.max(range.end);
        for at in range {
            if self.runs[index as usize].places[at].block == NONE {
                let block = self.new_block(index);
                let run = &mut self.runs[index as usize];
                run.places[at].block = block;
                run.num_held += 1;
                stored.push(block);
            }
        }
        if held_before == 0 && self.runs[index as usize].num_held > 0 {
            self.used.push(&mut self.runs, index);
        }
    }
}

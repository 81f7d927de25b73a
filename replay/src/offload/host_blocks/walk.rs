//! A walk along a request's chain that looks at single blocks and makes room for them: look-ups with a disk behind the host.
//!
//! vLLM enters a block that comes from the disk at the end of its list. It follows the blocks of its chain that the look-up used, and
//! the blocks that come together are in the order of the chain. Their run goes in that order until it is used again.

use std::ops::Range;

use super::super::super::block_pool::BlockHash;
use super::super::super::list::NONE;
use super::HostBlocks;

/// Whether the host has a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::offload) enum State {
    Absent,
    /// It has room for it, with this number.
    BeingWritten(u32),
    /// It can be loaded; a request may be loading it.
    Ready {
        is_loaded: bool,
    },
}

impl HostBlocks {
    /// Begins a walk along a slot's chain from a position on.
    pub(in crate::offload) fn walk(&mut self, slot: usize, first: u32) {
        self.trace(slot, first);
        self.walked = 0;
    }

    /// Looks at the block at a position of the walk, which only goes on; `None` behind the end of the chain.
    pub(in crate::offload) fn look(&mut self, position: u32) -> Option<(BlockHash, State)> {
        while self.path.get(self.walked).is_some_and(|run| self.runs[*run as usize].end <= position) {
            self.walked += 1;
        }
        let run = &self.runs[*self.path.get(self.walked)? as usize];
        let offset = run.range(position..position + 1).start;
        let state = match run.places[offset].block {
            NONE => State::Absent,
            block => match &self.blocks[block as usize] {
                state if state.is_written => State::Ready { is_loaded: state.num_loads > 0 },
                _ => State::BeingWritten(block),
            },
        };
        Some((run.places[offset].hash, state))
    }

    /// Makes room for the block at the position that the walk looked at last, which is absent. Returns its number; `None` if no other block
    /// can go.
    pub(in crate::offload) fn make_room(&mut self, position: u32) -> Option<u32> {
        if self.len() >= self.capacity {
            if self.num_idle == 0 {
                return None;
            }
            self.evict(1, 0..0);
        }
        self.num_shared_changes += 1;
        let mut stored = Vec::with_capacity(1);
        self.hold(*self.path.get(self.walked)?, position..position + 1, &mut stored);
        stored.pop()
    }

    /// Enters the blocks at these positions of a slot's chain, which came together, behind all others. Ends a walk.
    pub(in crate::offload) fn enter(&mut self, slot: usize, positions: Range<u32>) {
        let (mut index, mut next) = (self.ends[slot], NONE);
        while let Some(run) = self.runs.get(index as usize).filter(|run| run.end > positions.start) {
            let (start, end) = (run.start(), run.end.min(positions.end));
            if start < positions.end {
                index = self.cut(index, (end - start) as usize);
                if start < positions.start {
                    self.cut(index, (positions.start - start) as usize);
                }
                self.use_last(index, next, true);
                if self.runs[index as usize].num_held > 0 {
                    next = index;
                }
            }
            index = self.runs[index as usize].parent;
        }
    }

    /// The hashes of blocks that it holds. Those of a chain are found faster in their order.
    pub(in crate::offload) fn hashes(&self, blocks: &[u32]) -> Vec<BlockHash> {
        let (mut last_run, mut next) = (NONE, 0);
        let hash = |block: &u32| {
            let index = self.blocks[*block as usize].run;
            let run = &self.runs[index as usize];
            if std::mem::replace(&mut last_run, index) != index {
                next = 0;
            }
            let offsets = (next..run.places.len()).chain(0..next);
            let offset = offsets.into_iter().find(|offset| run.places[*offset].block == *block)?;
            next = offset + 1;
            Some(run.places[offset].hash)
        };
        blocks.iter().filter_map(hash).collect()
    }
}

//! The chains of requests as a prefix tree: a run of blocks that belong to the same chains, and the runs behind it.
//!
//! A run is split where chains part and where a use ends. Chains are identified by hashes, each of which covers a block and all
//! blocks before it.

use std::ops::Range;

use super::super::super::block_pool::BlockHash;
use super::super::super::grown::grown;
use super::super::super::kv_cache::hash_of;
use super::super::super::list::{Linked, Links, NONE};
use super::super::super::slot::Slot;
use super::HostBlocks;

/// A block of a chain.
#[derive(Debug, Clone, Copy)]
pub(super) struct ChainBlock {
    pub(super) hash: BlockHash,
    /// The host's block, or `NONE`.
    pub(super) block: u32,
}

/// Blocks that follow each other in the same chains.
#[derive(Debug)]
pub(super) struct Run {
    /// The run before it, or `NONE`.
    pub(super) parent: u32,
    /// Position behind its last block.
    pub(super) end: u32,
    pub(super) places: Vec<ChainBlock>,
    /// Offset behind the last block that may be held.
    pub(super) bound: usize,
    /// Offset behind the last block that may be idle.
    pub(super) idle_bound: usize,
    /// Number of runs behind it, and of slots whose chains end with it.
    pub(super) num_users: u32,
    pub(super) num_held: u32,
    pub(super) num_idle: u32,
    /// The last offer whose chain it was part of.
    pub(super) offer: u64,
    /// Neighbours in the order of the last uses, if it holds a block.
    used: Links,
    /// Whether its beginning goes before its end, as of blocks that came from the disk and were not used since.
    pub(super) is_forward: bool,
}

impl Linked<0> for Run {
    fn links(&mut self) -> &mut Links {
        &mut self.used
    }
}

impl Run {
    const EMPTY: Run = Run {
        parent: NONE,
        end: 0,
        places: Vec::new(),
        bound: 0,
        idle_bound: usize::MAX,
        num_users: 0,
        num_held: 0,
        num_idle: 0,
        offer: 0,
        used: Links::ALONE,
        is_forward: false,
    };

    pub(super) fn start(&self) -> u32 {
        self.end - self.places.len() as u32
    }

    /// Position behind the last block that may be held, unless it is at or before the run's first.
    pub(super) fn held_end(&self) -> u32 {
        self.start() + self.bound as u32
    }

    /// Offsets of the blocks at these positions of a chain.
    pub(super) fn range(&self, positions: Range<u32>) -> Range<usize> {
        let start = self.start();
        let offset = |position: u32| position.clamp(start, self.end) - start;
        offset(positions.start) as usize..offset(positions.end) as usize
    }

    /// Lowers the bound to the last block that is held.
    pub(super) fn trim(&mut self) {
        while self.bound > 0 && self.places[self.bound - 1].block == NONE {
            self.bound -= 1;
        }
    }
}

impl HostBlocks {
    /// Begins the chain of a new request.
    pub(in crate::offload) fn begin(&mut self, slot: usize) {
        grown(&mut self.ends, slot, || NONE);
        self.end(slot);
    }

    /// Ends the chain of a request.
    pub(in crate::offload) fn end(&mut self, slot: usize) {
        let end = std::mem::replace(&mut self.ends[slot], NONE);
        self.leave(end);
    }

    /// Extends a request's chain to its first `number` blocks.
    pub(in crate::offload) fn know(&mut self, slot: usize, state: &Slot, number: u32) {
        let (last, known) = (self.ends[slot], self.chain_len(slot));
        if known >= number {
            return;
        }
        if let Some(run) = self.runs.get_mut(last as usize).filter(|run| run.num_users == 1) {
            run.places.extend((known..number).map(|at| ChainBlock { hash: hash_of(state, at as usize), block: NONE }));
            run.end = number;
            return;
        }
        let (mut end, mut known) = (last, known);
        while known < number {
            end = match self.heads.get(&hash_of(state, known as usize)) {
                Some(next) => {
                    let run = &self.runs[*next as usize];
                    let same = run.places.iter().zip(known..number);
                    let same = same.take_while(|(place, at)| place.hash == hash_of(state, *at as usize)).count();
                    self.cut(*next, same)
                }
                None => self
                    .push(end, (known..number).map(|at| ChainBlock { hash: hash_of(state, at as usize), block: NONE })),
            };
            known = self.runs[end as usize].end;
        }
        self.runs[end as usize].num_users += 1;
        self.ends[slot] = end;
        self.leave(last);
    }

    /// Number of blocks of a slot's chain.
    fn chain_len(&self, slot: usize) -> u32 {
        self.runs.get(self.ends[slot] as usize).map_or(0, |run| run.end)
    }

    /// The run that was used next after another one, or `NONE`.
    pub(super) fn next_used(&self, run: u32) -> u32 {
        self.runs[run as usize].used.next
    }

    /// Notes a use of the first `number` blocks of a request's chain. Its end counts as used before its beginning.
    pub(in crate::offload) fn touch(&mut self, slot: usize, number: u32) {
        let mut index = self.ends[slot];
        while index != NONE {
            let run = &self.runs[index as usize];
            let (start, end) = (run.start(), run.end);
            if start < number {
                if number < end {
                    index = self.cut(index, (number - start) as usize);
                }
                self.use_last(index, NONE, false);
            }
            index = self.runs[index as usize].parent;
        }
    }

    /// Moves a run in the order of use: in front of `next`, or to the end if that is `NONE`.
    pub(super) fn use_last(&mut self, index: u32, next: u32, is_forward: bool) {
        let run = &mut self.runs[index as usize];
        run.is_forward = is_forward;
        if run.num_held > 0 {
            self.used.unlink(&mut self.runs, index);
            self.used.insert(&mut self.runs, next, index);
        }
    }

    /// Finds the runs of a slot's chain that reach beyond position `first`, in their order.
    pub(super) fn trace(&mut self, slot: usize, first: u32) {
        self.path.clear();
        let mut index = self.ends[slot];
        while let Some(run) = self.runs.get(index as usize).filter(|run| run.end > first) {
            self.path.push(index);
            index = run.parent;
        }
        self.path.reverse();
    }

    /// Adds a run.
    fn push(&mut self, parent: u32, of: impl Iterator<Item = ChainBlock>) -> u32 {
        let index = self.unused_runs.pop().unwrap_or_else(|| {
            self.runs.push(Run::EMPTY);
            self.runs.len() as u32 - 1
        });
        let start = self.runs.get(parent as usize).map_or(0, |run| run.end);
        let run = &mut self.runs[index as usize];
        let mut places = std::mem::take(&mut run.places);
        places.clear();
        places.extend(of);
        self.heads.insert(places[0].hash, index);
        *run = Run { parent, end: start + places.len() as u32, places, ..Run::EMPTY };
        if let Some(parent) = self.runs.get_mut(parent as usize) {
            parent.num_users += 1;
        }
        index
    }

    /// Splits a run behind its first `number` blocks, unless it has no others. Returns the run of these; the others stay where they are.
    pub(super) fn cut(&mut self, index: u32, number: usize) -> u32 {
        let run = &mut self.runs[index as usize];
        if number >= run.places.len() {
            return index;
        }
        let (parent, bound, is_forward) = (run.parent, run.bound, run.is_forward);
        let mut places = std::mem::take(&mut run.places);
        let first = self.push(parent, places.drain(..number));
        let run = &mut self.runs[index as usize];
        run.places = places;
        (run.bound, run.idle_bound) = (bound.saturating_sub(number), usize::MAX);
        run.parent = first;
        self.heads.insert(run.places[0].hash, index);
        let (mut num_held, mut num_idle) = (0, 0);
        for place in self.runs[first as usize].places.iter().filter(|place| place.block != NONE) {
            let block = &mut self.blocks[place.block as usize];
            block.run = first;
            num_held += 1;
            num_idle += u32::from(block.is_idle());
        }
        let run = &mut self.runs[index as usize];
        (run.num_held, run.num_idle) = (run.num_held - num_held, run.num_idle - num_idle);
        let (next, rest_held) = (if is_forward { index } else { run.used.next }, run.num_held);
        if num_held > 0 {
            self.used.insert(&mut self.runs, next, first);
            if rest_held == 0 {
                self.used.unlink(&mut self.runs, index);
            }
        }
        if let Some(parent) = self.runs.get_mut(parent as usize) {
            parent.num_users -= 1;
        }
        let run = &mut self.runs[first as usize];
        run.is_forward = is_forward;
        (run.num_users, run.num_held, run.num_idle) = (1, num_held, num_idle);
        run.bound = bound.min(number);
        first
    }

    /// Ends the use of a run by a chain or by a run behind it.
    fn leave(&mut self, run: u32) {
        if let Some(state) = self.runs.get_mut(run as usize) {
            state.num_users -= 1;
            self.release(run);
        }
    }

    /// Drops a run that holds no block, that no chain ends with and that is before no other.
    pub(super) fn release(&mut self, mut index: u32) {
        while let Some(run) = self.runs.get_mut(index as usize)
            && run.num_users == 0
            && run.num_held == 0
        {
            self.heads.remove(&run.places[0].hash);
            self.unused_runs.push(index);
            index = std::mem::replace(&mut run.parent, NONE);
            if let Some(parent) = self.runs.get_mut(index as usize) {
                parent.num_users -= 1;
            }
        }
    }
}

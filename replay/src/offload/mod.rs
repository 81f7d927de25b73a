//! The host's tier of KV blocks: which blocks are copied to the host and back, when, and what waits for it.
//!
//! Mirrors both halves of vLLM 0.19.0's `OffloadingConnector`
//! (`vllm/distributed/kv_transfer/kv_connector/v1/offloading/scheduler.py`, `worker.py`). Stores are prepared when a step is scheduled and
//! submitted with the next one. Copies run concurrently with the steps, and the engine sees their ends when it launches an iteration. A request
//! that has ended keeps its blocks until its stores have ended, and only then can the host's copies be loaded.
#![expect(clippy::indexing_slicing, reason = "the engine numbers slots within its list")]

mod break_even;
mod config;
mod counters;
mod disk;
mod host_blocks;
mod launch;
mod link;
mod refused;
mod transfer_counters;

pub use break_even::LoadOrCompute;
pub use config::KvOffload;
pub use counters::OffloadCounters;
pub use disk::{DiskCounters, KvDisk};
pub use transfer_counters::TransferCounters;

use std::collections::VecDeque;

use disk::Disk;
use host_blocks::HostBlocks;
use link::Link;
use refused::Refused;

use super::grown::grown;
use super::observe::KvEvent;
use super::slot::Slot;

/// Progress of a request's load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum LoadProgress {
    #[default]
    None,
    /// It has blocks and waits for their content.
    UnderWay,
    /// The engine has seen its end.
    Ended,
}

/// The tier's state of a request.
#[derive(Debug, Default)]
struct Tracked {
    record: u32,
    load: LoadProgress,
    load_began_ns: u64,
    /// The host's blocks that it loads.
    loading: Vec<u32>,
    num_loaded: u32,
    /// Those of the loaded blocks that the host had read from the disk for it.
    num_from_disk: u32,
    /// Number of leading blocks that were offered to the host.
    num_offered: u32,
    /// Number of its blocks that the host refused last, unless it has them by now.
    num_refused: u32,
    /// The host's blocks that it was given since the last preemption.
    storing: Vec<u32>,
    /// Whether it ever stored a block.
    has_stored: bool,
    /// Stores whose end the engine has not seen.
    num_stores: u32,
    has_ended: bool,
}

/// A request that goes on after a load of `num_tokens`, for which it waited since `since_ns`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Resumed {
    pub(super) record: u32,
    pub(super) num_tokens: u32,
    /// Those of the tokens that came from the disk.
    pub(super) num_disk_tokens: u32,
    pub(super) since_ns: u64,
}

/// A copy that is not submitted yet.
#[derive(Debug, Clone, Copy)]
struct Prepared {
    slot: u32,
    num_blocks: u32,
}

/// The tier of one engine.
#[derive(Debug, Default)]
pub(super) struct Offload {
    block_size: u32,
    /// Bytes of a block on one GPU.
    block_bytes: u64,
    offload_prompt_only: bool,
    host: HostBlocks,
    link: Link,
    disk: Option<Box<Disk>>,
    requests: Vec<Tracked>,
    loads: Vec<Prepared>,
    /// Stores of the step that is being scheduled, and of the one before.
    stores: Vec<Prepared>,
    unsubmitted: Vec<Prepared>,
    /// The blocks of these stores in their order, for an observer that wants events.
    offered: VecDeque<Vec<u64>>,
    preempted: Vec<u32>,
    refused: Refused,
    /// Slots of requests that have ended and keep their blocks, since the last iteration.
    ended: Vec<u32>,
    /// Whether a request has ended since the last iteration, so that vLLM runs one even without requests.
    pub(super) any_ended: bool,
    num_copies: u64,
    /// Requests that went on after a load, since the engine asked last.
    pub(super) resumed: Vec<Resumed>,
    /// Events of the host's blocks, for an observer that wants them.
    pub(super) events: Option<Vec<KvEvent>>,
    pub(super) counters: OffloadCounters,
}

impl Offload {
    pub(super) fn new(config: &KvOffload, block_size: u32) -> Self {
        Offload {
            block_size,
            block_bytes: config.block_bytes,
            offload_prompt_only: config.offload_prompt_only,
            host: HostBlocks::new(config.num_cpu_blocks),
            link: Link::new(config.contention),
            disk: config.disk.as_ref().map(|disk| Box::new(Disk::new(disk))),
            ..Offload::default()
        }
    }

    /// Begins to track the request in `slot`.
    pub(super) fn add(&mut self, slot: u32, record: u32) {
        let slot = slot as usize;
        self.host.begin(slot);
        let request = grown(&mut self.requests, slot, Tracked::default);
        let Tracked { mut loading, mut storing, .. } = std::mem::take(request);
        loading.clear();
        storing.clear();
        *request = Tracked { record, loading, storing, ..Tracked::default() };
    }

    pub(super) fn load_of(&self, slot: u32) -> LoadProgress {
        self.requests[slot as usize].load
    }

    fn record_of(&self, slot: u32) -> u32 {
        self.requests[slot as usize].record
    }

    /// Number of blocks that a waiting request can load behind its first `num_found` ones; `None` while another request loads some
    /// of them, or while it waits for the disk.
    pub(super) fn lookup(&mut self, slot: u32, state: &Slot, num_found: u32) -> Option<u32> {
        let (at, num_full) = (slot as usize, state.num_tokens() / self.block_size);
        self.host.know(at, state, num_full);
        self.host.touch(at, num_full);
        match self.disk {
            None => self.host.lookup(at, num_found..num_full),
            Some(_) => self.find_behind(slot, num_found..num_full),
        }
    }

    /// Begins to load `num_blocks` blocks behind the first `num_found` ones of a request that has room for them.
    pub(super) fn begin_load(&mut self, slot: u32, num_found: u32, num_blocks: u32) {
        let request = &mut self.requests[slot as usize];
        request.num_offered = num_found + num_blocks;
        self.host.begin_load(slot as usize, num_found..request.num_offered, &mut request.loading);
        if let Some(disk) = &self.disk {
            request.num_from_disk = disk.num_read(slot, &self.host.hashes(&request.loading));
        }
        request.load = LoadProgress::UnderWay;
        request.num_loaded = num_blocks;
        self.loads.push(Prepared { slot, num_blocks });
    }

    /// Notes that a request runs, `cached` tokens of which are not computed.
    pub(super) fn admit(&mut self, slot: u32, state: &Slot, cached: u32) {
        let request = &mut self.requests[slot as usize];
        let loaded = std::mem::take(&mut request.num_loaded) * self.block_size;
        let found = cached.saturating_sub(loaded);
        self.counters.admit(state.was_preempted, state.num_tokens() - found, cached - found);
        let from_disk = std::mem::take(&mut request.num_from_disk) * self.block_size;
        let num_disk_tokens = from_disk.min(cached - found);
        if let Some(disk) = &mut self.disk {
            disk.hit(state.was_preempted, num_disk_tokens);
        }
        if request.load == LoadProgress::Ended {
            request.load = LoadProgress::None;
            self.resumed.push(Resumed {
                record: state.rank.record,
                num_tokens: cached - found,
                num_disk_tokens,
                since_ns: request.load_began_ns,
            });
        }
    }

    /// Offers the host the blocks that a step fills, up to the request's first `num_tokens` tokens, whose content is known.
    pub(super) fn offer(&mut self, slot: u32, state: &Slot, step: u64, mut num_tokens: u32) {
        if self.offload_prompt_only {
            num_tokens = num_tokens.min(state.num_prompt_tokens);
        }
        let num_full = num_tokens / self.block_size;
        let request = &mut self.requests[slot as usize];
        if num_full <= request.num_offered {
            return;
        }
        let (positions, num_blocks) = (request.num_offered..num_full, num_full - request.num_offered);
        let (at, stored) = (slot as usize, &mut request.storing);
        let num_stored = if num_blocks == 1 && self.host.append(at, state, positions.start, stored) {
            1
        } else {
            self.host.know(at, state, num_full);
            match self.host.offer(at, positions, stored) {
                Ok(num_stored) => num_stored,
                Err(missing) => return self.refuse(slot, state, step, num_blocks, missing),
            }
        };
        request.num_offered = num_full;
        self.note_removed();
        self.unrefuse(slot);
        if num_stored == 0 {
            return;
        }
        self.host.touch(slot as usize, num_full);
        let request = &mut self.requests[slot as usize];
        request.has_stored = true;
        request.num_stores += 1;
        if self.events.is_some() {
            let first = request.storing.len() - num_stored as usize;
            self.offered.push_back(self.host.serials(&request.storing[first..]));
        }
        self.stores.push(Prepared { slot, num_blocks: num_stored });
        self.counters.max_blocks_in_use = self.counters.max_blocks_in_use.max(self.host.len());
    }

    /// Counts and notes the blocks that made room for others on the host.
    fn note_removed(&mut self) {
        self.counters.evicted_blocks += self.host.removed.len() as u64;
        note(&mut self.events, KvEvent::Removed, &mut self.host.removed);
    }

    pub(super) fn preempt(&mut self, slot: u32) {
        self.preempted.push(slot);
    }

    /// Counts the blocks that a step's offers were refused, and completes the stores of preempted requests: their copies are waited for.
    pub(super) fn end_offers(&mut self, slots: &[Slot]) {
        self.counters.refused_blocks += self.refused.num_blocks;
        self.preempted.sort_unstable_by_key(|slot| slots[*slot as usize].rank.record);
        for at in 0..self.preempted.len() {
            self.complete_stores(self.preempted[at]);
        }
    }

    fn complete_stores(&mut self, slot: u32) {
        end_stores(&mut self.host, &mut self.events, &self.requests[slot as usize].storing);
        if self.disk.is_some() {
            self.write_behind(slot);
        }
        self.requests[slot as usize].storing.clear();
    }

    /// Notes that a request has ended. Returns whether it keeps its blocks until its stores have ended.
    pub(super) fn end(&mut self, slot: u32) -> bool {
        self.any_ended = true;
        self.unrefuse(slot);
        let keeps = self.requests[slot as usize].has_stored;
        if keeps {
            self.ended.push(slot);
        } else {
            self.end_request(slot);
        }
        keeps
    }

    /// Ends the stores of a request that has ended, so that its blocks can be freed.
    pub(super) fn finish_stores(&mut self, slot: u32) {
        self.complete_stores(slot);
        self.end_request(slot);
    }

    /// Ends a load whose end the engine has seen.
    pub(super) fn finish_load(&mut self, slot: u32) {
        let request = &mut self.requests[slot as usize];
        request.load = LoadProgress::Ended;
        self.host.update(&request.loading, |block| block.num_loads -= 1);
        request.loading.clear();
    }

    /// Time at which the next copy ends.
    pub(super) fn next_end_ns(&self) -> Option<u64> {
        let at_disk = self.disk.as_ref().and_then(|disk| disk.next_end_ns());
        [self.link.next_end_ns(), at_disk].into_iter().flatten().min()
    }
}

/// Ends stores of blocks on the host, and notes the blocks.
fn end_stores(host: &mut HostBlocks, events: &mut Option<Vec<KvEvent>>, blocks: &[u32]) {
    host.update(blocks, |block| block.is_written = true);
    if events.is_some() {
        note(events, KvEvent::Stored, &mut host.serials(blocks));
    }
}

/// Takes the numbers of blocks, and notes an event of them for an observer that wants it.
fn note(events: &mut Option<Vec<KvEvent>>, event: fn(Vec<u64>) -> KvEvent, serials: &mut Vec<u64>) {
    match events {
        Some(events) if !serials.is_empty() => {
            serials.sort_unstable();
            events.push(event(std::mem::take(serials)));
        }
        _ => serials.clear(),
    }
}

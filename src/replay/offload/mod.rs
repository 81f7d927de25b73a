//! The host's tier of KV blocks: which blocks are copied to the host and back, when, and what waits for it.
//!
//! Mirrors both halves of vLLM 0.19.0's `OffloadingConnector`
//! (`vllm/distributed/kv_transfer/kv_connector/v1/offloading/scheduler.py`, `worker.py`). Stores are prepared when a step is scheduled and
//! submitted with the next one. Copies run beside the steps, and the engine sees their ends when it launches an iteration. A request
//! that has ended keeps its blocks until its stores have ended, and only then can the host's copies be loaded.
#![expect(clippy::indexing_slicing, reason = "the engine numbers slots within its list")]
#![expect(clippy::cast_possible_truncation, reason = "a request has fewer than 2^32 blocks")]

mod break_even;
mod config;
mod counters;
mod disk;
mod host_blocks;
mod link;
mod recency;

use std::collections::HashSet;
use std::hash::BuildHasherDefault;

pub use break_even::LoadOrCompute;
pub use config::KvOffload;
pub use counters::{OffloadCounters, TransferCounters};
pub use disk::{DiskCounters, KvDisk};

use super::batch::Batch;
use super::block_pool::{AlreadyHashed, BlockHash};
use super::clock::ns_f64;
use super::observe::TransferEvent;
use super::slot::Slot;
use crate::latency::{LatencyModel, TransferDirection, non_negative};
use disk::Disk;
use host_blocks::HostBlocks;
use link::{Copy, Link};
use recency::Recency;

/// Blocks of ended requests whose uses are kept before they are entered: 16 MiB.
const MOST_ENDED_BLOCKS: usize = 1 << 21;

/// Progress of a request's load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Load {
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
    load: Load,
    load_began_ns: u64,
    loading: Vec<BlockHash>,
    num_loaded: u32,
    /// Those of the loaded blocks that the host had read from the disk for it.
    num_from_disk: u32,
    /// Number of leading blocks that were offered to the host.
    num_offered: u32,
    /// Blocks that the host was given since the last preemption.
    storing: Vec<BlockHash>,
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
#[derive(Debug)]
pub(super) struct Offload {
    config: KvOffload,
    block_size: u32,
    host: HostBlocks,
    link: Link,
    disk: Option<Box<Disk>>,
    requests: Vec<Tracked>,
    /// Blocks that some request loads.
    being_loaded: HashSet<BlockHash, BuildHasherDefault<AlreadyHashed>>,
    loads: Vec<Prepared>,
    /// Stores of the step that is being scheduled, and of the one before.
    stores: Vec<Prepared>,
    unsubmitted: Vec<Prepared>,
    preempted: Vec<u32>,
    /// Requests whose blocks the host had no room for; they are offered again with every step.
    refused: Vec<u32>,
    /// The blocks that are offered.
    offered: Vec<BlockHash>,
    /// Slots of requests that have ended and keep their blocks, since the last iteration.
    ended: Vec<u32>,
    /// Whether a request has ended since the last iteration, so that vLLM runs one even without requests.
    pub(super) any_ended: bool,
    recency: Recency,
    num_copies: u64,
    /// Requests that went on after a load, since the engine asked last.
    pub(super) resumed: Vec<Resumed>,
    /// Events of the host's blocks for an observer that wants them: whether they were removed, and their serial numbers.
    pub(super) events: Option<Vec<(bool, Vec<u64>)>>,
    pub(super) counters: OffloadCounters,
}

impl Offload {
    pub(super) fn new(config: &KvOffload, block_size: u32) -> Self {
        Offload {
            config: config.clone(),
            block_size,
            host: HostBlocks::new(config.num_cpu_blocks),
            link: Link::new(config.contention),
            disk: config.disk.as_ref().map(|disk| Box::new(Disk::new(disk))),
            requests: Vec::new(),
            being_loaded: HashSet::default(),
            loads: Vec::new(),
            stores: Vec::new(),
            unsubmitted: Vec::new(),
            preempted: Vec::new(),
            refused: Vec::new(),
            offered: Vec::new(),
            ended: Vec::new(),
            any_ended: false,
            recency: Recency::new(),
            num_copies: 0,
            resumed: Vec::new(),
            events: None,
            counters: OffloadCounters::default(),
        }
    }

    /// Begins to track the request in `slot`.
    pub(super) fn add(&mut self, slot: u32, record: u32) {
        let slot = slot as usize;
        if self.requests.len() <= slot {
            self.requests.resize_with(slot + 1, Tracked::default);
        }
        self.recency.add(slot);
        self.requests[slot] = Tracked { record, ..Tracked::default() };
    }

    pub(super) fn load_of(&self, slot: u32) -> Load {
        self.requests[slot as usize].load
    }

    fn record_of(&self, slot: u32) -> u32 {
        self.requests[slot as usize].record
    }

    /// Number of blocks that a waiting request can load behind its first `num_found` ones; `None` while another request loads some
    /// of them, or while it waits for the disk.
    pub(super) fn lookup(&mut self, slot: u32, state: &Slot, num_found: u32) -> Option<u32> {
        let (slot, num_full) = (slot as usize, (state.num_tokens() / self.block_size) as usize);
        self.recency.know(slot, state, num_full);
        let round = self.recency.round;
        self.host.mark(self.recency.touch(slot, num_full, num_full), round);
        let from_disk = match self.disk {
            None => None,
            Some(_) => Some(self.find_behind(slot as u32, num_full, num_found as usize)?),
        };
        let rest = self.recency.hashes(slot, num_full).get(num_found as usize..).unwrap_or_default();
        let hits = from_disk.unwrap_or_else(|| self.host.lookup(rest));
        if hits > 0 && rest[..hits as usize].iter().any(|hash| self.being_loaded.contains(hash)) {
            return None;
        }
        Some(hits)
    }

    /// Begins to load `num_blocks` blocks behind the first `num_found` ones of a request that has room for them.
    pub(super) fn begin_load(&mut self, slot: u32, num_found: u32, num_blocks: u32) {
        let range = num_found as usize..(num_found + num_blocks) as usize;
        let request = &mut self.requests[slot as usize];
        request.loading = self.recency.hashes(slot as usize, range.end)[range].to_vec();
        self.host.begin_load(&request.loading);
        self.being_loaded.extend(&request.loading);
        request.num_from_disk = self.disk.as_ref().map_or(0, |disk| disk.num_read(slot, &request.loading));
        request.num_offered = num_found + num_blocks;
        request.load = Load::UnderWay;
        request.num_loaded = num_blocks;
        self.loads.push(Prepared { slot, num_blocks });
    }

    /// Notes that a request runs, `cached` tokens of which are not computed.
    pub(super) fn admit(&mut self, slot: u32, state: &Slot, cached: u32) {
        let request = &mut self.requests[slot as usize];
        let loaded = std::mem::take(&mut request.num_loaded) * self.block_size;
        let found = cached.saturating_sub(loaded);
        self.counters.asked_tokens += u64::from(state.num_tokens() - found);
        self.counters.hit_tokens += u64::from(cached - found);
        let from_disk = std::mem::take(&mut request.num_from_disk) * self.block_size;
        let num_disk_tokens = from_disk.min(cached - found);
        if let Some(disk) = &mut self.disk {
            disk.hit(num_disk_tokens);
        }
        if request.load == Load::Ended {
            request.load = Load::None;
            self.resumed.push(Resumed {
                record: state.rank.record,
                num_tokens: cached - found,
                num_disk_tokens,
                since_ns: request.load_began_ns,
            });
        }
    }

    /// Takes the requests whose blocks the host had no room for.
    pub(super) fn take_refused(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.refused)
    }

    /// Offers the host the blocks that a step fills, up to the request's first `num_tokens` tokens, whose content is known.
    pub(super) fn offer(&mut self, slot: u32, state: &Slot, mut num_tokens: u32) {
        if self.config.offload_prompt_only {
            num_tokens = num_tokens.min(state.num_prompt_tokens);
        }
        let num_full = num_tokens / self.block_size;
        let request = &mut self.requests[slot as usize];
        if num_full <= request.num_offered {
            return;
        }
        let at = slot as usize;
        self.recency.know(at, state, num_full as usize);
        if self.recency.num_ended_blocks() > MOST_ENDED_BLOCKS {
            self.recency.enter(|hashes| self.host.touch(hashes));
        }
        self.offered.clear();
        let offered = self.recency.hashes(at, num_full as usize).iter().skip(request.num_offered as usize);
        self.offered.extend(offered);
        let (round, recency) = (self.recency.round, &mut self.recency);
        let settle = |host: &mut HostBlocks| recency.enter(|hashes| host.touch(hashes));
        let Some(room) = self.host.make_room(&self.offered, round, settle) else {
            self.counters.refused_blocks += u64::from(num_full - request.num_offered);
            self.refused.push(slot);
            return;
        };
        let first = std::mem::replace(&mut request.num_offered, num_full) as usize;
        if !room.removed.is_empty() {
            self.counters.evicted_blocks += room.removed.len() as u64;
            note(&mut self.events, true, room.removed);
        }
        if room.stored.is_empty() {
            return;
        }
        let round = self.recency.round;
        self.host.mark(self.recency.touch(at, num_full as usize, first), round);
        request.has_stored = true;
        self.stores.push(Prepared { slot, num_blocks: room.stored.len() as u32 });
        request.storing.extend(room.stored);
        request.num_stores += 1;
        self.counters.max_blocks_in_use = self.counters.max_blocks_in_use.max(self.host.len());
    }

    pub(super) fn preempt(&mut self, slot: u32) {
        self.preempted.push(slot);
    }

    /// Completes the stores of the requests that the step that was scheduled preempts: their copies are waited for.
    pub(super) fn complete_preempted(&mut self, slots: &[Slot]) {
        self.preempted.sort_unstable_by_key(|slot| slots[*slot as usize].rank.record);
        for at in 0..self.preempted.len() {
            self.complete_stores(self.preempted[at]);
        }
    }

    fn complete_stores(&mut self, slot: u32) {
        let hashes = std::mem::take(&mut self.requests[slot as usize].storing);
        let written = self.host.end_store(&hashes);
        if !written.is_empty() {
            note(&mut self.events, false, written);
        }
        if self.disk.is_some() {
            self.write_behind(slot, hashes);
        }
    }

    /// Notes that a request has ended. Returns whether it keeps its blocks until its stores have ended.
    pub(super) fn end(&mut self, slot: u32) -> bool {
        self.any_ended = true;
        let keeps = self.requests[slot as usize].has_stored;
        if keeps {
            self.ended.push(slot);
        } else {
            self.end_at_disk(slot);
        }
        keeps
    }

    /// Launches an iteration at `host_ns`: submits copies, waits for those of preempted requests, and looks which have ended. Puts the
    /// requests whose stores or loads have ended into `batch`. Returns the time from which the GPUs can begin.
    pub(super) fn launch(
        &mut self,
        latency: &dyn LatencyModel,
        host_ns: u64,
        gpu_end_ns: u64,
        batch: &mut Batch,
        mut on_done: impl FnMut(TransferEvent),
    ) -> u64 {
        self.link.advance(host_ns);
        let mut launch_ns = host_ns;
        let after_step_ns = host_ns.max(gpu_end_ns);
        for prepared in std::mem::take(&mut self.unsubmitted) {
            self.submit(latency, TransferDirection::GpuToCpu, prepared, after_step_ns);
        }
        if !self.preempted.is_empty() {
            self.link.wait_for(&self.preempted);
            launch_ns = launch_ns.max(self.link.now_ns());
            self.preempted.clear();
        }
        for prepared in std::mem::take(&mut self.loads) {
            self.requests[prepared.slot as usize].load_began_ns = launch_ns;
            self.submit(latency, TransferDirection::CpuToGpu, prepared, launch_ns);
        }
        self.unsubmitted.append(&mut self.stores);
        self.link.advance(launch_ns);
        for copy in self.link.take_done() {
            on_done(copy.event);
            self.count(&copy.event);
            let request = &mut self.requests[copy.slot as usize];
            if copy.event.direction == TransferDirection::CpuToGpu {
                batch.loaded.push(copy.slot);
            } else {
                request.num_stores -= 1;
                if request.num_stores == 0 && request.has_ended {
                    batch.stored.push(copy.slot);
                }
            }
        }
        for slot in std::mem::take(&mut self.ended) {
            let request = &mut self.requests[slot as usize];
            request.has_ended = true;
            if request.num_stores == 0 {
                batch.stored.push(slot);
            }
        }
        self.any_ended = false;
        batch.stored.sort_unstable_by_key(|slot| self.requests[*slot as usize].record);
        if self.disk.is_some() {
            self.end_schedule(latency, host_ns, launch_ns, on_done);
        }
        launch_ns
    }

    fn submit(&mut self, latency: &dyn LatencyModel, direction: TransferDirection, prepared: Prepared, ready_ns: u64) {
        let Prepared { slot, num_blocks } = prepared;
        let bytes = u64::from(num_blocks).saturating_mul(self.config.block_bytes);
        let left_ns = ns_f64(non_negative(latency.kv_transfer_time_us(direction, bytes)));
        let (index, record) = (self.num_copies, self.requests[slot as usize].record);
        self.num_copies += 1;
        let event = TransferEvent { index, direction, record, num_blocks, ready_ns, end_ns: 0 };
        self.link.submit(Copy { event, slot, left_ns });
    }

    fn count(&mut self, copy: &TransferEvent) {
        let is_load = copy.direction == TransferDirection::CpuToGpu;
        let of = if is_load { &mut self.counters.loads } else { &mut self.counters.stores };
        of.add(copy, self.config.block_bytes);
    }

    /// Ends the stores of a request that has ended, so that its blocks can be freed.
    pub(super) fn finish_stores(&mut self, slot: u32) {
        self.complete_stores(slot);
        self.end_at_disk(slot);
        self.requests[slot as usize] = Tracked::default();
    }

    /// Ends a load whose end the engine has seen.
    pub(super) fn finish_load(&mut self, slot: u32) {
        let request = &mut self.requests[slot as usize];
        request.load = Load::Ended;
        for hash in &request.loading {
            self.being_loaded.remove(hash);
        }
        self.host.end_load(&request.loading);
        request.loading.clear();
    }

    /// Time at which the next copy ends.
    pub(super) fn next_end_ns(&self) -> Option<u64> {
        let at_disk = self.disk.as_ref().and_then(|disk| disk.next_end_ns());
        [self.link.next_end_ns(), at_disk].into_iter().flatten().min()
    }
}

fn note(events: &mut Option<Vec<(bool, Vec<u64>)>>, removed: bool, mut serials: Vec<u64>) {
    if let Some(events) = events {
        serials.sort_unstable();
        events.push((removed, serials));
    }
}

//! The disk tier behind the host's: which blocks are written to the disk and read from it, and when.
//!
//! Mirrors `TieringOffloadingManager` with one secondary tier of the type `fs` (vLLM 0.32.0, `vllm/v1/kv_offload/tiering/manager.py`,
//! `fs/manager.py`). `tier` connects it with the host's tier, `look_ups` and `files` are the disk's own parts.
//!
//! Reads and writes are two queues, in which a copy begins when the one before it has ended. vLLM's threads copy several at once, but share
//! the disk's bandwidth, so that the queue takes as long as they do.

mod config;
mod counters;
mod files;
mod look_ups;
mod tier;
#[cfg(test)]
mod vllm_tests;

use std::collections::{HashMap, HashSet};
use std::hash::BuildHasherDefault;
use std::ops::Range;

pub use config::KvDisk;
pub use counters::DiskCounters;
pub(crate) use tier::DiskWait;

use files::Files;
use look_ups::LookUps;
use ridgepoint::latency::TransferDirection;

use super::super::block_pool::{AlreadyHashed, BlockHash};
use super::super::grown::grown;
use super::super::observe::TransferEvent;
use super::link::Link;

type Hashes = HashSet<BlockHash, BuildHasherDefault<AlreadyHashed>>;

/// Blocks that are copied between host and disk for a request.
#[derive(Debug)]
struct Job {
    is_read: bool,
    slot: u32,
    record: u32,
    /// Numbers of the host blocks that it pins: those to be read, or those to be written.
    blocks: Vec<u32>,
    /// Hashes of the blocks to copy. Blocks already on the disk are not written again.
    copied: Vec<BlockHash>,
}

impl Job {
    fn direction(&self) -> TransferDirection {
        if self.is_read { TransferDirection::DiskToCpu } else { TransferDirection::CpuToDisk }
    }
}

/// A request at the disk.
#[derive(Debug, Default)]
struct DiskRequest {
    /// The blocks that it had read from the disk.
    promoted: Hashes,
    /// Time since which it waits for the disk.
    since_ns: Option<u64>,
}

/// The disk tier of one engine.
#[derive(Debug, Default)]
pub(super) struct Disk {
    /// Bytes of a block: the shares of all GPUs together.
    block_bytes: u64,
    files: Files,
    look_ups: LookUps,
    link: Link,
    /// The requests by their slots.
    requests: Vec<DiskRequest>,
    /// The numbers of the host's blocks that are read from the disk.
    promoting: HashSet<u32>,
    /// Reads that begin when the step is scheduled, and writes that begin when their blocks are on the host.
    reads: Vec<Job>,
    writes: Vec<Job>,
    /// Jobs under way by the number of their copy, and those that have ended since the engine asked.
    under_way: HashMap<u64, Job>,
    ended: Vec<Job>,
    /// Copies that have ended and are not reported yet.
    copies: Vec<TransferEvent>,
    /// Positions of the blocks of its chain that the look-up under way reads.
    came: Vec<Range<u32>>,
    /// Whether look-ups were answered that no step has seen.
    pub(super) has_answers: bool,
    /// Number of reads that were submitted.
    num_reads: u64,
    /// Waits that have ended, since the engine asked.
    waited: Vec<DiskWait>,
    now_ns: u64,
    counters: DiskCounters,
}

impl Disk {
    pub(super) fn new(config: &KvDisk) -> Self {
        Disk {
            block_bytes: config.block_bytes,
            files: Files::new(config.num_disk_blocks),
            link: Link::new(1.0),
            ..Disk::default()
        }
    }

    fn request(&mut self, slot: u32) -> &mut DiskRequest {
        grown(&mut self.requests, slot as usize, DiskRequest::default)
    }

    /// Begins to read a block that the host has made room for.
    fn promote(&mut self, slot: u32, record: u32, hash: BlockHash, block: u32) {
        debug_assert!(self.files.has(hash), "a block is read that was not written");
        self.files.begin_read(hash);
        self.promoting.insert(block);
        self.request(slot).promoted.insert(hash);
        match self.reads.iter_mut().rev().find(|job| job.slot == slot) {
            Some(job) => {
                job.blocks.push(block);
                job.copied.push(hash);
            }
            None => {
                self.reads.push(Job { is_read: true, slot, record, blocks: vec![block], copied: vec![hash] });
            }
        }
    }

    /// Begins to write blocks that are on the host, and that the host keeps until the write ends.
    fn cascade(&mut self, slot: u32, record: u32, blocks: Vec<u32>, hashes: &[BlockHash]) {
        let copied = self.files.begin_write(hashes);
        self.writes.push(Job { is_read: false, slot, record, blocks, copied });
    }

    /// Notes that the copy of a job has ended.
    fn end(&mut self, job: Job) {
        let removed = self.files.end(&job.copied, job.is_read);
        for hash in &removed {
            self.look_ups.forget(*hash);
        }
        self.counters.evicted_blocks += removed.len() as u64;
        self.counters.max_blocks_in_use = self.counters.max_blocks_in_use.max(self.files.num_written);
        self.ended.push(job);
    }

    /// Lets the copies go on until `to_ns`.
    fn advance(&mut self, to_ns: u64) {
        self.now_ns = self.now_ns.max(to_ns);
        self.link.advance(to_ns);
        for copy in std::mem::take(&mut self.link.done) {
            let Some(job) = self.under_way.remove(&copy.event.index) else { continue };
            let of = if job.is_read { &mut self.counters.reads } else { &mut self.counters.writes };
            of.add(&copy.event, self.block_bytes);
            self.copies.push(copy.event);
            self.end(job);
        }
    }

    /// Time at which the next copy ends.
    pub(super) fn next_end_ns(&self) -> Option<u64> {
        self.link.next_end_ns()
    }

    /// Counts tokens of a request that runs, which the host had read for it.
    pub(super) fn hit(&mut self, was_preempted: bool, num_tokens: u32) {
        let counters = &mut self.counters;
        let of = if was_preempted { &mut counters.preempted_hit_tokens } else { &mut counters.hit_tokens };
        *of += u64::from(num_tokens);
    }

    /// Number of these blocks that a request had read.
    pub(super) fn num_read(&self, slot: u32, hashes: &[BlockHash]) -> u32 {
        let request = self.requests.get(slot as usize);
        request.map_or(0, |request| hashes.iter().map(|hash| u32::from(request.promoted.contains(hash))).sum())
    }

    /// Answers the look-ups of the step that was scheduled.
    fn answer(&mut self) {
        let files = &self.files;
        self.has_answers = self.look_ups.answer(|hash| files.has(hash));
    }
}

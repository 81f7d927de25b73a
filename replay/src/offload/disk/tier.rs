//! The host's tier with a disk behind it: look-ups that reach the disk, reads and writes, and their ends.
#![expect(clippy::cast_possible_truncation, reason = "a request has fewer than 2^32 blocks")]

use std::ops::Range;

use ridgepoint::latency::LatencyModel;

use super::super::super::block_pool::BlockHash;
use super::super::super::observe::{KvEvent, SubmittedEvent, TransferEvent};
use super::super::host_blocks::{HostBlocks, State};
use super::super::link::Copy;
use super::super::{Offload, OffloadCounters, end_stores};
use super::{Disk, Job};

/// A wait for the disk that has ended.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DiskWait {
    pub(crate) record: u32,
    pub(crate) time_ns: u64,
}

/// Where a look-up finds a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BlockLocation {
    /// On the host.
    Hit,
    /// On the host, from which another request loads it.
    Loading,
    /// On the disk, from which the host reads it.
    Reading,
    /// On the GPU, which stores it on the host.
    Storing,
    /// The disk answers with the next step.
    Retry,
    /// Nowhere, or on the disk while the host has no room.
    Miss,
}

impl Offload {
    /// Whether there is a disk behind the host.
    #[inline]
    pub(crate) fn has_disk(&self) -> bool {
        self.disk.is_some()
    }

    /// Takes the time at which a step is scheduled, and the copies between host and disk that have ended.
    pub(crate) fn begin_schedule(&mut self, now_ns: u64) {
        let Some(disk) = &mut self.disk else { return };
        disk.advance(now_ns);
        disk.has_answers = false;
        self.end_jobs();
    }

    /// Ends the jobs whose copies have ended: blocks that were read can be loaded, and blocks that were written can go.
    pub(super) fn end_jobs(&mut self) {
        let Some(disk) = &mut self.disk else { return };
        for job in disk.ended.drain(..) {
            if job.is_read {
                for block in &job.blocks {
                    disk.promoting.remove(block);
                }
                end_stores(&mut self.host, &mut self.events, &job.blocks);
            } else {
                self.host.update(&job.blocks, |block| block.num_pins -= 1);
            }
        }
    }

    /// Number of leading blocks at these positions of a request's chain that it can load, on the host or read from the disk; `None` while
    /// another request loads some of them, or while it waits for the disk. A block that the GPU stores ends them, as such a store ends with
    /// its request.
    pub(in super::super) fn find_behind(&mut self, slot: u32, positions: Range<u32>) -> Option<u32> {
        let mut disk = self.disk.take()?;
        let (mut hits, mut waits, mut is_loaded) = (0, false, false);
        self.host.walk(slot as usize, positions.start);
        for position in positions {
            let found = self.look_up(&mut disk, slot, position);
            if matches!(found, BlockLocation::Storing | BlockLocation::Miss) {
                break;
            }
            hits += u32::from(found != BlockLocation::Retry);
            waits |= matches!(found, BlockLocation::Reading | BlockLocation::Retry);
            is_loaded |= found == BlockLocation::Loading;
        }
        self.enter(&mut disk, slot);
        let (now_ns, record) = (disk.now_ns, self.record_of(slot));
        let request = disk.request(slot);
        if waits {
            request.since_ns.get_or_insert(now_ns);
        } else if let Some(since_ns) = request.since_ns.take() {
            let time_ns = now_ns - since_ns;
            disk.counters.waits += 1;
            disk.counters.wait_ns += time_ns;
            disk.waited.push(DiskWait { record, time_ns });
        }
        self.disk = Some(disk);
        (!waits && !is_loaded).then_some(hits)
    }

    /// Looks at the block at a position of the host's walk along a request's chain, and begins to read it if the disk has it.
    pub(super) fn look_up(&mut self, disk: &mut Disk, slot: u32, position: u32) -> BlockLocation {
        let Some((hash, state)) = self.host.look(position) else { return BlockLocation::Miss };
        match state {
            State::Ready { is_loaded: false } => BlockLocation::Hit,
            State::Ready { is_loaded: true } => BlockLocation::Loading,
            State::BeingWritten(block) if disk.promoting.contains(&block) => BlockLocation::Reading,
            State::BeingWritten(_) => BlockLocation::Storing,
            State::Absent => match disk.look_ups.ask(slot as usize, hash) {
                None => BlockLocation::Retry,
                Some(false) => BlockLocation::Miss,
                Some(true) => self.promote(disk, slot, position, hash),
            },
        }
    }

    fn promote(&mut self, disk: &mut Disk, slot: u32, position: u32, hash: BlockHash) -> BlockLocation {
        let Some(block) = self.host.make_room(position) else {
            disk.counters.refused_reads += 1;
            return BlockLocation::Miss;
        };
        self.note_removed();
        self.counters.max_blocks_in_use = self.counters.max_blocks_in_use.max(self.host.len());
        disk.promote(slot, self.record_of(slot), hash, block);
        match disk.came.last_mut().filter(|came| came.end == position) {
            Some(came) => came.end += 1,
            None => disk.came.push(position..position + 1),
        }
        BlockLocation::Reading
    }

    /// Ends a walk: enters the blocks that are read behind all others of the host.
    pub(super) fn enter(&mut self, disk: &mut Disk, slot: u32) {
        for positions in disk.came.drain(..) {
            self.host.enter(slot as usize, positions);
        }
    }

    /// Begins to write the blocks of a request to the disk, whose stores on the host have ended.
    pub(in super::super) fn write_behind(&mut self, slot: u32) {
        let record = self.record_of(slot);
        let storing = self.requests.get(slot as usize).map_or_else(Vec::new, |request| request.storing.clone());
        if let Some(disk) = &mut self.disk
            && !storing.is_empty()
        {
            self.host.update(&storing, |block| block.num_pins += 1);
            let hashes = self.host.hashes(&storing);
            disk.cascade(slot, record, storing, &hashes);
        }
    }

    /// Submits the writes that are not under way, at `ready_ns`.
    pub(crate) fn submit_writes(&mut self, latency: &dyn LatencyModel, ready_ns: u64) {
        let Some(disk) = &mut self.disk else { return };
        for job in std::mem::take(&mut disk.writes) {
            if job.copied.is_empty() {
                disk.end(job);
            } else {
                report_end(&self.host, &mut self.events, self.num_copies, &job);
                submit(disk, &mut self.num_copies, latency, job, ready_ns);
            }
        }
    }

    /// Ends the schedule of a step at `now_ns`: submits the reads that it began, answers its look-ups, and reports the copies that have
    /// ended. What it stores for preempted requests is on the host at `stored_ns`.
    pub(in super::super) fn end_schedule(
        &mut self,
        latency: &dyn LatencyModel,
        now_ns: u64,
        stored_ns: u64,
        mut on_done: impl FnMut(TransferEvent),
    ) {
        self.submit_writes(latency, stored_ns);
        let Some(disk) = &mut self.disk else { return };
        disk.advance(now_ns);
        for job in std::mem::take(&mut disk.reads) {
            disk.num_reads += 1;
            report_end(&self.host, &mut self.events, self.num_copies, &job);
            submit(disk, &mut self.num_copies, latency, job, now_ns);
        }
        disk.answer();
        disk.copies.drain(..).for_each(&mut on_done);
    }

    /// Drops what the tiers know of a request that has ended and whose stores have.
    pub(in super::super) fn end_request(&mut self, slot: u32) {
        self.host.end(slot as usize);
        if let Some(disk) = &mut self.disk {
            disk.look_ups.end(slot as usize);
            *disk.request(slot) = super::DiskRequest::default();
        }
    }

    /// Takes the waits for the disk that have ended.
    pub(crate) fn take_waited(&mut self) -> Vec<DiskWait> {
        self.disk.as_mut().map_or_else(Vec::new, |disk| std::mem::take(&mut disk.waited))
    }

    /// The counters over a whole replay.
    pub(crate) fn into_counters(self) -> OffloadCounters {
        OffloadCounters { disk: self.disk.map(|disk| disk.counters), ..self.counters }
    }

    /// Whether look-ups of the disk were answered that no step has seen.
    pub(crate) fn has_answers(&self) -> bool {
        self.disk.as_ref().is_some_and(|disk| disk.has_answers)
    }

    /// Takes the number of reads that were submitted since the last call.
    pub(crate) fn take_num_reads(&mut self) -> u64 {
        self.disk.as_mut().map_or(0, |disk| std::mem::take(&mut disk.num_reads))
    }
}

/// Reports the blocks that the copy of a job reads and writes. `index` is the number of the copy.
fn report_end(host: &HostBlocks, events: &mut Option<Vec<KvEvent>>, index: u64, job: &Job) {
    let Some(events) = events else { return };
    // Those that are copied are in the order of all.
    let mut copied = job.copied.iter().peekable();
    let all = host.serials(&job.blocks).into_iter().zip(host.hashes(&job.blocks));
    let (host, disk) = all.filter(|(_, hash)| copied.next_if_eq(&hash).is_some()).unzip();
    events.push(KvEvent::Submitted(SubmittedEvent { index, direction: job.direction(), host, disk }));
}

/// Submits a job's copy.
fn submit(disk: &mut Disk, num_copies: &mut u64, latency: &dyn LatencyModel, job: Job, ready_ns: u64) {
    let num_blocks = job.copied.len() as u32;
    let event = TransferEvent {
        index: *num_copies,
        direction: job.direction(),
        record: job.record,
        num_blocks,
        ready_ns,
        end_ns: 0,
    };
    *num_copies += 1;
    disk.link.submit(Copy::new(latency, event, job.slot, disk.block_bytes));
    disk.under_way.insert(event.index, job);
}

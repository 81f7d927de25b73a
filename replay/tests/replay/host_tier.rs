//! Laws of the tiers of KV blocks on host and disk: no block is in two states, bytes follow from blocks, and a load finds what was stored.
//! `PROPTEST_CASES` sets the number of replays.

use std::collections::{BTreeSet, HashMap, HashSet};

use proptest::prelude::*;
use ridgepoint::Step;
use ridgepoint::latency::{FixedLatency, HostTimes, LatencyModel, TransferDirection};
use ridgepoint_replay::workload::{Segment, WorkloadRequest};
use ridgepoint_replay::{
    EngineConfig, KvDisk, KvEvent, KvOffload, Outcome, SchedulerOptions, SubmittedEvent, TransferCounters,
    TransferEvent, replay,
};

use crate::cases::Case;
use crate::common::Recorder;
use crate::laws::case;
use crate::loads::Listed;
use crate::scenarios::support::{steps_only, synchronous};

/// Constants, and a time for each byte that is copied.
struct WithLink(FixedLatency, f64);

impl LatencyModel for WithLink {
    fn step_time_us(&self, step: &Step<'_>) -> f64 {
        self.0.step_time_us(step)
    }
    fn host(&self) -> HostTimes {
        self.0.host()
    }
    fn kv_transfer_time_us(&self, direction: TransferDirection, bytes: u64) -> f64 {
        let latency_us = match direction {
            TransferDirection::GpuToCpu => 2.0,
            TransferDirection::CpuToGpu => 0.5,
            TransferDirection::CpuToDisk | TransferDirection::DiskToCpu => 3.0,
        };
        latency_us + self.1 * bytes as f64
    }
}

fn tier() -> impl Strategy<Value = KvOffload> {
    let limit = prop_oneof![Just(None), (1u32..=60).prop_map(Some)];
    let disk = (1u64..=9, limit).prop_map(|(block_bytes, num_disk_blocks)| KvDisk { block_bytes, num_disk_blocks });
    let disk = prop_oneof![Just(None), disk.prop_map(Some)];
    (1u32..=60, 1u64..=9, any::<bool>(), prop_oneof![Just(1.0), 0.25..1.0], disk).prop_map(
        |(num_cpu_blocks, block_bytes, offload_prompt_only, contention, disk)| KvOffload {
            num_cpu_blocks,
            block_bytes,
            offload_prompt_only,
            contention,
            disk,
        },
    )
}

/// What the events so far say of blocks and copies.
#[derive(Default)]
struct Ledger {
    /// The copies that have ended, also those that are reported later.
    copies: HashMap<u64, TransferEvent>,
    /// The copies whose ends were reported.
    reported: HashSet<u64>,
    submitted: HashMap<u64, SubmittedEvent>,
    /// Blocks of the host that can be loaded, and those that made room for others.
    held: BTreeSet<u64>,
    gone: BTreeSet<u64>,
    /// By block of the host, the copy that writes it and those that read it.
    filled_by: HashMap<u64, u64>,
    read_by: HashMap<u64, Vec<u64>>,
    /// By block of the disk, the copies that wrote it.
    on_disk: HashMap<u64, Vec<u64>>,
}

impl Ledger {
    fn new(events: &[KvEvent]) -> Self {
        let ended = events.iter().filter_map(|event| match event {
            KvEvent::Transfer(copy) => Some((copy.index, *copy)),
            _ => None,
        });
        Ledger { copies: ended.collect(), ..Ledger::default() }
    }

    /// Whether a copy had ended when another one could begin. One that has not ended by the end of a replay has no times.
    fn is_before(&self, first: u64, then: u64) -> bool {
        let Some(then) = self.copies.get(&then) else { return true };
        self.copies.get(&first).is_some_and(|first| first.end_ns <= then.ready_ns)
    }

    /// The copy's sources hold what it reads, and nothing else writes to its targets.
    fn submit(&mut self, copy: &SubmittedEvent, tier: &KvOffload) -> Result<(), TestCaseError> {
        let reads_disk = copy.direction == TransferDirection::DiskToCpu;
        let fills = reads_disk || copy.direction == TransferDirection::GpuToCpu;
        for block in &copy.host {
            if fills {
                prop_assert!(self.filled_by.insert(*block, copy.index).is_none(), "{block} is written twice: {copy:?}");
                continue;
            }
            prop_assert!(self.held.contains(block), "{block} is not there: {copy:?}");
            let store = self.filled_by.get(block);
            prop_assert!(
                store.is_some_and(|store| self.is_before(*store, copy.index)),
                "{block} of {store:?}: {copy:?}"
            );
            self.read_by.entry(*block).or_default().push(copy.index);
        }
        let is_at_disk = reads_disk || copy.direction == TransferDirection::CpuToDisk;
        prop_assert_eq!(copy.disk.len(), if is_at_disk { copy.host.len() } else { 0 });
        let can_go = tier.disk.as_ref().is_some_and(|disk| disk.num_disk_blocks.is_some());
        for block in &copy.disk {
            let writes = self.on_disk.entry(*block).or_default();
            if !reads_disk {
                prop_assert!(can_go || writes.is_empty(), "{block} is written to the disk twice: {copy:?}");
                writes.push(copy.index);
                continue;
            }
            let writes = writes.clone();
            prop_assert!(
                writes.iter().any(|write| self.is_before(*write, copy.index)),
                "{block} of {writes:?}: {copy:?}"
            );
        }
        prop_assert!(self.submitted.insert(copy.index, copy.clone()).is_none(), "{copy:?} is submitted twice");
        Ok(())
    }

    fn check(&mut self, event: &KvEvent, tier: &KvOffload) -> Result<(), TestCaseError> {
        match event {
            KvEvent::Stored(blocks) => {
                for block in blocks {
                    prop_assert!(self.held.insert(*block) && !self.gone.contains(block), "{block} is stored twice");
                }
            }
            KvEvent::Removed(blocks) => {
                for block in blocks {
                    prop_assert!(self.held.remove(block) && self.gone.insert(*block), "{block} goes without a store");
                    let readers = self.read_by.get(block);
                    let are_done =
                        readers.is_none_or(|readers| readers.iter().all(|copy| self.reported.contains(copy)));
                    prop_assert!(are_done, "{block} goes while it is read: {readers:?}");
                }
            }
            KvEvent::Submitted(copy) => self.submit(copy, tier)?,
            KvEvent::Transfer(copy) => {
                prop_assert!(self.reported.insert(copy.index), "{copy:?} ends twice");
            }
        }
        prop_assert!(self.held.len() <= tier.num_cpu_blocks as usize, "{} blocks are held", self.held.len());
        Ok(())
    }

    /// Number of the blocks that were written to the disk.
    fn num_written(&self) -> u64 {
        let is_written = |writes: &&Vec<u64>| writes.iter().any(|write| self.copies.contains_key(write));
        self.on_disk.values().filter(is_written).count() as u64
    }

    /// Every copy that ended was submitted with as many blocks, and a copy filled every block that could be loaded.
    fn finish(&self) -> Result<(), TestCaseError> {
        for copy in self.copies.values() {
            let submitted = self.submitted.get(&copy.index);
            let is_same =
                |of: &SubmittedEvent| of.direction == copy.direction && of.host.len() == copy.num_blocks as usize;
            prop_assert!(submitted.is_some_and(is_same), "{copy:?} was submitted as {submitted:?}");
        }
        let mut stored = self.held.iter().chain(&self.gone);
        prop_assert!(stored.all(|block| self.filled_by.contains_key(block)), "a block was stored without a copy");
        Ok(())
    }
}

/// No block is in two states, every load had its stores, and every read of the disk its writes.
fn check_blocks(events: &[KvEvent], tier: &KvOffload) -> Result<Ledger, TestCaseError> {
    let mut ledger = Ledger::new(events);
    for event in events {
        ledger.check(event, tier)?;
    }
    Ok(ledger)
}

/// The copies of a direction: counted whole, one after the other.
fn check_copies(
    events: &[KvEvent],
    direction: TransferDirection,
    counted: TransferCounters,
    block_bytes: u64,
) -> Result<(), TestCaseError> {
    let copies = events.iter().filter_map(|event| match event {
        KvEvent::Transfer(copy) if copy.direction == direction => Some(copy),
        _ => None,
    });
    let (mut count, mut blocks, mut last_ns) = (0, 0, 0);
    for copy in copies {
        count += 1;
        blocks += u64::from(copy.num_blocks);
        prop_assert!(copy.num_blocks > 0 && copy.end_ns >= copy.ready_ns && copy.end_ns >= last_ns, "{copy:?}");
        last_ns = copy.end_ns;
    }
    prop_assert_eq!((counted.count, counted.blocks, counted.bytes), (count, blocks, blocks * block_bytes));
    Ok(())
}

/// The first turn has a prompt of 4 tokens and ends at 50 µs, when 8 tokens of it are computed: two blocks, whose stores take 102 µs each. The
/// next turn comes at 60 µs, begins with the same 8 tokens, and finds both on the GPU.
#[test]
fn a_later_turn_finds_generated_blocks_whose_stores_are_under_way() {
    let turn = |arrival_ns, num_prompt_tokens, num_output_tokens| WorkloadRequest {
        content: Some([Segment { id: 1, num_tokens: 8 }].into()),
        ..WorkloadRequest::new(arrival_ns, num_prompt_tokens, num_output_tokens)
    };
    let kv_offload =
        KvOffload { num_cpu_blocks: 8, block_bytes: 100, offload_prompt_only: false, contention: 1.0, disk: None };
    let config = EngineConfig { kv_offload: Some(kv_offload), ..synchronous() };
    let turns = vec![turn(0, 4, 5), turn(60_000, 12, 1)];
    let mut seen = Recorder::default();
    let replayed = replay(&WithLink(steps_only(), 1.0), &config, &mut Listed::new(turns), &mut [&mut seen]).unwrap();
    let [first, later] = replayed.records.as_slice() else { panic!("two turns") };
    assert_eq!((first.finish_ns, later.scheduled_ns, later.num_cached_tokens), (50_000, 60_000, 8));
    let is_submitted = |event: &KvEvent| matches!(event, KvEvent::Submitted(_));
    assert!(seen.kv.iter().all(is_submitted), "a store has ended: {:?}", seen.kv);
}

proptest! {
    #[test]
    fn blocks_and_bytes_are_conserved(case in case(), tier in tier(), byte_us in 0.0..8.0) {
        let Case { config, latency, requests, .. } = case;
        let config = EngineConfig { pipeline_parallel_size: 1, kv_offload: Some(tier.clone()), scheduler: SchedulerOptions { enable_prefix_caching: true, ..config.scheduler }, ..config };
        let mut seen = Recorder::default();
        let replayed = replay(&WithLink(latency, byte_us), &config, &mut Listed::new(requests), &mut [&mut seen]);
        let ledger = check_blocks(&seen.kv, &tier)?;
        let replayed = match replayed {
            Ok(replayed) => replayed,
            Err(error) => {
                prop_assert!(error.to_string().contains("makes no progress"), "{error}");
                return Ok(());
            }
        };
        ledger.finish()?;
        let counted = replayed.offload.unwrap();
        prop_assert!(counted.max_blocks_in_use <= tier.num_cpu_blocks);
        check_copies(&seen.kv, TransferDirection::GpuToCpu, counted.stores, tier.block_bytes)?;
        check_copies(&seen.kv, TransferDirection::CpuToGpu, counted.loads, tier.block_bytes)?;
        // A request goes on only after its load: all blocks that were loaded are used, but for the last token of a whole prompt.
        let loaded: u64 = replayed.records.iter().map(|record| u64::from(record.num_loaded_tokens)).sum();
        let block_size = u64::from(config.block_size);
        prop_assert_eq!(loaded, counted.loaded_tokens());
        let blocks = counted.loads.blocks * block_size;
        prop_assert!(loaded <= blocks && loaded + counted.loads.count >= blocks, "{loaded} of {blocks}");
        let from_disk: u64 = replayed.records.iter().map(|record| u64::from(record.num_disk_tokens)).sum();
        match (&tier.disk, counted.disk) {
            (Some(disk), Some(counted)) => {
                check_copies(&seen.kv, TransferDirection::CpuToDisk, counted.writes, disk.block_bytes)?;
                check_copies(&seen.kv, TransferDirection::DiskToCpu, counted.reads, disk.block_bytes)?;
                prop_assert_eq!(from_disk, counted.hit_tokens + counted.preempted_hit_tokens);
                // What the disk holds was written and not dropped.
                prop_assert!(from_disk == 0 || counted.reads.blocks > 0, "{counted:?}");
                let num_written = ledger.num_written();
                prop_assert!(counted.max_blocks_in_use <= num_written && num_written <= counted.writes.blocks, "{counted:?}");
                prop_assert!(disk.num_disk_blocks.is_some() || counted.max_blocks_in_use == num_written, "{counted:?}");
                prop_assert!(counted.evicted_blocks <= counted.writes.blocks, "{counted:?}");
                prop_assert!(disk.num_disk_blocks.is_none_or(|most| counted.max_blocks_in_use <= u64::from(most)));
                prop_assert!(disk.num_disk_blocks.is_some() || counted.evicted_blocks == 0);
            }
            (None, None) => prop_assert_eq!(from_disk, 0),
            (disk, counted) => prop_assert!(false, "{disk:?} counts {counted:?}"),
        }
        for record in &replayed.records {
            prop_assert!(record.outcome != Outcome::Unfinished);
            let may_wait = record.num_loaded_tokens > 0 || config.block_size == 1 || tier.disk.is_some();
            prop_assert!(record.load_ns == 0 || may_wait);
            prop_assert!(record.num_disk_tokens <= record.num_loaded_tokens);
        }
    }
}

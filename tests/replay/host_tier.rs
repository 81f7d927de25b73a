//! Laws of the tiers of KV blocks on host and disk: no block is in two states, bytes follow from blocks, and a load finds what was stored.
//! `PROPTEST_CASES` sets the number of replays.

use std::collections::BTreeSet;

use proptest::prelude::*;
use ridgepoint::Request;
use ridgepoint::internals::replay::{KvDisk, KvEvent, TransferCounters};
use ridgepoint::latency::{FixedLatency, HostTimes, LatencyModel, TransferDirection};
use ridgepoint::replay::{EngineConfig, KvOffload, Outcome, replay};
use ridgepoint::workload::{Segment, WorkloadRequest};

use crate::common::{Listed, Recorder};
use crate::laws::{Case, case};
use crate::scenarios::support::{steps_only, synchronous};

/// Constants, and a time for each byte that is copied.
struct WithLink(FixedLatency, f64);

impl LatencyModel for WithLink {
    fn step_time_us(&self, requests: &[Request]) -> f64 {
        self.0.step_time_us(requests)
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

/// Blocks of the host that can be loaded, as the events say.
fn check_blocks(events: &[KvEvent], most: u32) -> Result<(), TestCaseError> {
    let (mut held, mut gone) = (BTreeSet::new(), BTreeSet::new());
    for event in events {
        match event {
            KvEvent::Stored(blocks) => {
                for block in blocks {
                    prop_assert!(held.insert(*block) && !gone.contains(block), "{block} is stored twice");
                }
            }
            KvEvent::Removed(blocks) => {
                for block in blocks {
                    prop_assert!(held.remove(block) && gone.insert(*block), "{block} goes without having been stored");
                }
            }
            KvEvent::Transfer(_) => {}
        }
        prop_assert!(held.len() <= most as usize, "{} of {most} blocks", held.len());
    }
    Ok(())
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
    let replayed = replay(&WithLink(steps_only(), 1.0), &config, &mut Listed::new(turns), &mut seen).unwrap();
    let [first, later] = replayed.records.as_slice() else { panic!("two turns") };
    assert_eq!((first.finish_ns, later.scheduled_ns, later.num_cached_tokens), (50_000, 60_000, 8));
    assert!(seen.kv.is_empty(), "a store has ended: {:?}", seen.kv);
}

proptest! {
    #[test]
    fn blocks_and_bytes_are_conserved(case in case(), tier in tier(), byte_us in 0.0..8.0) {
        let Case { config, latency, requests, .. } = case;
        let config = EngineConfig {
            enable_prefix_caching: true,
            pipeline_parallel_size: 1,
            kv_offload: Some(tier.clone()),
            ..config
        };
        let mut seen = Recorder::default();
        let replayed = match replay(&WithLink(latency, byte_us), &config, &mut Listed::new(requests), &mut seen) {
            Ok(replayed) => replayed,
            Err(error) => {
                prop_assert!(error.to_string().contains("makes no progress"), "{error}");
                return Ok(());
            }
        };
        check_blocks(&seen.kv, tier.num_cpu_blocks)?;
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
        let stored: u64 = seen.kv.iter().map(|event| if let KvEvent::Stored(of) = event { of.len() as u64 } else { 0 }).sum();
        prop_assert!(counted.loads.blocks == 0 || stored > 0, "nothing was stored that could be loaded");
        let from_disk: u64 = replayed.records.iter().map(|record| u64::from(record.num_disk_tokens)).sum();
        match (&tier.disk, counted.disk) {
            (Some(disk), Some(counted)) => {
                check_copies(&seen.kv, TransferDirection::CpuToDisk, counted.writes, disk.block_bytes)?;
                check_copies(&seen.kv, TransferDirection::DiskToCpu, counted.reads, disk.block_bytes)?;
                prop_assert_eq!(from_disk, counted.hit_tokens + counted.preempted_hit_tokens);
                // Every read had its write, and what the disk holds was written and not dropped.
                prop_assert!(counted.reads.blocks == 0 || counted.writes.blocks > 0, "{counted:?}");
                prop_assert!(from_disk == 0 || counted.reads.blocks > 0, "{counted:?}");
                prop_assert!(counted.max_blocks_in_use <= counted.writes.blocks, "{counted:?}");
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

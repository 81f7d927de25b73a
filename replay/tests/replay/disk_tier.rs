//! The disk tier on a schedule worked out by hand: a prompt whose blocks GPU and host have lost is read from the disk, loaded, and goes on.

use ridgepoint::latency::{HostTimes, LatencyModel, TransferDirection};
use ridgepoint::{Deployment, Step};
use ridgepoint_replay::workload::{Segment, WorkloadRequest};
use ridgepoint_replay::{EngineConfig, KvDisk, KvEvent, KvOffload, Replay, SchedulerOptions, replay};

use crate::common::Recorder;
use crate::loads::Listed;

const US: u64 = 1000;

/// Steps of 100 µs; copies with a fixed time and one for each byte, and a block has one byte.
struct Constants;

impl LatencyModel for Constants {
    fn step_time_us(&self, _: &Step<'_>) -> f64 {
        100.0
    }
    fn host(&self) -> HostTimes {
        HostTimes::NONE
    }
    fn kv_transfer_time_us(&self, direction: TransferDirection, bytes: u64) -> f64 {
        let (latency_us, byte_us) = match direction {
            TransferDirection::GpuToCpu => (0.0, 10.0),
            TransferDirection::CpuToGpu => (0.0, 20.0),
            TransferDirection::CpuToDisk => (30.0, 5.0),
            TransferDirection::DiskToCpu => (40.0, 50.0),
        };
        latency_us + byte_us * bytes as f64
    }
}

/// A prompt whose tokens are those of text `id`.
fn prompt(arrival_us: u64, num_tokens: u32, num_output_tokens: u32, id: u64) -> WorkloadRequest {
    WorkloadRequest {
        content: Some([Segment { id, num_tokens }].into()),
        ..WorkloadRequest::new(arrival_us * US, num_tokens, num_output_tokens)
    }
}

/// Blocks of 4 tokens: those of one request of `max_model_len` tokens on the GPU.
fn engine(max_model_len: u32, num_cpu_blocks: u32, disk: Option<KvDisk>) -> EngineConfig {
    let tier = KvOffload { num_cpu_blocks, block_bytes: 1, offload_prompt_only: false, contention: 1.0, disk };
    EngineConfig {
        block_size: 4,
        kv_offload: Some(tier),
        scheduler: SchedulerOptions {
            enable_prefix_caching: true,
            async_scheduling: false,
            ..EngineConfig::new(&Deployment::default(), max_model_len, 1 + max_model_len / 4).scheduler
        },
        ..EngineConfig::new(&Deployment::default(), max_model_len, 1 + max_model_len / 4)
    }
}

const DISK: KvDisk = KvDisk { block_bytes: 1, num_disk_blocks: None };

fn replayed(config: &EngineConfig) -> (Replay, Recorder) {
    let mut seen = Recorder::default();
    // A and B of two blocks each, and A again with a token more.
    let aba = vec![prompt(0, 8, 1, 1), prompt(1000, 8, 3, 2), prompt(2000, 9, 1, 1)];
    let replayed = replay(&Constants, config, &mut Listed::new(aba), &mut [&mut seen]).unwrap();
    (replayed, seen)
}

/// Direction, blocks, earliest start and end in µs of every copy.
fn copies(seen: &Recorder) -> Vec<(&'static str, u32, u64, u64)> {
    let copies = seen.kv.iter().filter_map(|event| match event {
        KvEvent::Transfer(copy) => Some((copy.direction.name(), copy.num_blocks, copy.ready_ns / US, copy.end_ns / US)),
        _ => None,
    });
    copies.collect()
}

/// GPU and host hold what one of the prompts needs. A's store ends at 120 µs, and the engine sees it with its next iteration, when B comes
/// at 1,000: A's blocks are written, and stay on the host until 1,040. B's blocks find room with its second step, are stored from the third
/// one on, and written when B has ended at 1,300. The disk answers A at 2,000 within the same time. Its blocks take the place of B's, the
/// last one first; the read ends at 2,000 + 40 + 2 · 50 µs, the load 2 · 20 later, and the step of the last token takes 100.
#[test]
fn a_prompt_that_gpu_and_host_have_lost_is_read_from_the_disk() {
    let (replayed, seen) = replayed(&engine(12, 2, Some(DISK)));
    let expected = [
        ("gpu_to_cpu", 2, 100, 120),
        ("cpu_to_disk", 2, 1000, 1040),
        ("gpu_to_cpu", 2, 1200, 1220),
        ("cpu_to_disk", 2, 1300, 1340),
        ("disk_to_cpu", 2, 2000, 2140),
        ("cpu_to_gpu", 2, 2140, 2180),
    ];
    assert_eq!(copies(&seen), expected);
    let blocks = seen.kv.iter().filter(|event| matches!(event, KvEvent::Stored(_) | KvEvent::Removed(_)));
    let expected = [
        KvEvent::Stored(vec![0, 1]),
        KvEvent::Removed(vec![0, 1]),
        KvEvent::Stored(vec![2, 3]),
        KvEvent::Removed(vec![3]),
        KvEvent::Removed(vec![2]),
        KvEvent::Stored(vec![4, 5]),
    ];
    assert_eq!(blocks.cloned().collect::<Vec<KvEvent>>(), expected);
    let again = replayed.records[2];
    assert_eq!((again.scheduled_ns, again.first_token_ns), (2180 * US, 2280 * US));
    assert_eq!((again.num_cached_tokens, again.num_loaded_tokens, again.num_disk_tokens), (8, 8, 8));
    // 140 µs for the read, 40 for the load.
    assert_eq!(again.load_ns, 180 * US);
    let counted = replayed.offload.unwrap();
    let disk = counted.disk.unwrap();
    assert_eq!((counted.hit_tokens, disk.hit_tokens, disk.refused_reads, disk.evicted_blocks), (8, 8, 0, 0));
    assert_eq!((disk.writes.count, disk.writes.blocks, disk.writes.bytes, disk.writes.time_ns), (2, 4, 4, 80 * US));
    assert_eq!((disk.reads.count, disk.reads.blocks, disk.reads.bytes, disk.reads.time_ns), (1, 2, 2, 140 * US));
    // Each prompt waits once; the first two for answers that come at once.
    assert_eq!((disk.max_blocks_in_use, disk.waits, disk.wait_ns), (4, 3, 140 * US));
}

#[test]
fn without_a_disk_or_within_its_limit_the_prompt_is_computed() {
    let (without, _) = replayed(&engine(12, 2, None));
    assert_eq!((without.records[2].num_cached_tokens, without.records[2].first_token_ns), (0, 2100 * US));
    assert!(without.offload.unwrap().disk.is_none());
    // B's two blocks take the place of A's on a disk of two.
    let (limited, seen) = replayed(&engine(12, 2, Some(KvDisk { num_disk_blocks: Some(2), ..DISK })));
    assert_eq!((limited.records[2].num_cached_tokens, limited.records[2].first_token_ns), (0, 2100 * US));
    let disk = limited.offload.unwrap().disk.unwrap();
    assert_eq!((disk.evicted_blocks, disk.max_blocks_in_use, disk.reads.count), (2, 2, 0));
    assert_eq!(copies(&seen).len(), 4);
}

/// The prompt has three blocks on the disk: two stored by a request of 8 tokens, and one by a request of 13 that loads the first two. Two
/// others take all of the GPU, and are too long for the host. A host of two blocks then drops one of the three for another, for ever.
#[test]
fn a_host_that_is_too_small_for_a_prompt_ends_with_an_error() {
    let lengths = [(8, 1), (12, 2), (13, 1), (12, 3), (13, 1)];
    let requests = (0..).zip(lengths).map(|(at, (num_tokens, id))| prompt(1000 * at, num_tokens, 3, id)).collect();
    let error = replay(&Constants, &engine(16, 2, Some(DISK)), &mut Listed::new(requests), &mut []).unwrap_err();
    let error = error.to_string();
    assert!(error.contains("too small") && error.contains("cpu_bytes_to_use"), "{error}");
}

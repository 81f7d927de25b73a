//! Files that a replay writes, read back: OTLP of a host's tier by `ingest`, and a bench result by `ingest` and as a load.

use ridgepoint::latency::{HostTimes, KvTransfers, LatencyModel, TransferDirection, TransferLink};
use ridgepoint::{Deployment, Step};
use ridgepoint_lab::ingest::reports::vllm_bench;
use ridgepoint_lab::ingest::{Capture, DirectionLog, TransferFaults, otlp};
use ridgepoint_lab::transfers::{DirectionFit, fit_link};
use ridgepoint_replay::export::{BenchRun, OtlpTrace, TokenTimes, write_vllm_bench};
use ridgepoint_replay::workload::requests::{Format, RequestFile};
use ridgepoint_replay::workload::{FixedList, Segment, WorkloadRequest};
use ridgepoint_replay::{EngineConfig, KvOffload, Metrics, Replay, TransferCounters, replay};

const MS: u64 = 1_000_000;

/// Steps of 5 ms. A store of n blocks takes 100 + 10 n µs, a load 300 + 10 n.
struct Steady;

impl LatencyModel for Steady {
    fn step_time_us(&self, _: &Step<'_>) -> f64 {
        5000.0
    }
    fn host(&self) -> HostTimes {
        HostTimes::NONE
    }
    fn kv_transfer_time_us(&self, direction: TransferDirection, bytes: u64) -> f64 {
        let link = |latency_us| TransferLink { latency_us, bytes_per_s: 1e8 };
        KvTransfers {
            gpu_to_cpu: link(100.0),
            cpu_to_gpu: link(300.0),
            contention: 1.0,
            cpu_to_disk: None,
            disk_to_cpu: None,
        }
        .time_us(direction, bytes)
    }
}

/// A prompt of `num_tokens` tokens, all of them those of text `id`.
fn prompt(arrival_ms: u64, id: u64, num_tokens: u32) -> WorkloadRequest {
    WorkloadRequest {
        content: Some([Segment { id, num_tokens }].into()),
        ..WorkloadRequest::new(arrival_ms * MS, num_tokens, 2)
    }
}

/// What `ingest` reads of a replay's trace, and the replay.
fn exported(prompts: Vec<WorkloadRequest>) -> (Capture, Replay) {
    let deployment = Deployment { block_size: 4, ..Deployment::default() };
    // 20 usable blocks: each prompt takes those of the one before it.
    let tier =
        KvOffload { num_cpu_blocks: 200, block_bytes: 1000, offload_prompt_only: false, contention: 1.0, disk: None };
    let config = EngineConfig { kv_offload: Some(tier), ..EngineConfig::new(&deployment, 80, 21) };
    let mut trace = OtlpTrace::default();
    let replayed = replay(&Steady, &config, &mut FixedList::new(prompts).unwrap(), &mut [&mut trace]).unwrap();
    let (mut file, folder) = (Vec::new(), tempfile::tempdir().unwrap());
    trace.write(&mut file, "llama-3.1-8b", &config, &replayed.records).unwrap();
    let path = folder.path().join("own.json");
    std::fs::write(&path, &file).unwrap();

    (otlp::read(&path).unwrap(), replayed)
}

#[test]
fn rates_of_exported_copies_are_fitted_again() {
    let prompts = (0..120).map(|at| prompt(100 * at, at % 12, 16 + 4 * (at as u32 % 12))).collect();
    let transfers = exported(prompts).0.transfers.unwrap().transfers;
    let fit = fit_link(&transfers).unwrap();
    for (direction, planted_us) in fit.directions.into_iter().zip([100.0, 300.0]) {
        let DirectionFit { latency_us, blocks_per_s } = direction.unwrap();
        assert!((latency_us.value - planted_us).abs() < 2.0, "{latency_us:?}");
        assert!((blocks_per_s.value / 1e5 - 1.0).abs() < 0.02, "{blocks_per_s:?}");
        assert!((blocks_per_s.lower..=blocks_per_s.upper).contains(&1e5), "{blocks_per_s:?}");
    }
}

#[test]
fn transfers_of_a_replay_are_found_again() {
    // More steps than one line of the file has.
    let (capture, replayed) = exported((0..120).map(|at| prompt(100 * at, at % 3, 64)).collect());
    let counted = replayed.offload.unwrap();
    // Each of the three texts is stored once, and loaded by all later prompts.
    assert_eq!((counted.stores.count, counted.loads.count), (3, 117), "{counted:?}");
    let log = capture.transfers.unwrap();
    let of = |of: &TransferCounters| DirectionLog { count: of.count, failed: 0, blocks: of.blocks };
    assert_eq!(log.directions, [of(&counted.stores), of(&counted.loads)]);
    assert_eq!(log.faults, TransferFaults::default());
    for record in &replayed.records[3..] {
        assert_eq!(record.load_ns, 460_000);
        assert!(record.scheduled_ns >= record.queued_ns + record.load_ns, "the wait is before the first scheduling");
    }
    // All 16 blocks of a prompt come back in 300 + 16 · 10 µs; times of day have 0.2 µs.
    for load in log.transfers.iter().filter(|of| of.direction == TransferDirection::CpuToGpu) {
        let load_us = load.noticed_us - load.begun_us;
        assert!((load_us - 460.0).abs() < 1.0, "{load_us}");
    }
}

#[test]
fn a_written_bench_result_is_the_same_load_and_the_same_measurement() {
    let config = EngineConfig::new(&Deployment::default(), 4096, 1000);
    // Sent first at 0, as times of a load that is read count from its first request. The third is too long and is rejected.
    let sent: Vec<WorkloadRequest> = [(0, 100, 3), (7, 2000, 1), (7, 4096, 9), (1250, 31, 40)]
        .map(|(ms, input, output)| WorkloadRequest::new(ms * MS, input, output))
        .into();
    let mut tokens = TokenTimes::default();
    let replayed = replay(&Steady, &config, &mut FixedList::new(sent.clone()).unwrap(), &mut [&mut tokens]).unwrap();
    let run = BenchRun { model_id: "llama-3.1-8b", max_concurrency: Some(8), ..BenchRun::default() };
    let (mut file, folder) = (Vec::new(), tempfile::tempdir().unwrap());
    write_vllm_bench(&mut file, &run, &replayed, &Metrics::of(&replayed), Some(&tokens)).unwrap();

    let load = RequestFile::parse("bench.json", &file, None).unwrap();
    assert_eq!(load.format, Format::VllmBench);
    assert!(load.notes[0].starts_with("1 of 4 requests failed"), "{:?}", load.notes);
    let mut requests = load.workload();
    let read: Vec<WorkloadRequest> = std::iter::from_fn(|| requests.next_request()).collect();
    assert_eq!(read, [&sent[..2], &sent[3..]].concat());

    let path = folder.path().join("bench.json");
    std::fs::write(&path, &file).unwrap();
    let capture = vllm_bench::read(&path).unwrap();
    assert_eq!(capture.dropped_requests.total(), 1);
    let [measured] = &capture.requests[..] else { panic!("{:?}", capture.requests) };
    assert_eq!(measured.run.model.as_deref(), Some("llama-3.1-8b"));
    assert!(capture.notes[0].contains("at most 8 requests in flight"), "{:?}", capture.notes);
    let records = [0, 1, 3].map(|index| (index, &replayed.records[index]));
    for (((row, tokens_of), (index, record)), request) in
        measured.requests.iter().zip(&capture.tokens[0].requests).zip(records).zip(&read)
    {
        let times_ns = [row.arrived_ns, row.first_response_ns, row.departed_ns].map(|time| time.unwrap().get());
        assert_eq!(times_ns, [record.arrival_ns, record.first_token_ns, record.finish_ns]);
        assert_eq!(row.num_prompt_tokens.unwrap().get(), u64::from(request.num_prompt_tokens));
        assert_eq!(row.num_output_tokens.unwrap().get(), u64::from(request.num_output_tokens));
        let at: Vec<u64> = tokens_of.chunks.iter().map(|chunk| chunk.time_ns).collect();
        assert_eq!(at, tokens.of_record(index));
    }
}

//! Small engines, small requests, and the text form of a schedule.

use std::fmt::Write as _;

use ridgepoint::latency::{FixedLatency, LatencyModel};
use ridgepoint_replay::workload::{Segment, Workload, WorkloadRequest};
use ridgepoint_replay::{EngineConfig, EngineRules, Replay, SchedulerOptions, replay};

use crate::common::{Recorder, SeenStep};
use crate::loads::Listed;

/// A replay and what its observer saw.
pub struct Run {
    pub replay: Replay,
    pub seen: Recorder,
}

impl Run {
    /// One line a step: `start..end` in ns, then each request as `name@computed+scheduled`, with `~` where no token is
    /// sampled. Record 0 is A, 1 is B.
    pub fn timeline(&self) -> Vec<String> {
        let line = |step: &SeenStep| {
            let mut line = format!("{}..{}", step.start_ns, step.end_ns);
            for (record, request) in &step.batch {
                let name = char::from(b'A' + u8::try_from(*record).unwrap());
                let part = if request.samples { "" } else { "~" };
                let (computed, scheduled) = (request.num_computed_tokens, request.num_scheduled_tokens);
                write!(line, " {name}@{computed}+{scheduled}{part}").unwrap();
            }
            line
        };
        self.seen.steps.iter().map(line).collect()
    }

    /// When the client of `record` has each of its tokens.
    pub fn tokens_ns(&self, record: u32) -> Vec<u64> {
        self.seen.tokens.iter().filter(|(of, ..)| *of == record).map(|(.., ns)| *ns).collect()
    }

    /// When the host began to schedule each step.
    pub fn scheduled_ns(&self) -> Vec<u64> {
        self.seen.steps.iter().map(|step| step.scheduled_ns).collect()
    }

    /// What each request found in the cache when it was first scheduled.
    pub fn cached_tokens(&self) -> Vec<u32> {
        self.replay.records.iter().map(|record| record.num_cached_tokens).collect()
    }

    /// When each request was over for its client.
    pub fn finish_ns(&self) -> Vec<u64> {
        self.replay.records.iter().map(|record| record.finish_ns).collect()
    }
}

/// A roomy engine: 8 sequences, 64 tokens a step, 64 usable blocks of 4 tokens, everything else as vLLM has it by default.
pub fn engine() -> EngineConfig {
    EngineConfig {
        max_num_seqs: 8,
        max_num_batched_tokens: 64,
        max_model_len: 64,
        block_size: 4,
        state_blocks_per_request: 0,
        window_share: 0.0,
        window_blocks: 0,
        num_gpu_blocks: 65,
        scheduler: SchedulerOptions::default(),
        pipeline_parallel_size: 1,
        rules: EngineRules::Vllm,
        speculation: None,
        kv_offload: None,
    }
}

/// As [`engine`], without a step in flight.
pub fn synchronous() -> EngineConfig {
    EngineConfig { scheduler: SchedulerOptions { async_scheduling: false, ..engine().scheduler }, ..engine() }
}

/// As [`engine`], with `usable` blocks, and a context of at most as many tokens as they hold.
pub fn engine_of(usable: u32) -> EngineConfig {
    EngineConfig { num_gpu_blocks: usable + 1, max_model_len: usable * 4, ..engine() }
}

/// Steps of 10 µs, and a host that takes no time.
pub fn steps_only() -> FixedLatency {
    FixedLatency { step_us: 10.0, ..FixedLatency::default() }
}

/// Steps of 10 µs that take the host 2 µs to schedule.
pub fn steps_and_scheduling() -> FixedLatency {
    FixedLatency { scheduling_us: 2.0, ..steps_only() }
}

/// A request sent at `arrival_us` whose prompt nobody shares.
pub fn request(arrival_us: u64, prompt: u32, output: u32) -> WorkloadRequest {
    WorkloadRequest::new(arrival_us * 1000, prompt, output)
}

/// A request whose prompt begins with the first `shared` tokens of text `id`.
pub fn sharing(arrival_us: u64, prompt: u32, output: u32, id: u64, shared: u32) -> WorkloadRequest {
    WorkloadRequest {
        content: Some([Segment { id, num_tokens: shared }].into()),
        ..request(arrival_us, prompt, output)
    }
}

/// Replays `workload`.
pub fn run_workload(latency: &impl LatencyModel, config: &EngineConfig, workload: &mut dyn Workload) -> Run {
    let mut seen = Recorder::default();
    let replay = replay(latency, config, workload, &mut [&mut seen]).unwrap();
    Run { replay, seen }
}

/// Replays requests with given times.
pub fn run(latency: &impl LatencyModel, config: &EngineConfig, requests: Vec<WorkloadRequest>) -> Run {
    run_workload(latency, config, &mut Listed::new(requests))
}

/// 3 µs to the engine, 2 µs of host per step, steps of 10 µs, 1 µs back to the client.
pub fn all_delays() -> FixedLatency {
    FixedLatency { queueing_us: 3.0, output_token_us: 1.0, ..steps_and_scheduling() }
}

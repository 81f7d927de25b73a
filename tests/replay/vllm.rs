//! The replay against vLLM's own scheduler: 0.16.0's in `tests/fixtures/vllm_schedules/`, and 0.19.0's with its offloading connector in
//! `tests/fixtures/vllm_offload/`. They hold random workloads on small engines, the steps that vLLM's classes made of them, and the
//! scripts that wrote them.

#[allow(dead_code)]
use crate::common;

use std::io::{BufRead, BufReader};

use common::{Listed, Recorder};
use ridgepoint::Request;
use ridgepoint::latency::{BlackBox, LatencyModel, TransferDirection};
use ridgepoint::replay::{EngineConfig, KvEvent, KvOffload, replay};
use ridgepoint::workload::{Segment, WorkloadRequest};
use serde::Deserialize;

/// An engine and what it is sent, and what vLLM made of it.
#[derive(Debug, Deserialize)]
struct Case {
    config: EngineConfig,
    latency: Latency,
    requests: Vec<Sent>,
    steps: Vec<Step>,
    /// By request, when its client had each token.
    tokens_ns: Vec<Vec<u64>>,
    /// By request.
    preemptions: Vec<u32>,
    /// The host's tier, its copies in the order of submission, and the events of its blocks.
    tier: Option<Tier>,
    #[serde(default)]
    transfers: Vec<Transfer>,
    #[serde(default)]
    events: Vec<(u8, Vec<u64>)>,
}

/// The host's blocks, and of each direction the latency and the time of a block in µs.
#[derive(Debug, Clone, Copy, Deserialize)]
struct Tier {
    num_cpu_blocks: u32,
    gpu_to_cpu: (f64, f64),
    cpu_to_gpu: (f64, f64),
    contention: f64,
}

/// Direction (0 to the host, 1 to the GPU), number of blocks, earliest start in ns, end in ns.
#[derive(Debug, PartialEq, Eq, Deserialize)]
struct Transfer(u8, u32, u64, u64);

/// A straight line per step, and constants for the host.
#[derive(Debug, Clone, Copy, Deserialize)]
struct Latency {
    #[serde(skip)]
    tier: Option<Tier>,
    beta0_us: f64,
    beta1_us: f64,
    beta2_us: f64,
    queueing_us: f64,
    output_token_us: f64,
    scheduling_us: f64,
    preemption_us: f64,
}

impl LatencyModel for Latency {
    fn step_time_us(&self, requests: &[Request]) -> f64 {
        let Latency { beta0_us, beta1_us, beta2_us, .. } = *self;
        BlackBox { beta0_us, beta1_us, beta2_us, ..BlackBox::default() }.step_time_us(requests)
    }
    fn queueing_time_us(&self, _: &Request) -> f64 {
        self.queueing_us
    }
    fn output_token_processing_time_us(&self) -> f64 {
        self.output_token_us
    }
    fn scheduling_processing_time_us(&self) -> f64 {
        self.scheduling_us
    }
    fn preemption_processing_time_us(&self) -> f64 {
        self.preemption_us
    }
    /// A block has one byte.
    fn kv_transfer_time_us(&self, direction: TransferDirection, bytes: u64) -> f64 {
        let (latency_us, block_us) = self.tier.map_or((0.0, 0.0), |tier| match direction {
            TransferDirection::GpuToCpu => tier.gpu_to_cpu,
            TransferDirection::CpuToGpu => tier.cpu_to_gpu,
            TransferDirection::CpuToDisk | TransferDirection::DiskToCpu => (0.0, 0.0),
        });
        latency_us + bytes as f64 * block_us
    }
}

/// Arrival in ns, prompt and output tokens, priority, segments of the prompt: id and tokens.
#[derive(Debug, Deserialize)]
struct Sent(u64, u32, u32, i32, Vec<(u64, u32)>);

impl Sent {
    fn request(&self) -> WorkloadRequest {
        let Sent(arrival_ns, num_prompt_tokens, num_output_tokens, priority, ref content) = *self;
        let mut left = num_prompt_tokens;
        let cut = |&(id, num_tokens): &(u64, u32)| {
            let num_tokens = num_tokens.min(left);
            left -= num_tokens;
            Segment { id, num_tokens }
        };
        let segments: Vec<Segment> = content.iter().map(cut).collect();
        WorkloadRequest {
            priority,
            content: (!segments.is_empty()).then(|| segments.into()),
            ..WorkloadRequest::new(arrival_ns, num_prompt_tokens, num_output_tokens)
        }
    }
}

/// When it was scheduled, started and ended, in ns; requests that ran and waited then; blocks in use; preemptions; and of each
/// request its number, computed tokens, scheduled tokens and whether one is sampled.
#[derive(Debug, PartialEq, Eq, Deserialize)]
struct Step(u64, u64, u64, u32, u32, u32, u32, Vec<(u32, u32, u32, bool)>);

impl From<&common::Step> for Step {
    fn from(step: &common::Step) -> Self {
        let share = |(record, request): &(u32, Request)| {
            (*record, request.num_computed_tokens, request.num_scheduled_tokens, request.samples)
        };
        Step(
            step.scheduled_ns,
            step.start_ns,
            step.end_ns,
            step.num_running,
            step.num_waiting,
            step.blocks_in_use,
            step.num_preempted,
            step.batch.iter().map(share).collect(),
        )
    }
}

/// What the replay makes of a case otherwise than vLLM; `None` where it is the same.
fn difference(case: &Case) -> Option<String> {
    let mut seen = Recorder::default();
    let requests = case.requests.iter().map(Sent::request).collect();
    let latency = Latency { tier: case.tier, ..case.latency };
    let kv_offload = case.tier.map(|tier| KvOffload {
        num_cpu_blocks: tier.num_cpu_blocks,
        block_bytes: 1,
        offload_prompt_only: false,
        contention: tier.contention,
        disk: None,
    });
    let config = EngineConfig { kv_offload, ..case.config.clone() };
    let replayed = match replay(&latency, &config, &mut Listed::new(requests), &mut seen) {
        Ok(replayed) => replayed,
        Err(error) => return Some(error.to_string()),
    };
    let steps: Vec<Step> = seen.steps.iter().map(Step::from).collect();
    for at in 0..steps.len().max(case.steps.len()) {
        if steps.get(at) != case.steps.get(at) {
            return Some(format!("step {at} is {:?}, vLLM's {:?}", steps.get(at), case.steps.get(at)));
        }
    }
    for (index, record) in replayed.records.iter().enumerate() {
        let of_record = seen.tokens.iter().filter(|(of, ..)| *of as usize == index);
        let tokens_ns: Vec<u64> = of_record.map(|(.., ns)| *ns).collect();
        let found = (tokens_ns, record.num_preemptions);
        let wanted = (case.tokens_ns[index].clone(), case.preemptions[index]);
        if found != wanted {
            return Some(format!("tokens and preemptions of request {index} are {found:?}, vLLM's {wanted:?}"));
        }
    }
    difference_of_tier(case, &seen.kv)
}

/// The same of the host's tier.
fn difference_of_tier(case: &Case, seen: &[KvEvent]) -> Option<String> {
    let transfer = |event: &KvEvent| match event {
        KvEvent::Transfer(copy) => {
            let direction = u8::from(copy.direction == TransferDirection::CpuToGpu);
            Some((copy.index, Transfer(direction, copy.num_blocks, copy.ready_ns, copy.end_ns)))
        }
        _ => None,
    };
    let mut transfers: Vec<(u64, Transfer)> = seen.iter().filter_map(transfer).collect();
    transfers.sort_by_key(|(index, _)| *index);
    let transfers: Vec<Transfer> = transfers.into_iter().map(|(_, transfer)| transfer).collect();
    if transfers != case.transfers {
        return Some(format!("transfers are {transfers:?}, vLLM's {:?}", case.transfers));
    }
    let block = |event: &KvEvent| match event {
        KvEvent::Stored(blocks) => Some((0, blocks.clone())),
        KvEvent::Removed(blocks) => Some((1, blocks.clone())),
        KvEvent::Transfer(_) => None,
    };
    let events: Vec<(u8, Vec<u64>)> = seen.iter().filter_map(block).collect();
    (events != case.events).then(|| format!("events are {events:?}, vLLM's {:?}", case.events))
}

/// `RIDGEPOINT_SCHEDULES` names another file of the kind, with more cases than are worth committing.
#[test]
fn every_step_is_the_one_that_vllm_schedules() {
    check("RIDGEPOINT_SCHEDULES", "tests/fixtures/vllm_schedules/cases.jsonl", 0);
}

/// Steps, copies between GPU and host, and events of the host's blocks. `RIDGEPOINT_OFFLOAD_SCHEDULES` names another file.
#[test]
fn every_transfer_is_the_one_that_vllm_makes() {
    check("RIDGEPOINT_OFFLOAD_SCHEDULES", "tests/fixtures/vllm_offload/cases.jsonl", 50);
}

fn check(variable: &str, committed: &str, fewest_loads: usize) {
    let path = std::env::var(variable).unwrap_or_else(|_| committed.into());
    let lines = BufReader::new(std::fs::File::open(&path).unwrap()).lines();
    let (mut steps, mut preemptions, mut loads, mut wrong) = (0, 0, 0, Vec::new());
    for (number, line) in (1..).zip(lines) {
        let case: Case = serde_json::from_str(&line.unwrap()).unwrap();
        steps += case.steps.len();
        preemptions += case.preemptions.iter().sum::<u32>();
        loads += case.transfers.iter().filter(|Transfer(direction, ..)| *direction == 1).count();
        wrong.extend(difference(&case).map(|difference| format!("line {number}, {:?}: {difference}", case.config)));
    }
    println!("{steps} steps, {preemptions} preemptions, {loads} loads");
    assert!(steps > 1000 && preemptions > 50 && loads >= fewest_loads, "{path} exercises too little");
    assert!(wrong.is_empty(), "{} cases differ, the first at {}", wrong.len(), wrong[0]);
}

//! The replay against vLLM 0.16.0's own scheduler. `tests/fixtures/vllm_schedules/` holds random workloads on small engines, the steps
//! that vLLM's classes made of them, and the script that wrote them.

#[allow(dead_code)]
use crate::common;

use std::io::{BufRead, BufReader};

use common::{Listed, Recorder};
use ridgepoint::Request;
use ridgepoint::latency::{BlackBox, LatencyModel};
use ridgepoint::replay::{EngineConfig, replay};
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
}

/// A straight line per step, and constants for the host.
#[derive(Debug, Clone, Copy, Deserialize)]
struct Latency {
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
}

/// Arrival in ns, prompt and output tokens, priority, segments of the prompt: id and tokens.
#[derive(Debug, Deserialize)]
struct Sent(u64, u32, u32, i32, Vec<(u64, u32)>);

impl Sent {
    fn request(&self) -> WorkloadRequest {
        let Sent(arrival_ns, num_prompt_tokens, num_output_tokens, priority, ref content) = *self;
        let segments: Vec<Segment> = content.iter().map(|&(id, num_tokens)| Segment { id, num_tokens }).collect();
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
    let replayed = replay(&case.latency, &case.config, &mut Listed::new(requests), &mut seen).unwrap();
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
    None
}

/// `RIDGEPOINT_SCHEDULES` names another file of the kind, with more cases than are worth committing.
#[test]
fn every_step_is_the_one_that_vllm_schedules() {
    let committed = "tests/fixtures/vllm_schedules/cases.jsonl";
    let path = std::env::var("RIDGEPOINT_SCHEDULES").unwrap_or_else(|_| committed.into());
    let lines = BufReader::new(std::fs::File::open(&path).unwrap()).lines();
    let (mut steps, mut preemptions, mut wrong) = (0, 0, Vec::new());
    for (number, line) in (1..).zip(lines) {
        let case: Case = serde_json::from_str(&line.unwrap()).unwrap();
        steps += case.steps.len();
        preemptions += case.preemptions.iter().sum::<u32>();
        wrong.extend(difference(&case).map(|difference| format!("line {number}, {:?}: {difference}", case.config)));
    }
    println!("{steps} steps, {preemptions} preemptions");
    assert!(steps > 1000 && preemptions > 50, "{path} exercises too little");
    assert!(wrong.is_empty(), "{} cases differ, the first at {}", wrong.len(), wrong[0]);
}

//! The replay against vLLM's own scheduler: 0.16.0's in `tests/fixtures/vllm_schedules/`, and 0.19.0's with its offloading connector in
//! `tests/fixtures/vllm_offload/`. They hold random workloads on small engines, the steps that vLLM's classes made of them, and the
//! scripts that wrote them. `server.json.gz` is what a running server of vLLM 0.19.0 made of conversations.

#[allow(dead_code)]
use crate::common;
use crate::loads::Listed;

use std::cell::Cell;
use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::sync::atomic::{AtomicUsize, Ordering};

use common::Recorder;
use flate2::read::GzDecoder;
use ridgepoint::latency::{BlackBox, HostTimes, LatencyModel, TransferDirection};
use ridgepoint::{Request, Step};
use ridgepoint_replay::workload::{Segment, Workload, WorkloadRequest};
use ridgepoint_replay::{EngineConfig, Event, Events, KvEvent, KvOffload, Observer, replay};
use serde::Deserialize;

/// An engine and what it is sent, and what vLLM made of it.
#[derive(Debug, Deserialize)]
struct Case {
    config: EngineConfig,
    latency: Latency,
    requests: Vec<Sent>,
    steps: Vec<Scheduled>,
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
    /// Of a running server, the time of each copy by direction. Contents of its requests reach into the tokens that they generate.
    durations_us: Option<[Vec<f64>; 2]>,
    /// Of a running server, the request of each copy.
    copies_of: Option<Vec<u32>>,
    /// Of a running server, requests that came after so many copies and events were reported, at the time at which the last one was.
    #[serde(default)]
    behind: HashMap<usize, usize>,
    /// Of a running server, what it counted.
    lookups: Option<Lookups>,
    /// Whether the server makes no progress in the end.
    #[serde(default)]
    is_stuck: bool,
}

/// Tokens that a server looked up on the host, and those that the host held. It counts preempted requests apart, and its metrics
/// `vllm:external_prefix_cache_queries` and `_hits` leave these out.
#[derive(Debug, Clone, Copy, Deserialize)]
struct Lookups {
    queries: u64,
    hits: u64,
    preempted_queries: u64,
    preempted_hits: u64,
}

/// The host's blocks, and of each direction the latency and the time of a block in µs.
#[derive(Debug, Clone, Copy, Deserialize)]
struct Tier {
    num_cpu_blocks: u32,
    gpu_to_cpu: (f64, f64),
    cpu_to_gpu: (f64, f64),
    contention: f64,
    /// A recorded server has no such argument.
    #[serde(default)]
    offload_prompt_only: bool,
}

/// Direction (0 to the host, 1 to the GPU), number of blocks, earliest start in ns, end in ns.
#[derive(Debug, PartialEq, Eq, Deserialize)]
struct Transfer(u8, u32, u64, u64);

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

/// The delays of a case.
#[derive(Debug)]
struct Delays<'a> {
    line: Latency,
    tier: Option<Tier>,
    durations_us: Option<&'a [Vec<f64>; 2]>,
    num_copies: [AtomicUsize; 2],
}

impl LatencyModel for Delays<'_> {
    fn step_time_us(&self, step: &Step<'_>) -> f64 {
        let Latency { beta0_us, beta1_us, beta2_us, .. } = self.line;
        BlackBox { beta0_us, beta1_us, beta2_us, ..BlackBox::default() }.step_time_us(step)
    }
    fn host(&self) -> HostTimes {
        let Latency { queueing_us, output_token_us, scheduling_us, preemption_us, .. } = self.line;
        HostTimes { queueing_us, output_token_us, scheduling_us, preemption_us, ..HostTimes::NONE }
    }
    /// A block has one byte. Copies are timed in the order in which they are submitted.
    fn kv_transfer_time_us(&self, direction: TransferDirection, bytes: u64) -> f64 {
        if let Some(durations_us) = self.durations_us {
            let way = usize::from(direction == TransferDirection::CpuToGpu);
            let copy = self.num_copies[way].fetch_add(1, Ordering::Relaxed);
            return durations_us[way].get(copy).copied().unwrap_or(0.0);
        }
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
    fn request(&self, is_known: bool) -> WorkloadRequest {
        let Sent(arrival_ns, num_prompt_tokens, num_output_tokens, priority, ref content) = *self;
        let mut left = num_prompt_tokens + if is_known { num_output_tokens } else { 0 };
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

/// Requests with given times, some of which also wait until so many copies and events were reported.
struct Behind<'a> {
    listed: Listed,
    num_sent: usize,
    behind: &'a HashMap<usize, usize>,
    told: &'a Cell<usize>,
}

impl Workload for Behind<'_> {
    fn next_arrival_ns(&self) -> Option<u64> {
        let waits_for = self.behind.get(&self.num_sent).copied().unwrap_or(0);
        self.listed.next_arrival_ns().filter(|_| waits_for <= self.told.get())
    }
    fn next_request(&mut self) -> Option<WorkloadRequest> {
        self.num_sent += 1;
        self.listed.next_request()
    }
    fn finished(&mut self, _: u64, _: u32, _: u32) {}
}

/// Counts the ends of copies and the events of blocks that are reported.
struct EndCounter<'a>(&'a Cell<usize>);

impl Observer for EndCounter<'_> {
    fn wants(&self) -> Events {
        Events::KV
    }
    fn on(&mut self, event: &Event<'_>) {
        self.0.set(self.0.get() + usize::from(!matches!(event, Event::Kv(KvEvent::Submitted(_)))));
    }
}

/// When it was scheduled, started and ended, in ns; requests that ran and waited then; blocks in use; preemptions; and of each
/// request its number, computed tokens, scheduled tokens and whether one is sampled.
#[derive(Debug, PartialEq, Eq, Deserialize)]
struct Scheduled(u64, u64, u64, u32, u32, u32, u32, Vec<(u32, u32, u32, bool)>);

impl From<&common::SeenStep> for Scheduled {
    fn from(step: &common::SeenStep) -> Self {
        let share = |(record, request): &(u32, Request)| {
            (*record, request.num_computed_tokens, request.num_scheduled_tokens, request.samples)
        };
        Scheduled(
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
    let told = Cell::new(0);
    let mut seen = Recorder::default();
    let requests = case.requests.iter().map(|sent| sent.request(case.durations_us.is_some())).collect();
    let listed = Listed::new(requests);
    let mut workload = Behind { listed, num_sent: 0, behind: &case.behind, told: &told };
    let latency = Delays {
        line: case.latency,
        tier: case.tier,
        durations_us: case.durations_us.as_ref(),
        num_copies: Default::default(),
    };
    let kv_offload = case.tier.map(|tier| KvOffload {
        num_cpu_blocks: tier.num_cpu_blocks,
        block_bytes: 1,
        offload_prompt_only: tier.offload_prompt_only,
        contention: tier.contention,
        disk: None,
    });
    let config = EngineConfig { kv_offload, ..case.config.clone() };
    let replayed = replay(&latency, &config, &mut workload, &mut [&mut seen, &mut EndCounter(&told)]);
    let steps: Vec<Scheduled> = seen.steps.iter().map(Scheduled::from).collect();
    for at in 0..steps.len().max(case.steps.len()) {
        if steps.get(at) != case.steps.get(at) {
            return Some(format!("step {at} is {:?}, vLLM's {:?}", steps.get(at), case.steps.get(at)));
        }
    }
    if let Some(difference) = difference_of_tier(case, &seen.kv) {
        return Some(difference);
    }
    let replayed = match replayed {
        Err(error) if case.is_stuck && error.to_string().contains("makes no progress") => return None,
        Err(error) => return Some(error.to_string()),
        Ok(_) if case.is_stuck => return Some("the replay goes on where vLLM is stuck".into()),
        Ok(replayed) => replayed,
    };
    for (index, record) in replayed.records.iter().enumerate() {
        let of_record = seen.tokens.iter().filter(|(of, ..)| *of as usize == index);
        let tokens_ns: Vec<u64> = of_record.map(|(.., ns)| *ns).collect();
        let found = (tokens_ns, record.num_preemptions);
        let wanted = (case.tokens_ns[index].clone(), case.preemptions[index]);
        if found != wanted {
            return Some(format!("tokens and preemptions of request {index} are {found:?}, vLLM's {wanted:?}"));
        }
    }
    let (counted, of_server) = (replayed.offload?, case.lookups?);
    let found =
        [counted.asked_tokens, counted.hit_tokens, counted.preempted_asked_tokens, counted.preempted_hit_tokens];
    let told = [of_server.queries, of_server.hits, of_server.preempted_queries, of_server.preempted_hits];
    println!("{found:?} tokens were looked up and found on the host, vLLM's {told:?}");
    let is_near = |(found, told): (&u64, &u64)| found.abs_diff(*told) * 100 <= *told;
    let are_near = found.iter().zip(&told).all(is_near);
    (!are_near).then(|| format!("{found:?} tokens were looked up and found on the host, vLLM's {told:?}"))
}

/// What the replay does with the host's tier otherwise than vLLM.
fn difference_of_tier(case: &Case, seen: &[KvEvent]) -> Option<String> {
    let transfer = |event: &KvEvent| match event {
        KvEvent::Transfer(copy) => {
            let direction = u8::from(copy.direction == TransferDirection::CpuToGpu);
            Some((copy.index, Transfer(direction, copy.num_blocks, copy.ready_ns, copy.end_ns), copy.record))
        }
        _ => None,
    };
    let mut transfers: Vec<(u64, Transfer, u32)> = seen.iter().filter_map(transfer).collect();
    transfers.sort_by_key(|(index, ..)| *index);
    let (transfers, copies_of): (Vec<Transfer>, Vec<u32>) =
        transfers.into_iter().map(|(_, transfer, record)| (transfer, record)).unzip();
    if transfers != case.transfers {
        return Some(format!("transfers are {transfers:?}, vLLM's {:?}", case.transfers));
    }
    if let Some(of_server) = case.copies_of.as_ref().filter(|of_server| **of_server != copies_of) {
        return Some(format!("copies are of requests {copies_of:?}, vLLM's of {of_server:?}"));
    }
    let block = |event: &KvEvent| match event {
        KvEvent::Stored(blocks) => Some((0, blocks.clone())),
        KvEvent::Removed(blocks) => Some((1, blocks.clone())),
        KvEvent::Submitted(_) | KvEvent::Transfer(_) => None,
    };
    let events: Vec<(u8, Vec<u64>)> = seen.iter().filter_map(block).collect();
    (events != case.events).then(|| format!("events are {events:?}, vLLM's {:?}", case.events))
}

/// `RIDGEPOINT_SCHEDULES` names another file of the kind, with more cases than are worth committing.
#[test]
fn every_step_is_the_one_that_vllm_schedules() {
    check("RIDGEPOINT_SCHEDULES", "tests/fixtures/vllm_schedules/cases.jsonl.gz", [1000, 50, 0]);
}

/// Steps, copies between GPU and host, and events of the host's blocks. `RIDGEPOINT_OFFLOAD_SCHEDULES` names another file.
#[test]
fn every_transfer_is_the_one_that_vllm_makes() {
    check("RIDGEPOINT_OFFLOAD_SCHEDULES", "tests/fixtures/vllm_offload/cases.jsonl.gz", [1000, 50, 50]);
}

/// The stores equal those of vLLM 0.23.0's connector, with and without `offload_prompt_only`, for requests that do not overlap.
/// `RIDGEPOINT_OFFLOAD_PROMPTS` names another file.
#[test]
fn prompts_alone_are_stored_as_vllm_does() {
    check("RIDGEPOINT_OFFLOAD_PROMPTS", "tests/fixtures/vllm_offload/prompts.jsonl.gz", [400, 0, 10]);
}

/// The whole run of a server of vLLM 0.19.0 on a CPU, and one of a server that makes no progress after 1,034 steps. `RIDGEPOINT_OFFLOAD_SERVER`
/// names another run.
#[test]
fn a_running_server_schedules_the_same_steps_and_copies() {
    let committed = ["server", "server_stuck"].map(|name| format!("tests/fixtures/vllm_offload/{name}.json.gz"));
    let paths = std::env::var("RIDGEPOINT_OFFLOAD_SERVER").map_or(committed.to_vec(), |path| vec![path]);
    for path in paths {
        let case = read_run(&path);
        println!("{path}: {} steps, {} copies, {} events", case.steps.len(), case.transfers.len(), case.events.len());
        assert_eq!(difference(&case), None, "{path}");
    }
}

/// The comparison notices one token, block, request or microsecond in a whole run.
#[test]
fn a_change_of_a_running_server_is_noticed() {
    type Change = fn(&mut Case);
    let changes: [(&str, Change); 6] = [
        ("step 1000 is", |case| case.steps[1000].7[0].2 += 1),
        ("transfers are", |case| case.transfers[500].1 += 1),
        ("copies are of", |case| case.copies_of.as_mut().unwrap()[500] += 1),
        ("events are", |case| case.events[500].1[0] += 1),
        ("tokens and preemptions", |case| case.preemptions[50] += 1),
        ("step", |case| case.durations_us.as_mut().unwrap()[1][10] += 100.0),
    ];
    for (start, change) in changes {
        let mut case = read_run("tests/fixtures/vllm_offload/server.json.gz");
        change(&mut case);
        let found = difference(&case).unwrap_or_default();
        assert!(found.starts_with(start), "{start}: {found:.200}");
    }
}

fn read_run(path: &str) -> Case {
    serde_json::from_reader(GzDecoder::new(File::open(path).unwrap())).unwrap()
}

/// `fewest` are the steps, preemptions and loads that the cases have at least.
fn check(variable: &str, committed: &str, fewest: [usize; 3]) {
    let path = std::env::var(variable).unwrap_or_else(|_| committed.into());
    let file = File::open(&path).unwrap();
    let text: Box<dyn Read> = if path.ends_with(".gz") { Box::new(GzDecoder::new(file)) } else { Box::new(file) };
    let lines = BufReader::new(text).lines();
    let (mut steps, mut preemptions, mut loads, mut wrong) = (0, 0, 0, Vec::new());
    for (number, line) in (1..).zip(lines) {
        let case: Case = serde_json::from_str(&line.unwrap()).unwrap();
        steps += case.steps.len();
        preemptions += case.preemptions.iter().sum::<u32>() as usize;
        loads += case.transfers.iter().filter(|Transfer(direction, ..)| *direction == 1).count();
        wrong.extend(difference(&case).map(|difference| format!("line {number}, {:?}: {difference}", case.config)));
    }
    println!("{steps} steps, {preemptions} preemptions, {loads} loads");
    let is_enough = [steps, preemptions, loads].iter().zip(fewest).all(|(has, least)| *has >= least);
    assert!(is_enough, "{path} exercises too little");
    assert!(wrong.is_empty(), "{} cases differ, the first at {}", wrong.len(), wrong[0]);
}

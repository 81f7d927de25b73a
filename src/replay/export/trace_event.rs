//! Events of Chrome's trace-event JSON.
//!
//! # Source
//! "Trace Event Format", the Chromium project: phases `X` complete, `C` counter, `b` and `e` nestable asynchronous, `M` metadata;
//! `ts` and `dur` are µs.

use serde::Serialize;

use crate::replay::StepEvent;
use crate::units::ns_to_us;

/// One event. Fields that are `None` are omitted.
#[derive(Debug, Serialize)]
pub struct Event<A: Serialize> {
    name: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    cat: Option<&'static str>,
    ph: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ts: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dur: Option<f64>,
    pid: u32,
    tid: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    args: Option<A>,
}

impl Event<()> {
    /// Creates an event of phase `ph` at `ns`.
    pub fn new(name: &'static str, ph: &'static str, ns: u64, pid: u32, tid: u32) -> Self {
        Event { name, cat: None, ph, id: None, ts: Some(ns_to_us(ns)), dur: None, pid, tid, args: None }
    }

    /// Adds arguments.
    pub fn with<A: Serialize>(self, args: A) -> Event<A> {
        let Event { name, cat, ph, id, ts, dur, pid, tid, .. } = self;
        Event { name, cat, ph, id, ts, dur, pid, tid, args: Some(args) }
    }

    /// Adds the category and the id that join asynchronous events.
    pub fn identified(self, cat: &'static str, id: usize) -> Self {
        Event { cat: Some(cat), id: Some(id), ..self }
    }

    /// Adds a duration.
    pub fn lasting_to(self, start_ns: u64, end_ns: u64) -> Self {
        Event { dur: Some(ns_to_us(end_ns.saturating_sub(start_ns))), ..self }
    }
}

/// Arguments of metadata events.
#[derive(Debug, Serialize)]
pub struct Named {
    name: String,
}

/// Names a process.
pub fn process_name(pid: u32, name: &str) -> Event<Named> {
    Event { ts: None, ..Event::new("process_name", "M", 0, pid, 0).with(Named { name: name.to_owned() }) }
}

/// Names a track of a process.
pub fn thread_name(pid: u32, tid: u32, name: String) -> Event<Named> {
    Event { ts: None, ..Event::new("thread_name", "M", 0, pid, tid).with(Named { name }) }
}

/// Lengths of the queues.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Queues {
    pub running: u32,
    pub waiting: u32,
}

/// KV blocks in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Blocks {
    pub in_use: u32,
}

/// Contents of a step.
#[derive(Debug, Serialize)]
pub struct StepArgs {
    pub step: u64,
    pub tokens: u64,
    pub decodes: u64,
    pub prefills: u64,
    pub prefill_tokens: u64,
    pub running: u32,
    pub waiting: u32,
    pub blocks_in_use: u32,
    pub preempted: u32,
    /// Time from the scheduling of the step to its start on the GPUs.
    pub ahead_us: f64,
}

impl StepArgs {
    pub fn of(step: &StepEvent<'_>) -> Self {
        let tokens = step.batch.iter().map(|request| u64::from(request.num_scheduled_tokens)).sum();
        let decodes = step.batch.iter().filter(|request| request.is_decode()).count() as u64;
        StepArgs {
            step: step.index,
            tokens,
            decodes,
            prefills: step.batch.len() as u64 - decodes,
            prefill_tokens: tokens - decodes,
            running: step.num_running,
            waiting: step.num_waiting,
            blocks_in_use: step.blocks_in_use,
            preempted: step.num_preempted,
            ahead_us: ns_to_us(step.start_ns.saturating_sub(step.scheduled_ns)),
        }
    }
}

/// Counts of a request.
#[derive(Debug, Serialize)]
pub struct RequestArgs {
    pub request: usize,
    pub stage: u32,
    pub outcome: &'static str,
    pub prompt_tokens: u32,
    pub output_tokens: u32,
    pub cached_tokens: u32,
    pub preemptions: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttft_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub e2e_ms: Option<f64>,
}

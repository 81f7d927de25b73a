//! An observer for tests of replays.

use ridgepoint::Request;
use ridgepoint_replay::{Event, Events, KvEvent, Observer, StepEvent};

/// A step as the replay reported it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeenStep {
    pub index: u64,
    pub scheduled_ns: u64,
    pub start_ns: u64,
    pub end_ns: u64,
    /// Record, and what was scheduled of it.
    pub batch: Vec<(u32, Request)>,
    pub num_running: u32,
    pub num_waiting: u32,
    pub blocks_in_use: u32,
    pub num_preempted: u32,
}

/// Everything that an observer gets.
#[derive(Debug, Default)]
pub struct Recorder {
    pub steps: Vec<SeenStep>,
    /// Record, token, ns; in the order of the calls.
    pub tokens: Vec<(u32, u32, u64)>,
    /// Events of the host's tier.
    pub kv: Vec<KvEvent>,
}

impl Recorder {
    fn add(&mut self, event: &StepEvent<'_>) {
        let requests = event.step.requests;
        assert_eq!(requests.len(), event.records.len());
        self.steps.push(SeenStep {
            index: event.index,
            scheduled_ns: event.scheduled_ns,
            start_ns: event.start_ns,
            end_ns: event.end_ns,
            batch: event.records.iter().copied().zip(requests.iter().copied()).collect(),
            num_running: event.num_running,
            num_waiting: event.num_waiting,
            blocks_in_use: event.blocks_in_use,
            num_preempted: event.preempted.len() as u32,
        });
    }
}

impl Observer for Recorder {
    fn wants(&self) -> Events {
        Events::STEPS | Events::TOKENS | Events::KV
    }
    fn on(&mut self, event: &Event<'_>) {
        match *event {
            Event::Step(ref step) => self.add(step),
            Event::Token { record, token, now_ns } => self.tokens.push((record, token, now_ns)),
            Event::Kv(event) => self.kv.push(event.clone()),
            _ => {}
        }
    }
}

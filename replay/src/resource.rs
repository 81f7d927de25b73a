//! The resource behind a latency: what the steps' time goes to, and what requests wait for. Uses `observe`, `record`, `config`.

use ridgepoint::{Bound, StepModel};
use serde::{Deserialize, Serialize};

use super::config::EngineConfig;
use super::observe::{Event, Events, Observer};
use super::record::{Outcome, Replay, RequestRecord};

/// One in this many steps is looked at.
const SAMPLED: u64 = 64;
/// KV blocks are what requests wait for if at least this share of them is held.
const FULL: f64 = 0.95;
/// The slowest requests, by their time to first token, that say what their wait is for: one in so many.
const SLOWEST: usize = 10;

/// What a latency would fall with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum Resource {
    /// The matrix units, and the power that they may draw.
    Compute,
    /// Device memory bandwidth.
    Bandwidth,
    /// The links between GPUs.
    Links,
    /// The host's overheads of each step.
    Host,
    /// Kernels that are too short to fill the GPU.
    Latency,
    /// KV blocks: requests wait until others free theirs.
    KvBlocks,
    /// Places in the running queue: requests wait as `max_num_seqs` others run.
    Queue,
}

/// Collects what a replay's steps spend their time on, and what is full while requests wait.
#[derive(Debug)]
pub struct ResourceSampler<'a> {
    steps: &'a StepModel,
    num_gpu_blocks: f64,
    max_num_seqs: u32,
    /// Time of the sampled steps by resource, µs.
    times_us: Vec<(Resource, f64)>,
    /// Sampled steps with waiting requests, those of them without free blocks, and those without free places.
    waiting: [u64; 3],
}

impl<'a> ResourceSampler<'a> {
    /// Samples steps that `steps` predicts, of an engine.
    pub fn new(steps: &'a StepModel, of: &EngineConfig) -> Self {
        ResourceSampler {
            steps,
            num_gpu_blocks: f64::from(of.num_gpu_blocks),
            max_num_seqs: of.max_num_seqs,
            times_us: Vec::new(),
            waiting: [0; 3],
        }
    }

    /// Returns the resource behind the time to first token of the slowest requests, or behind their wait if that is most of it; `None`
    /// without steps.
    pub fn behind_ttft(&self, of: &Replay) -> Option<Resource> {
        let mut finished: Vec<&RequestRecord> =
            of.records.iter().filter(|record| record.outcome == Outcome::Finished).collect();
        finished.sort_by(|one, other| other.ttft_ms().total_cmp(&one.ttft_ms()));
        finished.truncate(finished.len().div_ceil(SLOWEST));
        let sum = |of: fn(&RequestRecord) -> f64| finished.iter().map(|record| of(record)).sum::<f64>();
        let waits = 2.0 * sum(RequestRecord::queue_wait_ms) > sum(RequestRecord::ttft_ms);
        if waits { self.behind_waiting() } else { self.behind_steps() }
    }

    /// Returns what is full while requests wait, or else what their steps spend most of their time on; `None` without steps.
    pub fn behind_waiting(&self) -> Option<Resource> {
        let [steps, without_blocks, without_places] = self.waiting;
        match steps {
            1.. if 2 * without_blocks > steps => Some(Resource::KvBlocks),
            1.. if 2 * without_places > steps => Some(Resource::Queue),
            _ => self.behind_steps(),
        }
    }

    /// Returns what the steps spend most of their time on; `None` without steps.
    pub fn behind_steps(&self) -> Option<Resource> {
        let most = self.times_us.iter().max_by(|one, other| one.1.total_cmp(&other.1));
        most.map(|(resource, _)| *resource)
    }
}

impl Observer for ResourceSampler<'_> {
    fn wants(&self) -> Events {
        Events::STEPS
    }

    fn on(&mut self, event: &Event<'_>) {
        let Event::Step(event) = event else { return };
        if !event.index.is_multiple_of(SAMPLED) || event.step.requests.is_empty() {
            return;
        }
        for operator in self.steps.estimate_unchecked(event.step.requests).operators {
            let resource = match (operator.group, operator.bound) {
                (None, _) => Resource::Host,
                (_, Bound::Compute | Bound::Power) => Resource::Compute,
                (_, Bound::Memory) => Resource::Bandwidth,
                (_, Bound::Network) => Resource::Links,
                (_, Bound::Latency) => Resource::Latency,
            };
            match self.times_us.iter_mut().find(|(known, _)| *known == resource) {
                Some((_, time_us)) => *time_us += operator.time_us,
                None => self.times_us.push((resource, operator.time_us)),
            }
        }
        if event.num_waiting > 0 {
            let [steps, without_blocks, without_places] = &mut self.waiting;
            *steps += 1;
            *without_blocks += u64::from(f64::from(event.blocks_in_use) >= FULL * self.num_gpu_blocks);
            *without_places += u64::from(event.num_running >= self.max_num_seqs);
        }
    }
}

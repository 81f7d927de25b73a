//! The engine's loop: requests arrive, steps are scheduled ahead and end, and tokens reach their clients.
//!
//! Mirrors `EngineCore.step` and `step_with_batch_queue` (`vllm/v1/engine/core.py`). At equal times a step ends before requests
//! arrive, and requests arrive before the next step is scheduled; requests that arrive together keep their order.
#![expect(clippy::indexing_slicing, reason = "the engine numbers slots, records and blocks within its lists")]
#![expect(clippy::cast_possible_truncation, reason = "2^32 requests would take hundreds of GB; blocks are fewer")]

mod remote;
mod round;
mod step;
mod transfers;

use std::collections::VecDeque;

use hdrhistogram::Histogram;
use ridgepoint::latency::{HostTimes, LatencyModel, Queues};
use ridgepoint::model::OwnSampling;
use ridgepoint::{Request, Result};
pub(super) use round::Joined;

use super::batch::{Batch, Scheduled};
use super::block_lives::BlockLives;
use super::clock::{Clock, ns};
use super::cluster::Gauges;
use super::config::EngineConfig;
use super::front_end::{FrontEnd, Pending, announced, check};
use super::gaps::new_histogram;
use super::observe::{Event, Events, Observer, Observers};
use super::record::{Outcome, Replay, RequestRecord};
use super::scheduler::{Rules, Scheduler, rules_of};
use crate::workload::{Workload, WorkloadRequest};
use remote::Signals;
pub(super) use remote::{KvNews, KvSignal};

/// Replays `workload` on an engine until every request has ended. `observers` watch it.
///
/// It keeps one record per request sent, the state of the requests in the engine, and the table of KV blocks.
///
/// ```
/// use ridgepoint::latency::FixedLatency;
/// use ridgepoint_replay::{replay, EngineConfig};
/// use ridgepoint_replay::workload::{Workload, WorkloadRequest};
/// use ridgepoint::Deployment;
///
/// struct Once(Option<WorkloadRequest>);
/// impl Workload for Once {
///     fn next_arrival_ns(&self) -> Option<u64> {
///         self.0.as_ref().map(|request| request.arrival_ns)
///     }
///     fn next_request(&mut self) -> Option<WorkloadRequest> {
///         self.0.take()
///     }
///     fn finished(&mut self, _: u64, _: u32, _: u32) {}
/// }
///
/// // 100 prompt tokens and 3 output tokens: three steps of 10 ms.
/// let latency = FixedLatency { step_us: 10_000.0, ..FixedLatency::default() };
/// let config = EngineConfig::new(&Deployment::default(), 4096, 1000);
/// let replayed = replay(&latency, &config, &mut Once(Some(WorkloadRequest::new(0, 100, 3))), &mut [])?;
/// assert_eq!(replayed.records[0].ttft_ms(), 10.0);
/// assert_eq!(replayed.records[0].e2e_ms(), 30.0);
/// # Ok::<(), ridgepoint::Error>(())
/// ```
///
/// # Errors
/// `ErrorKind::Invalid` for a configuration that [`EngineConfig::validate`] refuses. `ErrorKind::InvalidRequest` for a
/// request without prompt or output, with an arrival before its predecessor's, or of a stage beyond
/// the first 1,000. `ErrorKind::InvalidArgument` for a step that takes a negative time or none that is a number.
pub fn replay(
    latency: &dyn LatencyModel,
    config: &EngineConfig,
    workload: &mut dyn Workload,
    observers: &mut [&mut dyn Observer],
) -> Result<Replay> {
    replay_at(true, latency, config, workload, observers)
}

/// [`replay`] with or without fast-forwarding through decodes. Both settings give identical results.
pub(super) fn replay_at(
    fast_forward: bool,
    latency: &dyn LatencyModel,
    config: &EngineConfig,
    workload: &mut dyn Workload,
    observers: &mut [&mut dyn Observer],
) -> Result<Replay> {
    let engine = Engine::new(fast_forward, latency, config, workload, Observers::new(observers))?;
    engine.run_to_end()
}

/// An engine in the middle of a replay, with the requests that it is sent.
pub(super) struct Engine<'a, W: Workload> {
    latency: &'a dyn LatencyModel,
    pub(super) workload: W,
    observers: Observers<'a>,
    config: &'a EngineConfig,
    scheduler: Scheduler<'a>,
    rules: Box<dyn Rules>,
    /// Requests that the engine cannot see yet.
    front_end: FrontEnd,
    records: Vec<RequestRecord>,
    gaps: Vec<Histogram<u64>>,
    in_flight: VecDeque<Box<Batch>>,
    /// Boxes to reuse for the batches in flight.
    #[allow(clippy::vec_box)]
    spare: Vec<Box<Batch>>,
    clock: Clock,
    host: HostTimes,
    /// Steps that may be in flight.
    depth: usize,
    /// Whether a request that was sent has sampling parameters of its own.
    is_sampling_own: bool,
    /// The sampling parameters of the last step that was scheduled, if so.
    own_sampling: Vec<OwnSampling>,
    /// Preemptions since the last token, with a host's tier.
    preemptions_without_progress: u64,
    /// Reads of the disk since the last token, with a disk tier.
    reads_without_progress: u64,
    /// The queues of the last step that was scheduled.
    scheduled: Queues,
    /// A step that waits for those of other ranks.
    planned: Option<step::Planned>,
    /// What other engines tell of KV that moves, and what they are told; `None` where each engine computes its own prompts.
    signals: Option<Box<Signals>>,
}

impl<'a, W: Workload> Engine<'a, W> {
    /// An engine at time 0.
    ///
    /// # Errors
    /// Those of [`EngineConfig::validate`].
    pub(super) fn new(
        fast_forward: bool,
        latency: &'a dyn LatencyModel,
        config: &'a EngineConfig,
        workload: W,
        observers: Observers<'a>,
    ) -> Result<Self> {
        config.validate()?;
        let mut scheduler = Scheduler::new(config, fast_forward);
        if let Some(offload) = scheduler.offload.as_mut().filter(|_| observers.want(Events::KV)) {
            offload.events = Some(Vec::new());
        }
        if observers.want(Events::BLOCKS) && config.scheduler.enable_prefix_caching {
            scheduler.cache.pool.lives = Some(Box::new(BlockLives::new(config.usable_blocks())?));
        }
        let host = latency.host();
        let depth = match (config.pipeline_parallel_size, config.scheduler.async_scheduling) {
            (1, true) => 2,
            (stages, _) => stages as usize,
        };
        let mut records = Vec::new();
        if let Some(expected) = workload.expected_requests() {
            records.reserve(expected.min(1 << 20));
        }
        Ok(Engine {
            latency,
            workload,
            config,
            observers,
            scheduler,
            rules: rules_of(config),
            is_sampling_own: false,
            own_sampling: Vec::new(),
            preemptions_without_progress: 0,
            reads_without_progress: 0,
            front_end: FrontEnd::new(host.front_end_us, config.scheduler.api_server_count),
            records,
            gaps: Vec::new(),
            in_flight: VecDeque::new(),
            spare: Vec::new(),
            clock: Clock::new(&host, config.pipeline_parallel_size),
            host,
            depth,
            scheduled: Queues::default(),
            planned: None,
            signals: None,
        })
    }

    /// Goes on until every request has ended.
    ///
    /// # Errors
    /// Those of [`replay`].
    fn run_to_end(mut self) -> Result<Replay> {
        while self.iterate()? {}
        Ok(self.finished())
    }

    /// What the engine did.
    pub(super) fn finished(mut self) -> Replay {
        if let Some(lives) = &self.scheduler.cache.pool.lives {
            self.observers.report(&Event::Blocks(&lives.stats()));
        }
        let offload = self.scheduler.offload.map(|offload| offload.into_counters());
        Replay {
            records: self.records,
            inter_token_ns: self.gaps,
            counters: self.scheduler.counters,
            tokens_come_together: !self.config.tokens_come_alone(),
            offload,
        }
    }

    /// The times of its steps.
    pub(super) fn latency(&self) -> &'a dyn LatencyModel {
        self.latency
    }

    /// When the engine goes on, ns: now if it has work, else once the next request reaches it; `None` without one. Requests that are sent later
    /// than that change nothing of what it does then.
    pub(super) fn next_ns(&self) -> Option<u64> {
        let now_ns = self.clock.now_ns();
        if self.in_flight.is_empty() && self.rests() {
            return self.next_visible_ns().map(|next_ns| next_ns.max(now_ns));
        }
        Some(now_ns)
    }

    /// What a router is told of the engine at `now_ns`: its queues and KV blocks as of the last step that was scheduled by then.
    pub(super) fn gauges(&self, now_ns: u64) -> Gauges {
        let (mut running, mut waiting) = (self.scheduled.num_running, self.scheduled.num_waiting);
        if now_ns >= self.clock.now_ns() {
            running = self.scheduler.running.len() as u32;
            waiting = self.scheduler.num_waiting();
        }
        let blocks = f64::from(self.scheduler.cache.pool.num_in_use());
        Gauges { running, waiting, kv_use: blocks / f64::from(self.config.usable_blocks().max(1)) }
    }

    /// Goes on by one iteration, or waits for the next request; false once every request has ended.
    ///
    /// # Errors
    /// Those of [`replay`].
    pub(super) fn iterate(&mut self) -> Result<bool> {
        if self.signals.is_some() {
            self.take_signals()?;
        }
        self.receive()?;
        if self.in_flight.len() < self.depth && !self.scheduler.is_idle() {
            let scheduled = self.schedule()?;
            if self.signals.is_some() {
                self.learn(&scheduled)?;
            }
            let room = match scheduled {
                Scheduled::Step => self.depth,
                // A preemption may have freed enough blocks for the next request, so schedule again immediately.
                Scheduled::OnlyPreempted => 1,
                Scheduled::Nothing => 0,
            };
            if self.in_flight.len() < room {
                return Ok(true);
            }
        }
        if let Some(is_quiet) = self.end_oldest()? {
            if self.scheduler.offload.is_some() && is_quiet {
                self.wait_for_transfers()?;
            }
            return Ok(true);
        }
        let next_ns = self.next_visible_ns();
        // One with signals waits when it goes on, as it may be told something before.
        if self.signals.is_none() {
            self.clock.wait_until(next_ns.unwrap_or(0));
        }
        Ok(next_ns.is_some())
    }

    /// Takes the requests that have come by now, if the engine does so in this iteration.
    #[inline]
    fn receive(&mut self) -> Result<()> {
        self.send_until(self.clock.now_ns())?;
        if self.rules.receives(self.in_flight.len() < self.depth, self.scheduler.is_idle()) {
            self.admit()?;
        }
        Ok(())
    }

    /// Admits every request that has reached the engine by now.
    fn admit(&mut self) -> Result<()> {
        let now_ns = self.clock.now_ns();
        while let Some(pending) = self.front_end.take(now_ns) {
            if let Some(pending) = self.let_in(pending) {
                self.admit_one(&pending, now_ns)?;
            }
        }
        Ok(())
    }

    fn admit_one(&mut self, pending: &Pending, now_ns: u64) -> Result<()> {
        if self.refuses(&pending.request) {
            self.end(pending.record, Outcome::Rejected, pending.visible_ns)?;
            // The client may send its next request at once.
            return self.send_until(self.clock.now_ns());
        }
        self.records[pending.record as usize].queued_ns = now_ns;
        self.scheduler.add(pending.record, &pending.request);
        Ok(())
    }

    /// Whether the engine refuses a request.
    pub(super) fn refuses(&self, request: &WorkloadRequest) -> bool {
        let total = u64::from(request.num_prompt_tokens) + u64::from(request.num_output_tokens);
        let admits = if self.gets_prompts() {
            self.rules.admits_remote(self.config, request)
        } else {
            self.rules.admits(self.config, request)
        };
        total > u64::from(self.config.max_model_len) || !admits
    }

    /// Sends all requests that are due by `now_ns`.
    fn send_until(&mut self, now_ns: u64) -> Result<()> {
        while let Some(arrival_ns) = self.workload.next_arrival_ns().filter(|t| *t <= now_ns) {
            self.send(arrival_ns)?;
        }
        Ok(())
    }

    /// Sends the workload's next request.
    fn send(&mut self, arrival_ns: u64) -> Result<()> {
        let index = self.records.len();
        let request = announced(&mut self.workload, index)?;
        let last_arrival_ns = self.records.last().map_or(0, |record| record.arrival_ns);
        check(&request, index, last_arrival_ns.max(arrival_ns))?;
        self.is_sampling_own |= request.sampling != OwnSampling::default();
        self.records.push(RequestRecord {
            stage: request.stage,
            turn: request.turn,
            num_prompt_tokens: request.num_prompt_tokens,
            num_output_tokens: request.num_output_tokens,
            arrival_ns: request.arrival_ns,
            ..RequestRecord::default()
        });
        while self.gaps.len() <= request.stage as usize {
            self.gaps.push(new_histogram()?);
        }
        let prompt = Request::new(0, request.num_prompt_tokens, true);
        let queueing_ns = ns(self.host.behind_front_end_us(&prompt));
        self.front_end.enter(index as u32, request, queueing_ns);
        Ok(())
    }

    /// Earliest time at which another request reaches the engine.
    fn next_visible_ns(&self) -> Option<u64> {
        let signal_ns = self.signals.as_ref().and_then(|signals| signals.next_ns());
        [self.front_end.next_ns(), self.workload.next_arrival_ns(), signal_ns].into_iter().flatten().min()
    }
}

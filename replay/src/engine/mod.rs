//! The engine's loop: requests arrive, steps are scheduled ahead and end, and tokens reach their clients.
//!
//! Mirrors `EngineCore.step` and `step_with_batch_queue` (`vllm/v1/engine/core.py`). At equal times a step ends before requests
//! arrive, and requests arrive before the next step is scheduled; requests that arrive together keep their order.
#![expect(clippy::indexing_slicing, reason = "the engine numbers slots, records and blocks within its lists")]
#![expect(clippy::cast_possible_truncation, reason = "2^32 requests would take hundreds of GB; blocks are fewer")]

mod transfers;

use std::collections::VecDeque;

use hdrhistogram::Histogram;
use ridgepoint::latency::{HostTimes, LatencyModel, Queues};
use ridgepoint::model::OwnSampling;
use ridgepoint::{Error, Request, Result, Step};

use super::batch::{Batch, Scheduled};
use super::block_lives::BlockLives;
use super::clock::{Clock, StepTiming, ns};
use super::config::EngineConfig;
use super::front_end::{FrontEnd, check};
use super::gaps::{EqualGaps, new_histogram, record_gaps};
use super::observe::{Event, Events, Observer, Observers, StepEvent};
use super::record::{Outcome, Replay, RequestRecord};
use super::scheduler::{Rules, Scheduler, rules_of};
use crate::workload::Workload;

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
    config.validate()?;
    let mut scheduler = Scheduler::new(config, fast_forward);
    let observers = Observers::new(observers);
    if let Some(offload) = scheduler.offload.as_mut().filter(|_| observers.want(Events::KV)) {
        offload.events = Some(Vec::new());
    }
    if observers.want(Events::BLOCKS) && config.scheduler.enable_prefix_caching {
        scheduler.cache.pool.lives = Some(Box::new(BlockLives::new(config.usable_blocks())?));
    }
    let host = latency.host();
    let mut engine = Engine {
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
        records: Vec::new(),
        gaps: Vec::new(),
        in_flight: VecDeque::new(),
        spare: Vec::new(),
        clock: Clock::new(&host, config.pipeline_parallel_size),
        host,
    };
    if let Some(expected) = engine.workload.expected_requests() {
        engine.records.reserve(expected.min(1 << 20));
    }
    engine.run()?;
    if let Some(lives) = &engine.scheduler.cache.pool.lives {
        engine.observers.report(&Event::Blocks(&lives.stats()));
    }
    let offload = engine.scheduler.offload.map(|offload| offload.into_counters());
    Ok(Replay { records: engine.records, inter_token_ns: engine.gaps, counters: engine.scheduler.counters, offload })
}

struct Engine<'a> {
    latency: &'a dyn LatencyModel,
    workload: &'a mut dyn Workload,
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
    /// Whether a request that was sent has sampling parameters of its own.
    is_sampling_own: bool,
    /// The sampling parameters of the last step that was scheduled, if so.
    own_sampling: Vec<OwnSampling>,
    /// Preemptions since the last token, with a host's tier.
    preemptions_without_progress: u64,
    /// Reads of the disk since the last token, with a disk tier.
    reads_without_progress: u64,
}

impl Engine<'_> {
    fn run(&mut self) -> Result<()> {
        let depth = match (self.config.pipeline_parallel_size, self.config.scheduler.async_scheduling) {
            (1, true) => 2,
            (stages, _) => stages as usize,
        };
        loop {
            self.send_until(self.clock.now_ns())?;
            if self.rules.receives(self.in_flight.len() < depth, self.scheduler.is_idle()) {
                self.admit()?;
            }
            if self.in_flight.len() < depth && !self.scheduler.is_idle() {
                let room = match self.schedule()? {
                    Scheduled::Step => depth,
                    // A preemption may have freed enough blocks for the next request, so schedule again immediately.
                    Scheduled::OnlyPreempted => 1,
                    Scheduled::Nothing => 0,
                };
                if self.in_flight.len() < room {
                    continue;
                }
            }
            if let Some(step) = self.in_flight.pop_front() {
                self.clock.wait_until(step.end_ns);
                self.update(&step)?;
                let is_quiet = step.is_quiet();
                self.spare.push(step);
                if self.scheduler.offload.is_some() && is_quiet {
                    self.wait_for_transfers()?;
                }
                continue;
            }
            match self.next_visible_ns() {
                Some(next_ns) => self.clock.wait_until(next_ns),
                None => break,
            }
        }
        Ok(())
    }

    /// Admits every request that has reached the engine by now.
    fn admit(&mut self) -> Result<()> {
        let now_ns = self.clock.now_ns();
        while let Some(pending) = self.front_end.take(now_ns) {
            let request = &pending.request;
            let total = u64::from(request.num_prompt_tokens) + u64::from(request.num_output_tokens);
            if total > u64::from(self.config.max_model_len) || !self.rules.admits(self.config, request) {
                self.end(pending.record, Outcome::Rejected, pending.visible_ns)?;
                // The client may send its next request at once.
                self.send_until(self.clock.now_ns())?;
            } else {
                self.records[pending.record as usize].queued_ns = now_ns;
                self.scheduler.add(pending.record, request);
            }
        }
        Ok(())
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
        let Some(request) = self.workload.next_request() else {
            let problem = "the workload announced a request but returned none";
            return Err(Error::invalid_requests(&[(index, problem.to_owned())]));
        };
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
        [self.front_end.next_ns(), self.workload.next_arrival_ns()].into_iter().flatten().min()
    }

    /// Schedules a step if there is work for one.
    ///
    /// # Errors
    /// A step whose time is negative or no number.
    fn schedule(&mut self) -> Result<Scheduled> {
        let mut batch = self.spare.pop().unwrap_or_default();
        let (scheduled_ns, records) = (self.clock.now_ns(), &mut self.records);
        if let Some(lives) = &mut self.scheduler.cache.pool.lives {
            lives.now_ns = scheduled_ns;
        }
        if let Some(offload) = self.scheduler.offload.as_mut().filter(|offload| offload.has_disk()) {
            offload.begin_schedule(scheduled_ns);
        }
        let is_step = self.scheduler.schedule(&mut *self.rules, &mut batch, &mut self.in_flight, |record, cached| {
            let record = &mut records[record as usize];
            record.num_cached_tokens += cached;
            if record.num_preemptions == 0 {
                record.scheduled_ns = scheduled_ns;
            }
        });
        for record in &batch.preempted {
            records[*record as usize].num_preemptions += 1;
        }
        let num_preempted = batch.preempted.len();
        if !is_step {
            self.clock.idle_iteration(num_preempted);
            if self.scheduler.offload.is_some() {
                batch.end_ns = self.launch(&mut batch);
                self.in_flight.push_back(batch);
                return Ok(Scheduled::Nothing);
            }
            self.spare.push(batch);
            return Ok(if num_preempted > 0 { Scheduled::OnlyPreempted } else { Scheduled::Nothing });
        }
        let queues = Queues {
            num_running: self.scheduler.running.len() as u32,
            num_waiting: self.scheduler.waiting.queue.len() as u32,
            num_preempted: num_preempted as u32,
            num_resumed: batch.num_resumed,
        };
        self.clock.schedule(&queues);
        let not_before_ns = if self.scheduler.offload.is_some() { self.launch(&mut batch) } else { 0 };
        let (requests, records) = self.scheduler.steady.step(&batch);
        let shared_kv_tokens = self.scheduler.cache.pool.num_shared * u64::from(self.config.block_size);
        if self.is_sampling_own {
            self.scheduler.own_sampling(&batch, &mut self.own_sampling);
        }
        let step = Step::from(requests).with_shared_kv_tokens(shared_kv_tokens).with_own_sampling(&self.own_sampling);
        let step_us = self.latency.step_time_us(&step);
        if step_us.is_nan() || step_us < 0.0 {
            let reason = "must be a number of at least 0, as the latency model promises";
            return Err(Error::invalid_argument("step_time_us", step_us, reason));
        }
        let StepTiming { start_ns, end_ns, busy_ns } = self.clock.run(step_us, not_before_ns);
        if self.observers.want(Events::STEPS) {
            self.observers.report(&Event::Step(StepEvent {
                index: self.scheduler.counters.steps - 1,
                scheduled_ns,
                start_ns,
                end_ns,
                step,
                records,
                num_running: queues.num_running,
                num_waiting: queues.num_waiting,
                blocks_in_use: self.scheduler.cache.pool.num_in_use(),
                cached_tokens: self.scheduler.counters.cached_tokens,
                preempted: &batch.preempted,
            }));
        }
        let counters = &mut self.scheduler.counters;
        counters.busy_ns = counters.busy_ns.saturating_add(busy_ns);
        let Scheduler { steady, running, slots, .. } = &mut self.scheduler;
        if !batch.is_alone {
            steady.advance(running, slots, &mut batch);
        }
        batch.end_ns = end_ns;
        self.in_flight.push_back(batch);
        Ok(Scheduled::Step)
    }

    /// Ends a step: delivers its tokens and removes finished requests.
    fn update(&mut self, step: &Batch) -> Result<()> {
        if !step.is_step {
            return self.end_transfers(step);
        }
        let client_ns = self.clock.at_client_ns(step.end_ns);
        if !step.is_alone {
            let gap_ns = self.scheduler.steady.end_step(step.end_ns);
            for (group, count) in &step.steady {
                record_gaps(&mut self.gaps, group.stage, gap_ns, u64::from(*count));
            }
            if self.observers.want(Events::TOKENS) {
                let Scheduler { steady, running, slots, .. } = &self.scheduler;
                for (record, token) in steady.last_tokens(running, slots) {
                    self.observers.report(&Event::Token { record, token, now_ns: client_ns });
                }
            }
        }
        let mut any_finished = false;
        for slot in &step.leaving {
            let record = self.scheduler.slots[*slot as usize].rank.record;
            self.finish(*slot);
            self.end(record, Outcome::Finished, client_ns)?;
            any_finished = true;
        }
        let mut equal_gaps = EqualGaps::default();
        for (at, ((request, slot), record)) in step.requests.iter().zip(&step.slots).zip(&step.records).enumerate() {
            if !request.samples {
                continue;
            }
            let count = step.outputs.get(at).copied().unwrap_or(1);
            let (tokens, gap_ns) = self.scheduler.deliver(*slot, count, step.end_ns);
            for token in tokens - count..tokens {
                self.observers.report(&Event::Token { record: *record, token, now_ns: client_ns });
            }
            if tokens == 1 {
                self.records[*record as usize].first_token_ns = client_ns;
            } else {
                equal_gaps.add(self.scheduler.slots[*slot as usize].group.stage, gap_ns, &mut self.gaps);
            }
            if tokens == self.scheduler.slots[*slot as usize].num_output_tokens {
                self.finish(*slot);
                self.end(*record, Outcome::Finished, client_ns)?;
                any_finished = true;
            }
        }
        equal_gaps.flush(&mut self.gaps);
        if any_finished {
            self.scheduler.drop_finished();
        }
        if self.scheduler.offload.is_some() {
            self.end_transfers(step)?;
        }
        Ok(())
    }

    /// Frees a request after its last token.
    fn finish(&mut self, slot: u32) {
        self.rules.ended(&self.scheduler.slots[slot as usize]);
        self.scheduler.finish(slot);
    }

    fn end(&mut self, record: u32, outcome: Outcome, finish_ns: u64) -> Result<()> {
        // Requests that are due before this finish are sent first, as the workload may react to the finish.
        self.send_until(finish_ns)?;
        let entry = &mut self.records[record as usize];
        (entry.outcome, entry.finish_ns) = (outcome, finish_ns);
        self.scheduler.counters.end_ns = self.scheduler.counters.end_ns.max(finish_ns);
        self.workload.finished(finish_ns, entry.stage, record);
        Ok(())
    }
}

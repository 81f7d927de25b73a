//! One step of the engine's loop: it is scheduled and handed to the GPUs, and it ends.
#![expect(clippy::indexing_slicing, reason = "the engine numbers slots, records and blocks within its lists")]
#![expect(clippy::cast_possible_truncation, reason = "2^32 requests would take hundreds of GB; blocks are fewer")]

use ridgepoint::latency::Queues;
use ridgepoint::model::OwnSampling;
use ridgepoint::{Error, Result, Step};

use super::super::batch::{Batch, Scheduled};
use super::super::clock::StepTiming;
use super::super::gaps::{EqualGaps, record_gaps};
use super::super::observe::{Event, Events, StepEvent};
use super::super::record::Outcome;
use super::super::scheduler::Scheduler;
use super::Engine;
use crate::workload::Workload;

/// A step that is scheduled, and that the GPUs have not begun.
#[derive(Debug)]
pub(super) struct Planned {
    batch: Box<Batch>,
    scheduled_ns: u64,
    queues: Queues,
    /// Earliest time at which it can begin.
    pub(super) not_before_ns: u64,
    /// Its time by the latency model.
    pub(super) step_us: f64,
}

/// The outcome of [`Engine::plan`].
pub(super) enum Plan {
    Step(Planned),
    /// None, and why.
    Without(Scheduled),
}

/// The step that was scheduled last, and its records.
#[inline]
fn step_of<'a>(
    scheduler: &'a Scheduler<'_>,
    own_sampling: &'a [OwnSampling],
    block_size: u32,
    batch: &'a Batch,
) -> (Step<'a>, &'a [u32]) {
    let (requests, records) = scheduler.steady.step(batch);
    let shared_kv_tokens = scheduler.cache.pool.num_shared * u64::from(block_size);
    (Step::from(requests).with_shared_kv_tokens(shared_kv_tokens).with_own_sampling(own_sampling), records)
}

impl<W: Workload> Engine<'_, W> {
    /// Schedules a step if there is work for one, and hands it to the GPUs.
    ///
    /// # Errors
    /// A step whose time is negative or no number.
    #[inline]
    pub(super) fn schedule(&mut self) -> Result<Scheduled> {
        match self.plan()? {
            Plan::Without(why) => Ok(why),
            Plan::Step(step) => {
                let timing = self.clock.run(step.step_us, step.not_before_ns);
                self.begin(step, &timing);
                Ok(Scheduled::Step)
            }
        }
    }

    /// Schedules a step if there is work for one.
    ///
    /// # Errors
    /// A step whose time is negative or no number.
    #[inline]
    pub(super) fn plan(&mut self) -> Result<Plan> {
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
        if self.signals.is_some() {
            self.tell_of_requests(scheduled_ns);
        }
        for record in &batch.preempted {
            self.records[*record as usize].num_preemptions += 1;
        }
        let num_preempted = batch.preempted.len();
        if !is_step {
            self.clock.idle_iteration(num_preempted);
            if self.scheduler.offload.is_some() {
                batch.end_ns = self.launch(&mut batch);
                self.in_flight.push_back(batch);
                return Ok(Plan::Without(Scheduled::Nothing));
            }
            self.spare.push(batch);
            let why = if num_preempted > 0 { Scheduled::OnlyPreempted } else { Scheduled::Nothing };
            return Ok(Plan::Without(why));
        }
        let queues = Queues {
            num_running: self.scheduler.running.len() as u32,
            num_waiting: self.scheduler.num_waiting(),
            num_preempted: num_preempted as u32,
            num_resumed: batch.num_resumed,
        };
        self.scheduled = queues;
        self.clock.schedule(&queues);
        let not_before_ns = if self.scheduler.offload.is_some() { self.launch(&mut batch) } else { 0 };
        if self.is_sampling_own {
            self.scheduler.own_sampling(&batch, &mut self.own_sampling);
        }
        let step_us = {
            let (step, _) = step_of(&self.scheduler, &self.own_sampling, self.config.block_size, &batch);
            self.latency.step_time_us(&step)
        };
        if step_us.is_nan() || step_us < 0.0 {
            let reason = "must be a number of at least 0, as the latency model promises";
            return Err(Error::invalid_argument("step_time_us", step_us, reason));
        }
        Ok(Plan::Step(Planned { batch, scheduled_ns, queues, not_before_ns, step_us }))
    }

    /// A step that was planned begins on the GPUs.
    #[inline]
    pub(super) fn begin(&mut self, planned: Planned, timing: &StepTiming) {
        let Planned { mut batch, scheduled_ns, queues, .. } = planned;
        let StepTiming { start_ns, end_ns, busy_ns } = *timing;
        if self.observers.want(Events::STEPS) {
            let (step, records) = step_of(&self.scheduler, &self.own_sampling, self.config.block_size, &batch);
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
    }

    /// Ends the oldest step in flight. Returns whether it did nothing; `None` without one.
    ///
    /// # Errors
    /// Those of [`replay`](super::replay).
    pub(crate) fn end_oldest(&mut self) -> Result<Option<bool>> {
        let Some(step) = self.in_flight.pop_front() else { return Ok(None) };
        self.clock.wait_until(step.end_ns);
        self.update(&step)?;
        let is_quiet = step.is_quiet();
        self.spare.push(step);
        Ok(Some(is_quiet))
    }

    /// Ends a step: delivers its tokens and removes finished requests.
    pub(super) fn update(&mut self, step: &Batch) -> Result<()> {
        if !step.is_step {
            return self.end_transfers(step);
        }
        let client_ns = self.clock.at_client_ns(step.end_ns);
        if self.signals.is_some() {
            self.learn_of(step);
        }
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
            let (tokens, sent, gap_ns) = self.scheduler.deliver(*slot, count, step.end_ns);
            for token in tokens - sent..tokens {
                self.observers.report(&Event::Token { record: *record, token, now_ns: client_ns });
            }
            if tokens == 1 {
                self.records[*record as usize].first_token_ns = client_ns;
                self.workload.began(client_ns, *record);
            } else if sent > 0 {
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
        if self.computes_for_others() {
            self.rules.held();
        } else {
            self.rules.ended(&self.scheduler.slots[slot as usize]);
        }
        self.scheduler.finish(slot);
    }

    pub(super) fn end(&mut self, record: u32, outcome: Outcome, finish_ns: u64) -> Result<()> {
        // Requests that are due before this finish are sent first, as the workload may react to the finish.
        self.send_until(finish_ns)?;
        let entry = &mut self.records[record as usize];
        (entry.outcome, entry.finish_ns) = (outcome, finish_ns);
        self.scheduler.counters.end_ns = self.scheduler.counters.end_ns.max(finish_ns);
        self.workload.finished(finish_ns, entry.stage, record);
        Ok(())
    }
}

//! A round of an engine whose steps begin and end together with those of others: it takes requests and schedules, waits for the others, and
//! goes on once they know the step's time.

use ridgepoint::Result;

use super::super::batch::Scheduled;
use super::Engine;
use super::step::Plan;
use crate::workload::Workload;

/// What an engine brings into a round.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Joined {
    /// When its host has scheduled, ns.
    pub(crate) host_ns: u64,
    /// Earliest time at which its GPUs can begin, ns.
    pub(crate) start_ns: u64,
    /// The time of its own step; `None` without one.
    pub(crate) step_us: Option<f64>,
    /// Whether anything changed, so that the next round may have a step.
    pub(crate) goes_on: bool,
}

impl<W: Workload> Engine<'_, W> {
    /// When another request reaches the engine, ns; `None` without one.
    pub(crate) fn wakes_ns(&self) -> Option<u64> {
        self.next_visible_ns().map(|next_ns| next_ns.max(self.clock.now_ns()))
    }

    /// The time of its host.
    pub(crate) fn host_ns(&self) -> u64 {
        self.clock.now_ns()
    }

    /// Lets its host wait.
    pub(crate) fn wait_until(&mut self, then_ns: u64) {
        self.clock.wait_until(then_ns);
    }

    /// Whether it has requests that wait or run.
    pub(crate) fn has_unfinished(&self) -> bool {
        !self.scheduler.is_idle()
    }

    /// Takes requests that have arrived. Returns whether it has any that wait or run.
    ///
    /// # Errors
    /// Those of [`replay`](super::replay).
    pub(crate) fn wake(&mut self) -> Result<bool> {
        self.receive()?;
        Ok(self.has_unfinished())
    }

    /// Takes requests and schedules a step, which waits for the others. Without one, and if it `ends_first`, the oldest step in flight ends
    /// before the engine joins.
    ///
    /// # Errors
    /// Those of [`replay`](super::replay).
    pub(crate) fn join(&mut self, ends_first: bool) -> Result<Joined> {
        self.receive()?;
        let mut goes_on = false;
        if self.in_flight.len() < self.depth && !self.scheduler.is_idle() {
            match self.plan()? {
                Plan::Step(step) => self.planned = Some(step),
                Plan::Without(why) => goes_on = matches!(why, Scheduled::OnlyPreempted),
            }
        }
        let num_in_flight = self.in_flight.len();
        if self.planned.is_none() && ends_first {
            self.end_oldest()?;
        }
        let step = self.planned.as_ref();
        Ok(Joined {
            host_ns: self.clock.now_ns(),
            start_ns: self.clock.next_start_ns().max(step.map_or(0, |step| step.not_before_ns)),
            step_us: step.map(|step| step.step_us),
            goes_on: goes_on || num_in_flight > 0,
        })
    }

    /// Its step, or a dummy one, runs from `start_ns` for `step_us`, and the iteration ends. The host of a dummy step goes on at `host_ns`.
    ///
    /// # Errors
    /// Those of [`replay`](super::replay).
    pub(crate) fn run_round(&mut self, start_ns: u64, step_us: f64, host_ns: u64, ends_first: bool) -> Result<()> {
        let timing = self.clock.run(step_us, start_ns);
        let Some(step) = self.planned.take() else {
            self.scheduler.counters.dummy_steps += 1;
            self.clock.wait_until(host_ns);
            if !ends_first {
                self.end_oldest()?;
            }
            return Ok(());
        };
        self.begin(step, &timing);
        if self.in_flight.len() >= self.depth {
            self.end_oldest()?;
        }
        Ok(())
    }
}

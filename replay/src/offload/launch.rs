//! The copies between GPU and host: submitted with an iteration, and seen to end with a later one.
#![expect(clippy::indexing_slicing, reason = "the engine numbers slots within its list")]

use ridgepoint::latency::{LatencyModel, TransferDirection};

use super::super::batch::Batch;
use super::super::observe::{KvEvent, SubmittedEvent, TransferEvent};
use super::link::Copy;
use super::{Offload, Prepared};

impl Offload {
    /// Launches an iteration at `host_ns`: submits copies, waits for those of preempted requests, and looks which have ended. Puts the
    /// requests whose stores or loads have ended into `batch`. Returns the time from which the GPUs can begin.
    pub(crate) fn launch(
        &mut self,
        latency: &dyn LatencyModel,
        host_ns: u64,
        gpu_end_ns: u64,
        batch: &mut Batch,
        mut on_done: impl FnMut(TransferEvent),
    ) -> u64 {
        self.link.advance(host_ns);
        let mut launch_ns = host_ns;
        let after_step_ns = host_ns.max(gpu_end_ns);
        for at in 0..self.unsubmitted.len() {
            self.submit(latency, TransferDirection::GpuToCpu, self.unsubmitted[at], after_step_ns);
        }
        self.unsubmitted.clear();
        if !self.preempted.is_empty() {
            self.link.wait_for(&self.preempted);
            launch_ns = launch_ns.max(self.link.now_ns());
            self.preempted.clear();
        }
        for at in 0..self.loads.len() {
            let prepared = self.loads[at];
            self.requests[prepared.slot as usize].load_began_ns = launch_ns;
            self.submit(latency, TransferDirection::CpuToGpu, prepared, launch_ns);
        }
        self.loads.clear();
        self.unsubmitted.append(&mut self.stores);
        self.link.advance(launch_ns);
        let mut done = std::mem::take(&mut self.link.done);
        for copy in done.drain(..) {
            on_done(copy.event);
            self.count(&copy.event);
            let request = &mut self.requests[copy.slot as usize];
            if copy.event.direction == TransferDirection::CpuToGpu {
                batch.loaded.push(copy.slot);
            } else {
                request.num_stores -= 1;
                if request.num_stores == 0 && request.has_ended {
                    batch.stored.push(copy.slot);
                }
            }
        }
        self.link.done = done;
        for slot in self.ended.drain(..) {
            let request = &mut self.requests[slot as usize];
            request.has_ended = true;
            if request.num_stores == 0 {
                batch.stored.push(slot);
            }
        }
        self.any_ended = false;
        batch.stored.sort_unstable_by_key(|slot| self.requests[*slot as usize].record);
        if self.disk.is_some() {
            self.end_schedule(latency, host_ns, launch_ns, on_done);
        }
        launch_ns
    }

    fn submit(&mut self, latency: &dyn LatencyModel, direction: TransferDirection, prepared: Prepared, ready_ns: u64) {
        let Prepared { slot, num_blocks } = prepared;
        let (index, record) = (self.num_copies, self.requests[slot as usize].record);
        self.num_copies += 1;
        let event = TransferEvent { index, direction, record, num_blocks, ready_ns, end_ns: 0 };
        self.link.submit(Copy::new(latency, event, slot, self.block_bytes));
        if let Some(events) = &mut self.events {
            let host = match direction {
                TransferDirection::CpuToGpu => self.host.serials(&self.requests[slot as usize].loading),
                _ => self.offered.pop_front().unwrap_or_default(),
            };
            events.push(KvEvent::Submitted(SubmittedEvent { index, direction, host, disk: Vec::new() }));
        }
    }

    fn count(&mut self, copy: &TransferEvent) {
        let is_load = copy.direction == TransferDirection::CpuToGpu;
        let of = if is_load { &mut self.counters.loads } else { &mut self.counters.stores };
        of.add(copy, self.block_bytes);
    }
}

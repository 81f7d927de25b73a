//! KV transfers in the engine's loop: submitted when an iteration is launched, completed when its output is processed.
#![expect(clippy::indexing_slicing, reason = "the engine numbers records within its list")]

use ridgepoint::{Error, Result};

use super::super::batch::Batch;
use super::super::observe::{Event, KvEvent};
use super::Engine;
use crate::workload::Workload;

/// Preemptions without a token between them, after which a replay ends. A request is preempted once for each that runs with it.
const MAX_PREEMPTIONS_WITHOUT_PROGRESS: u64 = 100_000;

/// Reads of the disk without a token between them, after which a replay ends. A request reads once, or a few times where the host is full.
const MAX_READS_WITHOUT_PROGRESS: u64 = 10_000;

/// The error of a host that drops blocks of a prompt to read others of it, for ever. vLLM 0.32.0 does so too.
fn thrashing() -> Error {
    let problem = "makes no progress, as vLLM 0.32.0 would not: the host is too small for the blocks that a request has on the disk, and drops \
                   some of them to read others; give more cpu_bytes_to_use";
    Error::invalid("the replay with a disk behind kv_offload", vec![problem.to_owned()])
}

/// The error of an engine that makes no progress. vLLM 0.19.0 hangs here too.
fn stuck() -> Error {
    let problem = "makes no progress, as vLLM 0.19.0 would not: a request that was loaded from the host holds blocks, and waits behind one \
                   that needs more than are free; more num_gpu_blocks, a smaller max_num_seqs or the policy fcfs avoid it";
    Error::invalid("the replay with kv_offload", vec![problem.to_owned()])
}

impl<W: Workload> Engine<'_, W> {
    /// Launches the transfers of an iteration. Returns the time from which its step can begin.
    pub(super) fn launch(&mut self, batch: &mut Batch) -> u64 {
        let Some(offload) = &mut self.scheduler.offload else { return 0 };
        let (host_ns, gpu_end_ns) = (self.clock.now_ns(), self.clock.gpu_end_ns());
        let observers = &mut self.observers;
        let launch_ns = offload.launch(self.latency, host_ns, gpu_end_ns, batch, |transfer| {
            observers.report(&Event::Kv(&KvEvent::Transfer(transfer)));
        });
        for resumed in offload.resumed.drain(..) {
            let record = &mut self.records[resumed.record as usize];
            let waited_ns = host_ns.saturating_sub(resumed.since_ns);
            record.num_loaded_tokens += resumed.num_tokens;
            record.num_disk_tokens += resumed.num_disk_tokens;
            record.load_ns += waited_ns;
            offload.counters.load_wait_ns += waited_ns;
        }
        if offload.has_disk() {
            for waited in offload.take_waited() {
                self.records[waited.record as usize].load_ns += waited.time_ns;
            }
        }
        launch_ns
    }

    /// Waits until a transfer ends or a request arrives, if all iterations in flight did nothing.
    pub(super) fn wait_for_transfers(&mut self) -> Result<()> {
        let Some(offload) = &self.scheduler.offload else { return Ok(()) };
        if offload.any_ended || offload.has_answers() || !self.in_flight.iter().all(|step| step.is_quiet()) {
            return Ok(());
        }
        match [offload.next_end_ns(), self.next_visible_ns()].into_iter().flatten().min() {
            Some(then_ns) => self.clock.wait_until(then_ns),
            None if self.scheduler.is_idle() => {}
            None => return Err(stuck()),
        }
        Ok(())
    }

    /// Ends the transfers that the engine saw end when it launched this step.
    pub(super) fn end_transfers(&mut self, step: &Batch) -> Result<()> {
        self.scheduler.finish_transfers(step);
        if let Some(offload) = self.scheduler.offload.as_mut().filter(|offload| offload.has_disk()) {
            offload.submit_writes(self.latency, self.clock.now_ns());
            self.reads_without_progress += offload.take_num_reads();
        }
        if let Some(events) = self.scheduler.offload.as_mut().and_then(|offload| offload.events.as_mut()) {
            events.drain(..).for_each(|event| self.observers.report(&Event::Kv(&event)));
        }
        if !step.steady.is_empty() || step.requests.iter().any(|request| request.samples) {
            (self.preemptions_without_progress, self.reads_without_progress) = (0, 0);
        }
        if self.reads_without_progress > MAX_READS_WITHOUT_PROGRESS {
            return Err(thrashing());
        }
        self.preemptions_without_progress += step.preempted.len() as u64;
        if self.preemptions_without_progress > MAX_PREEMPTIONS_WITHOUT_PROGRESS { Err(stuck()) } else { Ok(()) }
    }
}

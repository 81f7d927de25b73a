//! The scheduler's part in the host's tier of KV blocks: the look-up of waiting requests, and the blocks that steps offer.
#![expect(clippy::indexing_slicing, reason = "the engine numbers slots and records within its lists")]

use std::collections::VecDeque;

use super::super::super::batch::Batch;
use super::super::{Prefix, Scheduler, num_steps};

impl Scheduler<'_> {
    /// Gives a request blocks for what the host holds of it, and begins to load them.
    pub(super) fn load(&mut self, slot: u32, prefix: &Prefix) {
        let state = &mut self.slots[slot as usize];
        self.cache.use_found(state);
        for _ in 0..prefix.to_load {
            self.cache.take(state);
        }
        state.computed = (prefix.held_blocks + prefix.to_load) * self.config.block_size;
        if let Some(offload) = &mut self.offload {
            offload.begin_load(slot, prefix.held_blocks, prefix.to_load);
        }
    }

    /// Offers the host the blocks that a step fills: those of new requests, then of running ones, then of preempted ones that run again.
    pub(super) fn offer_to_host(&mut self, batch: &Batch, num_running: usize, in_flight: &VecDeque<Box<Batch>>) {
        let Some(offload) = &mut self.offload else { return };
        let in_flight = num_steps(in_flight);
        let (slots, steady) = (&self.slots, &self.steady);
        let (running, admitted) = (0..num_running, num_running..batch.slots.len());
        let was_preempted = |at: &usize| slots[batch.slots[*at] as usize].was_preempted;
        let new = admitted.clone().filter(|at| !was_preempted(at));
        let listed = |at: usize| {
            let (slot, request) = (batch.slots[at], &batch.requests[at]);
            let (state, end) = (&slots[slot as usize], request.num_computed_tokens + request.num_scheduled_tokens);
            (slot, state, end.min(state.num_tokens()))
        };
        let (filling, step) = (&mut self.filling, steady.next_step());
        filling.clear();
        offload.begin_offers(slots, step, steady.len(), filling);
        for (slot, state, end) in new.map(listed) {
            offload.offer(slot, state, step, end);
        }
        filling.extend(steady.filling(in_flight));
        let by_admission = |filling: &mut Vec<u32>, from: usize| {
            filling[from..].sort_by_key(|slot| slots[*slot as usize].admission);
            filling.dedup();
        };
        by_admission(filling, 0);
        // Offers go in the order of admission. Requests that were refused are among them as soon as one may fit.
        let (mut at, mut admission, mut has_taken) = (0, 0, false);
        loop {
            if !has_taken && offload.may_fit() {
                has_taken = true;
                offload.take_refused(slots, step, admission, filling);
                by_admission(filling, at);
            }
            let Some(slot) = filling.get(at) else { break };
            let state = &slots[*slot as usize];
            offload.offer(*slot, state, step, steady.num_known(state, in_flight));
            (at, admission) = (at + 1, state.admission + 1);
        }
        for (slot, state, end) in running.chain(admitted.filter(was_preempted)).map(listed) {
            offload.offer(slot, state, step, end);
        }
        offload.end_offers(slots);
    }

    /// Learns which transfers had ended when a step was launched.
    pub(crate) fn finish_transfers(&mut self, step: &Batch) {
        let Some(offload) = &mut self.offload else { return };
        for slot in &step.stored {
            offload.finish_stores(*slot);
        }
        for slot in &step.loaded {
            offload.finish_load(*slot);
        }
        for slot in &step.stored {
            self.free(*slot);
        }
    }
}

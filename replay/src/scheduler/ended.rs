//! Requests that get tokens, and requests that end.
#![expect(clippy::indexing_slicing, reason = "the engine numbers slots within its list")]

#[cfg(test)]
use super::DELIVERED;
use super::Scheduler;

impl Scheduler<'_> {
    /// Delivers tokens at `now_ns`. Returns the request's number of tokens, how many its client gets now, and the time since its last ones.
    pub(crate) fn deliver(&mut self, slot: u32, count: u32, now_ns: u64) -> (u32, u32, u64) {
        let state = &mut self.slots[slot as usize];
        state.delivered += count;
        #[cfg(test)]
        DELIVERED.with(|delivered| delivered.set(delivered.get() + 1));
        self.cache.computed_prompt(state, state.num_tokens() - count);
        let sent = state.send(count, self.config.scheduler.stream_interval);
        (state.delivered, sent, if sent > 0 { state.gap_ns(now_ns) } else { 0 })
    }

    /// Frees the blocks of `slot` after its last token.
    pub(crate) fn finish(&mut self, slot: u32) {
        let state = &mut self.slots[slot as usize];
        if !state.is_running {
            self.waiting.remove(slot);
        }
        state.is_running = false;
        // Later turns find the blocks even while their stores are under way.
        self.cache.remember_generated(state);
        if self.offload.as_mut().is_some_and(|offload| offload.end(slot)) {
            return;
        }
        let record = self.slots[slot as usize].rank.record;
        if !self.remote.as_mut().is_some_and(|remote| remote.hold(record, slot)) {
            self.free(slot);
        }
    }

    /// Frees the blocks of a request that has ended.
    pub(super) fn free(&mut self, slot: u32) {
        self.cache.release(&mut self.slots[slot as usize]);
        self.unused_slots.push(slot);
    }

    /// Drops finished requests from the running queue and keeps its order.
    pub(crate) fn drop_finished(&mut self) {
        let slots = &self.slots;
        let is_over = |slot: &u32| !slots[*slot as usize].is_running;
        let settled = self.running[..self.steady.num_settled].iter().filter(|slot| is_over(slot)).count();
        self.steady.num_settled -= settled;
        self.running.retain(|slot| !is_over(slot));
    }
}

//! Requests whose blocks the host had no room for: vLLM offers these blocks again with every step.
//!
//! A refused offer stays refused until a block on the host becomes idle, or another request stores a block that both need. Until then the
//! requests are counted, not visited.
#![expect(clippy::indexing_slicing, reason = "the engine numbers slots within its list")]

use super::super::slot::Slot;
use super::Offload;

/// The requests, and the figures that decide whether one of them may fit.
#[derive(Debug)]
pub(super) struct Refused {
    slots: Vec<u32>,
    /// Number of their blocks.
    pub(super) num_blocks: u64,
    /// Fewest blocks that the host lacks for any one of them.
    least_missing: u32,
    /// [`super::HostBlocks::num_shared_changes`] when they were last offered.
    num_shared_changes: u64,
    /// The first step in which one of these requests may have stopped, or not yet begun, to be a steady decode.
    first_until: u64,
}

impl Default for Refused {
    fn default() -> Self {
        let (least_missing, first_until) = (u32::MAX, u64::MAX);
        Refused { slots: Vec::new(), num_blocks: 0, least_missing, num_shared_changes: 0, first_until }
    }
}

impl Offload {
    /// Notes that the host refused blocks of a request in a step, of which it lacks at least `missing`.
    pub(super) fn refuse(&mut self, slot: u32, state: &Slot, step: u64, num_blocks: u32, missing: u32) {
        let refused = &mut self.refused;
        let before = std::mem::replace(&mut self.requests[slot as usize].num_refused, num_blocks);
        refused.num_blocks = refused.num_blocks + u64::from(num_blocks) - u64::from(before);
        refused.least_missing = refused.least_missing.min(missing);
        refused.first_until = refused.first_until.min(if state.is_steady_in(step) { state.steady_until } else { 0 });
        if before == 0 {
            refused.slots.push(slot);
        }
    }

    /// Forgets that blocks of a request were refused.
    pub(super) fn unrefuse(&mut self, slot: u32) {
        if self.requests[slot as usize].num_refused > 0 {
            self.retain_refused(|other, _| other != slot);
        }
    }

    /// Begins the offers of a step with this many steady decodes. Forgets refused requests that are none of these, and moves those that
    /// have become steady to `again`.
    pub(crate) fn begin_offers(&mut self, slots: &[Slot], step: u64, num_steady: u32, again: &mut Vec<u32>) {
        if step < self.refused.first_until && num_steady > 0 {
            return;
        }
        self.refused.first_until = u64::MAX;
        self.retain_refused(|slot, first_until| {
            let state = &slots[slot as usize];
            let (is_steady, is_new) = (state.is_steady_in(step), state.steady_from == step);
            if is_steady && is_new {
                again.push(slot);
            } else if is_steady {
                *first_until = state.steady_until.min(*first_until);
            }
            is_steady && !is_new
        });
    }

    /// Whether one of the refused requests may fit.
    pub(crate) fn may_fit(&self) -> bool {
        !self.refused.slots.is_empty() && self.host.may_fit(self.refused.least_missing, self.refused.num_shared_changes)
    }

    /// Moves the refused steady decodes with this admission number or a later one to `again`.
    pub(crate) fn take_refused(&mut self, slots: &[Slot], step: u64, admission: u64, again: &mut Vec<u32>) {
        if admission == 0 {
            // Offers of this step that are refused set both anew.
            (self.refused.least_missing, self.refused.num_shared_changes) = (u32::MAX, self.host.num_shared_changes);
        }
        self.retain_refused(|slot, _| {
            let state = &slots[slot as usize];
            let goes = state.admission >= admission && state.is_steady_in(step);
            if goes {
                again.push(slot);
            }
            !goes
        });
    }

    /// Keeps the refused requests for which `stays` is true. It may lower the first step that one of them leaves.
    fn retain_refused(&mut self, mut stays: impl FnMut(u32, &mut u64) -> bool) {
        let Refused { slots, num_blocks, first_until, .. } = &mut self.refused;
        slots.retain(|slot| {
            let stays = stays(*slot, first_until);
            if !stays {
                *num_blocks -= u64::from(std::mem::take(&mut self.requests[*slot as usize].num_refused));
            }
            stays
        });
    }
}

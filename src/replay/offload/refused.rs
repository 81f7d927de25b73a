//! Requests whose blocks the host had no room for: vLLM offers these blocks again with every step.
//!
//! An offer that was refused is refused again until a block of the host becomes idle or another request stores a block that both need.
//! Until then the refused requests are counted, not visited.
#![expect(clippy::indexing_slicing, reason = "the engine numbers slots within its list")]

use super::super::slot::Slot;
use super::Offload;

/// The requests, and what tells whether one of them may fit.
#[derive(Debug)]
pub(super) struct Refused {
    slots: Vec<u32>,
    /// Number of their blocks.
    pub(super) num_blocks: u64,
    /// Minimum number of their blocks that the host lacks.
    least_missing: u32,
    /// Number of shared changes of the host's blocks when all of them were offered.
    num_shared_changes: u64,
    /// The first step in which one of them is no steady decode.
    first_until: u64,
}

impl Refused {
    pub(super) const NONE: Refused = Refused {
        slots: Vec::new(),
        num_blocks: 0,
        least_missing: u32::MAX,
        num_shared_changes: 0,
        first_until: u64::MAX,
    };
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
        let before = std::mem::take(&mut self.requests[slot as usize].num_refused);
        if before > 0 {
            self.refused.num_blocks -= u64::from(before);
            self.refused.slots.retain(|other| *other != slot);
        }
    }

    /// Whether the refused requests have to be visited in a step with this many steady decodes: one of them may fit or may have left.
    pub(in crate::replay) fn has_to_visit(&self, step: u64, num_steady: u32) -> bool {
        !self.refused.slots.is_empty() && (step >= self.refused.first_until || num_steady == 0 || self.may_fit())
    }

    /// Whether one of the refused requests may fit.
    pub(in crate::replay) fn may_fit(&self) -> bool {
        !self.refused.slots.is_empty() && self.host.may_fit(self.refused.least_missing, self.refused.num_shared_changes)
    }

    /// Moves the refused requests to `again` that are steady decodes in a step, and forgets the others.
    pub(in crate::replay) fn take_refused(&mut self, slots: &[Slot], step: u64, again: &mut Vec<u32>) {
        for slot in self.refused.slots.drain(..) {
            self.requests[slot as usize].num_refused = 0;
            if slots[slot as usize].is_steady_in(step) {
                again.push(slot);
            }
        }
        let (slots, num_shared_changes) = (std::mem::take(&mut self.refused.slots), self.host.num_shared_changes);
        self.refused = Refused { slots, num_shared_changes, ..Refused::NONE };
    }

    /// Moves those of the refused requests to `again` that were admitted from `admission` on and are steady decodes in a step.
    pub(in crate::replay) fn take_refused_from(
        &mut self,
        slots: &[Slot],
        step: u64,
        admission: u64,
        again: &mut Vec<u32>,
    ) {
        let Offload { refused, requests, .. } = self;
        refused.slots.retain(|slot| {
            let state = &slots[*slot as usize];
            let goes = state.admission >= admission && state.is_steady_in(step);
            if goes {
                refused.num_blocks -= u64::from(std::mem::take(&mut requests[*slot as usize].num_refused));
                again.push(*slot);
            }
            !goes
        });
    }
}

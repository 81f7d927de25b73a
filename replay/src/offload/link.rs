//! The copies between GPU and host, or between host and disk: one queue for each direction, in which a copy begins when the one before it
//! has ended.
//!
//! Mirrors the order of `SingleDirectionOffloadingHandler` (vLLM 0.19.0, `vllm/v1/kv_offload/worker/cpu_gpu.py`). Copies to the host also
//! wait for the step that computes what they copy. Stores and writes go away from the GPU, loads and reads come back.
#![expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "floats saturate; times are not negative")]
#![expect(
    clippy::indexing_slicing,
    reason = "the list of ended copies only grows while it is sorted from its old end on"
)]

use std::collections::VecDeque;

use ridgepoint::latency::{LatencyModel, TransferDirection, non_negative};

use super::super::clock::ns_f64;
use super::super::observe::TransferEvent;

/// A copy of one request's blocks. Until it ends, its event has everything but its end.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Copy {
    pub(super) event: TransferEvent,
    pub(super) slot: u32,
    /// Time that it has left at full speed.
    pub(super) left_ns: f64,
}

impl Copy {
    /// A copy of blocks of `block_bytes` that is not under way.
    pub(super) fn new(latency: &dyn LatencyModel, event: TransferEvent, slot: u32, block_bytes: u64) -> Self {
        let bytes = u64::from(event.num_blocks).saturating_mul(block_bytes);
        let left_ns = ns_f64(non_negative(latency.kv_transfer_time_us(event.direction, bytes)));
        Copy { event, slot, left_ns }
    }
}

/// Both queues, and their clock.
#[derive(Debug, Clone, Default)]
pub(super) struct Link {
    now_ns: u64,
    queues: [VecDeque<Copy>; 2],
    contention: f64,
    /// Copies that have ended and are not taken yet.
    pub(super) done: Vec<Copy>,
}

impl Link {
    pub(super) fn new(contention: f64) -> Self {
        Link { contention, ..Link::default() }
    }

    /// Time up to which the copies are known.
    pub(super) fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// Submits a copy. One that is launched for a time which has passed could not begin before now: while the worker waits for the stores of a
    /// preempted request, the engine may schedule ahead.
    pub(super) fn submit(&mut self, mut copy: Copy) {
        copy.event.ready_ns = copy.event.ready_ns.max(self.now_ns);
        let [away, back] = &mut self.queues;
        match copy.event.direction {
            TransferDirection::GpuToCpu | TransferDirection::CpuToDisk => away.push_back(copy),
            TransferDirection::CpuToGpu | TransferDirection::DiskToCpu => back.push_back(copy),
        }
    }

    /// Lets the copies go on until `to_ns`.
    pub(super) fn advance(&mut self, to_ns: u64) {
        let [away, back] = &mut self.queues;
        let may_end = |queue: &VecDeque<Copy>| queue.front().is_some_and(|head| head.left_ns <= 0.0);
        if to_ns <= self.now_ns && !may_end(away) && !may_end(back) {
            return;
        }
        if self.contention < 1.0 && !away.is_empty() && !back.is_empty() {
            while let Some(event_ns) = self.next_event_ns().filter(|event_ns| *event_ns <= to_ns) {
                self.move_to(event_ns);
            }
            if self.now_ns < to_ns {
                self.move_to(to_ns);
            }
            return;
        }
        let before = self.done.len();
        run_alone(away, self.now_ns, to_ns, &mut self.done);
        let between = self.done.len();
        run_alone(back, self.now_ns, to_ns, &mut self.done);
        if (before + 1..self.done.len()).contains(&between) {
            self.done[before..].sort_by_key(|copy| copy.event.end_ns);
        }
        self.now_ns = self.now_ns.max(to_ns);
    }

    /// Lets the copies go on until those to the host of these slots have ended.
    pub(super) fn wait_for(&mut self, slots: &[u32]) {
        let [away, _] = &self.queues;
        let mut left = away.iter().filter(|copy| slots.contains(&copy.slot)).count();
        while left > 0
            && let Some(event_ns) = self.next_event_ns()
        {
            let before = self.done.len();
            self.move_to(event_ns);
            let ended = self.done.iter().skip(before);
            left -= ended
                .filter(|copy| copy.event.direction == TransferDirection::GpuToCpu && slots.contains(&copy.slot))
                .count();
        }
    }

    /// Time at which the next copy ends if no other is submitted.
    pub(super) fn next_end_ns(&self) -> Option<u64> {
        let mut later = Link { done: Vec::new(), ..self.clone() };
        while later.done.is_empty() {
            later.move_to(later.next_event_ns()?);
        }
        Some(later.now_ns)
    }

    /// Whether the first copy of each queue has begun, and the speed at which such copies go on.
    fn running(&self) -> ([bool; 2], f64) {
        let runs =
            self.queues.each_ref().map(|queue| queue.front().is_some_and(|copy| copy.event.ready_ns <= self.now_ns));
        (runs, if runs == [true, true] { self.contention } else { 1.0 })
    }

    /// The next time at which a copy begins or ends.
    fn next_event_ns(&self) -> Option<u64> {
        let (runs, speed) = self.running();
        let heads = self.queues.iter().zip(runs).filter_map(|(queue, runs)| Some((queue.front()?, runs)));
        let event_ns = |(head, runs): (&Copy, bool)| {
            if runs { self.now_ns.saturating_add(up(head.left_ns / speed)) } else { head.event.ready_ns }
        };
        heads.map(event_ns).min()
    }

    /// Goes on to a time at or before the next event. At the end of the clock every copy ends, so that no caller waits for ever.
    fn move_to(&mut self, to_ns: u64) {
        let (runs, speed) = self.running();
        let done_ns = (to_ns - self.now_ns) as f64 * speed;
        self.now_ns = to_ns;
        for (queue, _) in self.queues.iter_mut().zip(runs).filter(|(_, runs)| *runs) {
            if let Some(head) = queue.front_mut() {
                head.left_ns -= done_ns;
                if head.left_ns <= 0.0 || to_ns == u64::MAX {
                    head.event.end_ns = to_ns;
                    self.done.push(*head);
                    queue.pop_front();
                }
            }
        }
    }
}

/// Rounds up. `f64::ceil` would be a library call on most CPUs.
fn up(ns: f64) -> u64 {
    let whole = ns as u64;
    whole.saturating_add(u64::from((whole as f64) < ns))
}

/// Lets the copies of a queue that nothing slows down go on from `now_ns` to `to_ns`.
fn run_alone(queue: &mut VecDeque<Copy>, mut now_ns: u64, to_ns: u64, done: &mut Vec<Copy>) {
    while let Some(head) = queue.front_mut() {
        now_ns = now_ns.max(head.event.ready_ns);
        let end_ns = now_ns.saturating_add(up(head.left_ns));
        if end_ns > to_ns {
            head.left_ns -= to_ns.saturating_sub(now_ns) as f64;
            return;
        }
        done.push(Copy { event: TransferEvent { end_ns, ..head.event }, ..*head });
        queue.pop_front();
        now_ns = end_ns;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn copy(index: u64, direction: TransferDirection, ready_ns: u64, left_ns: f64) -> Copy {
        let event = TransferEvent { index, direction, record: 0, num_blocks: 1, ready_ns, end_ns: 0 };
        Copy { event, slot: 0, left_ns }
    }

    fn ends(link: &mut Link) -> Vec<(u64, u64)> {
        link.advance(1_000_000);
        std::mem::take(&mut link.done).iter().map(|copy| (copy.event.index, copy.event.end_ns)).collect()
    }

    #[test]
    fn copies_of_a_direction_follow_each_other() {
        let mut link = Link::new(1.0);
        link.submit(copy(0, TransferDirection::GpuToCpu, 10, 100.0));
        link.submit(copy(1, TransferDirection::GpuToCpu, 20, 50.0));
        link.submit(copy(2, TransferDirection::CpuToGpu, 0, 30.0));
        link.submit(copy(3, TransferDirection::GpuToCpu, 500, 1.0));
        assert_eq!(link.next_end_ns(), Some(30));
        assert_eq!(ends(&mut link), [(2, 30), (0, 110), (1, 160), (3, 501)]);
        assert_eq!(link.next_end_ns(), None);
    }

    #[test]
    fn copies_beyond_the_clock_end_with_it() {
        for contention in [1.0, 0.5] {
            let mut link = Link::new(contention);
            link.submit(copy(0, TransferDirection::GpuToCpu, 0, 1e24));
            link.submit(copy(1, TransferDirection::CpuToGpu, 0, 1e24));
            assert_eq!(link.next_end_ns(), Some(u64::MAX));
            link.wait_for(&[0]);
            link.advance(u64::MAX);
            assert_eq!((link.done.len(), link.next_end_ns()), (2, None));
        }
    }

    /// What is known of copies does not depend on the times at which they were submitted.
    #[test]
    fn steps_of_the_clock_change_nothing() {
        for contention in [1.0, 0.7] {
            let [mut at_once, mut bit_by_bit] = [Link::new(contention), Link::new(contention)];
            for link in [&mut at_once, &mut bit_by_bit] {
                for (index, ready_ns, left_ns) in [(0, 5, 40.0), (1, 6, 35.5), (2, 60, 1.0), (3, 300, 20.25)] {
                    let direction = [TransferDirection::GpuToCpu, TransferDirection::CpuToGpu][index as usize % 2];
                    link.submit(copy(index, direction, ready_ns, left_ns));
                }
            }
            at_once.advance(1_000);
            (0..=1_000).step_by(7).for_each(|to_ns| bit_by_bit.advance(to_ns));
            bit_by_bit.advance(1_000);
            let near = at_once.done.iter().zip(&bit_by_bit.done).all(|(one, other)| {
                one.event.index == other.event.index && one.event.end_ns.abs_diff(other.event.end_ns) <= 2
            });
            assert!(near && at_once.done.len() == 4, "{:?} {:?}", at_once.done, bit_by_bit.done);
        }
    }

    /// Each runs at half its speed while both do: the load takes 60 ns from 10 on. By then the store has done 10 alone and 30 with
    /// it, so that 60 are left.
    #[test]
    fn directions_slow_each_other_down() {
        let mut link = Link::new(0.5);
        link.submit(copy(0, TransferDirection::GpuToCpu, 0, 100.0));
        link.submit(copy(1, TransferDirection::CpuToGpu, 10, 30.0));
        assert_eq!(ends(&mut link), [(1, 70), (0, 130)]);
    }
}

//! Requests that were sent but have not reached the engine, and the front end's event loop, which they share.
#![expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "times are non-negative and bounded")]

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use ridgepoint::units::ns_to_us;
use ridgepoint::{Error, Result};

use crate::workload::limits::MAX_STAGES;
use crate::workload::{Workload, WorkloadRequest};

/// A request on its way to the engine, in the order in which they reach it; of two at once, the one sent first.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Pending {
    /// When it reaches the engine; within the loop the delay behind that.
    pub(super) visible_ns: u64,
    pub(super) record: u32,
    pub(super) request: WorkloadRequest,
}

/// The front end: n event loops of which each of k requests in them gets an n/k-th, at most one, then a delay behind them.
#[derive(Debug)]
pub(super) struct FrontEnd {
    /// Time of the loop that a request takes alone, ns.
    alone_ns: f64,
    /// Number of loops, each a process.
    num_loops: f64,
    /// The requests in the loop in the order in which they leave it, which is that in which they came, each with the progress at which it
    /// leaves.
    inside: VecDeque<(f64, Pending)>,
    /// Time of the loop that a request which was in it all along would have had, ns; from 0 again when it is empty.
    progress_ns: f64,
    /// When `progress_ns` was counted.
    now_ns: u64,
    /// The requests behind the loop.
    behind: BinaryHeap<Reverse<Pending>>,
}

impl FrontEnd {
    /// A front end of so many loops, which take so long for a request alone; with 0 µs every request passes at once.
    pub(super) fn new(alone_us: f64, num_loops: u32) -> Self {
        let alone_ns = if alone_us.is_finite() { 1e3 * alone_us.max(0.0) } else { 0.0 };
        FrontEnd {
            alone_ns,
            num_loops: f64::from(num_loops.max(1)),
            inside: VecDeque::new(),
            progress_ns: 0.0,
            now_ns: 0,
            behind: BinaryHeap::new(),
        }
    }

    /// Takes a request in that was sent at its arrival; it reaches the engine so long after it has left the loop.
    pub(super) fn enter(&mut self, record: u32, request: WorkloadRequest, delay_ns: u64) {
        let arrival_ns = request.arrival_ns;
        let pending = Pending { visible_ns: delay_ns, record, request };
        if self.alone_ns <= 0.0 {
            self.leave(arrival_ns, pending);
            return;
        }
        self.advance(arrival_ns);
        self.inside.push_back((self.progress_ns + self.alone_ns, pending));
    }

    /// The next request that reaches the engine by now.
    pub(super) fn take(&mut self, now_ns: u64) -> Option<Pending> {
        self.advance(now_ns);
        self.behind.peek().filter(|Reverse(first)| first.visible_ns <= now_ns)?;
        self.behind.pop().map(|Reverse(pending)| pending)
    }

    /// When to look again, if no request is sent before.
    pub(super) fn next_ns(&self) -> Option<u64> {
        let reaches_ns = self.behind.peek().map(|Reverse(first)| first.visible_ns);
        [reaches_ns, self.next_leaves_ns()].into_iter().flatten().min()
    }

    fn leave(&mut self, at_ns: u64, pending: Pending) {
        let visible_ns = at_ns.saturating_add(pending.visible_ns);
        self.behind.push(Reverse(Pending { visible_ns, ..pending }));
    }

    /// When the next request leaves the loop.
    fn next_leaves_ns(&self) -> Option<u64> {
        let (due_ns, _) = self.inside.front()?;
        let left_ns = (due_ns - self.progress_ns).max(0.0) * self.sharing();
        Some(self.now_ns.saturating_add(left_ns.ceil() as u64))
    }

    /// Requests that share a loop.
    fn sharing(&self) -> f64 {
        (self.inside.len() as f64 / self.num_loops).max(1.0)
    }

    /// Lets time pass in the loops.
    fn advance(&mut self, now_ns: u64) {
        while let Some(next_ns) = self.next_leaves_ns().filter(|next_ns| *next_ns <= now_ns)
            && let Some((due_ns, pending)) = self.inside.pop_front()
        {
            (self.progress_ns, self.now_ns) = (due_ns, next_ns);
            self.leave(next_ns, pending);
        }
        let passed_ns = now_ns.saturating_sub(self.now_ns) as f64;
        self.progress_ns = if self.inside.is_empty() { 0.0 } else { self.progress_ns + passed_ns / self.sharing() };
        self.now_ns = self.now_ns.max(now_ns);
    }
}

/// How long requests are in the front end's event loop, µs, of which each takes `alone_us` alone. Arrivals are in order.
///
/// ```
/// // Two requests at once get half of the loop each.
/// assert_eq!(ridgepoint_replay::front_end_times_us(10.0, &[0, 0, 100_000]), [20.0, 20.0, 10.0]);
/// ```
pub fn front_end_times_us(alone_us: f64, arrivals_ns: &[u64]) -> Vec<f64> {
    let mut front_end = FrontEnd::new(alone_us, 1);
    for (record, arrival_ns) in (0..).zip(arrivals_ns) {
        front_end.enter(record, WorkloadRequest::new(*arrival_ns, 1, 1), 0);
    }
    let mut times_us = vec![0.0; arrivals_ns.len()];
    while let Some(now_ns) = front_end.next_ns() {
        while let Some(Pending { visible_ns, record, request }) = front_end.take(now_ns) {
            if let Some(time_us) = times_us.get_mut(record as usize) {
                *time_us = ns_to_us(visible_ns.saturating_sub(request.arrival_ns));
            }
        }
    }
    times_us
}

/// The request that a workload announced, by its place among those that were sent.
///
/// # Errors
/// `ErrorKind::InvalidRequest` if there is none.
pub(super) fn announced(workload: &mut (impl Workload + ?Sized), index: usize) -> Result<WorkloadRequest> {
    let problem = "the workload announced a request but returned none";
    workload.next_request().ok_or_else(|| Error::invalid_requests(&[(index, problem.to_owned())]))
}

/// Checks the workload's `index`-th request, which must not arrive before `not_before_ns`: its announced time, and the arrival
/// before it.
pub(super) fn check(request: &WorkloadRequest, index: usize, not_before_ns: u64) -> Result<()> {
    let refused = |field: &str, value: u64, reason: String| {
        Err(Error::invalid_requests(&[(index, format!("{field} = {value} {reason}"))]))
    };
    if request.num_prompt_tokens == 0 {
        return refused("num_prompt_tokens", 0, "must be at least 1".to_owned());
    }
    if request.num_output_tokens == 0 {
        return refused("num_output_tokens", 0, "must be at least 1: a prompt alone samples one token".to_owned());
    }
    if request.stage >= MAX_STAGES {
        return refused("stage", request.stage.into(), format!("must be below {MAX_STAGES}"));
    }
    if request.arrival_ns < not_before_ns {
        let reason = format!("is before the request sent before it ({not_before_ns}); sort requests by arrival");
        return refused("arrival_ns", request.arrival_ns, reason);
    }
    if index >= u32::MAX as usize {
        return refused("number of requests", index as u64, format!("must be below {}", u32::MAX));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reached(alone_us: f64, delay_us: u64, arrivals_us: &[u64]) -> Vec<(u32, u64)> {
        reached_by(1, alone_us, delay_us, arrivals_us)
    }

    fn reached_by(loops: u32, alone_us: f64, delay_us: u64, arrivals_us: &[u64]) -> Vec<(u32, u64)> {
        let mut front_end = FrontEnd::new(alone_us, loops);
        for (record, arrival_us) in (0..).zip(arrivals_us) {
            front_end.enter(record, WorkloadRequest::new(1000 * arrival_us, 1, 1), 1000 * delay_us);
        }
        let mut found = Vec::new();
        while let Some(now_ns) = front_end.next_ns() {
            found.extend(front_end.take(now_ns).map(|of| (of.record, of.visible_ns / 1000)));
        }
        found
    }

    #[test]
    fn requests_share_the_loop() {
        // Alone: 10 µs.
        assert_eq!(reached(10.0, 0, &[5, 100]), [(0, 15), (1, 110)]);
        // Four at once take forty.
        assert_eq!(reached(10.0, 0, &[0, 0, 0, 0]), [(0, 40), (1, 40), (2, 40), (3, 40)]);
        // The first has 4 µs alone, then half of the loop: 6 µs more take 12. The second has had 6 by then, and 4 alone.
        assert_eq!(reached(10.0, 0, &[0, 4]), [(0, 16), (1, 20)]);
        // The delay behind the loop is nobody else's.
        assert_eq!(reached(10.0, 7, &[0, 0]), [(0, 27), (1, 27)]);
        assert_eq!(reached(0.0, 7, &[0, 0, 3]), [(0, 7), (1, 7), (2, 10)]);
    }

    #[test]
    fn requests_spread_over_the_loops_of_several_processes() {
        // Two in two loops have one each; four have half of one, and all of it once two are left.
        assert_eq!(reached_by(2, 10.0, 0, &[0, 0]), [(0, 10), (1, 10)]);
        assert_eq!(reached_by(2, 10.0, 0, &[0, 0, 0, 0]), [(0, 20), (1, 20), (2, 20), (3, 20)]);
        // The third shares from 4 µs on: three have two thirds each. The first two lack 6 µs, which take 9; the third then has 6 and lacks 4.
        assert_eq!(reached_by(2, 10.0, 0, &[0, 0, 4]), [(0, 13), (1, 13), (2, 17)]);
    }
}

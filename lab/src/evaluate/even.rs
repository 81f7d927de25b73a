//! A workload's requests at equal distances, as far as it does not wait for what is in flight. Uses `workload`.

use std::collections::VecDeque;

use ridgepoint::workload::{Workload, WorkloadRequest};

/// Requests that another workload offers at once, as a stage of an open loop, at equal distances between the first and the
/// last of them. Those that come one by one, as in a closed loop, keep their times.
pub(super) struct EvenlySpaced {
    inner: Box<dyn Workload + Send>,
    offered: VecDeque<WorkloadRequest>,
}

impl EvenlySpaced {
    pub(super) fn new(inner: Box<dyn Workload + Send>) -> Self {
        let mut even = EvenlySpaced { inner, offered: VecDeque::new() };
        even.take_offered();
        even
    }

    fn take_offered(&mut self) {
        if !self.offered.is_empty() {
            return;
        }
        self.offered = std::iter::from_fn(|| self.inner.next_request()).collect();
        let (Some(first), Some(last)) = (self.offered.front(), self.offered.back()) else { return };
        let (first_ns, span_ns) = (first.arrival_ns, u128::from(last.arrival_ns - first.arrival_ns));
        let gaps = (self.offered.len() - 1).max(1) as u128;
        for (index, request) in self.offered.iter_mut().enumerate() {
            request.arrival_ns = first_ns + u64::try_from(span_ns * index as u128 / gaps).unwrap_or(0);
        }
    }
}

impl Workload for EvenlySpaced {
    fn next_arrival_ns(&self) -> Option<u64> {
        self.offered.front().map(|request| request.arrival_ns)
    }
    fn next_request(&mut self) -> Option<WorkloadRequest> {
        let request = self.offered.pop_front();
        self.take_offered();
        request
    }
    fn finished(&mut self, now_ns: u64, stage: u32) {
        self.inner.finished(now_ns, stage);
        self.take_offered();
    }
    fn expected_requests(&self) -> Option<usize> {
        self.inner.expected_requests()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two stages, the second once two requests of the first are finished.
    struct Stages(Vec<VecDeque<u64>>, usize);

    impl Workload for Stages {
        fn next_arrival_ns(&self) -> Option<u64> {
            self.0[self.1 / 2].front().copied()
        }
        fn next_request(&mut self) -> Option<WorkloadRequest> {
            let arrival_ns = self.0[self.1 / 2].pop_front()?;
            Some(WorkloadRequest::new(arrival_ns, 10, 5))
        }
        fn finished(&mut self, _: u64, _: u32) {
            self.1 += 1;
        }
    }

    fn drain(workload: &mut dyn Workload) -> Vec<u64> {
        std::iter::from_fn(|| workload.next_request()).map(|request| request.arrival_ns).collect()
    }

    #[test]
    fn stages_keep_their_ends_and_wait_for_each_other() {
        let stages = vec![[100, 110, 400].into(), [1000, 1001, 1003, 1900].into()];
        let mut even = EvenlySpaced::new(Box::new(Stages(stages, 0)));
        assert_eq!(drain(&mut even), [100, 250, 400]);
        assert_eq!(even.next_arrival_ns(), None);
        even.finished(500, 0);
        assert_eq!(even.next_arrival_ns(), None);
        even.finished(600, 0);
        assert_eq!(even.next_arrival_ns(), Some(1000));
        assert_eq!(drain(&mut even), [1000, 1300, 1600, 1900]);
    }
}

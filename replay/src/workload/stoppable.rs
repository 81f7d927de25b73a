//! A workload whose replay can be stopped from another thread.

use std::sync::atomic::{AtomicBool, Ordering};

use super::{Workload, WorkloadRequest};

/// A workload that ends its replay with an error at the next step once `stop` is set. It then announces a request and has none, which
/// a replay refuses. So the loop of the replay needs no test of `stop`.
pub struct Stoppable<'a> {
    workload: &'a mut dyn Workload,
    stop: &'a AtomicBool,
}

impl<'a> Stoppable<'a> {
    /// Sends the requests of `workload` until `stop` is set.
    pub fn new(workload: &'a mut dyn Workload, stop: &'a AtomicBool) -> Self {
        Stoppable { workload, stop }
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

impl Workload for Stoppable<'_> {
    fn next_arrival_ns(&self) -> Option<u64> {
        if self.is_stopped() { Some(0) } else { self.workload.next_arrival_ns() }
    }

    fn next_request(&mut self) -> Option<WorkloadRequest> {
        if self.is_stopped() { None } else { self.workload.next_request() }
    }

    fn finished(&mut self, now_ns: u64, stage: u32, request: u32) {
        self.workload.finished(now_ns, stage, request);
    }

    fn expected_requests(&self) -> Option<usize> {
        self.workload.expected_requests()
    }
}

#[cfg(test)]
mod tests {
    use ridgepoint::latency::FixedLatency;
    use ridgepoint::{Deployment, ErrorKind};

    use super::super::{FixedList, WorkloadRequest};
    use super::*;
    use crate::{EngineConfig, Event, Events, Observer, replay};

    /// Sets the flag at a step.
    struct StopAt<'a>(u64, &'a AtomicBool, u64);

    impl Observer for StopAt<'_> {
        fn wants(&self) -> Events {
            Events::STEPS
        }

        fn on(&mut self, event: &Event<'_>) {
            let Event::Step(event) = event else { return };
            self.2 = event.index;
            self.1.store(event.index >= self.0, Ordering::Relaxed);
        }
    }

    fn steps_until(stop_at: u64) -> (u64, Option<ErrorKind>) {
        let stop = AtomicBool::new(false);
        let mut list = FixedList::new(vec![WorkloadRequest::new(0, 100, 1000)]).unwrap();
        let latency = FixedLatency { step_us: 10.0, ..FixedLatency::default() };
        let config = EngineConfig::new(&Deployment::default(), 4096, 1000);
        let mut observer = StopAt(stop_at, &stop, 0);
        let replayed = replay(&latency, &config, &mut Stoppable::new(&mut list, &stop), &mut [&mut observer]);
        (observer.2, replayed.err().map(|error| error.kind()))
    }

    #[test]
    fn a_replay_ends_at_the_step_after_the_stop() {
        // The prompt and 999 further tokens are 1,000 steps. One more may be scheduled ahead of the stop.
        assert_eq!(steps_until(u64::MAX), (999, None));
        let (last, error) = steps_until(10);
        assert_eq!(error, Some(ErrorKind::InvalidRequest));
        assert!((10..=12).contains(&last), "{last}");
    }
}

//! A server that is not ready when its requests arrive. The engine's loop is not touched: a workload holds the requests back, and a
//! latency model lets the first step take longer.

use std::sync::atomic::{AtomicBool, Ordering};

use ridgepoint::Step;
use ridgepoint::latency::{HostTimes, LatencyModel, TransferDirection, non_negative};
use ridgepoint::units::ns_to_s;
use serde::Serialize;

use super::distribution::Distribution;
use super::record::{Outcome, Replay, RequestRecord};
use crate::workload::{Workload, WorkloadRequest};

/// A workload before a server that starts. Requests that arrive before the server is ready wait in front of it, as a gateway holds them,
/// and reach it together once it is ready. Requests that arrive before the start are another server's and left out.
pub struct HeldRequests<'a> {
    workload: &'a mut dyn Workload,
    ready_ns: u64,
    /// The times at which clients sent their requests.
    arrivals_ns: Vec<u64>,
    left_out: u64,
}

impl<'a> HeldRequests<'a> {
    /// Leaves out the requests before `start_ns`, and holds the others until `ready_ns`.
    pub fn new(workload: &'a mut dyn Workload, start_ns: u64, ready_ns: u64) -> Self {
        let mut left_out = 0;
        while workload.next_arrival_ns().is_some_and(|arrival_ns| arrival_ns < start_ns) {
            if workload.next_request().is_none() {
                break;
            }
            left_out += 1;
        }
        HeldRequests { workload, ready_ns: ready_ns.max(start_ns), arrivals_ns: Vec::new(), left_out }
    }

    /// Puts the times at which clients sent their requests back into the records of a replay, and separates the requests that
    /// waited for the start.
    pub fn restore(&self, replay: &mut Replay) -> HeldReport {
        for (record, arrival_ns) in replay.records.iter_mut().zip(&self.arrivals_ns) {
            record.arrival_ns = *arrival_ns;
        }
        let waited = |record: &&RequestRecord| record.arrival_ns < self.ready_ns;
        let group = |is_waiting: bool| {
            let records: Vec<&RequestRecord> =
                replay.records.iter().filter(|record| waited(record) == is_waiting).collect();
            let finished = records.iter().filter(|record| record.outcome == Outcome::Finished);
            let ttft_ms: Vec<f64> = finished.clone().map(|record| record.ttft_ms()).collect();
            HeldGroup {
                requests: records.len() as u64,
                finished: ttft_ms.len() as u64,
                ttft_ms: Distribution::of(ttft_ms),
                last_first_token_s: finished.map(|record| record.first_token_ns).max().map(ns_to_s),
            }
        };
        let sent = self.left_out.saturating_add(replay.records.len() as u64);
        let expected = self.workload.expected_requests().map_or(sent, |expected| expected as u64);
        // Without requests that were left out, the engine itself ended the load.
        let never_sent = if self.left_out > 0 { expected.saturating_sub(sent) } else { 0 };
        HeldReport { left_out: self.left_out, never_sent, waited: group(true), later: group(false) }
    }
}

impl Workload for HeldRequests<'_> {
    fn next_arrival_ns(&self) -> Option<u64> {
        self.workload.next_arrival_ns().map(|arrival_ns| arrival_ns.max(self.ready_ns))
    }

    fn next_request(&mut self) -> Option<WorkloadRequest> {
        let request = self.workload.next_request()?;
        self.arrivals_ns.push(request.arrival_ns);
        Some(WorkloadRequest { arrival_ns: request.arrival_ns.max(self.ready_ns), ..request })
    }

    fn finished(&mut self, now_ns: u64, stage: u32, request: u32) {
        let left_out = u32::try_from(self.left_out).unwrap_or(u32::MAX);
        self.workload.finished(now_ns, stage, request.saturating_add(left_out));
    }

    fn expected_requests(&self) -> Option<usize> {
        let left_out = usize::try_from(self.left_out).unwrap_or(usize::MAX);
        self.workload.expected_requests().map(|expected| expected.saturating_sub(left_out))
    }
}

/// The requests of a replay that waited for the server's start, and those after it. JSON keys are stable.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HeldReport {
    /// Requests before the start, which other servers answer.
    pub left_out: u64,
    /// Requests that wait for those to finish and are therefore never sent: later turns of sessions, or stages of a profile.
    pub never_sent: u64,
    /// Requests that arrived before the server was ready.
    pub waited: HeldGroup,
    /// Requests that arrived later.
    pub later: HeldGroup,
}

/// Some requests of a replay.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HeldGroup {
    /// Requests that were sent.
    pub requests: u64,
    /// Requests whose client has every token.
    pub finished: u64,
    /// Time to first token of the finished ones, ms.
    pub ttft_ms: Option<Distribution>,
    /// Time at which the last of the finished ones had its first token, s from the start of the load.
    pub last_first_token_s: Option<f64>,
}

/// A latency model whose first step takes longer than the others, as kernels are loaded at their first use.
///
/// It makes no promise of purity, because the first call differs: a replay calls once for each step.
pub struct ColdSteps<'a> {
    model: &'a dyn LatencyModel,
    first_step_us: f64,
    is_warm: AtomicBool,
}

impl<'a> ColdSteps<'a> {
    /// Adds `first_step_us` to the first step of `model`.
    pub fn new(model: &'a dyn LatencyModel, first_step_us: f64) -> Self {
        ColdSteps { model, first_step_us: non_negative(first_step_us), is_warm: AtomicBool::new(false) }
    }
}

impl LatencyModel for ColdSteps<'_> {
    fn step_time_us(&self, step: &Step<'_>) -> f64 {
        let step_us = self.model.step_time_us(step);
        if self.is_warm.swap(true, Ordering::Relaxed) { step_us } else { step_us + self.first_step_us }
    }

    fn host(&self) -> HostTimes {
        self.model.host()
    }

    fn kv_transfer_time_us(&self, direction: TransferDirection, bytes: u64) -> f64 {
        self.model.kv_transfer_time_us(direction, bytes)
    }
}

#[cfg(test)]
mod tests {
    use ridgepoint::Deployment;
    use ridgepoint::latency::FixedLatency;

    use super::*;
    use crate::workload::{ClosedLoop, FixedList};
    use crate::{EngineConfig, replay};

    const MS: u64 = 1_000_000;

    fn list(arrivals_ms: &[u64]) -> FixedList {
        FixedList::new(arrivals_ms.iter().map(|ms| WorkloadRequest::new(ms * MS, 100, 3)).collect()).unwrap()
    }

    fn replayed(workload: &mut dyn Workload, start_ms: u64, ready_ms: u64, first_step_us: f64) -> (Replay, HeldReport) {
        let fixed = FixedLatency { step_us: 10_000.0, ..FixedLatency::default() };
        let cold = ColdSteps::new(&fixed, first_step_us);
        let config = EngineConfig::new(&Deployment::default(), 4096, 1000);
        let mut held = HeldRequests::new(workload, start_ms * MS, ready_ms * MS);
        let mut found = replay(&cold, &config, &mut held, &mut []).unwrap();
        let report = held.restore(&mut found);
        (found, report)
    }

    #[test]
    fn requests_before_the_server_is_ready_wait_for_it() {
        let (found, report) = replayed(&mut list(&[0, 700, 5000]), 0, 2000, 40_000.0);
        let ttft_ms: Vec<f64> = found.records.iter().map(RequestRecord::ttft_ms).collect();
        // Both wait for 2 s and share the first step of 10 + 40 ms; the third comes to a warm server.
        assert_eq!(ttft_ms, [2050.0, 1350.0, 10.0]);
        let e2e_ms: Vec<f64> = found.records.iter().map(RequestRecord::e2e_ms).collect();
        assert_eq!(e2e_ms, [2070.0, 1370.0, 30.0]);
        assert_eq!((report.waited.requests, report.later.requests, report.left_out), (2, 1, 0));
        assert_eq!(report.waited.ttft_ms.map(|of| of.mean), Some(1700.0));
        assert_eq!(report.waited.last_first_token_s, Some(2.05));
        assert_eq!(report.later.ttft_ms.map(|of| of.mean), Some(10.0));
    }

    #[test]
    fn a_server_that_is_ready_at_once_changes_nothing() {
        let arrivals = [0, 3, 3, 40, 900];
        let fixed = FixedLatency { step_us: 10_000.0, ..FixedLatency::default() };
        let config = EngineConfig::new(&Deployment::default(), 4096, 1000);
        let warm = replay(&fixed, &config, &mut list(&arrivals), &mut []).unwrap();
        let (cold, report) = replayed(&mut list(&arrivals), 0, 0, 0.0);
        assert_eq!((cold.records, cold.counters), (warm.records, warm.counters));
        assert_eq!((report.waited.requests, report.later.requests), (0, 5));
    }

    #[test]
    fn requests_before_a_scale_up_are_left_out() {
        let (found, report) = replayed(&mut list(&[0, 999, 1000, 1500, 4000]), 1000, 3000, 0.0);
        assert_eq!((report.left_out, report.waited.requests, report.later.requests), (2, 2, 1));
        let ttft_ms: Vec<f64> = found.records.iter().map(RequestRecord::ttft_ms).collect();
        assert_eq!(ttft_ms, [2010.0, 1510.0, 10.0]);
    }

    #[test]
    fn requests_that_wait_for_those_left_out_are_counted() {
        let mut load = ClosedLoop::new(2, 6, crate::workload::RequestShape::new(100, 3)).unwrap();
        // Both requests of time 0 are another server's, and no other one is sent before they finish.
        let (found, report) = replayed(&mut load, 500, 1000, 0.0);
        assert_eq!((found.records.len(), report.left_out, report.never_sent), (0, 2, 4));
        let (_, report) = replayed(&mut list(&[0, 999, 1000]), 1000, 3000, 0.0);
        assert_eq!((report.left_out, report.never_sent), (2, 0));
    }

    #[test]
    fn a_closed_loop_goes_on_once_the_server_is_ready() {
        let mut load = ClosedLoop::new(2, 6, crate::workload::RequestShape::new(100, 3)).unwrap();
        let (found, report) = replayed(&mut load, 0, 1000, 0.0);
        assert_eq!((found.records.len(), report.waited.requests), (6, 2));
        assert!(found.records.iter().all(|record| record.outcome == Outcome::Finished));
        assert_eq!(report.later.ttft_ms.map(|of| of.max), Some(10.0));
    }
}

//! Compares requests with the steps of the same run, and collects the host delays.

use std::collections::BTreeMap;

use serde::Serialize;

use super::request::{RequestRow, RequestTrace};
use super::step::{StepRecord, StepTrace};
use super::whole::Whole;
use crate::stats::median;
use ridgepoint::units::{NS_PER_MS, ns_to_us};

/// The scheduler records its times one after the other. Times within this are the same moment.
const SAME_MOMENT_NS: u64 = NS_PER_MS;

/// Host delays, µs, of the requests that have both times: queueing and token delays are fitted to them. A pair whose later time is
/// before the earlier one is left out and counted.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct HostDelays {
    /// From arrival at the server to the scheduler's queue, with the prompt's tokens: reading, tokenising and handover.
    pub arrival_to_queued_us: Vec<(u64, f64)>,
    /// From arrival to the handover to the engine, with the prompt's tokens.
    pub arrival_to_handed_over_us: Vec<(u64, f64)>,
    /// From the handover to the scheduler's queue.
    pub handed_over_to_queued_us: Vec<f64>,
    /// From the queue to the first step.
    pub queued_to_scheduled_us: Vec<f64>,
    /// From the engine's first token to the first response: the processing of output tokens.
    pub token_to_client_us: Vec<f64>,
    /// From the engine's last token to the end of the response.
    pub finish_to_client_us: Vec<f64>,
    /// Pairs in the wrong order, and queues after the response: clocks of different machines, or events recorded late.
    pub negative: u64,
}

/// A host delay over a run's requests.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Delay {
    /// Requests with both times of it.
    pub count: usize,
    /// Its median, µs.
    pub median_us: f64,
}

impl HostDelays {
    /// The delays that have values, by name.
    fn medians(self) -> BTreeMap<&'static str, Delay> {
        let second = |pairs: Vec<(u64, f64)>| pairs.into_iter().map(|(_, us)| us).collect::<Vec<f64>>();
        let mut medians = BTreeMap::new();
        for (name, values) in [
            ("arrival_to_queued_us", second(self.arrival_to_queued_us)),
            ("arrival_to_handed_over_us", second(self.arrival_to_handed_over_us)),
            ("handed_over_to_queued_us", self.handed_over_to_queued_us),
            ("queued_to_scheduled_us", self.queued_to_scheduled_us),
            ("token_to_client_us", self.token_to_client_us),
            ("finish_to_client_us", self.finish_to_client_us),
        ] {
            let count = values.len();
            medians.extend(median(values).map(|median_us| (name, Delay { count, median_us })));
        }
        medians
    }

    /// Adds the delays of a request, which was in front of a busy engine for `wait_us` of its way to the queue; `None` where that is
    /// not known well enough to determine its delay. Returns its prompt tokens and its delay before the queue, if that was added.
    pub(crate) fn add(&mut self, row: &RequestRow, wait_us: Option<f64>) -> Option<(u64, f64)> {
        // What the scheduler queues after the response has ended is on another clock.
        let queued_ns = row.queued_ns.filter(|queued| row.departed_ns.is_none_or(|departed| *queued <= departed));
        self.negative += u64::from(queued_ns < row.queued_ns);
        let negative = &mut self.negative;
        let mut delay = |from: Option<Whole>, to: Option<Whole>| {
            let (from, to) = (from?, to?);
            *negative += u64::from(to < from);
            to.since(from).map(ns_to_us)
        };
        let with_prompt = |us: Option<f64>| Some((row.num_prompt_tokens?.get(), us?));
        let arrival_to_queued_us = delay(row.arrived_ns, queued_ns).zip(wait_us).map(|(us, wait_us)| us - wait_us);
        let before_queue = with_prompt(arrival_to_queued_us);
        self.arrival_to_queued_us.extend(before_queue);
        self.arrival_to_handed_over_us.extend(with_prompt(delay(row.arrived_ns, row.handed_over_ns)));
        self.handed_over_to_queued_us.extend(delay(row.handed_over_ns, queued_ns));
        self.queued_to_scheduled_us.extend(delay(row.queued_ns, row.scheduled_ns));
        self.token_to_client_us.extend(delay(row.first_token_ns, row.first_response_ns));
        self.finish_to_client_us.extend(delay(row.finished_ns, row.departed_ns));
        before_queue
    }
}

/// One run's requests compared with its steps.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct JoinedRun {
    /// Name of the run.
    pub experiment: String,
    /// Requests of the run.
    pub requests: u64,
    /// Requests whose first step is in the trace.
    pub step_found: u64,
    /// Requests whose first step is not in the trace, because steps are sampled.
    pub step_not_sampled: u64,
    /// Requests that do not name the step in which they were first scheduled.
    pub without_step: u64,
    /// Requests that were scheduled more than 1 ms before their step began or after the next step in the trace did, or whose
    /// first token or end is in a step before it: requests and steps are not of one engine or clock.
    pub mismatched: u64,
    /// Pairs of times in the wrong order.
    pub negative_delays: u64,
    /// Host delays by name, where both of their times are known.
    pub delays: BTreeMap<&'static str, Delay>,
}

impl JoinedRun {
    /// Returns whether the requests have a relation to an engine's steps; those of load generators have none.
    pub fn has_engine(&self) -> bool {
        self.without_step < self.requests || !self.delays.is_empty()
    }
}

/// Compares the requests of each run with the steps of the run of the same name, if there is one.
///
/// # Source
/// vLLM's journey tracing: `scheduler.step` of a journey's event is the `step.id` of the step trace.
pub fn join(steps: &[&StepTrace], requests: &[RequestTrace]) -> Vec<JoinedRun> {
    let of = |trace: &RequestTrace| {
        let same = steps.iter().find(|steps| steps.run.experiment == trace.run.experiment);
        join_run(same.map_or(&[], |steps| &steps.steps), trace)
    };
    requests.iter().map(of).collect()
}

fn join_run(steps: &[StepRecord], trace: &RequestTrace) -> JoinedRun {
    let mut host = HostDelays::default();
    let mut joined = JoinedRun { experiment: trace.run.experiment.clone(), ..JoinedRun::default() };
    for row in &trace.requests {
        joined.requests += 1;
        host.add(row, Some(0.0));
        let ids = [row.scheduled_step, row.first_token_step, row.finished_step];
        let mut mismatched = !ids.iter().flatten().is_sorted();
        match row.scheduled_step.map(|id| steps.binary_search_by_key(&id.get(), |step| step.step_id)) {
            None => joined.without_step += 1,
            Some(Err(_)) => joined.step_not_sampled += 1,
            Some(Ok(at)) => {
                joined.step_found += 1;
                let step_start_ns = steps.get(at).map(|step| step.start_ns);
                let next_ns = steps.get(at + 1).map(|step| step.start_ns);
                mismatched |= row.scheduled_ns.map(Whole::get).is_some_and(|scheduled_ns| {
                    let too_early = step_start_ns.is_some_and(|ns| scheduled_ns.saturating_add(SAME_MOMENT_NS) < ns);
                    too_early || next_ns.is_some_and(|ns| scheduled_ns > ns.saturating_add(SAME_MOMENT_NS))
                });
            }
        }
        joined.mismatched += u64::from(mismatched);
    }
    joined.negative_delays = host.negative;
    joined.delays = host.medians();
    joined
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ingest::Run;

    fn row(arrived_us: u64, queued_us: u64, scheduled_us: u64, step: Option<u64>) -> RequestRow {
        RequestRow {
            arrived_ns: Some((arrived_us * 1_000).into()),
            handed_over_ns: Some((arrived_us * 1_000 + 500).into()),
            queued_ns: Some((queued_us * 1_000).into()),
            scheduled_ns: Some((scheduled_us * 1_000).into()),
            scheduled_step: step.map(Whole::from),
            num_prompt_tokens: Some(575.into()),
            ..RequestRow::default()
        }
    }

    fn joined(rows: Vec<RequestRow>) -> JoinedRun {
        let run = Run { experiment: "a".to_owned(), ..Run::default() };
        let step = |step_id, start_us: u64| StepRecord { step_id, start_ns: start_us * 1_000, ..StepRecord::default() };
        let steps = vec![step(10, 100_000), step(11, 120_000), step(15, 200_000)];
        let other = StepTrace { run: Run { experiment: "b".to_owned(), ..Run::default() }, steps: vec![step(12, 0)] };
        let steps = StepTrace { run: run.clone(), steps };
        join(&[&other, &steps], &[RequestTrace { run, requests: rows }]).remove(0)
    }

    #[test]
    fn requests_find_their_steps_and_waits() {
        let joined = joined(vec![
            row(90_000, 93_000, 100_250, Some(10)),
            row(100_000, 104_000, 140_000, Some(12)),
            row(110_000, 113_000, 120_000, None),
        ]);
        assert_eq!((joined.requests, joined.step_found, joined.step_not_sampled, joined.without_step), (3, 1, 1, 1));
        assert_eq!(joined.mismatched, 0);
        assert_eq!(joined.delays["queued_to_scheduled_us"], Delay { count: 3, median_us: 7_250.0 });
        assert_eq!(joined.delays["arrival_to_queued_us"], Delay { count: 3, median_us: 3_000.0 });
        assert_eq!(joined.delays["handed_over_to_queued_us"], Delay { count: 3, median_us: 2_999.5 });
        assert!(!joined.delays.contains_key("token_to_client_us"));
    }

    #[test]
    fn journeys_of_another_engine_are_mismatches() {
        let joined = joined(vec![
            row(1, 2, 90_000, Some(10)),
            row(1, 2, 210_000, Some(11)),
            row(1, 2, 199_000, Some(11)),
            RequestRow { first_token_step: Some(9.into()), ..row(1, 2, 100_000, Some(10)) },
            row(900_000, 2, 250_000, Some(15)),
        ]);
        assert_eq!((joined.step_found, joined.mismatched), (5, 3));
        // Arrived after it was queued: both pairs that begin before the queue.
        assert_eq!(joined.negative_delays, 2);
        assert_eq!(joined.delays["arrival_to_queued_us"].count, 4);
    }

    #[test]
    fn what_is_queued_after_its_response_is_on_another_clock() {
        let answered = RequestRow { departed_ns: Some(5_000_000.into()), ..row(1, 8_000, 9_000, None) };
        let joined = joined(vec![answered]);
        assert_eq!((joined.negative_delays, joined.delays["queued_to_scheduled_us"].count), (1, 1));
        assert!(!joined.delays.contains_key("arrival_to_queued_us"), "{joined:?}");
    }
}

//! The requests of a captured run through the replay: what clients see, by a correction and by simpler predictions. Uses `evaluate::capture`.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use ridgepoint::latency::{BlackBox, CalibratedRoofline, LatencyModel};
use ridgepoint::units::US_PER_MS;
use ridgepoint::{Correction, Error, Request, Result, StepModel};
use ridgepoint_replay::EngineConfig;

use super::fit_steps::{Alignment, StepRun};
use super::simpler::{ByTrees, Predicted, Simpler};
use crate::evaluate::capture::{NO_TIME_MS, ReplayedRequest, RequestTimes, replayed_requests};
use crate::ingest::RequestRow;
use crate::stats::mean;

/// A request whose wait in the queue by the replay is a larger share of its TTFT says nothing of its delays.
const MOST_WAIT_SHARE: f64 = 0.1;

/// The requests of a run, and the engine on which they are replayed.
#[derive(Debug, Clone)]
pub struct Clients {
    /// The requests.
    pub requests: Vec<RequestRow>,
    /// The engine.
    pub engine: EngineConfig,
    /// The engine's arguments are those that the capture shows. Whether it schedules asynchronously follows from its steps then.
    pub is_assumed: bool,
}

/// Times of requests that arrive after the fitted steps, in ms: as measured, and by each prediction.
pub(super) struct Latencies(Vec<(RequestTimes, Predicted<RequestTimes>)>);

impl Latencies {
    /// One time of every request that has it; none where half of the times are 0.
    pub(super) fn pairs(&self, time: impl Fn(&RequestTimes) -> Option<f64>) -> Vec<(f64, Predicted<f64>)> {
        let pair = |(measured, predicted): &(RequestTimes, Predicted<RequestTimes>)| {
            Some((time(measured)?, predicted.map(|of| time(&of?))))
        };
        let pairs: Vec<_> = self.0.iter().filter_map(pair).collect();
        let short = pairs.iter().filter(|(measured, _)| *measured < NO_TIME_MS).count();
        if 2 * short < pairs.len() { pairs } else { Vec::new() }
    }
}

impl Clients {
    /// The engine as the runs' steps show it.
    ///
    /// # Errors
    /// More running requests in the capture than the engine takes.
    fn engine(&self, runs: &[StepRun<'_>]) -> Result<EngineConfig> {
        let mut engine = self.engine.clone();
        let steps = runs.iter().flat_map(|run| run.case.steps());
        let running = steps.filter_map(|step| step.num_running).max().unwrap_or(0);
        if running > engine.max_num_seqs {
            let most = engine.max_num_seqs;
            let problem = format!("up to {running} requests run at a time in the capture, and max_num_seqs = {most}");
            return Err(Error::invalid("the replayed server", vec![problem]));
        }
        if let Some(run) = runs.iter().find(|run| self.is_assumed && run.slopes.is_some()) {
            engine.scheduler.async_scheduling = run.alignment == Alignment::Before;
        }
        Ok(engine)
    }

    /// Measured and predicted times of the requests that arrive during held-out rows. `runs` are of one server.
    ///
    /// # Errors
    /// Those of [`Clients::engine`] and [`replayed_requests`].
    pub(super) fn latencies(
        &self,
        runs: &[StepRun<'_>],
        correction: &Correction,
        simpler: &Simpler,
    ) -> Result<Latencies> {
        let Some(steps) = runs.first().map(|run| &run.case.calibrated) else { return Ok(Latencies(Vec::new())) };
        let engine = self.engine(runs)?;
        let replayed = |latency: &dyn LatencyModel| replayed_requests(self.requests.clone(), &engine, latency);
        let line = |of: BlackBox| Box::new(of.with_host(&correction.host)) as Box<dyn LatencyModel + '_>;
        let mean_step = simpler.mean_us.map(|beta0_us| BlackBox { beta0_us, ..BlackBox::default() });
        let host = BlackBox::default().with_host(&correction.host).host();
        let by_trees = |trees| Box::new(ByTrees { trees, steps, host }) as Box<dyn LatencyModel + '_>;
        let simpler: [Option<Box<dyn LatencyModel + '_>>; 4] = [
            Some(Box::new(CalibratedRoofline::new(steps.clone()))),
            simpler.line.map(line),
            mean_step.map(line),
            simpler.trees.as_ref().map(by_trees),
        ];
        let is_later = later(runs);
        let later = replayed(&corrected(steps, correction))?.into_iter();
        let later: Vec<ReplayedRequest> = later.filter(|of| is_later(of)).collect();
        let mut found: Vec<(RequestTimes, Predicted<RequestTimes>)> =
            later.iter().map(|of| (of.measured, [Some(of.predicted), None, None, None, None])).collect();
        for (by, latency) in (1..).zip(&simpler) {
            let Some(latency) = latency else { continue };
            let replayed = replayed(&**latency)?;
            let by_id: HashMap<&str, RequestTimes> =
                replayed.iter().map(|of| (&*of.row.request_id, of.predicted)).collect();
            for (of, (_, predicted)) in later.iter().zip(&mut found) {
                if let Some(slot) = predicted.get_mut(by) {
                    *slot = by_id.get(&*of.row.request_id).copied();
                }
            }
        }
        Ok(Latencies(found))
    }

    /// What is left of TTFT over the replay, with the prompts' tokens: the delay before the engine's queue, where the capture does not say
    /// when requests were queued. Of the requests that hardly wait in the replay, and that arrive before rows are held out. With it comes the
    /// mean of their predicted TTFT, µs, of which an error is in what is left.
    ///
    /// # Errors
    /// Those of [`Clients::engine`] and [`replayed_requests`].
    pub(super) fn delays(&self, runs: &[StepRun<'_>], correction: &Correction) -> Result<(Vec<(u64, f64)>, f64)> {
        let Some(steps) = runs.first().map(|run| &run.case.calibrated) else { return Ok((Vec::new(), 0.0)) };
        let host = &correction.host;
        let is_later = later(runs);
        let delay = |of: ReplayedRequest| {
            let row = &of.row;
            let (measured_ms, predicted_ms) = (of.measured.ttft_ms?, of.predicted.ttft_ms?);
            let is_early = row.arrived_ns.is_some() && !is_later(&of);
            let is_served = of.predicted.queue_wait_ms? <= MOST_WAIT_SHARE * measured_ms;
            let tokens = row.num_prompt_tokens?.get();
            let prompt = Request::prefill(u32::try_from(tokens).unwrap_or(u32::MAX), 0);
            let delay_us = US_PER_MS * (measured_ms - predicted_ms) + host.queueing_time_us(&prompt);
            (is_early && is_served).then_some(((tokens, delay_us), US_PER_MS * predicted_ms))
        };
        let latency = corrected(steps, correction);
        let replayed = replayed_requests(self.requests.clone(), &self.engine(runs)?, &latency)?.into_iter();
        let (delays, ttft_us): (Vec<(u64, f64)>, Vec<f64>) = replayed.filter_map(delay).unzip();
        Ok((delays, mean(&ttft_us).unwrap_or(0.0)))
    }
}

/// Whether a request arrives while rows run that were held out.
fn later(runs: &[StepRun<'_>]) -> impl Fn(&ReplayedRequest) -> bool {
    let held_out_ns: Vec<Range<u64>> = runs.iter().filter_map(StepRun::held_out_ns).collect();
    move |of| of.row.arrival_ns().is_some_and(|arrival_ns| held_out_ns.iter().any(|ns| ns.contains(&arrival_ns)))
}

fn corrected(steps: &StepModel, correction: &Correction) -> CalibratedRoofline {
    CalibratedRoofline::new(steps.clone().with_correction(Arc::new(correction.clone())))
}

//! Attributes the error of serving runs: one component of the prediction is replaced at a time, and the replacement is judged as a
//! baseline.
//!
//! A component explains as many points as the absolute error falls when it is replaced. The points of components do not add
//! up to the error: two faults may cancel, and then replacing one makes the error larger (points below zero).

use rayon::prelude::*;

use super::case::Case;
use super::measured::WHOLE_RUN;
use super::metric::{Metric, predicted_ms};
use super::report::{Baseline, EvaluationReport};
use ridgepoint::latency::{CalibratedRoofline, HostTimes, LatencyModel};
use ridgepoint::replay::{EngineConfig, Metrics, replay};
use ridgepoint::{Request, Result};

/// Largest number of replays that the factor of [`Baseline::ScaledStepTimes`] takes.
const FACTOR_REPLAYS: usize = 4;
/// The factor is good enough if the decoding time is within this share of the measured one.
const FACTOR_TOLERANCE: f64 = 1e-3;

/// Replays each judged case with one component replaced at a time, and adds the results as baselines. `done` is called after each of
/// [`Baseline::REPLACED`].
///
/// # Errors
/// As [`Case::replay`].
pub fn attribute(
    cases: &[Case],
    mut report: EvaluationReport,
    seed: u64,
    done: &(dyn Fn() + Sync),
) -> Result<EvaluationReport> {
    report.experiments.par_iter_mut().try_for_each(|result| {
        let Some(case) = cases.iter().find(|case| case.labels == result.labels) else { return Ok(()) };
        for baseline in Baseline::REPLACED {
            if let Some(metrics) = replaced(case, baseline, seed)? {
                result.add_baseline(baseline, &metrics);
            }
            done();
        }
        Ok(())
    })?;
    EvaluationReport::new(report.experiments, report.skipped)
}

/// A replay with a component replaced; `None` if it does not apply.
fn replaced(case: &Case, baseline: Baseline, seed: u64) -> Result<Option<Metrics>> {
    let roofline = case.rooflines.predicted.as_ref();
    let with_engine = |engine: EngineConfig| replay(roofline, &engine, (case.load)(seed).as_mut(), &mut ());
    let engine = case.engine.clone();
    let replay = match baseline {
        Baseline::ScaledStepTimes => match factor_to_measurement(case, roofline, seed)? {
            Some(factor) => case.replay(&Scaled { inner: roofline, factor }, seed)?,
            None => return Ok(None),
        },
        Baseline::NoLimits => {
            with_engine(EngineConfig { max_num_seqs: u32::MAX, max_num_batched_tokens: u32::MAX, ..engine })?
        }
        Baseline::NoPrefixCaching => with_engine(EngineConfig { enable_prefix_caching: false, ..engine })?,
        Baseline::NoAsyncScheduling => with_engine(EngineConfig { async_scheduling: false, ..engine })?,
        Baseline::NoHostOverhead => case.replay(&roofline.clone().with_host(HostTimes::NONE), seed)?,
        _ => return Ok(None),
    };
    Ok(Some(Metrics::of(&replay)))
}

/// The factor on step times that makes the mean time from first to last token the measured one. Decoding time is matched
/// instead of `itl_mean`, because clients may count other output tokens than were generated.
fn factor_to_measurement(case: &Case, roofline: &CalibratedRoofline, seed: u64) -> Result<Option<f64>> {
    let decoding_ms = |of: &dyn Fn(Metric) -> Option<f64>| Some(of(Metric::E2E_MEAN)? - of(Metric::TTFT_MEAN)?);
    let Some(measured_ms) = decoding_ms(&|metric| case.measured.get(WHOLE_RUN, metric)) else { return Ok(None) };
    let mut factor = 1.0;
    for _ in 0..FACTOR_REPLAYS {
        let metrics = Metrics::of(&case.replay(&Scaled { inner: roofline, factor }, seed)?);
        let predicted = decoding_ms(&|metric| predicted_ms(&metrics, None, metric));
        let ratio = predicted.map(|ms| measured_ms / ms).filter(|ratio| ratio.is_finite() && *ratio > 0.0);
        let Some(ratio) = ratio else { return Ok(None) };
        factor *= ratio;
        if (ratio - 1.0).abs() <= FACTOR_TOLERANCE {
            break;
        }
    }
    Ok(Some(factor))
}

/// A latency model with its step times multiplied by a factor.
struct Scaled<'a> {
    inner: &'a CalibratedRoofline,
    factor: f64,
}

impl LatencyModel for Scaled<'_> {
    fn step_time_us(&self, requests: &[Request]) -> f64 {
        self.factor * self.inner.step_time_us(requests)
    }
    fn queueing_time_us(&self, request: &Request) -> f64 {
        self.inner.queueing_time_us(request)
    }
    fn output_token_processing_time_us(&self) -> f64 {
        self.inner.output_token_processing_time_us()
    }
    fn scheduling_processing_time_us(&self) -> f64 {
        self.inner.scheduling_processing_time_us()
    }
    fn preemption_processing_time_us(&self) -> f64 {
        self.inner.preemption_processing_time_us()
    }
}

//! Attributes the error of serving runs: one component of the prediction is replaced at a time, and the error is taken again.
//!
//! A component explains as many points as the absolute error falls when it is replaced. The points of components do not add
//! up to the error: two faults may cancel, and then replacing one makes the error larger (points below zero).

use std::collections::BTreeMap;

use rayon::prelude::*;
use serde::Serialize;

use super::case::Case;
use super::measured::WHOLE_RUN;
use super::metric::{Metric, predicted_ms};
use crate::stats::{error_pct, median};
use ridgepoint::latency::{CalibratedRoofline, HostTimes, LatencyModel};
use ridgepoint::replay::{EngineConfig, Metrics, replay};
use ridgepoint::{Request, Result};

/// Metrics whose error is attributed.
pub const METRICS: [Metric; 3] = [Metric::E2E_MEAN, Metric::TTFT_MEAN, Metric::ITL_MEAN];

/// Largest number of replays that the factor of [`Component::StepTime`] takes.
const FACTOR_REPLAYS: usize = 4;
/// The factor is good enough if the decoding time is within this share of the measured one.
const FACTOR_TOLERANCE: f64 = 1e-3;

/// The replaced component.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Component {
    /// Every step time by one factor, so that the mean time from first to last token is the measured one.
    StepTime,
    /// `max_num_seqs` and `max_num_batched_tokens` without limit: no request waits for others.
    Queueing,
    /// No prefix caching: every prompt is computed whole.
    PrefixCaching,
    /// No step is scheduled while another runs.
    AsyncScheduling,
    /// A host without overhead.
    HostTimes,
}

impl Component {
    /// All components.
    pub const ALL: [Component; 5] = [
        Component::StepTime,
        Component::Queueing,
        Component::PrefixCaching,
        Component::AsyncScheduling,
        Component::HostTimes,
    ];

    /// The replacement in a few words.
    pub fn replacement(self) -> &'static str {
        match self {
            Component::StepTime => "step times scaled to the measured decoding time",
            Component::Queueing => "no limit on requests or tokens of a step",
            Component::PrefixCaching => "no prefix caching",
            Component::AsyncScheduling => "no asynchronous scheduling",
            Component::HostTimes => "a host that takes no time",
        }
    }
}

/// Errors in percent by metric.
pub type Errors = BTreeMap<Metric, f64>;

/// The errors with one component replaced, over all runs to which it applies.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ComponentErrors {
    /// The component.
    pub component: Component,
    /// Its replacement.
    pub replacement: &'static str,
    /// Number of runs.
    pub experiments: usize,
    /// Median absolute error with the replacement, percent.
    pub median_ape_pct: Errors,
    /// Median of the points by which the absolute error falls.
    pub median_explained_points: Errors,
}

/// Where the error comes from.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Attribution {
    /// Median absolute error of the prediction, percent.
    pub median_ape_pct: Errors,
    /// The components.
    pub components: Vec<ComponentErrors>,
}

/// Replays each case with one component replaced at a time. `done` is called after each case and component.
///
/// # Errors
/// As [`Case::replay`].
pub fn attribute(cases: &[&Case], seed: u64, done: &(dyn Fn() + Sync)) -> Result<Attribution> {
    let predicted =
        |case: &&Case| Ok(errors(case, &Metrics::of(&case.replay(case.rooflines.predicted.as_ref(), seed)?)));
    let before: Vec<Errors> = cases.par_iter().map(predicted).collect::<Result<_>>()?;
    let component_errors = |component: Component| {
        let replaced = |case: &&Case| replaced(case, component, seed).inspect(|_| done());
        let after: Vec<Option<Errors>> = cases.par_iter().map(replaced).collect::<Result<_>>()?;
        let pairs = || before.iter().zip(&after).filter_map(|(before, after)| Some((before, after.as_ref()?)));
        let explained = |(before, after): (&Errors, &Errors)| -> Errors {
            let points = |(metric, error): (&Metric, &f64)| Some((*metric, before.get(metric)? - error));
            after.iter().filter_map(points).collect()
        };
        Ok(ComponentErrors {
            component,
            replacement: component.replacement(),
            experiments: pairs().count(),
            median_ape_pct: medians(pairs().map(|(_, after)| after.clone())),
            median_explained_points: medians(pairs().map(explained)),
        })
    };
    let components = Component::ALL.into_iter().map(component_errors).collect::<Result<_>>()?;
    Ok(Attribution { median_ape_pct: medians(before.iter().cloned()), components })
}

fn medians(errors: impl Iterator<Item = Errors>) -> Errors {
    let mut values: BTreeMap<Metric, Vec<f64>> = BTreeMap::new();
    for (metric, error) in errors.flatten() {
        values.entry(metric).or_default().push(error);
    }
    values.into_iter().filter_map(|(metric, values)| Some((metric, median(values)?))).collect()
}

/// Absolute errors of the whole run, percent.
fn errors(case: &Case, metrics: &Metrics) -> Errors {
    let error = |metric: Metric| {
        let measured_ms = case.measured.get(WHOLE_RUN, metric)?;
        Some((metric, error_pct(measured_ms, predicted_ms(metrics, None, metric)?).abs()))
    };
    METRICS.into_iter().filter_map(error).collect()
}

/// The errors with a component replaced; `None` if it does not apply.
fn replaced(case: &Case, component: Component, seed: u64) -> Result<Option<Errors>> {
    let roofline = case.rooflines.predicted.as_ref();
    let with_engine = |engine: EngineConfig| replay(roofline, &engine, (case.load)(seed).as_mut(), &mut ());
    let engine = case.engine.clone();
    let replay = match component {
        Component::StepTime => match factor_to_measurement(case, roofline, seed)? {
            Some(factor) => case.replay(&Scaled { inner: roofline, factor }, seed)?,
            None => return Ok(None),
        },
        Component::Queueing => {
            with_engine(EngineConfig { max_num_seqs: u32::MAX, max_num_batched_tokens: u32::MAX, ..engine })?
        }
        Component::PrefixCaching => with_engine(EngineConfig { enable_prefix_caching: false, ..engine })?,
        Component::AsyncScheduling => with_engine(EngineConfig { async_scheduling: false, ..engine })?,
        Component::HostTimes => case.replay(&roofline.clone().with_host(HostTimes::NONE), seed)?,
    };
    Ok(Some(errors(case, &Metrics::of(&replay))))
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

//! Where the error comes from: one component of the prediction is replaced at a time, and the error is taken again. Uses `case`.
//!
//! A component explains as many points as the absolute error falls when it is replaced. Points of different components do
//! not add up to the error: two faults may cancel, and then replacing one makes the error larger (points below zero).

use std::collections::BTreeMap;

use rayon::prelude::*;
use serde::Serialize;

use super::case::{Case, Rate};
use super::comparison::error_pct;
use super::even::EvenlySpaced;
use super::measured::WHOLE_RUN;
use super::metric::{Metric, predicted_ms};
use crate::stats::median;
use ridgepoint::Request;
use ridgepoint::Result;
use ridgepoint::latency::{CalibratedRoofline, HostTimes, LatencyModel};
use ridgepoint::replay::{EngineConfig, Metrics};

/// Metrics whose error is attributed.
pub const METRICS: [Metric; 3] = [Metric::E2E_MEAN, Metric::TTFT_MEAN, Metric::ITL_MEAN];

/// Replays at most spent on the factor of [`Component::StepTime`].
const FACTOR_REPLAYS: usize = 4;
/// The factor is good enough where the decoding time is within this share of the measured one.
const FACTOR_TOLERANCE: f64 = 1e-3;

/// What is replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Component {
    /// Every step time by one factor, so that the mean time from first to last token is the measured one.
    StepTime,
    /// `max_num_seqs` and `max_num_batched_tokens` without limit: nobody waits for others.
    Queueing,
    /// No prefix caching: every prompt is computed whole.
    PrefixCaching,
    /// No step is scheduled while another runs.
    AsyncScheduling,
    /// A host that takes no time.
    HostTimes,
    /// Requests of a stage at equal distances in place of random ones.
    Arrivals,
    /// KV blocks by the memory equation in place of the reported number.
    KvBlocks,
}

impl Component {
    /// All of them.
    pub const ALL: [Component; 7] = [
        Component::StepTime,
        Component::Queueing,
        Component::PrefixCaching,
        Component::AsyncScheduling,
        Component::HostTimes,
        Component::Arrivals,
        Component::KvBlocks,
    ];

    /// What it is, in a few words.
    pub fn subject(self) -> &'static str {
        match self {
            Component::StepTime => "step times",
            Component::Queueing => "queueing",
            Component::PrefixCaching => "prefix caching",
            Component::AsyncScheduling => "asynchronous scheduling",
            Component::HostTimes => "host times",
            Component::Arrivals => "arrival times",
            Component::KvBlocks => "KV blocks",
        }
    }

    /// What replaces it, in a few words.
    pub fn replacement(self) -> &'static str {
        match self {
            Component::StepTime => "step times scaled to the measured decoding time",
            Component::Queueing => "no limit on requests or tokens of a step",
            Component::PrefixCaching => "no prefix caching",
            Component::AsyncScheduling => "no asynchronous scheduling",
            Component::HostTimes => "a host that takes no time",
            Component::Arrivals => "requests at equal distances",
            Component::KvBlocks => "KV blocks by the memory equation",
        }
    }
}

/// Signed errors in percent by metric.
pub type Errors = BTreeMap<Metric, f64>;

/// An experiment with one component replaced.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Replaced {
    /// What was replaced.
    pub component: Component,
    /// Signed errors afterwards, percent.
    pub error_pct: Errors,
    /// Points by which the absolute error fell; below zero where it rose.
    pub explained_points: Errors,
    /// The factor on step times, for [`Component::StepTime`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step_time_factor: Option<f64>,
}

/// Where the error of one experiment comes from.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AttributedExperiment {
    /// Its name.
    pub name: String,
    /// Signed errors of the whole run as predicted, percent.
    pub error_pct: Errors,
    /// With one component replaced each; those that do not apply are left out.
    pub replaced: Vec<Replaced>,
}

/// A component over all experiments to which it applies.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ComponentSummary {
    /// What was replaced.
    pub component: Component,
    /// By what.
    pub replacement: &'static str,
    /// Experiments to which it applies.
    pub experiments: usize,
    /// Median absolute error afterwards, percent.
    pub median_ape_pct: Errors,
    /// Median of the points explained.
    pub median_explained_points: Errors,
}

/// Where the error comes from.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Attribution {
    /// Median absolute error of the prediction, percent.
    pub median_ape_pct: Errors,
    /// Components over experiments.
    pub components: Vec<ComponentSummary>,
    /// Experiment by experiment.
    pub experiments: Vec<AttributedExperiment>,
    /// Which component dominates the error of E2E, in a sentence.
    pub verdict: String,
}

/// Replays each case with one component replaced at a time; `done` is called after each case and component.
///
/// # Errors
/// As [`Case::replay`].
pub fn attribute(cases: &[&Case], seed: u64, done: &(dyn Fn() + Sync)) -> Result<Attribution> {
    let experiments: Vec<AttributedExperiment> = cases
        .par_iter()
        .map(|case| {
            let base = errors(case, &Metrics::of(&case.replay(case.rooflines.predicted.as_ref(), seed)?));
            let replaced = Component::ALL
                .par_iter()
                .map(|component| replace(case, *component, &base, seed).inspect(|_| done()))
                .collect::<Result<Vec<_>>>()?;
            let replaced = replaced.into_iter().flatten().collect();
            Ok(AttributedExperiment { name: case.name.clone(), error_pct: base, replaced })
        })
        .collect::<Result<_>>()?;
    Ok(Attribution::new(experiments))
}

fn errors(case: &Case, metrics: &Metrics) -> Errors {
    let error = |metric: Metric| {
        let measured_ms = case.measured.get(WHOLE_RUN, metric)?;
        Some((metric, error_pct(measured_ms, predicted_ms(metrics, None, metric)?)))
    };
    METRICS.into_iter().filter_map(error).collect()
}

/// The errors with a component replaced; `None` where it does not apply.
fn replace(case: &Case, component: Component, base: &Errors, seed: u64) -> Result<Option<Replaced>> {
    let roofline = case.rooflines.predicted.as_ref();
    let mut step_time_factor = None;
    let with_engine = |change: &dyn Fn(&mut EngineConfig)| {
        let mut engine = case.engine.clone();
        change(&mut engine);
        case.replay_on(roofline, &engine, case.load.workload(seed).as_mut())
    };
    let replay = match component {
        Component::StepTime => {
            let Some(factor) = factor_to_measurement(case, roofline, seed)? else { return Ok(None) };
            step_time_factor = Some(factor);
            case.replay(&Scaled { inner: roofline, factor }, seed)?
        }
        Component::Queueing => with_engine(&|engine| {
            engine.max_num_seqs = u32::MAX;
            engine.max_num_batched_tokens = u32::MAX;
        })?,
        Component::PrefixCaching => with_engine(&|engine| engine.enable_prefix_caching = false)?,
        Component::AsyncScheduling => with_engine(&|engine| engine.async_scheduling = false)?,
        Component::HostTimes => case.replay(&roofline.clone().with_host(HostTimes::NONE), seed)?,
        Component::Arrivals => {
            if !case.rates.contains(&Rate::OpenLoop) {
                return Ok(None);
            }
            let mut even = EvenlySpaced::new(case.load.workload(seed));
            case.replay_on(roofline, &case.engine, &mut even)?
        }
        Component::KvBlocks => {
            let Some(blocks) = case.computed_gpu_blocks else { return Ok(None) };
            with_engine(&|engine| engine.num_gpu_blocks = blocks)?
        }
    };
    let error_pct = errors(case, &Metrics::of(&replay));
    let explained = |(metric, after): (&Metric, &f64)| Some((*metric, base.get(metric)?.abs() - after.abs()));
    let explained_points = error_pct.iter().filter_map(explained).collect();
    Ok(Some(Replaced { component, error_pct, explained_points, step_time_factor }))
}

/// The factor on step times that makes the mean time from first to last token the measured one.
/// Decoding time and not `itl_mean` is matched, as clients may count other output tokens than were generated.
fn factor_to_measurement(case: &Case, roofline: &CalibratedRoofline, seed: u64) -> Result<Option<f64>> {
    let get = |metric| case.measured.get(WHOLE_RUN, metric);
    let (Some(e2e_ms), Some(ttft_ms)) = (get(Metric::E2E_MEAN), get(Metric::TTFT_MEAN)) else { return Ok(None) };
    let measured_ms = e2e_ms - ttft_ms;
    let mut factor = 1.0;
    for _ in 0..FACTOR_REPLAYS {
        let metrics = Metrics::of(&case.replay(&Scaled { inner: roofline, factor }, seed)?);
        let of = |metric| predicted_ms(&metrics, None, metric);
        let (Some(e2e_ms), Some(ttft_ms)) = (of(Metric::E2E_MEAN), of(Metric::TTFT_MEAN)) else { return Ok(None) };
        let ratio = measured_ms / (e2e_ms - ttft_ms);
        if !ratio.is_finite() || ratio <= 0.0 {
            return Ok(None);
        }
        factor *= ratio;
        if (ratio - 1.0).abs() <= FACTOR_TOLERANCE {
            break;
        }
    }
    Ok(Some(factor))
}

/// A latency model with its step times multiplied.
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

impl Attribution {
    /// Sums up over experiments.
    pub fn new(experiments: Vec<AttributedExperiment>) -> Self {
        let median_ape_pct = medians(experiments.iter().map(|experiment| &experiment.error_pct), f64::abs);
        let summary = |component: Component| {
            let of: Vec<&Replaced> = experiments
                .iter()
                .flat_map(|experiment| &experiment.replaced)
                .filter(|replaced| replaced.component == component)
                .collect();
            (!of.is_empty()).then(|| ComponentSummary {
                component,
                replacement: component.replacement(),
                experiments: of.len(),
                median_ape_pct: medians(of.iter().map(|replaced| &replaced.error_pct), f64::abs),
                median_explained_points: medians(of.iter().map(|replaced| &replaced.explained_points), |x| x),
            })
        };
        let components: Vec<ComponentSummary> = Component::ALL.into_iter().filter_map(summary).collect();
        let verdict = verdict(&median_ape_pct, &components);
        Attribution { median_ape_pct, components, experiments, verdict }
    }
}

fn medians<'a>(errors: impl Iterator<Item = &'a Errors>, of: impl Fn(f64) -> f64) -> Errors {
    let mut values: BTreeMap<Metric, Vec<f64>> = BTreeMap::new();
    for (metric, error) in errors.flatten() {
        values.entry(*metric).or_default().push(of(*error));
    }
    values.into_iter().filter_map(|(metric, values)| Some((metric, median(values)?))).collect()
}

fn verdict(median_ape_pct: &Errors, components: &[ComponentSummary]) -> String {
    let Some(error) = median_ape_pct.get(&Metric::E2E_MEAN) else {
        return "no experiment has a measured e2e_mean of the whole run".to_owned();
    };
    let points = |summary: &ComponentSummary| summary.median_explained_points.get(&Metric::E2E_MEAN).copied();
    let mut ranked: Vec<(f64, &ComponentSummary)> =
        components.iter().filter_map(|summary| Some((points(summary)?, summary))).collect();
    ranked.sort_by(|a, b| b.0.total_cmp(&a.0));
    match ranked.as_slice() {
        [(points, first), rest @ ..] if *points > 0.0 => {
            let next = rest.first().map_or(String::new(), |(points, next)| {
                format!("; next {} with {points:+.1}", next.component.subject())
            });
            format!(
                "{} explain most of the E2E error: of its median of {error:.1} %, {points:.1} points go with {}{next}",
                first.component.subject(),
                first.replacement
            )
        }
        _ => format!("median E2E error {error:.1} %: no component that is replaced makes it fall"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn experiment(name: &str, e2e: f64, replaced: &[(Component, f64)]) -> AttributedExperiment {
        let errors = |e2e| Errors::from([(Metric::E2E_MEAN, e2e)]);
        let replaced = replaced.iter().map(|(component, after)| Replaced {
            component: *component,
            error_pct: errors(*after),
            explained_points: errors(e2e.abs() - after.abs()),
            step_time_factor: None,
        });
        AttributedExperiment { name: name.to_owned(), error_pct: errors(e2e), replaced: replaced.collect() }
    }

    #[test]
    fn the_component_with_most_points_is_named() {
        let (steps, host, blocks) = (Component::StepTime, Component::HostTimes, Component::KvBlocks);
        let attribution = Attribution::new(vec![
            experiment("a", -10.0, &[(steps, 1.0), (host, -12.0), (blocks, -6.0)]),
            experiment("b", 6.0, &[(steps, -2.0), (host, 5.0)]),
            experiment("c", -8.0, &[(steps, 0.0), (host, -8.5)]),
        ]);
        assert_eq!(attribution.median_ape_pct, Errors::from([(Metric::E2E_MEAN, 8.0)]));
        // Points 9, 4 and 8; -2, 1 and -0.5; 4 alone.
        let points: Vec<(Component, f64)> = attribution
            .components
            .iter()
            .map(|summary| (summary.component, summary.median_explained_points[&Metric::E2E_MEAN]))
            .collect();
        assert_eq!(points, [(steps, 8.0), (host, -0.5), (blocks, 4.0)]);
        assert_eq!(attribution.components[2].experiments, 1);
        assert_eq!(
            attribution.verdict,
            "step times explain most of the E2E error: of its median of 8.0 %, 8.0 points go with step times scaled to \
             the measured decoding time; next KV blocks with +4.0"
        );
    }

    #[test]
    fn a_verdict_needs_an_error_that_falls() {
        let attribution = Attribution::new(vec![experiment("a", -1.0, &[(Component::HostTimes, -2.0)])]);
        assert!(
            attribution.verdict.ends_with("no component that is replaced makes it fall"),
            "{}",
            attribution.verdict
        );
        assert!(Attribution::new(Vec::new()).verdict.contains("no experiment"));
    }
}

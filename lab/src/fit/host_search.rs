//! The host's times, searched with the replay in the loop: they act through the schedule, so no slope leads to them.
//! Uses `derivative_free`, `evaluate::case`, `replay`.

use std::sync::Arc;

use rayon::prelude::*;

use super::derivative_free::minimise_by_simplex;
use super::learn::QUEUEING_PRIOR_SD_US;
use super::observation::Target;
use super::report::ParameterReport;
use crate::evaluate::case::Case;
use crate::evaluate::measured::WHOLE_RUN;
use crate::evaluate::metric::{Metric, predicted_ms};
use crate::huber;
use ridgepoint::Result;
use ridgepoint::internals::correction::{Correction, HostTimes, SDS_OF_90_PCT};
use ridgepoint::replay::Metrics;

/// Replays of all cases that a search may take.
pub const MAX_EVALUATIONS: u64 = 30;

/// Replays of all cases that telling the curvature takes: two per parameter.
pub const CURVATURE_EVALUATIONS: u64 = 6;

struct Searched {
    name: &'static str,
    unit: &'static str,
    prior_sd_us: f64,
    get: fn(&HostTimes) -> f64,
    set: fn(&mut HostTimes, f64),
}

/// What is searched. `output_token_us` is not: clients see it and `queueing_us` as one sum in TTFT and E2E, and neither in ITL.
const SEARCHED: [Searched; 3] = [
    Searched {
        name: "queueing_us",
        unit: "µs per request",
        prior_sd_us: QUEUEING_PRIOR_SD_US,
        get: |host| host.queueing_us,
        set: |host, us| host.queueing_us = us,
    },
    Searched {
        name: "scheduling_us",
        unit: "µs per step",
        prior_sd_us: 500.0,
        get: |host| host.scheduling_us,
        set: |host, us| host.scheduling_us = us,
    },
    Searched {
        name: "preemption_us",
        unit: "µs per preempted request",
        prior_sd_us: 100.0,
        get: |host| host.preemption_us,
        set: |host, us| host.preemption_us = us,
    },
];

/// What the search found.
#[derive(Debug, Clone)]
pub struct HostSearch {
    /// The host's times.
    pub host: HostTimes,
    /// What is known of each time that was searched; its standard deviation is that with the others held.
    pub parameters: Vec<ParameterReport>,
    /// Remarks.
    pub notes: Vec<String>,
}

/// Searches the host's times that bring measured E2E and TTFT means nearest, starting from the correction's and shrunk towards the
/// defaults. `done` is called after each replay of all cases.
///
/// # Errors
/// As [`Case::replay`].
pub fn fit_host(cases: &[&Case], correction: &Correction, seed: u64, done: &dyn Fn()) -> Result<HostSearch> {
    let usual = HostTimes::default();
    let with = |values: &[f64]| {
        let mut host = correction.host;
        for (of, value) in SEARCHED.iter().zip(values) {
            (of.set)(&mut host, *value);
        }
        host
    };
    let measured = |values: &[f64]| misfit(cases, correction, with(values), seed);
    let believed = |values: &[f64]| -> f64 {
        let off = |(of, value): (&Searched, &f64)| ((value - (of.get)(&usual)) / of.prior_sd_us).powi(2);
        0.5 * SEARCHED.iter().zip(values).map(off).sum::<f64>()
    };
    let start: Vec<f64> = SEARCHED.iter().map(|of| (of.get)(&correction.host)).collect();
    let scale: Vec<f64> = SEARCHED.iter().map(|of| 0.25 * of.prior_sd_us).collect();
    let (lower, upper) = (vec![0.0; SEARCHED.len()], vec![f64::INFINITY; SEARCHED.len()]);
    let cost = |values: &[f64]| Ok(measured(values)? + believed(values));
    let found = minimise_by_simplex(cost, &start, &scale, &lower, &upper, MAX_EVALUATIONS, done)?;
    let at_best = measured(&found.best)?;
    let mut parameters = Vec::new();
    for (index, of) in SEARCHED.iter().enumerate() {
        let moved = |by: f64| {
            let mut values = found.best.clone();
            if let Some(value) = values.get_mut(index) {
                *value += by;
            }
            measured(&values).inspect(|_| done())
        };
        let curvature = (moved(of.prior_sd_us)? + moved(-of.prior_sd_us)? - 2.0 * at_best) / of.prior_sd_us.powi(2);
        let sd = (curvature.max(0.0) + of.prior_sd_us.powi(-2)).powf(-0.5);
        let value = found.best.get(index).copied().unwrap_or_default();
        parameters.push(ParameterReport {
            name: of.name.to_owned(),
            unit: of.unit.to_owned(),
            prior: (of.get)(&usual),
            prior_sd: of.prior_sd_us,
            value,
            sd,
            lower: (value - SDS_OF_90_PCT * sd).max(0.0),
            upper: value + SDS_OF_90_PCT * sd,
            identified: sd < super::posterior::IDENTIFIED_SD_SHARE * of.prior_sd_us,
            at_bound: value <= 0.0,
        });
    }
    let notes = vec![
        format!(
            "host times by simplex with the replay in the loop: {} after {} evaluations",
            found.why_stopped, found.evaluations
        ),
        format!(
            "output_token_us = {:.0} is not fitted: clients see it and queueing_us as one sum",
            correction.host.output_token_us
        ),
    ];
    Ok(HostSearch { host: with(&found.best), parameters, notes })
}

/// Huber's loss of the log errors of measured means, each run counting as one figure of E2E and one of TTFT.
fn misfit(cases: &[&Case], correction: &Correction, host: HostTimes, seed: u64) -> Result<f64> {
    let correction = Arc::new(correction.clone());
    let of_case = |case: &&Case| -> Result<f64> {
        let roofline = case.rooflines.corrected(&correction).with_host(host);
        let metrics = Metrics::of(&case.replay(&roofline, seed)?);
        let loss = |metric: Metric, sd: f64| {
            let measured_ms = case.measured.get(WHOLE_RUN, metric)?;
            Some(huber::loss((predicted_ms(&metrics, None, metric)? / measured_ms).ln() / sd))
        };
        let e2e = loss(Metric::E2E_MEAN, Target::Decoding.expected_sd());
        Ok(e2e.unwrap_or(0.0) + loss(Metric::TTFT_MEAN, Target::Ttft.expected_sd()).unwrap_or(0.0))
    };
    let losses: Vec<f64> = cases.par_iter().map(of_case).collect::<Result<_>>()?;
    Ok(losses.into_iter().sum())
}

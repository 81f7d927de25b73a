//! Fits host overheads with the replay in the loop. They act through the schedule, so their slopes are differences between
//! whole replays. Uses `solver` and `evaluate::case`.

use std::sync::Arc;

use rayon::prelude::*;
use ridgepoint::Result;
use ridgepoint::internals::correction::{Correction, HostTimes};
use ridgepoint::replay::Metrics;

use super::fit_rows::QUEUEING_PRIOR_SD_US;
use super::problem::Target;
use super::report::{HostFit, ParameterReport};
use crate::evaluate::case::Case;
use crate::evaluate::measured::WHOLE_RUN;
use crate::evaluate::metric::{Metric, predicted_ms};
use crate::solver::{LeastSquares, NumericFit, Options, Prior, Range, minimise};

/// Most iterations take five replays of all cases, so that this bounds the time.
const OPTIONS: Options = Options { max_iterations: 6, tolerance: 1e-4 };
/// Replays of all cases that [`host_from_replays`] usually takes.
pub const HOST_REPLAYS: u64 = 30;
/// Difference of an overhead that its slope is taken over, as a share of its prior's standard deviation. Smaller differences
/// hardly change a schedule.
const DIFFERENCE: f64 = 0.25;

/// Names, units and prior standard deviations (µs) of the fitted overheads. `output_token_us` is not among them: in TTFT and
/// E2E clients see its sum with `queueing_us`, and in ITL neither.
const FITTED: [(&str, &str, f64); 3] = [
    ("queueing_us", "µs per request", QUEUEING_PRIOR_SD_US),
    ("scheduling_us", "µs per step", 500.0),
    ("preemption_us", "µs per preempted request", 100.0),
];

/// The values of [`FITTED`].
fn values_of(host: &HostTimes) -> [f64; FITTED.len()] {
    [host.queueing_us, host.scheduling_us, host.preemption_us]
}

/// Finds the host overheads that bring E2E and TTFT means nearest to the measured ones, starting from the correction's and
/// with the defaults as the prior's mean. `done` is called after each replay of all cases.
///
/// # Errors
/// As [`Case::replay`].
pub fn host_from_replays(cases: &[&Case], correction: &Correction, seed: u64, done: &dyn Fn()) -> Result<HostFit> {
    let with = |values: &[f64]| match values {
        [queueing_us, scheduling_us, preemption_us] => HostTimes {
            queueing_us: *queueing_us,
            scheduling_us: *scheduling_us,
            preemption_us: *preemption_us,
            ..correction.host
        },
        _ => correction.host,
    };
    let residuals = |values: &[f64]| residuals(cases, correction, with(values), seed).inspect(|_| done());
    let usual = values_of(&HostTimes::default());
    let prior = |((_, _, sd), mean): (&(&str, &str, f64), f64)| Prior { mean, sd: *sd, step: DIFFERENCE * sd };
    let problem = NumericFit { residuals, priors: FITTED.iter().zip(usual).map(prior).collect() };
    let ranges = FITTED.map(|(_, _, scale)| Range { lower: 0.0, upper: f64::INFINITY, scale });
    let solution = minimise(&problem, &values_of(&correction.host), &ranges, OPTIONS)?;
    let curvature = problem.slopes(&solution.values)?.curvature;
    let report = |(index, (name, unit, prior_sd)): (usize, &(&str, &str, f64))| {
        let sd_with_others_held = curvature[(index, index)].powf(-0.5);
        let prior = (usual[index], *prior_sd);
        ParameterReport::of_host(name, unit, prior, solution.values[index], Some(sd_with_others_held))
    };
    Ok(HostFit {
        times: with(&solution.values),
        parameters: FITTED.iter().enumerate().map(report).collect(),
        notes: vec![
            format!("host overheads with the replay in the loop: {}", solution.why_stopped),
            format!(
                "output_token_us = {:.0} is not fitted: clients see its sum with queueing_us",
                correction.host.output_token_us
            ),
        ],
    })
}

/// Log errors of each run's mean E2E and TTFT over their expected standard deviations, 0 for a figure that was not measured.
fn residuals(cases: &[&Case], correction: &Correction, host: HostTimes, seed: u64) -> Result<Vec<f64>> {
    let correction = Arc::new(correction.clone());
    let of_case = |case: &&Case| -> Result<[f64; 2]> {
        let roofline = case.rooflines.corrected(&correction).with_host(host);
        let metrics = Metrics::of(&case.replay(&roofline, seed)?);
        let residual = |metric: Metric, target: Target| {
            let measured_ms = case.measured.get(WHOLE_RUN, metric)?;
            let log_error = (predicted_ms(&metrics, None, metric)? / measured_ms).ln();
            log_error.is_finite().then_some(log_error / target.expected_sd())
        };
        let figures = [(Metric::E2E_MEAN, Target::Decoding), (Metric::TTFT_MEAN, Target::Ttft)];
        Ok(figures.map(|(metric, target)| residual(metric, target).unwrap_or(0.0)))
    };
    let by_case: Vec<[f64; 2]> = cases.par_iter().map(of_case).collect::<Result<_>>()?;
    Ok(by_case.concat())
}

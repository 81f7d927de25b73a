//! Fits host overheads with the replay in the loop. They act through the schedule, so their slopes are differences between
//! whole replays. Uses `solver` and `evaluate::case`.
#![expect(clippy::indexing_slicing, reason = "a solution has a value for each of three parameters")]

use std::sync::Arc;

use rayon::prelude::*;
use ridgepoint::latency::HostTimes;
use ridgepoint::{Correction, Result};
use ridgepoint_replay::Metrics;

use super::fit_rows::QUEUEING_PRIOR_SD_US;
use super::problem::Target;
use super::report::{HostFit, ParameterReport};
use crate::evaluate::case::Case;
use crate::evaluate::measured::WHOLE_RUN;
use crate::evaluate::metric::{Metric, predicted_ms};
use crate::solver::{NumericFit, Options, Parameter, minimise, slopes};

/// Most iterations take five replays of all cases, so that this bounds the time.
const OPTIONS: Options = Options { max_iterations: 6, tolerance: 1e-4 };
/// Replays of all cases that [`host_from_replays`] usually takes.
pub const HOST_REPLAYS: u64 = 30;
/// Difference of an overhead that its slope is taken over, as a share of its prior's standard deviation. Smaller differences
/// hardly change a schedule.
const DIFFERENCE: f64 = 0.25;

/// The fitted overheads, with the defaults as the prior's mean. `output_token_us` is not among them: in TTFT and E2E clients
/// see its sum with `queueing_us`, and in ITL neither.
fn fitted() -> Vec<Parameter> {
    let [queueing_us, scheduling_us, preemption_us] = values_of(&HostTimes::default());
    vec![
        Parameter::overhead("queueing_us", "µs per request", queueing_us, QUEUEING_PRIOR_SD_US),
        Parameter::overhead("scheduling_us", "µs per step", scheduling_us, 500.0),
        Parameter::overhead("preemption_us", "µs per preempted request", preemption_us, 100.0),
    ]
}

/// The values of the fitted overheads.
fn values_of(host: &HostTimes) -> [f64; 3] {
    [host.queueing_us, host.scheduling_us, host.preemption_us]
}

/// Finds the host overheads that bring E2E and TTFT means nearest to the measured ones, starting from the correction's and
/// with the defaults as the prior's mean. `done` is called after each replay of all cases.
///
/// # Errors
/// As [`Case::replay`].
pub fn host_from_replays(cases: &[&Case], correction: &Correction, seed: u64, done: &dyn Fn()) -> Result<HostFit> {
    let with = |values: &[f64]| HostTimes {
        queueing_us: values[0],
        scheduling_us: values[1],
        preemption_us: values[2],
        ..correction.host
    };
    let residuals = |values: &[f64]| residuals(cases, correction, with(values), seed).inspect(|_| done());
    let problem = NumericFit { residuals, parameters: fitted(), difference: DIFFERENCE };
    let solution = minimise(&problem, &values_of(&correction.host), OPTIONS)?;
    let curvature = slopes(&problem, &solution.values)?.curvature;
    let report = |(index, of): (usize, &Parameter)| {
        let sd_with_others_held = curvature[(index, index)].powf(-0.5);
        ParameterReport::of_host(*of, solution.values[index], Some(sd_with_others_held))
    };
    Ok(HostFit {
        times: with(&solution.values),
        parameters: problem.parameters.iter().enumerate().map(report).collect(),
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
        let metrics = Metrics::of(&case.replay(&roofline, seed, &mut [])?);
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

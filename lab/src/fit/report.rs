//! Reports a fit, for people and programs. Uses `problem`, `posterior`.
#![expect(clippy::indexing_slicing, reason = "a solution has a value for every parameter")]

use std::collections::BTreeMap;

use serde::Serialize;

use super::posterior::{IDENTIFIED_SD_SHARE, Posterior};
use super::problem::{Problem, Target};
use super::widths::Widths;
use crate::solver::{Parameter, Solution};
use ridgepoint::correction::SDS_OF_90_PCT;
use ridgepoint::latency::HostTimes;

/// Two parameters whose errors correlate by more than this are named as not separable.
const MIXED_CORRELATION: f64 = 0.9;

/// Report of a fit: its input, how it ended and its result. Serialised keys are stable.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FitReport {
    /// Rows.
    pub rows: u64,
    /// Rows by kind of figure.
    pub rows_by_target: BTreeMap<Target, u64>,
    /// How the solver ended.
    #[serde(flatten)]
    pub solution: Solution,
    /// How much wider priors are than assumed.
    pub prior_widths: Widths,
    /// The parameters, in the order of the problem's.
    pub parameters: Vec<ParameterReport>,
    /// Remarks.
    pub notes: Vec<String>,
}

/// One parameter of a fit.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ParameterReport {
    /// Its name, unit and prior.
    #[serde(flatten)]
    pub parameter: Parameter,
    /// Fitted value.
    pub value: f64,
    /// Standard deviation of its posterior.
    pub sd: f64,
    /// Lower end of the 90 % interval, not below the least value allowed.
    pub lower: f64,
    /// Upper end of the 90 % interval, not above the greatest value allowed.
    pub upper: f64,
    /// Whether the data identify it.
    pub identified: bool,
    /// Whether it lies on the least or greatest value allowed.
    pub at_bound: bool,
}

/// Fitted host overheads and their uncertainty.
#[derive(Debug, Clone, PartialEq)]
pub struct HostFit {
    /// The overheads; the prior's if nothing was measured.
    pub times: HostTimes,
    /// Each of them.
    pub parameters: Vec<ParameterReport>,
    /// Remarks, such as overheads that are not identified, and why.
    pub notes: Vec<String>,
}

impl FitReport {
    /// The report of a solved problem with its posterior.
    pub(super) fn new(problem: &Problem, solution: Solution, posterior: &Posterior, prior_widths: Widths) -> FitReport {
        let mut notes = problem.notes();
        if posterior.overdispersion > 1.0 {
            notes.push(format!(
                "rows scatter {:.2} times as far as their own standard deviations say; intervals are widened for it",
                posterior.overdispersion.sqrt()
            ));
        }
        notes.extend(not_separable(problem, posterior));
        let parameter = |(index, of): (usize, &Parameter)| {
            let (value, sd) = (solution.values[index], posterior.sd(index));
            ParameterReport::new(*of, value, sd, posterior.identified[index])
        };
        FitReport {
            rows: problem.rows.len() as u64,
            rows_by_target: problem.rows_by_target(),
            prior_widths,
            parameters: problem.parameters.iter().enumerate().map(parameter).collect(),
            notes,
            solution,
        }
    }

    /// Leaves out parameters that the data do not hold, and the notes on them.
    pub(super) fn leave_out(&mut self, names: &[&str]) {
        self.parameters.retain(|of| !names.contains(&of.parameter.name));
        self.notes.retain(|note| !names.iter().any(|name| note.contains(&format!("'{name}'"))));
    }

    /// Puts host overheads that were fitted apart in the place of those of the solver.
    pub fn replace_host(&mut self, host: HostFit) {
        self.leave_out(&host.parameters.iter().map(|of| of.parameter.name).collect::<Vec<_>>());
        self.parameters.extend(host.parameters);
        self.notes.extend(host.notes);
    }
}

/// Names the pairs of parameters of which the rows determine hardly more than a sum.
fn not_separable(problem: &Problem, posterior: &Posterior) -> Option<String> {
    let free = |index: &usize| posterior.sd(*index) > 0.0;
    let indices = || (0..problem.parameters.len()).filter(free);
    let correlation = |a: usize, b: usize| posterior.covariance[(a, b)] / (posterior.sd(a) * posterior.sd(b));
    let pairs = indices().flat_map(|a| indices().filter(move |b| *b > a).map(move |b| (a, b)));
    let mixed = pairs.filter(|(a, b)| correlation(*a, *b).abs() > MIXED_CORRELATION);
    let name = |index: usize| problem.parameters[index].name;
    let named: Vec<String> =
        mixed.map(|(a, b)| format!("{} and {} (correlation {:+.2})", name(a), name(b), correlation(a, b))).collect();
    let sums = "their common effect is measured, each alone much less";
    (!named.is_empty()).then(|| format!("not separable by these rows: {}; {sums}", named.join(", ")))
}

impl ParameterReport {
    fn new(parameter: Parameter, value: f64, sd: f64, identified: bool) -> Self {
        let (reach, (least, greatest)) = (SDS_OF_90_PCT * sd, parameter.bounds);
        ParameterReport {
            value,
            sd,
            lower: (value - reach).max(least),
            upper: (value + reach).min(greatest),
            identified,
            at_bound: parameter.is_at_bound(value),
            parameter,
        }
    }

    /// The report of a host overhead. `sd` is `None` if nothing was measured.
    pub(crate) fn of_host(parameter: Parameter, value: f64, sd: Option<f64>) -> Self {
        let identified = sd.is_some_and(|sd| sd < IDENTIFIED_SD_SHARE * parameter.prior_sd);
        ParameterReport::new(parameter, value, sd.unwrap_or(parameter.prior_sd), identified)
    }
}

#[cfg(test)]
mod tests {
    use super::super::posterior::posterior;
    use super::super::problem::FitRow;
    use super::*;

    fn reported() -> FitReport {
        let parameter =
            |name, prior, prior_sd, lower| Parameter { name, unit: "factor", prior, prior_sd, bounds: (lower, 3.0) };
        // The second term is a price that would have to be negative.
        let row = |i: usize| {
            let x = 100.0 + 10.0 * i as f64;
            FitRow {
                offset: 0.0,
                x: vec![x, 1.0],
                measured: 1.2 * x - 1.0,
                sd: 0.05,
                weight: 1.0,
                target: [Target::StepPeriod, Target::Decoding, Target::Ttft][i % 3],
            }
        };
        let parameters = vec![parameter("projections", 1.0, 0.5, 0.3), parameter("step_us", 0.0, 0.01, 0.0)];
        let problem = Problem::new("rows", parameters, (0..10).map(row).collect()).unwrap();
        let solution = problem.minimise(&[1.0, 0.0]).unwrap();
        let posterior = posterior(&problem, &solution.values).unwrap();
        FitReport::new(&problem, solution, &posterior, Widths::ASSUMED)
    }

    #[test]
    fn keys_are_the_documented_ones() {
        let json = serde_json::to_value(reported()).unwrap();
        let keys = |value: &serde_json::Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        let mut expected = vec!["rows", "rows_by_target", "converged", "why_stopped", "iterations"];
        expected.extend(["cost_before", "cost_after", "parameters", "prior_widths", "notes"]);
        let mut found = keys(&json);
        found.sort();
        expected.sort_unstable();
        assert_eq!(found, expected);
        let mut expected = vec!["name", "unit", "prior", "prior_sd", "value", "sd", "lower", "upper", "identified"];
        expected.push("at_bound");
        let mut found = keys(&json["parameters"][0]);
        found.sort();
        expected.sort_unstable();
        assert_eq!(found, expected);
        assert_eq!(json["rows_by_target"], serde_json::json!({"step_period": 4, "decoding": 3, "ttft": 3}));
    }

    #[test]
    fn parameters_that_rows_hold_together_are_named() {
        let overhead = |name| Parameter::overhead(name, "µs", 0.0, 1000.0);
        let parameters = vec![overhead("preemption_us"), overhead("resume_us"), overhead("step_us")];
        // Every preempted request resumes but one.
        let row = |i: usize| FitRow {
            offset: 0.0,
            x: vec![(i % 5) as f64, (i % 5) as f64 + f64::from(u8::from(i == 7)), 1.0],
            measured: 1000.0 + 300.0 * (i % 5) as f64,
            sd: 0.01,
            weight: 1.0,
            target: Target::StepPeriod,
        };
        let problem = Problem::new("rows", parameters, (0..40).map(row).collect()).unwrap();
        let solution = problem.minimise(&[0.0, 0.0, 500.0]).unwrap();
        let posterior = posterior(&problem, &solution.values).unwrap();
        let named = not_separable(&problem, &posterior).unwrap();
        assert!(named.contains("preemption_us and resume_us (correlation -"), "{named}");
        assert!(!named.contains("step_us"), "{named}");
        let FitReport { notes, .. } = FitReport::new(&problem, solution, &posterior, Widths::ASSUMED);
        assert!(notes.contains(&named), "{notes:?}");
    }

    #[test]
    fn intervals_are_one_point_six_sds_within_the_bounds() {
        let report = reported();
        let [factor, price] = report.parameters.as_slice() else { panic!("{report:?}") };
        assert!((factor.upper - factor.value - 1.645 * factor.sd).abs() < 1e-12, "{factor:?}");
        assert!(factor.identified && !factor.at_bound && factor.lower < 1.2 && 1.2 < factor.upper, "{factor:?}");
        assert!(price.at_bound && !price.identified && price.value.abs() < 1e-300, "{price:?}");
        assert!(price.lower.abs() < 1e-300 && (price.upper - 1.645 * price.sd).abs() < 1e-12, "{price:?}");
        let Solution { cost_before, cost_after, converged, .. } = report.solution;
        assert!(cost_after < cost_before && converged, "{cost_before} {cost_after}");
    }
}

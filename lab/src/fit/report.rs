//! Reports a fit, for people and programs. Uses `problem`, `posterior`.

use std::collections::BTreeMap;

use serde::Serialize;

use super::posterior::{IDENTIFIED_SD_SHARE, Posterior};
use super::problem::{Parameter, Problem, Target};
use crate::solver::Solution;
use ridgepoint::internals::correction::{HostTimes, SDS_OF_90_PCT};

/// Report of a fit: its input, how it ended and its result. Serialised keys are stable.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FitReport {
    /// Rows.
    pub rows: u64,
    /// Rows by kind of figure.
    pub rows_by_target: BTreeMap<Target, u64>,
    /// Whether the solver converged.
    pub converged: bool,
    /// Why it stopped, in words.
    pub why_stopped: String,
    /// Iterations of the solver.
    pub iterations: u64,
    /// Cost at the start.
    pub cost_before: f64,
    /// Cost at the end.
    pub cost_after: f64,
    /// The parameters, in the order of the problem's.
    pub parameters: Vec<ParameterReport>,
    /// Remarks.
    pub notes: Vec<String>,
}

/// One parameter of a fit.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ParameterReport {
    /// Its name.
    pub name: String,
    /// Its unit, in words.
    pub unit: String,
    /// Mean of its prior.
    pub prior: f64,
    /// Standard deviation of its prior.
    pub prior_sd: f64,
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
    pub(super) fn new(problem: &Problem, solution: &Solution, posterior: &Posterior) -> FitReport {
        let found = solution.values.iter().zip(&solution.at_bound).zip(posterior.sd.iter().zip(&posterior.identified));
        let parameters = problem.parameters().iter().zip(found).map(|(of, ((value, at_bound), (sd, identified)))| {
            let Parameter { name, unit, prior, prior_sd, lower, upper } = of.clone();
            let reach = SDS_OF_90_PCT * sd;
            let (sd, identified, at_bound, value) = (*sd, *identified, *at_bound, *value);
            let (lower, upper) = ((value - reach).max(lower), (value + reach).min(upper));
            ParameterReport { name, unit, prior, prior_sd, value, sd, lower, upper, identified, at_bound }
        });
        let mut notes = problem.notes();
        if posterior.overdispersion > 1.0 {
            notes.push(format!(
                "rows scatter {:.2} times as far as their own standard deviations say; intervals are widened for it",
                posterior.overdispersion.sqrt()
            ));
        }
        FitReport {
            rows: problem.rows().len() as u64,
            rows_by_target: problem.rows_by_target(),
            converged: solution.converged,
            why_stopped: solution.why_stopped.clone(),
            iterations: solution.iterations,
            cost_before: solution.cost_start,
            cost_after: solution.cost,
            parameters: parameters.collect(),
            notes,
        }
    }
}

impl FitReport {
    /// Puts host overheads that were fitted apart in the place of those of the solver.
    pub fn replace_host(&mut self, host: HostFit) {
        let is_host = |name: &str| host.parameters.iter().any(|of| of.name == name);
        self.parameters.retain(|parameter| !is_host(&parameter.name));
        self.notes.retain(|note| !host.parameters.iter().any(|of| note.contains(&format!("'{}'", of.name))));
        self.parameters.extend(host.parameters);
        self.notes.extend(host.notes);
    }
}

impl ParameterReport {
    /// The report of a host overhead, which is never negative. Its prior is the default with a standard deviation of
    /// `prior_sd`; `sd` is `None` if nothing was measured.
    pub(super) fn of_host(name: &str, unit: &str, (prior, prior_sd): (f64, f64), value: f64, sd: Option<f64>) -> Self {
        let identified = sd.is_some_and(|sd| sd < IDENTIFIED_SD_SHARE * prior_sd);
        let sd = sd.unwrap_or(prior_sd);
        ParameterReport {
            name: name.to_owned(),
            unit: unit.to_owned(),
            prior,
            prior_sd,
            value,
            sd,
            lower: (value - SDS_OF_90_PCT * sd).max(0.0),
            upper: value + SDS_OF_90_PCT * sd,
            identified,
            at_bound: value <= 0.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::posterior::posterior;
    use super::super::problem::Row;
    use super::*;

    fn reported() -> FitReport {
        let parameter = |name: &str, prior, prior_sd, lower| Parameter {
            name: name.to_owned(),
            unit: "factor".to_owned(),
            prior,
            prior_sd,
            lower,
            upper: 3.0,
        };
        // The second term is a price that would have to be negative.
        let row = |i: usize| {
            let x = 100.0 + 10.0 * i as f64;
            Row {
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
        let solution = problem.minimise(&problem.priors()).unwrap();
        let posterior = posterior(&problem, &solution.values).unwrap();
        FitReport::new(&problem, &solution, &posterior)
    }

    #[test]
    fn keys_are_the_documented_ones() {
        let json = serde_json::to_value(reported()).unwrap();
        let keys = |value: &serde_json::Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        let mut expected = vec!["rows", "rows_by_target", "converged", "why_stopped", "iterations"];
        expected.extend(["cost_before", "cost_after", "parameters", "notes"]);
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
    fn intervals_are_one_point_six_sds_within_the_bounds() {
        let report = reported();
        let [factor, price] = report.parameters.as_slice() else { panic!("{report:?}") };
        assert!((factor.upper - factor.value - 1.645 * factor.sd).abs() < 1e-12, "{factor:?}");
        assert!(factor.identified && !factor.at_bound && factor.lower < 1.2 && 1.2 < factor.upper, "{factor:?}");
        assert!(price.at_bound && !price.identified && price.value.abs() < 1e-300, "{price:?}");
        assert!(price.lower.abs() < 1e-300 && (price.upper - 1.645 * price.sd).abs() < 1e-12, "{price:?}");
        assert!(report.cost_after < report.cost_before && report.converged, "{report:?}");
    }
}

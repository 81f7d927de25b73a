//! Searches host overheads with the replay in the loop. They act through the schedule, so no slope leads to them. Uses
//! argmin's Nelder–Mead and `evaluate::case`.

use std::cell::RefCell;
use std::sync::Arc;

use argmin::core::{CostFunction, Error as ArgminError, Executor, State, TerminationReason};
use argmin::solver::neldermead::NelderMead;
use rayon::prelude::*;
use ridgepoint::internals::correction::{Correction, HostTimes};
use ridgepoint::replay::Metrics;
use ridgepoint::{Error, Result};

use super::fit_rows::QUEUEING_PRIOR_SD_US;
use super::problem::Target;
use super::report::ParameterReport;
use crate::evaluate::case::Case;
use crate::evaluate::measured::WHOLE_RUN;
use crate::evaluate::metric::{Metric, predicted_ms};
use crate::huber;

/// Replays of all cases that the simplex may take.
const MAX_EVALUATIONS: usize = 30;
/// Replays of all cases in [`host_from_replays`]: those of the simplex, and two per overhead for its curvature.
pub const HOST_REPLAYS: u64 = (MAX_EVALUATIONS + 2 * SEARCHED.len()) as u64;
/// Share of an overhead's prior standard deviation that the first simplex spans.
const FIRST_STEP: f64 = 0.25;
/// The simplex has converged if the standard deviation of its corners' costs is below this.
const FLAT: f64 = 1e-12;

struct Searched {
    name: &'static str,
    unit: &'static str,
    prior_sd_us: f64,
    get: fn(&HostTimes) -> f64,
    set: fn(&mut HostTimes, f64),
}

/// The searched overheads. `output_token_us` is not among them: in TTFT and E2E clients see its sum with `queueing_us`, and in
/// ITL neither.
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

/// Result of a search.
#[derive(Debug, Clone)]
pub struct HostSearch {
    /// The host overheads.
    pub host: HostTimes,
    /// Each searched overhead; its standard deviation is that with the others held.
    pub parameters: Vec<ParameterReport>,
    /// Remarks.
    pub notes: Vec<String>,
}

/// Searches the host overheads that bring E2E and TTFT means nearest to the measured ones, starting from the correction's and
/// with the defaults as the prior's mean. `done` is called after each replay of all cases.
///
/// # Errors
/// As [`Case::replay`].
pub fn host_from_replays(cases: &[&Case], correction: &Correction, seed: u64, done: &dyn Fn()) -> Result<HostSearch> {
    let usual = HostTimes::default();
    let with = |values: &[f64]| {
        let mut host = correction.host;
        SEARCHED.iter().zip(values).for_each(|(of, value)| (of.set)(&mut host, *value));
        host
    };
    let measured = |values: &[f64]| misfit(cases, correction, with(values), seed);
    let off_prior = |values: &[f64]| -> f64 {
        let off = |(of, value): (&Searched, &f64)| ((value - (of.get)(&usual)) / of.prior_sd_us).powi(2);
        0.5 * SEARCHED.iter().zip(values).map(off).sum::<f64>()
    };
    let cost = |values: &[f64]| measured(values).map(|cost| cost + off_prior(values)).inspect(|_| done());
    let start: Vec<f64> = SEARCHED.iter().map(|of| (of.get)(&correction.host)).collect();
    let scale: Vec<f64> = SEARCHED.iter().map(|of| FIRST_STEP * of.prior_sd_us).collect();
    let Simplex { best, evaluations, has_converged } = minimise_by_simplex(&cost, &start, &scale, MAX_EVALUATIONS)?;
    let at_best = measured(&best)?;
    let mut parameters = Vec::new();
    for (index, of) in SEARCHED.iter().enumerate() {
        let moved = |by: f64| {
            let mut values = best.clone();
            values[index] += by;
            measured(&values).inspect(|_| done())
        };
        let curvature = (moved(of.prior_sd_us)? + moved(-of.prior_sd_us)? - 2.0 * at_best) / of.prior_sd_us.powi(2);
        let sd = (curvature.max(0.0) + of.prior_sd_us.powi(-2)).powf(-0.5);
        let prior = ((of.get)(&usual), of.prior_sd_us);
        parameters.push(ParameterReport::of_host(of.name, of.unit, prior, best[index], Some(sd)));
    }
    let stopped = if has_converged {
        format!("converged after {evaluations} evaluations")
    } else {
        format!("stopped after {evaluations} evaluations, all that it has")
    };
    let notes = vec![
        format!("host overheads by simplex with the replay in the loop: {stopped}"),
        format!(
            "output_token_us = {:.0} is not fitted: clients see its sum with queueing_us",
            correction.host.output_token_us
        ),
    ];
    Ok(HostSearch { host: with(&best), parameters, notes })
}

/// Huber's loss of the log errors of measured means. Each run counts as one figure of E2E and one of TTFT.
fn misfit(cases: &[&Case], correction: &Correction, host: HostTimes, seed: u64) -> Result<f64> {
    let correction = Arc::new(correction.clone());
    let of_case = |case: &&Case| -> Result<f64> {
        let roofline = case.rooflines.corrected(&correction).with_host(host);
        let metrics = Metrics::of(&case.replay(&roofline, seed)?);
        let loss = |metric: Metric, target: Target| {
            let measured_ms = case.measured.get(WHOLE_RUN, metric)?;
            let log_error = (predicted_ms(&metrics, None, metric)? / measured_ms).ln();
            Some(huber::loss(log_error / target.expected_sd()))
        };
        let e2e = loss(Metric::E2E_MEAN, Target::Decoding).unwrap_or(0.0);
        Ok(e2e + loss(Metric::TTFT_MEAN, Target::Ttft).unwrap_or(0.0))
    };
    let losses: Vec<f64> = cases.par_iter().map(of_case).collect::<Result<_>>()?;
    Ok(losses.into_iter().sum())
}

/// Where a simplex ended.
struct Simplex {
    /// The best values tried.
    best: Vec<f64>,
    evaluations: usize,
    has_converged: bool,
}

/// Searches the values of least cost, none below 0, with at most `max_evaluations`. The first simplex spans `scale` from
/// `start` in each direction.
fn minimise_by_simplex(
    cost: &dyn Fn(&[f64]) -> Result<f64>,
    start: &[f64],
    scale: &[f64],
    max_evaluations: usize,
) -> Result<Simplex> {
    let mut corners = vec![start.to_vec()];
    for (index, step) in scale.iter().enumerate() {
        let mut corner = start.to_vec();
        corner[index] += step;
        corners.push(corner);
    }
    let bounded = Bounded { cost, scale, max_evaluations, tried: RefCell::default() };
    // argmin's solver panics if a corner of the first simplex has no cost.
    for corner in &corners {
        bounded.try_values(corner)?;
    }
    let solver = NelderMead::new(corners)
        .with_sd_tolerance(FLAT)
        .map_err(|error| Error::invalid("simplex", vec![error.to_string()]))?;
    let run =
        Executor::new(&bounded, solver).configure(|state| state.max_iters(max_evaluations as u64)).ctrlc(false).run();
    let reason = match run {
        Ok(run) => run.state().get_termination_reason().cloned(),
        Err(error) => match error.downcast::<Error>() {
            Ok(error) => return Err(error),
            // The evaluations are used up.
            Err(_) => None,
        },
    };
    let tried = bounded.tried.into_inner();
    let best = tried.iter().min_by(|a, b| a.cost.total_cmp(&b.cost)).map_or_else(Vec::new, |best| best.values.clone());
    let has_converged = matches!(reason, Some(TerminationReason::SolverConverged));
    Ok(Simplex { best, evaluations: tried.len(), has_converged })
}

struct Tried {
    /// The values that the solver asked for.
    requested: Vec<f64>,
    /// The nearest values that are not negative.
    values: Vec<f64>,
    cost: f64,
}

/// A cost within bounds that counts its evaluations.
struct Bounded<'a> {
    cost: &'a dyn Fn(&[f64]) -> Result<f64>,
    scale: &'a [f64],
    max_evaluations: usize,
    tried: RefCell<Vec<Tried>>,
}

impl Bounded<'_> {
    fn try_values(&self, requested: &[f64]) -> Result<()> {
        let values: Vec<f64> = requested.iter().map(|value| value.max(0.0)).collect();
        let cost = (self.cost)(&values)?;
        // argmin sums the costs of corners, which must not overflow.
        let cost = if cost.is_finite() { cost } else { f64::MAX.sqrt() };
        self.tried.borrow_mut().push(Tried { requested: requested.to_vec(), values, cost });
        Ok(())
    }
}

impl CostFunction for &Bounded<'_> {
    type Param = Vec<f64>;
    type Output = f64;

    /// The cost of the nearest values within bounds and a penalty for the distance, in squares of `scale`.
    fn cost(&self, requested: &Vec<f64>) -> std::result::Result<f64, ArgminError> {
        if !self.tried.borrow().iter().any(|tried| tried.requested == *requested) {
            if self.tried.borrow().len() >= self.max_evaluations {
                return Err(ArgminError::msg("no more evaluations"));
            }
            self.try_values(requested)?;
        }
        let tried = self.tried.borrow();
        let best = tried.iter().map(|tried| tried.cost.abs()).fold(f64::INFINITY, f64::min);
        let here = tried.iter().find(|tried| tried.requested == *requested);
        let off = |here: &Tried| -> f64 {
            let outside = here.requested.iter().zip(&here.values).zip(self.scale);
            outside.map(|((requested, value), scale)| ((requested - value) / scale).powi(2)).sum()
        };
        Ok(here.map_or(f64::MAX.sqrt(), |here| (here.cost + (1.0 + best) * off(here)).min(f64::MAX.sqrt())))
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    fn bowl(x: &[f64]) -> f64 {
        (x[0] - 3.0).powi(2) + 10.0 * (x[1] - 1.0).powi(2) + 5.0
    }

    #[test]
    fn the_minimum_of_a_bowl_is_found_within_bounds() {
        let inside = |x: &[f64]| {
            assert!(x.iter().all(|x| *x >= 0.0), "{x:?}");
            Ok(bowl(x))
        };
        let found = minimise_by_simplex(&inside, &[0.0, 0.0], &[1.0, 1.0], 200).unwrap();
        assert!((found.best[0] - 3.0).abs() < 0.01 && (found.best[1] - 1.0).abs() < 0.01, "{:?}", found.best);
        let below = |x: &[f64]| Ok((x[0] + 1.0).powi(2) + (x[1] - 1.0).powi(2));
        let found = minimise_by_simplex(&below, &[2.0, 0.0], &[0.5, 0.5], 200).unwrap();
        assert!(found.best[0].abs() < 0.01 && (found.best[1] - 1.0).abs() < 0.02, "{:?}", found.best);
    }

    #[test]
    fn the_budget_is_kept_to_the_last_call() {
        for budget in [3, 4, 7, 20] {
            let calls = Cell::new(0);
            let counted = |x: &[f64]| {
                calls.set(calls.get() + 1);
                Ok(bowl(x))
            };
            let found = minimise_by_simplex(&counted, &[50.0, 50.0], &[1.0; 2], budget).unwrap();
            assert!(!found.has_converged && found.evaluations == budget && calls.get() == budget, "{budget}");
            assert!(bowl(&found.best) <= bowl(&[50.0, 50.0]));
        }
    }

    #[test]
    fn the_first_error_of_the_cost_is_returned_wherever_it_comes() {
        for at in [1, 2, 5, 9] {
            let calls = Cell::new(0);
            let failing = |x: &[f64]| {
                calls.set(calls.get() + 1);
                if calls.get() < at { Ok(bowl(x)) } else { Err(Error::empty_step()) }
            };
            let found = minimise_by_simplex(&failing, &[0.0; 2], &[1.0; 2], 100);
            assert!(found.is_err_and(|error| error.kind() == ridgepoint::ErrorKind::EmptyStep));
            assert_eq!(calls.get(), at);
        }
    }
}

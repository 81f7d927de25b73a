//! Owns the nonlinear solver of every fit: bounded Gauss–Newton with Levenberg–Marquardt damping, which argmin's executor
//! runs.
#![expect(clippy::indexing_slicing, reason = "vectors and matrices have a value for every parameter")]

use argmin::core::{
    Error as ArgminError, Executor, IterState, KV, Problem as Counted, Solver, State, TerminationReason,
};
use nalgebra::{DMatrix, DVector};
use serde::Serialize;

use crate::huber;
use ridgepoint::unstable::error::cut;
use ridgepoint::{Error, Result};

/// A promise of less than this share of the cost may be lost in the rounding of a sum over many rows.
const ROUNDING: f64 = 1e-9;
/// Levenberg–Marquardt damping relative to the curvature's diagonal: first, least (below it there is none) and greatest.
const DAMPING: (f64, f64, f64) = (1e-3, 1e-9, 1e12);

/// A fitted number: its unit, its Gaussian prior and its bounds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Parameter {
    /// Name in reports and errors.
    pub name: &'static str,
    /// Unit, in words.
    pub unit: &'static str,
    /// Mean of the prior.
    pub prior: f64,
    /// Standard deviation of the prior, above 0: the size of a typical change.
    pub prior_sd: f64,
    /// Least and greatest value; they may be infinite. If they are equal the parameter is fixed.
    #[serde(skip)]
    pub bounds: (f64, f64),
}

impl Parameter {
    /// A time that is never negative.
    pub fn overhead(name: &'static str, unit: &'static str, prior: f64, prior_sd: f64) -> Self {
        Parameter { name, unit, prior, prior_sd, bounds: (0.0, f64::INFINITY) }
    }

    /// Whether a value lies on the least or greatest one allowed.
    pub fn is_at_bound(&self, value: f64) -> bool {
        value <= self.bounds.0 || value >= self.bounds.1
    }

    /// Distance of a value from the prior, standard deviations of that.
    pub fn sds_from_prior(&self, value: f64) -> f64 {
        (value - self.prior).abs() / self.prior_sd
    }

    /// Whether the bounds leave a single value.
    pub fn is_fixed(&self) -> bool {
        self.bounds.0 >= self.bounds.1
    }

    fn clamp(&self, value: f64) -> f64 {
        value.max(self.bounds.0).min(self.bounds.1)
    }
}

/// A model to fit. Its cost is `Σ weight·huber(residual) + ½ Σ ((θ − prior) / prior_sd)²`.
pub trait LeastSquares {
    /// Returns the parameters θ.
    fn parameters(&self) -> &[Parameter];

    /// Returns the residuals, each in units of its expected standard deviation. Their number never changes.
    ///
    /// # Errors
    /// Those of the model; the first one ends the fit.
    fn residuals(&self, values: &[f64]) -> Result<Vec<f64>>;

    /// Returns the derivatives of all residuals by each parameter; `residuals` are those at `values`.
    ///
    /// # Errors
    /// Those of the model; the first one ends the fit.
    fn derivatives(&self, values: &[f64], residuals: &[f64]) -> Result<Vec<Vec<f64>>>;

    /// Returns the number of independent rows that each residual counts as, at least 0.
    fn weight(&self, _row: usize) -> f64 {
        1.0
    }
}

/// A model without derivatives, which differences stand for.
pub struct NumericFit<F> {
    /// Returns the residuals at some values.
    pub residuals: F,
    /// The parameters.
    pub parameters: Vec<Parameter>,
    /// Step of the forward differences, as a share of each parameter's `prior_sd`.
    pub difference: f64,
}

impl<F: Fn(&[f64]) -> Result<Vec<f64>>> LeastSquares for NumericFit<F> {
    fn parameters(&self) -> &[Parameter] {
        &self.parameters
    }

    fn residuals(&self, values: &[f64]) -> Result<Vec<f64>> {
        (self.residuals)(values)
    }

    fn derivatives(&self, values: &[f64], residuals: &[f64]) -> Result<Vec<Vec<f64>>> {
        let column = |(index, parameter): (usize, &Parameter)| {
            let step = self.difference * parameter.prior_sd;
            let mut moved = values.to_vec();
            moved[index] += step;
            let there = (self.residuals)(&moved)?;
            Ok(there.iter().zip(residuals).map(|(there, here)| (there - here) / step).collect())
        };
        self.parameters.iter().enumerate().map(column).collect()
    }
}

/// Returns the cost of a model at some values, finite for any of them.
///
/// # Errors
/// Those of the model.
pub fn cost(problem: &dyn LeastSquares, values: &[f64]) -> Result<f64> {
    let residuals = problem.residuals(values)?;
    let rows: f64 = residuals.iter().enumerate().map(|(row, r)| problem.weight(row) * huber::loss(*r)).sum();
    let off = |(of, value): (&Parameter, &f64)| 0.5 * ((value - of.prior) / of.prior_sd).powi(2);
    let cost = rows + problem.parameters().iter().zip(values).map(off).sum::<f64>();
    Ok(if cost.is_nan() { f64::MAX } else { cost.min(f64::MAX) })
}

/// First and second derivatives of a cost.
#[derive(Debug, Clone)]
pub struct Slopes {
    /// Derivative by each parameter.
    pub gradient: Vec<f64>,
    /// Gauss–Newton approximation of the second derivatives of the rows' part. A row beyond Huber's δ counts as little as
    /// its pull does (iteratively reweighted least squares).
    pub data_curvature: DMatrix<f64>,
    /// `data_curvature` and the prior's, 1 / prior_sd², which makes it positive definite.
    pub curvature: DMatrix<f64>,
}

/// Returns the derivatives of a cost.
///
/// # Errors
/// Those of the model.
pub fn slopes(problem: &dyn LeastSquares, values: &[f64]) -> Result<Slopes> {
    let residuals = problem.residuals(values)?;
    let columns = problem.derivatives(values, &residuals)?;
    let of_rows = |of: fn(f64) -> f64| -> Vec<f64> {
        residuals.iter().enumerate().map(|(row, r)| problem.weight(row) * of(*r)).collect()
    };
    let (pulls, weights) = (of_rows(huber::slope), of_rows(huber::weight));
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let mut data_curvature = DMatrix::zeros(values.len(), values.len());
    // Columns of zeros are skipped: a dense model has no experts, most loads no penalties.
    let filled: Vec<usize> = (0..columns.len()).filter(|i| columns[*i].iter().any(|slope| *slope != 0.0)).collect();
    for &i in &filled {
        let weighted: Vec<f64> = columns[i].iter().zip(&weights).map(|(slope, weight)| slope * weight).collect();
        for &j in &filled {
            data_curvature[(i, j)] = dot(&weighted, &columns[j]);
        }
    }
    let parameters = problem.parameters();
    let mut curvature = data_curvature.clone();
    parameters.iter().enumerate().for_each(|(i, of)| curvature[(i, i)] += of.prior_sd.powi(-2));
    let gradient = |((of, value), column): ((&Parameter, &f64), &Vec<f64>)| {
        (value - of.prior) / of.prior_sd.powi(2) + dot(&pulls, column)
    };
    Ok(Slopes {
        gradient: parameters.iter().zip(values).zip(&columns).map(gradient).collect(),
        data_curvature,
        curvature,
    })
}

/// When to stop.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Options {
    /// Iterations at most.
    pub max_iterations: u64,
    /// A step that promises to lower the cost by less than this share of 1 + the cost is not taken.
    pub tolerance: f64,
}

/// Where a fit ended and how it got there. Serialised keys are stable.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Solution {
    /// Value of each parameter, within its bounds.
    #[serde(skip)]
    pub values: Vec<f64>,
    /// Whether no step lowers the cost any more.
    pub converged: bool,
    /// Why it stopped, in words.
    pub why_stopped: String,
    /// Iterations that argmin's executor ran.
    pub iterations: u64,
    /// Cost at the start, after bounds were applied.
    pub cost_before: f64,
    /// Cost of `values`.
    pub cost_after: f64,
}

/// Finds the parameters of least cost within their bounds. A `start` outside them is moved to the nearest one.
///
/// # Errors
/// `ErrorKind::InvalidArgument` if `start` has another length than there are parameters or a number that is not finite; the
/// first error of `problem`.
pub fn minimise(problem: &dyn LeastSquares, start: &[f64], options: Options) -> Result<Solution> {
    let parameters = problem.parameters();
    if start.len() != parameters.len() || !start.iter().all(|value| value.is_finite()) {
        return Err(Error::invalid_argument(
            "start of the fit",
            cut(&format!("{start:?}")),
            format!("must be {} finite numbers, one per parameter", parameters.len()),
        ));
    }
    let start: Vec<f64> = start.iter().zip(parameters).map(|(value, of)| of.clamp(*value)).collect();
    let cost_before = cost(problem, &start)?;
    let solver =
        BoundedGaussNewton { parameters: parameters.to_vec(), tolerance: options.tolerance, damping: DAMPING.0 };
    let run = Executor::new(problem, solver)
        .configure(|state| state.param(start.clone()).cost(cost_before).max_iters(options.max_iterations))
        .ctrlc(false)
        .run()
        .map_err(to_own_error)?;
    let state = run.state();
    let reason = state.get_termination_reason();
    let values = state.get_best_param().cloned().unwrap_or(start);
    Ok(Solution {
        converged: matches!(reason, Some(TerminationReason::SolverConverged)),
        why_stopped: match reason {
            Some(TerminationReason::SolverConverged) => "no step lowers the cost any more".to_owned(),
            Some(TerminationReason::MaxItersReached) => {
                format!("{} iterations were not enough", options.max_iterations)
            }
            Some(other) => other.text().to_owned(),
            None => "unknown".to_owned(),
        },
        iterations: state.get_iter(),
        cost_before,
        cost_after: cost(problem, &values)?,
        values,
    })
}

/// The error of a problem as it was before argmin wrapped it.
fn to_own_error(error: ArgminError) -> Error {
    error.downcast::<Error>().unwrap_or_else(|other| Error::invalid("fit", vec![other.to_string()]))
}

/// State of argmin's executor as this solver uses it.
type FitState = IterState<Vec<f64>, (), (), (), (), f64>;
type Stepped = std::result::Result<(FitState, Option<KV>), ArgminError>;

/// Each iteration minimises the quadratic model of the cost within the bounds. Parameters on a bound whose slope points
/// outwards are held; those that a step would take outside move to the bound, and the others are solved for again. Damping
/// grows until the step lowers the cost by a share of what the model promises.
struct BoundedGaussNewton {
    parameters: Vec<Parameter>,
    tolerance: f64,
    damping: f64,
}

impl BoundedGaussNewton {
    /// Values that minimise the damped model from `at`, and by how much it says that the cost falls.
    fn step(&self, at: &[f64], slopes: &Slopes) -> Option<(Vec<f64>, f64)> {
        let Slopes { gradient, curvature, .. } = slopes;
        let count = self.parameters.len();
        let scale = |i: usize| self.parameters[i].prior_sd;
        let mut free: Vec<bool> = (0..count).map(|i| self.is_free(i, at[i], gradient[i])).collect();
        let mut moved = vec![0.0; count];
        loop {
            let chosen: Vec<usize> = (0..count).filter(|i| free[*i]).collect();
            let matrix = DMatrix::from_fn(chosen.len(), chosen.len(), |row, column| {
                let (i, j) = (chosen[row], chosen[column]);
                let damped = if i == j { 1.0 + self.damping } else { 1.0 };
                curvature[(i, j)] * scale(i) * scale(j) * damped
            });
            let pull = DVector::from_fn(chosen.len(), |row, _| {
                let i = chosen[row];
                let held: f64 = (0..count).filter(|j| !free[*j]).map(|j| curvature[(i, j)] * moved[j]).sum();
                -(gradient[i] + held) * scale(i)
            });
            let solved = matrix.cholesky()?.solve(&pull);
            let mut is_outside = false;
            for (row, i) in chosen.into_iter().enumerate() {
                let target = at[i] + solved[row] * scale(i);
                let within = self.parameters[i].clamp(target);
                moved[i] = within - at[i];
                if !within.total_cmp(&target).is_eq() {
                    (free[i], is_outside) = (false, true);
                }
            }
            if !is_outside {
                break;
            }
        }
        let promised: f64 = (0..count)
            .map(|i| {
                let bent: f64 = (0..count).map(|j| curvature[(i, j)] * moved[j]).sum();
                -moved[i] * (gradient[i] + 0.5 * bent)
            })
            .sum();
        let values: Vec<f64> = (0..count).map(|i| self.parameters[i].clamp(at[i] + moved[i])).collect();
        (promised.is_finite() && values.iter().all(|value| value.is_finite())).then_some((values, promised))
    }

    fn is_free(&self, i: usize, value: f64, slope: f64) -> bool {
        let parameter = &self.parameters[i];
        let held_below = value <= parameter.bounds.0 && slope >= 0.0;
        let held_above = value >= parameter.bounds.1 && slope <= 0.0;
        !parameter.is_fixed() && !held_below && !held_above
    }
}

impl<'p> Solver<&'p dyn LeastSquares, FitState> for BoundedGaussNewton {
    fn name(&self) -> &str {
        "bounded Gauss-Newton"
    }

    fn next_iter(&mut self, problem: &mut Counted<&'p dyn LeastSquares>, mut state: FitState) -> Stepped {
        let at = state.take_param().unwrap_or_default();
        let cost = state.get_cost();
        let slopes = problem.problem("slopes_count", |problem| Ok(slopes(*problem, &at)?))?;
        let enough = self.tolerance * (1.0 + cost.abs());
        let (first, least, greatest) = DAMPING;
        while self.damping < greatest {
            let Some((values, promised)) = self.step(&at, &slopes) else {
                self.damping = (self.damping * 10.0).max(first);
                continue;
            };
            // Strong damping makes a promise small even if the minimum is still far.
            if promised <= enough && self.damping <= first {
                return Ok((end(state, at, cost, TerminationReason::SolverConverged), None));
            }
            let new_cost = problem.problem("cost_count", |problem| Ok(self::cost(*problem, &values)?))?;
            let kept = (cost - new_cost) / promised;
            if new_cost < cost && kept > 1e-4 {
                if kept > 0.75 {
                    self.damping *= 0.1;
                    self.damping = if self.damping < least { 0.0 } else { self.damping };
                } else if kept < 0.25 {
                    self.damping = (self.damping * 4.0).max(first);
                }
                return Ok((state.param(values).cost(new_cost), None));
            }
            self.damping = (self.damping * 10.0).max(first);
        }
        // Near the minimum the cost's rounding hides what the smallest steps change; elsewhere something is wrong.
        self.damping = first;
        let reason = match self.step(&at, &slopes) {
            Some((_, promise)) if promise <= ROUNDING * (1.0 + cost.abs()) => TerminationReason::SolverConverged,
            _ => TerminationReason::SolverExit("no step lowers the cost, though its slope is not zero".to_owned()),
        };
        Ok((end(state, at, cost, reason), None))
    }
}

fn end(state: FitState, at: Vec<f64>, cost: f64, reason: TerminationReason) -> FitState {
    state.param(at).cost(cost).terminate_with(reason)
}

#[cfg(test)]
#[path = "solver_tests.rs"]
mod tests;

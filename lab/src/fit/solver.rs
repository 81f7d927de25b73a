//! Bounded Gauss–Newton with Levenberg–Marquardt damping, as a solver that argmin's executor runs. Uses `problem`, `error`.

use argmin::core::{
    CostFunction, Error as ArgminError, Executor, Gradient, Hessian, IterState, KV, Problem as Counted, Solver, State,
    TerminationReason,
};
use nalgebra::{DMatrix, DVector};

use super::problem::{Parameter, Problem};
use ridgepoint::{Error, Result};

/// Iterations at most; a fit takes some ten.
const MAX_ITERATIONS: u64 = 300;
/// The step that lowers the cost by less than this share of it is the last.
const TOLERANCE: f64 = 1e-12;
/// A promise of less than this share of the cost may be lost in the rounding of a sum over many rows.
const ROUNDING: f64 = 1e-9;
/// Levenberg–Marquardt damping tried first, least (below it: none) and greatest, relative to the curvature's diagonal.
const DAMPING: (f64, f64, f64) = (1e-3, 1e-9, 1e12);

/// Where a fit ended and how it got there.
#[derive(Debug, Clone, PartialEq)]
pub struct Solution {
    /// Value of each parameter, within its bounds.
    pub values: Vec<f64>,
    /// [`Problem::cost`] where the fit started, after bounds were applied.
    pub cost_start: f64,
    /// [`Problem::cost`] of `values`.
    pub cost: f64,
    /// Iterations that argmin's executor ran.
    pub iterations: u64,
    /// Whether no step lowers the cost any more.
    pub converged: bool,
    /// Why it stopped, in words.
    pub why_stopped: String,
    /// Whether each value lies on one of its bounds.
    pub at_bound: Vec<bool>,
}

/// Finds the parameters of least cost within their bounds, from `start`; values outside the bounds start at the nearest one.
/// A parameter that no row has ends at its prior.
///
/// # Errors
/// `ErrorKind::InvalidArgument` where `start` has another length than there are parameters or a number that is not finite.
pub fn minimise(problem: &Problem, start: &[f64]) -> Result<Solution> {
    let parameters = problem.parameters();
    if start.len() != parameters.len() || !start.iter().all(|value| value.is_finite()) {
        return Err(Error::invalid_argument(
            "start of the fit",
            ridgepoint::internals::error::cut(&format!("{start:?}")),
            format!("must be {} finite numbers, one per parameter", parameters.len()),
        ));
    }
    let start: Vec<f64> = start.iter().zip(parameters).map(|(value, of)| clamp(of, *value)).collect();
    let cost_start = problem.cost(&start);
    let solver = BoundedGaussNewton { parameters: parameters.to_vec(), damping: DAMPING.0 };
    let ran = Executor::new(problem, solver)
        .configure(|state| state.param(start.clone()).max_iters(MAX_ITERATIONS))
        .ctrlc(false)
        .run()
        .map_err(|error| Error::invalid("fit", vec![error.to_string()]))?;
    let state = ran.state();
    let reason = state.get_termination_reason();
    let values = state.get_best_param().cloned().unwrap_or(start);
    Ok(Solution {
        cost_start,
        cost: problem.cost(&values),
        iterations: state.get_iter(),
        converged: matches!(reason, Some(TerminationReason::SolverConverged)),
        why_stopped: in_words(reason),
        at_bound: values.iter().zip(parameters).map(|(value, of)| *value <= of.lower || *value >= of.upper).collect(),
        values,
    })
}

fn in_words(reason: Option<&TerminationReason>) -> String {
    match reason {
        Some(TerminationReason::SolverConverged) => "no step lowers the cost any more".to_owned(),
        Some(TerminationReason::MaxItersReached) => format!("{MAX_ITERATIONS} iterations were not enough"),
        Some(other) => other.text().to_owned(),
        None => "unknown".to_owned(),
    }
}

fn clamp(parameter: &Parameter, value: f64) -> f64 {
    value.max(parameter.lower).min(parameter.upper)
}

/// State of argmin's executor as this solver uses it.
type FitState = IterState<Vec<f64>, Vec<f64>, (), DMatrix<f64>, (), f64>;

/// Each iteration minimises the quadratic model of the cost within the bounds: parameters on a bound whose slope points outwards
/// are held, those that a step would take outside go to the bound and the others are solved for again. Damping grows until
/// the step lowers the cost by a share of what the model promises.
#[derive(Debug, Clone)]
struct BoundedGaussNewton {
    parameters: Vec<Parameter>,
    damping: f64,
}

impl BoundedGaussNewton {
    /// Values that minimise the damped model from `at`, and how far it says that the cost falls.
    fn step(&self, at: &[f64], gradient: &[f64], curvature: &DMatrix<f64>) -> Option<(Vec<f64>, f64)> {
        let count = self.parameters.len();
        let scales: Vec<f64> = self.parameters.iter().map(Parameter::scale).collect();
        let mut free: Vec<bool> = (0..count).map(|i| self.is_free(i, at[i], gradient[i])).collect();
        let mut moved = vec![0.0; count];
        loop {
            let chosen: Vec<usize> = (0..count).filter(|i| free[*i]).collect();
            // In units of the prior's standard deviation the undamped matrix is 1 + something that is not negative.
            let matrix = DMatrix::from_fn(chosen.len(), chosen.len(), |row, column| {
                let (i, j) = (chosen[row], chosen[column]);
                let damped = if i == j { 1.0 + self.damping } else { 1.0 };
                curvature[(i, j)] * scales[i] * scales[j] * damped
            });
            let pulled = DVector::from_fn(chosen.len(), |row, _| {
                let i = chosen[row];
                let held: f64 = (0..count).filter(|j| !free[*j]).map(|j| curvature[(i, j)] * moved[j]).sum();
                -(gradient[i] + held) * scales[i]
            });
            let solved = matrix.cholesky()?.solve(&pulled);
            let mut outside = false;
            for (row, i) in chosen.into_iter().enumerate() {
                let wanted = at[i] + solved[row] * scales[i];
                let within = clamp(&self.parameters[i], wanted);
                moved[i] = within - at[i];
                if !within.total_cmp(&wanted).is_eq() {
                    (free[i], outside) = (false, true);
                }
            }
            if !outside {
                break;
            }
        }
        let promised: f64 = (0..count)
            .map(|i| {
                let bent: f64 = (0..count).map(|j| curvature[(i, j)] * moved[j]).sum();
                -moved[i] * (gradient[i] + 0.5 * bent)
            })
            .sum();
        let values: Vec<f64> = (0..count).map(|i| clamp(&self.parameters[i], at[i] + moved[i])).collect();
        (promised.is_finite() && values.iter().all(|value| value.is_finite())).then_some((values, promised))
    }

    fn is_free(&self, i: usize, value: f64, slope: f64) -> bool {
        let parameter = &self.parameters[i];
        let held_below = value <= parameter.lower && slope >= 0.0;
        let held_above = value >= parameter.upper && slope <= 0.0;
        parameter.scale() > 0.0 && !held_below && !held_above
    }
}

impl<O> Solver<O, FitState> for BoundedGaussNewton
where
    O: CostFunction<Param = Vec<f64>, Output = f64>
        + Gradient<Param = Vec<f64>, Gradient = Vec<f64>>
        + Hessian<Param = Vec<f64>, Hessian = DMatrix<f64>>,
{
    fn name(&self) -> &str {
        "bounded Gauss-Newton"
    }

    fn init(
        &mut self,
        problem: &mut Counted<O>,
        mut state: FitState,
    ) -> std::result::Result<(FitState, Option<KV>), ArgminError> {
        let at = state.take_param().unwrap_or_else(|| self.parameters.iter().map(|of| of.prior).collect());
        let cost = problem.cost(&at)?;
        Ok((state.param(at).cost(cost), None))
    }

    fn next_iter(
        &mut self,
        problem: &mut Counted<O>,
        mut state: FitState,
    ) -> std::result::Result<(FitState, Option<KV>), ArgminError> {
        let at = state.take_param().unwrap_or_else(|| self.parameters.iter().map(|of| of.prior).collect());
        let cost = state.get_cost();
        let (gradient, curvature) = (problem.gradient(&at)?, problem.hessian(&at)?);
        let enough = TOLERANCE * (1.0 + cost.abs());
        let (first, least, greatest) = DAMPING;
        while self.damping < greatest {
            let Some((values, promised)) = self.step(&at, &gradient, &curvature) else {
                self.damping = (self.damping * 10.0).max(first);
                continue;
            };
            // Much damping makes a promise small where the minimum is still far.
            if promised <= enough && self.damping <= first {
                return Ok((end(state, at, cost, TerminationReason::SolverConverged), None));
            }
            let new_cost = problem.cost(&values)?;
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
        let reason = match self.step(&at, &gradient, &curvature) {
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

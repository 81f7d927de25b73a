//! Owns the nonlinear solver of every fit: bounded Gauss–Newton with Levenberg–Marquardt damping, which argmin's executor
//! runs.

use argmin::core::{
    Error as ArgminError, Executor, IterState, KV, Problem as Counted, Solver, State, TerminationReason,
};
use nalgebra::{DMatrix, DVector};

use crate::huber;
use ridgepoint::internals::error::cut;
use ridgepoint::{Error, Result};

/// A promise of less than this share of the cost may be lost in the rounding of a sum over many rows.
const ROUNDING: f64 = 1e-9;
/// Levenberg–Marquardt damping relative to the curvature's diagonal: first, least (below it there is none) and greatest.
const DAMPING: (f64, f64, f64) = (1e-3, 1e-9, 1e12);

/// A cost to minimise that is close to a sum of squares.
pub trait LeastSquares {
    /// Returns the cost, which must be finite.
    ///
    /// # Errors
    /// Those of the model; the first one ends the fit.
    fn cost(&self, values: &[f64]) -> Result<f64>;

    /// Returns the gradient of the cost and the Gauss–Newton approximation of its second derivatives. The curvature must be
    /// positive definite; a Gaussian prior on every parameter makes it so.
    ///
    /// # Errors
    /// Those of the model; the first one ends the fit.
    fn slopes(&self, values: &[f64]) -> Result<Slopes>;
}

/// First and second derivatives of a cost.
#[derive(Debug, Clone)]
pub struct Slopes {
    /// Derivative by each parameter.
    pub gradient: Vec<f64>,
    /// Symmetric matrix of second derivatives.
    pub curvature: DMatrix<f64>,
}

/// Gaussian prior of a parameter that a numeric fit moves.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Prior {
    /// Mean.
    pub mean: f64,
    /// Standard deviation, above 0.
    pub sd: f64,
    /// Step of the finite difference, above 0.
    pub step: f64,
}

/// A fit of a model without derivatives: `Σ huber(residual) + ½ Σ ((value − mean) / sd)²`.
pub struct NumericFit<F> {
    /// Returns the residuals at some values, each in units of its expected standard deviation. Their number never changes.
    pub residuals: F,
    /// Prior of each parameter.
    pub priors: Vec<Prior>,
}

impl<F: Fn(&[f64]) -> Result<Vec<f64>>> LeastSquares for NumericFit<F> {
    fn cost(&self, values: &[f64]) -> Result<f64> {
        let rows: f64 = (self.residuals)(values)?.into_iter().map(huber::loss).sum();
        let off = |(prior, value): (&Prior, &f64)| 0.5 * ((value - prior.mean) / prior.sd).powi(2);
        let cost = rows + self.priors.iter().zip(values).map(off).sum::<f64>();
        Ok(if cost.is_nan() { f64::MAX } else { cost.min(f64::MAX) })
    }

    /// Takes one evaluation of the residuals and one more per parameter (forward differences).
    fn slopes(&self, values: &[f64]) -> Result<Slopes> {
        let here = (self.residuals)(values)?;
        let mut columns = Vec::with_capacity(values.len());
        for (index, prior) in self.priors.iter().enumerate() {
            let mut moved = values.to_vec();
            moved[index] += prior.step;
            let there = (self.residuals)(&moved)?;
            columns
                .push(there.iter().zip(&here).map(|(there, here)| (there - here) / prior.step).collect::<Vec<f64>>());
        }
        let pulls: Vec<f64> = here.iter().map(|residual| huber::slope(*residual)).collect();
        let weights: Vec<f64> = here.iter().map(|residual| huber::weight(*residual)).collect();
        let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        let gradient = self.priors.iter().zip(values).zip(&columns);
        let mut curvature = DMatrix::zeros(values.len(), values.len());
        for (i, column) in columns.iter().enumerate() {
            let weighted: Vec<f64> = column.iter().zip(&weights).map(|(slope, weight)| slope * weight).collect();
            for (j, other) in columns.iter().enumerate() {
                curvature[(i, j)] = dot(&weighted, other);
            }
            curvature[(i, i)] += self.priors[i].sd.powi(-2);
        }
        Ok(Slopes {
            gradient: gradient
                .map(|((prior, value), column)| (value - prior.mean) / prior.sd.powi(2) + dot(&pulls, column))
                .collect(),
            curvature,
        })
    }
}

/// Bounds and scale of a parameter.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Range {
    /// Least value; may be −∞. If it equals `upper` the parameter is fixed.
    pub lower: f64,
    /// Greatest value; may be ∞.
    pub upper: f64,
    /// Size of a typical change, above 0: the prior's standard deviation.
    pub scale: f64,
}

impl Range {
    fn clamp(&self, value: f64) -> f64 {
        value.max(self.lower).min(self.upper)
    }

    fn is_fixed(&self) -> bool {
        self.lower >= self.upper
    }
}

/// When to stop.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Options {
    /// Iterations at most.
    pub max_iterations: u64,
    /// A step that promises to lower the cost by less than this share of 1 + the cost is not taken.
    pub tolerance: f64,
}

/// Where a fit ended and how it got there.
#[derive(Debug, Clone, PartialEq)]
pub struct Solution {
    /// Value of each parameter, within its bounds.
    pub values: Vec<f64>,
    /// Cost at the start, after bounds were applied.
    pub cost_start: f64,
    /// Cost of `values`.
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

/// Finds the parameters of least cost within their `ranges`. A `start` outside its range is moved to the nearest bound.
///
/// # Errors
/// `ErrorKind::InvalidArgument` if `start` and `ranges` differ in length or a start is not finite; the first error of `problem`.
pub fn minimise(problem: &impl LeastSquares, start: &[f64], ranges: &[Range], options: Options) -> Result<Solution> {
    if start.len() != ranges.len() || !start.iter().all(|value| value.is_finite()) {
        return Err(Error::invalid_argument(
            "start of the fit",
            cut(&format!("{start:?}")),
            format!("must be {} finite numbers, one per parameter", ranges.len()),
        ));
    }
    let start: Vec<f64> = start.iter().zip(ranges).map(|(value, range)| range.clamp(*value)).collect();
    let cost_start = problem.cost(&start)?;
    let solver = BoundedGaussNewton { ranges: ranges.to_vec(), tolerance: options.tolerance, damping: DAMPING.0 };
    let run = Executor::new(problem, solver)
        .configure(|state| state.param(start.clone()).cost(cost_start).max_iters(options.max_iterations))
        .ctrlc(false)
        .run()
        .map_err(to_own_error)?;
    let state = run.state();
    let reason = state.get_termination_reason();
    let values = state.get_best_param().cloned().unwrap_or(start);
    Ok(Solution {
        cost_start,
        cost: problem.cost(&values)?,
        iterations: state.get_iter(),
        converged: matches!(reason, Some(TerminationReason::SolverConverged)),
        why_stopped: match reason {
            Some(TerminationReason::SolverConverged) => "no step lowers the cost any more".to_owned(),
            Some(TerminationReason::MaxItersReached) => {
                format!("{} iterations were not enough", options.max_iterations)
            }
            Some(other) => other.text().to_owned(),
            None => "unknown".to_owned(),
        },
        at_bound: values
            .iter()
            .zip(ranges)
            .map(|(value, range)| *value <= range.lower || *value >= range.upper)
            .collect(),
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
    ranges: Vec<Range>,
    tolerance: f64,
    damping: f64,
}

impl BoundedGaussNewton {
    /// Values that minimise the damped model from `at`, and by how much it says that the cost falls.
    fn step(&self, at: &[f64], slopes: &Slopes) -> Option<(Vec<f64>, f64)> {
        let Slopes { gradient, curvature } = slopes;
        let count = self.ranges.len();
        let scale = |i: usize| self.ranges[i].scale;
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
                let within = self.ranges[i].clamp(target);
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
        let values: Vec<f64> = (0..count).map(|i| self.ranges[i].clamp(at[i] + moved[i])).collect();
        (promised.is_finite() && values.iter().all(|value| value.is_finite())).then_some((values, promised))
    }

    fn is_free(&self, i: usize, value: f64, slope: f64) -> bool {
        let range = &self.ranges[i];
        let held_below = value <= range.lower && slope >= 0.0;
        let held_above = value >= range.upper && slope <= 0.0;
        !range.is_fixed() && !held_below && !held_above
    }
}

impl<P: LeastSquares> Solver<&P, FitState> for BoundedGaussNewton {
    fn name(&self) -> &str {
        "bounded Gauss-Newton"
    }

    fn next_iter(&mut self, problem: &mut Counted<&P>, mut state: FitState) -> Stepped {
        let at = state.take_param().unwrap_or_default();
        let cost = state.get_cost();
        let slopes = problem.problem("slopes_count", |problem| Ok(problem.slopes(&at)?))?;
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
            let new_cost = problem.problem("cost_count", |problem| Ok(problem.cost(&values)?))?;
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
mod tests {
    use super::*;

    const PRECISE: Options = Options { max_iterations: 300, tolerance: 1e-12 };

    fn wide(scale: f64) -> Range {
        Range { lower: f64::NEG_INFINITY, upper: f64::INFINITY, scale }
    }

    /// `a·exp(−b·x)` through points of a = 5, b = 0.3, in units of a hundredth.
    fn decay(values: &[f64]) -> Result<Vec<f64>> {
        let at = |values: &[f64], x: f64| values[0] * (-values[1] * x).exp();
        Ok((0..20).map(f64::from).map(|x| (at(values, x) - at(&[5.0, 0.3], x)) / 0.01).collect())
    }

    fn weak(means: [f64; 2]) -> Vec<Prior> {
        means.map(|mean| Prior { mean, sd: 10.0, step: 1e-6 }).to_vec()
    }

    #[test]
    fn a_curve_is_found_from_its_residuals() {
        let problem = NumericFit { residuals: decay, priors: weak([1.0, 1.0]) };
        let solution = minimise(&problem, &[1.0, 1.0], &[wide(1.0); 2], PRECISE).unwrap();
        assert!((solution.values[0] - 5.0).abs() < 1e-3 && (solution.values[1] - 0.3).abs() < 1e-3, "{solution:?}");
        assert!(solution.converged && solution.cost < solution.cost_start, "{solution:?}");
    }

    #[test]
    fn an_outlier_hardly_moves_the_curve() {
        let residuals = |values: &[f64]| {
            decay(values).map(|mut all| {
                all[7] += 1e4;
                all
            })
        };
        let problem = NumericFit { residuals, priors: weak([5.0, 0.3]) };
        let solution = minimise(&problem, &[1.0, 1.0], &[wide(1.0); 2], PRECISE).unwrap();
        assert!((solution.values[0] - 5.0).abs() < 0.05 && (solution.values[1] - 0.3).abs() < 0.01, "{solution:?}");
    }

    #[test]
    fn bounds_hold_and_a_fixed_parameter_stays() {
        let problem = NumericFit { residuals: decay, priors: weak([1.0, 1.0]) };
        let ranges = [Range { lower: 0.0, upper: 4.0, scale: 1.0 }, Range { lower: 0.5, upper: 0.5, scale: 1.0 }];
        let solution = minimise(&problem, &[9.0, 1.0], &ranges, PRECISE).unwrap();
        assert!(solution.values[0] <= 4.0 && (solution.values[1] - 0.5).abs() < 1e-300, "{solution:?}");
        assert!(solution.at_bound[1] && solution.converged, "{solution:?}");
    }

    #[test]
    fn the_first_error_of_the_model_is_returned_as_it_is() {
        let failing = |values: &[f64]| if values[0] > 2.0 { Err(Error::empty_step()) } else { decay(values) };
        let problem = NumericFit { residuals: failing, priors: weak([1.0, 1.0]) };
        let found = minimise(&problem, &[1.0, 0.3], &[wide(1.0); 2], PRECISE);
        assert_eq!(found.unwrap_err().kind(), ridgepoint::ErrorKind::EmptyStep);
    }

    #[test]
    fn a_start_of_another_length_is_refused() {
        let problem = NumericFit { residuals: decay, priors: weak([1.0, 1.0]) };
        for start in [&[1.0][..], &[1.0, f64::NAN]] {
            let message = minimise(&problem, start, &[wide(1.0); 2], PRECISE).unwrap_err().to_string();
            assert!(message.contains("must be 2 finite numbers"), "{message}");
        }
    }
}

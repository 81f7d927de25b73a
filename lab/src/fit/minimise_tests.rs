//! Known parameters are found again: with noise, with outliers, on bounds, without data. Uses `problem`.

use argmin::core::{CostFunction, Executor, Gradient, IterState, State};
use argmin::solver::linesearch::MoreThuenteLineSearch;
use argmin::solver::quasinewton::LBFGS;
use proptest::prelude::*;
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, Normal};
use rand_pcg::Pcg64;

use super::posterior::posterior;
use super::problem::{FitRow, Problem, Target};
use crate::solver::{self, Parameter, Solution};

fn bounded(name: &'static str, prior: f64, prior_sd: f64, bounds: (f64, f64)) -> Parameter {
    Parameter { name, unit: "1", prior, prior_sd, bounds }
}

fn priors(problem: &Problem) -> Vec<f64> {
    problem.parameters.iter().map(|of| of.prior).collect()
}

fn at_bounds(problem: &Problem, solution: &Solution) -> Vec<bool> {
    problem.parameters.iter().zip(&solution.values).map(|(of, value)| of.is_at_bound(*value)).collect()
}

/// Two factors and a price, as a correction has them, with weak priors.
fn three() -> Vec<Parameter> {
    vec![
        bounded("projections", 1.0, 0.5, (0.3, 3.0)),
        bounded("attention", 1.0, 0.5, (0.3, 3.0)),
        bounded("step_us", 0.0, 1000.0, (0.0, f64::INFINITY)),
    ]
}

/// Rows whose columns are times of 1 to 20 ms and a count of one, with log-normal noise of `sd`.
fn synthetic(truth: &[f64], count: usize, sd: f64, seed: u64) -> Vec<FitRow> {
    let mut random = Pcg64::seed_from_u64(seed);
    let noise = Normal::new(0.0, sd.max(1e-12)).unwrap();
    let row = |_| {
        let mut x: Vec<f64> = (1..truth.len()).map(|_| random.random_range(1_000.0..20_000.0)).collect();
        x.push(1.0);
        let exact: f64 = x.iter().zip(truth).map(|(x, value)| x * value).sum();
        let measured = exact * noise.sample(&mut random).exp();
        FitRow { offset: 0.0, x, measured, sd: sd.max(0.01), weight: 1.0, target: Target::Ttft }
    };
    (0..count).map(row).collect()
}

fn close(found: &[f64], expected: &[f64], relative: f64) {
    for (found, expected) in found.iter().zip(expected) {
        assert!((found - expected).abs() <= relative * expected.abs(), "{found} is not {expected}");
    }
}

#[test]
fn exact_rows_give_their_parameters_back() {
    let truth = [1.3, 0.8, 700.0];
    let problem = Problem::new("exact", three(), synthetic(&truth, 200, 0.0, 1)).unwrap();
    let solution = problem.minimise(&priors(&problem)).unwrap();
    close(&solution.values[..2], &truth[..2], 0.002);
    close(&solution.values[2..], &truth[2..], 0.02);
    assert!(solution.converged && solution.iterations < 30, "{solution:?}");
    assert!(solution.cost_after < 1.0 && solution.cost_before > 100.0, "{solution:?}");
    assert_eq!(at_bounds(&problem, &solution), [false; 3]);
}

#[test]
fn a_twentieth_of_rows_three_times_too_long_moves_little() {
    let truth = [1.3, 0.8, 700.0];
    let clean = synthetic(&truth, 1000, 0.05, 2);
    let mut outliers = clean.clone();
    for row in outliers.iter_mut().step_by(20) {
        row.measured *= 3.0;
    }
    let solved = |rows| {
        let problem = Problem::new("noisy", three(), rows).unwrap();
        problem.minimise(&priors(&problem)).unwrap().values
    };
    let (clean, robust) = (solved(clean), solved(outliers));
    close(&clean[..2], &truth[..2], 0.02);
    // Plain least squares would move every prediction by 5 % of ln 3, 5.5 %.
    close(&robust[..2], &truth[..2], 0.02);
}

#[test]
fn truths_outside_the_bounds_end_on_them() {
    for (truth, at, bound) in [([4.0, 0.8, 700.0], 0, 3.0), ([1.2, 0.1, 700.0], 1, 0.3), ([1.2, 0.8, -900.0], 2, 0.0)] {
        let problem = Problem::new("outside", three(), synthetic(&truth, 300, 0.02, 3)).unwrap();
        for start in [priors(&problem), vec![0.3, 3.0, 0.0], vec![-50.0, 1e9, 1e9]] {
            let solution = problem.minimise(&start).unwrap();
            assert!(solution.converged, "{solution:?}");
            assert!((solution.values[at] - bound).abs() < 1e-300 && at_bounds(&problem, &solution)[at], "{solution:?}");
        }
    }
}

#[test]
fn parameters_without_data_end_at_their_prior() {
    let mut parameters = three();
    parameters.insert(2, bounded("experts", 1.1, 0.1, (0.3, 3.0)));
    let mut rows = synthetic(&[1.3, 0.8, 700.0], 50, 0.02, 4);
    rows.iter_mut().for_each(|row| row.x.insert(2, 0.0));
    let problem = Problem::new("dense", parameters, rows).unwrap();
    let solution = problem.minimise(&[1.0, 1.0, 2.9, 0.0]).unwrap();
    assert!((solution.values[2] - 1.1).abs() < 1e-6, "{solution:?}");
}

#[test]
fn a_fixed_parameter_is_not_moved() {
    let mut parameters = three();
    parameters[1].bounds = (1.0, 1.0);
    let problem = Problem::new("fixed", parameters, synthetic(&[1.3, 0.8, 700.0], 50, 0.02, 5)).unwrap();
    let solution = problem.minimise(&priors(&problem)).unwrap();
    assert_eq!(solution.values[1].to_bits(), 1.0_f64.to_bits());
    assert!(solution.converged && at_bounds(&problem, &solution)[1], "{solution:?}");
}

#[test]
fn strong_priors_win_over_two_rows() {
    let mut parameters = three();
    parameters.iter_mut().for_each(|parameter| parameter.prior_sd *= 1e-4);
    let problem = Problem::new("strong", parameters, synthetic(&[1.5, 1.5, 0.0], 2, 0.05, 6)).unwrap();
    let solution = problem.minimise(&priors(&problem)).unwrap();
    close(&solution.values[..2], &[1.0, 1.0], 0.001);
}

#[test]
fn identical_rows_shift_parameters_by_their_prior_variance() {
    // One combination is known: x·θ = 1.2·100 against priors of 50 + 50; equal priors share it equally.
    let parameters = vec![bounded("a", 1.0, 0.5, (0.3, 3.0)), bounded("b", 1.0, 0.5, (0.3, 3.0))];
    let row = FitRow { offset: 0.0, x: vec![50.0, 50.0], measured: 120.0, sd: 0.01, weight: 1.0, target: Target::Ttft };
    let problem = Problem::new("identical", parameters, vec![row; 100]).unwrap();
    let solution = problem.minimise(&priors(&problem)).unwrap();
    close(&solution.values, &[1.2, 1.2], 0.001);
}

/// A problem as argmin's own solvers take it.
struct Unbounded<'a>(&'a Problem);

impl CostFunction for Unbounded<'_> {
    type Param = Vec<f64>;
    type Output = f64;
    fn cost(&self, values: &Vec<f64>) -> std::result::Result<f64, argmin::core::Error> {
        Ok(solver::cost(self.0, values)?)
    }
}

impl Gradient for Unbounded<'_> {
    type Param = Vec<f64>;
    type Gradient = Vec<f64>;
    fn gradient(&self, values: &Vec<f64>) -> std::result::Result<Vec<f64>, argmin::core::Error> {
        Ok(solver::slopes(self.0, values)?.gradient)
    }
}

#[test]
fn argmins_lbfgs_finds_the_same_minimum_where_nothing_is_bounded() {
    let free = (f64::NEG_INFINITY, f64::INFINITY);
    let parameters = vec![bounded("a", 1.0, 0.5, free), bounded("b", 1.0, 0.5, free)];
    let mut rows = synthetic(&[1.4, 0.7, 0.0], 100, 0.05, 7);
    rows.iter_mut().for_each(|row| row.x.truncate(2));
    rows.iter_mut().step_by(15).for_each(|row| row.measured *= 2.0);
    let problem = Problem::new("free", parameters, rows).unwrap();
    let ours = problem.minimise(&priors(&problem)).unwrap();
    let lbfgs = LBFGS::new(MoreThuenteLineSearch::new(), 7);
    let run = Executor::new(Unbounded(&problem), lbfgs)
        .configure(|state: IterState<Vec<f64>, Vec<f64>, (), (), (), f64>| state.param(priors(&problem)).max_iters(500))
        .run()
        .unwrap();
    let theirs = run.state().get_best_param().unwrap();
    close(&ours.values, theirs, 1e-5);
    let theirs = solver::cost(&problem, theirs).unwrap();
    assert!(ours.cost_after <= theirs + 1e-7, "{} {theirs}", ours.cost_after);
}

#[test]
fn thirteen_thousand_rows_of_fifteen_parameters_are_solved() {
    let truth: Vec<f64> = (0..15).map(|i| 0.7 + 0.05 * f64::from(i)).collect();
    let wide = vec![bounded("p", 1.0, 0.5, (0.3, 3.0)); 15];
    let problem = Problem::new("large", wide, synthetic(&truth, 13_000, 0.01, 8)).unwrap();
    let solution = problem.minimise(&priors(&problem)).unwrap();
    assert!(solution.converged, "{solution:?}");
    close(&solution.values[..14], &truth[..14], 0.015);
}

#[test]
fn a_start_of_another_length_is_refused() {
    let problem = Problem::new("short", three(), synthetic(&[1.0, 1.0, 0.0], 5, 0.05, 9)).unwrap();
    let error = problem.minimise(&[1.0]).unwrap_err().to_string();
    assert!(error.contains("'[1.0]' must be 3 finite numbers"), "{error}");
    assert!(problem.minimise(&[1.0, f64::NAN, 0.0]).is_err());
}

#[test]
fn columns_that_overflow_end_without_nan_and_say_so() {
    for size in [1e-300, 1e155, 1e300] {
        let row = |x: f64| FitRow {
            offset: 0.0,
            x: vec![x, x, 1.0],
            measured: 10.0,
            sd: 0.1,
            weight: 1.0,
            target: Target::Ttft,
        };
        let problem = Problem::new("huge", three(), vec![row(size), row(2.0 * size)]).unwrap();
        let solution = problem.minimise(&priors(&problem)).unwrap();
        assert!(
            solution.values.iter().all(|value| value.is_finite()) && solution.cost_after.is_finite(),
            "{solution:?}"
        );
        let found = posterior(&problem, &solution.values);
        assert!(found.map_or(true, |found| (0..3).all(|index| found.sd(index).is_finite())), "{size}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn any_rows_end_within_the_bounds_at_no_greater_cost(
        rows in prop::collection::vec(
            (-1e3..1e3_f64, prop::collection::vec(-1e4..1e4_f64, 3), 1e-3..1e6_f64, 1e-3..2.0_f64), 2..12),
        start in prop::collection::vec(-10.0..10.0_f64, 3),
    ) {
        let row = |(offset, x, measured, sd)| FitRow { offset, x, measured, sd, weight: 1.0, target: Target::Ttft };
        let problem = Problem::new("any", three(), rows.into_iter().map(row).collect()).unwrap();
        let solution = problem.minimise(&start).unwrap();
        prop_assert!(solution.cost_after <= solution.cost_before);
        for (value, of) in solution.values.iter().zip(&problem.parameters) {
            prop_assert!(value.is_finite() && of.bounds.0 <= *value && *value <= of.bounds.1, "{value}");
        }
    }
}

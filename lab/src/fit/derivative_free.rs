//! Nelder and Mead's simplex for functions without a gradient, such as a replay's error: argmin's, within bounds and a budget of
//! evaluations. Uses `error`.

use std::cell::RefCell;

use argmin::core::{
    CostFunction, Error as ArgminError, Executor, IterState, KV, Problem as Counted, Solver, State, TerminationReason,
    TerminationStatus,
};
use argmin::solver::neldermead::NelderMead;

use ridgepoint::{Error, Result};

/// The simplex is small once a round of trials stays within this share of `scale` around the best.
const SMALL: f64 = 1e-3;
/// And once its corners' values differ by less than this; both are in the unit of the function.
const FLAT: f64 = 1e-12;
/// What a value outside the bounds costs per squared `scale` that it is outside, relative to 1 + the best value so far.
const PENALTY: f64 = 1.0;

/// Where a search ended.
#[derive(Debug, Clone, PartialEq)]
pub struct Simplex {
    /// The best parameters tried, within their bounds.
    pub best: Vec<f64>,
    /// The function's value there.
    pub value: f64,
    /// How often the function was called.
    pub evaluations: u64,
    /// Whether the simplex became small, or its corners equal, before the evaluations were used up.
    pub converged: bool,
    /// Why it stopped, in words.
    pub why_stopped: String,
}

/// Searches the parameters of the least `f` from `start`, the first simplex reaching `scale` from it in each direction. `f` is
/// called at values within the bounds alone, at most `max_evaluations` times, and `done` after each call. A value of `f` that is
/// not finite counts as very large.
///
/// # Errors
/// `ErrorKind::InvalidArgument` for lengths that differ, a start, scale or bound that can't be, or too few evaluations to build
/// a simplex; otherwise the first error of `f`.
pub fn minimise_by_simplex(
    f: impl FnMut(&[f64]) -> Result<f64>,
    start: &[f64],
    scale: &[f64],
    lower: &[f64],
    upper: &[f64],
    max_evaluations: u64,
    done: &dyn Fn(),
) -> Result<Simplex> {
    check(start, scale, lower, upper, max_evaluations)?;
    let clamped = |values: &[f64]| -> Vec<f64> {
        values.iter().zip(lower).zip(upper).map(|((value, lower), upper)| value.max(*lower).min(*upper)).collect()
    };
    let start = clamped(start);
    let corner = |index: usize| {
        let step = |(i, value): (usize, &f64)| {
            let (up, down) = (value + scale[i], value - scale[i]);
            let towards = if up <= upper[i] || upper[i] - value >= value - lower[i] { up } else { down };
            if i == index { towards } else { *value }
        };
        clamped(&start.iter().enumerate().map(step).collect::<Vec<f64>>())
    };
    // A parameter without room would make the simplex flat for ever.
    let movable: Vec<usize> = (0..start.len()).filter(|i| lower[*i] < upper[*i]).collect();
    let corners: Vec<Vec<f64>> = std::iter::once(start.clone()).chain(movable.iter().map(|i| corner(*i))).collect();
    let watch = RefCell::new(Watch {
        f,
        best: None,
        failure: None,
        evaluations: 0,
        to_build: corners.len() as u64,
        recent: Vec::new(),
    });
    let objective = Bounded { watch: &watch, scale, lower, upper, max_evaluations, done };
    if movable.is_empty() {
        let _ = objective.cost(&start);
        return ended(watch.into_inner(), Some(&TerminationReason::SolverConverged), start);
    }
    let inner = NelderMead::new(corners).with_sd_tolerance(FLAT).map_err(|error| unusable(&error))?;
    let solver = Watched { inner, watch: &watch, scale, max_evaluations };
    // The budget counts evaluations: an iteration takes at least one.
    let run = Executor::new(objective, solver).configure(|state| state.max_iters(max_evaluations)).ctrlc(false).run();
    let reason = run.ok().and_then(|run| run.state().get_termination_reason().cloned());
    ended(watch.into_inner(), reason.as_ref(), start)
}

fn ended<F>(watch: Watch<F>, reason: Option<&TerminationReason>, start: Vec<f64>) -> Result<Simplex> {
    let Watch { best, failure, evaluations, .. } = watch;
    if let Some(failure) = failure {
        return Err(failure);
    }
    let (best, value) = best.unwrap_or((start, f64::MAX));
    let converged = matches!(reason, Some(TerminationReason::SolverConverged));
    let why_stopped = if converged {
        "the simplex is small or level".to_owned()
    } else {
        format!("{evaluations} evaluations were used up")
    };
    Ok(Simplex { best, value, evaluations, converged, why_stopped })
}

fn unusable(error: &ArgminError) -> Error {
    Error::invalid("simplex", vec![error.to_string()])
}

fn check(start: &[f64], scale: &[f64], lower: &[f64], upper: &[f64], max_evaluations: u64) -> Result<()> {
    let count = start.len();
    let bad = |what: &str, value: String, reason: String| Err(Error::invalid_argument(what, value, reason));
    for (what, values) in [("scale", scale), ("lower", lower), ("upper", upper)] {
        if values.len() != count || count == 0 {
            let reason = format!("values: must be as many as the start has, {count}, and at least 1");
            return bad(what, values.len().to_string(), reason);
        }
    }
    if let Some(value) = start.iter().find(|value| !value.is_finite()) {
        return bad("start", value.to_string(), "must be finite".to_owned());
    }
    if let Some(value) = scale.iter().find(|value| !(value.is_finite() && **value > 0.0)) {
        return bad("scale", value.to_string(), "must be above 0 and finite".to_owned());
    }
    if let Some((lower, upper)) =
        lower.iter().zip(upper).find(|(lower, upper)| lower.partial_cmp(upper).is_none_or(|order| order.is_gt()))
    {
        return bad("bounds", format!("{lower} to {upper}"), "must have a value between them".to_owned());
    }
    if max_evaluations < count as u64 + 1 {
        let reason = format!("must be at least {}, a simplex's corners", count + 1);
        return bad("max_evaluations", max_evaluations.to_string(), reason);
    }
    Ok(())
}

/// What objective and solver share: calls so far, the best of them, and where the last ones were.
struct Watch<F> {
    f: F,
    best: Option<(Vec<f64>, f64)>,
    failure: Option<Error>,
    evaluations: u64,
    to_build: u64,
    recent: Vec<Vec<f64>>,
}

struct Bounded<'a, F> {
    watch: &'a RefCell<Watch<F>>,
    scale: &'a [f64],
    lower: &'a [f64],
    upper: &'a [f64],
    max_evaluations: u64,
    done: &'a dyn Fn(),
}

impl<F: FnMut(&[f64]) -> Result<f64>> CostFunction for Bounded<'_, F> {
    type Param = Vec<f64>;
    type Output = f64;

    fn cost(&self, wanted: &Vec<f64>) -> std::result::Result<f64, ArgminError> {
        let mut watch = self.watch.borrow_mut();
        let watch = &mut *watch;
        if watch.failure.is_some() || watch.evaluations >= self.max_evaluations {
            // argmin's solver panics on an error while it builds its simplex.
            return if watch.evaluations < watch.to_build {
                Ok(f64::MAX.sqrt())
            } else {
                Err(ArgminError::msg("stop"))
            };
        }
        let (mut outside, mut values) = (0.0, Vec::with_capacity(wanted.len()));
        for (((wanted, scale), lower), upper) in wanted.iter().zip(self.scale).zip(self.lower).zip(self.upper) {
            let within = wanted.max(*lower).min(*upper);
            outside += ((wanted - within) / scale).powi(2);
            values.push(within);
        }
        watch.evaluations += 1;
        let value = match (watch.f)(&values) {
            Ok(value) if value.is_finite() => value,
            // A sum of corners' values must not overflow.
            Ok(_) => f64::MAX.sqrt(),
            Err(error) => {
                watch.failure = Some(error);
                f64::MAX.sqrt()
            }
        };
        (self.done)();
        if watch.best.as_ref().is_none_or(|(_, best)| value < *best) {
            watch.best = Some((values, value));
        }
        let best = watch.best.as_ref().map_or(0.0, |(_, best)| best.abs());
        let window = 2 * watch.to_build as usize;
        if watch.recent.len() >= window {
            watch.recent.remove(0);
        }
        watch.recent.push(wanted.clone());
        Ok((value + PENALTY * (1.0 + best) * outside).min(f64::MAX.sqrt()))
    }
}

/// argmin's simplex, stopped where it is small or the budget is used up.
struct Watched<'a, F> {
    inner: NelderMead<Vec<f64>, f64>,
    watch: &'a RefCell<Watch<F>>,
    scale: &'a [f64],
    max_evaluations: u64,
}

type SimplexState = IterState<Vec<f64>, (), (), (), (), f64>;
type Stepped = std::result::Result<(SimplexState, Option<KV>), ArgminError>;

impl<'a, F: FnMut(&[f64]) -> Result<f64>> Solver<Bounded<'a, F>, SimplexState> for Watched<'a, F> {
    fn name(&self) -> &str {
        "Nelder-Mead within bounds"
    }

    fn init(&mut self, problem: &mut Counted<Bounded<'a, F>>, state: SimplexState) -> Stepped {
        self.inner.init(problem, state)
    }

    fn next_iter(&mut self, problem: &mut Counted<Bounded<'a, F>>, state: SimplexState) -> Stepped {
        self.inner.next_iter(problem, state)
    }

    fn terminate(&mut self, state: &SimplexState) -> TerminationStatus {
        let watch = self.watch.borrow();
        if watch.failure.is_some() || watch.evaluations >= self.max_evaluations {
            return TerminationStatus::Terminated(TerminationReason::MaxItersReached);
        }
        let near = |values: &Vec<f64>, best: &[f64]| {
            values.iter().zip(best).zip(self.scale).all(|((value, best), scale)| (value - best).abs() <= SMALL * scale)
        };
        let full = watch.recent.len() == 2 * watch.to_build as usize;
        let small = watch.best.as_ref().is_some_and(|(best, _)| full && watch.recent.iter().all(|at| near(at, best)));
        if small {
            return TerminationStatus::Terminated(TerminationReason::SolverConverged);
        }
        drop(watch);
        Solver::<Bounded<'a, F>, SimplexState>::terminate(&mut self.inner, state)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    const WIDE: [f64; 2] = [f64::NEG_INFINITY; 2];
    const HIGH: [f64; 2] = [f64::INFINITY; 2];

    fn bowl(x: &[f64]) -> f64 {
        (x[0] - 3.0).powi(2) + 10.0 * (x[1] + 1.0).powi(2) + 5.0
    }

    #[test]
    fn minimum_of_a_bowl_is_found_and_every_call_is_told() {
        let calls = Cell::new(0);
        let count = || calls.set(calls.get() + 1);
        let found = minimise_by_simplex(|x| Ok(bowl(x)), &[0.0, 0.0], &[1.0, 1.0], &WIDE, &HIGH, 500, &count).unwrap();
        assert!((found.best[0] - 3.0).abs() < 0.01 && (found.best[1] + 1.0).abs() < 0.01, "{found:?}");
        assert!(found.converged && found.evaluations < 200, "{found:?}");
        assert_eq!((calls.get(), found.why_stopped.as_str()), (found.evaluations, "the simplex is small or level"));
    }

    #[test]
    fn bounds_hold_for_every_call() {
        let inside = |x: &[f64]| {
            assert!((0.0..=2.0).contains(&x[0]) && (0.0..=9.0).contains(&x[1]), "{x:?}");
            Ok(bowl(x))
        };
        let found =
            minimise_by_simplex(inside, &[1.0, 50.0], &[0.5, 2.0], &[0.0; 2], &[2.0, 9.0], 500, &|| ()).unwrap();
        assert!((found.best[0] - 2.0).abs() < 0.01 && found.best[1].abs() < 0.01, "{found:?}");
    }

    #[test]
    fn budget_is_kept_to_the_last_call() {
        for budget in [3, 4, 7, 20] {
            let calls = Cell::new(0);
            let count = || calls.set(calls.get() + 1);
            let found =
                minimise_by_simplex(|x| Ok(bowl(x)), &[50.0, 50.0], &[1.0; 2], &WIDE, &HIGH, budget, &count).unwrap();
            assert!(!found.converged && found.evaluations == budget && calls.get() == budget, "{found:?}");
            assert!(found.value <= bowl(&[50.0, 50.0]), "{found:?}");
        }
    }

    #[test]
    fn first_error_of_the_function_is_handed_on_wherever_it_comes() {
        for at in [1, 2, 5, 9] {
            let mut calls = 0;
            let failing = |x: &[f64]| {
                calls += 1;
                if calls < at { Ok(bowl(x)) } else { Err(Error::empty_step()) }
            };
            let found = minimise_by_simplex(failing, &[0.0; 2], &[1.0; 2], &WIDE, &HIGH, 100, &|| ());
            assert_eq!(found.unwrap_err().kind(), ridgepoint::ErrorKind::EmptyStep);
            assert_eq!(calls, at);
        }
    }

    #[test]
    fn values_that_are_not_finite_are_avoided() {
        let holed = |x: &[f64]| Ok(if x[0] > 3.5 { f64::NAN } else { bowl(x) });
        let found = minimise_by_simplex(holed, &[0.0; 2], &[4.0, 1.0], &WIDE, &HIGH, 500, &|| ()).unwrap();
        assert!((found.best[0] - 3.0).abs() < 0.02, "{found:?}");
        let never = minimise_by_simplex(|_| Ok(f64::NAN), &[0.0; 2], &[1.0; 2], &WIDE, &HIGH, 50, &|| ()).unwrap();
        assert!(never.evaluations <= 50);
    }

    #[test]
    fn a_parameter_without_room_is_left_alone() {
        let found =
            minimise_by_simplex(|x| Ok(bowl(x)), &[0.0, 2.0], &[1.0; 2], &[-9.0, 2.0], &[9.0, 2.0], 300, &|| ())
                .unwrap();
        assert!((found.best[0] - 3.0).abs() < 0.01 && (found.best[1] - 2.0).abs() < 1e-300, "{found:?}");
    }

    #[test]
    fn arguments_that_cannot_be_are_named() {
        let said = |start: &[f64], scale: &[f64], lower: &[f64], budget| {
            minimise_by_simplex(|x| Ok(bowl(x)), start, scale, lower, &[9.0; 2], budget, &|| ())
                .unwrap_err()
                .to_string()
        };
        assert!(said(&[0.0; 2], &[1.0], &[0.0; 2], 50).starts_with("scale: '1' values: must be as many"));
        assert!(said(&[0.0, f64::NAN], &[1.0; 2], &[0.0; 2], 50).starts_with("start: 'NaN'"));
        assert!(said(&[0.0; 2], &[0.0, 1.0], &[0.0; 2], 50).starts_with("scale: '0'"));
        assert!(said(&[0.0; 2], &[1.0; 2], &[0.0, 10.0], 50).starts_with("bounds: '10 to 9'"));
        assert!(said(&[0.0; 2], &[1.0; 2], &[0.0; 2], 2).contains("at least 3"));
    }
}

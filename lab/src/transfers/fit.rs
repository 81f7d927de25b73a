//! Fits the rates of the link between GPU and CPU to paired transfers, with 90 % intervals.
#![expect(clippy::indexing_slicing, reason = "two directions, and a value for every parameter")]

use nalgebra::{DMatrix, DVector};
use ridgepoint::Result;
use ridgepoint::internals::correction::SDS_OF_90_PCT;

use super::paired::PairedTransfer;
use super::queue::{LinkRates, Queues};
use crate::huber::HUBER_DELTA;
use crate::solver::{LeastSquares, NumericFit, Options, Parameter, cost, minimise};
use crate::stats::{mean, non_negative_least_squares};

/// Fewest transfers of a direction that tell its rates.
pub const FEWEST: usize = 8;
/// Fewest transfers that tell the contention by running beside others.
const FEWEST_SHARED: f64 = 8.0;
/// Most transfers that are fitted; a fit passes over all of them some hundred times.
pub const MOST: usize = 20_000;
/// Slowest that contention can make a direction.
const LEAST_CONTENTION: f64 = 0.02;
/// Scatter of a transfer's time: first guess, least and greatest.
const SCATTER: (f64, f64, f64) = (0.2, 1e-3, 2.0);
/// Standard deviation of the priors, in units of the first guess. They only keep directions that the data leave open finite.
const WIDE: f64 = 100.0;
const OPTIONS: Options = Options { max_iterations: 200, tolerance: 1e-10 };
const CONTENTION: usize = 4;
const NUM_PARAMETERS: usize = 6;

/// A number with its 90 % interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    /// The number.
    pub value: f64,
    /// Lower end.
    pub lower: f64,
    /// Upper end.
    pub upper: f64,
}

/// The fitted rates of a direction.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DirectionFit {
    /// Fixed time of a transfer, µs.
    pub latency_us: Estimate,
    /// Blocks per second behind that.
    pub blocks_per_s: Estimate,
}

/// The fitted rates of the link.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LinkFit {
    /// By direction, in the order of [`Direction::BOTH`](super::Direction::BOTH); `None` for one whose transfers do not tell its rates.
    pub directions: [Option<DirectionFit>; 2],
    /// Share of its speed at which each direction runs while both do; `None` where both hardly ever do.
    pub contention: Option<Estimate>,
    /// Standard deviation of a transfer's time, as a share of it.
    pub scatter: f64,
}

/// Fits latency and block time of both directions, their contention, and the scatter of times.
///
/// # Formula
/// Minimises the sum of [`Queues::surprises`] by the crate's solver. The covariance is the inverse of the second derivatives at the minimum,
/// or that of the sandwich with the rows' own gradients where it is larger.
///
/// # Errors
/// Those of the solver.
pub fn fit_link(transfers: &[PairedTransfer]) -> Result<LinkFit> {
    let queues = Queues::of(transfers);
    let guesses = [0, 1].map(|of| guess(&queues.queues[of]));
    let mut parameters = Vec::with_capacity(NUM_PARAMETERS);
    for guess in guesses {
        let (latency_us, block_us) = guess.unwrap_or((0.0, 1.0));
        let scale_us = latency_us + block_us;
        let fixed = |value: f64| (value, value);
        let bounds = guess.map_or((fixed(latency_us), fixed(block_us.ln())), |_| {
            ((0.0, f64::INFINITY), (f64::NEG_INFINITY, f64::INFINITY))
        });
        let parameter = |name, unit, prior, prior_sd, bounds| Parameter { name, unit, prior, prior_sd, bounds };
        parameters.push(parameter("latency", "µs", latency_us, WIDE * scale_us, bounds.0));
        parameters.push(parameter("block_time", "logarithm", block_us.ln(), WIDE, bounds.1));
    }
    let shared = shared_transfers(&queues, &rates(&start(&parameters, 1.0)));
    let knows_contention = guesses.iter().all(Option::is_some) && shared >= FEWEST_SHARED;
    let free = Parameter { name: "contention", unit: "share", prior: 1.0, prior_sd: WIDE, bounds: (LEAST_CONTENTION, 1.0) };
    parameters.push(if knows_contention { free } else { Parameter { bounds: (1.0, 1.0), ..free } });
    let (first, least, greatest) = SCATTER;
    let scatter =
        Parameter { name: "scatter", unit: "logarithm", prior: first.ln(), prior_sd: WIDE, bounds: (least.ln(), greatest.ln()) };
    parameters.push(scatter);
    let residuals = |values: &[f64]| Ok(queues.surprises(&rates(values)).0.into_iter().map(residual).collect());
    let problem = NumericFit { residuals, parameters: parameters.clone(), difference: 1e-7 };
    let mut best: Option<(f64, Vec<f64>)> = None;
    let contentions: &[f64] = if knows_contention { &[0.95, 0.6] } else { &[1.0] };
    for contention in contentions {
        let found = minimise(&problem, &start(&parameters, *contention), OPTIONS)?;
        if best.as_ref().is_none_or(|(cost, _)| found.cost_after < *cost) {
            best = Some((found.cost_after, found.values));
        }
    }
    let values = best.map_or_else(|| start(&parameters, 1.0), |(_, values)| values);
    let sds = standard_deviations(&problem, &values)?;
    let found = rates(&values);
    let direction = |of: usize| {
        guesses[of]?;
        let (latency, block) = (2 * of, 2 * of + 1);
        let factor = (SDS_OF_90_PCT * sds[block]).exp();
        let per_s = ridgepoint::internals::units::US_PER_S / found.block_us[of];
        Some(DirectionFit {
            latency_us: Estimate {
                value: values[latency],
                lower: (values[latency] - SDS_OF_90_PCT * sds[latency]).max(0.0),
                upper: values[latency] + SDS_OF_90_PCT * sds[latency],
            },
            blocks_per_s: Estimate { value: per_s, lower: per_s / factor, upper: per_s * factor },
        })
    };
    let reach = SDS_OF_90_PCT * sds[CONTENTION];
    let contention = Estimate {
        value: found.contention,
        lower: (found.contention - reach).max(0.0),
        upper: (found.contention + reach).min(1.0),
    };
    Ok(LinkFit {
        directions: [direction(0), direction(1)],
        contention: knows_contention.then_some(contention),
        scatter: found.scatter,
    })
}

/// The values at which a fit starts: the priors, and a contention.
fn start(parameters: &[Parameter], contention: f64) -> Vec<f64> {
    let mut values: Vec<f64> = parameters.iter().map(|of| of.prior).collect();
    values.resize(NUM_PARAMETERS, SCATTER.0.ln());
    values[CONTENTION] = contention;
    values
}

fn rates(values: &[f64]) -> LinkRates {
    LinkRates {
        latency_us: [values[0], values[2]],
        block_us: [values[1].exp(), values[3].exp()],
        contention: values[CONTENTION],
        scatter: values[5].exp(),
    }
}

/// The residual whose Huber loss is the surprise, so that the solver minimises the likelihood itself.
fn residual(surprise: f64) -> f64 {
    let knee = 0.5 * HUBER_DELTA * HUBER_DELTA;
    if surprise <= knee { (2.0 * surprise.max(0.0)).sqrt() } else { (surprise + knee) / HUBER_DELTA }
}

/// Latency and block time of a queue, from the midpoints of what is known of each end; `None` where its transfers are too few or all of
/// one size.
fn guess(queue: &[PairedTransfer]) -> Option<(f64, f64)> {
    let fitted = || queue.iter().filter(|of| of.is_fitted);
    let first = fitted().next()?.blocks;
    if fitted().count() < FEWEST || fitted().all(|of| of.blocks == first) {
        return None;
    }
    let mut free_us = f64::NEG_INFINITY;
    let (mut rows, mut times_us, mut weights) = (Vec::new(), Vec::new(), Vec::new());
    for of in queue {
        let end_us = 0.5 * (of.unfinished_us + of.noticed_us);
        let time_us = end_us - of.begun_us.max(free_us);
        free_us = end_us;
        if of.is_fitted && time_us > 0.0 {
            rows.push([1.0, of.blocks as f64]);
            times_us.push(time_us);
            weights.push(time_us.powi(-2));
        }
    }
    let [latency_us, block_us] = non_negative_least_squares(&rows, &times_us, &weights)?;
    let time_us = mean(&times_us)?;
    let blocks = mean(&rows.iter().map(|row| row[1]).collect::<Vec<f64>>())?;
    let least_us = 0.1 * time_us / blocks;
    (time_us > 0.0).then(|| (latency_us.min(0.5 * time_us), block_us.max(least_us)))
}

/// The number of transfers whose time would be spent beside the other direction.
fn shared_transfers(queues: &Queues, rates: &LinkRates) -> f64 {
    let (_, both_us) = queues.surprises(rates);
    let all = || queues.queues.iter().enumerate().flat_map(|(of, queue)| queue.iter().map(move |next| (of, next)));
    let work_us: f64 = all().map(|(of, next)| rates.latency_us[of] + rates.block_us[of] * next.blocks as f64).sum();
    let count = all().count() as f64;
    if work_us > 0.0 { both_us * count / work_us } else { 0.0 }
}

/// The standard deviation of each parameter, 0 for fixed ones and infinite for those that the data leave open.
fn standard_deviations(problem: &impl LeastSquares, values: &[f64]) -> Result<Vec<f64>> {
    let parameters = problem.parameters();
    let free: Vec<usize> = (0..values.len()).filter(|at| !parameters[*at].is_fixed()).collect();
    let moved = |changes: &[(usize, f64)]| {
        let mut values = values.to_vec();
        changes.iter().for_each(|(at, by)| values[*at] += by);
        values
    };
    let here = cost(problem, values)?;
    // Steps that change the cost by about a half see its curvature and not the bends where the order of two events changes.
    let mut steps = Vec::with_capacity(free.len());
    for at in &free {
        let mut step = 1e-5 * parameters[*at].prior_sd;
        for _ in 0..12 {
            let there = 0.5 * (cost(problem, &moved(&[(*at, step)]))? + cost(problem, &moved(&[(*at, -step)]))?);
            let rise = (there - here).max(1e-9);
            if (0.1..1.0).contains(&rise) {
                break;
            }
            step *= (0.4 / rise).sqrt().clamp(0.1, 10.0);
        }
        steps.push(step);
    }
    let count = free.len();
    let (mut curvature, mut gradients) = (DMatrix::zeros(count, count), Vec::with_capacity(count));
    for (i, at) in free.iter().enumerate() {
        let (up, down) = (moved(&[(*at, steps[i])]), moved(&[(*at, -steps[i])]));
        curvature[(i, i)] = (cost(problem, &up)? + cost(problem, &down)? - 2.0 * here) / steps[i].powi(2);
        let rows = problem.residuals(&up)?.into_iter().zip(problem.residuals(&down)?);
        let slopes = rows.map(|(up, down)| (crate::huber::loss(up) - crate::huber::loss(down)) / (2.0 * steps[i]));
        gradients.push(DVector::from_vec(slopes.collect()));
        for (j, other) in free.iter().enumerate().take(i) {
            let corner = |one: f64, two: f64| cost(problem, &moved(&[(*at, one * steps[i]), (*other, two * steps[j])]));
            let bend = (corner(1.0, 1.0)? - corner(1.0, -1.0)? - corner(-1.0, 1.0)? + corner(-1.0, -1.0)?)
                / (4.0 * steps[i] * steps[j]);
            (curvature[(i, j)], curvature[(j, i)]) = (bend, bend);
        }
    }
    let pulls = DMatrix::from_fn(count, count, |i, j| {
        let (i, j): (&DVector<f64>, &DVector<f64>) = (&gradients[i], &gradients[j]);
        i.dot(j)
    });
    let inverse = curvature.cholesky().map(|of| of.inverse());
    let variance = |at: usize| {
        let Some(inverse) = &inverse else { return f64::INFINITY };
        let sandwich = inverse * &pulls * inverse;
        inverse[(at, at)].max(sandwich[(at, at)])
    };
    let mut sds = vec![0.0; values.len()];
    free.iter().enumerate().for_each(|(i, at)| sds[*at] = variance(i).sqrt());
    Ok(sds)
}

//! Fits the rates of the link between GPU and CPU to paired transfers, with 90 % intervals.
#![expect(clippy::indexing_slicing, reason = "two directions, and a value for every parameter")]

use rayon::iter::{IntoParallelIterator, ParallelIterator};
use ridgepoint::Result;
use ridgepoint::correction::SDS_OF_90_PCT;
use ridgepoint::units::US_PER_S;

use super::paired::PairedTransfer;
use super::queue::{LinkRates, Queues};
use crate::huber::HUBER_DELTA;
use crate::solver::{LeastSquares, NumericFit, Options, Parameter, cost, minimise};
use crate::stats::{mean, non_negative_least_squares};

/// Fewest transfers of a direction that determine its rates.
pub const FEWEST: usize = 8;
/// Fewest transfers that determine the contention, each of which overlaps others.
const FEWEST_SHARED: f64 = 8.0;
/// Most transfers that are fitted; a fit passes over all of them some hundred times.
pub const MOST: usize = 10_000;
/// Slowest that contention can make a direction.
const LEAST_CONTENTION: f64 = 0.02;
/// Scatter of a transfer's time before the data, and the standard deviation of its logarithm, both assumed. Few ends lie so close to
/// a step's end that they determine it.
const SCATTER: (f64, f64) = (0.05, 0.7);
/// Least and greatest scatter.
const SCATTER_BOUNDS: (f64, f64) = (1e-3, 2.0);
/// Scatter at the start of a fit: wide, so that a first guess that is off still sees where the ends are.
const FIRST_SCATTER: f64 = 0.2;
/// Standard deviation of the priors, in units of the first guess. They only keep directions that the data leave open finite.
const WIDE: f64 = 100.0;
const OPTIONS: Options = Options { max_iterations: 200, tolerance: 1e-10 };
/// The refits of an interval, whose ends need not be exact.
const ROUGH: Options = Options { max_iterations: 30, tolerance: 1e-4 };
/// Step of the differences, in standard deviations of the priors.
const DIFFERENCE: f64 = 1e-7;
/// By how much the cost exceeds the least one at the ends of a 90 % interval: half the quantile of χ² with one degree of freedom, and a
/// fifth more, as the likelihood takes the ends of the other direction's transfers for known.
///
/// # Source
/// The excess at planted values, simulated with other seeds than the tests': its mean over 140 seeds is 0.9 to 1.4 times that of χ² for each
/// constant on links with contention, above 1 for most, and largest on a busy link. Without contention it is 0.6 to 0.95 times, as 1 is the
/// bound (Self and Liang 1987): intervals are a little wide there.
const RISE: f64 = 1.2 * 0.5 * SDS_OF_90_PCT * SDS_OF_90_PCT;
/// Farthest end of an interval, in standard deviations of the prior.
const FARTHEST: f64 = 0.5;
/// A bandwidth whose interval spans more than this factor is not determined, as where all transfers end within a step.
const MOST_SPREAD: f64 = 10.0;
/// Steps of the search for an end.
const FEW: u32 = 10;
const CONTENTION: usize = 4;
const SCATTER_AT: usize = 5;
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

impl Estimate {
    fn is_finite(&self) -> bool {
        [self.value, self.lower, self.upper].iter().all(|of| of.is_finite())
    }
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
    /// By direction, in the order of [`Direction::BOTH`](super::Direction::BOTH); `None` for one whose transfers do not determine its rates.
    pub directions: [Option<DirectionFit>; 2],
    /// Share of its speed at which each direction runs while both do; `None` where both hardly ever do.
    pub contention: Option<Estimate>,
    /// Standard deviation of a transfer's time, as a share of it.
    pub scatter: f64,
}

/// Fits latency and block time of both directions, their contention, and the scatter of times.
///
/// # Formula
/// Minimises the sum of `−ln P` of every noticed end by the crate's solver. Intervals are those of the profile likelihood: few ends lie close to a
/// step's end and carry much information, so that the likelihood is no parabola, and a latency may well be 0.
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
    let free =
        Parameter { name: "contention", unit: "share", prior: 1.0, prior_sd: WIDE, bounds: (LEAST_CONTENTION, 1.0) };
    parameters.push(if knows_contention { free } else { Parameter { bounds: (1.0, 1.0), ..free } });
    parameters.push(Parameter {
        name: "scatter",
        unit: "logarithm",
        prior: SCATTER.0.ln(),
        prior_sd: SCATTER.1,
        bounds: (SCATTER_BOUNDS.0.ln(), SCATTER_BOUNDS.1.ln()),
    });
    let residuals = |values: &[f64]| -> Result<Vec<f64>> {
        Ok(queues.surprisals(&rates(values)).0.into_iter().map(residual).collect())
    };
    let problem = NumericFit { residuals: &residuals, parameters: parameters.clone(), difference: DIFFERENCE };
    let mut best: Option<(f64, Vec<f64>)> = None;
    let contentions: &[f64] = if knows_contention { &[0.95, 0.6] } else { &[1.0] };
    for contention in contentions {
        let found = minimise(&problem, &start(&parameters, *contention), OPTIONS)?;
        if best.as_ref().is_none_or(|(cost, _)| found.cost_after < *cost) {
            best = Some((found.cost_after, found.values));
        }
    }
    let values = best.map_or_else(|| start(&parameters, 1.0), |(_, values)| values);
    let least = cost(&problem, &values)?;
    let profile = Profile { residuals: &residuals, parameters: &parameters, best: &values, least };
    let ends = (0..2 * SCATTER_AT).into_par_iter().map(|of| {
        let (at, sign) = (of / 2, if of % 2 == 0 { -1.0 } else { 1.0 });
        if parameters[at].is_fixed() { Ok(values[at]) } else { profile.end(at, sign) }
    });
    let ends: Vec<f64> = ends.collect::<Result<_>>()?;
    let estimate = |at: usize| Estimate { value: values[at], lower: ends[2 * at], upper: ends[2 * at + 1] };
    let per_s = |log_block_us: f64| US_PER_S / log_block_us.exp();
    let direction = |of: usize| {
        guesses[of]?;
        let block = estimate(2 * of + 1);
        let latency_us = estimate(2 * of);
        // The longest block time is the lowest rate.
        let blocks_per_s = Estimate { value: per_s(block.value), lower: per_s(block.upper), upper: per_s(block.lower) };
        let is_finite = latency_us.is_finite() && blocks_per_s.is_finite() && blocks_per_s.lower > 0.0;
        let is_told = is_finite && blocks_per_s.upper < MOST_SPREAD * blocks_per_s.lower;
        is_told.then_some(DirectionFit { latency_us, blocks_per_s })
    };
    let directions = [direction(0), direction(1)];
    let knows_both = knows_contention && directions.iter().all(Option::is_some);
    Ok(LinkFit { directions, contention: knows_both.then(|| estimate(CONTENTION)), scatter: rates(&values).scatter })
}

/// The values at which a fit starts: the priors, and a contention.
fn start(parameters: &[Parameter], contention: f64) -> Vec<f64> {
    let mut values: Vec<f64> = parameters.iter().map(|of| of.prior).collect();
    values.resize(NUM_PARAMETERS, 0.0);
    (values[CONTENTION], values[SCATTER_AT]) = (contention, FIRST_SCATTER.ln());
    values
}

fn rates(values: &[f64]) -> LinkRates {
    LinkRates {
        latency_us: [values[0], values[2]],
        block_us: [values[1].exp(), values[3].exp()],
        contention: values[CONTENTION],
        scatter: values[SCATTER_AT].exp(),
    }
}

/// The residual whose Huber loss is the surprisal, so that the solver minimises the likelihood itself.
fn residual(surprisal: f64) -> f64 {
    let knee = 0.5 * HUBER_DELTA * HUBER_DELTA;
    if surprisal <= knee { (2.0 * surprisal.max(0.0)).sqrt() } else { (surprisal + knee) / HUBER_DELTA }
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

/// The number of transfers whose time would overlap the other direction.
fn shared_transfers(queues: &Queues, rates: &LinkRates) -> f64 {
    let (_, both_us) = queues.surprisals(rates);
    let all = || queues.queues.iter().enumerate().flat_map(|(of, queue)| queue.iter().map(move |next| (of, next)));
    let work_us: f64 = all().map(|(of, next)| rates.latency_us[of] + rates.block_us[of] * next.blocks as f64).sum();
    let count = all().count() as f64;
    if work_us > 0.0 { both_us * count / work_us } else { 0.0 }
}

/// Profile of the likelihood around its maximum, for the intervals.
struct Profile<'r> {
    residuals: &'r (dyn Fn(&[f64]) -> Result<Vec<f64>> + Sync),
    parameters: &'r [Parameter],
    /// Where the cost is least.
    best: &'r [f64],
    least: f64,
}

impl Profile<'_> {
    fn problem(&self, parameters: Vec<Parameter>) -> impl LeastSquares {
        NumericFit { residuals: |values: &[f64]| (self.residuals)(values), parameters, difference: DIFFERENCE }
    }

    /// The end of a parameter's 90 % interval on one side: the value from which the cost, least over all other parameters, exceeds the
    /// least one by [`RISE`]. It is the bound where the cost does not rise so far before.
    fn end(&self, at: usize, sign: f64) -> Result<f64> {
        let (parameter, middle) = (self.parameters[at], self.best[at]);
        let bound = if sign < 0.0 { parameter.bounds.0 } else { parameter.bounds.1 };
        let most = (bound - middle).abs().min(FARTHEST * parameter.prior_sd);
        let plain = self.problem(self.parameters.to_vec());
        let mut values = self.best.to_vec();
        // The other parameters held, the cost rises faster: a first distance that is too short.
        let mut distance = most.min(0.01 * parameter.prior_sd);
        for _ in 0..FEW {
            values[at] = middle + sign * distance;
            let rise = cost(&plain, &values)? - self.least;
            if (0.5 * RISE..2.0 * RISE).contains(&rise) {
                break;
            }
            distance = next_distance(distance, rise).min(most);
        }
        let (mut below, mut above) = (0.0, f64::INFINITY);
        for _ in 0..FEW {
            let held = middle + sign * distance;
            let mut parameters = self.parameters.to_vec();
            parameters[at].bounds = (held, held);
            values[at] = held;
            let found = minimise(&self.problem(parameters), &values, ROUGH)?;
            // Its prior is not part of the likelihood, and hardly changes.
            let rise = found.cost_after - self.least;
            values = found.values;
            if rise < RISE {
                below = distance;
            } else {
                above = distance;
            }
            if (rise / RISE - 1.0).abs() < 0.05 || below >= most {
                break;
            }
            let next = next_distance(distance, rise).min(most);
            distance =
                if next > below && next < above { next } else { 0.5 * (below + above.min(2.0 * below + distance)) };
        }
        Ok(middle + sign * distance)
    }
}

/// The distance at which a quadratic rise, seen at one distance, reaches [`RISE`].
fn next_distance(distance: f64, rise: f64) -> f64 {
    distance * (RISE / rise.max(1e-9)).sqrt().clamp(0.1, 10.0)
}

//! The two queues of transfers, one for each direction, replayed between the steps that notice ends, and how likely the noticed ends are.
#![expect(clippy::indexing_slicing, reason = "two directions, and positions within a queue")]

use std::f64::consts::{FRAC_1_SQRT_2, PI, SQRT_2};

use super::paired::{Direction, PairedTransfer};

/// Share of transfers that may take any time: a host that stalls does not decide the rates.
const STRAY_SHARE: f64 = 0.01;
/// Standard deviation of time stamps, µs. Seconds since 1970 are doubles with steps of 0.24 µs.
const STAMP_US: f64 = 1.0;

/// The rates of the link.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct LinkRates {
    /// Fixed time of a transfer by direction, µs.
    pub(super) latency_us: [f64; 2],
    /// Time of a block by direction, µs.
    pub(super) block_us: [f64; 2],
    /// Share of its speed at which each direction runs while both do.
    pub(super) contention: f64,
    /// Standard deviation of a transfer's time, as a share of it.
    pub(super) scatter: f64,
}

/// The transfers of one clock, by direction, in the order in which they were submitted.
#[derive(Debug, Clone, Default)]
pub(super) struct Queues {
    pub(super) queues: [Vec<PairedTransfer>; 2],
}

/// What a direction does.
#[derive(Debug, Clone, Copy)]
enum State {
    /// The next transfer starts at a time that has a variance.
    Waiting { start_us: f64, variance: f64 },
    /// A transfer runs, with so much of its work left.
    Running { start_us: f64, variance: f64, left_us: f64 },
    /// The work is done or not modelled, and the observation says that the end is later.
    Holding { until_us: f64, variance: f64 },
    /// None is left.
    Done,
}

impl State {
    fn is_busy(self) -> bool {
        matches!(self, State::Running { .. } | State::Holding { .. })
    }
}

impl Queues {
    /// Sorts transfers into queues.
    pub(super) fn of(transfers: &[PairedTransfer]) -> Self {
        let of = |direction: Direction| {
            let mut queue: Vec<PairedTransfer> =
                transfers.iter().filter(|of| of.direction == direction).copied().collect();
            queue.sort_by(|one, other| one.begun_us.total_cmp(&other.begun_us));
            queue
        };
        Queues { queues: Direction::BOTH.map(of) }
    }

    /// Returns the surprisal of every end, `−ln P(noticed when it was)`, queue after queue, and for how long both directions ran, µs.
    /// The surprisal of a transfer that is not fitted is 0.
    ///
    /// # Formula
    /// A transfer starts when it was submitted and the one before it has ended, and takes `latency + blocks · block time`; while the other
    /// direction runs, at `contention` times its speed. Its end is normal around that, with `scatter` times its duration, so the
    /// probability of an end between two steps is `Φ((noticed − end) / sd) − Φ((unfinished − end) / sd)`. The next transfer starts
    /// from the end that is expected *given* that it was noticed when it was, so no error adds up along a queue.
    pub(super) fn surprisals(&self, rates: &LinkRates) -> (Vec<f64>, f64) {
        let first = [0, self.queues[0].len()];
        let mut surprisals = vec![0.0; first[1] + self.queues[1].len()];
        let mut at = [0_usize; 2];
        let mut states = [0, 1].map(|of| self.next(of, 0, f64::NEG_INFINITY, 0.0));
        let (mut now_us, mut both_us) = (f64::NEG_INFINITY, 0.0);
        loop {
            let is_shared = states[0].is_busy() && states[1].is_busy();
            let speed = if is_shared { rates.contention } else { 1.0 };
            let event = |of: usize| match states[of] {
                State::Waiting { start_us, .. } => start_us,
                State::Running { left_us, .. } => (now_us + left_us / speed).min(self.queues[of][at[of]].noticed_us),
                State::Holding { until_us, .. } => until_us,
                State::Done => f64::INFINITY,
            };
            let times = [event(0), event(1)];
            let of = usize::from(times[1] < times[0]);
            let then_us = times[of].max(now_us);
            if !then_us.is_finite() {
                return (surprisals, both_us);
            }
            if is_shared {
                both_us += then_us - now_us;
            }
            if now_us.is_finite() {
                for state in &mut states {
                    if let State::Running { left_us, .. } = state {
                        *left_us -= (then_us - now_us) * speed;
                    }
                }
            }
            now_us = then_us;
            states[of] = match states[of] {
                State::Waiting { start_us, variance } => self.start(of, at[of], (start_us, variance), now_us, rates),
                State::Running { start_us, variance, left_us } => {
                    let transfer = self.queues[of][at[of]];
                    let end_us = now_us + left_us / speed;
                    let spread_us = rates.scatter * (end_us - start_us);
                    let sd_us = (variance + spread_us * spread_us + STAMP_US * STAMP_US).sqrt();
                    let (surprisal, until_us, variance) = observe(&transfer, end_us, sd_us);
                    surprisals[first[of] + at[of]] = surprisal;
                    State::Holding { until_us, variance }
                }
                State::Holding { until_us, variance } => {
                    at[of] += 1;
                    self.next(of, at[of], until_us, variance)
                }
                State::Done => State::Done,
            };
        }
    }

    /// What a direction does once the transfer before number `at` has ended.
    fn next(&self, of: usize, at: usize, free_us: f64, variance: f64) -> State {
        match self.queues[of].get(at) {
            None => State::Done,
            Some(next) if next.begun_us >= free_us => State::Waiting { start_us: next.begun_us, variance: 0.0 },
            Some(_) => State::Waiting { start_us: free_us, variance },
        }
    }

    /// Starts a transfer, which may have run since `start_us` already.
    fn start(&self, of: usize, at: usize, (start_us, variance): (f64, f64), now_us: f64, rates: &LinkRates) -> State {
        let transfer = self.queues[of][at];
        if transfer.is_fitted {
            let work_us = rates.latency_us[of] + rates.block_us[of] * transfer.blocks as f64;
            return State::Running { start_us, variance, left_us: work_us - (now_us - start_us) };
        }
        // Any end between the two steps is as likely.
        let width = transfer.noticed_us - transfer.unfinished_us;
        State::Holding { until_us: transfer.unfinished_us + 0.5 * width, variance: width * width / 12.0 }
    }
}

/// What the noticed end of a transfer says where it was expected at `end_us`: the surprisal, and mean and variance of the end then, µs.
///
/// # Formula
/// Where the end of the step before is known to a standard deviation `δ`, the probability that the transfer ended after it is
/// `Φ((end − before) / √(sd² + δ²))`.
fn observe(transfer: &PairedTransfer, end_us: f64, sd_us: f64) -> (f64, f64, f64) {
    let before_sd_us = sd_us.hypot(transfer.unfinished_sd_us);
    let from = (transfer.unfinished_us - end_us) / before_sd_us;
    let to = (transfer.noticed_us - end_us) / sd_us;
    let surprisal = -probability(from, to).ln();
    let (mean, variance) = if transfer.unfinished_sd_us > 0.0 {
        let share = sd_us / before_sd_us;
        let (after, after_variance) = truncated(from, f64::INFINITY);
        let (mean, variance) = (share * after, 1.0 - share * share * (1.0 - after_variance));
        let sd = variance.sqrt();
        let (rest, rest_variance) = truncated(f64::NEG_INFINITY, (to - mean) / sd);
        (mean + sd * rest, variance * rest_variance)
    } else {
        truncated(from, to)
    };
    let until_us = (end_us + mean * sd_us).clamp(transfer.begun_us, transfer.noticed_us);
    (surprisal, until_us, variance * sd_us * sd_us)
}

/// The probability of a standard normal value between two, with a share of strays that are Cauchy's. It is above 0.
fn probability(from: f64, to: f64) -> f64 {
    let stray = (to.atan() - from.atan()).max(0.0) / PI;
    let normal = if from > 0.0 {
        0.5 * (libm::erfc(from * FRAC_1_SQRT_2) - libm::erfc(to * FRAC_1_SQRT_2))
    } else {
        0.5 * (libm::erfc(-to * FRAC_1_SQRT_2) - libm::erfc(-from * FRAC_1_SQRT_2))
    };
    ((1.0 - STRAY_SHARE) * normal.max(0.0) + STRAY_SHARE * stray).max(f64::MIN_POSITIVE)
}

/// Mean and variance of a standard normal value that lies between two; the nearer one and 0 where it hardly can.
fn truncated(from: f64, to: f64) -> (f64, f64) {
    /// Standard deviations beyond which the density vanishes.
    const FAR: f64 = 8.0;
    if from > FAR {
        return (from, 0.0);
    }
    if to < -FAR {
        return (to, 0.0);
    }
    let cumulative = |z: f64| 0.5 * libm::erfc(-z / SQRT_2);
    let density = |z: f64| (-0.5 * z * z).exp() / (2.0 * PI).sqrt();
    let (from, to) = (from.max(-FAR), to.min(FAR));
    let mass = cumulative(to) - cumulative(from);
    if mass < 1e-12 {
        return (0.5 * (from + to), (to - from).powi(2) / 12.0);
    }
    let mean = (density(from) - density(to)) / mass;
    let variance = 1.0 + (from * density(from) - to * density(to)) / mass - mean * mean;
    (mean.clamp(from, to), variance.clamp(0.0, 1.0))
}

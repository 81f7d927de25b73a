//! The front end's event loop out of the delays of requests: those that arrive together share it. Uses `ridgepoint_replay`.

use super::host_from_traces::{LEAST_REQUESTS, robust_line};
use super::report::ParameterReport;
use crate::huber;
use crate::solver::Parameter;
use crate::stats::{mean, median, robust_sd};
use ridgepoint::correction::SDS_OF_90_PCT;
use ridgepoint::latency::HostTimes;
use ridgepoint_replay::front_end_times_us;

/// Times in the loop that are tried first, µs: servers were found to take 1.4 to 14 ms a request.
const FIRST_US: f64 = 50.0;
const LAST_US: f64 = 100_000.0;
/// Steps from the first to the last, and between the neighbours of the best of each round.
const STEPS: i32 = 24;
const ROUNDS: usize = 3;
/// Share by which the loop must lower the cost: less may be any delay that comes in bursts.
const LEAST_GAIN: f64 = 0.3;

/// Standard deviation of the prior of `front_end_us` (assumed): three times the measured 1.7 ms.
pub const FRONT_END_PRIOR_SD_US: f64 = 5_000.0;

/// A request's delay from its sending to the engine's queue.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct QueueingDelay {
    pub(super) arrived_ns: u64,
    pub(super) num_prompt_tokens: u64,
    pub(super) us: f64,
}

/// The loop's time for one request, and the delays without it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct FrontEndLoop {
    pub(super) us: f64,
    pub(super) sd_us: f64,
    /// Delays that are left, with the prompts' tokens.
    pub(super) left: Vec<(u64, f64)>,
}

impl FrontEndLoop {
    /// The loop that explains the delays of runs; `None` where a line by prompt tokens explains them as well.
    ///
    /// # Formula
    /// Huber's loss of what a robust line through (prompt tokens, delay − time in the loop) leaves, over the scatter without a loop; least
    /// over times in the loop by bracketing. The standard deviation is that of a slope: scatter over √Σ d², d being the derivative of the time
    /// in the loop around its mean.
    pub(super) fn of(runs: &mut [Vec<QueueingDelay>]) -> Option<FrontEndLoop> {
        runs.iter_mut().for_each(|run| run.sort_by_key(|of| of.arrived_ns));
        let requests: usize = runs.iter().map(Vec::len).sum();
        if requests < LEAST_REQUESTS {
            return None;
        }
        let scale = robust_sd(rest(&left(runs, 0.0)));
        let cost = |us: f64| rest(&left(runs, us)).iter().map(|off| huber::loss(off / scale)).sum::<f64>();
        let without = cost(0.0);
        if scale <= 0.0 || without <= 0.0 {
            return None;
        }
        let (mut low, mut high, mut best) = (FIRST_US, LAST_US, (0.0, without));
        for _ in 0..ROUNDS {
            let ratio = (high / low).powf(1.0 / f64::from(STEPS));
            let tried = (0..=STEPS).map(|step| low * ratio.powi(step)).map(|us| (us, cost(us)));
            best = tried.fold(best, |best, of| if of.1 < best.1 { of } else { best });
            (low, high) = (best.0 / ratio, best.0 * ratio);
            if best.0 <= 0.0 {
                return None;
            }
        }
        let (us, cost) = best;
        let left = left(runs, us);
        let sd_us = robust_sd(rest(&left)) / spread_of_slope(runs, us);
        (cost < (1.0 - LEAST_GAIN) * without && us > SDS_OF_90_PCT * sd_us).then_some(FrontEndLoop { us, sd_us, left })
    }

    /// The parameter's report, with its prior's mean.
    pub(super) fn report(&self, prior: &HostTimes) -> ParameterReport {
        let unit = "µs per request of the front end's loop";
        let parameter = Parameter::overhead("front_end_us", unit, prior.front_end_us, FRONT_END_PRIOR_SD_US);
        ParameterReport::of_host(parameter, self.us, Some(self.sd_us))
    }
}

/// Delays less the times in the loop, with the prompts' tokens.
fn left(runs: &[Vec<QueueingDelay>], alone_us: f64) -> Vec<(u64, f64)> {
    let of_run = |run: &Vec<QueueingDelay>| {
        let in_loop = times_us(run, alone_us);
        run.iter().zip(in_loop).map(|(of, us)| (of.num_prompt_tokens, of.us - us)).collect::<Vec<_>>()
    };
    runs.iter().flat_map(of_run).collect()
}

fn times_us(run: &[QueueingDelay], alone_us: f64) -> Vec<f64> {
    front_end_times_us(alone_us, &run.iter().map(|of| of.arrived_ns).collect::<Vec<u64>>())
}

/// What a robust line by prompt tokens leaves of delays, else what their median leaves.
fn rest(pairs: &[(u64, f64)]) -> Vec<f64> {
    let line = robust_line(pairs).map(|of| (of.start, of.slope));
    let (start, slope) =
        line.unwrap_or_else(|| (median(pairs.iter().map(|(_, us)| *us).collect()).unwrap_or(0.0), 0.0));
    pairs.iter().map(|(tokens, us)| us - start - slope * *tokens as f64).collect()
}

/// √Σ d² over requests, d being how much longer a request is in the loop for each µs of it, less the mean.
fn spread_of_slope(runs: &[Vec<QueueingDelay>], us: f64) -> f64 {
    let slope = |run: &Vec<QueueingDelay>| {
        let (longer, shorter) = (times_us(run, 1.05 * us), times_us(run, 0.95 * us));
        longer
            .into_iter()
            .zip(shorter)
            .map(move |(longer, shorter)| (longer - shorter) / (0.1 * us))
            .collect::<Vec<_>>()
    };
    let slopes: Vec<f64> = runs.iter().flat_map(slope).collect();
    let centre = mean(&slopes).unwrap_or(0.0);
    slopes.iter().map(|slope| (slope - centre).powi(2)).sum::<f64>().sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bursts of one to `burst` requests every second, 2 ms and 3 µs a token behind a loop of `alone_us`, give or take half a millisecond.
    fn delays(burst: u64, alone_us: f64) -> Vec<QueueingDelay> {
        let bursts = (1..=burst).cycle().zip(0u64..);
        let arrivals: Vec<u64> = bursts
            .flat_map(|(size, second)| (0..size).map(move |at| 1_000_000_000 * second + 700_000 * at))
            .take(240)
            .collect();
        let in_loop = front_end_times_us(alone_us, &arrivals);
        let delay = |(n, (arrived_ns, us)): (u64, (&u64, f64))| {
            let num_prompt_tokens = 100 + 37 * (n % 50);
            let noise = 10.0 * ((n * 7919 % 101) as f64 - 50.0);
            QueueingDelay {
                arrived_ns: *arrived_ns,
                num_prompt_tokens,
                us: 2000.0 + 3.0 * num_prompt_tokens as f64 + us + noise,
            }
        };
        (0..).zip(arrivals.iter().zip(in_loop)).map(delay).collect()
    }

    #[test]
    fn a_shared_loop_is_found_and_what_is_left_is_the_line() {
        for (burst, alone_us) in [(12, 3000.0), (30, 800.0), (9, 12_000.0)] {
            let found = FrontEndLoop::of(&mut [delays(burst, alone_us)]).expect("a loop");
            assert!((found.us - alone_us).abs() < 3.0 * found.sd_us + 0.01 * alone_us, "{burst}: {found:?}");
            let line = robust_line(&found.left).unwrap();
            assert!((line.start - 2000.0).abs() < 300.0 && (line.slope - 3.0).abs() < 0.3, "{burst}: {line:?}");
        }
    }

    #[test]
    fn delays_without_one_have_none() {
        assert_eq!(FrontEndLoop::of(&mut [delays(12, 0.0)]), None);
        // Requests that come alone tell it from no constant.
        assert_eq!(FrontEndLoop::of(&mut [delays(1, 3000.0)]), None);
        assert_eq!(FrontEndLoop::of(&mut [delays(12, 3000.0)[..19].to_vec()]), None);
        assert_eq!(FrontEndLoop::of(&mut []), None);
    }
}

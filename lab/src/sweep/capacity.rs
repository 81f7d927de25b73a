//! The highest rate that holds, found by probing: short loads find a bracket that doubles or halves, longer ones the root of their score.
//! Uses nothing of the crate.

/// How far short loads are followed: they find the rate to this share.
const SHORT_PRECISION: f64 = 0.1;
/// The first step away from the rate that short loads found; each step is twice the one before it.
const FIRST_STEP: f64 = 0.03;
/// A rate whose score is within this of 0 holds just so: nothing higher is worth a probe.
const CLOSE: f64 = 0.003;

/// What judging a rate found.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Judged<T> {
    /// How far the rate is from the limits: at most 0 if it holds, as the logarithm of the figure over its limit is.
    pub score: f64,
    /// What was seen.
    pub seen: T,
}

/// Rates with what their probes saw.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Capacity<T> {
    /// The highest rate that was found to hold; `None` if even the lowest fails.
    pub holds: Option<(f64, T)>,
    /// The lowest rate that was found to fail; `None` if even the highest holds. It is at most the requested share above `holds`.
    pub fails: Option<(f64, T)>,
}

impl<T> Capacity<T> {
    /// The rate that a further search should begin at.
    pub fn near(&self) -> Option<f64> {
        self.holds.as_ref().or(self.fails.as_ref()).map(|(rate_per_s, _)| *rate_per_s)
    }
}

/// Finds the highest rate from `lowest` to `highest` (0 < lowest < highest) that holds, to a relative `precision`, near the rate `start`.
/// It assumes that a rate below one that holds also holds, and that a rate above one that fails also fails.
///
/// # Errors
/// Those of `judge`.
pub fn highest_holding<T, E>(
    (lowest, highest): (f64, f64),
    precision: f64,
    start: f64,
    mut judge: impl FnMut(f64) -> Result<Judged<T>, E>,
) -> Result<Capacity<T>, E> {
    let mut holds: Option<(f64, Judged<T>)> = None;
    let mut fails: Option<(f64, Judged<T>)> = None;
    let (mut rate, mut step) = (start, FIRST_STEP);
    for probe in 0.. {
        let judged = judge(rate)?;
        if judged.score <= 0.0 {
            holds = Some((rate, judged));
        } else {
            fails = Some((rate, judged));
        }
        rate = match (&holds, &fails) {
            (None, None) => break,
            (None, Some((failed, _))) if *failed <= lowest => break,
            (None, Some((failed, _))) => rounded(failed / (1.0 + step)).max(lowest),
            (Some((held, _)), None) if *held >= highest => break,
            (Some((held, _)), None) => rounded(held * (1.0 + step)).min(highest),
            (Some((held, low)), Some((failed, high))) => {
                let width = failed / held;
                if width <= 1.0 + precision && (low.score > -CLOSE || width <= 1.0 + precision / 4.0) {
                    break;
                }
                // Where the score is a line of the rate's logarithm it is 0 there; every other time the middle, as it may be a step.
                let share = if probe % 2 == 0 { 0.5 } else { low.score / (low.score - high.score) };
                let next = rounded(held * width.powf(share.clamp(0.1, 0.9)));
                if !(next > *held && next < *failed) {
                    break;
                }
                next
            }
        };
        step *= 2.0;
    }
    let seen = |of: Option<(f64, Judged<T>)>| of.map(|(rate, judged)| (rate, judged.seen));
    Ok(Capacity { holds: seen(holds), fails: seen(fails) })
}

/// The rate that short loads find: a bracket that doubles or halves from the rate that the server does under the highest, then its
/// middles. `short` returns the score of a rate and the rate that the server did.
///
/// # Errors
/// Those of `short`.
pub fn first_guess<E>(
    (lowest, highest): (f64, f64),
    mut short: impl FnMut(f64) -> Result<(f64, Option<f64>), E>,
) -> Result<f64, E> {
    let (score, done_per_s) = short(highest)?;
    if score <= 0.0 {
        return Ok(highest);
    }
    let start = done_per_s.filter(|rate| rate.is_finite() && *rate > 0.0).unwrap_or(highest / 2.0);
    let mut rate = rounded(start).clamp(lowest, (highest / 2.0).max(lowest));
    let (mut holds, mut fails) = (None, highest);
    loop {
        if short(rate)?.0 <= 0.0 {
            holds = Some(rate);
        } else {
            fails = rate;
        }
        rate = match holds {
            None if rate <= lowest => return Ok(lowest),
            None => (rate / 2.0).max(lowest),
            Some(held) if fails >= highest && 2.0 * held < highest => 2.0 * held,
            Some(held) if fails <= held * (1.0 + SHORT_PRECISION) => return Ok(held),
            Some(held) => (held * fails).sqrt(),
        };
    }
}

/// A rate of five significant digits, which is finer than any precision that can be requested.
fn rounded(rate: f64) -> f64 {
    if rate <= 0.0 {
        return rate;
    }
    let scale = 10_f64.powf(4.0 - rate.log10().floor());
    (rate * scale).round() / scale
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::convert::Infallible;

    use super::*;
    use ridgepoint::Deployment;
    use ridgepoint::latency::FixedLatency;
    use ridgepoint_replay::workload::{ArrivalPattern, OpenLoop, RequestShape};
    use ridgepoint_replay::{EngineConfig, Metrics, SchedulerOptions, replay};

    /// A search where short loads find `short_limit` and long ones `limit`, with the number of long probes. The score is a line of the
    /// rate's logarithm, or a step.
    fn search(
        range: (f64, f64),
        precision: f64,
        guess: f64,
        short_limit: f64,
        limit: f64,
        is_step: bool,
    ) -> (Capacity<()>, u32) {
        let probes = Cell::new(0);
        let score = |rate: f64, limit: f64| {
            assert!((range.0..=range.1).contains(&rate), "{rate}");
            match (rate / limit).ln() {
                score if is_step => {
                    if score > 0.0 {
                        0.5
                    } else {
                        -0.2
                    }
                }
                score => score,
            }
        };
        let Ok(start) = first_guess(range, |rate| Ok::<_, Infallible>((score(rate, short_limit), Some(guess))));
        let found: Result<_, Infallible> = highest_holding(range, precision, start, |rate| {
            probes.set(probes.get() + 1);
            Ok(Judged { score: score(rate, limit), seen: () })
        });
        let Ok(found) = found;
        (found, probes.get())
    }

    #[test]
    fn the_rate_is_found_wherever_the_bracket_starts() {
        for limit in [0.013, 0.9, 7.3, 7.3001, 640.0, 9_000.0] {
            for guess in [1e-9, 0.5, 7.3, 5_000.0, 1e12, f64::NAN] {
                for precision in [0.001, 0.02, 0.3] {
                    for (short, is_step) in [(1.0, false), (1.05, true), (0.7, false), (2.0, true)] {
                        let (found, probes) = search((0.01, 10_000.0), precision, guess, short * limit, limit, is_step);
                        let Capacity { holds: Some((holds, ())), fails: Some((fails, ())) } = found else {
                            panic!("{found:?} of {limit}")
                        };
                        assert!(holds <= limit && limit < fails, "{found:?} of {limit}");
                        assert!(fails <= holds * (1.0 + precision + 1e-9), "{found:?} of {limit}");
                        assert!(probes <= 24, "{probes}");
                    }
                }
            }
        }
        // Short loads that say nearly the same leave four long ones to run.
        let (found, probes) = search((0.01, 10_000.0), 0.02, 5.0, 7.3, 7.2, false);
        assert!(probes <= 5 && found.holds.is_some_and(|(rate, ())| rate > 7.1), "{found:?} {probes}");
    }

    #[test]
    fn rates_at_the_ends_are_reported_as_such() {
        let search = |range, limit: f64| search(range, 0.02, 3.0, limit, limit, false);
        assert_eq!(search((0.5, 8.0), 8.0), (Capacity { holds: Some((8.0, ())), fails: None }, 1));
        assert_eq!(search((0.5, 8.0), 0.4), (Capacity { holds: None, fails: Some((0.5, ())) }, 1));
        let (found, _) = search((0.5, 8.0), 0.5);
        assert!(
            matches!(found, Capacity { holds: Some((0.5, ())), fails: Some((fails, ())) } if fails <= 0.51),
            "{found:?}"
        );
        let (found, _) = search((7.0, 8.0), 7.5);
        assert!(
            matches!(found, Capacity { holds: Some((holds, ())), .. } if (7.35..=7.5).contains(&holds)),
            "{found:?}"
        );
    }

    /// The highest rate at which requests that take 100 ms each, one after the other, have a mean TTFT of at most `limit_ms`.
    fn of_one_server(pattern: ArrivalPattern, num_requests: u64, limit_ms: f64, precision: f64) -> f64 {
        let deployment = Deployment { max_num_seqs: 1, ..Deployment::default() };
        let config = EngineConfig {
            scheduler: SchedulerOptions {
                async_scheduling: false,
                ..EngineConfig::new(&deployment, 100, 100).scheduler
            },
            ..EngineConfig::new(&deployment, 100, 100)
        };
        let latency = FixedLatency { step_us: 100_000.0, ..FixedLatency::default() };
        let score = |rate| {
            let mut load = OpenLoop::new(pattern, rate, num_requests, RequestShape::new(10, 1), 0)?;
            let run = Metrics::of(&replay(&latency, &config, &mut load, &mut [])?).run;
            Ok::<_, ridgepoint::Error>(run.ttft_ms.map_or(0.0, |ttft| (ttft.mean / limit_ms).ln()))
        };
        let start = first_guess((0.1, 1_000.0), |rate| Ok::<_, ridgepoint::Error>((score(rate)?, None))).unwrap();
        let judge = |rate| Ok(Judged { score: score(rate)?, seen: () });
        let found: ridgepoint::Result<_> = highest_holding((0.1, 1_000.0), precision, start, judge);
        let Ok(Capacity { holds: Some((holds, ())), .. }) = found else { panic!("{found:?}") };
        holds
    }

    #[test]
    fn queues_of_known_lengths_hold_the_rates_that_they_should() {
        // Even arrivals: request k of 101 waits k·(100 ms − 1/r), on average 50 times that. 250 ms of it are 5 ms a request, so
        // 1/r = 95 ms.
        let even = of_one_server(ArrivalPattern::Deterministic, 101, 350.0, 0.001);
        assert!((10.515..=10.527).contains(&even), "{even}");
        // Poisson arrivals at a share ρ of what the server can do wait ρ/(2·(1 − ρ)) services on average (Pollaczek and
        // Khinchine): half a service at ρ = 1/2, two at ρ = 4/5.
        let half = of_one_server(ArrivalPattern::Poisson, 50_000, 150.0, 0.005);
        assert!((half / 5.0 - 1.0).abs() < 0.03, "{half}");
        let most = of_one_server(ArrivalPattern::Poisson, 50_000, 300.0, 0.005);
        assert!((most / 8.0 - 1.0).abs() < 0.03, "{most}");
    }

    #[test]
    fn a_fault_of_a_probe_ends_the_search() {
        let mut probes = 0;
        let start = first_guess((1.0, 2.0), |_| {
            probes += 1;
            if probes == 2 { Err("broken") } else { Ok((1.0, None)) }
        });
        assert_eq!(start, Err("broken"));
        let found: Result<Capacity<()>, &str> = highest_holding((1.0, 2.0), 0.1, 1.5, |_| Err("broken"));
        assert_eq!(found, Err("broken"));
    }
}

//! The highest rate that meets the limits, found by probing: a bracket that doubles or halves, then bisection. Uses nothing of the crate.

/// Rates with what their probes said.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Capacity<T> {
    /// The highest rate that was found to hold; `None` if even the lowest fails.
    pub holds: Option<(f64, T)>,
    /// The lowest rate that was found to fail; `None` if even the highest holds. It is at most the requested share above `holds`.
    pub fails: Option<(f64, T)>,
}

/// Finds the highest rate from `lowest` to `highest` (0 < lowest < highest) that passes, to a relative `precision`. `probe` returns
/// whether a rate passes, and other results. Rates below one that passes are taken to pass, and those above one that fails to fail.
/// `guess` turns the result at the highest rate into the rate from which the bracket grows. With a good one there are about
/// 4 + log₂(1 / precision) probes.
///
/// # Errors
/// Those of `probe`.
pub fn highest_sustained<T, E>(
    lowest: f64,
    highest: f64,
    precision: f64,
    guess: impl FnOnce(&T) -> Option<f64>,
    mut probe: impl FnMut(f64) -> Result<(bool, T), E>,
) -> Result<Capacity<T>, E> {
    let (highest_holds, seen) = probe(highest)?;
    if highest_holds {
        return Ok(Capacity { holds: Some((highest, seen)), fails: None });
    }
    let start = guess(&seen).filter(|rate| rate.is_finite()).unwrap_or(highest / 2.0);
    let mut rate = rounded(start).clamp(lowest, (highest / 2.0).max(lowest));
    let mut fails = (highest, seen);
    let mut holds: Option<(f64, T)> = None;
    loop {
        let (does_hold, seen) = probe(rate)?;
        if does_hold {
            holds = Some((rate, seen));
        } else {
            fails = (rate, seen);
        }
        rate = match &holds {
            None if rate <= lowest => break,
            None => (rate / 2.0).max(lowest),
            Some((held, _)) if fails.0 >= highest && 2.0 * held < highest => 2.0 * held,
            Some((held, _)) if fails.0 <= held * (1.0 + precision) => break,
            Some((held, _)) => {
                let middle = rounded((held * fails.0).sqrt());
                if !(middle > *held && middle < fails.0) {
                    break;
                }
                middle
            }
        };
    }
    Ok(Capacity { holds, fails: Some(fails) })
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

    fn search(lowest: f64, highest: f64, precision: f64, guess: f64, limit: f64) -> (Capacity<()>, u32) {
        let probes = Cell::new(0);
        let found: Result<_, Infallible> = highest_sustained(
            lowest,
            highest,
            precision,
            |()| Some(guess),
            |rate| {
                probes.set(probes.get() + 1);
                assert!((lowest..=highest).contains(&rate), "{rate}");
                Ok((rate <= limit, ()))
            },
        );
        let Ok(found) = found;
        (found, probes.get())
    }

    #[test]
    fn the_rate_is_found_wherever_the_bracket_starts() {
        for limit in [0.013, 0.9, 7.3, 7.3001, 640.0, 9_000.0] {
            for guess in [1e-9, 0.5, 7.3, 5_000.0, 1e12, f64::NAN] {
                for precision in [0.001, 0.02, 0.3] {
                    let (found, probes) = search(0.01, 10_000.0, precision, guess, limit);
                    let Capacity { holds: Some((holds, ())), fails: Some((fails, ())) } = found else {
                        panic!("{found:?} of {limit}")
                    };
                    assert!(holds <= limit && limit < fails, "{found:?} of {limit}");
                    assert!(fails <= holds * (1.0 + precision), "{found:?} of {limit}");
                    // 20 doublings span the range, and ten halvings of a factor of 2 come to 0.0007.
                    assert!(probes <= 33, "{probes}");
                }
            }
        }
        // Highest, 4 and 8, then 6 bisections: 2^(1/64) = 1.011.
        assert_eq!(search(0.01, 10_000.0, 0.02, 4.0, 7.3).1, 9);
    }

    #[test]
    fn rates_at_the_ends_are_reported_as_such() {
        assert_eq!(search(0.5, 8.0, 0.02, 3.0, 8.0), (Capacity { holds: Some((8.0, ())), fails: None }, 1));
        assert_eq!(search(0.5, 8.0, 0.02, 3.0, 0.4).0, Capacity { holds: None, fails: Some((0.5, ())) });
        // 8, 3, 1.5, 0.75, 0.5.
        assert_eq!(search(0.5, 8.0, 0.02, 3.0, 0.4).1, 5);
        let (found, _) = search(0.5, 8.0, 0.02, 3.0, 0.5);
        assert!(
            matches!(found, Capacity { holds: Some((0.5, ())), fails: Some((fails, ())) } if fails <= 0.51),
            "{found:?}"
        );
        let (found, _) = search(7.0, 8.0, 0.02, 100.0, 7.5);
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
        let found = highest_sustained(
            0.1,
            1_000.0,
            precision,
            |()| None,
            |rate| {
                let mut load = OpenLoop::new(pattern, rate, num_requests, RequestShape::new(10, 1), 0)?;
                let run = Metrics::of(&replay(&latency, &config, &mut load, &mut [])?).run;
                Ok::<_, ridgepoint::Error>((run.ttft_ms.is_some_and(|ttft| ttft.mean <= limit_ms), ()))
            },
        );
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
        let found: Result<Capacity<()>, &str> = highest_sustained(
            1.0,
            2.0,
            0.1,
            |()| None,
            |_| {
                probes += 1;
                if probes == 2 { Err("broken") } else { Ok((false, ())) }
            },
        );
        assert_eq!((found, probes), (Err("broken"), 2));
    }
}

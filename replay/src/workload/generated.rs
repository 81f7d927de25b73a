//! Loads without a file: requests at a rate (open loop), or a fixed number of them in flight (closed loop).
#![expect(clippy::cast_possible_truncation, reason = "a load has at most MAX_REQUESTS")]

use ridgepoint::Result;
use ridgepoint::input::check;

use super::arrivals::{ArrivalPattern, ArrivalTimes};
use super::lengths::RequestShape;
use super::seed::{Stream, generator};
use super::starts::{Concurrency, check_concurrency, check_rate};
use super::summary::Summary;
use super::{Workload, WorkloadRequest};

/// Requests at a rate, whether others are finished or not. Memory does not grow with their number.
#[derive(Debug)]
pub struct OpenLoop {
    shape: RequestShape,
    num_requests: u64,
    times: ArrivalTimes,
}

impl OpenLoop {
    /// Returns `num_requests` requests at `rate_per_s` requests per second, with gaps drawn from `seed`.
    ///
    /// # Errors
    /// `ErrorKind::Invalid` with all problems: a rate that is not above 0 and at most 10⁶, a number of
    /// requests that is not from 1 to 10⁸, more than 10⁸ s of load, a burstiness that is not from 0.001 to 1,000, lengths
    /// out of range.
    pub fn new(
        pattern: ArrivalPattern,
        rate_per_s: f64,
        num_requests: u64,
        shape: RequestShape,
        seed: u64,
    ) -> Result<Self> {
        let mut problems = Vec::new();
        check_rate(&mut problems, pattern, rate_per_s, num_requests, "requests");
        shape.check(&mut problems);
        check("generated load", problems)?;
        let rng = generator(seed, Stream::Arrivals, 0);
        let times = ArrivalTimes::pattern(pattern, rng, num_requests, rate_per_s);
        Ok(OpenLoop { shape, num_requests, times })
    }

    /// Returns the summary of the load.
    pub fn summary(&self) -> Summary {
        self.shape.summary(self.num_requests)
    }
}

/// A fixed number of requests in flight: all of them at the start, then one for each finished request, in the same
/// nanosecond.
#[derive(Debug, Clone)]
pub struct ClosedLoop {
    shape: RequestShape,
    num_requests: u64,
    starts: Concurrency,
}

impl ClosedLoop {
    /// Returns `num_requests` requests, `concurrency` of them in flight.
    ///
    /// # Errors
    /// `ErrorKind::Invalid` with all problems: a concurrency of 0, a number of requests that is not from
    /// 1 to 10⁸, lengths out of range.
    pub fn new(concurrency: u32, num_requests: u64, shape: RequestShape) -> Result<Self> {
        let mut problems = Vec::new();
        check_concurrency(&mut problems, concurrency, num_requests, "requests");
        shape.check(&mut problems);
        check("closed loop", problems)?;
        Ok(ClosedLoop { shape, num_requests, starts: Concurrency::new(concurrency, num_requests) })
    }

    /// Returns the summary of the load.
    pub fn summary(&self) -> Summary {
        self.shape.summary(self.num_requests)
    }
}

impl Workload for OpenLoop {
    fn next_arrival_ns(&self) -> Option<u64> {
        self.times.next_ns()
    }

    fn next_request(&mut self) -> Option<WorkloadRequest> {
        Some(self.shape.next(self.times.next()?))
    }

    fn finished(&mut self, _now_ns: u64, _stage: u32, _request: u32) {}

    fn expected_requests(&self) -> Option<usize> {
        Some(self.num_requests as usize)
    }
}

impl Workload for ClosedLoop {
    fn next_arrival_ns(&self) -> Option<u64> {
        self.starts.next_ns()
    }

    fn next_request(&mut self) -> Option<WorkloadRequest> {
        Some(self.shape.next(self.starts.start()?))
    }

    fn finished(&mut self, now_ns: u64, _stage: u32, _request: u32) {
        self.starts.ended(now_ns);
    }

    fn expected_requests(&self) -> Option<usize> {
        Some(self.num_requests as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::super::NormalLengths;
    use super::*;

    fn shape() -> RequestShape {
        RequestShape::new(100, 20)
    }

    #[test]
    fn a_closed_loop_keeps_its_number_in_flight() {
        let mut load = ClosedLoop::new(2, 4, shape()).unwrap();
        let sent: Vec<u64> = std::iter::from_fn(|| load.next_request()).map(|r| r.arrival_ns).collect();
        assert_eq!(sent, [0, 0]);
        load.finished(50, 0, 0);
        assert_eq!(load.next_request().map(|r| r.arrival_ns), Some(50));
        assert_eq!(load.next_arrival_ns(), None);
        load.finished(60, 0, 0);
        load.finished(70, 0, 0);
        assert_eq!(load.next_request().map(|r| r.arrival_ns), Some(60), "each is sent when one is over");
        assert_eq!((load.next_arrival_ns(), load.expected_requests()), (None, Some(4)));
    }

    #[test]
    fn a_loop_of_fewer_requests_than_slots_ends() {
        let mut load = ClosedLoop::new(8, 3, shape()).unwrap();
        assert_eq!(std::iter::from_fn(|| load.next_request()).count(), 3);
        load.finished(1, 0, 0);
        assert_eq!(load.next_request(), None);
    }

    #[test]
    fn an_open_loop_sends_its_number_at_its_rate_whatever_finishes() {
        let mut load = OpenLoop::new(ArrivalPattern::Deterministic, 4.0, 3, shape(), 0).unwrap();
        load.finished(u64::MAX, 0, 0);
        let times: Vec<u64> = std::iter::from_fn(|| load.next_request()).map(|r| r.arrival_ns).collect();
        assert_eq!(times, [0, 250_000_000, 500_000_000]);
        assert_eq!(load.summary().to_string().split(',').next(), Some("3 requests in 1 stage"));
    }

    #[test]
    fn the_seed_fixes_an_open_loop() {
        let times = |seed| {
            let mut load = OpenLoop::new(ArrivalPattern::Poisson, 10.0, 50, shape(), seed).unwrap();
            std::iter::from_fn(move || load.next_request()).map(|r| r.arrival_ns).collect::<Vec<u64>>()
        };
        assert_eq!(times(1), times(1));
        assert_ne!(times(1), times(2));
    }

    #[test]
    fn every_wrong_figure_is_reported() {
        let impossible = RequestShape::new(0, 10_000_001);
        let gamma = ArrivalPattern::Gamma { burstiness: f64::NAN };
        let error = OpenLoop::new(gamma, -1.0, 0, impossible, 0).unwrap_err().to_string();
        for part in
            ["rate = -1", "number of requests = 0", "burstiness = NaN", "input length = 0", "output length = 10000001"]
        {
            assert!(error.contains(part), "{part}: {error}");
        }
        for rate in [0.0, f64::NAN, f64::INFINITY, 2e6] {
            assert!(OpenLoop::new(ArrivalPattern::Poisson, rate, 1, shape(), 0).is_err(), "{rate}");
        }
        let slow = OpenLoop::new(ArrivalPattern::Poisson, 1e-6, 1000, shape(), 0).unwrap_err().to_string();
        assert!(slow.contains("longer than 100000000 s"), "{slow}");
        let huge = OpenLoop::new(ArrivalPattern::Poisson, 1e308, 100_000_001, shape(), 0).unwrap_err().to_string();
        assert!(huge.contains("rate = 1e308 must be"), "{huge}");
        assert!(huge.contains("number of requests = 100000001 must be from 1 to 100000000"), "{huge}");
        let error = ClosedLoop::new(0, 0, shape()).unwrap_err().to_string();
        assert!(error.contains("concurrency = 0") && error.contains("number of requests = 0"), "{error}");
    }

    fn drawn(rate_per_s: f64, seed: u64) -> Vec<(u64, u32, u32)> {
        let normal = NormalLengths { min: 50, max: 150, mean: 100.0, std_dev: 10.0, ..NormalLengths::fixed(1) };
        let shape = RequestShape::drawn(normal, NormalLengths::fixed(7), seed);
        let mut load = OpenLoop::new(ArrivalPattern::Deterministic, rate_per_s, 500, shape, seed).unwrap();
        assert_eq!(load.expected_requests(), Some(500));
        std::iter::from_fn(|| load.next_request())
            .map(|request| (request.arrival_ns, request.num_prompt_tokens, request.num_output_tokens))
            .collect()
    }

    #[test]
    fn lengths_are_those_of_the_seed_whatever_the_rate() {
        let (slow, fast) = (drawn(1.0, 3), drawn(4.0, 3));
        assert_eq!((slow.len(), slow[2].0, fast[2].0), (500, 2_000_000_000, 500_000_000));
        assert!(slow.iter().zip(&fast).all(|(a, b)| (a.1, a.2) == (b.1, b.2)));
        assert!(slow.iter().all(|(_, input, output)| (50..=150).contains(input) && *output == 7));
        let mean = slow.iter().map(|(_, input, _)| f64::from(*input)).sum::<f64>() / 500.0;
        // Standard error 10 / √500 = 0.45.
        assert!((mean - 100.0).abs() < 2.0, "{mean}");
        assert_ne!(drawn(1.0, 4), slow);
    }
}

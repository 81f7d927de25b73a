//! A generated load whose lengths are drawn from a distribution.

use rand_pcg::Pcg64;

use super::prompts::NormalLengths;
use super::seed::{Stream, generator};
use super::{Workload, WorkloadRequest};

/// A load with the send times of another one and lengths of its own. Request k has the same lengths at every rate.
#[derive(Debug, Clone)]
pub struct DrawnLengths<W> {
    times: W,
    input: (NormalLengths, Pcg64),
    output: (NormalLengths, Pcg64),
}

impl<W: Workload> DrawnLengths<W> {
    /// Returns the load `times` with lengths drawn from `seed`. Shared prefixes of `times` stay, so its prompts should share
    /// nothing.
    pub fn new(times: W, input: NormalLengths, output: NormalLengths, seed: u64) -> Self {
        DrawnLengths {
            times,
            input: (input, generator(seed, Stream::InputLengths, 0)),
            output: (output, generator(seed, Stream::OutputLengths, 0)),
        }
    }
}

impl<W: Workload> Workload for DrawnLengths<W> {
    fn next_arrival_ns(&self) -> Option<u64> {
        self.times.next_arrival_ns()
    }

    fn next_request(&mut self) -> Option<WorkloadRequest> {
        let request = self.times.next_request()?;
        let (input, input_rng) = &mut self.input;
        let (output, output_rng) = &mut self.output;
        Some(WorkloadRequest {
            num_prompt_tokens: input.sample(input_rng),
            num_output_tokens: output.sample(output_rng),
            ..request
        })
    }

    fn finished(&mut self, now_ns: u64, stage: u32) {
        self.times.finished(now_ns, stage);
    }

    fn expected_requests(&self) -> Option<usize> {
        self.times.expected_requests()
    }
}

#[cfg(test)]
mod tests {
    use super::super::{ArrivalPattern, OpenLoop, RequestShape};
    use super::*;

    fn drawn(rate_per_s: f64, seed: u64) -> Vec<(u64, u32, u32)> {
        let times =
            OpenLoop::new(ArrivalPattern::Deterministic, rate_per_s, 500, RequestShape::new(1, 1), seed).unwrap();
        let normal = NormalLengths { min: 50, max: 150, mean: 100.0, std_dev: 10.0 };
        let mut load = DrawnLengths::new(times, normal, NormalLengths::fixed(7), seed);
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

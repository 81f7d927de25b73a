//! Lengths of requests, fixed or drawn.
#![expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped beside; at most MAX_REQUESTS")]

use rand_distr::{Distribution, StandardNormal};
use rand_pcg::Pcg64;

use super::limits;
use super::request::WorkloadRequest;
use super::seed::{Stream, generator};
use super::summary::Summary;

/// The note that requests of equal length in a closed loop run in lockstep, unlike those of real clients.
pub const LOCKSTEP: &str = "all requests are equally long: those that are prefilled together finish together, round after \
                        round, and queue behind each other more than the requests of real clients do";

/// Lengths drawn from a normal distribution, clipped to a range and rounded.
///
/// # Source
/// inference-perf 0.3.0, `utils/distribution.py`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NormalLengths {
    /// Shortest, tokens, at least 1.
    pub min: u32,
    /// Longest, tokens.
    pub max: u32,
    /// Mean before clipping, tokens.
    pub mean: f64,
    /// Standard deviation before clipping, tokens; 0 makes all lengths equal.
    pub std_dev: f64,
}

impl NormalLengths {
    /// Equal lengths.
    pub const fn fixed(tokens: u32) -> Self {
        NormalLengths { min: tokens, max: tokens, mean: tokens as f64, std_dev: 0.0 }
    }

    /// Whether all lengths are equal.
    pub fn is_fixed(&self) -> bool {
        self.min == self.max
    }

    pub(super) fn sample(&self, rng: &mut Pcg64) -> u32 {
        if self.is_fixed() {
            return self.min;
        }
        let deviation: f64 = StandardNormal.sample(rng);
        let length = (self.mean + self.std_dev * deviation).round_ties_even();
        (length as u32).clamp(self.min, self.max.max(self.min))
    }
}

/// Lengths of requests, one after the other.
#[derive(Debug, Clone)]
pub struct RequestShape {
    input: (NormalLengths, Pcg64),
    output: (NormalLengths, Pcg64),
    seed: u64,
}

impl RequestShape {
    /// Returns the shape of requests that are equally long, from 1 to 10 million tokens each way.
    pub fn new(input_len: u32, output_len: u32) -> Self {
        Self::drawn(NormalLengths::fixed(input_len), NormalLengths::fixed(output_len), 0)
    }

    /// Returns lengths drawn from `seed`. Request k has the same lengths at every rate.
    pub fn drawn(input: NormalLengths, output: NormalLengths, seed: u64) -> Self {
        RequestShape {
            input: (input, generator(seed, Stream::InputLengths, 0)),
            output: (output, generator(seed, Stream::OutputLengths, 0)),
            seed,
        }
    }

    /// Starts again with the first request.
    pub(super) fn restart(&mut self) {
        *self = Self::drawn(self.input.0, self.output.0, self.seed);
    }

    pub(super) fn check(&self, problems: &mut Vec<String>) {
        for (name, lengths) in [("input length", self.input.0), ("output length", self.output.0)] {
            limits::check_tokens(problems, name, lengths.min);
            limits::check_tokens(problems, name, lengths.max);
        }
        problems.dedup();
    }

    /// The next request.
    pub(super) fn next(&mut self, arrival_ns: u64) -> WorkloadRequest {
        let ((input, input_rng), (output, output_rng)) = (&mut self.input, &mut self.output);
        WorkloadRequest::new(arrival_ns, input.sample(input_rng), output.sample(output_rng))
    }

    pub(super) fn summary(&self, num_requests: u64) -> Summary {
        let (input, output) = (self.input.0, self.output.0);
        Summary {
            requests: num_requests as usize,
            stages: 1,
            sessions: None,
            mean_input_tokens: input.mean,
            mean_output_tokens: output.mean,
            max_total_tokens: input.max.saturating_add(output.max),
        }
    }
}

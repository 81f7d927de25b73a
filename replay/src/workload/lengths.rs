//! Lengths of requests, fixed or drawn.
#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "clamped in the same expression; at most MAX_REQUESTS"
)]

use rand_distr::{Distribution, StandardNormal};
use rand_pcg::Pcg64;
use serde::Deserialize;

use super::limits;
use super::request::WorkloadRequest;
use super::seed::{Stream, generator};
use super::summary::Summary;

/// A note if requests run in lockstep, unlike those of real clients: several of equal length are in flight, and each is followed by
/// the next at once.
pub fn lockstep(in_flight: u32, [input, output]: [&NormalLengths; 2], think_time_s: f64) -> Option<String> {
    let is_lockstep = in_flight > 1 && input.is_fixed() && output.is_fixed() && think_time_s <= 0.0;
    is_lockstep.then(|| {
        "all requests are equally long: those that are prefilled together finish together, round after round, and queue \
         behind each other more than the requests of real clients do"
            .to_owned()
    })
}

/// Lengths drawn from a normal distribution, clipped to a range and rounded.
///
/// # Source
/// inference-perf 0.3.0, `utils/distribution.py`.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(from = "LengthsAsWritten")]
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

/// Lengths as files and flags have them: one number, or a distribution.
#[derive(Deserialize)]
#[serde(untagged)]
enum LengthsAsWritten {
    Fixed(u32),
    Normal { min: u32, max: u32, mean: f64, std_dev: f64 },
}

impl From<LengthsAsWritten> for NormalLengths {
    fn from(written: LengthsAsWritten) -> Self {
        match written {
            LengthsAsWritten::Fixed(tokens) => NormalLengths::fixed(tokens),
            LengthsAsWritten::Normal { min, max, mean, std_dev } => NormalLengths { min, max, mean, std_dev },
        }
    }
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

    /// Records a shortest or longest length that is zero or too long.
    pub(super) fn check(&self, problems: &mut Vec<String>, name: &str) {
        limits::check_tokens(problems, name, self.min);
        if !self.is_fixed() {
            limits::check_tokens(problems, name, self.max);
        }
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
        }
    }

    pub(super) fn check(&self, problems: &mut Vec<String>) {
        for (name, lengths) in [("input length", self.input.0), ("output length", self.output.0)] {
            lengths.check(problems, name);
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_equal_requests_that_follow_at_once_run_in_lockstep() {
        let (short, long) = (NormalLengths::fixed(8), NormalLengths::fixed(9));
        let varied = NormalLengths { max: 10, std_dev: 1.0, ..long };
        assert!(lockstep(2, [&short, &long], 0.0).is_some_and(|note| note.contains("equally long")));
        for (in_flight, output, think_time_s) in [(1, long, 0.0), (2, varied, 0.0), (2, long, 0.1)] {
            assert_eq!(lockstep(in_flight, [&short, &output], think_time_s), None);
        }
    }
}

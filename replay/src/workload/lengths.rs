//! Lengths of requests, fixed or drawn.
#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "clamped in the same expression; at most MAX_REQUESTS"
)]

use std::collections::BTreeMap;

use rand_distr::{Distribution, StandardNormal, StandardUniform};
use rand_pcg::Pcg64;
use serde::Deserialize;

use super::limits::{self, MAX_TOKENS};
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

/// Lengths drawn from a normal distribution, clipped to a range and rounded; or between quantiles.
///
/// # Source
/// inference-perf 0.3.0, `utils/distribution.py`; vLLM 0.16, `benchmarks/datasets.py`, for a share of the nominal length.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(try_from = "LengthsAsWritten")]
pub struct NormalLengths {
    /// Shortest, tokens, at least 1.
    pub min: u32,
    /// Longest, tokens.
    pub max: u32,
    /// Mean before clipping, tokens.
    pub mean: f64,
    /// Standard deviation before clipping, tokens; 0 makes all lengths equal.
    pub std_dev: f64,
    /// Quantiles, ascending: a share of the requests in millionths, and the greatest length among them. If there are any, lengths are
    /// interpolated linearly between them, and `std_dev` does not count.
    pub quantiles: [Option<(u32, u32)>; MAX_QUANTILES],
}

/// Most quantiles of lengths.
const MAX_QUANTILES: usize = 8;
/// Millionths of one.
const MILLION: f64 = 1e6;
/// A normal distribution without a maximum ends this many standard deviations above its mean.
const WIDEST: f64 = 6.0;

/// Lengths as files and flags have them, in words.
pub(super) const LENGTH: &str = "a whole number of tokens from 1 to 10000000, or an object: { min, max } (uniform), { mean, range_ratio } \
                                 (uniform in a share of the mean), { mean, std_dev } with min and max or without, with min <= mean <= max, \
                                 or up to 8 quantiles such as { p10, p50, p90 }";

/// Lengths as files and flags have them: one number, or a distribution by its keys.
#[derive(Deserialize)]
#[serde(untagged)]
enum LengthsAsWritten {
    Fixed(u32),
    Spread(BTreeMap<String, f64>),
}

impl TryFrom<LengthsAsWritten> for NormalLengths {
    type Error = &'static str;

    fn try_from(written: LengthsAsWritten) -> Result<Self, &'static str> {
        let keys = match written {
            LengthsAsWritten::Fixed(tokens) => return Ok(NormalLengths::fixed(tokens)),
            LengthsAsWritten::Spread(keys) => keys,
        };
        let names: Vec<&str> = keys.keys().map(String::as_str).collect();
        let of = |name: &str| keys.get(name).copied();
        let tokens = |name: &str| of(name).and_then(to_tokens);
        let lengths = match names.as_slice() {
            ["max", "min"] => tokens("min").zip(tokens("max")).and_then(|(min, max)| Self::uniform(min, max)),
            ["mean", "range_ratio"] => {
                let ratio = of("range_ratio").filter(|ratio| (0.0..1.0).contains(ratio));
                tokens("mean").zip(ratio).and_then(|(mean, ratio)| Self::fixed(mean).within_share(ratio))
            }
            names if names.contains(&"std_dev") => {
                let is_known = names.iter().all(|name| ["max", "mean", "min", "std_dev"].contains(name));
                let (mean, std_dev) = (of("mean").unwrap_or(f64::NAN), of("std_dev").unwrap_or(f64::NAN));
                let min = of("min").map_or(Some(1), to_tokens);
                let widest = (mean + WIDEST * std_dev).ceil().min(f64::from(MAX_TOKENS));
                let max = of("max").map_or_else(|| to_tokens(widest), to_tokens);
                let found = min.zip(max).filter(|(min, max)| (f64::from(*min)..=f64::from(*max)).contains(&mean));
                let is_possible = is_known && (0.0..=f64::from(MAX_TOKENS)).contains(&std_dev);
                found.filter(|_| is_possible).map(|(min, max)| NormalLengths {
                    min,
                    max,
                    mean,
                    std_dev,
                    ..Self::fixed(1)
                })
            }
            _ => Self::of_quantiles(&keys),
        };
        lengths.ok_or(LENGTH)
    }
}

fn to_tokens(number: f64) -> Option<u32> {
    let is_whole = number.fract().abs() < f64::EPSILON && (1.0..=f64::from(MAX_TOKENS)).contains(&number);
    is_whole.then_some(number as u32)
}

impl NormalLengths {
    /// Equal lengths.
    pub const fn fixed(tokens: u32) -> Self {
        NormalLengths { min: tokens, max: tokens, mean: tokens as f64, std_dev: 0.0, quantiles: [None; MAX_QUANTILES] }
    }

    /// Whether a value of a file or flag is a length or a distribution of lengths.
    pub(super) fn is_written(value: &serde_json::Value) -> bool {
        serde_json::from_value::<Self>(value.clone()).is_ok_and(|lengths| lengths.min >= 1 && lengths.max <= MAX_TOKENS)
    }

    /// Lengths that are uniform within a share of the mean, as with vLLM's `--random-range-ratio`; at least 1.
    pub(super) fn within_share(self, ratio: f64) -> Option<Self> {
        let [min, max] =
            [(self.mean * (1.0 - ratio)).floor().max(1.0), (self.mean * (1.0 + ratio)).ceil()].map(to_tokens);
        Self::uniform(min?, max?)
    }

    /// Lengths from `min` to `max`, all equally likely.
    fn uniform(min: u32, max: u32) -> Option<Self> {
        (min <= max).then(|| Self::between(&[(0, min), (1_000_000, max)]))
    }

    /// Lengths by quantiles: `p50` is the median. Below the first and above the last quantile all lengths are equal to it.
    fn of_quantiles(keys: &BTreeMap<String, f64>) -> Option<Self> {
        let quantile = |(name, tokens): (&String, &f64)| {
            let percent: f64 =
                name.strip_prefix('p')?.parse().ok().filter(|percent| (0.0..=100.0).contains(percent))?;
            Some(((percent / 100.0 * MILLION).round() as u32, to_tokens(*tokens)?))
        };
        let mut quantiles: Vec<(u32, u32)> = keys.iter().map(quantile).collect::<Option<_>>()?;
        quantiles.sort_by_key(|(share, _)| *share);
        let is_possible =
            (1..=MAX_QUANTILES).contains(&quantiles.len()) && quantiles.is_sorted_by_key(|(_, tokens)| *tokens);
        is_possible.then(|| Self::between(&quantiles))
    }

    /// Lengths with these quantiles, linear between them.
    fn between(quantiles: &[(u32, u32)]) -> Self {
        let share = |of: &(u32, u32)| f64::from(of.0) / MILLION;
        let (first, last) =
            (quantiles.first().copied().unwrap_or((0, 1)), quantiles.last().copied().unwrap_or((1_000_000, 1)));
        let halves = quantiles.iter().zip(quantiles.iter().skip(1));
        let inner: f64 =
            halves.map(|(one, next)| (share(next) - share(one)) * (f64::from(one.1) + f64::from(next.1)) / 2.0).sum();
        let mean = share(&first) * f64::from(first.1) + inner + (1.0 - share(&last)) * f64::from(last.1);
        let mut lengths = NormalLengths { min: first.1, max: last.1, mean, ..Self::fixed(1) };
        lengths.quantiles.iter_mut().zip(quantiles).for_each(|(slot, quantile)| *slot = Some(*quantile));
        lengths
    }

    /// The length at a share of the requests, by the quantiles.
    fn at(&self, share: f64) -> Option<f64> {
        let mut below: Option<(f64, u32)> = None;
        for (at, tokens) in self.quantiles.iter().flatten() {
            let (at, length) = (f64::from(*at) / MILLION, f64::from(*tokens));
            if share <= at {
                return Some(match below {
                    Some((from, shorter)) if at > from => {
                        f64::from(shorter) + (share - from) / (at - from) * (length - f64::from(shorter))
                    }
                    _ => length,
                });
            }
            below = Some((at, *tokens));
        }
        below.map(|(_, tokens)| f64::from(tokens))
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
        let length = match self.quantiles.first() {
            Some(Some(_)) => self.at(StandardUniform.sample(rng)).unwrap_or(self.mean).round_ties_even(),
            _ => {
                let deviation: f64 = StandardNormal.sample(rng);
                (self.mean + self.std_dev * deviation).round_ties_even()
            }
        };
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

    fn written(json: serde_json::Value) -> Option<NormalLengths> {
        serde_json::from_value(json).ok()
    }

    fn drawn(lengths: NormalLengths) -> Vec<u32> {
        let mut rng = generator(3, Stream::InputLengths, 0);
        let mut drawn: Vec<u32> = (0..2000).map(|_| lengths.sample(&mut rng)).collect();
        drawn.sort_unstable();
        drawn
    }

    #[test]
    fn spreads_are_drawn_as_written() {
        use serde_json::json;
        // Mean, and the ends that 2,000 draws reach within a twentieth of the range.
        for (json, mean, low, high) in [
            (json!({ "min": 100, "max": 300 }), 200.0, 100, 300),
            (json!({ "mean": 1000, "range_ratio": 0.25 }), 1000.0, 750, 1250),
            (json!({ "mean": 3, "range_ratio": 0.5 }), 3.0, 1, 5),
            (json!({ "p0": 10, "p50": 20, "p100": 100 }), 0.5 * 15.0 + 0.5 * 60.0, 10, 100),
            (json!({ "p50": 20, "p90": 120 }), 0.5 * 20.0 + 0.4 * 70.0 + 0.1 * 120.0, 20, 120),
        ] {
            let lengths = written(json.clone()).unwrap();
            let found = drawn(lengths);
            let found_mean = found.iter().map(|tokens| f64::from(*tokens)).sum::<f64>() / 2000.0;
            assert!((lengths.mean - mean).abs() < 1e-9, "{json}: {lengths:?}");
            // The standard error is below 0.6 of the range / √2000.
            assert!((found_mean - mean).abs() < 0.06 * f64::from(high - low), "{json}: {found_mean}");
            assert!(found[0] >= low && found[1999] <= high && found[0] - low <= (high - low) / 20, "{json}");
        }
        let normal = written(json!({ "mean": 500, "std_dev": 50 })).unwrap();
        assert_eq!((normal.min, normal.max), (1, 800));
        assert_eq!(
            drawn(written(json!({ "p50": 20, "p90": 120 })).unwrap())[900],
            20,
            "half of the lengths are the median or less"
        );
    }

    #[test]
    fn impossible_spreads_are_no_lengths() {
        for text in [
            r#"{"min": 5, "max": 4}"#,
            r#"{"min": 0, "max": 4}"#,
            r#"{"mean": 5, "range_ratio": 1.5}"#,
            r#"{"mean": 5}"#,
            "{}",
            r#"{"mean": 5, "std_dev": -1}"#,
            r#"{"p50": 9, "p90": 8}"#,
            r#"{"p101": 9}"#,
            r#"{"p50": 9.5}"#,
            r#"{"q": 9}"#,
            r#"{"min": 1, "max": 5, "mean": 6, "std_dev": 1}"#,
            r#"{"mean": 5, "std_dev": 1, "p50": 5}"#,
            "1.5",
            "\"x\"",
        ] {
            assert!(serde_json::from_str(text).ok().and_then(written).is_none(), "{text}");
        }
    }

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

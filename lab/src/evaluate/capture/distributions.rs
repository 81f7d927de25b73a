//! How gaps between tokens are distributed: those of a capture, those of its replay, and those of the knobs of a simpler simulator.

use ridgepoint::units::ns_to_ms;
use serde::Serialize;

use super::knob::Knob;
use crate::ingest::RequestTokens;
use crate::stats::{mean, quantile};

/// Shares at which quantiles are reported.
const SHARES: [f64; 15] = [0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 0.995, 0.999];
/// Gaps at which the shares of longer ones are reported.
const SURVIVAL_POINTS: usize = 33;
/// A gap is a long one above this many medians of the capture: another prompt was computed in its step.
const LONG_GAP_MEDIANS: f64 = 2.0;

/// The gaps of the requests whose tokens were captured, ms. A chunk of several tokens counts once for each of them, with its share
/// of the gap before it.
#[derive(Debug, Clone, Default)]
pub struct TokenGaps {
    pub(super) captured: Sample,
    pub(super) predicted: Sample,
}

/// Gaps of one source.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Sample {
    /// By token, of all requests together, ms.
    pub gaps_ms: Vec<f64>,
    /// The mean of each request that has any, ms.
    pub request_means_ms: Vec<f64>,
}

impl Sample {
    fn add(&mut self, gaps_ms: impl Iterator<Item = f64>) {
        let from = self.gaps_ms.len();
        self.gaps_ms.extend(gaps_ms);
        self.request_means_ms.extend(self.gaps_ms.get(from..).and_then(mean));
    }

    fn sort(&mut self) {
        self.gaps_ms.sort_unstable_by(f64::total_cmp);
        self.request_means_ms.sort_unstable_by(f64::total_cmp);
    }
}

impl TokenGaps {
    /// Adds a request: its captured chunks, and the gaps between its tokens in the replay.
    pub(super) fn add(&mut self, tokens: &RequestTokens, predicted_ms: impl Iterator<Item = f64>) {
        self.captured.add(captured_gaps_ms(tokens));
        self.predicted.add(predicted_ms);
    }
}

/// The gaps before a request's tokens, ms: a chunk of several tokens counts once for each of them, with its share of the gap.
pub fn captured_gaps_ms(tokens: &RequestTokens) -> impl Iterator<Item = f64> {
    tokens.gaps_ns().zip(tokens.chunks.iter().skip(1)).flat_map(|(gap_ns, chunk)| {
        let tokens = chunk.num_tokens.max(1);
        std::iter::repeat_n(ns_to_ms(gap_ns) / f64::from(tokens), tokens as usize)
    })
}

/// Distributions of gaps between tokens. Keys of its JSON are stable.
#[derive(Debug, Clone, Serialize)]
pub struct Distributions {
    /// Tokens of the capture with a gap before them.
    pub tokens: usize,
    /// Requests that they belong to.
    pub requests: usize,
    /// The simpler simulator's knobs that fit the captured gaps best.
    pub knob: Knob,
    /// Gaps above this are long, ms.
    pub threshold_ms: f64,
    /// Where the threshold comes from.
    pub threshold_from: String,
    /// Token by token, over all requests.
    pub gaps: GapFigures,
    /// The means of single requests, as client reports have them.
    pub request_means: GapFigures,
    /// Largest distance between the distribution of captured gaps and another.
    pub ks_distance: Sources<Option<f64>>,
    /// Gaps at the same shares: a quantile–quantile plot.
    pub quantiles: Vec<AtShare>,
    /// Shares of gaps that are longer than a gap.
    pub survival: Vec<LongerGaps>,
    /// Captured gaps, sorted.
    #[serde(skip)]
    pub captured: Sample,
    /// Those of the replay, sorted.
    #[serde(skip)]
    pub predicted: Sample,
}

/// The figures of each source that has gaps.
pub type GapFigures = Sources<Option<GapStatistics>>;

/// A figure of each source.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Sources<T> {
    /// The capture.
    pub captured: T,
    /// The replay.
    pub predicted: T,
    /// The knobs.
    pub knob: T,
}

/// Figures of a distribution of gaps.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct GapStatistics {
    /// Mean, ms.
    pub mean_ms: f64,
    /// Median, ms.
    pub p50_ms: f64,
    /// 90th percentile, ms.
    pub p90_ms: f64,
    /// 99th percentile, ms.
    pub p99_ms: f64,
    /// The longest, ms.
    pub max_ms: f64,
    /// Share of gaps above the threshold.
    pub share_above_threshold: f64,
}

/// Gaps that the same share does not exceed.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct AtShare {
    /// The share, 0 to 1.
    pub share: f64,
    /// The gaps, ms.
    #[serde(flatten)]
    pub gaps_ms: Sources<f64>,
}

/// Shares of gaps that are longer than one.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct LongerGaps {
    /// The gap, ms.
    pub gap_ms: f64,
    /// The shares, 0 to 1.
    #[serde(flatten)]
    pub shares: Sources<f64>,
}

impl Distributions {
    /// Compares the gaps; `None` where either side has none, or a capture's gaps are all 0.
    pub fn of(gaps: TokenGaps) -> Option<Self> {
        let TokenGaps { mut captured, mut predicted } = gaps;
        captured.sort();
        predicted.sort();
        let knob = Knob::fit(&captured.gaps_ms)?;
        let (measured, replayed) = (&captured.gaps_ms, &predicted.gaps_ms);
        let quantiles = SHARES.iter().filter_map(|share| {
            let gaps_ms = Sources {
                captured: quantile(measured, *share)?,
                predicted: quantile(replayed, *share)?,
                knob: knob.quantile_ms(*share),
            };
            Some(AtShare { share: *share, gaps_ms })
        });
        let ks_distance = Sources {
            captured: None,
            predicted: ks_distance(measured, |gap| share_below(replayed, gap), |gap| share_up_to(replayed, gap)),
            knob: ks_distance(measured, |gap| knob.share_below(gap), |gap| knob.share_up_to(gap)),
        };
        let quantiles: Vec<AtShare> = quantiles.collect();
        let threshold_ms = LONG_GAP_MEDIANS * quantile(measured, 0.5)?;
        if replayed.is_empty() {
            return None;
        }
        let (gaps, request_means) = statistics(&captured, &predicted, &knob, threshold_ms);
        Some(Distributions {
            tokens: measured.len(),
            requests: captured.request_means_ms.len(),
            knob,
            threshold_ms,
            threshold_from: format!("{LONG_GAP_MEDIANS} × the captured median"),
            gaps,
            request_means,
            ks_distance,
            survival: survival(measured, replayed, &knob),
            quantiles,
            captured,
            predicted,
        })
    }

    /// Takes another threshold of long gaps than twice the captured median.
    pub fn set_threshold_ms(&mut self, threshold_ms: f64) {
        self.threshold_ms = threshold_ms;
        "given".clone_into(&mut self.threshold_from);
        (self.gaps, self.request_means) = statistics(&self.captured, &self.predicted, &self.knob, threshold_ms);
    }
}

/// Figures of gaps, and of their means by request.
fn statistics(captured: &Sample, predicted: &Sample, knob: &Knob, threshold_ms: f64) -> (GapFigures, GapFigures) {
    let of_samples = |values: fn(&Sample) -> &[f64], knob| Sources {
        captured: GapStatistics::of(values(captured), threshold_ms),
        predicted: GapStatistics::of(values(predicted), threshold_ms),
        knob,
    };
    let of_knob = GapStatistics {
        mean_ms: knob.mean_ms,
        p50_ms: knob.quantile_ms(0.5),
        p90_ms: knob.quantile_ms(0.9),
        p99_ms: knob.quantile_ms(0.99),
        max_ms: knob.quantile_ms(1.0),
        share_above_threshold: 1.0 - knob.share_up_to(threshold_ms),
    };
    (of_samples(|of| &of.gaps_ms, Some(of_knob)), of_samples(|of| &of.request_means_ms, None))
}

impl GapStatistics {
    fn of(sorted: &[f64], threshold_ms: f64) -> Option<Self> {
        Some(GapStatistics {
            mean_ms: mean(sorted)?,
            p50_ms: quantile(sorted, 0.5)?,
            p90_ms: quantile(sorted, 0.9)?,
            p99_ms: quantile(sorted, 0.99)?,
            max_ms: *sorted.last()?,
            share_above_threshold: 1.0 - share_up_to(sorted, threshold_ms),
        })
    }
}

/// The share of sorted values below one.
fn share_below(sorted: &[f64], value: f64) -> f64 {
    sorted.partition_point(|of| *of < value) as f64 / sorted.len() as f64
}

/// The share of sorted values up to one.
fn share_up_to(sorted: &[f64], value: f64) -> f64 {
    sorted.partition_point(|of| *of <= value) as f64 / sorted.len() as f64
}

/// The Kolmogorov–Smirnov distance of sorted values to a distribution, given as its shares below and up to a value.
///
/// # Formula
/// `sup |F(x) − G(x)|`. F is constant between two of its values and G rises, so that the supremum is at a value or just below it.
fn ks_distance(sorted: &[f64], below: impl Fn(f64) -> f64, up_to: impl Fn(f64) -> f64) -> Option<f64> {
    let distance = |at: &f64| {
        let at_it = (share_up_to(sorted, *at) - up_to(*at)).abs();
        at_it.max((share_below(sorted, *at) - below(*at)).abs())
    };
    let mut distinct = sorted.to_vec();
    distinct.dedup();
    distinct.iter().map(distance).reduce(f64::max).filter(|distance| distance.is_finite())
}

/// Survival curves at gaps from the shortest to the longest, spaced evenly in their logarithm.
fn survival(captured: &[f64], predicted: &[f64], knob: &Knob) -> Vec<LongerGaps> {
    let positive = captured.iter().chain(predicted).copied().filter(|gap| *gap > 0.0);
    let (least, most) = positive.fold((f64::INFINITY, 0.0f64), |(least, most), gap| (least.min(gap), most.max(gap)));
    if most < least {
        return Vec::new();
    }
    let gaps_ms =
        (0..SURVIVAL_POINTS).map(|index| least * (most / least).powf(index as f64 / (SURVIVAL_POINTS - 1) as f64));
    let longer = |gap_ms: f64| LongerGaps {
        gap_ms,
        shares: Sources {
            captured: 1.0 - share_up_to(captured, gap_ms),
            predicted: 1.0 - share_up_to(predicted, gap_ms),
            knob: 1.0 - knob.share_up_to(gap_ms),
        },
    };
    gaps_ms.map(longer).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ingest::Chunk;

    const MS: u64 = 1_000_000;

    /// Tokens that come out at these times, in ms, with these numbers in a chunk.
    fn tokens(chunks: &[(u64, u32)]) -> RequestTokens {
        let chunk =
            |(ms, num_tokens): &(u64, u32)| Chunk { time_ns: ms * MS, num_tokens: *num_tokens, ..Chunk::default() };
        RequestTokens { request_id: "a".to_owned(), chunks: chunks.iter().map(chunk).collect() }
    }

    fn found(captured: &[&[(u64, u32)]], predicted: &[&[f64]]) -> Distributions {
        let mut gaps = TokenGaps::default();
        for (captured, predicted) in captured.iter().zip(predicted) {
            gaps.add(&tokens(captured), predicted.iter().copied());
        }
        Distributions::of(gaps).unwrap()
    }

    fn is(got: f64, want: f64) {
        assert!((got - want).abs() < 1e-9, "got {got}, want {want}");
    }

    #[test]
    fn a_chunk_counts_once_for_each_of_its_tokens() {
        // One gap of 30 ms with three tokens is three of 10 ms; then one of 50 ms.
        let of = found(&[&[(0, 2), (30, 3), (80, 1)]], &[&[10.0, 10.0, 10.0, 50.0]]);
        assert_eq!(of.captured.gaps_ms, [10.0, 10.0, 10.0, 50.0]);
        assert_eq!((of.tokens, of.requests, &of.predicted), (4, 1, &of.captured));
        is(of.gaps.captured.unwrap().mean_ms, 20.0);
        is(of.threshold_ms, 20.0);
        is(of.gaps.captured.unwrap().share_above_threshold, 0.25);
        is(of.ks_distance.predicted.unwrap(), 0.0);
    }

    #[test]
    fn means_of_requests_hide_what_gaps_show() {
        // Gaps of 10 and 30 ms in each request: every mean is 20 ms.
        let of = found(&[&[(0, 1), (10, 1), (40, 1)], &[(5, 1), (35, 1), (45, 1)]], &[&[20.0, 20.0], &[20.0, 20.0]]);
        let [gaps, means] = [of.gaps.captured.unwrap(), of.request_means.captured.unwrap()];
        assert_eq!((gaps.max_ms, means.max_ms, gaps.p50_ms, means.p50_ms), (30.0, 20.0, 20.0, 20.0));
        // Up to 20 ms: half of the captured gaps, all of the predicted ones.
        is(of.ks_distance.predicted.unwrap(), 0.5);
        assert_eq!(of.request_means.knob, None);
    }

    #[test]
    fn the_knob_cuts_both_tails() {
        // Mean 20, deviation 17.3: capped at 6, clamped at 6 and 34. Up to 10 ms, Φ(−10/6) = 0.0477904 of the draws, compared with 0.75.
        let of = found(&[&[(0, 1), (10, 1), (20, 1), (30, 1), (80, 1)]], &[&[12.0, 12.0, 12.0, 44.0]]);
        assert!(of.knob.is_capped && (of.knob.std_dev_ms - 6.0).abs() < 1e-9, "{:?}", of.knob);
        assert!((of.ks_distance.knob.unwrap() - (0.75 - 0.047_790_4)).abs() < 1e-6, "{:?}", of.ks_distance);
        is(of.gaps.knob.unwrap().max_ms, 34.0);
        // Up to 10 ms: three quarters of the captured gaps, and none of the predicted ones.
        is(of.ks_distance.predicted.unwrap(), 0.75);
        let last = of.survival.last().unwrap();
        assert_eq!((of.survival.len(), last.shares.knob), (SURVIVAL_POINTS, 0.0));
    }

    #[test]
    fn a_threshold_of_ones_own_moves_the_mass() {
        let mut of = found(&[&[(0, 1), (10, 1), (20, 1), (45, 1)]], &[&[10.0, 26.0, 26.0]]);
        is(of.gaps.captured.unwrap().share_above_threshold, 1.0 / 3.0);
        of.set_threshold_ms(25.0);
        is(of.gaps.captured.unwrap().share_above_threshold, 0.0);
        is(of.gaps.predicted.unwrap().share_above_threshold, 2.0 / 3.0);
        assert_eq!(of.threshold_from, "given");
        assert!(Distributions::of(TokenGaps::default()).is_none());
    }
}

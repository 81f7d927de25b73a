//! The requests of a result, to be sent again: its own where it lists them, else as many of the lengths that it has on average.
#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "lengths are rounded; a request has one token at least"
)]

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_pcg::Pcg64;
use ridgepoint::Result;
use ridgepoint_replay::workload::{FixedList, GeneratedLoad, ReplicaShare, RequestSource, Workload, WorkloadRequest};

use super::result::{BenchResult, ListedRequest};

/// How far lengths lie apart where a result has their sums alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LengthSpread {
    /// All are the mean, as of random prompts.
    Equal,
    /// Exponential up to five means, as conversations nearly are: a few are long.
    Exponential,
}

/// Means of equal lengths are within this share of a length that people ask for.
const ROUND: f64 = 0.005;
/// Lengths of conversations end at so many means: vLLM's benchmark takes prompts of at most 1,024 tokens from ShareGPT, whose mean is
/// 217, and requests of at most 2,048.
const LONGEST_IN_MEANS: f64 = 5.0;
/// People ask for multiples of these.
const ASKED: [f64; 2] = [128.0, 500.0];

/// The load of a result.
pub(super) struct BenchLoad {
    source: RequestSource,
    starts: GeneratedLoad,
    replicas: u32,
    /// What it is, in words.
    pub(super) in_words: String,
    /// The most tokens of a prompt with its output.
    pub(super) longest: u32,
}

impl BenchLoad {
    /// The load that one of `replicas` engines has of a result. `spread` is that of lengths which the result has sums of; without one it
    /// is found by the means.
    ///
    /// # Errors
    /// Lengths beyond those of a load.
    pub(super) fn new(result: &BenchResult, spread: Option<LengthSpread>, replicas: u32, seed: u64) -> Result<Self> {
        let number = result.completed;
        let [prompt, output] = [result.prompt_tokens, result.output_tokens].map(|sum| sum as f64 / number as f64);
        let lengths = format!("{prompt:.0} prompt and {output:.0} output tokens on average");
        let (mut listed, said) = if result.requests.is_empty() {
            let (spread, why) = spread.map_or_else(|| guessed(prompt, output), |spread| (spread, "as given"));
            let said = match spread {
                LengthSpread::Equal => format!("{lengths}, taken as all equal ({why})"),
                LengthSpread::Exponential => format!("{lengths}, taken as exponential ({why})"),
            };
            (drawn(number, [result.prompt_tokens, result.output_tokens], spread, seed), said)
        } else {
            (result.requests.clone(), format!("{lengths}, each as listed"))
        };
        let has_times = listed.iter().all(|of| of.sent_s.is_some());
        if has_times {
            listed.sort_by(|a, b| a.sent_s.unwrap_or(0.0).total_cmp(&b.sent_s.unwrap_or(0.0)));
        }
        let from_s = listed.first().and_then(|of| of.sent_s).unwrap_or(0.0);
        let request = |of: &ListedRequest| {
            let at_ns = of.sent_s.map_or(0.0, |at| (at - from_s) * 1e9);
            let tokens = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
            WorkloadRequest::new(at_ns as u64, tokens(of.prompt_tokens), tokens(of.output_tokens))
        };
        let requests: Vec<WorkloadRequest> = listed.iter().step_by(replicas as usize).map(request).collect();
        let longest = requests.iter().map(|of| of.num_prompt_tokens.saturating_add(of.num_output_tokens)).max();
        let mut starts = GeneratedLoad { burstiness: result.burstiness, ..GeneratedLoad::default() };
        let sent = match (result.max_concurrency, result.request_rate) {
            (Some(most), None) => {
                starts.concurrency = Some(most);
                format!("{most} in flight")
            }
            (None, None) if has_times => "sent at their own times".to_owned(),
            (most, Some(_)) if has_times => {
                let limit =
                    most.map_or_else(String::new, |most| format!(" (its limit of {most} in flight held some back)"));
                format!("sent at their own times{limit}")
            }
            (most, Some(rate)) => {
                starts.request_rate = Some(rate);
                let limit =
                    most.map_or_else(String::new, |most| format!("; its limit of {most} in flight is not replayed"));
                format!("{rate} a second{limit}")
            }
            (None, None) => {
                starts.concurrency = u32::try_from(number).ok();
                "all sent at once".to_owned()
            }
        };
        Ok(BenchLoad {
            source: FixedList::new(requests)?.into(),
            starts,
            replicas,
            in_words: format!("{number} requests of {said}; {sent}"),
            longest: longest.unwrap_or(0),
        })
    }

    /// The requests, to be sent.
    ///
    /// # Errors
    /// A rate or a number in flight beyond those of a load.
    pub(super) fn workload(&self, seed: u64) -> Result<Box<dyn Workload + Send>> {
        if self.starts.request_rate.is_none() && self.starts.concurrency.is_none() {
            return Ok(self.source.workload());
        }
        self.source.sent_as(&self.starts, ReplicaShare::new(self.replicas), seed)
    }
}

/// Random prompts have the lengths that were asked for, and outputs that end where they were told to: means are round.
fn guessed(prompt: f64, output: f64) -> (LengthSpread, &'static str) {
    let is_round = |mean: f64| {
        ASKED.iter().any(|unit| {
            (mean / unit).round() >= 1.0 && (mean / unit - (mean / unit).round()).abs() * unit < ROUND * mean
        })
    };
    if output.fract() == 0.0 || is_round(prompt) {
        return (LengthSpread::Equal, "means are those of fixed lengths");
    }
    (LengthSpread::Exponential, "means are not those of fixed lengths")
}

/// So many requests of these sums.
fn drawn(number: u64, sums: [u64; 2], spread: LengthSpread, seed: u64) -> Vec<ListedRequest> {
    let mut rng = Pcg64::seed_from_u64(seed);
    let mut lengths = |sum: u64| -> Vec<u64> {
        let mean = sum as f64 / number as f64;
        // The median of each n-th part of the probability; the cut and the medians fall short of the mean, which `scale` brings back.
        let within = 1.0 - (-LONGEST_IN_MEANS).exp();
        let quantile = |index: u64| -(1.0 - within * (index as f64 + 0.5) / number as f64).ln();
        let scale = match spread {
            LengthSpread::Equal => 1.0,
            LengthSpread::Exponential => number as f64 / (0..number).map(quantile).sum::<f64>(),
        };
        let exact = |index: u64| match spread {
            LengthSpread::Equal => mean,
            LengthSpread::Exponential => mean * scale * quantile(index),
        };
        // What rounding leaves goes on to the next one, so that the sum is kept.
        let (mut before, mut taken) = (0.0, 0.0);
        let mut all: Vec<u64> = (0..number)
            .map(|index| {
                before += exact(index);
                let tokens = f64::round(before - taken).max(1.0);
                taken += tokens;
                tokens as u64
            })
            .collect();
        all.shuffle(&mut rng);
        all
    };
    let [prompts, outputs] = sums.map(&mut lengths);
    let request = |(prompt_tokens, output_tokens)| ListedRequest { sent_s: None, prompt_tokens, output_tokens };
    prompts.into_iter().zip(outputs).map(request).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_kept_and_a_few_are_long() {
        let sums = |of: &[ListedRequest]| {
            (of.iter().map(|of| of.prompt_tokens).sum::<u64>(), of.iter().map(|of| of.output_tokens).sum::<u64>())
        };
        let varied = drawn(1000, [219_171, 200_752], LengthSpread::Exponential, 0);
        let (prompts, outputs) = sums(&varied);
        assert!(prompts.abs_diff(219_171) <= 1 && outputs.abs_diff(200_752) <= 1, "{prompts} {outputs}");
        // The longest is near five means, times what the cut has taken from the mean.
        let longest = varied.iter().map(|of| of.prompt_tokens).max().expect("some");
        assert!((1000..1200).contains(&longest), "{longest}");
        assert!(varied.iter().all(|of| of.prompt_tokens > 0 && of.output_tokens > 0));
        let equal = drawn(3, [301, 30], LengthSpread::Equal, 0);
        assert_eq!(sums(&equal), (301, 30));
        assert!(equal.iter().all(|of| (100..=101).contains(&of.prompt_tokens) && of.output_tokens == 10));
    }

    #[test]
    fn round_means_are_those_of_fixed_lengths() {
        let of = |prompt, output| guessed(prompt, output).0;
        // Random prompts of 2,000 and 32,000 tokens, the second with outputs that ended early; conversations.
        assert_eq!(of(1996.35, 100.0), LengthSpread::Equal);
        assert_eq!(of(31_999.0, 98.77), LengthSpread::Equal);
        assert_eq!(of(219.171, 200.752), LengthSpread::Exponential);
        assert_eq!(of(342.058, 281.412), LengthSpread::Exponential);
    }
}

//! How many of a request's drafts a step accepts (speculative decoding).

use ridgepoint::model::MAX_SPECULATIVE_TOKENS;
use serde::{Deserialize, Serialize};

use super::workload::seed::mixed;

/// Most drafts of a tree.
pub(crate) const MOST_TREE_TOKENS: u32 = 127;

/// Speculative decoding: each decode verifies drafts, and gets a token for every accepted one beside its own.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Speculation {
    /// For each position, the probability that its draft is accepted where those before it are.
    pub acceptance: Vec<f64>,
    /// Drafts of a tree that a decode verifies together; 0 where drafts are a chain, all of which are verified.
    #[serde(default, skip_serializing_if = "ridgepoint::units::is_zero")]
    pub num_tree_tokens: u32,
    /// Tokens behind the drafts that a running request has KV slots for, in which the draft works.
    #[serde(default, skip_serializing_if = "ridgepoint::units::is_zero")]
    pub num_lookahead_tokens: u32,
}

impl Speculation {
    /// Takes the same probability at all positions, so that a step has `length` tokens of a request on average: the sampled one and the
    /// accepted drafts. It is bounded by 1 and by one more than the drafts.
    ///
    /// # Formula
    /// `1 + p + p² + … + pᵏ = length`
    ///
    /// ```
    /// use ridgepoint_replay::Speculation;
    /// let speculation = Speculation::of_length(2, 1.75);
    /// // 1 + 0.5 + 0.25
    /// assert!((speculation.acceptance[1] - 0.5).abs() < 1e-9);
    /// ```
    pub fn of_length(num_speculative_tokens: u32, length: f64) -> Self {
        let drafts = num_speculative_tokens.min(MAX_SPECULATIVE_TOKENS) as usize;
        let at = |p: f64| Speculation { acceptance: vec![p; drafts], ..Speculation::default() };
        let (mut low, mut high) = (0.0, 1.0);
        if at(high).acceptance_length() <= length {
            return at(high);
        }
        for _ in 0..64 {
            let middle = 0.5 * (low + high);
            if at(middle).acceptance_length() < length { low = middle } else { high = middle }
        }
        at(0.5 * (low + high))
    }

    /// Takes the share of drafts that are accepted at each position, which does not increase.
    pub fn of_rates(rates: &[f64]) -> Self {
        let before = std::iter::once(1.0).chain(rates.iter().copied());
        let acceptance = rates.iter().zip(before).map(|(rate, before)| if before > 0.0 { rate / before } else { 0.0 });
        Speculation { acceptance: acceptance.collect(), ..Speculation::default() }
    }

    /// Number of drafts that a decode verifies.
    pub fn num_draft_tokens(&self) -> u32 {
        u32::try_from(self.acceptance.len()).unwrap_or(MAX_SPECULATIVE_TOKENS).max(self.num_tree_tokens)
    }

    /// Mean tokens that a verification brings, as vLLM logs them (`Mean acceptance length`): the sampled one and the accepted drafts.
    pub fn acceptance_length(&self) -> f64 {
        let mut rate = 1.0;
        self.acceptance.iter().fold(1.0, |length, probability| {
            rate *= probability;
            length + rate
        })
    }

    /// What is wrong with it.
    pub(super) fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if self.acceptance.is_empty() || self.acceptance.len() > MAX_SPECULATIVE_TOKENS as usize {
            problems.push(format!(
                "acceptance must have from 1 to {MAX_SPECULATIVE_TOKENS} probabilities, one for each draft"
            ));
        }
        if self.num_tree_tokens > MOST_TREE_TOKENS {
            problems.push(format!("num_tree_tokens = {} must be at most {MOST_TREE_TOKENS}", self.num_tree_tokens));
        }
        if let Some(outside) = self.acceptance.iter().find(|p| !(0.0..=1.0).contains(*p)) {
            problems.push(format!("acceptance = {outside} must be from 0 to 1"));
        }
        problems
    }

    /// Drafts of `drafts` that are accepted. The same token of the same request has the same answer in every replay.
    pub(super) fn accepted(&self, record: u32, token: u32, drafts: u32) -> u32 {
        let mut word = mixed((u64::from(record) << 32) | u64::from(token));
        let mut accepted = 0;
        for probability in self.acceptance.iter().take(drafts as usize) {
            word = mixed(word);
            // The upper 53 bits are a number from 0 to below 1.
            if (word >> 11) as f64 * (1.0 / (1u64 << 53) as f64) >= *probability {
                break;
            }
            accepted += 1;
        }
        accepted
    }
}

#[cfg(test)]
#[allow(clippy::float_cmp)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_those_of_a_log() {
        let speculation = Speculation::of_rates(&[0.8, 0.4, 0.4]);
        assert_eq!(speculation.acceptance, [0.8, 0.5, 1.0]);
        assert!((speculation.acceptance_length() - 2.6).abs() < 1e-12);
        assert_eq!(Speculation::of_rates(&[0.0, 0.0]).acceptance_length(), 1.0);
    }

    #[test]
    fn tokens_of_many_steps_have_the_mean_length() {
        for length in [1.0, 1.4, 2.5, 3.9, 4.0] {
            let speculation = Speculation::of_length(3, length);
            assert!((speculation.acceptance_length() - length).abs() < 1e-9, "{length}");
            let steps = 40_000u32;
            let tokens: u32 = (0..steps).map(|at| 1 + speculation.accepted(at % 300, at, 3)).sum();
            assert!((f64::from(tokens) / f64::from(steps) - length).abs() < 0.02, "{length}: {tokens}");
        }
        // Drafts that are cut off are not accepted.
        assert_eq!(Speculation::of_length(3, 4.0).accepted(7, 9, 2), 2);
    }

    #[test]
    fn lengths_beyond_the_drafts_and_probabilities_beyond_one_are_bounded_or_refused() {
        assert_eq!(Speculation::of_length(2, 9.0).acceptance, [1.0, 1.0]);
        assert!(Speculation { acceptance: vec![0.5, 1.2], ..Speculation::default() }.problems().len() == 1);
        assert!(Speculation::default().problems().len() == 1);
    }
}

//! The terms of a corrected step time: times of operator groups, scaled by a factor each, and counts, priced in µs each.
//! Uses `physics::OperatorGroup`.
#![expect(clippy::indexing_slicing, reason = "there is a value for every term")]

use std::fmt;

use crate::physics::{Operator, OperatorGroup, OperatorKind};

/// Largest price, µs per count: no count of a step takes a second.
const MAX_PRICE_US: f64 = 1e6;
/// Largest standard deviation of a coefficient, in those of its prior. Data can only lower it.
const MAX_PRIOR_SDS: f64 = 100.0;

/// Number of [`Term`]s.
pub const NUM_TERMS: usize = 17;

/// A term of a step's time.
///
/// `time = Σ factor · group time + Σ price · count`. Factors of 1 and prices of 0 leave the time of the tables unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Term {
    /// Time of QKV, output, MLP, router and LM head projections.
    Projections,
    /// Time of the attention of prefill chunks.
    AttentionPrefill,
    /// Time of the attention of decodes.
    AttentionDecode,
    /// Time of routed experts.
    Experts,
    /// Time of collectives.
    Communication,
    /// Time of norms, rotary embedding, activation, residual, KV write, embedding.
    SmallKernels,
    /// Time of the sampler's kernels.
    Sampling,
    /// [`Term::Projections`] of steps with prefill chunks: many rows are bound by compute, few by memory.
    ProjectionsWithChunks,
    /// [`Term::Experts`] of steps with prefill chunks.
    ExpertsWithChunks,
    /// [`Term::SmallKernels`] of steps with prefill chunks.
    SmallKernelsWithChunks,
    /// Steps: 1.
    Steps,
    /// Layers.
    Layers,
    /// Requests in the step.
    Requests,
    /// Tokens of prefill chunks. What a decode costs by itself is a request's price.
    PromptTokens,
    /// Requests with a prefill chunk.
    PrefillRequests,
    /// Layers, where attention is launched between piecewise graphs.
    PiecewiseLayers,
    /// Requests that the sampler applies penalties to: the host copies their tokens to the GPU.
    PenalisedRequests,
}

/// Name, name among a step's operators, unit, and standard deviation of the prior of each term.
const TABLE: [(Term, &str, &str, &str, f64); NUM_TERMS] = [
    (Term::Projections, "projections", "projections", "factor", 0.05),
    (Term::AttentionPrefill, "attention_prefill", "attention_prefill", "factor", 0.2),
    (Term::AttentionDecode, "attention_decode", "attention_decode", "factor", 0.1),
    (Term::Experts, "experts", "experts", "factor", 0.1),
    (Term::Communication, "communication", "communication", "factor", 0.1),
    (Term::SmallKernels, "small_kernels", "small_kernels", "factor", 0.2),
    (Term::Sampling, "sampling", "sampling", "factor", 0.2),
    (Term::ProjectionsWithChunks, "projections_with_chunks", "projections", "factor", 0.1),
    (Term::ExpertsWithChunks, "experts_with_chunks", "experts", "factor", 0.1),
    (Term::SmallKernelsWithChunks, "small_kernels_with_chunks", "small_kernels", "factor", 0.2),
    (Term::Steps, "step_us", "per_step", "µs per step", 300.0),
    (Term::Layers, "layer_us", "per_layer", "µs per layer", 5.0),
    (Term::Requests, "request_us", "per_request", "µs per request", 10.0),
    (Term::PromptTokens, "prompt_token_us", "per_prompt_token", "µs per prompt token in a chunk", 1.0),
    (Term::PrefillRequests, "prefill_request_us", "per_prefill_request", "µs per request with a prompt chunk", 200.0),
    (Term::PiecewiseLayers, "piecewise_layer_us", "per_piecewise_layer", "µs per layer between piecewise graphs", 10.0),
    (Term::PenalisedRequests, "penalised_request_us", "per_penalised_request", "µs per penalised request", 30.0),
];

impl Term {
    /// All terms, in the order of coefficients.
    pub const ALL: [Term; NUM_TERMS] = {
        let mut all = [Term::Projections; NUM_TERMS];
        let mut i = 0;
        while i < NUM_TERMS {
            all[i] = TABLE[i].0;
            i += 1;
        }
        all
    };

    /// Position among coefficients.
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The term of an operator group's time: the first terms are those of the groups, in their order.
    pub const fn of_group(group: OperatorGroup) -> Term {
        Term::ALL[group as usize]
    }

    /// The term of an operator's time in a step, with prefill chunks or of decodes alone. The LM head has few rows in both.
    pub const fn of_operator(operator: &Operator, has_chunks: bool) -> Term {
        let of_sampled = matches!(operator.id.kind, OperatorKind::LmHead | OperatorKind::LmHeadQuant);
        match (operator.group, has_chunks && !of_sampled) {
            (OperatorGroup::Projections, true) => Term::ProjectionsWithChunks,
            (OperatorGroup::Experts, true) => Term::ExpertsWithChunks,
            (OperatorGroup::SmallKernels, true) => Term::SmallKernelsWithChunks,
            (group, _) => Term::of_group(group),
        }
    }

    /// The term of the same operators in steps with prefill chunks, where that is another.
    pub fn with_chunks(self) -> Option<Term> {
        match self {
            Term::Projections => Some(Term::ProjectionsWithChunks),
            Term::Experts => Some(Term::ExpertsWithChunks),
            Term::SmallKernels => Some(Term::SmallKernelsWithChunks),
            _ => None,
        }
    }

    /// Returns whether its coefficient is a factor on a time, and not a price in µs per count.
    pub const fn is_factor(self) -> bool {
        (self as usize) < Term::Steps as usize
    }

    /// Name of the coefficient in files and reports; prices carry their unit.
    pub fn name(self) -> &'static str {
        TABLE[self.index()].1
    }

    /// Unit of the coefficient, in words.
    pub fn unit(self) -> &'static str {
        TABLE[self.index()].3
    }

    /// Name of its time among a step's operators; of prices alone, as factors scale operators that have names.
    pub fn operator_name(self) -> &'static str {
        TABLE[self.index()].2
    }

    /// The coefficient that changes nothing: 1 for a factor, 0 for a price.
    pub const fn neutral(self) -> f64 {
        if self.is_factor() { 1.0 } else { 0.0 }
    }

    /// Standard deviation of the prior for models without measured steps. Its mean is [`Term::neutral`].
    pub fn prior_sd(self) -> f64 {
        TABLE[self.index()].4
    }

    /// Greatest standard deviation that a correction may have of the coefficient.
    pub fn max_sd(self) -> f64 {
        MAX_PRIOR_SDS * self.prior_sd()
    }

    /// Least and greatest coefficient that a fit may give: a factor within [0.3, 3], a price from 0 to a second.
    pub const fn bounds(self) -> (f64, f64) {
        if self.is_factor() { (0.3, 3.0) } else { (0.0, MAX_PRICE_US) }
    }
}

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_has_the_term_of_its_name() {
        for (group, name) in [
            (OperatorGroup::Projections, "projections"),
            (OperatorGroup::AttentionPrefill, "attention_prefill"),
            (OperatorGroup::AttentionDecode, "attention_decode"),
            (OperatorGroup::Experts, "experts"),
            (OperatorGroup::Communication, "communication"),
            (OperatorGroup::SmallKernels, "small_kernels"),
            (OperatorGroup::Sampling, "sampling"),
        ] {
            let term = Term::of_group(group);
            assert_eq!(term.name(), name);
            if let Some(chunks) = term.with_chunks() {
                assert_eq!((chunks.name(), chunks.is_factor()), (format!("{name}_with_chunks").as_str(), true));
            }
        }
    }

    #[test]
    fn terms_stand_where_their_index_says() {
        for (index, term) in Term::ALL.into_iter().enumerate() {
            assert_eq!(term.index(), index, "{term}");
            let (least, greatest) = term.bounds();
            assert!(least <= term.neutral() && term.neutral() <= greatest, "{term}");
        }
        assert!(Term::SmallKernels.is_factor() && !Term::Steps.is_factor());
    }
}

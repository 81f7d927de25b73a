//! The terms of a corrected step time: times of operator groups, scaled by a factor each, and counts, priced in µs each.
//! Uses `physics::OperatorGroup`.

use std::fmt;

use crate::physics::OperatorGroup;

/// Number of [`Term`]s.
pub const NUM_TERMS: usize = 14;

/// A term of a step's time.
///
/// `time = Σ factor · group time + Σ price · count`. A factor of 1 and a price of 0 are what the tables say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Term {
    /// Time of QKV, output, MLP, router and LM head projections.
    Projections,
    /// Time of the attention of prompt chunks.
    AttentionPrefill,
    /// Time of the attention of decodes.
    AttentionDecode,
    /// Time of routed experts.
    Experts,
    /// Time of collectives.
    Communication,
    /// Time of norms, rotary embedding, activation, residual, KV write, embedding.
    SmallKernels,
    /// Steps: 1.
    Steps,
    /// Layers.
    Layers,
    /// Requests in the step.
    Requests,
    /// Scheduled tokens.
    Tokens,
    /// Requests with a prompt chunk.
    PrefillRequests,
    /// Layers, where attention is launched between graphs: a step with a prompt chunk that a captured size holds.
    PiecewiseLayers,
    /// Million logits that the sampler sorts, because of `top_p` or `top_k`: sampled tokens × vocabulary.
    SortedMegalogits,
    /// Requests that the sampler applies penalties to.
    PenalisedRequests,
}

/// What a term's coefficient is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A factor on a time.
    Factor,
    /// µs per count.
    Price,
}

/// How a term is known and what is believed of it before any measurement.
#[derive(Debug, Clone, Copy)]
struct About {
    term: Term,
    name: &'static str,
    unit: &'static str,
    prior_sd: f64,
}

const fn about(term: Term, name: &'static str, unit: &'static str, prior_sd: f64) -> About {
    About { term, name, unit, prior_sd }
}

const ABOUT: [About; NUM_TERMS] = [
    about(Term::Projections, "projections", "factor", 0.05),
    about(Term::AttentionPrefill, "attention_prefill", "factor", 0.2),
    about(Term::AttentionDecode, "attention_decode", "factor", 0.1),
    about(Term::Experts, "experts", "factor", 0.1),
    about(Term::Communication, "communication", "factor", 0.1),
    about(Term::SmallKernels, "small_kernels", "factor", 0.2),
    about(Term::Steps, "step_us", "µs per step", 300.0),
    about(Term::Layers, "layer_us", "µs per layer", 5.0),
    about(Term::Requests, "request_us", "µs per request", 10.0),
    about(Term::Tokens, "token_us", "µs per scheduled token", 1.0),
    about(Term::PrefillRequests, "prefill_request_us", "µs per request with a prompt chunk", 200.0),
    about(Term::PiecewiseLayers, "piecewise_layer_us", "µs per layer between piecewise graphs", 10.0),
    about(Term::SortedMegalogits, "sorted_megalogit_us", "µs per million sorted logits", 300.0),
    about(Term::PenalisedRequests, "penalised_request_us", "µs per penalised request", 30.0),
];

impl Term {
    /// All terms, in the order of coefficients.
    pub const ALL: [Term; NUM_TERMS] = {
        let mut all = [Term::Projections; NUM_TERMS];
        let mut i = 0;
        while i < NUM_TERMS {
            all[i] = ABOUT[i].term;
            i += 1;
        }
        all
    };

    /// Position among coefficients.
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The term of an operator group's time.
    pub const fn of_group(group: OperatorGroup) -> Term {
        match group {
            OperatorGroup::Projections => Term::Projections,
            OperatorGroup::AttentionPrefill => Term::AttentionPrefill,
            OperatorGroup::AttentionDecode => Term::AttentionDecode,
            OperatorGroup::Experts => Term::Experts,
            OperatorGroup::Communication => Term::Communication,
            OperatorGroup::SmallKernels => Term::SmallKernels,
        }
    }

    /// What its coefficient is.
    pub const fn kind(self) -> Kind {
        if (self as usize) < Term::Steps as usize { Kind::Factor } else { Kind::Price }
    }

    /// Name of the coefficient in files and reports; prices carry their unit.
    pub fn name(self) -> &'static str {
        ABOUT[self.index()].name
    }

    /// Unit of the coefficient, in words.
    pub fn unit(self) -> &'static str {
        ABOUT[self.index()].unit
    }

    /// Name of its time among a step's operators; of prices alone, as factors scale operators that have names.
    pub fn operator_name(self) -> &'static str {
        match self {
            Term::Steps => "per_step",
            Term::Layers => "per_layer",
            Term::Requests => "per_request",
            Term::Tokens => "per_token",
            Term::PrefillRequests => "per_prefill_request",
            Term::PiecewiseLayers => "per_piecewise_layer",
            Term::SortedMegalogits => "top_p_sort",
            Term::PenalisedRequests => "penalties",
            _ => self.name(),
        }
    }

    /// The coefficient that changes nothing: 1 for a factor, 0 for a price.
    pub const fn neutral(self) -> f64 {
        match self.kind() {
            Kind::Factor => 1.0,
            Kind::Price => 0.0,
        }
    }

    /// Standard deviation of the prior around [`Term::neutral`], for a model that no measurement of a whole step was seen of.
    pub fn prior_sd(self) -> f64 {
        ABOUT[self.index()].prior_sd
    }

    /// Least and greatest coefficient that a fit may give: a factor within [0.3, 3], a price never below 0.
    pub const fn bounds(self) -> (f64, f64) {
        match self.kind() {
            Kind::Factor => (0.3, 3.0),
            Kind::Price => (0.0, f64::INFINITY),
        }
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
    fn terms_stand_where_their_index_says() {
        for (index, term) in Term::ALL.into_iter().enumerate() {
            assert_eq!(term.index(), index, "{term}");
            let (least, greatest) = term.bounds();
            assert!(least <= term.neutral() && term.neutral() <= greatest, "{term}");
        }
        assert_eq!((Term::SmallKernels.kind(), Term::Steps.kind()), (Kind::Factor, Kind::Price));
    }
}

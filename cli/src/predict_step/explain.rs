//! One sentence per slow operator: what limits it, and what would speed it up.

use ridgepoint::internals::correction::{Kind, Term};
use ridgepoint::internals::efficiency::Bound;
use ridgepoint::internals::units::duration;
use ridgepoint::physics::OperatorGroup;
use ridgepoint::{OperatorEstimate, StepEstimate};

use crate::text::{percent, plural, quantity};

/// Operators that are explained.
const LONGEST: usize = 3;

/// Sentences on the slowest operators, the slowest first.
pub fn longest(step: &StepEstimate) -> Vec<String> {
    let mut ranked: Vec<&OperatorEstimate> = step.operators.iter().collect();
    ranked.sort_by(|a, b| b.time_us.total_cmp(&a.time_us));
    ranked.into_iter().take(LONGEST).filter_map(sentence).collect()
}

fn sentence(of: &OperatorEstimate) -> Option<String> {
    let share = percent(of.share);
    let Some(group) = of.group else {
        let time = duration(of.time_us);
        return Some(format!(
            "{} ({share} of the step, {time}, learned from real engines): {}.",
            of.name,
            learned(of)?
        ));
    };
    let calls = of.count.max(1) as f64;
    let efficiency = percent(of.efficiency);
    let why = match of.bound {
        Bound::Compute => {
            format!(
                "compute-bound, each call does {} at {efficiency} of the roofline",
                quantity(of.flops / calls, "FLOP")
            )
        }
        Bound::Memory => {
            format!("memory-bound, each call moves {} at {efficiency} of the roofline", quantity(of.bytes / calls, "B"))
        }
        Bound::Network => {
            format!("network-bound, each call sends {} at {efficiency} of the link", quantity(of.bytes / calls, "B"))
        }
        Bound::Latency => {
            format!("latency-bound, the roofline of {} is only {efficiency} of the call", duration(of.bound_us / calls))
        }
    };
    let (number, time) = (plural(of.count, "call"), duration(of.time_us / calls));
    Some(format!("{} ({share} of the step, {number} of {time}): {why}; {}.", of.name, way_out(group, of.bound)))
}

/// What changes the time of an overhead that a correction adds.
fn learned(of: &OperatorEstimate) -> Option<&'static str> {
    let is_it = |term: &Term| term.kind() == Kind::Price && term.operator_name() == of.name;
    Some(match Term::ALL.into_iter().find(is_it)? {
        Term::Steps => "the engine's work per step besides its kernels; more requests per step spread it",
        Term::Layers => "gaps between a layer's kernels, whatever the batch holds; more requests per step spread it",
        Term::Requests => {
            "preparing inputs, sampling and returning a token for each request; a smaller max_num_seqs shortens the step, \
             but not the sum over steps"
        }
        Term::Tokens => "grows with the scheduled tokens; a smaller max_num_batched_tokens shortens the step",
        Term::PrefillRequests => {
            "the cost of each prefill chunk besides its tokens; larger chunks and prefix cache hits make fewer"
        }
        Term::PiecewiseLayers => {
            "with a prefill chunk in the batch the host launches attention layer by layer; decodes alone replay one CUDA graph \
             and do not pay it"
        }
        Term::SortedMegalogits => {
            "top_p or top_k make the sampler sort the vocabulary for each sampled token; requests without them avoid it, or \
             --generation-config vllm where the model's own defaults set them"
        }
        Term::PenalisedRequests => {
            "penalties make the sampler scan the vocabulary and the tokens so far for each request; requests without them \
             avoid it, or --generation-config vllm where the model's own defaults set them"
        }
        _ => return None,
    })
}

fn way_out(group: OperatorGroup, bound: Bound) -> &'static str {
    match (group, bound) {
        (OperatorGroup::Projections, Bound::Memory) => {
            "weights are read once however many tokens there are, so more tokens cost little; smaller weights (quantisation, a \
             larger tensor_parallel_size) shorten it"
        }
        (OperatorGroup::Projections, Bound::Compute) => {
            "time grows in proportion to the tokens; a smaller chunk, a larger tensor_parallel_size or 8-bit weights and \
             activations shorten it"
        }
        (OperatorGroup::AttentionDecode, Bound::Memory) => {
            "time grows with the KV tokens of all requests; fewer or shorter requests, a larger tensor_parallel_size or \
             kv_cache_dtype fp8 shorten it"
        }
        (OperatorGroup::AttentionDecode, _) => {
            "with short contexts it waits on launches and on one wave of requests; longer contexts cost little at first"
        }
        (OperatorGroup::AttentionPrefill, _) => {
            "time grows with the chunk times the context it sees; a smaller max_num_batched_tokens shortens the step, but not \
             the prompt"
        }
        (OperatorGroup::Experts, Bound::Memory) => {
            "the weights of every expert that some token visits are read, so more tokens cost little once all experts are \
             visited; more GPUs for the experts shorten it"
        }
        (OperatorGroup::Experts, _) => {
            "time grows with the token-expert pairs; more GPUs for the experts or fewer tokens shorten it"
        }
        (OperatorGroup::Communication, _) => {
            "the message grows with the tokens of the step; a smaller tensor_parallel_size avoids it"
        }
        (_, Bound::Latency) => "more tokens per step spread its fixed cost",
        _ => "time grows with the tokens of the step",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_learned_time_has_a_sentence() {
        for term in Term::ALL.into_iter().filter(|term| term.kind() == Kind::Price) {
            let step = OperatorEstimate {
                name: term.operator_name(),
                group: None,
                count: 1,
                flops: 0.0,
                bytes: 0.0,
                bound: Bound::Latency,
                time_us: 1500.0,
                bound_us: 0.0,
                efficiency: 0.0,
                share: 0.25,
                provenance: ridgepoint::internals::efficiency::Provenance::Learned,
            };
            let said = sentence(&step).unwrap();
            assert!(
                said.starts_with(&format!("{} (25.0 % of the step, 1.500 ms, learned", term.operator_name())),
                "{said}"
            );
            assert_eq!(said.contains("--generation-config vllm"), term >= Term::SortedMegalogits, "{said}");
        }
    }
}

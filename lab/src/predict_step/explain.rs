//! One sentence per slow operator: its limit, and a way to speed it up.

use ridgepoint::correction::Term;
use ridgepoint::units::duration;
use ridgepoint::{Bound, OperatorEstimate, OperatorGroup as Group, StepEstimate};

use crate::words::{percent, plural, quantity};

/// Operators that are explained.
const LONGEST: usize = 3;

/// Sentences on the slowest operators, the slowest first.
pub fn longest(step: &StepEstimate) -> Vec<String> {
    let mut ranked: Vec<&OperatorEstimate> = step.operators.iter().collect();
    ranked.sort_by(|a, b| b.time_us.total_cmp(&a.time_us));
    ranked.into_iter().take(LONGEST).filter_map(sentence).collect()
}

/// Calls that take longer do not wait on launches, µs: the launches of a call with several kernels take less.
const LONGEST_LAUNCHES_US: f64 = 20.0;

fn sentence(of: &OperatorEstimate) -> Option<String> {
    let (name, share) = (of.name, percent(of.share));
    let Some(group) = of.group else {
        let (time, why) = (duration(of.time_us), learned(of)?);
        return Some(format!("{name} ({share} of the step, {time}, learned from real engines): {why}."));
    };
    let calls = of.count.max(1) as f64;
    let (number, time) = (plural(of.count, "call"), duration(of.time_us / calls));
    let (bound, efficiency) = (of.bound, percent(of.efficiency));
    let work = match of.bound {
        Bound::Compute | Bound::Power => {
            format!("does {} at {efficiency} of the roofline", quantity(of.flops / calls, "FLOP"))
        }
        Bound::Memory => format!("moves {} at {efficiency} of the roofline", quantity(of.bytes / calls, "B")),
        Bound::Network => format!("sends {} at {efficiency} of the link", quantity(of.bytes / calls, "B")),
        Bound::Latency => format!("has a roofline of {}, {efficiency} of its time", duration(of.bound_us / calls)),
    };
    let is_slow_kernel = of.bound == Bound::Latency && of.time_us / calls > LONGEST_LAUNCHES_US;
    let kind = match is_slow_kernel {
        true => format!("inefficient kernel ({efficiency} of the roofline)"),
        false => format!("{bound}-bound"),
    };
    let is_recurrence = ["state_update", "chunk_scan"].iter().any(|name| of.name.starts_with(name));
    let way_out = match of.name {
        _ if is_recurrence => RECURRENCE,
        "host_weights" => HOST_WEIGHTS,
        _ => way_out(group, of.bound),
    };
    Some(format!("{name} ({share} of the step, {number} of {time}): {kind}, each call {work}; {way_out}."))
}

/// A way to change the time of an overhead that a correction adds.
fn learned(of: &OperatorEstimate) -> Option<&'static str> {
    let is_it = |term: &Term| !term.is_factor() && term.operator_name() == of.name;
    Some(match Term::ALL.into_iter().find(is_it)? {
        Term::Steps => "the engine's work per step besides its kernels; more requests per step spread it",
        Term::Layers => "gaps between the kernels of a layer; more requests per step spread it",
        Term::Requests => "inputs, sampling and output of each request; a smaller max_num_seqs shortens the step only",
        Term::PromptTokens => "time grows with the prompt tokens; a smaller max_num_batched_tokens shortens the step",
        Term::PrefillRequests => "work per prefill chunk; larger chunks and prefix cache hits make fewer",
        Term::PiecewiseLayers => "the host launches attention layer by layer; decodes alone replay one CUDA graph",
        Term::PenalisedRequests => {
            "tokens are copied to the GPU for penalties; --generation-config vllm drops the model's defaults"
        }
        _ => return None,
    })
}

/// On weights that are read from the host.
const HOST_WEIGHTS: &str =
    "weights on the host cross the bus in every step; a smaller cpu_offload_gb or more GPUs shorten it";

/// On the recurrence of layers with a state.
const RECURRENCE: &str = "time grows with requests and scheduled tokens, not with contexts; more GPUs shorten it";

fn way_out(group: Group, bound: Bound) -> &'static str {
    match (group, bound) {
        (Group::Projections, Bound::Memory) => "weights are read once a step; quantisation or more GPUs shorten it",
        (Group::Projections, Bound::Compute) => "time grows with the tokens; 8-bit formats or more GPUs shorten it",
        (_, Bound::Power) => {
            "a busy GPU lowers its clock to stay within its power; 8-bit formats or more GPUs shorten it"
        }
        (Group::AttentionDecode, Bound::Memory) => "time grows with KV tokens; kv_cache_dtype fp8 or more GPUs help",
        (Group::AttentionDecode, _) => {
            "it is far from its roofline: short contexts wait on launches, longer ones take time with their KV tokens"
        }
        (Group::AttentionPrefill, _) => "time grows with chunk times context; max_num_batched_tokens limits it",
        (Group::Experts, Bound::Memory) => "each visited expert's weights are read once; more GPUs shorten it",
        (Group::Experts, _) => "time grows with the token-expert pairs; more GPUs for the experts shorten it",
        (Group::Communication, _) => "time grows with the tokens; a smaller tensor_parallel_size avoids it",
        (Group::Sampling, _) => {
            "time grows with the sampled tokens; --generation-config vllm drops top_p, top_k, penalties"
        }
        (_, Bound::Latency) => "more tokens per step spread its fixed cost",
        _ => "time grows with the tokens of the step",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_calls_near_the_launch_floor_are_latency_bound() {
        let of = |time_us| {
            let bound_us = 0.19 * time_us;
            let work = OperatorEstimate {
                name: "experts",
                kind: None,
                group: Some(Group::Experts),
                count: 10,
                flops: 1e12,
                bytes: 1e9,
                bound: Bound::Latency,
                time_us,
                bound_us,
                efficiency: 0.19,
                share: 0.5,
                provenance: ridgepoint::Provenance::Interpolated,
            };
            sentence(&work).unwrap()
        };
        // Calls of 5 µs, and of 1,830 µs.
        assert!(of(50.0).contains("latency-bound"), "{}", of(50.0));
        assert!(of(18_300.0).contains("inefficient kernel (19.0 % of the roofline)"), "{}", of(18_300.0));
    }

    #[test]
    fn every_learned_time_has_a_sentence() {
        for term in Term::ALL.into_iter().filter(|term| !term.is_factor()) {
            let step = OperatorEstimate {
                name: term.operator_name(),
                kind: None,
                group: None,
                count: 1,
                flops: 0.0,
                bytes: 0.0,
                bound: Bound::Latency,
                time_us: 1500.0,
                bound_us: 0.0,
                efficiency: 0.0,
                share: 0.25,
                provenance: ridgepoint::Provenance::Learned,
            };
            let said = sentence(&step).unwrap();
            assert!(
                said.starts_with(&format!("{} (25.0 % of the step, 1.500 ms, learned", term.operator_name())),
                "{said}"
            );
            assert_eq!(said.contains("--generation-config vllm"), term == Term::PenalisedRequests, "{said}");
        }
    }
}

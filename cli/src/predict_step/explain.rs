//! One sentence per slow operator: what limits it, and what would speed it up.

use ridgepoint::internals::correction::{Kind, Term};
use ridgepoint::internals::efficiency::Bound;
use ridgepoint::internals::units::{duration, time_us};
use ridgepoint::physics::{BatchShape, Experts, Kernel, Operator, StepPlan};
use ridgepoint::{DType, Hardware, OperatorEstimate, StepEstimate};

use crate::text::{count, percent, plural, quantity};

/// Operators that are explained.
const LONGEST: usize = 3;

/// Sentences on the slowest operators, the slowest first.
pub fn longest(step: &StepEstimate, plan: &StepPlan, batch: &BatchShape, hardware: &Hardware) -> Vec<String> {
    let mut work = Vec::new();
    plan.operators(batch, &mut work);
    let mut ranked: Vec<&OperatorEstimate> = step.operators.iter().collect();
    ranked.sort_by(|a, b| b.time_us.total_cmp(&a.time_us));
    ranked
        .into_iter()
        .take(LONGEST)
        .filter_map(|estimate| match work.iter().find(|operator| operator.name == estimate.name) {
            Some(operator) => Some(sentence(estimate, operator, hardware)),
            None => learned(estimate),
        })
        .collect()
}

fn sentence(estimate: &OperatorEstimate, operator: &Operator, hardware: &Hardware) -> String {
    let calls = plural(estimate.count, "call");
    format!(
        "{} ({} of the step, {calls} of {}{}): {}; {}.",
        estimate.name,
        percent(estimate.share),
        duration(estimate.time_us / estimate.count.max(1) as f64),
        shape(&operator.kernel),
        why(estimate, operator),
        way_out(estimate, operator, hardware)
    )
}

/// The sentence on a term that a correction adds to the operators.
fn learned(estimate: &OperatorEstimate) -> Option<String> {
    let is_it = |term: &Term| term.kind() == Kind::Price && term.operator_name() == estimate.name;
    let why = match Term::ALL.into_iter().find(is_it)? {
        Term::Steps => "what the engine does once per step besides its kernels; more requests per step spread it",
        Term::Layers => "gaps between a layer's kernels, whatever the batch holds; more requests per step spread it",
        Term::Requests => {
            "what each request costs besides its tokens: preparing its inputs, sampling and returning a token; a smaller \
             max_num_seqs shortens the step, but not the sum over steps"
        }
        Term::Tokens => "grows with the scheduled tokens; a smaller max_num_batched_tokens shortens the step",
        Term::PrefillRequests => {
            "what each prefill chunk costs besides its tokens; larger chunks and hits in the prefix cache make fewer of them"
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
    };
    Some(format!(
        "{} ({} of the step, {}, learned from real engines): {why}.",
        estimate.name,
        percent(estimate.share),
        duration(estimate.time_us)
    ))
}

fn shape(kernel: &Kernel) -> String {
    match kernel {
        Kernel::Gemm { m, n, k, weights } => format!(", m {m} × n {n} × k {k} with {weights} weights"),
        Kernel::AttentionPrefill { num_requests, query_tokens, .. } => {
            format!(", {} new tokens in {} chunks", count(*query_tokens), count(*num_requests))
        }
        Kernel::AttentionDecode { num_requests, kv_tokens, .. } => {
            format!(", {} requests with {} KV tokens", count(*num_requests), count(*kv_tokens))
        }
        Kernel::Moe { num_tokens, experts } => {
            let Experts { local_experts, weights, .. } = experts;
            format!(", {} tokens over {local_experts} local experts in {weights}", count(*num_tokens))
        }
        _ => String::new(),
    }
}

fn why(estimate: &OperatorEstimate, operator: &Operator) -> String {
    let efficiency = percent(estimate.efficiency);
    match estimate.bound {
        Bound::Compute => format!(
            "compute-bound, each call does {} at {efficiency} of the roofline",
            quantity(operator.flops, "FLOP")
        ),
        Bound::Memory => {
            format!("memory-bound, each call moves {} at {efficiency} of the roofline", quantity(operator.bytes, "B"))
        }
        Bound::Network => {
            format!("network-bound, each call sends {} at {efficiency} of the link", quantity(operator.bytes, "B"))
        }
        Bound::Latency => format!(
            "latency-bound, the roofline of {} is only {efficiency} of the call",
            duration(estimate.bound_us / estimate.count.max(1) as f64)
        ),
    }
}

fn way_out(estimate: &OperatorEstimate, operator: &Operator, hardware: &Hardware) -> String {
    match (estimate.bound, &operator.kernel) {
        (Bound::Memory, Kernel::Gemm { n, k, weights, .. }) => {
            let weight_bytes = (*n as f64) * (*k as f64) * weights.bytes_per_weight();
            let share = percent(weight_bytes / operator.bytes);
            let ridge = ridge_tokens(operator, weight_bytes, hardware);
            let until = ridge.map_or_else(String::new, |m| format!(" up to m ≈ {}", count(m)));
            format!(
                "{share} of the bytes are weights, read once whatever m is, so more tokens cost little{until}; smaller \
                 weights (quantisation, a larger tensor_parallel_size) shorten it"
            )
        }
        (Bound::Compute, Kernel::Gemm { .. }) => {
            "time grows in proportion to the tokens; a smaller chunk, a larger tensor_parallel_size or 8-bit weights \
             and activations shorten it"
                .to_owned()
        }
        (Bound::Memory, Kernel::AttentionDecode { heads, .. }) => format!(
            "time grows with the KV tokens of all requests; fewer or shorter requests, a larger tensor_parallel_size{} \
             shorten it",
            if heads.kv_dtype == DType::Fp8 { "" } else { " or kv_cache_dtype fp8" }
        ),
        (_, Kernel::AttentionDecode { .. }) => {
            "with short contexts it waits on launches and on one wave of requests; longer contexts cost little at first"
                .to_owned()
        }
        (_, Kernel::AttentionPrefill { .. }) => {
            "time grows with the chunk times the context it sees; a smaller max_num_batched_tokens shortens the step, \
             but not the prompt"
                .to_owned()
        }
        (Bound::Memory, Kernel::Moe { .. }) => {
            "the weights of every expert that some token visits are read, so more tokens cost little once all experts are \
             visited; more GPUs for the experts shorten it"
                .to_owned()
        }
        (_, Kernel::Moe { .. }) => {
            "time grows with the token-expert pairs; more GPUs for the experts or fewer tokens shorten it".to_owned()
        }
        (_, Kernel::AllReduce { .. } | Kernel::Exchange { .. }) => {
            "the message grows with the tokens of the step; a smaller tensor_parallel_size avoids it".to_owned()
        }
        (Bound::Latency, _) => "more tokens per step spread its fixed cost".to_owned(),
        _ => "time grows with the tokens of the step".to_owned(),
    }
}

/// Tokens at which a projection's compute time catches up with its memory time.
fn ridge_tokens(operator: &Operator, weight_bytes: f64, hardware: &Hardware) -> Option<u64> {
    let Kernel::Gemm { m, .. } = operator.kernel else { return None };
    let m = m as f64;
    let peak = hardware
        .peak_dense_flop_per_s(operator.compute_dtype)
        .or_else(|_| hardware.peak_dense_flop_per_s(DType::Bfloat16))
        .ok()?;
    let weights_us = time_us(weight_bytes, hardware.hbm_bytes_per_s());
    let compute_us_per_token = time_us(operator.flops / m, peak);
    let memory_us_per_token = time_us((operator.bytes - weight_bytes) / m, hardware.hbm_bytes_per_s());
    let ridge = weights_us / (compute_us_per_token - memory_us_per_token);
    (ridge.is_finite() && ridge > m && ridge < 1e6).then_some(ridge as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ridgepoint::WeightFormat;
    use ridgepoint::physics::{OperatorGroup, OperatorId, OperatorKind};

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
            let said = learned(&step).unwrap();
            assert!(
                said.starts_with(&format!("{} (25.0 % of the step, 1.500 ms, learned", term.operator_name())),
                "{said}"
            );
            assert_eq!(said.contains("--generation-config vllm"), term >= Term::SortedMegalogits, "{said}");
        }
    }

    #[test]
    fn the_ridge_is_where_compute_meets_memory() {
        let (m, n, k) = (64.0, 4096.0, 4096.0);
        let operator = Operator {
            id: OperatorId::first(OperatorKind::OProj),
            name: "o_proj",
            group: OperatorGroup::Projections,
            count: 1,
            flops: 2.0 * m * n * k,
            bytes: 2.0 * (n * k + m * k + m * n),
            compute_dtype: DType::Bfloat16,
            kernel: Kernel::Gemm { m: 64, n: 4096, k: 4096, weights: WeightFormat::Plain(DType::Bfloat16) },
        };
        let hardware = Hardware::builtin("h100_sxm").unwrap();
        // m·(2nk/989.4e12 − 2(n+k)/3.35e12) = 2nk/3.35e12 has its root at m = 345.11.
        assert_eq!(ridge_tokens(&operator, 2.0 * n * k, &hardware), Some(345));
    }
}

//! Tests of the sum over operators: the sampler's kernels, experts beside others, and what a call adds to another.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::float_cmp)]

use crate::correction::{Basis, Term};
use crate::deployment::{Deployment, GenerationConfig};
use crate::engine::Engine;
use crate::estimate::OperatorEstimate;
use crate::hardware::Hardware;
use crate::model::{Model, OwnSampling, SamplingParams};
use crate::physics::OperatorGroup;
use crate::request::Request;
use crate::step::Step;
use crate::step_model::{Options, StepModel};

fn steps(model: &str, generation_config: GenerationConfig) -> StepModel {
    deployed(&Engine::fitted(), model, &Deployment { generation_config, ..Deployment::default() })
}

fn deployed(engine: &Engine, model: &str, deployment: &Deployment) -> StepModel {
    let (model, gpu) = (Model::find(model).expect("built in"), Hardware::find("h100").expect("built in"));
    let options = Options { engine: engine.clone(), ..Options::uncorrected() };
    StepModel::with_options(&model, &gpu, deployment, &options).expect("possible")
}

/// Three decodes, a chunk that ends its prompt, and one that does not: four tokens are sampled.
fn batch() -> Vec<Request> {
    let goes_on = Request::partial_prefill(64, 0);
    vec![Request::decode(100), Request::decode(7), Request::decode(900), Request::prefill(32, 0), goes_on]
}

/// Names of the sampler's operators, and penalised requests.
fn sampler_terms(model: &str, generation_config: GenerationConfig) -> (Vec<&'static str>, f64) {
    let steps = steps(model, generation_config);
    let sampler = |operator: &OperatorEstimate| operator.group == Some(OperatorGroup::Sampling);
    let operators = steps.estimate(&batch()).expect("possible").operators;
    let names = operators.iter().filter(|operator| sampler(operator)).map(|operator| operator.name).collect();
    (names, steps.basis(&batch()).get(Term::PenalisedRequests))
}

#[test]
fn the_samplers_kernels_are_those_of_the_models_own_defaults() {
    let auto = GenerationConfig::Auto;
    let all = ["penalties", "top_p_sort", "top_p_cumsum", "top_p_mask", "top_k", "sampling"];
    assert_eq!(sampler_terms("qwen2.5-7b", auto), (all.to_vec(), 4.0));
    assert_eq!(
        sampler_terms("llama-3.1-8b", auto),
        (["top_p_sort", "top_p_cumsum", "top_p_mask", "sampling"].to_vec(), 0.0)
    );
    assert_eq!(sampler_terms("mixtral-8x7b", auto), (vec!["sampling"], 0.0));
    assert_eq!(sampler_terms("qwen2.5-7b", GenerationConfig::Vllm), (vec!["sampling"], 0.0));
}

#[test]
fn own_sampling_of_all_requests_is_a_server_that_has_it() {
    let greedy = SamplingParams { temperature: Some(0.0), ..SamplingParams::default() };
    let no_top_k = SamplingParams { top_k: Some(-1), ..SamplingParams::default() };
    let server = steps("qwen2.5-7b", GenerationConfig::Auto);
    for (own, penalised) in [(greedy, 4.0), (no_top_k, 4.0), (SamplingParams::default(), 4.0)] {
        let deployment = Deployment { override_generation_config: own, ..Deployment::default() };
        let given = deployed(&Engine::fitted(), "qwen2.5-7b", &deployment);
        let requests = server.with_own_sampling(&[OwnSampling::from(&own)]);
        assert_eq!(requests.step_time_us(&batch()), given.step_time_us(&batch()));
        assert_eq!(
            requests.estimate(&batch()).expect("possible").step_time_us,
            given.estimate(&batch()).expect("possible").step_time_us
        );
        assert_eq!(requests.basis(&batch()).get(Term::PenalisedRequests), penalised);
        let (batch, own) = (batch(), [OwnSampling::from(&own)]);
        let step = Step::from(&batch).with_own_sampling(&own);
        assert_eq!(server.step_time_us(step), given.step_time_us(&batch));
        let (shared, of_server) = (step.with_shared_kv_tokens(100), Step::from(&batch).with_shared_kv_tokens(100));
        assert_eq!(server.step_time_us(shared), requests.step_time_us(of_server));
        assert_eq!(server.estimate_unchecked(shared), requests.estimate_unchecked(of_server));
        assert_eq!(server.basis(shared), requests.basis(of_server));
    }
}

#[test]
fn own_sampling_of_some_requests_is_within_a_thousandth_of_the_operators() {
    let kinds = [SamplingParams { temperature: Some(0.0), ..SamplingParams::default() }, SamplingParams::default()];
    let mixed =
        steps("qwen2.5-7b", GenerationConfig::Auto).with_own_sampling(&kinds.map(|own| OwnSampling::from(&own)));
    for decodes in [1, 7, 8, 100, 600] {
        let batch = vec![Request::decode(500); decodes];
        let ratio = mixed.step_time_us(&batch) / mixed.estimate(&batch).expect("possible").step_time_us;
        assert!((ratio - 1.0).abs() < 1e-3, "{decodes}: {ratio}");
    }
}

#[test]
fn a_sort_of_many_logits_takes_what_its_bytes_take() {
    let us = |decodes: usize| {
        let step = steps("llama-3.1-8b", GenerationConfig::Auto).estimate(&vec![Request::decode(9); decodes]);
        let operators = step.expect("possible").operators;
        ["top_p_sort", "top_p_cumsum"].map(|name| {
            operators.iter().find(|operator| operator.name == name).map_or(0.0, |operator| operator.time_us)
        })
    };
    // 156 bytes a logit at half of 3,352 GB/s, and eleven launches of 1.85 µs; a row's sum is 126 tiles of 1.25 µs, and 8 bytes a
    // logit at 0.85 of the bandwidth.
    let [few, many] = [us(8), us(64)];
    let sorted_us = |rows: f64| 11.0 * 1.85 + rows * 128_256.0 * 156.0 / (0.5 * 3.352e6);
    let summed_us = |rows: f64| 126.0 * 1.25 + 1.85 + rows * 128_256.0 * 8.0 / (0.85 * 3.352e6);
    for (rows, found) in [(8.0, few), (64.0, many)] {
        assert!((found[0] / sorted_us(rows) - 1.0).abs() < 1e-3, "{found:?}");
        assert!((found[1] / summed_us(rows) - 1.0).abs() < 1e-3, "{found:?}");
    }
}

fn experts_us(engine: &str, decodes: usize) -> (f64, f64) {
    let engine = Engine::parse(engine, None).expect("known");
    let steps = deployed(&engine, "llama-4-scout", &Deployment::tensor_parallel(8));
    let step = steps.estimate(&vec![Request::decode(500); decodes]).expect("possible");
    let of = |operator: &&OperatorEstimate| {
        operator.name.starts_with("shared_") || operator.name.contains("moe_") || operator.name == "experts"
    };
    let others = ["shared_add", "shared_copy"];
    let experts = step.operators.iter().filter(of).filter(|operator| !others.contains(&operator.name));
    let (us, bound_us) = experts.fold((0.0, 0.0), |sum, of| (sum.0 + of.time_us, sum.1 + of.bound_us));
    assert!(step.operators.iter().all(|of| of.time_us >= of.bound_us), "no kernel is faster than its bound");
    (us, bound_us)
}

#[test]
fn shared_experts_run_beside_routed_ones_up_to_256_tokens() {
    let (one_stream, bound_us) = experts_us("vllm-0.11", 256);
    let (two_streams, same_bound_us) = experts_us("vllm-0.15", 256);
    assert_eq!(bound_us, same_bound_us);
    // Both read their weights through one memory: 85 % of the bandwidth, where one after the other reaches less.
    let expected = (bound_us / 0.85).min(one_stream);
    assert!(two_streams < one_stream && two_streams >= expected * (1.0 - 1e-9), "{two_streams} {expected}");
    assert_eq!(experts_us("vllm-0.11", 257), experts_us("vllm-0.15", 257));
}

#[test]
fn a_basis_counts_what_is_scheduled() {
    let steps = steps("llama-3.1-8b", GenerationConfig::Auto);
    let basis = steps.basis(&batch());
    let counts =
        [Term::Steps, Term::Layers, Term::Requests, Term::PromptTokens, Term::PrefillRequests, Term::PiecewiseLayers]
            .map(|term| basis.get(term));
    // 99 tokens are within the captured sizes, and two chunks keep the attention out of the graph.
    assert_eq!(counts, [1.0, 32.0, 5.0, 96.0, 2.0, 32.0]);
    assert_eq!(steps.basis(&[Request::decode(5); 3]).get(Term::PiecewiseLayers), 0.0);
    let idle = Request::new(50, 0, true);
    let mut with_idle = batch().to_vec();
    with_idle.insert(2, idle);
    assert_eq!(steps.basis(&with_idle), basis);
    assert_eq!((steps.basis(&[]), steps.basis(&[idle])), (Basis::default(), Basis::default()));
}

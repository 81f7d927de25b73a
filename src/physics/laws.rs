//! Laws of the physics over models, deployments and batches.

use std::collections::BTreeSet;

use proptest::prelude::*;

use crate::deployment::Deployment;
use crate::model::{Attention, Model, Window};
use crate::request::Request;

use super::fixtures::{self, all, run};
use super::{Operator, OperatorGroup, StepPlan};

/// Sums in another order may differ in the last digits.
const REL_SUMMATION_ORDER: f64 = 1e-12;

fn eager() -> Deployment {
    Deployment { enforce_eager: true, ..Deployment::default() }
}

/// Totals of a step.
#[derive(Debug, Clone, Copy, Default)]
struct StepTotals {
    flops: f64,
    memory_bytes: f64,
    sent_bytes: f64,
}

impl StepTotals {
    fn of(operators: &[Operator]) -> Self {
        operators.iter().fold(StepTotals::default(), |mut totals, operator| {
            let count = operator.count as f64;
            totals.flops += count * operator.flops;
            match operator.group {
                OperatorGroup::Communication => totals.sent_bytes += count * operator.bytes,
                _ => totals.memory_bytes += count * operator.bytes,
            }
            totals
        })
    }
}

fn totals(plan: &StepPlan, batch: &[Request]) -> StepTotals {
    StepTotals::of(&run(plan, batch))
}

fn never_less(before: StepTotals, after: StepTotals) -> bool {
    let slack = 1.0 - REL_SUMMATION_ORDER;
    after.flops >= before.flops * slack
        && after.memory_bytes >= before.memory_bytes * slack
        && after.sent_bytes >= before.sent_bytes * slack
}

fn any_request() -> impl Strategy<Value = Request> {
    let lengths = prop_oneof![(0u32..2000, Just(1u32)), (0u32..2000, 1u32..700), (0u32..20, 1u32..20)];
    (lengths, any::<bool>()).prop_map(|((c, q), samples)| Request::new(c, q, samples))
}

fn any_batch() -> impl Strategy<Value = Vec<Request>> {
    let decode = (1u32..2000).prop_map(Request::decode);
    prop_oneof![prop::collection::vec(any_request(), 1..40), prop::collection::vec(decode, 1..40)]
}

fn deployments() -> Vec<Deployment> {
    let two = Deployment::tensor_parallel(2);
    vec![
        Deployment::default(),
        eager(),
        two.clone(),
        Deployment { pipeline_parallel_size: 3, ..two.clone() },
        Deployment { data_parallel_size: 4, ..two.clone() },
        Deployment { data_parallel_size: 2, enable_expert_parallel: true, ..two },
    ]
}

fn plans(keep: impl Fn(&Model, &Deployment) -> bool) -> Vec<(String, StepPlan)> {
    let mut plans = Vec::new();
    for model in all() {
        for deployment in deployments().into_iter().filter(|d| keep(&model, d)) {
            plans.push((format!("{} {deployment:?}", model.name), StepPlan::new(&model, &deployment).unwrap()));
        }
    }
    plans
}

fn is_mla(model: &Model) -> bool {
    model.layers.iter().any(|g| matches!(g.attention, Attention::Mla(_)))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn another_request_never_needs_less_work(batch in any_batch(), extra in any_request()) {
        // Absorbed decodes are padded in a full graph, and no more once a chunk joins them: eager only for MLA.
        for (name, plan) in plans(|m, d| !is_mla(m) || d.enforce_eager) {
            let before = totals(&plan, &batch);
            let mut longer = batch.clone();
            longer.push(extra);
            prop_assert!(never_less(before, totals(&plan, &longer)), "{name}: {batch:?} + {extra:?}");
        }
    }

    #[test]
    fn more_tokens_never_need_less_work(
        batch in any_batch(), which in any::<prop::sample::Index>(), more_q in 0u32..50, more_c in 0u32..50,
    ) {
        // MLA decodes and chunks are different algorithms; a chunked window forgets at block ends.
        let comparable = |m: &Model, _: &Deployment| !is_mla(m) && m.name != "llama-4-scout";
        for (name, plan) in plans(comparable) {
            let before = totals(&plan, &batch);
            let mut longer = batch.clone();
            let request = &mut longer[which.index(batch.len())];
            request.num_scheduled_tokens += more_q;
            request.num_computed_tokens += more_c;
            prop_assert!(never_less(before, totals(&plan, &longer)), "{name}: {batch:?} -> {longer:?}");
        }
    }

    #[test]
    fn longer_mla_chunks_and_caches_never_need_less_work(c in 1u32..5000, q in 2u32..2000, more in 1u32..500) {
        let plan = StepPlan::new(&fixtures::deepseek_v3(), &eager()).unwrap();
        let base = totals(&plan, &[Request::prefill(q, c)]);
        prop_assert!(never_less(base, totals(&plan, &[Request::prefill(q + more, c)])));
        prop_assert!(never_less(base, totals(&plan, &[Request::prefill(q, c + more)])));
        let decode = totals(&plan, &[Request::decode(c)]);
        prop_assert!(never_less(decode, totals(&plan, &[Request::decode(c + more)])));
    }

    #[test]
    fn request_order_is_irrelevant(batch in any_batch(), seed in any::<prop::sample::Index>()) {
        let mut rotated = batch.clone();
        rotated.rotate_left(seed.index(batch.len()));
        rotated.reverse();
        for (name, plan) in plans(|_, d| d.tensor_parallel_size == 1) {
            prop_assert_eq!(run(&plan, &batch), run(&plan, &rotated), "{}", name);
        }
    }

    #[test]
    fn parts_sum_to_total(batch in any_batch()) {
        for (name, plan) in plans(|_, _| true) {
            let operators = run(&plan, &batch);
            let total = StepTotals::of(&operators);
            let (mut flops, mut bytes) = (0.0, 0.0);
            for operator in operators.iter().rev() {
                prop_assert!(operator.flops.is_finite() && operator.bytes > 0.0 && operator.count > 0, "{name}: {operator:?}");
                flops += operator.flops * operator.count as f64;
                bytes += operator.bytes * operator.count as f64;
            }
            let all_bytes = total.memory_bytes + total.sent_bytes;
            prop_assert!((flops / total.flops - 1.0).abs() < REL_SUMMATION_ORDER, "{name}");
            prop_assert!((bytes / all_bytes - 1.0).abs() < REL_SUMMATION_ORDER, "{name}");
        }
    }
}

/// Weights that a token is multiplied with, embedding left out, from the model alone.
fn active_params(model: &Model) -> u64 {
    let hidden = model.hidden_size;
    let layers = model.layers.iter().map(|group| {
        let Attention::Gqa(a) = &group.attention else { panic!("for grouped-query models") };
        let attention = hidden * (2 * a.num_heads + 2 * a.num_kv_heads) * a.head_dim;
        let dense = group.dense.as_ref().map_or(0, |f| 3 * hidden * f.intermediate_size);
        let moe = group.moe.as_ref().map_or(0, |m| {
            let shared = m.shared.as_ref().map_or(0, |s| 3 * hidden * s.intermediate_size);
            hidden * m.num_experts + m.top_k * 3 * hidden * m.intermediate_size + shared
        });
        group.count * (attention + dense + moe)
    });
    layers.sum::<u64>() + hidden * model.vocab_size
}

#[test]
fn flops_are_twice_active_parameters_times_tokens_plus_attention() {
    assert_eq!(active_params(&fixtures::llama_2_7b()), 6_607_077_376);
    let models = [
        (fixtures::llama_2_7b(), 32 * 32 * 128),
        (fixtures::llama_31_70b(), 80 * 64 * 128),
        (fixtures::qwen25_7b(), 28 * 28 * 128),
        (fixtures::mixtral_8x7b(), 32 * 32 * 128),
        (fixtures::llama_4_scout(), 48 * 40 * 128),
    ];
    for (model, attention_width) in models {
        let plan = StepPlan::new(&model, &eager()).unwrap();
        let contexts = [1, 17, 900, 3071];
        let batch: Vec<Request> = contexts.into_iter().map(Request::decode).collect();
        let pairs: u64 = contexts.into_iter().map(|c| u64::from(c) + 1).sum();
        let want = 2 * active_params(&model) * 4 + 4 * pairs * attention_width;
        let got = totals(&plan, &batch).flops;
        assert_eq!(got as u64, want, "{}", model.name);
    }
}

#[test]
fn a_prompt_alone_has_its_causal_triangle_and_one_row_of_logits() {
    let model = fixtures::llama_2_7b();
    let plan = StepPlan::new(&model, &eager()).unwrap();
    let head = 4096 * 32_000;
    let layers = active_params(&model) - head;
    let want = 2 * layers * 100 + 2 * head + 4 * 5050 * 32 * 4096;
    assert_eq!(totals(&plan, &[Request::prefill(100, 0)]).flops as u64, want);
}

#[test]
fn tp1_has_no_communication() {
    for model in all() {
        let plan = StepPlan::new(&model, &Deployment::default()).unwrap();
        let operators = run(&plan, &[Request::decode(10), Request::prefill(20, 5)]);
        assert!(operators.iter().all(|o| o.group != OperatorGroup::Communication), "{}", model.name);
    }
}

#[test]
fn tensor_parallel_ranks_share_the_flops_of_a_dense_model_evenly() {
    let batch = [Request::decode(100), Request::prefill(300, 50)];
    let whole = totals(&StepPlan::new(&fixtures::llama_31_70b(), &eager()).unwrap(), &batch).flops;
    let deployment = Deployment { tensor_parallel_size: 8, ..eager() };
    let part = totals(&StepPlan::new(&fixtures::llama_31_70b(), &deployment).unwrap(), &batch).flops;
    assert!((8.0 * part / whole - 1.0).abs() < REL_SUMMATION_ORDER);
}

#[test]
fn names_are_unique_and_layers_are_all_counted() {
    let batch = [Request::decode(10), Request::prefill(20, 5)];
    for (name, plan) in plans(|_, _| true) {
        let operators = run(&plan, &batch);
        let names: BTreeSet<&str> = operators.iter().map(|o| o.name).collect();
        assert_eq!(names.len(), operators.len(), "{name}");
        let layers: u64 = plan.pipeline_stages.iter().sum();
        for part in ["attention_prefill", "attention_decode", "o_proj", "kv_cache_write"] {
            let counted: u64 = operators.iter().filter(|o| o.name.starts_with(part)).map(|o| o.count).sum();
            assert_eq!(counted, layers, "{name}: {part}");
        }
    }
}

#[test]
fn longest_possible_requests_neither_panic_nor_lose_finiteness() {
    let batch = [Request::prefill(u32::MAX, 0), Request::decode(u32::MAX - 1), Request::prefill(2, u32::MAX - 2)];
    for model in all() {
        let deployment = Deployment { max_model_len: Some(u32::MAX), ..Deployment::default() };
        let plan = StepPlan::new(&model, &deployment).unwrap();
        let total = totals(&plan, &batch);
        assert!(total.flops.is_finite() && total.memory_bytes.is_finite(), "{}", model.name);
        assert!(!plan.notes.is_empty(), "{}: max_model_len is beyond the model's", model.name);
    }
}

#[test]
fn a_chunked_window_forgets_at_block_ends() {
    let plan = StepPlan::new(&fixtures::llama_4_scout(), &eager()).unwrap();
    let chunked = plan.windows.iter().position(|w| matches!(w, Window::Chunked(_))).unwrap();
    let visible = |computed| plan.batch_sums(&[Request::decode(computed)]).unwrap().windows[chunked].decode_kv_tokens;
    assert_eq!((visible(8191), visible(8192)), (8192, 1));
}

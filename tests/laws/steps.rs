//! Laws of predictions, for every model, GPU, deployment, batch and table.

use crate::batches;
use crate::compare;
use ridgepoint::{
    Deployment, EfficiencyMode, ErrorKind, Hardware, Model, OperatorGroup, Options, Provenance, Request, StepEstimate,
    StepModel,
};

use std::sync::LazyLock;

use batches::{absurd_batch, any_batch, any_request};
use compare::is_rel;
use proptest::prelude::*;
use proptest::sample::Index;
use ridgepoint::model::Attention;
use ridgepoint::physics::BatchSums;
use ridgepoint::unstable::efficiency::is_within_another;

/// Sums of the same numbers in another order.
const REL_SUMMATION_ORDER: f64 = 1e-12;
/// Attention of a chunk and a much smaller one, at least, of the chunk's time alone: the look-up sees both as chunks of
/// their mean, whose measured neighbours may be a little faster.
const LEAST_OF_ALONE: f64 = 0.9;
/// Dense and expert models, grouped-query and latent attention, sliding and chunked windows, every built-in weight format.
const MODELS: [&str; 14] = [
    "llama-3.1-8b",
    "llama-2-70b",
    "qwen2.5-7b",
    "qwen3-32b-fp8",
    "mistral-7b",
    "gemma-3-27b",
    "mixtral-8x7b",
    "qwen3-30b-a3b",
    "qwen3-235b-a22b-fp8",
    "llama-4-scout",
    "gpt-oss-20b",
    "gemma-4-26b-a4b",
    "deepseek-v2-lite",
    "deepseek-v3",
];
/// With tables of their own, and without.
const GPUS: [&str; 6] = ["h100", "h200", "a100", "l40s", "b200", "rtx-4090"];

fn deployments() -> Vec<Deployment> {
    let two = Deployment::tensor_parallel(2);
    vec![
        Deployment::default(),
        Deployment { enforce_eager: true, ..Deployment::default() },
        two.clone(),
        Deployment { pipeline_parallel_size: 3, ..Deployment::tensor_parallel(4) },
        Deployment { data_parallel_size: 2, enable_expert_parallel: true, ..two },
    ]
}

struct Case {
    name: String,
    model: Model,
    hardware: Hardware,
    deployment: Deployment,
    tables: StepModel,
    ideal: StepModel,
}

impl std::fmt::Debug for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name)
    }
}

impl Case {
    fn new(model: &str, gpu: &str, deployment: Deployment) -> Option<Case> {
        let model = Model::find(model).expect("a built-in model");
        let hardware = Hardware::find(gpu).expect("a built-in GPU");
        let with = |efficiency| {
            StepModel::with_options(&model, &hardware, &deployment, &Options { efficiency, ..Options::uncorrected() })
        };
        let tables = match with(EfficiencyMode::Tables) {
            Ok(tables) => tables,
            Err(error) if error.kind() == ErrorKind::Invalid => return None,
            Err(other) => panic!("{} on {gpu} with {deployment:?}: {other}", model.name),
        };
        let ideal = with(EfficiencyMode::Ideal).expect("needs less than tables do");
        let name = format!("{} on {gpu} with {deployment:?}", model.name);
        Some(Case { name, model, hardware, deployment, tables, ideal })
    }

    fn is_mla(&self) -> bool {
        self.model.layers.iter().any(|g| matches!(g.attention, Attention::Mla(_)))
    }
}

/// Every model once on each GPU, deployments in turn.
static CASES: LazyLock<Vec<Case>> = LazyLock::new(|| {
    let deployments = deployments();
    let mut cases = Vec::new();
    for (i, model) in MODELS.iter().enumerate() {
        for (j, gpu) in GPUS.iter().enumerate() {
            let start = i + j;
            let wanted = (0..deployments.len()).map(|d| &deployments[(start + d) % deployments.len()]);
            cases.extend(wanted.into_iter().find_map(|d| Case::new(model, gpu, d.clone())));
        }
    }
    assert_eq!(cases.len(), MODELS.len() * GPUS.len(), "each model fits on one GPU");
    cases
});

fn any_case() -> impl Strategy<Value = &'static Case> {
    any::<Index>().prop_map(|index| index.get(&CASES))
}

fn times(step: &StepEstimate) -> [f64; 8] {
    let StepEstimate { step_time_us, lower_us, upper_us, bound_us, total_flops, total_bytes, mfu, mbu, .. } = *step;
    [step_time_us, lower_us, upper_us, bound_us, total_flops, total_bytes, mfu, mbu]
}

fn assert_sound(step: &StepEstimate, name: &str, batch: &dyn std::fmt::Debug) {
    for number in times(step) {
        assert!(number.is_finite() && number >= 0.0, "{name}: {batch:?}: {step:?}");
    }
    assert!(step.lower_us <= step.step_time_us && step.step_time_us <= step.upper_us, "{name}: {batch:?}: {step:?}");
    let most = 1.0 + REL_SUMMATION_ORDER;
    assert!(step.mfu <= most && step.mbu <= most, "{name}: {batch:?}: {step:?}");
    for o in &step.operators {
        for number in [o.flops, o.bytes, o.time_us, o.bound_us, o.efficiency, o.share] {
            assert!(number.is_finite() && number >= 0.0, "{name}: {batch:?}: {o:?}");
        }
        assert!(o.count > 0 && o.efficiency <= 1.0 && o.share <= 1.0, "{name}: {batch:?}: {o:?}");
    }
}

fn never_less(before: &StepEstimate, after: &StepEstimate) -> bool {
    let slack = 1.0 - REL_SUMMATION_ORDER;
    after.total_flops >= before.total_flops * slack && after.total_bytes >= before.total_bytes * slack
}

fn group_us(step: &StepEstimate, group: OperatorGroup) -> f64 {
    step.groups().iter().filter(|of| of.group == Some(group)).map(|of| of.time_us).sum()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn no_step_beats_the_roofline(case in any_case(), batch in any_batch()) {
        let step = case.tables.estimate_unchecked(&batch);
        prop_assert!(step.step_time_us >= step.bound_us, "{}: {:?}", case.name, batch);
        // All but the time that the GPU waits for launches have a bound.
        for o in step.operators.iter().filter(|o| o.group.is_some()) {
            prop_assert!(o.time_us >= o.bound_us && o.bound_us > 0.0, "{}: {:?}: {:?}", case.name, batch, o);
        }
        let textbook = case.ideal.estimate_unchecked(&batch);
        prop_assert!(
            step.step_time_us >= textbook.step_time_us * (1.0 - REL_SUMMATION_ORDER),
            "{}: {} µs against {} µs: {:?}", case.name, step.step_time_us, textbook.step_time_us, batch
        );
    }

    #[test]
    fn no_bound_beats_the_datasheet(case in any_case(), batch in any_batch()) {
        let fastest = case.hardware.peaks_dense_flop_per_s.keys().copied().filter_map(|d| case.hardware.peak_dense_flop_per_s(d).ok()).fold(0.0, f64::max);
        for o in case.tables.estimate_unchecked(&batch).operators {
            let bytes_per_s = match o.group {
                Some(OperatorGroup::Communication) => case.hardware.interconnect.unwrap().unidirectional_bytes_per_s,
                _ => case.hardware.hbm_bytes_per_s,
            };
            let least_us = 1e6 * (o.bytes / bytes_per_s).max(o.flops / fastest);
            prop_assert!(o.bound_us >= least_us * (1.0 - REL_SUMMATION_ORDER), "{}: {:?}", case.name, o);
        }
    }

    #[test]
    fn the_ideal_is_the_bound(case in any_case(), batch in any_batch()) {
        let step = case.ideal.estimate_unchecked(&batch);
        prop_assert_eq!(step.step_time_us.to_bits(), step.bound_us.to_bits(), "{}: {:?}", case.name, batch);
        prop_assert_eq!(step.lower_us.to_bits(), step.upper_us.to_bits());
        for o in &step.operators {
            prop_assert_eq!(o.time_us.to_bits(), o.bound_us.to_bits(), "{}: {:?}", case.name, o);
            prop_assert_eq!(o.provenance, Provenance::Ideal);
        }
        // Tables time some small kernels as a part of others, and bound those alone.
        let mut planned = Vec::new();
        let plan = case.tables.plan();
        plan.operators(&BatchSums::new(&batch, &plan.windows, u64::MAX).expect("a possible batch"), &mut planned);
        let parts = planned.iter().filter(|o| is_within_another(o.id.kind)).filter_map(|part| {
            step.operators.iter().find(|o| o.name == part.name).map(|o| o.time_us)
        });
        let (whole, bound) = (step.step_time_us - parts.sum::<f64>(), case.tables.estimate_unchecked(&batch).bound_us);
        prop_assert!(is_rel(bound, whole, REL_SUMMATION_ORDER), "{}: {} µs, {} µs: {:?}", case.name, bound, whole, batch);
    }

    #[test]
    fn no_operator_of_the_plan_is_forgotten(case in any_case(), batch in any_batch()) {
        let mut planned = Vec::new();
        let plan = case.tables.plan();
        let shape = BatchSums::new(&batch, &plan.windows, u64::MAX).expect("a possible batch");
        plan.operators(&shape, &mut planned);
        let operators = |step: &StepEstimate| step.operators.clone().into_iter().filter(|o| o.group.is_some());
        let names = |step: &StepEstimate| operators(step).map(|o| o.name).collect::<Vec<_>>();
        let all: Vec<&str> = planned.iter().map(|o| o.name).collect();
        prop_assert_eq!(names(&case.ideal.estimate_unchecked(&batch)), all, "{}", case.name);
        let timed: Vec<&str> = planned.iter().filter(|o| !is_within_another(o.id.kind)).map(|o| o.name).collect();
        prop_assert_eq!(names(&case.tables.estimate_unchecked(&batch)), timed, "{}", case.name);
    }

    #[test]
    fn parts_sum_to_total(case in any_case(), batch in any_batch()) {
        for step in [case.tables.estimate_unchecked(&batch), case.ideal.estimate_unchecked(&batch)] {
            let sum = |part: &dyn Fn(&ridgepoint::OperatorEstimate) -> f64| step.operators.iter().rev().map(part).sum::<f64>();
            let moved = |o: &ridgepoint::OperatorEstimate| if o.group == Some(OperatorGroup::Communication) { 0.0 } else { o.bytes };
            let groups: f64 = step.groups().iter().map(|group| group.time_us).sum();
            let provenance: f64 = step.provenance.iter().map(|(_, share)| share).sum();
            for (what, got, want) in [
                ("times", sum(&|o| o.time_us), step.step_time_us),
                ("groups", groups, step.step_time_us),
                ("bounds", sum(&|o| o.bound_us), step.bound_us),
                ("FLOPs", sum(&|o| o.flops), step.total_flops),
                ("bytes", sum(&moved), step.total_bytes),
                ("shares", sum(&|o| o.share), 1.0),
                ("provenance", provenance, 1.0),
            ] {
                prop_assert!(is_rel(got, want, REL_SUMMATION_ORDER), "{}: {what}: {got} of {want}: {batch:?}", case.name);
            }
        }
    }

    #[test]
    fn request_order_is_irrelevant(case in any_case(), batch in any_batch(), by in any::<Index>()) {
        let mut shuffled = batch.clone();
        shuffled.rotate_left(by.index(batch.len()));
        shuffled.reverse();
        let (one, other) = (case.tables.estimate_unchecked(&batch), case.tables.estimate_unchecked(&shuffled));
        prop_assert_eq!(times(&one).map(f64::to_bits), times(&other).map(f64::to_bits), "{}: {:?}", case.name, &batch);
        prop_assert_eq!(one.operators, other.operators);
    }

    #[test]
    fn every_number_is_finite_and_within_its_range(case in any_case(), batch in any_batch()) {
        for step in [case.tables.estimate_unchecked(&batch), case.ideal.estimate_unchecked(&batch)] {
            assert_sound(&step, &case.name, &batch);
            prop_assert!(step.lower_us >= step.bound_us, "{}: {:?}", case.name, batch);
        }
    }

    #[test]
    fn absurd_requests_are_refused_and_have_a_finite_time(case in any_case(), batch in absurd_batch()) {
        let step = case.tables.estimate_unchecked(&batch);
        assert_sound(&step, &case.name, &batch);
        assert_sound(&case.ideal.estimate_unchecked(&batch), &case.name, &batch);
        let limit = case.tables.plan().max_model_len;
        let length = |r: &Request| u64::from(r.num_computed_tokens) + u64::from(r.num_scheduled_tokens);
        let bad = |r: &Request| r.num_scheduled_tokens == 0 || length(r) > limit;
        let culprits = batch.iter().filter(|r| bad(r)).count();
        let first = batch.iter().position(bad);
        let warns_of = |text: &str| step.warnings.iter().any(|w| w.contains(text));
        if batch.iter().all(|r| r.num_scheduled_tokens == 0) {
            prop_assert!(step.step_time_us == 0.0 && warns_of("nothing to do"), "{}: {:?}", case.name, step);
        } else {
            prop_assert!(step.step_time_us > 0.0, "{}: {:?}", case.name, step);
        }
        match (case.tables.estimate(&batch), batch.is_empty(), first) {
            (Err(error), true, None) => prop_assert_eq!(error.kind(), ErrorKind::EmptyStep),
            (Err(error), false, Some(first)) => {
                prop_assert_eq!(error.kind(), ErrorKind::InvalidRequest);
                prop_assert_eq!(&error.location().unwrap().path, &format!("request {first}"));
                prop_assert_eq!(error.problems().len(), culprits.min(21), "{}", error);
            }
            (Ok(tried), false, None) => prop_assert_eq!(tried, step),
            (tried, ..) => prop_assert!(false, "{}: {batch:?}: {tried:?}", case.name),
        }
    }

    #[test]
    fn tp1_has_no_communication(batch in any_batch()) {
        for case in CASES.iter().filter(|c| c.deployment.tensor_parallel_size == 1) {
            let step = case.tables.estimate_unchecked(&batch);
            prop_assert!(step.operators.iter().all(|o| o.group != Some(OperatorGroup::Communication)), "{}", case.name);
        }
    }

    // Whole tiles of queries, as the mean is a little shorter than the long chunk and would save a begun tile.
    #[test]
    fn a_small_chunk_does_not_hide_a_long_one(
        case in any_case(), tiles in 4u32..64, computed in 0u32..4000, small in (2u32..16, 0u32..1000),
    ) {
        let attention_us = |batch: &[Request]| group_us(&case.tables.estimate_unchecked(batch), OperatorGroup::AttentionPrefill);
        let chunk = Request::prefill(128 * tiles, computed);
        let alone = attention_us(&[chunk]);
        let both = attention_us(&[chunk, Request::prefill(small.0, small.1)]);
        prop_assert!(both >= LEAST_OF_ALONE * alone, "{}: {chunk:?} + {small:?}: {alone} µs, {both} µs", case.name);
    }

    // With graphs, absorbed latent attention is padded in a decode-only step and no more once a chunk joins it.
    #[test]
    fn another_request_never_needs_less_work(case in any_case(), batch in any_batch(), extra in any_request()) {
        if !case.is_mla() || case.deployment.enforce_eager {
            let mut more = batch.clone();
            more.push(extra);
            for model in [&case.tables, &case.ideal] {
                prop_assert!(
                    never_less(&model.estimate_unchecked(&batch), &model.estimate_unchecked(&more)), "{}: {batch:?} + {extra:?}", case.name
                );
            }
        }
    }

    // A latent decode and a latent chunk are different algorithms, and a chunked window forgets at a block's end.
    #[test]
    fn a_longer_request_never_needs_less_work(
        case in any_case(), batch in any_batch(), which in any::<Index>(), q in 0u32..600, c in 0u32..600,
    ) {
        if !case.is_mla() && case.model.name != "llama-4-scout" {
            let mut longer = batch.clone();
            let request = &mut longer[which.index(batch.len())];
            request.num_scheduled_tokens += q;
            request.num_computed_tokens += c;
            for model in [&case.tables, &case.ideal] {
                prop_assert!(
                    never_less(&model.estimate_unchecked(&batch), &model.estimate_unchecked(&longer)), "{}: {batch:?} -> {longer:?}", case.name
                );
            }
        }
    }
}

#[test]
fn a_million_of_the_longest_requests_are_predicted() {
    let batch = vec![Request::prefill(u32::MAX, u32::MAX); 1_000_000];
    let decodes = vec![Request::decode(u32::MAX); 1_000_000];
    for case in CASES.iter().step_by(7) {
        for batch in [&batch, &decodes] {
            let step = case.tables.estimate_unchecked(batch);
            assert_sound(&step, &case.name, &batch[0]);
            assert!(step.step_time_us > 0.0 && step.warnings.iter().any(|w| w.contains("the engine would split it")));
            let error = case.tables.estimate(batch).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidRequest);
            assert!(error.problems().len() <= 21 && error.problems()[0].starts_with("request 0: "), "{error}");
        }
    }
}

#[test]
fn every_built_in_model_and_gpu_gives_a_sound_prediction() {
    const GPUS_PER_MODEL: usize = 1;
    let batch = [Request::decode(2000), Request::prefill(500, 300), Request::decode(1)];
    let gpus = ridgepoint::hardware::builtin_names();
    for (i, model) in ridgepoint::model::builtin_names().into_iter().enumerate() {
        for gpu in gpus.iter().cycle().skip(i * GPUS_PER_MODEL % gpus.len()).take(GPUS_PER_MODEL) {
            let case = Case::new(model, gpu, Deployment::default()).expect("one rank holds everything");
            assert_sound(&case.tables.estimate_unchecked(&batch), &case.name, &batch);
            assert_sound(&case.ideal.estimate_unchecked(&batch), &case.name, &batch);
        }
    }
}

#[test]
fn a_step_model_can_be_shared_by_threads() {
    fn shareable<T: Send + Sync + Clone + 'static>() {}
    shareable::<StepModel>();
    shareable::<StepEstimate>();
}

#[test]
fn threads_agree_to_the_last_bit() {
    let batch: Vec<Request> = (1..200).map(|i| Request::prefill(if i % 50 == 0 { i } else { 1 }, 17 * i)).collect();
    for case in CASES.iter().step_by(5) {
        let here = case.tables.estimate_unchecked(&batch);
        let there: Vec<StepEstimate> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(|| case.tables.estimate_unchecked(&batch))).collect();
            threads.into_iter().map(|t| t.join().expect("no panic")).collect()
        });
        assert!(there.iter().all(|step| *step == here), "{}", case.name);
        let anew = Case::new(&case.model.name, &case.hardware.name, case.deployment.clone()).expect("as before");
        assert_eq!(anew.tables.estimate_unchecked(&batch), here, "{}: a model built anew", case.name);
    }
}

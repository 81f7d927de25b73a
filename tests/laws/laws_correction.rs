//! Laws of corrected predictions, for any valid coefficients, model and batch.

use crate::batches;
use crate::compare;

use std::sync::{Arc, LazyLock};

use batches::{absurd_batch, any_batch, any_request};
use compare::is_rel;
use proptest::prelude::*;
use proptest::sample::Index;
use ridgepoint::correction::{NUM_TERMS, Scatter, Term};
use ridgepoint::{Correction, Deployment, Hardware, Model, Options, Request, StepModel};

/// A sum of a few dozen products in another order.
const REL_BASIS: f64 = 1e-9;
/// Of compiled steps under any coefficients, which may make most of a step of the group that the tables are least exact in.
const REL_COMPILED: f64 = 3e-3;
/// Dense and expert models, latent attention, sorted logits and penalties with and without; tables of one's own and borrowed ones.
const CASES: [(&str, &str, u32, bool); 6] = [
    ("llama-3.1-8b", "h100", 1, false),
    ("qwen2.5-7b", "h200", 2, false),
    ("mixtral-8x7b", "h100", 2, false),
    ("gemma-3-27b", "l40s", 2, true),
    ("deepseek-v2-lite", "a100", 1, false),
    ("gpt-oss-20b", "b200", 1, false),
];

struct Compiled {
    name: String,
    steps: StepModel,
}

impl std::fmt::Debug for Compiled {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name)
    }
}

static STEPS: LazyLock<Vec<Compiled>> = LazyLock::new(|| {
    let compiled = |(model, gpu, tensor_parallel_size, enforce_eager): (&str, &str, u32, bool)| {
        let deployment = Deployment { enforce_eager, ..Deployment::tensor_parallel(tensor_parallel_size) };
        let (model, hardware) = (Model::find(model).expect("built in"), Hardware::find(gpu).expect("built in"));
        let steps = StepModel::with_options(&model, &hardware, &deployment, &Options::uncorrected()).expect("possible");
        Compiled { name: format!("{} on {gpu}", model.name), steps }
    };
    CASES.into_iter().map(compiled).collect()
});

fn any_steps() -> impl Strategy<Value = &'static Compiled> {
    any::<Index>().prop_map(|index| index.get(&STEPS))
}

/// Anything that a file may say, its ends among it.
fn any_correction() -> impl Strategy<Value = Correction> {
    let factor = || prop_oneof![4 => 0.3..3.0f64, 1 => Just(0.3), 1 => Just(1.0), 1 => Just(3.0)];
    let price = || prop_oneof![3 => 0.0..50.0f64, 1 => Just(0.0), 1 => 0.0..1e6f64];
    let scatter = (0.0..3.0f64, 0.0..3.0f64).prop_map(|(step, ttft)| Scatter { step, ttft });
    let each = |of: fn(Term) -> bool| Term::ALL.into_iter().filter(|term| of(*term)).count();
    let factors = prop::collection::vec(factor(), each(|term| term.is_factor()));
    let prices = prop::collection::vec(price(), each(|term| !term.is_factor()));
    let sds = prop::collection::vec(prop_oneof![Just(0.0), 0.0..1.0f64], NUM_TERMS);
    (factors, prices, sds, scatter, any::<bool>()).prop_map(|(factors, prices, sds, scatter, is_fitted)| {
        let mut correction = Correction { scatter, ..Correction::neutral() };
        for (term, value) in Term::ALL.into_iter().zip(factors.into_iter().chain(prices)) {
            correction.coefficients[term.index()] = value;
            correction.covariance[term.index()][term.index()] = (sds[term.index()] * term.prior_sd()).powi(2);
        }
        if is_fitted {
            correction.source.hardware = vec!["h100_sxm".to_owned()];
        }
        correction
    })
}

fn corrected(steps: &StepModel, correction: &Correction) -> StepModel {
    steps.clone().with_correction(Arc::new(correction.clone()))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    #[test]
    fn no_correction_beats_the_roofline(of in any_steps(), correction in any_correction(), batch in any_batch()) {
        let Compiled { name, steps: plain } = of;
        let step = corrected(plain, &correction).estimate_unchecked(&batch);
        prop_assert!(step.step_time_us >= step.bound_us && step.bound_us > 0.0, "{}: {:?}", name, batch);
        // The bound is physics: no coefficient moves it.
        prop_assert_eq!(step.bound_us.to_bits(), plain.estimate_unchecked(&batch).bound_us.to_bits(), "{}: {:?}", name, &batch);
        prop_assert_eq!(step.total_flops.to_bits(), plain.estimate_unchecked(&batch).total_flops.to_bits());
    }

    #[test]
    fn the_time_alone_is_that_of_the_estimate(of in any_steps(), correction in any_correction(), batch in any_batch()) {
        let Compiled { name, steps: plain } = of;
        let steps = corrected(plain, &correction);
        let (alone, estimate) = (steps.estimate_unchecked(&batch).step_time_us, steps.estimate_unchecked(&batch));
        prop_assert_eq!(alone.to_bits(), estimate.step_time_us.to_bits(), "{}: {:?}", name, &batch);
        let compiled = steps.step_time_us(&batch);
        prop_assert!(is_rel(compiled, alone, REL_COMPILED), "{}: {} for {}: {:?}", name, compiled, alone, &batch);
        let tried = steps.estimate(&batch);
        prop_assert!(tried.is_err() || tried.is_ok_and(|tried| tried.step_time_us.to_bits() == alone.to_bits()));
    }

    #[test]
    fn the_time_is_the_weighted_sum_of_the_terms(of in any_steps(), correction in any_correction(), batch in any_batch()) {
        let Compiled { name, steps: plain } = of;
        let steps = corrected(plain, &correction);
        let (step, basis) = (steps.estimate_unchecked(&batch), steps.basis(&batch));
        prop_assert_eq!(basis, plain.basis(&batch), "{}: terms know no coefficient", name);
        let expected_us = correction.time_us(&basis).max(step.bound_us);
        prop_assert!(is_rel(step.step_time_us, expected_us, REL_BASIS), "{}: {} µs of {expected_us}: {:?}", name, step.step_time_us, batch);
        let sd = correction.coefficients_sd(&basis);
        prop_assert!(is_rel(step.coefficients_sd, sd, REL_BASIS), "{}: {} of {sd}: {:?}", name, step.coefficients_sd, batch);
        // What is learned in addition to the operators is exactly what the prices say.
        let prices_us: f64 = Term::ALL.into_iter().filter(|term| !term.is_factor())
            .map(|term| correction.coefficient(term) * basis.get(term)).sum();
        let learned_us: f64 = step.operators.iter().filter(|o| o.group.is_none()).map(|o| o.time_us).sum();
        prop_assert!((learned_us - prices_us).abs() <= REL_BASIS * step.step_time_us, "{}: {learned_us} of {prices_us}", name);
    }

    #[test]
    fn the_interval_holds_the_prediction(of in any_steps(), correction in any_correction(), batch in any_batch()) {
        let Compiled { name, steps: plain } = of;
        let step = corrected(plain, &correction).estimate_unchecked(&batch);
        prop_assert!(step.bound_us <= step.lower_us && step.lower_us <= step.step_time_us, "{}: {:?}", name, batch);
        prop_assert!(step.step_time_us <= step.upper_us && step.upper_us.is_finite(), "{}: {:?}", name, batch);
        let least = (1.645 * correction.scatter.step).exp() * (1.0 - REL_BASIS);
        prop_assert!(step.upper_us >= step.step_time_us * least, "{}: the scatter is part of it: {:?}", name, batch);
    }

    #[test]
    fn a_neutral_correction_changes_no_bit(of in any_steps(), batch in any_batch()) {
        let Compiled { name, steps: plain } = of;
        let neutral = corrected(plain, &Correction::neutral());
        prop_assert_eq!(neutral.step_time_us(&batch).to_bits(), plain.step_time_us(&batch).to_bits(), "{}: {:?}", name, &batch);
        prop_assert_eq!(neutral.estimate_unchecked(&batch).operators, plain.estimate_unchecked(&batch).operators, "{}: {:?}", name, &batch);
    }

    #[test]
    fn request_order_is_irrelevant(of in any_steps(), correction in any_correction(), batch in any_batch(), by in any::<Index>()) {
        let Compiled { name, steps: plain } = of;
        let steps = corrected(plain, &correction);
        let mut shuffled = batch.clone();
        shuffled.rotate_left(by.index(batch.len()));
        shuffled.reverse();
        let (mut one, other) = (steps.estimate_unchecked(&batch), steps.estimate_unchecked(&shuffled));
        // A request that is too long is named by its place.
        one.warnings.clone_from(&other.warnings);
        prop_assert_eq!(one, other, "{}: {:?}", name, &batch);
        prop_assert_eq!(steps.basis(&batch), steps.basis(&shuffled), "{}: {:?}", name, &batch);
    }

    // A factor may turn round what two groups do to each other, so the law is of the terms: graphs, mixed attention and
    // measured efficiencies may let one of them fall.
    #[test]
    fn where_no_term_falls_no_step_gets_faster(
        of in any_steps(), correction in any_correction(), batch in any_batch(), extra in any_request(),
    ) {
        let Compiled { name, steps: plain } = of;
        let steps = corrected(plain, &correction);
        let more = [&batch[..], &[extra]].concat();
        let (before, after) = (plain.basis(&batch), plain.basis(&more));
        let counts = Term::ALL.into_iter().filter(|term| !term.is_factor() && *term != Term::PiecewiseLayers);
        for term in counts {
            prop_assert!(after.get(term) >= before.get(term), "{}: {term}: {:?} + {:?}", name, batch, extra);
        }
        if before.values().iter().zip(after.values()).all(|(before, after)| after >= before) {
            let [before_us, after_us] = [&batch, &more].map(|batch| steps.step_time_us(batch));
            prop_assert!(after_us >= before_us * (1.0 - REL_BASIS), "{}: {before_us}, {after_us} µs: {:?} + {:?}", name, batch, extra);
        }
    }

    #[test]
    fn absurd_batches_are_predicted(of in any_steps(), correction in any_correction(), batch in absurd_batch()) {
        let Compiled { name, steps: plain } = of;
        let steps = corrected(plain, &correction);
        let (step, basis) = (steps.estimate_unchecked(&batch), steps.basis(&batch));
        for number in [step.step_time_us, step.lower_us, step.upper_us, step.coefficients_sd, step.tables_sd] {
            prop_assert!(number.is_finite() && number >= 0.0, "{}: {:?}: {:?}", name, batch, step);
        }
        prop_assert_eq!(steps.estimate_unchecked(&batch).step_time_us.to_bits(), step.step_time_us.to_bits());
        prop_assert!(is_rel(steps.step_time_us(&batch), step.step_time_us, REL_COMPILED), "{}: {:?}", name, &batch);
        let expected_us = correction.time_us(&basis).max(step.bound_us);
        prop_assert!((step.step_time_us - expected_us).abs() <= REL_BASIS * expected_us, "{}: {:?}", name, batch);
        prop_assert_eq!(step.step_time_us == 0.0, batch.iter().all(|r| r.num_scheduled_tokens == 0), "{}: {:?}", name, &batch);
    }
}

#[test]
fn the_chance_laws_reach_clamped_and_free_steps() {
    let steps = &STEPS[0].steps;
    let mut low = Correction::neutral();
    for term in Term::ALL.into_iter().filter(|term| term.is_factor()) {
        low.coefficients[term.index()] = 0.3;
    }
    let batch = [Request::decode(1000); 32];
    let clamped = corrected(steps, &low).estimate_unchecked(&batch);
    // Weights and cache can't be read in three tenths of the measured time: the roofline holds.
    assert_eq!(clamped.step_time_us.to_bits(), clamped.bound_us.to_bits());
    assert!(low.time_us(&steps.basis(&batch)) < clamped.bound_us);
    let operators_us = low.time_us(&steps.basis(&batch));
    low.coefficients[Term::Steps.index()] = 1e5;
    let free_us = corrected(steps, &low).estimate_unchecked(&batch).step_time_us;
    assert!((free_us - 1e5 - operators_us).abs() < 1e-6, "{free_us} of 100,000 + {operators_us}");
}

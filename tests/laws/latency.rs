//! The promises of `LatencyModel` for every implementation: pure, independent of order, finite, never negative, monotone in work, the
//! same from any thread.

use std::sync::LazyLock;

use proptest::prelude::*;
use ridgepoint::latency::{BlackBox, CalibratedRoofline, FixedLatency, HostTimes, LatencyModel};
use ridgepoint::{Deployment, Hardware, Model, Options, Request, Step, StepModel};

/// How much faster a step with another request may be: measured kernels have steps of a few percent at tile boundaries.
const DIP: f64 = 0.06;

fn roofline(model: &str, gpu: &str, tensor_parallel_size: u32) -> CalibratedRoofline {
    let deployment = Deployment::tensor_parallel(tensor_parallel_size);
    let steps = StepModel::with_options(
        &Model::find(model).unwrap(),
        &Hardware::find(gpu).unwrap(),
        &deployment,
        &Options::uncorrected(),
    )
    .unwrap();
    CalibratedRoofline::new(steps)
}

struct Case(&'static str, Box<dyn LatencyModel>);

impl std::fmt::Debug for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0)
    }
}

static MODELS: LazyLock<Vec<Case>> = LazyLock::new(|| {
    let line = BlackBox { beta0_us: 4000.0, alpha0_us: 900.0, alpha1_us: 1.5, alpha2_us: 40.0, ..BlackBox::default() }
        .with_prices([12.0, 25.0, 150.0, 0.02, 3e-4, 0.4]);
    let constant = FixedLatency { step_us: 7000.0, queueing_us: 10.0, ..FixedLatency::default() };
    vec![
        Case("llama-3.1-8b", Box::new(roofline("llama-3.1-8b", "h100", 1))),
        Case("mixtral-8x7b", Box::new(roofline("mixtral-8x7b", "h200", 2))),
        Case("gemma-3-27b", Box::new(roofline("gemma-3-27b", "a100", 2))),
        Case("black box", Box::new(line)),
        Case("fixed", Box::new(constant)),
    ]
});

fn any_model() -> impl Strategy<Value = &'static Case> {
    (0..MODELS.len()).prop_map(|index| &MODELS[index])
}

fn any_request() -> impl Strategy<Value = Request> {
    prop_oneof![
        (1u32..8000).prop_map(Request::decode),
        (1u32..2048, 0u32..4000).prop_map(|(chunk, computed)| Request::prefill(chunk, computed)),
    ]
}

fn absurd_request() -> impl Strategy<Value = Request> {
    (any::<u32>(), any::<u32>(), any::<bool>()).prop_map(|(num_computed_tokens, num_scheduled_tokens, samples)| {
        Request::new(num_computed_tokens, num_scheduled_tokens, samples)
    })
}

fn five(model: &dyn LatencyModel, batch: &[Request]) -> [f64; 5] {
    let prompt = batch.first().copied().unwrap_or(Request::prefill(1, 0));
    let host = model.host();
    [
        model.step_time_us(&Step::from(batch)),
        host.queueing_time_us(&prompt),
        host.output_token_processing_time_us(),
        host.scheduling_processing_time_us(),
        host.preemption_processing_time_us(),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn the_order_of_requests_does_not_matter(model in any_model(), batch in prop::collection::vec(any_request(), 1..40)) {
        let mut backwards = batch.clone();
        backwards.reverse();
        prop_assert_eq!(model.1.step_time_us(&Step::from(&batch)).to_bits(), model.1.step_time_us(&Step::from(&backwards)).to_bits(), "{}", model.0);
    }

    #[test]
    fn the_same_question_has_the_same_answer_on_any_thread(
        model in any_model(), batch in prop::collection::vec(any_request(), 1..40),
    ) {
        let here = five(&*model.1, &batch).map(f64::to_bits);
        let there = std::thread::scope(|scope| scope.spawn(|| five(&*model.1, &batch).map(f64::to_bits)).join().unwrap());
        prop_assert_eq!(here, there, "{}", model.0);
    }

    #[test]
    fn no_delay_is_negative_or_endless(model in any_model(), batch in prop::collection::vec(absurd_request(), 0..6)) {
        for us in five(&*model.1, &batch) {
            prop_assert!(us.is_finite() && us >= 0.0, "{}: {:?}: {:?}", model.0, batch, us);
        }
    }

    #[test]
    fn another_request_takes_no_less_time(
        model in any_model(), batch in prop::collection::vec(any_request(), 1..40), extra in any_request(),
    ) {
        let before = model.1.step_time_us(&Step::from(&batch));
        let mut more = batch.clone();
        more.push(extra);
        let after = model.1.step_time_us(&Step::from(&more));
        prop_assert!(after >= before * (1.0 - DIP), "{}: {:?} + {:?}: {} µs, then {} µs", model.0, batch, extra, before, after);
    }

    #[test]
    fn a_longer_prompt_takes_no_less_time_to_arrive(model in any_model(), tokens in 1u32..100_000, more in 0u32..100_000) {
        let (short, long) = (Request::prefill(tokens, 0), Request::prefill(tokens + more, 0));
        prop_assert!(model.1.host().queueing_time_us(&long) >= model.1.host().queueing_time_us(&short), "{}", model.0);
    }
}

#[test]
fn the_roofline_adds_nothing_to_the_predicted_step() {
    let latency = roofline("llama-3.1-8b", "h100", 1);
    let batches = [
        vec![Request::decode(1000); 17],
        vec![Request::prefill(700, 0), Request::decode(40)],
        vec![Request::new(0, 512, false)],
        vec![Request::new(5, 0, true), Request::decode(9)],
    ];
    for batch in batches {
        let estimate = latency.steps().estimate_unchecked(&batch).step_time_us;
        let step_us = latency.step_time_us(&Step::from(&batch));
        assert_eq!(step_us.to_bits(), latency.steps().step_time_us(&batch).to_bits(), "{batch:?}");
        assert!((step_us / estimate - 1.0).abs() < 1e-3, "{step_us} for {estimate}: {batch:?}");
    }
    assert_eq!(latency.step_time_us(&Step::default()).to_bits(), 0f64.to_bits());
}

#[test]
fn a_host_is_what_it_is_said_to_be() {
    let host = HostTimes { queueing_us: 100.0, queueing_us_per_token: 2.0, ..HostTimes::NONE };
    let latency = roofline("llama-3.1-8b", "h100", 1).with_host(host);
    assert_eq!(latency.host().queueing_time_us(&Request::prefill(50, 0)).to_bits(), 200f64.to_bits());
    assert_eq!(latency.host().output_token_processing_time_us().to_bits(), 0f64.to_bits());
}

#[test]
fn coefficients_that_cannot_be_count_as_nothing() {
    let broken = BlackBox {
        beta0_us: f64::NAN,
        beta1_us: -3.0,
        beta2_us: 10.0,
        alpha1_us: f64::INFINITY,
        ..BlackBox::default()
    };
    let batch = [Request::decode(5), Request::prefill(100, 0)];
    assert_eq!(broken.step_time_us(&Step::from(&batch)).to_bits(), 10f64.to_bits());
    assert_eq!(broken.host().queueing_time_us(&batch[1]).to_bits(), 0f64.to_bits());
}

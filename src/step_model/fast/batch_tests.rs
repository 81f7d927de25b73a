//! A step's time is the same to the last bit whichever way its requests are handed over, whatever their order and by whatever
//! lanes they are summed.

use std::sync::LazyLock;

use proptest::prelude::*;
use pulp::Arch;

use crate::deployment::Deployment;
use crate::efficiency::EfficiencyMode;
use crate::hardware::Hardware;
use crate::model::Model;
use crate::request::{Request, RequestColumns};
use crate::step_model::{Options, StepModel};

#[path = "../../../tests/common/batches.rs"]
mod batches;
use batches::{absurd_batch, any_batch};

/// Models of each kind (dense, windows of both kinds, experts, latent attention, picked keys, layers with a state), with and without
/// dense tables and measured kernels; each as this CPU sums and by one lane.
static STEPS: LazyLock<Vec<[StepModel; 2]>> = LazyLock::new(|| {
    let hardware = Hardware::find("h100").unwrap();
    let mut all = Vec::new();
    for (model, gpus) in [
        ("llama-3.1-8b", 1),
        ("gemma-3-27b", 2),
        ("gpt-oss-120b", 2),
        ("llama-4-scout", 8),
        ("mixtral-8x7b", 2),
        ("deepseek-v3", 8),
        ("glm-5.2-fp8", 8),
        ("qwen3.5-27b", 2),
    ] {
        let model = Model::find(model).unwrap();
        for (operators_only, efficiency) in
            [(false, EfficiencyMode::Tables), (true, EfficiencyMode::Tables), (false, EfficiencyMode::Ideal)]
        {
            let options = Options { operators_only, efficiency, ..Options::uncorrected() };
            let deployment = Deployment::tensor_parallel(gpus);
            let steps = StepModel::with_options(&model, &hardware, &deployment, &options).unwrap();
            let one_lane = StepModel { cpu: Arch::Scalar, ..steps.clone() };
            all.push([steps, one_lane]);
        }
    }
    all
});

/// Bits by slice, columns and state. Flags that are set are any byte but 0.
fn bits(steps: &StepModel, batch: &[Request]) -> [u64; 3] {
    let computed: Vec<u32> = batch.iter().map(|request| request.num_computed_tokens).collect();
    let scheduled: Vec<u32> = batch.iter().map(|request| request.num_scheduled_tokens).collect();
    let flags: Vec<u8> =
        batch.iter().zip([1, 2, 255].into_iter().cycle()).map(|(r, set)| if r.samples { set } else { 0 }).collect();
    let columns = RequestColumns::new(&computed, &scheduled).unwrap().with_sample_bytes(&flags).unwrap();
    let mut state = steps.state();
    batch.iter().for_each(|request| state.add(request));
    let of_columns = steps.step_time_us(&columns);
    if batch.iter().all(|request| request.samples) {
        let without_flags = RequestColumns::new(&computed, &scheduled).unwrap();
        assert_eq!(steps.step_time_us(&without_flags).to_bits(), of_columns.to_bits());
    }
    [steps.step_time_us(batch), of_columns, steps.step_time_us(&state)].map(f64::to_bits)
}

fn agree(batch: &[Request], shuffled: &[Request]) -> std::result::Result<(), TestCaseError> {
    for both in STEPS.iter() {
        let expected = [both[0].step_time_us(batch).to_bits(); 3];
        prop_assert!(f64::from_bits(expected[0]).is_finite());
        for steps in both {
            prop_assert_eq!(bits(steps, batch), expected);
            prop_assert_eq!(bits(steps, shuffled), expected);
        }
        if both[0].tables.is_none() {
            prop_assert_eq!(both[0].estimate_unchecked(batch).step_time_us.to_bits(), expected[0]);
        }
    }
    Ok(())
}

fn decode() -> impl Strategy<Value = Request> {
    prop_oneof![
        20 => (1u32..9000).prop_map(Request::decode),
        1 => (1u32..9000).prop_map(|computed| Request::new(computed, 1, false)),
        1 => prop_oneof![Just((1u32 << 24) - 1), Just(1 << 24), Just((1 << 24) + 1), Just(u32::MAX)].prop_map(Request::decode),
    ]
}

/// What is no decode: chunks, first tokens, and requests that schedule nothing.
fn other() -> impl Strategy<Value = Request> {
    let computed = prop_oneof![3 => 0u32..9000, 1 => Just(0u32), 1 => Just(u32::MAX)];
    let scheduled = prop_oneof![3 => 2u32..5000, 2 => Just(0u32), 1 => Just(u32::MAX)];
    prop_oneof![
        4 => (computed, scheduled, any::<bool>()).prop_map(|(c, q, samples)| Request::new(c, q, samples)),
        1 => any::<bool>().prop_map(|samples| Request::new(0, 1, samples)),
    ]
}

/// Decodes of one kind, with a few other requests before, behind and among them.
fn decodes_among_others() -> impl Strategy<Value = Vec<Request>> {
    let count = prop_oneof![Just(0usize), Just(7), Just(8), Just(9), Just(32), 0usize..70, Just(1023), Just(1025)];
    let alike = (decode(), count.clone()).prop_map(|(decode, count)| vec![decode; count]);
    let plain = count.prop_flat_map(|count| prop::collection::vec((1u32..9000).prop_map(Request::decode), count));
    let mixed = prop::collection::vec(decode(), 0..70);
    let others = || prop::collection::vec(other(), 0..3);
    (others(), prop_oneof![alike, plain, mixed], others(), any::<prop::sample::Index>()).prop_map(
        |(mut batch, decodes, others, cut)| {
            let (before, behind) = decodes.split_at(cut.index(decodes.len() + 1));
            // At the end half of the time: that is where engines put them.
            let (among, last) = if cut.index(2) == 0 { (others, Vec::new()) } else { (Vec::new(), others) };
            [before, &among[..], behind, &last[..]].iter().for_each(|part| batch.extend_from_slice(part));
            batch
        },
    )
}

fn batch() -> impl Strategy<Value = Vec<Request>> {
    prop_oneof![4 => decodes_among_others(), 1 => any_batch(), 1 => absurd_batch()]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn all_ways_and_lanes_give_the_same_bits(
        (batch, shuffled) in batch().prop_flat_map(|batch| (Just(batch.clone()), Just(batch).prop_shuffle())),
    ) {
        agree(&batch, &shuffled)?;
    }
}

#[test]
fn batches_at_the_edges_give_the_same_bits_all_ways() {
    let (chunk, first, idle) = (Request::partial_prefill(512, 0), Request::prefill(1, 0), Request::new(9, 0, true));
    for count in [0, 1, 7, 8, 9, 31, 32, 33, 1023, 1024, 1025, 1032] {
        for computed in [1, 700, 1 << 24, (1 << 24) + 1, u32::MAX] {
            let decodes = vec![Request::decode(computed); count];
            for (before, behind) in [
                (&[][..], &[][..]),
                (&[chunk], &[]),
                (&[], &[chunk]),
                (&[chunk], &[chunk]),
                (&[first], &[]),
                (&[], &[first]),
                (&[idle], &[]),
                (&[], &[idle]),
                (&[idle], &[chunk]),
                (&[chunk], &[idle]),
                (&[idle, chunk], &[idle]),
            ] {
                let batch = [before, &decodes[..], behind].concat();
                let reversed: Vec<Request> = batch.iter().rev().copied().collect();
                agree(&batch, &reversed).unwrap();
            }
        }
    }
}

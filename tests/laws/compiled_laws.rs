//! Laws of compiled steps: they agree with their operators for other deployments, borrowed tables and batches beyond the tables, are
//! never below the roofline bound, and give the same bits in any form and thread.

use crate::batches;

use std::sync::LazyLock;

use batches::{absurd_batch, any_batch, any_request};
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::TestCaseResult;
use ridgepoint::{Deployment, EfficiencyMode, Hardware, Model, Options, Request, RequestColumns, StepModel};

/// Largest relative difference that compiling may make.
const TOLERANCE: f64 = 1e-3;
/// How far below the roofline's bound interpolation may fall where a kernel takes just that: 1.1e-9 in 400,000 random steps.
const BELOW_BOUND: f64 = 1e-7;

fn config(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

/// A step model and what it is.
type Named = (String, StepModel);

fn named(model: &str, gpu: &str, deployment: &Deployment, options: &Options) -> Named {
    let (found, hardware) = (Model::find(model).unwrap(), Hardware::find(gpu).unwrap());
    let steps = StepModel::with_options(&found, &hardware, deployment, options).unwrap();
    (format!("{model} on {gpu} with {deployment:?}, {:?}", options.efficiency), steps)
}

/// On the GPU with tables of its own, in deployments other than plain tensor parallelism.
static DEPLOYED: LazyLock<Vec<Named>> = LazyLock::new(|| {
    let tensor_parallel = Deployment::tensor_parallel;
    let eager = |gpus| Deployment { enforce_eager: true, ..tensor_parallel(gpus) };
    let experts = |gpus| Deployment { enable_expert_parallel: true, ..tensor_parallel(gpus) };
    [
        ("llama-3.1-8b", eager(1)),
        ("gemma-3-27b", eager(2)),
        ("llama-3.1-70b", Deployment { pipeline_parallel_size: 2, ..tensor_parallel(4) }),
        ("gpt-oss-120b", Deployment { pipeline_parallel_size: 2, ..eager(2) }),
        ("llama-3.1-8b", Deployment { max_num_seqs: 4, max_num_batched_tokens: 512, ..tensor_parallel(1) }),
        ("llama-4-scout", Deployment { max_num_seqs: 24, ..tensor_parallel(8) }),
        ("mixtral-8x7b", experts(2)),
        ("qwen3-30b-a3b", Deployment { data_parallel_size: 4, ..experts(1) }),
        ("deepseek-v3", experts(8)),
        ("qwen3-next-80b-a3b-instruct", eager(4)),
        ("nemotron-3-nano-30b-a3b", Deployment { pipeline_parallel_size: 2, ..tensor_parallel(2) }),
        ("deepseek-v3", Deployment { data_parallel_size: 2, enforce_eager: true, ..experts(4) }),
    ]
    .iter()
    .map(|(model, deployment)| named(model, "h100", deployment, &Options::uncorrected()))
    .collect()
});

/// On GPUs without tables, and the textbook roofline.
static BORROWED: LazyLock<Vec<Named>> = LazyLock::new(|| {
    let ideal = Options { efficiency: EfficiencyMode::Ideal, ..Options::default() };
    [
        ("llama-3.1-8b", "l40s", 1, &Options::uncorrected()),
        ("gemma-3-27b", "l40s", 2, &Options::uncorrected()),
        ("gpt-oss-120b", "b200", 1, &Options::uncorrected()),
        ("deepseek-v3", "b200", 8, &Options::uncorrected()),
        ("deepseek-v3.2", "b200", 8, &Options::uncorrected()),
        ("llama-3.1-70b", "a100", 4, &Options::uncorrected()),
        ("llama-3.1-70b", "h100", 4, &ideal),
        ("gemma-3-27b", "h100", 2, &ideal),
        ("deepseek-v3", "h200", 8, &ideal),
        ("qwen3.5-27b", "b200", 2, &Options::uncorrected()),
        ("nemotron-3-nano-30b-a3b", "h100", 1, &ideal),
    ]
    .iter()
    .map(|(model, gpu, gpus, options)| named(model, gpu, &Deployment::tensor_parallel(*gpus), options))
    .collect()
});

/// One model of each kind: a full window, windows of both kinds, latent attention, layers with a state.
static KINDS: LazyLock<Vec<Named>> = LazyLock::new(|| {
    [
        ("llama-3.1-8b", 1),
        ("gemma-3-27b", 2),
        ("gpt-oss-120b", 2),
        ("llama-4-scout", 8),
        ("deepseek-v3", 8),
        ("glm-5.2-fp8", 8),
        ("qwen3.5-27b", 2),
    ]
    .iter()
    .map(|(model, gpus)| named(model, "h100", &Deployment::tensor_parallel(*gpus), &Options::uncorrected()))
    .collect()
});

fn one_of(models: &[Named], which: Index) -> &Named {
    &models[which.index(models.len())]
}

/// Decodes with a chunk or a few among them, or nothing but decodes.
fn step() -> impl Strategy<Value = Vec<Request>> {
    let decode = prop_oneof![3 => 1u32..4000, 1 => 4000u32..60_000].prop_map(Request::decode);
    let chunk = (prop_oneof![3 => Just(0u32), 1 => 1u32..9000], 1u32..4000, any::<bool>());
    let chunk = chunk.prop_map(|(c, q, samples)| Request::new(c, q, samples));
    (prop::collection::vec(chunk, 0..4), prop::collection::vec(decode, 0..300))
        .prop_map(|(chunks, decodes)| [chunks, decodes].concat())
}

fn agree((name, steps): &Named, batch: &[Request]) -> TestCaseResult {
    let (compiled, by_operator) = (steps.step_time_us(batch), steps.estimate_unchecked(batch).step_time_us);
    prop_assert!(
        (compiled - by_operator).abs() <= TOLERANCE * by_operator,
        "{name}: {compiled} for {by_operator} µs: {:+.3} %",
        100.0 * (compiled / by_operator - 1.0)
    );
    Ok(())
}

/// Bits of a step's time by slice, columns and sums.
fn three_ways(steps: &StepModel, batch: &[Request]) -> [u64; 3] {
    let computed: Vec<u32> = batch.iter().map(|r| r.num_computed_tokens).collect();
    let scheduled: Vec<u32> = batch.iter().map(|r| r.num_scheduled_tokens).collect();
    let samples: Vec<bool> = batch.iter().map(|r| r.samples).collect();
    let columns = RequestColumns::new(&computed, &scheduled).unwrap().with_samples(&samples).unwrap();
    let mut state = steps.state();
    batch.iter().for_each(|request| state.add(request));
    [steps.step_time_us(batch), steps.step_time_us(&columns), steps.step_time_us(&state)].map(f64::to_bits)
}

proptest! {
    #![proptest_config(config(1500))]

    #[test]
    fn other_deployments_agree_with_their_operators(batch in step(), which in any::<Index>()) {
        agree(one_of(&DEPLOYED, which), &batch)?;
    }

    #[test]
    fn borrowed_tables_and_ideal_kernels_agree_with_their_operators(batch in step(), which in any::<Index>()) {
        agree(one_of(&BORROWED, which), &batch)?;
    }

    #[test]
    fn no_step_is_faster_than_its_bound(batch in prop_oneof![step(), any_batch()], which in any::<Index>()) {
        let models = [&DEPLOYED[..], &BORROWED[..], &KINDS[..]];
        let (name, steps) = one_of(models[batch.len() % 3], which);
        let (time_us, bound_us) = (steps.step_time_us(&batch), steps.estimate_unchecked(&batch).bound_us);
        prop_assert!(time_us >= bound_us * (1.0 - BELOW_BOUND), "{name}: {time_us} under {bound_us} µs");
    }
}

proptest! {
    #![proptest_config(config(400))]

    #[test]
    fn a_chunk_costs_the_same_wherever_it_stands(
        decodes in prop::collection::vec((1u32..20_000).prop_map(Request::decode), 1..300),
        chunk in (0u32..9000, 2u32..8000).prop_map(|(c, q)| Request::prefill(q, c)),
        place in any::<Index>(),
    ) {
        for (name, steps) in KINDS.iter() {
            let first = steps.step_time_us(&[&[chunk][..], &decodes].concat());
            let mut among = decodes.clone();
            among.insert(place.index(decodes.len() + 1), chunk);
            for batch in [among, [&decodes[..], &[chunk]].concat()] {
                prop_assert_eq!(steps.step_time_us(&batch).to_bits(), first.to_bits(), "{}", name);
            }
        }
    }

    #[test]
    fn what_schedules_nothing_is_left_out(
        batch in step(), idle in prop::collection::vec((any::<u32>(), any::<Index>()), 1..20), which in any::<Index>(),
    ) {
        let (name, steps) = one_of(&KINDS, which);
        let mut with_idle = batch.clone();
        for (computed, place) in idle {
            with_idle.insert(place.index(with_idle.len() + 1), Request::new(computed, 0, true));
        }
        let expected = [steps.step_time_us(&batch).to_bits(); 3];
        prop_assert_eq!(three_ways(steps, &with_idle), expected, "{}", name);
    }

    #[test]
    fn a_state_forgets_what_happened_to_it(
        first in prop::collection::vec(any_request(), 0..60),
        changes in prop::collection::vec((0..4, any::<Index>(), any_request()), 0..80),
        which in any::<Index>(),
    ) {
        let (name, steps) = one_of(&KINDS, which);
        let mut batch = first;
        let mut state = steps.state();
        batch.iter().for_each(|request| state.add(request));
        for (change, place, request) in changes {
            if change == 0 || batch.is_empty() {
                state.add(&request);
                batch.push(request);
                continue;
            }
            let at = place.index(batch.len());
            match change {
                1 => state.remove(&batch.swap_remove(at)),
                2 => state.advance(&mut batch[at]),
                _ => state.replace(&std::mem::replace(&mut batch[at], request), &request),
            }
        }
        let mut fresh = steps.state();
        batch.iter().for_each(|request| fresh.add(request));
        prop_assert_eq!(state, fresh, "{}", name);
        prop_assert_eq!(state.num_requests(), batch.len() as u64);
        let expected = steps.step_time_us(&batch).to_bits();
        prop_assert_eq!(steps.step_time_us(&state).to_bits(), expected, "{}", name);
    }

    #[test]
    fn absurd_batches_are_finite_and_agree_with_their_operators(batch in absurd_batch(), which in any::<Index>()) {
        let named = one_of(&KINDS, which);
        prop_assert!(named.1.step_time_us(&batch).is_finite());
        agree(named, &batch)?;
    }
}

#[test]
fn nothing_to_do_takes_no_time() {
    for (name, steps) in KINDS.iter().chain(DEPLOYED.iter()).chain(BORROWED.iter()) {
        for batch in [&[][..], &[Request::new(9, 0, true); 5]] {
            assert_eq!(three_ways(steps, batch), [0.0f64.to_bits(); 3], "{name}");
        }
        let mut state = steps.state();
        state.add(&Request::decode(100));
        state.remove(&Request::decode(100));
        assert_eq!(steps.step_time_us(&state).to_bits(), 0.0f64.to_bits(), "{name}");
    }
}

#[test]
fn single_chunks_of_any_length_and_context_agree_with_their_operators() {
    let contexts = (0..4000u32).step_by(61).chain((4000..60_000).step_by(1777));
    let contexts: Vec<u32> = contexts.collect();
    let mut beyond = Vec::new();
    let models =
        [("llama-3.1-8b", 1), ("llama-3.1-70b", 4), ("qwen3-32b-fp8", 2), ("qwen3-30b-a3b", 1), ("mixtral-8x7b", 2)];
    for (model, gpus) in models {
        let (name, steps) = named(model, "h100", &Deployment::tensor_parallel(gpus), &Options::uncorrected());
        let mut worst = (0.0, String::new());
        for chunk in (2..80).chain([100, 127, 128, 129, 200, 300, 512, 1000, 2048, 8000]) {
            for (context, num_decodes) in contexts.iter().flat_map(|context| [0, 1, 64].map(|count| (*context, count)))
            {
                let mut batch = vec![Request::decode(1000); num_decodes];
                batch.push(Request::prefill(chunk, context));
                let difference = steps.step_time_us(&batch) / steps.estimate_unchecked(&batch).step_time_us - 1.0;
                if difference.abs() > worst.0 {
                    worst = (difference.abs(), format!("{chunk} tokens after {context} with {num_decodes} decodes"));
                }
            }
        }
        if worst.0 > TOLERANCE {
            beyond.push(format!("{name}: {:.3} % for {}", 100.0 * worst.0, worst.1));
        }
    }
    assert!(beyond.is_empty(), "{beyond:#?}");
}

#[test]
fn eight_threads_get_the_same_bits() {
    let batches: Vec<Vec<Request>> = (0..200u32)
        .map(|i| {
            let decodes = (0..i).map(|j| Request::decode(1 + 37 * j + 1000 * (i % 7)));
            let chunks = (0..i % 4).map(|j| Request::new(500 * j, 1 + 97 * (i + j), j == 0));
            chunks.chain(decodes).collect()
        })
        .collect();
    let all = |steps: &StepModel| -> Vec<[u64; 3]> { batches.iter().map(|batch| three_ways(steps, batch)).collect() };
    for (name, steps) in KINDS.iter() {
        let expected = all(steps);
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(|| all(steps))).collect();
            for thread in threads {
                assert_eq!(thread.join().unwrap(), expected, "{name}");
            }
        });
    }
}

#[test]
fn batches_beyond_the_tables_are_those_of_the_operators() {
    let beyond = [
        ("5,000 decodes", vec![Request::decode(700); 5000]),
        ("a context of 10 million tokens", vec![Request::decode(10_000_000)]),
        ("a chunk after 10 million tokens", vec![Request::prefill(512, 10_000_000)]),
        ("10 million tokens in a step", vec![Request::prefill(10_000_000, 0), Request::decode(5)]),
        ("the longest decode", vec![Request::decode(u32::MAX)]),
        ("the longest chunk", vec![Request::prefill(u32::MAX, 0)]),
        ("the longest of all", vec![Request::prefill(u32::MAX, u32::MAX); 3]),
        ("the longest with others", [vec![Request::decode(u32::MAX)], vec![Request::decode(9); 64]].concat()),
        ("5,000 of the longest decodes", vec![Request::decode(u32::MAX); 5000]),
        ("5,000 chunks", vec![Request::prefill(9, 30); 5000]),
    ];
    for (name, steps) in KINDS.iter() {
        for (what, batch) in &beyond {
            let (time_us, bound_us) = (steps.step_time_us(batch), steps.estimate_unchecked(batch).bound_us);
            let by_operator_us = steps.estimate_unchecked(batch).step_time_us;
            assert!(time_us.is_finite() && time_us > 0.0, "{name}, {what}: {time_us} µs");
            assert!(
                (time_us / by_operator_us - 1.0).abs() <= TOLERANCE,
                "{name}, {what}: {time_us} for {by_operator_us} µs"
            );
            assert!(time_us >= bound_us * (1.0 - BELOW_BOUND), "{name}, {what}: {time_us} under {bound_us} µs");
            assert_eq!(three_ways(steps, batch), [time_us.to_bits(); 3], "{name}, {what}");
        }
    }
}

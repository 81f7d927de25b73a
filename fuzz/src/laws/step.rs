//! Laws of a step's time: finite, inside its interval, not below its roofline, the sum of its operators, and the same bits in every
//! form and order of its requests.

use std::sync::LazyLock;

use arbitrary::{Result, Unstructured};
use ridgepoint::{Deployment, Hardware, Model, Options, Request, RequestColumns, StepModel};

use crate::sane;

/// Most requests of a case.
const MOST_REQUESTS: usize = 100;

/// Largest relative difference between lookup tables and operators.
const TOLERANCE: f64 = 0.01;

/// Models of all kinds, on GPUs with tables and without.
static STEPS: LazyLock<Vec<StepModel>> = LazyLock::new(|| {
    let parallel = Deployment::tensor_parallel;
    let experts = |gpus| Deployment { enable_expert_parallel: true, ..parallel(gpus) };
    [
        ("llama-3.1-8b", "h100", parallel(1), Options::default()),
        ("gemma-3-27b", "h100", parallel(2), Options::uncorrected()),
        ("gpt-oss-120b", "h200", parallel(2), Options::default()),
        ("llama-4-scout", "h100", parallel(8), Options::default()),
        ("deepseek-v3", "h200", experts(8), Options::default()),
        ("llama-3.1-70b", "a100", Deployment { pipeline_parallel_size: 2, ..parallel(4) }, Options::uncorrected()),
        ("mixtral-8x7b", "h100", Deployment { enforce_eager: true, ..experts(2) }, Options::default()),
        ("qwen3-30b-a3b", "l40s", Deployment { data_parallel_size: 4, ..experts(1) }, Options::uncorrected()),
        ("qwen3-32b-fp8", "b200", parallel(1), sane::ideal()),
    ]
    .into_iter()
    .map(|(model, gpu, deployment, options)| {
        let (model, gpu) = (Model::find(model).unwrap(), Hardware::find(gpu).unwrap());
        StepModel::with_options(&model, &gpu, &deployment, &options).unwrap()
    })
    .collect()
});

fn length(from: &mut Unstructured<'_>) -> Result<u32> {
    Ok(match from.int_in_range(0..=9)? {
        0 => from.arbitrary()?,
        1..=3 => from.int_in_range(0..=16)?,
        4..=7 => from.int_in_range(0..=8192)?,
        _ => from.int_in_range(0..=200_000)?,
    })
}

fn request(from: &mut Unstructured<'_>) -> Result<Request> {
    Ok(match from.int_in_range(0..=3)? {
        0 => Request::new(length(from)?, length(from)?, from.arbitrary()?),
        1 => Request::prefill(length(from)?, length(from)?),
        _ => Request::decode(length(from)?.max(1)),
    })
}

fn case(from: &mut Unstructured<'_>) -> Result<(&'static StepModel, Vec<Request>)> {
    let steps = from.choose(&STEPS)?;
    let mut batch = Vec::new();
    while !from.is_empty() && batch.len() < MOST_REQUESTS {
        let times = if from.ratio(1, 8)? { from.int_in_range(1..=300)? } else { 1 };
        batch.extend(std::iter::repeat_n(request(from)?, times));
    }
    Ok((steps, batch))
}

/// Checks the laws on the batch that the bytes stand for.
pub fn law(bytes: &[u8]) {
    let Ok((steps, mut batch)) = case(&mut Unstructured::new(bytes)) else { return };
    let expected = in_all_forms(steps, &batch);
    let step = steps.estimate_unchecked(&batch);
    sane::estimate(&step);
    let has_work = batch.iter().any(|request| request.num_scheduled_tokens > 0);
    assert_eq!(expected > 0.0, has_work, "{expected} µs for {batch:?}");
    assert!(expected.is_finite() && expected >= step.bound_us * (1.0 - sane::REL_SUMMATION_ORDER), "{expected} µs");
    let difference = (expected - step.step_time_us).abs();
    assert!(difference <= TOLERANCE * step.step_time_us, "{expected} by tables, {} by operators", step.step_time_us);
    if let Ok(checked) = steps.estimate(&batch) {
        assert_eq!(checked.step_time_us.to_bits(), step.step_time_us.to_bits(), "a checked estimate differs");
    }
    batch.reverse();
    assert_eq!(in_all_forms(steps, &batch).to_bits(), expected.to_bits(), "another order");
}

/// The time of a batch, which is the same as a slice, as columns and as a state.
fn in_all_forms(steps: &StepModel, batch: &[Request]) -> f64 {
    let computed: Vec<u32> = batch.iter().map(|request| request.num_computed_tokens).collect();
    let scheduled: Vec<u32> = batch.iter().map(|request| request.num_scheduled_tokens).collect();
    let samples: Vec<bool> = batch.iter().map(|request| request.samples).collect();
    let columns = RequestColumns::new(&computed, &scheduled).unwrap().with_samples(&samples).unwrap();
    let mut state = steps.state();
    batch.iter().for_each(|request| state.add(request));
    let time_us = steps.step_time_us(batch);
    assert_eq!(steps.step_time_us(&columns).to_bits(), time_us.to_bits(), "columns differ");
    assert_eq!(steps.step_time_us(&state).to_bits(), time_us.to_bits(), "the state differs");
    batch.iter().for_each(|request| state.remove(request));
    assert_eq!(steps.step_time_us(&state).to_bits(), 0.0f64.to_bits(), "an emptied state takes time");
    time_us
}

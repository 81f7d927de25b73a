//! A compiled step is within 0.1 % of its operators one by one, and gives the same bits for every form of the batch.

use proptest::prelude::*;
use ridgepoint::{CudagraphMode, Deployment, Engine, Hardware, Model, Options, Request, StepModel};

/// Largest relative difference that compiling may make.
const TOLERANCE: f64 = 1e-3;

/// Models that between them have every operator: dense, quantised, windows of both kinds, experts, latent attention, layers
/// with a state.
const MODELS: [(&str, u32); 11] = [
    ("llama-3.1-8b", 1),
    ("llama-3.1-70b", 4),
    ("qwen3-32b-fp8", 2),
    ("mixtral-8x7b", 2),
    ("llama-4-scout", 8),
    ("gpt-oss-120b", 2),
    ("gemma-3-27b", 2),
    ("deepseek-v3", 8),
    ("deepseek-v3.2", 8),
    ("qwen3.5-397b-a17b", 8),
    ("nemotron-3-nano-30b-a3b", 1),
];

fn step_model(model: &str, deployment: &Deployment, correction: &str) -> StepModel {
    of_engine(Engine::default(), model, deployment, correction)
}

fn of_engine(engine: Engine, model: &str, deployment: &Deployment, correction: &str) -> StepModel {
    let model = Model::find(model).unwrap();
    let options = Options { correction: correction.into(), engine, ..Options::default() };
    StepModel::with_options(&model, &Hardware::find("h100").unwrap(), deployment, &options).unwrap()
}

fn decodes(most: usize) -> impl Strategy<Value = Vec<Request>> {
    let length = prop_oneof![1u32..200, 200u32..8000, 8000u32..120_000];
    (length, 1..most).prop_flat_map(|(length, count)| {
        let each = (length / 2 + 1..=length * 3 / 2 + 1).prop_map(Request::decode);
        proptest::collection::vec(each, count)
    })
}

fn chunks() -> impl Strategy<Value = Vec<Request>> {
    let length = prop_oneof![2u32..64, 64u32..700, 700u32..8000];
    let computed = prop_oneof![3 => Just(0u32), 2 => 1u32..2000, 1 => 2000u32..60_000];
    let chunk = (length, computed, any::<bool>()).prop_map(|(q, c, samples)| Request::new(c, q, samples));
    prop_oneof![4 => proptest::collection::vec(chunk.clone(), 1..2), 1 => proptest::collection::vec(chunk, 1..12)]
}

fn batch() -> impl Strategy<Value = Vec<Request>> {
    let mixed = (chunks(), decodes(200)).prop_map(|(chunks, decodes)| [chunks, decodes].concat());
    prop_oneof![4 => decodes(256), 1 => chunks(), 4 => mixed]
}

fn all_models(correction: &str) -> Vec<StepModel> {
    let models = MODELS.iter();
    models.map(|(model, gpus)| step_model(model, &Deployment::tensor_parallel(*gpus), correction)).collect()
}

/// Small models whose steps wait for launches, in each mode, and captured sizes of one's own.
fn launched_otherwise() -> Vec<StepModel> {
    use CudagraphMode::{Full, FullDecodeOnly, None, Piecewise};
    let modes = [Full, FullDecodeOnly, None, Piecewise];
    let modes = modes.map(|mode| Deployment { cudagraph_mode: Some(mode), ..Deployment::default() });
    let sizes = [vec![3, 100, 704], vec![5, 700]];
    let sizes = sizes.map(|sizes| Deployment { cudagraph_capture_sizes: sizes, ..Deployment::default() });
    let eager = Deployment { enforce_eager: true, ..Deployment::default() };
    let all = modes.into_iter().chain(sizes).chain([eager]);
    all.map(|deployment| step_model("qwen2.5-0.5b", &deployment, "auto")).collect()
}

/// Models that truncate logits or have shared experts, under versions of vLLM that search, that draw, and that have one stream.
fn other_versions() -> Vec<StepModel> {
    let versions = ["0.11", "0.19", "0.24"].map(|version| Engine::parse("vllm", Some(version)).unwrap());
    let of = |engine: &Engine| {
        [("qwen2.5-7b", 1), ("minimax-m2.5", 4), ("deepseek-r1", 8)]
            .map(|(model, gpus)| of_engine(engine.clone(), model, &Deployment::tensor_parallel(gpus), "auto"))
    };
    versions.iter().flat_map(of).collect()
}

fn agree(steps: &StepModel, batch: &[Request]) -> std::result::Result<(), TestCaseError> {
    let (compiled, by_operator) = (steps.step_time_us(batch), steps.estimate_unchecked(batch).step_time_us);
    let difference = compiled / by_operator - 1.0;
    prop_assert!(difference.abs() <= TOLERANCE, "{compiled} for {by_operator} µs: {:+.3} %", 100.0 * difference);
    Ok(())
}

#[test]
fn compiled_steps_agree_with_their_operators() {
    let models = [all_models("none"), all_models("auto"), launched_otherwise(), other_versions()].concat();
    proptest!(ProptestConfig::with_cases(3000), |(batch in batch(), which in 0..models.len())| {
        agree(&models[which], &batch)?;
    });
}

#[test]
fn layers_with_a_state_are_refused_by_the_export_by_name() {
    let (model, hardware) = (Model::find("qwen3.5-27b").unwrap(), Hardware::find("h100").unwrap());
    let deployment = Deployment::tensor_parallel(2);
    let steps = StepModel::new(&model, &hardware, &deployment).unwrap();
    let error = steps.exported(&model, &hardware, &deployment).err().map(|error| error.to_string()).unwrap_or_default();
    assert!(error.contains("qwen3.5-27b") && error.contains("layers with a state"), "{error}");
}

//! The library as a program calls it: its interface, hand-worked numbers, and predictions that must not move unnoticed.
//! `RIDGEPOINT_REGENERATE=1 cargo test --test laws library` writes the latter again; a change of them belongs in the changelog.

use crate::compare;

use std::path::PathBuf;

use compare::is_rel;
use ridgepoint::physics::GraphMode;
use ridgepoint::{
    Deployment, EfficiencyMode, Engine, Error, Hardware, Model, OperatorGroup, Options, Provenance, Request,
    StepEstimate, StepModel,
};
use serde::{Deserialize, Serialize};

/// Between a prediction and the golden one: four decimals of a microsecond are kept, and elementary functions differ a little
/// between platforms.
const REL_GOLDEN: f64 = 1e-6;
/// A formula evaluated in another order.
const REL_SAME_FORMULA: f64 = 1e-12;

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Golden {
    about: String,
    regenerate: String,
    generated: String,
    predictions: Vec<Prediction>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Prediction {
    model: String,
    hardware: String,
    tensor_parallel_size: u32,
    batch: Vec<Group>,
    step_time_us: f64,
}

/// Requests that are alike.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Group {
    requests: usize,
    num_computed_tokens: u32,
    num_scheduled_tokens: u32,
}

impl Prediction {
    fn predict(&self) -> f64 {
        let model = Model::find(&self.model).expect("built in");
        let hardware = Hardware::find(&self.hardware).expect("built in");
        let deployment = Deployment::tensor_parallel(self.tensor_parallel_size);
        let options = Options { engine: Engine::fitted(), ..Options::uncorrected() };
        let step_model =
            StepModel::with_options(&model, &hardware, &deployment, &options).expect("a possible deployment");
        let requests = |g: &Group| vec![Request::prefill(g.num_scheduled_tokens, g.num_computed_tokens); g.requests];
        let batch: Vec<Request> = self.batch.iter().flat_map(requests).collect();
        step_model.estimate(&batch).expect("a possible batch").step_time_us
    }

    fn holds(&self) -> bool {
        is_rel(self.predict(), self.step_time_us, REL_GOLDEN)
    }
}

fn golden_path() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/predictions.json")
}

fn golden() -> Golden {
    let text = std::fs::read_to_string(golden_path()).expect("the golden file");
    serde_json::from_str(&text).expect("as written by this test")
}

#[test]
fn predictions_are_those_of_the_golden_file() {
    let mut golden = golden();
    if std::env::var_os("RIDGEPOINT_REGENERATE").is_some() {
        for prediction in &mut golden.predictions {
            prediction.step_time_us = (prediction.predict() * 1e4).round() / 1e4;
        }
        let text = serde_json::to_string_pretty(&golden).expect("plain data");
        std::fs::write(golden_path(), text + "\n").expect("written");
        return;
    }
    assert!(golden.predictions.len() >= 20);
    let moved: Vec<String> =
        golden.predictions.iter().filter(|p| !p.holds()).map(|p| format!("{} µs now: {p:?}", p.predict())).collect();
    assert!(
        moved.is_empty(),
        "{} predictions moved; if they should, `{}`:\n{}",
        moved.len(),
        golden.regenerate,
        moved.join("\n")
    );
}

#[test]
fn a_golden_number_that_is_off_is_noticed() {
    for mut prediction in golden().predictions.into_iter().step_by(5) {
        let kept = prediction.step_time_us;
        for factor in [1.0 + 3.0 * REL_GOLDEN, 1.0 - 3.0 * REL_GOLDEN, 2.0, 0.0, f64::NAN] {
            prediction.step_time_us = kept * factor;
            assert!(!prediction.holds(), "a factor of {factor} went unnoticed: {prediction:?}");
        }
    }
}

#[test]
fn the_interface_is_the_documented_one() {
    let new: fn(&Model, &Hardware, &Deployment) -> Result<StepModel, Error> = StepModel::new;
    let estimate: fn(&StepModel, &[Request]) -> Result<StepEstimate, Error> = |steps, batch| steps.estimate(batch);
    let model = Model::find("meta-llama/Llama-3.1-8B-Instruct").expect("built in");
    let step_model = new(&model, &Hardware::find("H100").expect("built in"), &Deployment::default()).expect("fits");
    let mut batch = vec![Request::decode(2048); 64];
    let decodes = estimate(&step_model, &batch).expect("a possible batch");
    batch.push(Request::prefill(512, 0));
    let mixed = estimate(&step_model, &batch).expect("a possible batch");
    assert!(decodes.bound_us < decodes.step_time_us && decodes.step_time_us < mixed.step_time_us);
    assert_eq!((decodes.graph_mode, decodes.padded_tokens), (GraphMode::Full, 64));
    // 64 + 512 tokens are more than the largest captured graph.
    assert_eq!((mixed.graph_mode, mixed.padded_tokens), (GraphMode::None, 576));
    assert!(mixed.groups().iter().any(|of| of.group == Some(OperatorGroup::AttentionPrefill) && of.time_us > 0.0));
    assert!(decodes.groups().iter().all(|of| of.group != Some(OperatorGroup::AttentionPrefill)));
    // 64 rows of 6144 outputs and 4096 inputs were measured; an attention over 2049 keys was not.
    let provenance = |name: &str| decodes.operators.iter().find(|o| o.name == name).map(|o| o.provenance);
    assert_eq!(provenance("qkv_proj"), Some(Provenance::Measured));
    assert_eq!(provenance("attention_decode"), Some(Provenance::Interpolated));
}

#[test]
fn the_bound_is_the_hand_worked_one() {
    let model = Model::find("llama-3.1-8b").expect("built in");
    let hardware = Hardware::find("h100").expect("built in");
    let options = Options { efficiency: EfficiencyMode::Ideal, ..Options::default() };
    let ideal = StepModel::with_options(&model, &hardware, &Deployment::default(), &options).expect("fits");
    let step = ideal.estimate_unchecked(&[Request::decode(2048); 64]);
    let operator = |name: &str| *step.operators.iter().find(|o| o.name == name).expect("in every step");

    // 64 · 2049 keys and values of 8 heads of 128, and 64 queries and outputs of 32 heads, 2 bytes each, in 32 layers.
    let attention_bytes = 32.0 * 2.0 * (64.0 * 2049.0 * 2.0 * 8.0 * 128.0 + 64.0 * 2.0 * 32.0 * 128.0);
    let attention = operator("attention_decode");
    assert!(is_rel(attention.bytes, attention_bytes, REL_SAME_FORMULA), "{attention:?}");
    assert!(is_rel(attention.time_us, attention_bytes / 3.35e12 * 1e6, REL_SAME_FORMULA), "{attention:?}");

    // Gate and up: 4096 × 28672 weights, 64 rows in and out.
    let gate_up = operator("gate_up_proj");
    let gate_up_bytes = 32.0 * 2.0 * (4096.0 * 28_672.0 + 64.0 * 4096.0 + 64.0 * 28_672.0);
    assert!(is_rel(gate_up.time_us, gate_up_bytes / 3.35e12 * 1e6, REL_SAME_FORMULA), "{gate_up:?}");
    assert!(is_rel(gate_up.flops, 32.0 * 2.0 * 64.0 * 4096.0 * 28_672.0, REL_SAME_FORMULA), "{gate_up:?}");

    // A prompt's gate and up is bound by the matrix units: 2·8192·4096·28672 FLOP a layer at 989.4 TFLOP/s.
    let prompt = ideal.estimate_unchecked(&[Request::prefill(8192, 0)]);
    let gate_up = *prompt.operators.iter().find(|o| o.name == "gate_up_proj").expect("in every step");
    let expected_us = 32.0 * 2.0 * 8192.0 * 4096.0 * 28_672.0 / 989.4e12 * 1e6;
    assert!(is_rel(gate_up.time_us, expected_us, REL_SAME_FORMULA), "{gate_up:?}");
}

#[test]
fn weights_beyond_the_memory_are_warned_of() {
    let warnings = |tensor_parallel_size| {
        let model = Model::find("llama-3.1-70b").unwrap();
        let deployment = Deployment::tensor_parallel(tensor_parallel_size);
        let steps = StepModel::new(&model, &Hardware::find("h100").unwrap(), &deployment).unwrap();
        steps.estimate_unchecked(&[Request::decode(100)]).warnings.join("\n")
    };
    // 70.55 billion weights of two bytes are 131.4 GiB; of 80 GiB the driver keeps a hundredth, and 0.9 of 79.2 are 71.3.
    assert!(warnings(1).contains("the weights take 131.4 GiB of each GPU, 60.1 GiB more"), "{}", warnings(1));
    assert!(!warnings(2).contains("weights take"), "{}", warnings(2));
}

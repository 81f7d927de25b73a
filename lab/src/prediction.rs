//! How steps are predicted, as flags and bodies of requests say it.

use std::path::Path;

use ridgepoint::arguments;
use ridgepoint::arguments::{ArgumentRows, Engines, Given, Kind, Section};
use ridgepoint::input::NumberRange;
use ridgepoint::{EfficiencyMode, Engine, Options};
use serde_json::Value;

arguments! {
    /// Settings of a prediction.
    #[derive(Debug, Clone, PartialEq)]
    pub struct Prediction,
    /// The rows of [`Prediction`].
    PREDICTION_ARGUMENTS of Section::Prediction;

    efficiency: String = "tables".to_owned(), "Kernel efficiencies: measured tables, or the ideal roofline",
        Kind::Name(&["tables", "ideal"]), engines(Engines::ALL), value("KIND"), default("tables");
    engine: String = "vllm".to_owned(), "Serving engine: its kernels, scheduler, memory and arguments",
        Kind::Name(&["vllm", "sglang", "trtllm"]), engines(Engines::ALL), value("NAME"), default("vllm");
    engine_version: Option<String> = None, "Engine version, as in 0.24. The nearest measured version is the fallback for one without measurements",
        Kind::Own(version), must_be("a version such as 0.24 or 0.24.0"), engines(Engines::ALL), value("X.Y"), default("the newest with kernels measured on the GPU");
    correction: String = "auto".to_owned(), "Correction fitted to engine runs: none, global, auto (the recommended one) or a file of `ridgepoint fit`",
        Kind::Text, engines(Engines::ALL), value("none|global|auto|FILE"), default("auto");
    power_limit_watt: Option<f64> = None, "Power limit of each GPU, W, as `nvidia-smi -pl` sets it; the clock and the peaks fall with it by an assumed rule",
        Kind::Number(NumberRange::above_zero(f64::MAX, "W")), engines(Engines::ALL), value("W"), default("the board's power");
    peer_access: Option<bool> = None, "Whether GPUs over PCIe read each other's memory; without it NCCL copies through the host",
        Kind::Switch, engines(Engines::ALL), default("what the GPU's file says, else true but for GeForce cards");
}

fn version(value: &Value) -> Option<Value> {
    let text = value.as_str().map(str::to_owned).or_else(|| value.is_number().then(|| value.to_string()))?;
    Engine::parse("vllm", Some(&text)).map(|_| text.into())
}

/// The engine of a name as runs and flags have it: `vllm-0.14` and `sglang-0.5`, or a version of vLLM by itself; `None` for any other.
pub fn engine_named(text: &str) -> Option<Engine> {
    Engine::parse(text, None).or_else(|| Engine::parse("vllm", Some(text)))
}

/// All arguments of a prediction.
pub fn prediction_arguments() -> ArgumentRows {
    ArgumentRows::new(&[PREDICTION_ARGUMENTS], Engines::ALL)
}

impl Prediction {
    /// The options of a step model with these settings.
    pub fn options(given: &Given, data_dir: Option<&Path>) -> Options {
        let Prediction { efficiency, engine, engine_version, correction, power_limit_watt, peer_access } =
            Prediction::from_given(given);
        let efficiency = if efficiency == "ideal" { EfficiencyMode::Ideal } else { EfficiencyMode::Tables };
        Options {
            efficiency,
            engine: Engine::parse(&engine, engine_version.as_deref()).unwrap_or_default(),
            data_dir: data_dir.map(Path::to_owned),
            correction: correction.as_str().into(),
            power_limit_watt,
            peer_access,
            ..Options::default()
        }
    }
}

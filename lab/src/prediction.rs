//! How steps are predicted, as flags and bodies of requests say it.

use std::path::Path;

use ridgepoint::arguments;
use ridgepoint::arguments::{ArgumentRows, Engines, Given, Kind, Section};
use ridgepoint::{EfficiencyMode, Engine, Options};
use serde_json::Value;

use crate::served::engine_of;

arguments! {
    /// Settings of a prediction.
    #[derive(Debug, Clone, PartialEq)]
    pub struct Prediction,
    /// The rows of [`Prediction`].
    PREDICTION_ARGUMENTS of Section::Prediction;

    efficiency: String = "tables".to_owned(), "Kernel efficiencies: measured tables, or the ideal roofline",
        Kind::Name(&["tables", "ideal"]), engines(Engines::ALL), value("KIND"), default("tables");
    engine: String = "vllm".to_owned(), "Serving engine whose kernels are predicted; the scheduler is always vLLM's",
        Kind::Name(&["vllm", "sglang", "trtllm"]), engines(Engines::ALL), value("NAME"), default("vllm");
    engine_version: Option<String> = None, "Engine version, as in 0.24. The nearest measured version is the fallback for one without measurements",
        Kind::Own(version), must_be("a version such as 0.24 or 0.24.0"), engines(Engines::ALL), value("X.Y"), default("0.15 for vllm, the newest measured one for others");
    correction: String = "auto".to_owned(), "Correction fitted to engine runs: none, global, auto (the recommended one) or a file of `ridgepoint fit`",
        Kind::Text, engines(Engines::ALL), value("none|global|auto|FILE"), default("auto");
}

fn version(value: &Value) -> Option<Value> {
    let text = value.as_str().map(str::to_owned).or_else(|| value.is_number().then(|| value.to_string()))?;
    Engine::parse("vllm", Some(&text)).map(|_| text.into())
}

/// All arguments of a prediction.
pub fn prediction_arguments() -> ArgumentRows {
    ArgumentRows::new(&[PREDICTION_ARGUMENTS], Engines::ALL)
}

impl Prediction {
    /// The options of a step model with these settings.
    pub fn options(given: &Given, data_dir: Option<&Path>) -> Options {
        let Prediction { efficiency, engine, engine_version, correction } = Prediction::from_given(given);
        let efficiency = if efficiency == "ideal" { EfficiencyMode::Ideal } else { EfficiencyMode::Tables };
        Options {
            efficiency,
            engine: engine_of(&engine, engine_version.as_deref()).unwrap_or_default(),
            data_dir: data_dir.map(Path::to_owned),
            correction: correction.as_str().into(),
            ..Options::default()
        }
    }
}

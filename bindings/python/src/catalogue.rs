//! Lists the built-in models and GPUs as JSON.

use pyo3::prelude::*;
use ridgepoint::correction::CorrectionInfo;
use ridgepoint::hardware::builtin_names;
use ridgepoint::model::builtin_models;
use ridgepoint::physics::ParameterCounts;
use ridgepoint::{CorrectionChoice, EfficiencyMode, Hardware, Model};
use serde::Serialize;

use crate::fault::{detached, raised, to_json};

#[derive(Serialize)]
struct ModelInfo<'a> {
    name: &'a str,
    hf_ids: &'a [String],
    model_type: String,
    num_layers: u64,
    parameters: ParameterCounts,
    weight_bytes: f64,
    max_position_embeddings: u64,
    correction: CorrectionInfo,
}

/// Lists the built-in models by name.
#[pyfunction]
pub fn models(py: Python<'_>) -> PyResult<String> {
    detached(py, || {
        let mut models = Vec::new();
        for builtin in builtin_models() {
            let model = Model::builtin(&builtin.name).map_err(raised)?;
            models.push(ModelInfo {
                name: &builtin.name,
                hf_ids: &builtin.hf_ids,
                model_type: model.model_type.clone(),
                num_layers: model.num_layers(),
                parameters: model.parameters(),
                weight_bytes: model.weight_bytes(),
                max_position_embeddings: model.max_position_embeddings,
                correction: CorrectionInfo::of(
                    CorrectionChoice::Auto.resolve(&model.name, EfficiencyMode::Tables).map_err(raised)?.as_deref(),
                ),
            });
        }
        to_json(&models)
    })
}

/// Lists the built-in GPUs by name.
#[pyfunction]
pub fn hardware(py: Python<'_>) -> PyResult<String> {
    detached(py, || {
        let gpus: Vec<Hardware> =
            builtin_names().into_iter().map(Hardware::builtin).collect::<ridgepoint::Result<_>>().map_err(raised)?;
        to_json(&gpus)
    })
}

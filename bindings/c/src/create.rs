//! Creates a model from names and texts.

use std::ffi::c_char;
use std::path::Path;

use ridgepoint::latency::{CalibratedRoofline, KvTransfers};
use ridgepoint::{CorrectionChoice, Deployment, EfficiencyMode, Hardware, Model, Options, StepModel};

use crate::handle::{Loaded, RidgepointModel};
use crate::options::{Choices, RidgepointOptions};
use crate::status::{Failure, RidgepointStatus, guarded};
use crate::text::{emptied, required};

/// Creates a model: `model` on `hardware`.
///
/// `model` is a built-in name ("llama-3.1-8b"), a Hugging Face id, or the path of a config.json or of its folder. `hardware` is
/// a built-in name ("h100") or the path of a TOML file. `options` may be NULL.
///
/// On success, *out_model is the model; free it with ridgepoint_model_free. On failure, it is NULL and *error says why.
///
/// Error texts, here and in all functions: `error` may be NULL. Otherwise *error is set to NULL on success, and on failure to a
/// text that the caller frees with ridgepoint_string_free. Its previous value is ignored.
///
/// # Safety
/// Texts are NULL or end with a zero byte; `out_model` and `error` are NULL or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ridgepoint_model_create(
    model: *const c_char,
    hardware: *const c_char,
    options: *const RidgepointOptions,
    out_model: *mut *mut RidgepointModel,
    error: *mut *mut c_char,
) -> RidgepointStatus {
    let create = || {
        // SAFETY: as the caller promises.
        let (model, hardware, choices) = unsafe {
            emptied("out_model", out_model)?;
            (required("model", model)?, required("hardware", hardware)?, Choices::read(options)?)
        };
        let loaded = load(model, hardware, &choices)?;
        // SAFETY: not NULL, as `emptied` saw.
        unsafe { out_model.write(RidgepointModel::new(loaded)) };
        Ok(())
    };
    // SAFETY: as the caller promises.
    unsafe { guarded(error, create) }
}

fn load(model: &str, hardware: &str, choices: &Choices<'_>) -> Result<Loaded, Failure> {
    let data_dir = choices.data_dir.map(Path::new);
    let model = find_model(model, choices)?;
    let hardware = match choices.hardware_toml {
        Some(text) => Hardware::from_toml_str(hardware, "options.hardware_toml", text)?,
        None => Hardware::find_in(data_dir, hardware)?,
    };
    let (deployment, given) = Deployment::given_in_json("options.deployment_json", choices.deployment.unwrap_or("{}"))?;
    let efficiency = match choices.efficiency {
        None | Some("tables") => EfficiencyMode::Tables,
        Some("ideal") => EfficiencyMode::Ideal,
        Some(other) => {
            return Err(Failure::argument(format!("options.efficiency: '{other}' must be tables or ideal")));
        }
    };
    let measured =
        choices.kv_transfers.map(|json| KvTransfers::from_json("options.kv_transfers_json", json)).transpose()?;
    let correction = choices.correction.map_or(CorrectionChoice::Auto, CorrectionChoice::from);
    let options = Options { efficiency, data_dir: data_dir.map(Path::to_owned), correction, ..Options::default() };
    let deployment = deployment.on(&given, &options.engine, &hardware);
    let steps = StepModel::with_options(&model, &hardware, &deployment, &options)?;
    Ok(Loaded {
        latency: CalibratedRoofline::new(steps).with_kv_transfers(measured),
        model: model.name.clone(),
        hardware: hardware.name.clone(),
        deployment,
        efficiency,
    })
}

fn find_model(name: &str, choices: &Choices<'_>) -> Result<Model, Failure> {
    let Some(config) = choices.model_config else {
        let alternatives = [
            ("model_quant_config_json", choices.model_quant_config),
            ("model_generation_config_json", choices.model_generation_config),
        ];
        return match alternatives.into_iter().find(|(_, text)| text.is_some()) {
            Some((key, _)) => {
                Err(Failure::argument(format!("options.{key}: belongs to options.model_config_json, which is NULL")))
            }
            None => Ok(Model::find_in(choices.data_dir.map(Path::new), name)?),
        };
    };
    let model = Model::from_config_str(name, "options.model_config_json", config, choices.model_quant_config)?;
    Ok(match choices.model_generation_config {
        Some(text) => model.with_generation_config("options.model_generation_config_json", text)?,
        None => model,
    })
}

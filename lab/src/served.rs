//! A model on GPUs under an engine: what the command and the HTTP server predict steps and replay loads of.

use ridgepoint::hardware::InterconnectKind;
use ridgepoint::{Deployment, Engine, Error, Hardware, Model, Options, StepModel};
use ridgepoint_replay::server_config::{ServedEngine, ServerConfig};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::fit::unlike_the_fitted;
use crate::words::{count, quantity};

/// A step model with its inputs.
pub struct Served {
    /// The model.
    pub model: Model,
    /// The GPU.
    pub hardware: Hardware,
    /// How the model is spread over GPUs.
    pub deployment: Deployment,
    /// The times of its steps.
    pub steps: StepModel,
}

impl Served {
    /// `llama-3.1-70b on 4 NVIDIA H100 SXM5, tensor_parallel_size 4`: model, GPUs, and the settings that differ from vLLM's
    /// defaults.
    pub fn title(&self) -> String {
        let Served { model, hardware, deployment, .. } = self;
        let gpus = deployment.num_gpus();
        let number = if gpus == 1 { "one".to_owned() } else { count(gpus) };
        let linked = hardware.interconnect.map_or(gpus, |link| u64::from(link.num_gpus));
        let over = match deployment.tensor_parallel_size {
            1 => String::new(),
            _ if gpus > linked => format!(", over {} between {linked} of them", link(hardware)),
            _ => format!(", over {}", link(hardware)),
        };
        format!("{} on {number} {}{}{over}", model.name, hardware.display_name, settings(deployment))
    }
}

/// Checks a server of this model and GPU, and builds its step model; with remarks.
///
/// # Errors
/// A server that does not fit or cannot run.
pub fn served(
    server: ServerConfig,
    model: Model,
    hardware: Hardware,
    options: &Options,
    notes: &mut Vec<String>,
) -> ridgepoint::Result<(Served, ServedEngine)> {
    let engine = server.engine_config(&model, &hardware, &options.engine)?;
    let deployment = server.deployment;
    let steps = StepModel::with_options(&model, &hardware, &deployment, options)?;
    notes.extend(steps.notes());
    notes.extend(engine.notes.iter().cloned());
    notes.extend(unlike_the_fitted(&steps, &engine.config));
    Ok((Served { model, hardware, deployment, steps }, engine))
}

/// The engine of a name and a version; vLLM without a version is the default one.
pub fn engine_of(name: &str, version: Option<&str>) -> Option<Engine> {
    match (name, version) {
        ("vllm", None) => Some(Engine::default()),
        (name, version) => Engine::parse(name, version),
    }
}

/// Both results, or the problems of both.
///
/// # Errors
/// Those of either.
pub fn both<A, B>(a: ridgepoint::Result<A>, b: ridgepoint::Result<B>) -> Result<(A, B), Vec<Error>> {
    match (a, b) {
        (Ok(a), Ok(b)) => Ok((a, b)),
        (a, b) => Err(a.err().into_iter().chain(b.err()).collect()),
    }
}

/// The fields of a struct of plain values.
pub fn fields(of: &impl Serialize) -> Map<String, Value> {
    match serde_json::to_value(of) {
        Ok(Value::Object(fields)) => fields,
        _ => Map::new(),
    }
}

/// `, max_num_seqs 64, tensor_parallel_size 4`: the settings that differ from vLLM's defaults.
pub fn settings(deployment: &Deployment) -> String {
    let usual = fields(&Deployment::default());
    let given = fields(deployment).into_iter().filter(|(key, value)| usual.get(key) != Some(value));
    let text = |value: Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    given.map(|(key, value)| format!(", {key} {}", text(value))).collect()
}

/// `NVLink 450.0 GB/s`: the rate of one direction. Empty without a link.
pub fn link(hardware: &Hardware) -> String {
    let Some(link) = hardware.interconnect else { return String::new() };
    let kind = match link.kind {
        InterconnectKind::Nvlink => "NVLink",
        InterconnectKind::Pcie => "PCIe",
    };
    format!("{kind} {}", quantity(link.unidirectional_bytes_per_s, "B/s"))
}

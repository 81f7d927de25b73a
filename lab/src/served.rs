//! A model on GPUs under an engine: what the command and the HTTP server predict steps and replay loads of.

use std::collections::BTreeSet;

use ridgepoint::hardware::{InterconnectKind, PeerAccess};
use ridgepoint::latency::FittedBlackBox;
use ridgepoint::{Deployment, Error, Hardware, Model, Options, StepModel};
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
    /// `llama-3.1-70b on 4 NVIDIA H100 SXM5, tensor_parallel_size 4, under vllm-0.24 with max_num_seqs 1024 and max_num_batched_tokens 8192
    /// by default`: model, GPUs, the settings that differ from the engine's defaults, the engine with its version, and the limits that it
    /// chooses by the GPU.
    pub fn title(&self) -> String {
        let Served { model, hardware, deployment, .. } = self;
        let gpus = deployment.num_gpus();
        let number = if gpus == 1 { "one".to_owned() } else { count(gpus) };
        let linked = hardware.interconnect.map_or(gpus, |link| u64::from(link.num_gpus));
        let peers = peers(hardware);
        let over = match deployment.tensor_parallel_size {
            1 => String::new(),
            _ if linked == 1 => hardware.network.map_or_else(String::new, |network| {
                format!(", over network cards of {}", quantity(network.unidirectional_bytes_per_s, "B/s"))
            }),
            _ if gpus > linked => format!(", over {}{peers} between {linked} of them", link(hardware)),
            _ => format!(", over {}{peers}", link(hardware)),
        };
        let (name, engine) = (&hardware.display_name, self.steps.engine());
        let default = Deployment::default().on(&BTreeSet::new(), engine, hardware);
        let limits = [
            ("max_num_seqs", deployment.max_num_seqs, default.max_num_seqs),
            ("max_num_batched_tokens", deployment.max_num_batched_tokens, default.max_num_batched_tokens),
        ];
        let limits = limits.into_iter().filter(|(_, value, default)| value == default);
        let limits: Vec<String> =
            limits.map(|(name, value, _)| format!("{name} {}", count(u64::from(value)))).collect();
        let by_default =
            if limits.is_empty() { String::new() } else { format!(" with {} by default", limits.join(" and ")) };
        let limit = hardware.power_limit_watt.map_or_else(String::new, |watt| format!(" limited to {watt} W"));
        let settings = settings(deployment, &default);
        format!("{} on {number} {name}{limit}{settings}{over}, under {engine}{by_default}", model.name)
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
    let options = &Options { engine: server.engine_or(&options.engine)?, ..options.clone() };
    let hardware = options.gpu(&hardware)?;
    let engine = server.engine_config(&model, &hardware, &options.engine)?;
    let deployment = engine.deployment.clone();
    let steps = StepModel::with_options(&model, &hardware, &deployment, options)?;
    notes.extend(steps.notes());
    notes.extend(engine.notes.iter().cloned());
    notes.extend(unlike_the_fitted(&steps, &engine.config));
    Ok((Served { model, hardware, deployment, steps }, engine))
}

/// A remark if a black box was fitted on another server than the one that is replayed: it knows neither model nor GPU.
pub fn of_another_server(
    fitted: &FittedBlackBox,
    model: &Model,
    gpu: &Hardware,
    deployment: &Deployment,
) -> Option<String> {
    let (known, here) = (
        (&fitted.model, &fitted.hardware, fitted.tensor_parallel_size),
        (&model.name, &gpu.name, deployment.tensor_parallel_size),
    );
    (known != here).then(|| {
        format!(
            "the latency model was fitted on {} on {} x {}, and this server has {} on {} x {}: a black box knows neither model nor GPU",
            known.0, known.2, known.1, here.0, here.2, here.1
        )
    })
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

/// `, max_num_seqs 64, tensor_parallel_size 4`: the settings that differ from those of `default`.
pub fn settings(deployment: &Deployment, default: &Deployment) -> String {
    let usual = fields(default);
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

/// ` with peer access`, ` without peer access`, or either with ` (assumed)`. Empty over NVLink, which always has it.
pub fn peers(hardware: &Hardware) -> String {
    let Some(PeerAccess { is_there, is_assumed }) = hardware.peer_access() else { return String::new() };
    let with = if is_there { "with" } else { "without" };
    format!(" {with} peer access{}", if is_assumed { " (assumed)" } else { "" })
}

//! Checked arguments, tiers of KV blocks, and files that describe a server.

use std::path::PathBuf;

use pyo3::prelude::*;
use ridgepoint::latency::KvTransfers;
use ridgepoint::{Deployment, Engine};
use ridgepoint_lab::served::fields;
use ridgepoint_replay::server_config::{ServerConfig, server_arguments, unused_disk};
use ridgepoint_replay::workload::load_arguments;
use ridgepoint_replay::{KvDisk, KvOffload};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::fault::{detached, from_json, raised, to_json};

/// KV blocks in host memory: the fields of `ridgepoint.KvOffload`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tier {
    num_cpu_blocks: u32,
    block_bytes: u64,
    offload_prompt_only: bool,
    /// `None` is that of the step model's transfers.
    contention: Option<f64>,
    disk: Option<KvDisk>,
}

impl Tier {
    /// Reads the fields of a `ridgepoint.KvOffload`.
    ///
    /// # Errors
    /// `RidgepointError` if a key or value is unknown.
    pub fn parse(json: &str) -> PyResult<Self> {
        from_json("kv_offload", json)
    }

    /// The host's tier on a server whose transfers are these, and a note on times that have no effect.
    pub fn on(self, transfers: Option<KvTransfers>) -> (KvOffload, Option<String>) {
        let Tier { num_cpu_blocks, block_bytes, offload_prompt_only, contention, disk } = self;
        let contention = contention.or(transfers.map(|transfers| transfers.contention)).unwrap_or(1.0);
        let tier = KvOffload { num_cpu_blocks, block_bytes, offload_prompt_only, contention, disk };
        let note = transfers.and_then(|transfers| unused_disk(&transfers, &tier));
        (tier, note)
    }

    /// The tier of a server's file, counted in the blocks of its model.
    fn of(server: &ServerConfig) -> ridgepoint::Result<Option<Self>> {
        if server.kv_offloading.is_none() {
            return Ok(None);
        }
        let ((model, _), hardware) = (server.find_model(None)?, server.find_hardware(None)?);
        let tier = server.engine_config(&model, &hardware, &Engine::default())?.config.kv_offload;
        Ok(tier.map(|of| Tier {
            num_cpu_blocks: of.num_cpu_blocks,
            block_bytes: of.block_bytes,
            offload_prompt_only: of.offload_prompt_only,
            contention: Some(of.contention),
            disk: of.disk,
        }))
    }
}

/// Checks the values of a section's arguments, as JSON.
#[pyfunction]
#[pyo3(signature = (section, values, /))]
pub fn check_arguments(section: &str, values: &str) -> PyResult<()> {
    if section == "deployment" {
        return Deployment::from_json(section, values).map(|_| ()).map_err(raised);
    }
    let values: Map<String, Value> = from_json(section, values)?;
    let rows =
        if section == "load" { load_arguments() } else { server_arguments().without_rows(&["model", "hardware"]) };
    rows.read_all(section, &values).map(|_| ()).map_err(raised)
}

/// The arguments of the scheduler that a file gives.
fn scheduler(server: &ServerConfig) -> PyResult<Map<String, Value>> {
    let mut values: Map<String, Value> = from_json("scheduler", &to_json(&server.scheduler)?)?;
    values.retain(|key, _| server.given.contains(key));
    values.extend(server.num_gpu_blocks_override.map(|blocks| ("num_gpu_blocks_override".to_owned(), blocks.into())));
    Ok(values)
}

#[derive(Serialize)]
struct Server<'a> {
    model: &'a str,
    precision: Option<String>,
    hardware: &'a str,
    deployment: Map<String, Value>,
    scheduler: Map<String, Value>,
    kv_offload: Option<Tier>,
    kv_transfers: Option<KvTransfers>,
    notes: &'a [String],
}

/// Reads a server file and returns it as JSON.
#[pyfunction]
#[pyo3(signature = (path, /))]
pub fn read_server(py: Python<'_>, path: PathBuf) -> PyResult<String> {
    detached(py, || {
        let server = ServerConfig::read(&path).map_err(raised)?;
        // What the file leaves out is the engine's own for the GPU.
        let mut deployment = fields(&server.deployment);
        deployment.retain(|key, _| server.given.contains(key) || key == "cpu_offload_gb");
        to_json(&Server {
            model: &server.model,
            precision: server.precision.map(|precision| precision.to_string()),
            hardware: &server.hardware,
            deployment,
            scheduler: scheduler(&server)?,
            kv_offload: Tier::of(&server).map_err(raised)?,
            kv_transfers: server.measured_transfers().map_err(raised)?,
            notes: &server.notes,
        })
    })
}

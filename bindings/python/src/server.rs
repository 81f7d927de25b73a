//! Engine arguments of the scheduler and the KV cache, and files that describe a server.

use std::path::PathBuf;

use pyo3::prelude::*;
use ridgepoint::latency::KvTransfers;
use ridgepoint::{Deployment, Engine};
use ridgepoint_replay::server_config::{SchedulerOptions, ServerConfig, unused_disk};
use ridgepoint_replay::{KvDisk, KvOffload, SchedulingPolicy};
use serde::{Deserialize, Serialize};

use crate::fault::{detached, raised, to_json};

/// The fields of `ridgepoint.Scheduler`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scheduler {
    /// Number of KV blocks. Defaults to the memory equation's.
    pub num_gpu_blocks_override: Option<u32>,
    enable_prefix_caching: Option<bool>,
    enable_chunked_prefill: Option<bool>,
    async_scheduling: Option<bool>,
    long_prefill_token_threshold: Option<u32>,
    scheduler_reserve_full_isl: Option<bool>,
    scheduling_policy: Option<SchedulingPolicy>,
    kv_offload: Option<Tier>,
}

/// KV blocks in host memory: the fields of `ridgepoint.KvOffload`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Tier {
    num_cpu_blocks: u32,
    block_bytes: u64,
    offload_prompt_only: bool,
    /// `None` is that of the step model's transfers.
    contention: Option<f64>,
    disk: Option<KvDisk>,
}

impl Scheduler {
    pub fn options(&self) -> SchedulerOptions {
        SchedulerOptions {
            enable_prefix_caching: self.enable_prefix_caching,
            enable_chunked_prefill: self.enable_chunked_prefill,
            async_scheduling: self.async_scheduling,
            long_prefill_token_threshold: self.long_prefill_token_threshold,
            scheduler_reserve_full_isl: self.scheduler_reserve_full_isl,
            scheduling_policy: self.scheduling_policy,
        }
    }

    /// The host's tier on a server whose transfers are these, and a note on times that have no effect.
    pub fn tier(&self, transfers: Option<KvTransfers>) -> Option<(KvOffload, Option<String>)> {
        let Tier { num_cpu_blocks, block_bytes, offload_prompt_only, contention, disk } = self.kv_offload.clone()?;
        let contention = contention.or(transfers.map(|transfers| transfers.contention)).unwrap_or(1.0);
        let tier = KvOffload { num_cpu_blocks, block_bytes, offload_prompt_only, contention, disk };
        let note = transfers.and_then(|transfers| unused_disk(&transfers, &tier));
        Some((tier, note))
    }

    /// The scheduler of a server. A host's tier of KV blocks is counted in the blocks of its model.
    fn of(server: &ServerConfig) -> ridgepoint::Result<Self> {
        let kv_offload = match server.kv_offloading {
            None => None,
            Some(_) => {
                let ((model, _), hardware) = (server.find_model(None)?, server.find_hardware(None)?);
                server.engine_config(&model, &hardware, &Engine::default())?.config.kv_offload
            }
        };
        let kv_offload = kv_offload.map(|of| Tier {
            num_cpu_blocks: of.num_cpu_blocks,
            block_bytes: of.block_bytes,
            offload_prompt_only: of.offload_prompt_only,
            contention: Some(of.contention),
            disk: of.disk,
        });
        let options = server.scheduler;
        Ok(Scheduler {
            num_gpu_blocks_override: server.num_gpu_blocks_override,
            enable_prefix_caching: options.enable_prefix_caching,
            enable_chunked_prefill: options.enable_chunked_prefill,
            async_scheduling: options.async_scheduling,
            long_prefill_token_threshold: options.long_prefill_token_threshold,
            scheduler_reserve_full_isl: options.scheduler_reserve_full_isl,
            scheduling_policy: options.scheduling_policy,
            kv_offload,
        })
    }
}

#[derive(Serialize)]
struct Server<'a> {
    model: &'a str,
    precision: Option<String>,
    hardware: &'a str,
    deployment: &'a Deployment,
    scheduler: Scheduler,
    kv_transfers: Option<KvTransfers>,
    notes: &'a [String],
}

/// Reads a server file and returns it as JSON.
#[pyfunction]
#[pyo3(signature = (path, /))]
pub fn read_server(py: Python<'_>, path: PathBuf) -> PyResult<String> {
    detached(py, || {
        let server = ServerConfig::read(&path).map_err(raised)?;
        to_json(&Server {
            model: &server.model,
            precision: server.precision.map(|precision| precision.to_string()),
            hardware: &server.hardware,
            deployment: &server.deployment,
            scheduler: Scheduler::of(&server).map_err(raised)?,
            kv_transfers: server.measured_transfers().map_err(raised)?,
            notes: &server.notes,
        })
    })
}

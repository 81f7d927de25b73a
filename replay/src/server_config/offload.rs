//! The host's tier of KV blocks as vLLM's arguments give it: `kv_offloading_size`, or a connector in `kv_transfer_config`.
#![expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "floats saturate; sizes are positive")]

use ridgepoint::arguments::Given;
use ridgepoint::input::{Keys, object_or_text};
use ridgepoint::kv_capacity::KvCapacity;
use ridgepoint::units::GIB;
use ridgepoint::{Deployment, Error, Result};
use serde_json::Value;

use super::disk::{KEY, KvDiskTier, SPEC};
use crate::KvOffload;

/// The connector that a replay knows.
const CONNECTOR: &str = "OffloadingConnector";

/// Room for KV blocks in host memory.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct KvOffloading {
    /// Its size.
    pub size: KvOffloadingSize,
    /// Whether only blocks of prompts are copied to the host.
    pub offload_prompt_only: bool,
    /// The disk behind the host; `None` without one.
    pub disk: Option<KvDiskTier>,
}

/// The size of the host's tier.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum KvOffloadingSize {
    /// `kv_offloading_size`: GiB of all GPUs of a replica together, as vLLM counts them.
    Gib(f64),
    /// `cpu_bytes_to_use` of a connector: the same in bytes.
    Bytes(f64),
    /// Blocks.
    Blocks(u32),
}

impl KvOffloading {
    const NONE: Self = KvOffloading { size: KvOffloadingSize::Blocks(0), offload_prompt_only: false, disk: None };

    /// Reads the arguments; `None` without a tier.
    pub(super) fn read(given: &Given, keys: &Keys<'_>) -> Option<Self> {
        let gib = given.get("kv_offloading_size").filter(|gib| *gib > 0.0);
        let connector = keys.get(KEY).and_then(|value| Self::read_connector(keys, value));
        let sized = gib.map(|gib| KvOffloading { size: KvOffloadingSize::Gib(gib), ..KvOffloading::NONE });
        connector.or(sized)
    }

    /// Reads a connector, an object or its JSON.
    fn read_connector(keys: &Keys<'_>, value: &Value) -> Option<Self> {
        let Some(config) = object_or_text(value) else {
            keys.problem(KEY, "must be an object or its JSON");
            return None;
        };
        let mut tier = KvOffloading::NONE;
        for (key, value) in &config {
            match (key.as_str(), value) {
                ("kv_connector", Value::String(name)) if name == CONNECTOR => {}
                ("kv_role", Value::String(role)) if role == "kv_both" => {}
                ("kv_connector_extra_config", Value::Object(extra)) => {
                    if extra.contains_key("num_cpu_blocks") && extra.contains_key("cpu_bytes_to_use") {
                        keys.problem(KEY, "has both num_cpu_blocks and cpu_bytes_to_use: keep one");
                    }
                    for (key, value) in extra {
                        tier.read_extra(keys, key, value);
                    }
                    if tier.disk.is_some() && extra.get("spec_name").is_none_or(|spec| spec != SPEC) {
                        keys.problem(KEY, format!("has secondary_tiers without the spec_name {SPEC}"));
                    }
                }
                _ => keys
                    .problem(KEY, format!("has {key} = {value}: only {CONNECTOR} with the role kv_both is modelled")),
            }
        }
        if !config.contains_key("kv_connector") {
            keys.problem(KEY, format!("names no kv_connector: give {CONNECTOR}"));
        }
        if tier.size == KvOffloadingSize::Blocks(0) {
            keys.problem(KEY, "gives no cpu_bytes_to_use in kv_connector_extra_config");
        }
        Some(tier)
    }

    fn read_extra(&mut self, keys: &Keys<'_>, key: &str, value: &Value) {
        match (key, value.as_f64(), value.as_u64().and_then(|blocks| u32::try_from(blocks).ok())) {
            ("cpu_bytes_to_use", Some(bytes), _) if bytes > 0.0 => self.size = KvOffloadingSize::Bytes(bytes),
            ("num_cpu_blocks", _, Some(blocks)) if blocks > 0 => self.size = KvOffloadingSize::Blocks(blocks),
            ("offload_prompt_only", ..) if value.is_boolean() => self.offload_prompt_only = value == true,
            ("eviction_policy", ..) if value == "lru" => {}
            ("spec_name", ..) if value == "CPUOffloadingSpec" || value == SPEC => {}
            ("secondary_tiers", ..) => self.disk = KvDiskTier::read(keys, value),
            ("backpressure", ..) if value.is_null() => {}
            ("backpressure", ..) => keys.problem(KEY,
                format!("has backpressure = {value}: it is not modelled, and off by default: leave it out"),
            ),
            ("self_describing_kv_events", ..) => {}
            _ => keys.problem(KEY,
                format!(
                    "has {key} = {value} in kv_connector_extra_config: cpu_bytes_to_use or num_cpu_blocks above 0, offload_prompt_only, \
                     the eviction_policy lru and secondary_tiers are modelled"
                ),
            ),
        }
    }

    /// The tier of a server with this memory.
    ///
    /// # Errors
    /// `ErrorKind::InvalidArgument` for a tier that holds no block.
    pub(super) fn tier(self, capacity: &KvCapacity, deployment: &Deployment) -> Result<KvOffload> {
        let block_bytes = (capacity.kv_bytes_per_token * f64::from(capacity.block_size)).max(1.0);
        let gpus = f64::from(deployment.tensor_parallel_size) * f64::from(deployment.pipeline_parallel_size);
        let num_cpu_blocks = match self.size {
            KvOffloadingSize::Blocks(blocks) => blocks,
            KvOffloadingSize::Gib(gib) => (gib * GIB / (block_bytes * gpus)) as u32,
            KvOffloadingSize::Bytes(bytes) => (bytes / (block_bytes * gpus)) as u32,
        };
        if num_cpu_blocks == 0 {
            let block_bytes = block_bytes * gpus;
            let no_block = |takes: String| format!("holds no KV block: one takes {takes} on all GPUs together");
            return Err(match self.size {
                KvOffloadingSize::Gib(gib) => {
                    let reason = no_block(format!("{:.4} GiB", block_bytes / GIB));
                    Error::invalid_argument("kv_offloading_size", format!("{gib} GiB"), reason)
                }
                KvOffloadingSize::Bytes(bytes) => {
                    Error::invalid_argument("cpu_bytes_to_use", bytes, no_block(format!("{block_bytes} bytes")))
                }
                KvOffloadingSize::Blocks(_) => Error::invalid_argument("num_cpu_blocks", 0, "must be at least 1"),
            });
        }
        let whole = |bytes: f64| bytes.round() as u64;
        let disk = self.disk.map(|disk| disk.tier(whole(block_bytes * gpus)));
        let (block_bytes, offload_prompt_only) = (whole(block_bytes), self.offload_prompt_only);
        Ok(KvOffload { num_cpu_blocks, block_bytes, offload_prompt_only, contention: 1.0, disk })
    }
}

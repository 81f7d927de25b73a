//! Configuration of the host's tier of KV blocks.

use serde::{Deserialize, Serialize};

use super::disk::KvDisk;

/// Maximum number of the host's blocks: more than a host with 16 TB of memory holds.
const MAX_CPU_BLOCKS: u32 = 1 << 26;

/// KV blocks in host memory, as vLLM's `OffloadingConnector` keeps them: every full block is copied to the host, the least recently
/// used one makes room, and a prompt that finds blocks there waits until they are copied back.
///
/// # Source
/// vLLM 0.19.0, `vllm/v1/kv_offload` and `vllm/distributed/kv_transfer/kv_connector/v1/offloading`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct KvOffload {
    /// Number of KV blocks that the host holds, under vLLM's name.
    pub num_cpu_blocks: u32,
    /// Bytes of a KV block on one GPU. The GPUs of a server copy their shares at the same time.
    pub block_bytes: u64,
    /// Whether only blocks of prompts are copied to the host, as with `offload_prompt_only` of vLLM 0.23.0, where it is on by default.
    #[serde(default)]
    pub offload_prompt_only: bool,
    /// Share of its speed that a direction keeps while the other one copies too. 1 means that they do not disturb each other.
    pub contention: f64,
    /// The disk behind the host; `None` without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk: Option<KvDisk>,
}

impl KvOffload {
    /// The problems of these values.
    pub(crate) fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if self.num_cpu_blocks == 0 || self.num_cpu_blocks > MAX_CPU_BLOCKS {
            problems.push(format!(
                "kv_offload.num_cpu_blocks = {} must be from 1 to {MAX_CPU_BLOCKS}: a smaller tier holds no block",
                self.num_cpu_blocks
            ));
        }
        if self.block_bytes == 0 {
            problems.push("kv_offload.block_bytes = 0 must be at least 1".to_owned());
        }
        if !(self.contention > 0.0 && self.contention <= 1.0) {
            problems.push(format!("kv_offload.contention = {} must be above 0 and at most 1", self.contention));
        }
        problems.extend(self.disk.iter().flat_map(KvDisk::problems));
        problems
    }
}

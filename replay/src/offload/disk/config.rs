//! Configuration of the disk tier.

use serde::{Deserialize, Serialize};

/// KV blocks on a disk behind the host's tier, as vLLM's `TieringOffloadingSpec` keeps them in one secondary tier of the type `fs`: each
/// block that is stored on the host is written to the disk too, and a prompt that finds blocks there waits until the host has them.
///
/// # Source
/// vLLM 0.32.0, `vllm/v1/kv_offload/tiering/manager.py`, `async_lookup.py` and `fs/`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct KvDisk {
    /// Bytes of a KV block on the disk: the shares of all GPUs together.
    pub block_bytes: u64,
    /// Number of blocks that the disk holds, at least 1; the least recently used ones make room. `None` for no limit, as in vLLM: its `fs`
    /// tier never evicts, and the limit is an addition of this replay.
    #[serde(default)]
    pub num_disk_blocks: Option<u32>,
}

impl KvDisk {
    /// The problems of these values.
    pub(crate) fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if self.block_bytes == 0 {
            problems.push("kv_offload.disk.block_bytes = 0 must be at least 1".to_owned());
        }
        if self.num_disk_blocks == Some(0) {
            problems.push(
                "kv_offload.disk.num_disk_blocks = 0 must be at least 1: leave it out for a disk without a limit"
                    .to_owned(),
            );
        }
        problems
    }
}

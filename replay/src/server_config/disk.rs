//! The disk tier as vLLM's `TieringOffloadingSpec` gives it in `kv_connector_extra_config`: one secondary tier of the type `fs`.

use ridgepoint::input::Keys;
use serde_json::{Map, Value};

use crate::KvDisk;

/// The spec of a connector that has secondary tiers.
pub(super) const SPEC: &str = "TieringOffloadingSpec";

pub(super) const KEY: &str = "kv_transfer_config";

/// Most threads of a direction, far more than a host has.
const MAX_THREADS: u64 = 4096;

/// Note on the versions of vLLM that a replay with a disk follows.
pub(super) const RULES: &str = "the disk tier follows vLLM 0.32.0's TieringOffloadingManager, and the connector before it vLLM 0.19.0's; \
                                n_read_threads and n_write_threads change no time, as all threads share the disk's bandwidth";

/// A disk behind the host's tier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct KvDiskTier {
    /// Number of blocks that it holds; `None` without a limit, as in vLLM.
    pub num_disk_blocks: Option<u32>,
}

impl KvDiskTier {
    /// Reads `secondary_tiers`; `None` for an empty list, or for one at fault, which is reported.
    pub(super) fn read(keys: &Keys<'_>, value: &Value) -> Option<Self> {
        let fault = |problem: String| {
            keys.problem(KEY, problem);
            None
        };
        match value.as_array().map(Vec::as_slice) {
            None => fault(format!("has secondary_tiers = {value}: it must be a list with one tier")),
            Some([]) => None,
            Some([Value::Object(tier)]) => Self::read_tier(keys, tier),
            Some([tier]) => fault(format!("has secondary_tiers = [{tier}]: a tier must be an object")),
            Some(tiers) => {
                fault(format!("has secondary_tiers with {} tiers: one of the type fs is modelled", tiers.len()))
            }
        }
    }

    fn read_tier(keys: &Keys<'_>, tier: &Map<String, Value>) -> Option<Self> {
        let at_fault = |key: &str, value: &Value, reason: &str| {
            keys.problem(KEY, format!("has {key} = {value} in secondary_tiers: {reason}"));
        };
        let mut disk = KvDiskTier::default();
        for (key, value) in tier {
            let is_text = value.as_str().is_some_and(|text| !text.is_empty());
            match key.as_str() {
                "type" if value == "fs" => {}
                "type" => at_fault(key, value, "fs is modelled; obj, p2p, kvcr, example and types of your own are not"),
                "root_dir" if is_text => {}
                "root_dir" => at_fault(key, value, "it must be the path of a folder"),
                "n_read_threads" | "n_write_threads" => {
                    if !value.as_u64().is_some_and(|threads| (1..=MAX_THREADS).contains(&threads)) {
                        at_fault(key, value, &format!("it must be a whole number from 1 to {MAX_THREADS}"));
                    }
                }
                "num_disk_blocks" => match value.as_u64().map(u32::try_from) {
                    Some(Ok(blocks)) if blocks > 0 => disk.num_disk_blocks = Some(blocks),
                    _ => at_fault(
                        key,
                        value,
                        "it must be a whole number from 1 to 4294967295; leave it out for a disk without a limit",
                    ),
                },
                "enable_kv_events" if value.is_boolean() => {}
                "locality" if value.is_null() || value == "LOCAL" => {}
                "backpressure" if value.is_null() => {}
                "backpressure" => {
                    at_fault(key, value, "back-pressure is not modelled, and is off by default: leave it out")
                }
                _ => at_fault(
                    key,
                    value,
                    "type, root_dir, n_read_threads, n_write_threads, enable_kv_events, the locality LOCAL and num_disk_blocks are \
                     modelled",
                ),
            }
        }
        for key in ["type", "root_dir"] {
            if !tier.contains_key(key) {
                keys.problem(KEY, format!("gives no {key} in secondary_tiers, which vLLM needs"));
            }
        }
        Some(disk)
    }

    /// The tier of a server whose KV blocks have so many bytes on all GPUs together.
    pub(super) fn tier(self, block_bytes: u64) -> KvDisk {
        KvDisk { block_bytes, num_disk_blocks: self.num_disk_blocks }
    }
}

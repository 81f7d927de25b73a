//! Measured times of KV transfers, given with a server's arguments, and the latency model of an engine with them.

use std::path::{Path, PathBuf};

use ridgepoint::input::Keys;
use ridgepoint::latency::{CalibratedRoofline, KvTransfers, TransferDirection};
use ridgepoint::{Error, Result, StepModel};
use serde_json::Value;

use super::{ServedEngine, ServerConfig};
use crate::KvOffload;

/// The key of a server. It is an addition to vLLM's arguments.
const KEY: &str = "kv_transfers";

/// Measured times of KV transfers.
#[derive(Debug, Clone, PartialEq)]
pub enum KvTransfersSource {
    /// These.
    Given(KvTransfers),
    /// The path of a file that `ridgepoint ingest --output-transfers` writes.
    File(PathBuf),
}

impl KvTransfersSource {
    /// Reads the key: the path of a file, or the contents of one.
    pub(super) fn read(keys: &Keys<'_>) -> Option<Self> {
        if let Some(value @ Value::Object(_)) = keys.get(KEY) {
            let given = KvTransfers::from_json(KEY, &value.to_string());
            let faults = |error: Error| {
                error.problems().iter().for_each(|fault| keys.problem(KEY, format!("is at fault: {fault}")))
            };
            return given.map_err(faults).ok().map(KvTransfersSource::Given);
        }
        keys.read(KEY, "the path of a file that `ridgepoint ingest --output-transfers` wrote, or its object", |value| {
            let path = value.as_str().filter(|path| !path.is_empty())?;
            Some(KvTransfersSource::File(path.into()))
        })
    }
}

/// Gives a tier the contention of its measured transfers, and notes which of them have no effect.
pub(super) fn share_links(tier: Option<&mut KvOffload>, transfers: &KvTransfers, notes: &mut Vec<String>) {
    let Some(tier) = tier else {
        notes.push(format!("{KEY} has no effect without kv_offloading_size or kv_transfer_config"));
        return;
    };
    tier.contention = transfers.contention;
    notes.extend(unused_disk(transfers, tier));
}

/// Returns a note on measured times of a disk that `tier` does not have.
pub fn unused_disk(transfers: &KvTransfers, tier: &KvOffload) -> Option<String> {
    let is_unused = tier.disk.is_none() && (transfers.cpu_to_disk.is_some() || transfers.disk_to_cpu.is_some());
    is_unused.then(|| format!("{KEY} gives times of a disk, which have no effect without secondary_tiers"))
}

impl ServerConfig {
    /// The measured times of its KV transfers; `None` if it gives none.
    ///
    /// # Errors
    /// Those of [`KvTransfers::read`]; a file where [`names_only`](ServerConfig::names_only) is set.
    pub fn measured_transfers(&self) -> Result<Option<KvTransfers>> {
        match &self.kv_transfers {
            None => Ok(None),
            Some(KvTransfersSource::Given(transfers)) => Ok(Some(*transfers)),
            Some(KvTransfersSource::File(path)) if self.names_only => {
                let reason = "names a file, and no files are read here: give its object";
                Err(Error::invalid_argument(KEY, path.display(), reason))
            }
            Some(KvTransfersSource::File(path)) => KvTransfers::read(path).map(Some),
        }
    }

    /// The file of measured KV transfers that it names.
    pub fn transfers_file(&self) -> Option<&Path> {
        match &self.kv_transfers {
            Some(KvTransfersSource::File(path)) => Some(path),
            _ => None,
        }
    }
}

impl ServedEngine {
    /// Returns the latency model of this engine: steps, the host's delays of their correction, and KV transfers as measured, or
    /// else as the GPU's link to its host gives them.
    ///
    /// # Errors
    /// `ErrorKind::Invalid` for a tier on a chip whose link to the host is not known, unless the times were given.
    pub fn latency(&self, steps: StepModel) -> Result<CalibratedRoofline> {
        let latency = CalibratedRoofline::new(steps).with_kv_transfers(self.kv_transfers);
        if self.config.kv_offload.is_some() {
            latency.known_kv_transfer_time_us(TransferDirection::CpuToGpu, 0)?;
        }
        Ok(latency)
    }
}

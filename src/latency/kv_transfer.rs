//! The sixth delay: copies of KV blocks between GPU and host, and between host and disk.

use std::ops::RangeInclusive;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::hardware::HostLink;
use crate::input::{FileKind, check, json_error, read_text};
use crate::units::US_PER_S;

/// Longest fixed time of a copy, µs: a thousand seconds.
const MAX_LATENCY_US: f64 = 1e9;
/// Bandwidths of links, bytes per second: from a modem's to a thousand times that of any memory.
const BYTES_PER_S: RangeInclusive<f64> = 1e3..=1e15;

/// The way in which KV blocks are copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum TransferDirection {
    /// From the GPU to host memory: a store.
    GpuToCpu,
    /// From host memory to the GPU: a load.
    CpuToGpu,
    /// From host memory to a disk: a write.
    CpuToDisk,
    /// From a disk to host memory: a read.
    DiskToCpu,
}

impl TransferDirection {
    /// Those of the link between GPU and host, in the order of reports.
    pub const BOTH: [TransferDirection; 2] = [TransferDirection::GpuToCpu, TransferDirection::CpuToGpu];

    /// Returns the direction between GPU and host, by vLLM's names of the media in any case; `None` for other media.
    pub fn between(from: &str, to: &str) -> Option<Self> {
        match (from.to_ascii_uppercase().as_str(), to.to_ascii_uppercase().as_str()) {
            ("GPU", "CPU") => Some(TransferDirection::GpuToCpu),
            ("CPU", "GPU") => Some(TransferDirection::CpuToGpu),
            _ => None,
        }
    }

    /// Returns the name in reports and files.
    pub fn name(self) -> &'static str {
        match self {
            TransferDirection::GpuToCpu => "gpu_to_cpu",
            TransferDirection::CpuToGpu => "cpu_to_gpu",
            TransferDirection::CpuToDisk => "cpu_to_disk",
            TransferDirection::DiskToCpu => "disk_to_cpu",
        }
    }
}

/// A direction of a link.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TransferLink {
    /// Fixed time of a copy, µs.
    pub latency_us: f64,
    /// Bandwidth of copies, bytes per second.
    pub bytes_per_s: f64,
}

/// Latency and bandwidth of copies of KV blocks between GPU and host, and between host and disk.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct KvTransfers {
    /// Stores.
    pub gpu_to_cpu: TransferLink,
    /// Loads.
    pub cpu_to_gpu: TransferLink,
    /// Share of its speed that a direction keeps while the other one copies too, above 0 and at most 1.
    pub contention: f64,
    /// Writes to a disk; `None` for [`KvTransfers::ASSUMED_WRITES`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_to_disk: Option<TransferLink>,
    /// Reads from a disk; `None` for [`KvTransfers::ASSUMED_READS`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_to_cpu: Option<TransferLink>,
}

impl KvTransfers {
    /// Time to launch a copy, µs. It is an assumption: no copies were measured.
    const LATENCY_US: f64 = 20.0;

    /// Assumed reads: 100 µs, and 7 GB/s, as datasheets of NVMe disks with four lanes of PCIe 4.0 quote them.
    pub const ASSUMED_READS: TransferLink = TransferLink { latency_us: 100.0, bytes_per_s: 7e9 };

    /// Assumed writes of such a disk: 100 µs, and 5 GB/s.
    pub const ASSUMED_WRITES: TransferLink = TransferLink { latency_us: 100.0, bytes_per_s: 5e9 };

    /// Copies that take no time.
    pub const INSTANT: KvTransfers = {
        let link = TransferLink { latency_us: 0.0, bytes_per_s: f64::INFINITY };
        KvTransfers {
            gpu_to_cpu: link,
            cpu_to_gpu: link,
            contention: 1.0,
            cpu_to_disk: Some(link),
            disk_to_cpu: Some(link),
        }
    };

    /// Returns what a link is assumed to give: 85 % of its datasheet bandwidth in each direction, 20 µs for each copy, and no
    /// contention, as PCIe and NVLink-C2C are full duplex.
    pub fn assumed(link: &HostLink) -> Self {
        let bytes_per_s = link.unidirectional_bytes_per_s * HostLink::EFFICIENCY;
        let link = TransferLink { latency_us: Self::LATENCY_US, bytes_per_s };
        KvTransfers { gpu_to_cpu: link, cpu_to_gpu: link, contention: 1.0, cpu_to_disk: None, disk_to_cpu: None }
    }

    /// Reads the constants from a file of [`KvTransfers::from_json`].
    ///
    /// # Errors
    /// `ErrorKind::Io` for a file that can't be read, and those of [`KvTransfers::from_json`].
    pub fn read(path: &Path) -> Result<Self> {
        Self::from_json(&path.display().to_string(), &read_text(FileKind::LatencyModel, path)?)
    }

    /// Reads the constants from JSON, as `ingest` writes them. `name` is the file's name for errors.
    ///
    /// # Errors
    /// `ErrorKind::Parse` for text that is not such JSON; `ErrorKind::Invalid` unless latencies are from 0 to 10⁹ µs, bandwidths from 10³ to 10¹⁵ bytes/s and contention above 0 and at most 1.
    pub fn from_json(name: &str, text: &str) -> Result<Self> {
        let transfers: KvTransfers = serde_json::from_str(text).map_err(|error| json_error(name, error))?;
        let mut problems = Vec::new();
        let given = [
            (TransferDirection::GpuToCpu, Some(transfers.gpu_to_cpu)),
            (TransferDirection::CpuToGpu, Some(transfers.cpu_to_gpu)),
            (TransferDirection::CpuToDisk, transfers.cpu_to_disk),
            (TransferDirection::DiskToCpu, transfers.disk_to_cpu),
        ];
        for (direction, link) in given {
            let (key, Some(link)) = (direction.name(), link) else { continue };
            if !(0.0..=MAX_LATENCY_US).contains(&link.latency_us) {
                problems.push(format!(
                    "{key}.latency_us = {} must be at least 0 and at most {MAX_LATENCY_US}",
                    link.latency_us
                ));
            }
            if !BYTES_PER_S.contains(&link.bytes_per_s) {
                let (least, most) = (BYTES_PER_S.start(), BYTES_PER_S.end());
                problems.push(format!("{key}.bytes_per_s = {} must be from {least} to {most}", link.bytes_per_s));
            }
        }
        if !(transfers.contention > 0.0 && transfers.contention <= 1.0) {
            problems.push(format!("contention = {} must be above 0 and at most 1", transfers.contention));
        }
        check(name, problems)?;
        Ok(transfers)
    }

    /// Returns the link of a direction: the given one, or the assumed disk.
    pub fn link(&self, direction: TransferDirection) -> TransferLink {
        match direction {
            TransferDirection::GpuToCpu => self.gpu_to_cpu,
            TransferDirection::CpuToGpu => self.cpu_to_gpu,
            TransferDirection::CpuToDisk => self.cpu_to_disk.unwrap_or(Self::ASSUMED_WRITES),
            TransferDirection::DiskToCpu => self.disk_to_cpu.unwrap_or(Self::ASSUMED_READS),
        }
    }

    /// The same with the disk that is assumed where none was measured.
    #[must_use]
    pub fn with_disk(self) -> Self {
        let of = |direction| Some(self.link(direction));
        KvTransfers {
            cpu_to_disk: of(TransferDirection::CpuToDisk),
            disk_to_cpu: of(TransferDirection::DiskToCpu),
            ..self
        }
    }

    /// Time of a copy on a link that nothing else uses, µs.
    ///
    /// # Formula
    /// latency + bytes / bandwidth
    pub fn time_us(&self, direction: TransferDirection, bytes: u64) -> f64 {
        let link = self.link(direction);
        link.latency_us + bytes as f64 / link.bytes_per_s * US_PER_S
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hardware::spec::HostLinkKind;

    #[test]
    fn a_copy_takes_its_latency_and_its_bytes() {
        // 5.44 MB over 0.85 × 64 GB/s take 100 µs.
        let link = HostLink { kind: HostLinkKind::Pcie, unidirectional_bytes_per_s: 64e9 };
        let time_us = KvTransfers::assumed(&link).time_us(TransferDirection::CpuToGpu, 5_440_000);
        assert!((time_us - 120.0).abs() < 1e-9, "{time_us}");
    }

    #[test]
    fn bad_constants_are_named() {
        let text = r#"{"gpu_to_cpu": {"latency_us": -1, "bytes_per_s": 1}, "cpu_to_gpu": {"latency_us": 0, "bytes_per_s": -5}, "contention": 2}"#;
        let error = KvTransfers::from_json("t.json", text).unwrap_err().to_string();
        for part in ["gpu_to_cpu.latency_us = -1", "cpu_to_gpu.bytes_per_s = -5", "contention = 2"] {
            assert!(error.contains(part), "{error}");
        }
        // A clock of nanoseconds in 64 bits ends after 584 years.
        for (key, value) in [("latency_us", "1e18"), ("bytes_per_s", "1e-9"), ("bytes_per_s", "1e300")] {
            let given = text.replace(
                &format!("\"{key}\": {}", if key == "latency_us" { "0" } else { "-5" }),
                &format!("\"{key}\": {value}"),
            );
            let error = KvTransfers::from_json("t.json", &given).unwrap_err().to_string();
            assert!(error.contains(&format!("cpu_to_gpu.{key} = ")), "{error}");
        }
        assert!(KvTransfers::from_json("t.json", "{}").unwrap_err().to_string().contains("gpu_to_cpu"));
    }

    #[test]
    fn a_disk_is_assumed_unless_it_was_measured() {
        let link = r#"{"latency_us": 0, "bytes_per_s": 1e9}"#;
        let text = format!(r#"{{"gpu_to_cpu": {link}, "cpu_to_gpu": {link}, "contention": 1, "disk_to_cpu": {link}}}"#);
        let transfers = KvTransfers::from_json("t.json", &text).unwrap();
        // 5 MB take 1 ms at 5 GB/s, and 5 ms at 1 GB/s.
        let times =
            [TransferDirection::CpuToDisk, TransferDirection::DiskToCpu].map(|of| transfers.time_us(of, 5_000_000));
        assert!((times[0] - 1100.0).abs() < 1e-9 && (times[1] - 5000.0).abs() < 1e-9, "{times:?}");
        let bad = text.replace("\"disk_to_cpu\": {\"latency_us\": 0", "\"disk_to_cpu\": {\"latency_us\": -3");
        assert!(
            KvTransfers::from_json("t.json", &bad).unwrap_err().to_string().contains("disk_to_cpu.latency_us = -3")
        );
    }
}

//! The state of this machine: the page cache, the disks, the GPUs. Figures that are not at hand are `None`.

use std::io::Read;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde::Serialize;

/// Limit of a call of nvidia-smi.
const SMI_LIMIT: Duration = Duration::from_secs(5);
/// Bytes of a sector in /proc/diskstats.
const SECTOR_BYTES: u64 = 512;
const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// A GPU at one moment.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Gpu {
    /// Its name, as its driver calls it.
    pub name: String,
    /// Memory, bytes.
    pub memory_bytes: u64,
    /// Memory in use, bytes.
    pub used_bytes: u64,
    /// Share of the time in which a kernel ran, percent.
    pub utilisation_pct: Option<f64>,
    /// Power, W.
    pub power_w: Option<f64>,
}

/// This machine at one moment.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Host {
    /// Page cache (`Cached` of /proc/meminfo), bytes.
    pub cached_bytes: Option<u64>,
    /// Memory that programs could have (`MemAvailable`), bytes.
    pub available_bytes: Option<u64>,
    /// Bytes that all disks have read since the machine's start.
    pub disk_read_bytes: Option<u64>,
    /// Its GPUs; `None` without nvidia-smi.
    pub gpus: Option<Vec<Gpu>>,
}

impl Host {
    /// Looks at this machine.
    pub fn now() -> Self {
        let memory = std::fs::read_to_string("/proc/meminfo").ok();
        let of = |key| memory.as_deref().and_then(|text| meminfo(text, key));
        let disks = std::fs::read_to_string("/proc/diskstats").ok();
        Host {
            cached_bytes: of("Cached"),
            available_bytes: of("MemAvailable"),
            disk_read_bytes: disks.as_deref().and_then(|text| disk_read_bytes(text, &is_whole_disk)),
            gpus: gpus(),
        }
    }

    /// Memory in use on all GPUs, bytes.
    pub fn gpu_used_bytes(&self) -> Option<u64> {
        let gpus = self.gpus.as_ref().filter(|gpus| !gpus.is_empty())?;
        Some(gpus.iter().map(|gpu| gpu.used_bytes).sum())
    }
}

/// Name and release of the system's kernel, as `uname -sr` has them.
pub(crate) fn system() -> Option<String> {
    let of = |file: &str| std::fs::read_to_string(format!("/proc/sys/kernel/{file}")).ok();
    let (name, release) = (of("ostype")?, of("osrelease")?);
    Some(format!("{} {}", name.trim(), release.trim()))
}

fn meminfo(text: &str, key: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.split(':').next() == Some(key))?;
    let kib: u64 = line.split(':').nth(1)?.split_ascii_whitespace().next()?.parse().ok()?;
    kib.checked_mul(KIB)
}

/// Disks with a folder in /sys/block; partitions have none, and loop, RAM and mapped devices read through others.
fn is_whole_disk(name: &str) -> bool {
    let is_other = ["loop", "ram", "zram", "dm-", "md", "sr"].iter().any(|start| name.starts_with(start));
    !is_other && std::path::Path::new("/sys/block").join(name).exists()
}

fn disk_read_bytes(text: &str, is_disk: &dyn Fn(&str) -> bool) -> Option<u64> {
    let sectors = text.lines().filter_map(|line| {
        let mut fields = line.split_ascii_whitespace().skip(2);
        fields.next().filter(|name| is_disk(name))?;
        fields.nth(2)?.parse::<u64>().ok()
    });
    let sectors: Vec<u64> = sectors.collect();
    (!sectors.is_empty()).then(|| sectors.iter().sum::<u64>().saturating_mul(SECTOR_BYTES))
}

/// The GPUs by nvidia-smi.
fn gpus() -> Option<Vec<Gpu>> {
    let query = "--query-gpu=name,memory.total,memory.used,utilization.gpu,power.draw";
    let mut child = Command::new("nvidia-smi")
        .args([query, "--format=csv,noheader,nounits"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let end = Instant::now() + SMI_LIMIT;
    // A driver that is stuck keeps nvidia-smi for ever.
    let status = loop {
        match child.try_wait().ok()? {
            Some(status) => break status,
            None if Instant::now() < end => std::thread::sleep(Duration::from_millis(5)),
            None => {
                let _ = child.kill();
                let _ = child.wait();
                return None;
            }
        }
    };
    let mut text = String::new();
    child.stdout.take()?.read_to_string(&mut text).ok()?;
    status.success().then(|| smi_gpus(&text))
}

fn smi_gpus(text: &str) -> Vec<Gpu> {
    let gpu = |line: &str| {
        let mut cells = line.split(',').map(str::trim);
        let name = cells.next()?.to_owned();
        let mut bytes = || cells.next()?.parse::<u64>().ok()?.checked_mul(MIB);
        let (memory_bytes, used_bytes) = (bytes()?, bytes()?);
        let mut number = || cells.next()?.parse::<f64>().ok();
        Some(Gpu { name, memory_bytes, used_bytes, utilisation_pct: number(), power_w: number() })
    };
    text.lines().filter_map(gpu).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_the_kernel_are_read() {
        let text = "MemTotal: 100 kB\nMemAvailable:    50 kB\nCached:  7 kB\nSwapCached: 3 kB\n";
        assert_eq!((meminfo(text, "Cached"), meminfo(text, "MemAvailable")), (Some(7168), Some(51_200)));
        assert_eq!(meminfo(text, "Other"), None);
        let disks = "   8 0 sda 10 0 200 5 1 0 8 1 0 1 1\n   8 1 sda1 10 0 200 5 1 0 8\n 259 0 nvme0n1 4 0 56 1\n 7 0 loop0 9 9 9 9\n";
        let is_disk = |name: &str| ["sda", "nvme0n1"].contains(&name);
        assert_eq!(disk_read_bytes(disks, &is_disk), Some(256 * 512));
        assert_eq!(disk_read_bytes("", &is_disk), None);
    }

    #[test]
    fn lines_of_nvidia_smi_are_gpus() {
        let gpus = smi_gpus("NVIDIA H100 80GB HBM3, 81559, 75000, 37, 310.52\nOld, 100, 50, [N/A], [N/A]\nbroken\n");
        assert_eq!(gpus.len(), 2);
        assert_eq!((gpus[0].used_bytes, gpus[0].utilisation_pct), (75_000 << 20, Some(37.0)));
        assert_eq!((gpus[1].utilisation_pct, gpus[1].power_w), (None, None));
    }
}

//! The birth certificate of one's own measurements: `meta.toml` beside the csv files, as the measuring kit writes it.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Deserializer};

use super::source::{SourceFile, SourceFormat};
use ridgepoint::{Error, Result};

/// Name of the file.
pub const CERTIFICATE_FILE: &str = "meta.toml";

/// The only kind of folder that can be calibrated on.
const MEASUREMENT: &str = "measurement";

/// The contents of `meta.toml`, about the csv files beside it. Every key is optional, any other is an error. Sections are
/// keyed by the stem of a csv file.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Certificate {
    /// `measurement`; any other kind is refused, such as the `not a measurement` of the kit's CPU mode.
    pub kind: Option<String>,
    /// Program that called the kernels: a serving engine, or `torch`.
    pub framework: Option<String>,
    /// Its version.
    pub version: Option<String>,
    /// GPU, as the driver names it.
    pub device: Option<String>,
    /// CUDA compute capability, as `9.0`.
    pub compute_capability: Option<String>,
    /// Streaming multiprocessors.
    pub multiprocessors: Option<u64>,
    /// Device memory, bytes.
    pub memory_bytes: Option<u64>,
    /// Level-2 cache, bytes.
    pub l2_bytes: Option<u64>,
    /// Driver version.
    pub driver: Option<String>,
    /// CUDA version.
    pub cuda: Option<String>,
    /// Power limit of the board, watt.
    pub power_limit_watt: Option<f64>,
    /// Highest clock of the multiprocessors, MHz.
    pub max_sm_clock_mhz: Option<u64>,
    /// Median clock of the multiprocessors right after work, MHz.
    pub sm_clock_mhz: Option<u64>,
    /// Median memory clock right after work, MHz.
    pub memory_clock_mhz: Option<u64>,
    /// Day of the measurement, with or without a time: a text or a TOML date.
    #[serde(deserialize_with = "date")]
    pub date: Option<String>,
    /// Command that took it.
    pub command: Option<String>,
    /// Samples per row.
    pub repeats: Option<u64>,
    /// Statistic of a row's samples.
    pub statistic: Option<String>,
    /// Duration of the whole run, seconds.
    pub duration_s: Option<f64>,
    /// Remarks of the run, for people.
    pub notes: Vec<String>,
    /// The kernel that was timed, by table.
    pub kernel_source: BTreeMap<String, String>,
    /// Counts of planned, measured and skipped shapes, by table.
    pub tables: BTreeMap<String, TableCounts>,
}

/// Counts of the shapes that a run of the kit planned to measure.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TableCounts {
    /// Shapes on the grid.
    pub planned: u64,
    /// Rows in the csv file.
    pub measured: u64,
    /// Shapes larger than the device's memory, not tried.
    pub skipped_too_large: u64,
    /// Shapes that ran out of memory.
    pub skipped_out_of_memory: u64,
    /// Shapes without an implementation.
    pub skipped_unsupported: u64,
    /// Shapes not reached within the time budget.
    pub skipped_out_of_time: u64,
    /// Median over rows of the samples' interquartile range, percent of their median; absent without rows.
    pub median_spread_pct: Option<f64>,
    /// 90th percentile of the same.
    pub p90_spread_pct: Option<f64>,
}

impl Certificate {
    /// Reads `meta.toml` of a folder; `None` if there is none. `stems` are the csv files that sections may be about.
    ///
    /// # Errors
    /// `ErrorKind::Io` if the file cannot be read; `ErrorKind::Parse` if it is not TOML or has an unknown key or a value of the
    /// wrong type; `ErrorKind::Invalid` if its kind is not `measurement`, or a section is about an unknown table.
    pub(super) fn read(dir: &Path, stems: &[&str]) -> Result<Option<Self>> {
        let path = dir.join(CERTIFICATE_FILE);
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Error::io(path, error)),
        };
        let origin = path.display().to_string();
        let certificate: Certificate =
            toml::from_str(&text).map_err(|error| Error::parse(origin.clone(), error.to_string().trim_end()))?;
        let problems = certificate.problems(stems);
        if problems.is_empty() { Ok(Some(certificate)) } else { Err(Error::invalid(origin, problems)) }
    }

    fn problems(&self, stems: &[&str]) -> Vec<String> {
        let mut problems = Vec::new();
        if let Some(kind) = self.kind.as_deref().filter(|kind| *kind != MEASUREMENT) {
            problems.push(format!(
                "kind = '{kind}': only folders of kind '{MEASUREMENT}' can be calibrated on; measure on a GPU with \
                 bench_data/measure/measure.py"
            ));
        }
        let sections = self.kernel_source.keys().map(|table| ("kernel_source", table));
        for (section, table) in sections.chain(self.tables.keys().map(|table| ("tables", table))) {
            if !stems.contains(&table.as_str()) {
                problems.push(format!("{section}.{table}: no such table; known are {}", stems.join(", ")));
            }
        }
        problems
    }

    /// The source of a csv file.
    pub(super) fn source(&self, file: &str) -> SourceFile {
        let stem = file.strip_suffix(".csv").unwrap_or(file);
        SourceFile {
            file: file.into(),
            format: SourceFormat::Csv,
            framework: self.framework.clone(),
            version: self.version.clone(),
            device: self.device.clone(),
            kernel_source: self.kernel_source.get(stem).cloned(),
            driver: self.driver.clone(),
            date: self.date.clone(),
            command: self.command.clone(),
        }
    }

    /// Remarks on a table with `rows` rows: skipped shapes, missing rows.
    pub(super) fn remarks(&self, stem: &str, rows: usize) -> Vec<String> {
        let Some(counts) = self.tables.get(stem) else { return Vec::new() };
        let mut remarks = Vec::new();
        if counts.measured != rows as u64 {
            remarks.push(format!("{CERTIFICATE_FILE} counts {} rows of {stem}, {rows} were read", counts.measured));
        }
        let skipped: Vec<String> = [
            (counts.skipped_too_large, "too large"),
            (counts.skipped_out_of_memory, "out of memory"),
            (counts.skipped_unsupported, "unsupported"),
            (counts.skipped_out_of_time, "out of time"),
        ]
        .into_iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, why)| format!("{count} {why}"))
        .collect();
        if !skipped.is_empty() {
            let planned = counts.planned;
            remarks.push(format!("{stem}: not all of {planned} planned shapes were measured: {}", skipped.join(", ")));
        }
        remarks
    }
}

fn date<'de, D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Option<String>, D::Error> {
    match toml::Value::deserialize(deserializer)? {
        toml::Value::String(text) => Ok(Some(text)),
        toml::Value::Datetime(date) => Ok(Some(date.to_string())),
        other => {
            let found = other.type_str();
            Err(serde::de::Error::custom(format!("date must be a date or a text, as in 2025-01-31, found {found}")))
        }
    }
}

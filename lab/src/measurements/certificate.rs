//! The birth certificate of one's own measurements: `meta.toml` next to the csv files, as the measuring kit writes it.
#![expect(clippy::indexing_slicing, reason = "a missing key of a JSON value is null")]

use std::collections::BTreeMap;
use std::path::Path;

use ridgepoint::Result;
use ridgepoint::input::{FileKind, Keys, Log, parse_toml, read_text};
use serde_json::Value;

use super::source::{SourceFile, SourceFormat};

/// Name of the file.
pub const CERTIFICATE_FILE: &str = "meta.toml";

/// The only kind of folder that can be calibrated on; the kit's CPU mode writes another.
const MEASUREMENT: &str = "measurement";

/// Keys that are for people: the GPU, its clocks, the samples and the run.
const NOT_READ: &str = "compute_capability multiprocessors memory_bytes l2_bytes cuda power_limit_watt max_sm_clock_mhz \
    sm_clock_mhz memory_clock_mhz repeats statistic duration_s notes";

/// What `meta.toml` says of the csv files next to it. Every key is optional, and an unknown one is an error.
#[derive(Debug, Clone, Default)]
pub(super) struct Certificate {
    /// What all tables share.
    source: SourceFile,
    /// The kernel that was timed, by table.
    kernels: BTreeMap<&'static str, String>,
    /// Counts of planned, measured and skipped shapes, by table, as the kit writes them.
    counts: Value,
}

impl Certificate {
    /// Reads `meta.toml` of a folder; `None` if there is none. `stems` are the csv files that sections may be about.
    ///
    /// # Errors
    /// A file that cannot be read or is not TOML; all problems: unknown keys, values of the wrong type, a kind other than
    /// `measurement`, sections on unknown tables.
    pub(super) fn read(dir: &Path, stems: &[&'static str]) -> Result<Option<Self>> {
        let path = dir.join(CERTIFICATE_FILE);
        if !path.exists() {
            return Ok(None);
        }
        let origin = path.display().to_string();
        let toml = parse_toml(&origin, &read_text(FileKind::Certificate, &path)?)?;
        let log = Log::default();
        let keys = Keys::new("", &toml, &log);
        keys.ignore(&NOT_READ.split(' ').collect::<Vec<_>>());
        if keys.has("kind") && keys.text("kind") != Some(MEASUREMENT) {
            let reason = format!(
                "can't be calibrated on, only '{MEASUREMENT}' can: measure on a GPU with bench_data/measure/measure.py"
            );
            keys.problem("kind", reason);
        }
        let text = |key: &str| keys.text(key).map(str::to_owned);
        let source = SourceFile {
            format: SourceFormat::Csv,
            framework: text("framework"),
            version: text("version"),
            device: text("device"),
            driver: text("driver"),
            date: text("date"),
            command: text("command"),
            ..SourceFile::default()
        };
        let (kernels, tables) = (keys.section_or_empty("kernel_source"), keys.section_or_empty("tables"));
        tables.ignore(stems);
        let kernel = |stem: &&'static str| Some((*stem, kernels.text(stem)?.to_owned()));
        let kernel_source = stems.iter().filter_map(kernel).collect();
        [kernels, tables, keys].into_iter().for_each(Keys::finish);
        let found = Certificate { source, kernels: kernel_source, counts: toml["tables"].clone() };
        Ok(Some(log.finish(&origin, Some(found))?.0))
    }

    /// The source of the csv file of this stem.
    pub(super) fn source(&self, stem: &str) -> SourceFile {
        SourceFile {
            file: format!("{stem}.csv"),
            kernel_source: self.kernels.get(stem).cloned(),
            ..self.source.clone()
        }
    }

    /// Remarks on a table with `rows` rows: skipped shapes, missing rows.
    pub(super) fn remarks(&self, stem: &str, rows: usize) -> Vec<String> {
        let count = |key: &str| self.counts[stem][key].as_u64().unwrap_or(0);
        let mut remarks = Vec::new();
        if !self.counts[stem].is_null() && count("measured") != rows as u64 {
            remarks.push(format!("{CERTIFICATE_FILE} counts {} rows of {stem}, {rows} were read", count("measured")));
        }
        let reasons = ["too_large", "out_of_memory", "unsupported", "out_of_time"];
        let skipped = reasons.map(|reason| (count(&format!("skipped_{reason}")), reason.replace('_', " ")));
        let skipped = skipped.iter().filter(|(count, _)| *count > 0).map(|(count, reason)| format!("{count} {reason}"));
        let skipped: Vec<String> = skipped.collect();
        if !skipped.is_empty() {
            let (planned, skipped) = (count("planned"), skipped.join(", "));
            remarks.push(format!("{stem}: not all of {planned} planned shapes were measured: {skipped}"));
        }
        remarks
    }
}

//! Kernel timings that efficiency tables are calibrated on: read, checked and typed, nothing filtered or fitted.
//! Uses `dtype`, `error`, `model::Window`, `units`.
//!
//! [`Measurements::load`] reads one folder. It takes two kinds of files:
//!
//! - the public kernel tables (feature `parquet`), under the names that they are published with:
//!   `gemm_perf.parquet`, `context_attention_perf.parquet`, `generation_attention_perf.parquet`, `moe_perf.parquet`,
//!   `custom_allreduce_perf.parquet`. Their `latency` is in milliseconds and their `message_size` counts elements;
//!   both are converted here. A shape that such a table holds more than once keeps the median of its times, and
//!   [`Measurements::notes`] says so;
//! - one's own measurements as csv, with an optional `meta.toml` beside them:
//!
//! | file | columns, in any order |
//! |---|---|
//! | `gemm.csv` | `dtype,m,n,k,latency_us` |
//! | `attention_prefill.csv` | `num_heads,num_kv_heads,head_dim,kv_cache_dtype,window_size,batch_size,num_scheduled_tokens,num_computed_tokens,latency_us` |
//! | `attention_decode.csv` | `num_heads,num_kv_heads,head_dim,kv_cache_dtype,window_size,batch_size,kv_tokens_total,kv_tokens_max,latency_us` |
//! | `moe.csv` | `dtype,num_tokens,hidden_size,intermediate_size,top_k,num_experts,moe_tp_size,moe_ep_size,distribution,latency_us` |
//! | `allreduce.csv` | `num_gpus,message_bytes,backend,latency_us` |
//! | `small_kernels.csv` | `kernel,num_tokens,width,launches,latency_us` |
//!
//! What each column means is told by the row types and, for those who measure, in `docs/measurements.md`. `window_size`
//! is 0 for full attention. Lines that begin with `#` are comments. A missing or unknown column, an impossible value
//! and a repeated shape are errors. What `meta.toml` may say, [`Certificate`] lists; a folder whose `kind` is not
//! `measurement` is refused. `spread.csv`, which the measuring kit writes for people, is not read.

use std::collections::BTreeSet;
use std::path::Path;

use ridgepoint::{Error, Result};

mod build;
mod certificate;
mod csv_reader;
mod duplicates;
#[cfg(feature = "parquet")]
mod parquet_pages;
#[cfg(feature = "parquet")]
mod parquet_reader;
mod row;
mod sources;
mod table;
#[cfg(test)]
mod tests;

pub use certificate::{CERTIFICATE_FILE, Certificate, TableCounts};
pub use row::{
    AllReduceBackend, AllReduceRow, DecodeRow, Distribution, GemmDtype, GemmRow, MoeDtype, MoeRow, PrefillRow,
    SmallKernelRow, SourceFile, SourceFormat,
};
use sources::RowSources;
use table::Table;

/// All measurements of a folder, each row pointing at its source.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Measurements {
    /// Projections.
    pub gemm: Vec<GemmRow>,
    /// Attention of prompt chunks.
    pub attention_prefill: Vec<PrefillRow>,
    /// Attention of decodes.
    pub attention_decode: Vec<DecodeRow>,
    /// Routed experts.
    pub moe: Vec<MoeRow>,
    /// All-reduces.
    pub allreduce: Vec<AllReduceRow>,
    /// Kernels that only move bytes.
    pub small_kernels: Vec<SmallKernelRow>,
    /// Where rows come from: one entry per file, engine, version, device and kernel.
    pub sources: Vec<SourceFile>,
    /// What reading did beyond copying: merged duplicates, files that were not read.
    pub notes: Vec<String>,
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    Gemm,
    AttentionPrefill,
    AttentionDecode,
    Moe,
    AllReduce,
    SmallKernels,
}

const FILES: [(&str, SourceFormat, Kind); 11] = [
    ("gemm.csv", SourceFormat::Csv, Kind::Gemm),
    ("attention_prefill.csv", SourceFormat::Csv, Kind::AttentionPrefill),
    ("attention_decode.csv", SourceFormat::Csv, Kind::AttentionDecode),
    ("moe.csv", SourceFormat::Csv, Kind::Moe),
    ("allreduce.csv", SourceFormat::Csv, Kind::AllReduce),
    ("small_kernels.csv", SourceFormat::Csv, Kind::SmallKernels),
    ("gemm_perf.parquet", SourceFormat::Parquet, Kind::Gemm),
    ("context_attention_perf.parquet", SourceFormat::Parquet, Kind::AttentionPrefill),
    ("generation_attention_perf.parquet", SourceFormat::Parquet, Kind::AttentionDecode),
    ("moe_perf.parquet", SourceFormat::Parquet, Kind::Moe),
    ("custom_allreduce_perf.parquet", SourceFormat::Parquet, Kind::AllReduce),
];

/// A file of the measuring kit with the quantiles of each row's samples: for people, and no measurements of its own.
const SPREAD_FILE: &str = "spread.csv";

impl Measurements {
    /// Reads every known file of a folder, not of the folders in it.
    ///
    /// # Errors
    /// `ErrorKind::Io` where the folder or a file can't be read; `ErrorKind::Parse` where the folder holds no known file, a
    /// file is malformed, empty, or has a missing or unknown column or key, or the crate was built without what reads it;
    /// `ErrorKind::Invalid` where the certificate says that the folder holds no measurements; `ErrorKind::BadRow` at the first
    /// unusable row of a file.
    pub fn load(dir: &Path) -> Result<Self> {
        let names = file_names(dir)?;
        let certificate = Certificate::read(dir, &stems())?;
        let mut measurements = Measurements::default();
        let mut num_files = 0;
        for (file, format, kind) in FILES {
            let mut rows = 0;
            if names.contains(file) {
                num_files += 1;
                rows = measurements.read(dir, file, format, kind, certificate.as_ref())?;
            }
            if let (Some(certificate), Some(stem)) = (&certificate, file.strip_suffix(".csv")) {
                let remarks = certificate.remarks(stem, rows).into_iter();
                measurements.notes.extend(remarks.map(|remark| format!("{}: {remark}", dir.display())));
            }
        }
        if num_files == 0 {
            let known: Vec<&str> = FILES.iter().map(|(file, ..)| *file).collect();
            return Err(Error::parse(
                dir.display().to_string(),
                format!("holds no measurements; looked for {}", known.join(", ")),
            ));
        }
        for name in names.iter().filter(|name| name.ends_with(".csv") || name.ends_with(".parquet")) {
            if name != SPREAD_FILE && !FILES.iter().any(|(file, ..)| file == name) {
                measurements.notes.push(format!("{}: not a known name, not read", dir.join(name).display()));
            }
        }
        if certificate.is_some() && !measurements.sources.iter().any(|source| source.format == SourceFormat::Csv) {
            let path = dir.join(CERTIFICATE_FILE);
            let why = "is about csv files, of which there are none: the parquet tables name their own sources";
            measurements.notes.push(format!("{}: {why}", path.display()));
        }
        Ok(measurements)
    }

    /// The GPUs that the measurements were taken on, as their sources name them, without repetition. Empty where no
    /// source names one.
    pub fn devices(&self) -> Vec<&str> {
        let devices: BTreeSet<&str> = self.sources.iter().filter_map(|source| source.device.as_deref()).collect();
        devices.into_iter().collect()
    }

    /// Adds the rows of another folder, with their sources and notes.
    ///
    /// # Errors
    /// `ErrorKind::Invalid` where both have more sources than an index can tell apart; nothing is added then.
    pub fn append(&mut self, mut other: Measurements) -> Result<()> {
        let sources = self.sources.len() + other.sources.len();
        let Some(offset) = u16::try_from(self.sources.len()).ok().filter(|_| sources <= usize::from(u16::MAX)) else {
            return Err(Error::invalid(
                "measurements",
                vec![format!("{sources} sources together, at most {} can be told apart", u16::MAX)],
            ));
        };
        macro_rules! append_rows {
            ($($rows:ident),*) => {$(
                other.$rows.iter_mut().for_each(|row| row.source += offset);
                self.$rows.append(&mut other.$rows);
            )*};
        }
        append_rows!(gemm, attention_prefill, attention_decode, moe, allreduce, small_kernels);
        self.sources.append(&mut other.sources);
        self.notes.append(&mut other.notes);
        Ok(())
    }

    /// Adds the rows of a file and counts them.
    fn read(
        &mut self,
        dir: &Path,
        file: &str,
        format: SourceFormat,
        kind: Kind,
        certificate: Option<&Certificate>,
    ) -> Result<usize> {
        let (table, template) = read_table(dir, file, format, certificate)?;
        let sources = &mut RowSources::new(&table, template, &mut self.sources);
        macro_rules! read_rows {
            ($rows:ident) => {{
                let (rows, note) = duplicates::merge(&table, build::$rows(&table, sources)?)?;
                self.$rows.extend(rows);
                self.notes.extend(note);
            }};
        }
        match kind {
            Kind::Gemm => read_rows!(gemm),
            Kind::AttentionPrefill => read_rows!(attention_prefill),
            Kind::AttentionDecode => read_rows!(attention_decode),
            Kind::Moe => read_rows!(moe),
            Kind::AllReduce => read_rows!(allreduce),
            Kind::SmallKernels => read_rows!(small_kernels),
        }
        Ok(table.num_rows)
    }
}

/// What the sections of a certificate can be about: the csv files without their ending.
fn stems() -> Vec<&'static str> {
    FILES.iter().filter_map(|(file, ..)| file.strip_suffix(".csv")).collect()
}

fn read_table(
    dir: &Path,
    file: &str,
    format: SourceFormat,
    certificate: Option<&Certificate>,
) -> Result<(Table, SourceFile)> {
    let path = dir.join(file);
    match format {
        SourceFormat::Csv => {
            let source = certificate.map_or_else(|| Certificate::default().source(file), |c| c.source(file));
            Ok((csv_reader::read(&path)?, source))
        }
        #[cfg(feature = "parquet")]
        SourceFormat::Parquet => Ok((
            parquet_reader::read(&path)?,
            SourceFile {
                file: file.into(),
                format,
                framework: None,
                version: None,
                device: None,
                kernel_source: None,
                driver: None,
                date: None,
                command: None,
            },
        )),
        #[cfg(not(feature = "parquet"))]
        SourceFormat::Parquet => Err(Error::parse(
            path.display().to_string(),
            "can't be read by this build; build with the feature 'parquet' or remove the file",
        )),
    }
}

fn file_names(dir: &Path) -> Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    for entry in std::fs::read_dir(dir).map_err(|error| Error::io(dir, error))? {
        let entry = entry.map_err(|error| Error::io(dir, error))?;
        if let Ok(name) = entry.file_name().into_string() {
            names.insert(name);
        }
    }
    Ok(names)
}

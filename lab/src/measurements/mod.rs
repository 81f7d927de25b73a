//! Kernel timings that efficiency tables are calibrated on: read, checked and typed, nothing filtered or fitted.
//!
//! [`Measurements::load`] reads one folder. It takes two kinds of files:
//!
//! - the public kernel tables (feature `parquet`), under the names that they are published with:
//!   `gemm_perf.parquet`, `context_attention_perf.parquet`, `generation_attention_perf.parquet`, `moe_perf.parquet`,
//!   `context_mla_perf.parquet`, `generation_mla_perf.parquet`, `custom_allreduce_perf.parquet`, `nccl_perf.parquet`, `gdn_perf.parquet`, `mla_bmm_perf.parquet`, `mla_context_module_perf.parquet`,
//!   `mla_generation_module_perf.parquet`, `scale_matrix_perf.parquet`. Their `latency` is in milliseconds and their `message_size` counts elements;
//!   both are converted. A shape that such a table holds more than once keeps the median of its times, and
//!   [`Measurements::notes`] says so;
//! - one's own measurements as csv, with an optional `meta.toml` next to them:
//!
//! | file | columns, in any order |
//! |---|---|
//! | `gemm.csv` | `dtype,m,n,k,latency_us` |
//! | `batched_gemm.csv` | `dtype,copies,m,n,k,latency_us` |
//! | `attention_prefill.csv` | `num_heads,num_kv_heads,head_dim,kv_cache_dtype,window_size,batch_size,num_scheduled_tokens,num_computed_tokens,latency_us` |
//! | `attention_decode.csv` | `num_heads,num_kv_heads,head_dim,kv_cache_dtype,window_size,batch_size,kv_tokens_total,kv_tokens_max,latency_us` |
//! | `attention_mixed.csv` | `num_heads,num_kv_heads,head_dim,kv_cache_dtype,window_size,num_prefills,num_scheduled_tokens,num_computed_tokens,num_decodes,kv_tokens_total,latency_us` |
//! | `moe.csv` | `dtype,num_tokens,hidden_size,intermediate_size,top_k,num_experts,moe_tp_size,moe_ep_size,distribution,latency_us` |
//! | `allreduce.csv` | `num_gpus,message_bytes,backend,latency_us` |
//! | `nccl.csv` | `collective,num_gpus,message_bytes,latency_us` |
//! | `linear_attention.csv` | `recurrence,kernel,num_key_heads,num_heads,key_head_dim,head_dim,conv_kernel,batch_size,num_scheduled_tokens,latency_us` |
//! | `latent_block.csv` | `num_heads,kv_cache_dtype,batch_size,num_scheduled_tokens,num_computed_tokens,latency_us` |
//! | `small_kernels.csv` | `kernel,num_tokens,width,launches,latency_us` |
//!
//! The fields of the call types say what each column means; `docs/measurements.md` explains them to those who measure.
//! `window_size` is 0 for full attention. Lines that begin with `#` are comments. A missing column, an
//! impossible value and a repeated shape are errors. `docs/measurements.md` lists the keys of `meta.toml`; a folder whose `kind`
//! is not `measurement` is refused. `spread.csv`, which the measuring kit writes for people, is not read.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;

use ridgepoint::input::{FileKind, Input};
use ridgepoint::{Error, Result};
use ridgepoint_replay::input::{Columns, Row, RowReader};

mod allreduce;
mod attention;
mod batched_gemm;
mod calls;
mod certificate;
mod columns;
mod gemm;
mod latent_block;
mod linear_attention;
mod moe;
mod nccl;
#[cfg(feature = "parquet")]
mod parquet_claims;
#[cfg(feature = "parquet")]
mod public_table;
mod small_kernels;
mod source;
#[cfg(test)]
mod tests;

pub use allreduce::AllReduceCall;
pub use attention::{DecodeCall, Heads, MixedCall, PrefillCall};
pub use batched_gemm::BatchedGemmCall;
pub use calls::{Calls, Timed};
pub use certificate::CERTIFICATE_FILE;
pub use columns::Call;
pub use gemm::GemmCall;
pub use latent_block::LatentBlockCall;
pub use linear_attention::StateCall;
pub use moe::MoeCall;
pub use nccl::ExchangeCall;
pub use small_kernels::SmallKernelCall;
pub use source::{SourceFile, SourceFormat};

use crate::stats::median;
use certificate::Certificate;
use columns::{PublicTable, latency_us};

/// All measurements of a folder, each row with its source.
#[derive(Debug, Default)]
pub struct Measurements {
    /// The calls with their times, by operator.
    pub calls: Calls,
    /// Sources of the rows: one entry per file, engine, version, device and kernel.
    pub sources: Vec<SourceFile>,
    /// Remarks on the reading: merged duplicates, files that were not read.
    pub notes: Vec<String>,
}

/// A file of the measuring kit with the quantiles of each row's samples, for people.
const SPREAD_FILE: &str = "spread.csv";

impl Measurements {
    /// Reads every known file of a folder, not of the folders in it.
    ///
    /// # Errors
    /// `ErrorKind::Io` if the folder or a file cannot be read; `ErrorKind::Parse` or `ErrorKind::Invalid` if the folder
    /// holds no known file, a file is malformed, empty, or has a missing or unknown column or key, the certificate says
    /// that the folder holds no measurements, or the crate was built without the reader of a file; at the first unusable
    /// row of a file, an error that names it.
    pub fn load(dir: &Path) -> Result<Self> {
        let names = file_names(dir)?;
        let certificate = Certificate::read(dir, &STEMS)?;
        let (known, sources, notes) = (BTreeSet::new(), Vec::new(), Vec::new());
        let mut folder = Folder { dir, certificate, known, names, sources, notes };
        let calls = Calls {
            gemm: folder.read()?,
            batched_gemm: folder.read()?,
            prefill: folder.read()?,
            decode: folder.read()?,
            moe: folder.read()?,
            all_reduce: folder.read()?,
            exchange: folder.read()?,
            state: folder.read()?,
            mixed: folder.read()?,
            latent_block: folder.read()?,
            small_kernels: folder.read()?,
        };
        folder.finish()?;
        Ok(Measurements { calls, sources: folder.sources, notes: folder.notes })
    }

    /// The GPUs that the measurements were taken on, as their sources name them, without repetition. Empty if no source
    /// names one.
    pub fn devices(&self) -> Vec<&str> {
        let devices: BTreeSet<&str> = self.sources.iter().filter_map(|source| source.device.as_deref()).collect();
        devices.into_iter().collect()
    }

    /// Adds the rows of another folder, with their sources and notes.
    pub fn append(&mut self, mut other: Measurements) {
        let offset = self.sources.len();
        self.calls.append(other.calls, offset);
        self.sources.append(&mut other.sources);
        self.notes.append(&mut other.notes);
    }
}

/// The csv files that sections of a certificate can be about, without their ending.
const STEMS: [&str; 11] = [
    GemmCall::STEM,
    BatchedGemmCall::STEM,
    PrefillCall::STEM,
    DecodeCall::STEM,
    MoeCall::STEM,
    AllReduceCall::STEM,
    ExchangeCall::STEM,
    StateCall::STEM,
    MixedCall::STEM,
    LatentBlockCall::STEM,
    SmallKernelCall::STEM,
];

/// Reads the call of a row of a source, and numbers its shape: from 0, in the order in which shapes come first.
type ReadCall<'p> = dyn FnMut(&Row<'_>, SourceFormat, usize) -> Result<usize> + 'p;

/// A folder that is being read.
struct Folder<'a> {
    dir: &'a Path,
    certificate: Option<Certificate>,
    /// Files in the folder.
    names: BTreeSet<String>,
    /// Files that were looked for.
    known: BTreeSet<String>,
    sources: Vec<SourceFile>,
    notes: Vec<String>,
}

impl Folder<'_> {
    /// Reads the calls of one operator, each source's shapes once.
    fn read<C: Call>(&mut self) -> Result<Vec<Timed<C>>> {
        let mut places: HashMap<(usize, C), usize> = HashMap::new();
        let mut place = |row: &Row<'_>, format: SourceFormat, source: usize| {
            let (call, next) = (C::read(row, format)?, places.len());
            Ok(*places.entry((source, call)).or_insert(next))
        };
        let times_us = self.read_files(C::STEM, C::CSV, C::PUBLIC, &mut place)?;
        let mut calls: Vec<((usize, C), usize)> = places.into_iter().collect();
        calls.sort_unstable_by_key(|(_, at)| *at);
        let timed = calls.into_iter().zip(times_us);
        let timed = timed.map(|(((source, call), _), latency_us)| Timed { call, latency_us, source });
        Ok(timed.collect())
    }

    /// Reads the files of an operator. Returns the time of each shape, in the order in which `place` numbers them.
    fn read_files(
        &mut self,
        stem: &str,
        columns: &'static str,
        public: &[PublicTable],
        place: &mut ReadCall<'_>,
    ) -> Result<Vec<f64>> {
        let csv_file = format!("{stem}.csv");
        let mut times_us = Vec::new();
        if self.looks_for(&csv_file) {
            let input = Input::open(FileKind::KernelTimings, &self.dir.join(&csv_file))?;
            let reader = RowReader::csv(input, Columns::exactly(columns).among_others())?;
            if !reader.header().others().is_empty() {
                let others = reader.header().others().join(", ");
                self.notes.push(format!("{}: columns that are not known, not read: {others}", reader.origin()));
            }
            let source = self.certificate.as_ref().map(|certificate| certificate.source(stem));
            let source = source.unwrap_or(SourceFile { file: csv_file, ..SourceFile::default() });
            self.read_rows(reader, source, None, place, &mut times_us)?;
        }
        if let Some(certificate) = &self.certificate {
            let remarks = certificate.remarks(stem, times_us.len()).into_iter();
            self.notes.extend(remarks.map(|remark| format!("{}: {remark}", self.dir.display())));
        }
        for public in public {
            if self.looks_for(public.file) {
                self.read_public(public, place, &mut times_us)?;
            }
        }
        Ok(times_us)
    }

    /// Whether the folder has a file, which from then on is a known one.
    fn looks_for(&mut self, file: &str) -> bool {
        self.known.insert(file.to_owned());
        self.names.contains(file)
    }

    #[cfg(feature = "parquet")]
    fn read_public(&mut self, public: &PublicTable, place: &mut ReadCall<'_>, times_us: &mut Vec<f64>) -> Result<()> {
        let path = self.dir.join(public.file);
        let reader = RowReader::jsonl(public_table::jsonl(&path)?, public.columns);
        let (file, format) = (public.file.to_owned(), SourceFormat::Parquet);
        self.read_rows(reader, SourceFile { file, format, ..SourceFile::default() }, Some(public), place, times_us)
    }

    #[cfg(not(feature = "parquet"))]
    fn read_public(&mut self, public: &PublicTable, _: &mut ReadCall<'_>, _: &mut Vec<f64>) -> Result<()> {
        let message = "can't be read by this build; build with the feature 'parquet' or remove the file";
        Err(Error::parse(self.dir.join(public.file).as_path(), message))
    }

    /// Reads the rows of a file, and adds the times of its shapes behind those of the files before.
    fn read_rows(
        &mut self,
        mut reader: RowReader<'_>,
        file: SourceFile,
        public: Option<&PublicTable>,
        place: &mut ReadCall<'_>,
        times_us: &mut Vec<f64>,
    ) -> Result<()> {
        let (origin, format) = (reader.origin().to_owned(), file.format);
        // The number of each shape's first row, and its times.
        let mut shapes: Vec<(usize, Vec<f64>)> = Vec::new();
        let only = public.map_or(&[][..], |public| public.only);
        let mut others: BTreeMap<(&str, &str), u64> = BTreeMap::new();
        while let Some(row) = reader.next_row()? {
            let is_other = |(column, value): &&(&str, &str)| row.text(column).is_some_and(|of| of != *value);
            if let Some(of) = only.iter().find(is_other) {
                *others.entry(*of).or_default() += 1;
                continue;
            }
            let source = match public {
                None => file.clone(),
                Some(public) => public_source(&file, public, &row)?,
            };
            // The sources of another file are others, and so are its shapes.
            let at = place(&row, format, self.source_index(source))?.saturating_sub(times_us.len());
            let latency_us = latency_us(&row, format)?;
            match shapes.get_mut(at) {
                None => shapes.push((row.row_number(), vec![latency_us])),
                Some((first, _)) if format == SourceFormat::Csv => {
                    let expected = "each shape once: keep the median of repeated measurements";
                    let found = format!("the shape of row {first}");
                    return Err(Error::bad_row(&origin, row.row_number(), "all but latency_us", found, expected));
                }
                Some((_, times_us)) => times_us.push(latency_us),
            }
        }
        for ((column, value), others) in others {
            self.notes.push(format!(
                "{origin}: {others} rows whose {column} is not {value} were not read: no table takes them"
            ));
        }
        if shapes.is_empty() {
            return Err(Error::parse(origin, "has no rows; remove the file or add a measurement"));
        }
        let repeated: Vec<usize> = shapes.iter().map(|(_, times_us)| times_us.len()).filter(|rows| *rows > 1).collect();
        if !repeated.is_empty() {
            let (shapes, rows) = (repeated.len(), repeated.iter().sum::<usize>());
            self.notes.push(format!(
                "{origin}: {shapes} shapes were measured more than once ({rows} rows); the median of each was kept"
            ));
        }
        times_us.extend(shapes.into_iter().filter_map(|(_, times_us)| median(times_us)));
        Ok(())
    }

    /// The index of a source, which is added if it is new. Rows of one source follow each other.
    fn source_index(&mut self, source: SourceFile) -> usize {
        self.sources.iter().rposition(|known| *known == source).unwrap_or_else(|| {
            self.sources.push(source);
            self.sources.len() - 1
        })
    }

    /// Refuses a folder without known files, and notes what was not read.
    fn finish(&mut self) -> Result<()> {
        if self.known.is_disjoint(&self.names) {
            let known: Vec<&str> = self.known.iter().map(String::as_str).collect();
            return Err(Error::parse(self.dir, format!("holds no measurements; looked for {}", known.join(", "))));
        }
        for name in self.names.iter().filter(|name| name.ends_with(".csv") || name.ends_with(".parquet")) {
            if name != SPREAD_FILE && !self.known.contains(name) {
                self.notes.push(format!("{}: not a known name, not read", self.dir.join(name).display()));
            }
        }
        if self.certificate.is_some() && !self.sources.iter().any(|source| source.format == SourceFormat::Csv) {
            let path = self.dir.join(CERTIFICATE_FILE);
            let why = "is about csv files, of which there are none: the parquet tables name their own sources";
            self.notes.push(format!("{}: {why}", path.display()));
        }
        Ok(())
    }
}

/// The source of a row of a public table, which must be of the operator's kernel.
fn public_source(file: &SourceFile, public: &PublicTable, row: &Row<'_>) -> Result<SourceFile> {
    for (column, value) in public.constants {
        row.read(column, value, |text| (text == *value).then_some(()))?;
    }
    let text = |column| row.read(column, "a text", |text| Some(text.to_owned())).map(Some);
    Ok(SourceFile {
        framework: text("framework")?,
        version: text("version")?,
        device: text("device")?,
        kernel_source: text("kernel_source")?,
        ..file.clone()
    })
}

fn file_names(dir: &Path) -> Result<BTreeSet<String>> {
    let entries = std::fs::read_dir(dir).and_then(|entries| entries.collect::<std::io::Result<Vec<_>>>());
    let entries = entries.map_err(|error| Error::io(dir, error))?.into_iter();
    Ok(entries.filter_map(|entry| entry.file_name().into_string().ok()).collect())
}

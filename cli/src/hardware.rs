//! `ridgepoint hardware`: the list of GPUs, and one GPU in detail with its tables.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use clap::Args;
use ridgepoint::hardware::builtin_names;
use ridgepoint::internals::correction::builtin_corrections;
use ridgepoint::internals::efficiency::Tables;
use ridgepoint::internals::efficiency::family::{Family, FamilyVisitor, for_each_family};
use ridgepoint::internals::efficiency::table::{Header, SeriesHeader};
use ridgepoint::internals::hardware::{Architecture, HostLinkKind, NetworkKind};
use ridgepoint::internals::input::files_in;
use ridgepoint::internals::units::{GIB, si};
use ridgepoint::{DType, Engine, Hardware};
use serde::Serialize;

use crate::common::Common;
use crate::deployment::link;
use crate::outcome::{Failure, Outcome, Report};
use crate::text::{Page, Rows, count, quantity};

/// The arguments of `hardware`.
#[derive(Debug, Args)]
pub struct HardwareArgs {
    /// Name, TOML file or FILE.json#NAME of one GPU, to show its figures, their sources and its tables
    #[arg(value_name = "NAME|PATH")]
    name: Option<String>,
}

/// The result of `hardware`.
#[derive(Serialize)]
#[serde(untagged)]
#[cfg_attr(feature = "serve", derive(schemars::JsonSchema))]
pub enum HardwareReport {
    /// All GPUs.
    List {
        /// By name.
        hardware: Vec<GpuEntry>,
    },
    /// One GPU with its tables.
    One(Box<GpuEntry>),
}

/// A GPU as it is listed.
#[derive(Serialize)]
#[cfg_attr(feature = "serve", derive(schemars::JsonSchema))]
pub struct GpuEntry {
    /// Its figures and their sources.
    #[serde(flatten)]
    hardware: Hardware,
    /// Operators that have an efficiency table of this very GPU.
    tables: Vec<String>,
    /// Whether a built-in correction was fitted on steps of this very GPU.
    correction: bool,
    /// Names of those corrections.
    corrections: Vec<String>,
    /// The tables by operator, of a GPU that is shown alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    table_headers: Option<BTreeMap<String, GpuTable>>,
}

/// The efficiency table of one operator.
#[derive(Serialize)]
#[cfg_attr(feature = "serve", derive(schemars::JsonSchema))]
struct GpuTable {
    /// Measured rows used, over all series.
    rows: usize,
    /// Publishers of the measurements.
    sources: BTreeSet<String>,
    /// Command that wrote the table.
    command: String,
    /// Series by name: rows, lines, source and the errors of rows left out.
    series: BTreeMap<String, SeriesHeader>,
}

/// The tables of a GPU by operator.
struct GpuTables<'a> {
    tables: &'a Tables,
    by_name: BTreeMap<String, GpuTable>,
}

impl<F: Family> FamilyVisitor<F> for GpuTables<'_> {
    /// Adds the GPU's tables of the operator: that of the nearest version of vLLM by its operator, others by their engine as well.
    fn visit(&mut self) -> ridgepoint::Result<()> {
        for (place, (engine, header)) in self.tables.own_tables::<F>()?.into_iter().enumerate() {
            let Header { operator, command, series, .. } = Arc::unwrap_or_clone(header);
            let rows = series.values().map(|series| series.rows).sum();
            let sources = series.values().map(|series| series.source.clone()).collect();
            let name = match engine.filter(|_| place > 0) {
                Some(engine) => format!("{operator} of {engine}"),
                None => operator,
            };
            self.by_name.insert(name, GpuTable { rows, sources, command, series });
        }
        Ok(())
    }
}

/// Lists GPUs, or shows one.
///
/// # Errors
/// A GPU that is unknown, a hardware or table file that is malformed.
pub fn run(args: &HardwareArgs, common: &Common) -> Result<Outcome<HardwareReport>, Failure> {
    let data_dir = common.data_dir();
    Ok(Outcome::of(match &args.name {
        Some(name) => HardwareReport::one(Hardware::find_in(data_dir, name)?, data_dir)?,
        None => HardwareReport::list(data_dir)?,
    }))
}

impl HardwareReport {
    /// All GPUs.
    ///
    /// # Errors
    /// A hardware or table file that is malformed.
    pub fn list(data_dir: Option<&Path>) -> ridgepoint::Result<Self> {
        let entry = |name: &String| {
            Ok(GpuEntry { table_headers: None, ..detail(Hardware::find_in(data_dir, name)?, data_dir)? })
        };
        let entries = names(data_dir)?.iter().map(entry).collect::<ridgepoint::Result<_>>()?;
        Ok(HardwareReport::List { hardware: entries })
    }

    /// One GPU with its tables.
    ///
    /// # Errors
    /// A table file that is malformed.
    pub fn one(hardware: Hardware, data_dir: Option<&Path>) -> ridgepoint::Result<Self> {
        Ok(HardwareReport::One(Box::new(detail(hardware, data_dir)?)))
    }
}

/// Names of the built-in GPUs and of those of the data folder.
///
/// # Errors
/// A folder that cannot be read.
pub fn names(data_dir: Option<&Path>) -> ridgepoint::Result<BTreeSet<String>> {
    let mut names: BTreeSet<String> = builtin_names().into_iter().map(str::to_owned).collect();
    for path in files_in(data_dir, "hardware", "toml")? {
        names.extend(path.file_stem().map(|stem| stem.to_string_lossy().into_owned()));
    }
    Ok(names)
}

fn detail(hardware: Hardware, data_dir: Option<&Path>) -> ridgepoint::Result<GpuEntry> {
    let tables = Tables::new(&hardware, &Engine::default(), data_dir);
    let mut found = GpuTables { tables: &tables, by_name: BTreeMap::new() };
    for_each_family(&mut found)?;
    let table_headers = found.by_name;
    let fitted = builtin_corrections()?.iter().filter(|of| of.source.hardware.contains(&hardware.name));
    let corrections: Vec<String> = fitted.map(|correction| correction.name.clone()).collect();
    Ok(GpuEntry {
        tables: table_headers.keys().filter(|name| !name.contains(' ')).cloned().collect(),
        correction: !corrections.is_empty(),
        corrections,
        hardware,
        table_headers: Some(table_headers),
    })
}

impl Report for HardwareReport {
    fn lay_out(&self, page: &mut Page) {
        match self {
            HardwareReport::List { hardware } => list(hardware, page),
            HardwareReport::One(detail) => one(detail, page),
        }
    }
}

fn memory(hardware: &Hardware) -> String {
    format!("{:.0} GiB at {}", hardware.hbm_capacity_bytes / GIB, quantity(hardware.hbm_bytes_per_s, "B/s"))
}

/// The names, or `instead` if there are none.
fn listed(names: &[String], instead: &str) -> String {
    if names.is_empty() { instead.to_owned() } else { names.join(", ") }
}

/// The tables that a chip without its own takes.
fn without_tables(hardware: &Hardware) -> &'static str {
    if hardware.architecture == Architecture::Cpu { "none: the datasheet's bounds" } else { "borrowed" }
}

/// The correction that a chip without one of its own takes.
fn without_correction(hardware: &Hardware) -> &'static str {
    if hardware.architecture == Architecture::Cpu { "none" } else { "carried over" }
}

/// Operators that can have tables.
struct Operators(usize);

impl<F: Family> FamilyVisitor<F> for Operators {
    fn visit(&mut self) -> ridgepoint::Result<()> {
        self.0 += 1;
        Ok(())
    }
}

/// One line per GPU.
fn list(entries: &[GpuEntry], page: &mut Page) {
    let mut operators = Operators(0);
    // A count has no errors.
    let num_operators = for_each_family(&mut operators).map_or(0, |()| operators.0);
    let peak = |of: &GpuEntry, dtype| of.hardware.peak_dense_flop_per_s(dtype).map_or_else(|_| "-".to_owned(), si);
    let rows = Rows::of(entries)
        .left("name", |of| of.hardware.name.clone())
        .left("GPU", |of| of.hardware.display_name.trim_start_matches("NVIDIA ").to_owned())
        .right("SMs", |of| of.hardware.sm_count.to_string())
        .right("bf16", |of| peak(of, DType::Bfloat16))
        .right("fp8", |of| peak(of, DType::Fp8))
        .right("int8", |of| peak(of, DType::Int8))
        .right("fp4", |of| peak(of, DType::Fp4))
        .left("memory", |of| memory(&of.hardware))
        .left("link", |of| link(&of.hardware))
        .left("tables", |of| match of.tables.len() == num_operators {
            true => "all".to_owned(),
            false => listed(&of.tables, without_tables(&of.hardware)),
        })
        .left("correction", |of| listed(&of.corrections, without_correction(&of.hardware)));
    page.rows(&rows, &["GPU", "int8", "fp4", "SMs", "correction", "link"]);
    page.blank();
    let text = "Peaks are dense, in FLOP/s; a link's rate is one direction of one GPU. A GPU without tables borrows the \
                efficiencies of the nearest architecture. A correction that was fitted on other GPUs is carried over. Predictions \
                warn of both. `ridgepoint hardware NAME` shows sources, other names and how well each table predicts.";
    page.paragraph("", text);
}

/// One GPU in detail, for people.
fn one(entry: &GpuEntry, page: &mut Page) {
    let gpu = &entry.hardware;
    page.line(&format!("{} ({})", gpu.name, gpu.display_name));
    page.blank();
    let peak = |dtype| Some(format!("{dtype} {}", quantity(gpu.peak_dense_flop_per_s(dtype).ok()?, "")));
    let peaks: Vec<String> = gpu.peaks_dense_flop_per_s.keys().copied().filter_map(peak).collect();
    page.fact("dense peaks", &format!("{} FLOP/s", peaks.join(", ")));
    page.fact("memory", &memory(gpu));
    let units = if gpu.architecture == Architecture::Cpu { "cores" } else { "SMs" };
    page.fact(units, &format!("{} at up to {}", gpu.sm_count, quantity(gpu.boost_clock_hz, "Hz")));
    page.fact("L2 cache", &quantity(gpu.l2_bytes, "B"));
    match gpu.interconnect {
        Some(joins) => {
            page.fact("link", &format!("{}, one direction of one GPU; joins {}", link(gpu), joins.num_gpus));
        }
        None => page.fact("link", "none"),
    }
    if let Some(network) = gpu.network {
        let kind = match network.kind {
            NetworkKind::Rdma => "network cards",
            NetworkKind::Pcie => "PCIe",
        };
        let rate = quantity(network.unidirectional_bytes_per_s, "B/s");
        page.fact("beyond it", &format!("{kind} {rate}, one direction of one GPU"));
    }
    if let Some(host) = gpu.host_link {
        let kind = match host.kind {
            HostLinkKind::Pcie => "PCIe",
            HostLinkKind::NvlinkC2c => "NVLink-C2C",
        };
        page.fact("host link", &format!("{kind} {}", quantity(host.unidirectional_bytes_per_s, "B/s")));
    }
    if let Some(limit) = &gpu.power_limit {
        let rates: Vec<String> =
            limit.flop_per_s.iter().map(|(dtype, rate)| format!("{dtype} {}", quantity(*rate, ""))).collect();
        let bytes = quantity(limit.bytes_per_s, "B/s");
        page.fact(
            "sustained",
            &format!("{} FLOP/s without bytes, {bytes} without FLOPs, by its power", rates.join(", ")),
        );
    }
    page.fact("tables", &listed(&entry.tables, without_tables(gpu)));
    page.fact("correction", &listed(&entry.corrections, without_correction(gpu)));
    gpu.sources.iter().for_each(|source| page.fact("source", source));
    gpu.notes.iter().for_each(|note| page.fact("note", note));
    page.fact("known as", &listed(&gpu.aliases, "its name alone"));
    let Some(table_headers) = entry.table_headers.as_ref().filter(|headers| !headers.is_empty()) else { return };
    page.blank();
    let rows = Rows::of(table_headers)
        .left("table", |(operator, _)| (*operator).clone())
        .right("series", |(_, of)| count(of.series.len()))
        .right("rows", |(_, of)| count(of.rows))
        .right("median errors", |(_, of)| {
            let medians = of.series.values().map(|series| series.cross_validated_median_ape_pct);
            let (least, most) = medians.fold((f64::INFINITY, 0.0f64), |(least, most), x| (least.min(x), most.max(x)));
            format!("{least:.2} to {most:.2} %")
        });
    page.rows(&rows, &[]);
    page.blank();
    page.line("Errors are of rows left out of the fit (10-fold cross-validation); the JSON has those of each series.");
    page.blank();
    for (operator, of) in table_headers {
        page.line(operator);
        of.sources.iter().for_each(|source| page.fact("", source));
    }
}

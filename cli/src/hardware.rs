//! `ridgepoint hardware`: the list of GPUs, and one GPU in detail with its tables.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use clap::Args;
use ridgepoint::hardware::{builtin_aliases, builtin_names};
use ridgepoint::internals::correction::builtin_corrections;
use ridgepoint::internals::efficiency::Tables;
use ridgepoint::internals::efficiency::family::Family;
use ridgepoint::internals::efficiency::kernel_model::{AllReduceModel, DecodeModel, GemmModel, MoeModel, PrefillModel};
use ridgepoint::internals::efficiency::table::{Header, SeriesHeader};
use ridgepoint::internals::units::{GIB, si};
use ridgepoint::{DType, Hardware};
use serde::Serialize;

use crate::common::{Common, Format, files_in};
use crate::deployment::link;
use crate::outcome::{Failure, Output};
use crate::text::{count, quantity, rendered, table, width, wrap};

/// The arguments of `hardware`.
#[derive(Debug, Args)]
pub struct HardwareArgs {
    /// Name or path of one GPU, to show its figures, their sources and its tables
    #[arg(value_name = "NAME|PATH")]
    name: Option<String>,
}

/// A GPU as it is listed.
#[derive(Serialize)]
struct GpuEntry {
    /// Its figures and their sources.
    #[serde(flatten)]
    hardware: Hardware,
    /// Other names it is found by.
    aliases: Vec<String>,
    /// Operators that have an efficiency table of this very GPU.
    tables: Vec<&'static str>,
    /// Whether a built-in correction was fitted on steps of this very GPU.
    correction: bool,
    /// Names of those corrections.
    corrections: Vec<String>,
}

/// The efficiency table of one operator.
#[derive(Serialize)]
struct GpuTable {
    /// Measured rows used, over all series.
    rows: usize,
    /// Who measured.
    sources: Vec<String>,
    /// Command that wrote the table.
    command: String,
    /// Series by name: rows, lines, source and the errors of rows left out.
    series: BTreeMap<String, SeriesHeader>,
}

impl GpuTable {
    fn new(header: &Header) -> Self {
        let sources: BTreeSet<String> = header.series.values().map(|series| series.source.clone()).collect();
        GpuTable {
            rows: header.series.values().map(|series| series.rows).sum(),
            sources: sources.into_iter().collect(),
            command: header.command.clone(),
            series: header.series.clone(),
        }
    }
}

/// Lists GPUs, or shows one.
///
/// # Errors
/// A GPU that is unknown, a hardware or table file that is malformed.
pub fn run(args: &HardwareArgs, common: &Common) -> Result<Output, Failure> {
    let data_dir = common.data_dir();
    let Some(name) = &args.name else {
        let mut names: BTreeSet<String> = builtin_names().into_iter().map(str::to_owned).collect();
        for path in files_in(data_dir, "hardware", "toml")? {
            names.extend(path.file_stem().map(|stem| stem.to_string_lossy().into_owned()));
        }
        let mut entries = Vec::new();
        for name in names {
            entries.push(gpu(Hardware::find_in(data_dir, &name)?, data_dir)?.0);
        }
        return match common.format {
            Format::Table => Ok(Output::of(list(&entries))),
            Format::Json => Output::json(&BTreeMap::from([("hardware", entries)])),
        };
    };
    let (entry, tables) = gpu(Hardware::find_in(data_dir, name)?, data_dir)?;
    match common.format {
        Format::Table => Ok(Output::of(one(&entry, &tables))),
        Format::Json => Output::json(&GpuDetail { entry: &entry, table_headers: &tables }),
    }
}

type GpuTables = BTreeMap<&'static str, GpuTable>;

fn gpu(hardware: Hardware, data_dir: Option<&Path>) -> Result<(GpuEntry, GpuTables), Failure> {
    let tables = Tables::new(&hardware, data_dir);
    let mut own = GpuTables::new();
    add_table::<GemmModel>(&tables, &mut own)?;
    add_table::<PrefillModel>(&tables, &mut own)?;
    add_table::<DecodeModel>(&tables, &mut own)?;
    add_table::<MoeModel>(&tables, &mut own)?;
    add_table::<AllReduceModel>(&tables, &mut own)?;
    let aliases = builtin_aliases(hardware.name()).unwrap_or_default();
    let fitted = builtin_corrections()?.iter().filter(|of| of.source.hardware.iter().any(|gpu| gpu == hardware.name()));
    let corrections: Vec<String> = fitted.map(|correction| correction.name.clone()).collect();
    let tables = own.keys().copied().collect();
    let entry = GpuEntry { hardware, aliases, tables, correction: !corrections.is_empty(), corrections };
    Ok((entry, own))
}

fn add_table<F: Family>(tables: &Tables, found: &mut GpuTables) -> ridgepoint::Result<()> {
    if let Some(header) = tables.own_header::<F>()? {
        found.insert(F::OPERATOR, GpuTable::new(&header));
    }
    Ok(())
}

fn peaks(hardware: &Hardware) -> String {
    let peak = |dtype| {
        let flop_per_s = hardware.peak_dense_flop_per_s(dtype).ok()?;
        Some(format!("{dtype} {}", quantity(flop_per_s, "")))
    };
    hardware.dtypes().filter_map(peak).collect::<Vec<_>>().join(", ")
}

fn memory(hardware: &Hardware) -> String {
    format!("{:.0} GiB at {}", hardware.hbm_capacity_bytes() / GIB, quantity(hardware.hbm_bytes_per_s(), "B/s"))
}

fn tables_of(entry: &GpuEntry) -> String {
    if entry.tables.is_empty() { "borrowed".to_owned() } else { entry.tables.join(", ") }
}

fn correction_of(entry: &GpuEntry) -> String {
    if entry.corrections.is_empty() { "carried over".to_owned() } else { entry.corrections.join(", ") }
}

/// Operators that can have tables.
const OPERATORS: usize = 5;

/// One line per GPU.
fn list(entries: &[GpuEntry]) -> String {
    let mut rows =
        table(&["name", "GPU", ">SMs", ">bf16", ">fp8", ">int8", ">fp4", "memory", "link", "tables", "correction"]);
    for entry in entries {
        let gpu = &entry.hardware;
        let peak = |dtype| gpu.peak_dense_flop_per_s(dtype).map_or_else(|_| "-".to_owned(), si);
        rows.add_row([
            gpu.name().to_owned(),
            gpu.display_name().trim_start_matches("NVIDIA ").to_owned(),
            gpu.sm_count().to_string(),
            peak(DType::Bfloat16),
            peak(DType::Fp8),
            peak(DType::Int8),
            peak(DType::Fp4),
            memory(gpu),
            link(gpu),
            if entry.tables.len() == OPERATORS { "all".to_owned() } else { tables_of(entry) },
            correction_of(entry),
        ]);
    }
    let mut out = rendered(rows, &["GPU", "int8", "fp4", "SMs", "correction", "link"]);
    out.push('\n');
    out.push_str(&wrap(
        "",
        "Peaks are dense, in FLOP/s; a link's rate is one direction of one GPU. A GPU without tables borrows the efficiencies of the nearest architecture against its own datasheet, and every \
         prediction says so; so it does where the correction was fitted on other GPUs and is carried over. `ridgepoint hardware NAME` shows sources, other names and how well each table predicts.",
        width(),
    ));
    out
}

/// One GPU in detail, as JSON.
#[derive(Serialize)]
struct GpuDetail<'a> {
    #[serde(flatten)]
    entry: &'a GpuEntry,
    table_headers: &'a BTreeMap<&'static str, GpuTable>,
}

/// Series of one table that are listed one by one; the JSON always has them all.
const MOST_SERIES: usize = 12;

fn error(percent: f64) -> String {
    format!("{percent:.2} %")
}

/// A table of many series in one line: the range of their median errors, and the mean error of all rows together.
fn summary(operator: &str, about: &GpuTable) -> [String; 6] {
    let medians = || about.series.values().map(|series| series.cross_validated_median_ape_pct);
    let lowest = medians().fold(f64::INFINITY, f64::min);
    let highest = medians().fold(0.0, f64::max);
    let summed: f64 = about.series.values().map(|s| s.cross_validated_mape_pct * s.rows as f64).sum();
    [
        operator.to_owned(),
        format!("{} series", about.series.len()),
        count(about.rows as u64),
        format!("{lowest:.2} to {}", error(highest)),
        error(summed / about.rows.max(1) as f64),
        about.sources.join("; "),
    ]
}

/// One GPU in detail, for people.
fn one(entry: &GpuEntry, tables: &BTreeMap<&'static str, GpuTable>) -> String {
    let gpu = &entry.hardware;
    let width = width();
    let mut out = format!("{} ({})\n\n", gpu.name(), gpu.display_name());
    let mut line = |label: &str, value: &str| out.push_str(&wrap(&format!("{label:<12}"), value, width));
    line("dense peaks", &format!("{} FLOP/s", peaks(gpu)));
    line("memory", &memory(gpu));
    line("SMs", &format!("{} at up to {}", gpu.sm_count(), quantity(gpu.boost_clock_hz(), "Hz")));
    line("L2 cache", &quantity(gpu.l2_bytes(), "B"));
    line("link", &format!("{}, one direction of one GPU", link(gpu)));
    line("tables", &tables_of(entry));
    line("correction", &correction_of(entry));
    for source in gpu.sources() {
        line("source", source);
    }
    if !entry.aliases.is_empty() {
        line("known as", &entry.aliases.join(", "));
    }
    if tables.is_empty() {
        return out;
    }
    out.push('\n');
    let mut rows = table(&["table", "series", ">rows", ">median error", ">mean error", "source"]);
    for (operator, about) in tables {
        if about.series.len() > MOST_SERIES {
            rows.add_row(summary(operator, about));
            continue;
        }
        for (name, series) in &about.series {
            rows.add_row([
                (*operator).to_owned(),
                name.clone(),
                count(series.rows as u64),
                error(series.cross_validated_median_ape_pct),
                error(series.cross_validated_mape_pct),
                series.source.clone(),
            ]);
        }
    }
    out.push_str(&rendered(rows, &["source", "mean error"]));
    out.push_str("\nErrors are of rows left out of the fit (10-fold cross-validation).\n");
    out
}

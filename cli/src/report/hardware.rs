//! What `ridgepoint hardware` shows: the list, and one GPU in detail with its tables.

use std::collections::BTreeMap;

use ridgepoint::hardware::InterconnectKind;
use ridgepoint::internals::units::{GIB, si};
use ridgepoint::{DType, Hardware};
use serde::Serialize;

use super::text::{count, quantity, rendered, table, width, wrap};
use crate::{GpuEntry, GpuTable};

/// `NVLink 450.0 GB/s`, one direction.
pub fn link_name(hardware: &Hardware) -> String {
    let link = hardware.interconnect();
    let kind = match link.kind {
        InterconnectKind::Nvlink => "NVLink",
        InterconnectKind::Pcie => "PCIe",
    };
    format!("{kind} {}", quantity(link.unidirectional_bytes_per_s, "B/s"))
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
pub fn list(entries: &[GpuEntry]) -> String {
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
            link_name(gpu),
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
pub struct GpuDetail<'a> {
    #[serde(flatten)]
    entry: &'a GpuEntry,
    table_headers: &'a BTreeMap<&'static str, GpuTable>,
}

/// One GPU with the headers of its tables.
pub fn detail<'a>(entry: &'a GpuEntry, tables: &'a BTreeMap<&'static str, GpuTable>) -> GpuDetail<'a> {
    GpuDetail { entry, table_headers: tables }
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
pub fn one(entry: &GpuEntry, tables: &BTreeMap<&'static str, GpuTable>) -> String {
    let gpu = &entry.hardware;
    let width = width();
    let mut out = format!("{} ({})\n\n", gpu.name(), gpu.display_name());
    let mut line = |label: &str, value: &str| out.push_str(&wrap(&format!("{label:<12}"), value, width));
    line("dense peaks", &format!("{} FLOP/s", peaks(gpu)));
    line("memory", &memory(gpu));
    line("SMs", &format!("{} at up to {}", gpu.sm_count(), quantity(gpu.boost_clock_hz(), "Hz")));
    line("L2 cache", &quantity(gpu.l2_bytes(), "B"));
    line("link", &format!("{}, one direction of one GPU", link_name(gpu)));
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

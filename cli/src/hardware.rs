//! `ridgepoint hardware`: the list of GPUs, and one GPU in detail with its tables.

use std::collections::BTreeSet;

use clap::Args;
use ridgepoint::hardware::{Architecture, HostLinkKind, NetworkKind};
use ridgepoint::units::{GIB, si};
use ridgepoint::{DType, Hardware};
use ridgepoint_lab::hardware_report::{GpuEntry, HardwareReport, detail, operators};
use ridgepoint_lab::served::{link, peers};

use crate::common::Common;
use crate::outcome::{Failure, Outcome, Report};
use crate::text::{Page, Rows, count, quantity};

/// The arguments of `hardware`.
#[derive(Debug, Args)]
pub struct HardwareArgs {
    /// Name, TOML file or FILE.json#NAME of one GPU, to show its figures, their sources and its tables
    #[arg(value_name = "NAME|PATH")]
    name: Option<String>,
    /// List the series of its tables, each with its errors; with texts, those that have all of them in table, engine, series or source
    #[arg(long, value_name = "TEXT", num_args = 0.., requires = "name")]
    series: Option<Vec<String>>,
}

/// Lists GPUs, or shows one.
///
/// # Errors
/// A GPU that is unknown, a hardware or table file that is malformed.
pub fn run(args: &HardwareArgs, common: &Common) -> Result<Outcome<HardwareReport>, Failure> {
    let data_dir = common.data_dir();
    Ok(Outcome::of(match &args.name {
        Some(name) => {
            let mut entry = detail(ridgepoint_replay::find_hardware(data_dir, name)?, data_dir)?;
            args.series.as_ref().map_or(Ok(()), |texts| entry.choose_series(texts))?;
            HardwareReport::One(Box::new(entry))
        }
        None => HardwareReport::list(data_dir)?,
    }))
}

impl Report for HardwareReport {
    fn lay_out(&self, page: &mut Page) {
        match self {
            HardwareReport::List { hardware } => list(hardware, page),
            HardwareReport::One(entry) if entry.lists_series => series(entry, page),
            HardwareReport::One(entry) => one(entry, page),
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

/// One line per GPU.
fn list(entries: &[GpuEntry], page: &mut Page) {
    let num_operators = operators().len();
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

/// The meaning of the errors of tables.
const ERRORS: &str = "Errors are of rows left out of the fit (10-fold cross-validation).";

/// The chosen series of one GPU, for people.
fn series(entry: &GpuEntry, page: &mut Page) {
    let tables = entry.table_headers.iter().flatten();
    let all: Vec<_> = tables.flat_map(|(name, of)| of.series.iter().map(move |series| (name, of, series))).collect();
    let sources: BTreeSet<&str> = all.iter().map(|(_, _, (_, series))| series.source.as_str()).collect();
    let number = |source: &str| sources.range(..=source).count().to_string();
    let error = |percent: f64| format!("{percent:.2} %");
    let rows = Rows::of(&all)
        .left("table", |(name, ..)| name.split(' ').next().unwrap_or_default().to_owned())
        .left("engine", |(_, of, _)| of.engine())
        .left("series", |(_, _, (key, _))| (*key).clone())
        .right("rows", |(_, _, (_, series))| count(series.rows))
        .right("median error", |(_, _, (_, series))| error(series.cross_validated_median_ape_pct))
        .right("mean error", |(_, _, (_, series))| error(series.cross_validated_mape_pct))
        .right("source", |(_, _, (_, series))| number(&series.source));
    page.rows(&rows, &[]);
    page.blank();
    page.line(ERRORS);
    page.line("An engine is that of the table; a series of another engine's kernels begins with its name.");
    page.blank();
    sources.iter().for_each(|source| page.paragraph(&format!("{:>3} ", number(source)), source));
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
            let link = format!("{}{}", link(gpu), peers(gpu));
            page.fact("link", &format!("{link}, one direction of one GPU; joins {}", joins.num_gpus));
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
    if let Some(watt) = gpu.board_watt {
        page.fact("board power", &format!("{watt} W"));
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
    if !entry.other_cards.is_empty() {
        page.fact("not", &format!("{}, other cards of the chip", entry.other_cards.join(", ")));
    }
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
    page.line(ERRORS);
    page.line("`ridgepoint hardware NAME --series` has those of each series.");
    page.blank();
    for (operator, of) in table_headers {
        page.line(operator);
        of.sources.iter().for_each(|source| page.fact("", source));
    }
}

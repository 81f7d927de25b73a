//! `ridgepoint calibrate`: builds the efficiency tables of a GPU from measurements, or scores the present ones. Files are written
//! after all tables are built.

mod measurements;
mod table;

use ridgepoint::internals::error::Detail;
use std::path::{Path, PathBuf};

use crate::whole_file::write_whole;
use clap::Args;
use indicatif::ProgressBar;
use ridgepoint::internals::efficiency::Tables;
use ridgepoint::{Error, Hardware};
use ridgepoint_lab::calibrate::build::Row;
use ridgepoint_lab::calibrate::cross_validate::FOLDS;
use ridgepoint_lab::calibrate::family::Calibrated;
use ridgepoint_lab::calibrate::off_table::{DECODE_UNEVEN, PREFILL_PRIOR_KV, SMALL_KERNELS};
use ridgepoint_lab::calibrate::operators::{CalibratedTable, calibrate_operator, check_operator};
use ridgepoint_lab::calibrate::report::{LeftOut, OperatorReport, Outcome};
use ridgepoint_lab::calibrate::rows::Rows;

use crate::common::{Common, Format, percent};
use crate::outcome::{Failure, Output};
use crate::progress;
use measurements::folder_name;
use table::Reports;

/// The arguments of `calibrate`.
#[derive(Debug, Args)]
pub struct Calibrate {
    /// Folders of kernel measurements: csv files (docs/measurements.md) or the public parquet tables
    #[arg(long, value_name = "DIR", num_args = 1..)]
    measurements: Vec<PathBuf>,
    /// GPU that was measured: built-in name or path of a TOML file
    #[arg(long, value_name = "NAME|PATH")]
    hardware: String,
    /// Folder to write <gpu>/<operator>.csv to
    #[arg(long, value_name = "DIR", conflicts_with = "check", required_unless_present = "check")]
    out: Option<PathBuf>,
    /// Score the present tables on the measurements (given here or with --measurements) and write nothing
    #[arg(long, value_name = "DIR", num_args = 0..)]
    check: Option<Vec<PathBuf>>,
    /// Tolerance: exit with 1 if an operator's median absolute error exceeds X percent
    #[arg(long, value_name = "X", value_parser = percent, allow_negative_numbers = true)]
    max_median_ape_pct: Option<f64>,
}

/// Builds or checks tables.
///
/// # Errors
/// Measurements, hardware or tables that are missing or at fault; files that can't be written.
pub fn run(args: &Calibrate, common: &Common) -> Result<Output, Failure> {
    let mut dirs: Vec<PathBuf> = args.measurements.clone();
    dirs.extend(args.check.iter().flatten().cloned());
    if dirs.is_empty() {
        return Err(Failure::missing("no folder of measurements: give --measurements DIR or --check DIR"));
    }
    let data_dir = common.data_dir();
    let hardware = Hardware::find_in(data_dir, &args.hardware)?;
    let folders = measurements::load(&dirs, &hardware, data_dir)?;
    let mut work = Work {
        rows: &folders.rows,
        hardware: &hardware,
        reports: Reports::default(),
        texts: Vec::new(),
        notes: folders.notes,
        without_table: Vec::new(),
        unreported: Vec::new(),
        bar: progress_bar(&folders.rows, if args.check.is_some() { 1 } else { 2 }),
    };
    match &args.out {
        Some(out) => work.build(&dirs, out)?,
        None => work.check(data_dir)?,
    }
    let missed = args.max_median_ape_pct.and_then(|limit| work.missed(limit));
    let mut output = match common.format {
        Format::Table => Output::of(table::render(&hardware, &work.reports)),
        Format::Json => Output::json(&work.reports)?,
    };
    output.notes = work.notes;
    output.notes.extend(work.unreported);
    output.missed = missed;
    Ok(output)
}

struct Work<'a> {
    rows: &'a Rows,
    hardware: &'a Hardware,
    reports: Reports,
    texts: Vec<(&'static str, String)>,
    notes: Vec<String>,
    /// Operators whose tables the GPU lacks.
    without_table: Vec<String>,
    /// Rows left out of operators that have no report to say so.
    unreported: Vec<String>,
    bar: ProgressBar,
}

impl Work<'_> {
    fn build(&mut self, dirs: &[PathBuf], out: &Path) -> Result<(), Failure> {
        let command = command_line(dirs, self.hardware, out);
        let rows = self.rows;
        self.build_one(&rows.gemm, &command)?;
        self.build_one(&rows.attention_prefill, &command)?;
        self.build_one(&rows.attention_decode, &command)?;
        self.build_one(&rows.moe, &command)?;
        self.build_one(&rows.allreduce, &command)?;
        self.left_out_in_building(SMALL_KERNELS, Outcome::Nothing(LeftOut::new()));
        self.bar.finish_and_clear();
        self.refuse_nothing()?;
        let folder = out.join(self.hardware.name());
        std::fs::create_dir_all(&folder).map_err(|error| Error::io(&folder, error))?;
        for (operator, text) in &self.texts {
            write_whole(&folder.join(format!("{operator}.csv")), text)?;
        }
        Ok(())
    }

    fn build_one<F: Calibrated>(&mut self, rows: &[Row<F>], command: &str) -> Result<(), Failure> {
        self.bar.set_message(F::OPERATOR);
        let outcome = calibrate_operator::<F>(rows, self.hardware, command, || self.bar.inc(1))?;
        self.left_out_in_building(F::OPERATOR, outcome);
        Ok(())
    }

    fn left_out_in_building(&mut self, operator: &'static str, outcome: Outcome<CalibratedTable>) {
        let outcome = match outcome {
            Outcome::Made(built) => {
                self.texts.push((operator, built.text));
                Outcome::Made(built.report)
            }
            Outcome::Nothing(left_out) => Outcome::Nothing(left_out),
        };
        let more = sum(self.rows.left_out_of(operator), self.rows.off_table.left_out_of(operator));
        self.keep(operator, outcome, more);
    }

    fn check(&mut self, data_dir: Option<&Path>) -> Result<(), Failure> {
        let tables = Tables::new(self.hardware, data_dir);
        let (rows, hardware) = (self.rows, self.hardware);
        self.check_one(&rows.gemm, &tables)?;
        self.check_one(&rows.attention_prefill, &tables)?;
        self.checked(PREFILL_PRIOR_KV, rows.off_table.check_prefill_prior_kv(hardware, &tables))?;
        self.check_one(&rows.attention_decode, &tables)?;
        self.checked(DECODE_UNEVEN, rows.off_table.check_decode_uneven(hardware, &tables))?;
        self.check_one(&rows.moe, &tables)?;
        self.check_one(&rows.allreduce, &tables)?;
        self.checked(SMALL_KERNELS, rows.off_table.check_small_kernels(hardware, &tables))?;
        self.bar.finish_and_clear();
        if self.reports.0.is_empty() && !self.without_table.is_empty() {
            return Err(Failure::input(format!(
                "{} has no efficiency table of {} to check; build them with `ridgepoint calibrate --out DIR`",
                self.hardware.name(),
                self.without_table.join(", ")
            )));
        }
        self.refuse_nothing()
    }

    fn check_one<F: Calibrated>(&mut self, rows: &[Row<F>], tables: &Tables) -> Result<(), Failure> {
        self.bar.set_message(F::OPERATOR);
        let outcome = check_operator::<F>(rows, self.hardware, tables, || self.bar.inc(1));
        self.checked(F::OPERATOR, outcome)
    }

    fn checked(
        &mut self,
        operator: &'static str,
        outcome: Result<Outcome<OperatorReport>, Error>,
    ) -> Result<(), Failure> {
        match outcome {
            Ok(outcome) => {
                let more = self.rows.left_out_of(operator);
                self.keep(operator, outcome, more);
            }
            Err(error) if error.kind() == ridgepoint::ErrorKind::MissingTable => {
                self.notes.push(format!("{operator} rows were not checked: {error}"));
                if let Detail::MissingTable { operator: table, .. } = error.into_detail()
                    && !self.without_table.contains(&table)
                {
                    self.without_table.push(table);
                }
            }
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// Keeps a report together with `more` rows that were left out before; without a report the reasons are kept.
    fn keep(&mut self, operator: &'static str, outcome: Outcome<OperatorReport>, more: LeftOut) {
        match outcome {
            Outcome::Made(mut report) => {
                report.left_out = sum(report.left_out, more);
                self.reports.0.push((operator, report));
            }
            Outcome::Nothing(left_out) => self.unreported.extend(
                sum(left_out, more)
                    .into_iter()
                    .map(|(reason, rows)| format!("{rows} rows of {operator} left out: {reason}")),
            ),
        }
    }

    fn refuse_nothing(&self) -> Result<(), Failure> {
        if !self.reports.0.is_empty() {
            return Ok(());
        }
        let reasons: String = self.unreported.iter().map(|reason| format!("; {reason}")).collect();
        Err(Failure::input(format!("the measurements hold no row that an efficiency table can take{reasons}")))
    }

    /// Which operators are above the tolerance; rows that no table could predict miss it too.
    fn missed(&self, limit_pct: f64) -> Option<String> {
        let above = self.reports.0.iter().filter(|(_, report)| report.total.median_ape_pct > limit_pct);
        let mut parts: Vec<String> =
            above.map(|(operator, report)| format!("{operator} {:.2} %", report.total.median_ape_pct)).collect();
        parts.extend(self.without_table.iter().map(|operator| format!("{operator} has no table")));
        if parts.is_empty() {
            return None;
        }
        Some(format!("median absolute error above the tolerance of {limit_pct} %: {}", parts.join(", ")))
    }
}

fn sum(mut left_out: LeftOut, more: LeftOut) -> LeftOut {
    for (reason, rows) in more {
        *left_out.entry(reason).or_default() += rows;
    }
    left_out
}

/// The command that makes the same tables again, folders by their own names.
fn command_line(dirs: &[PathBuf], hardware: &Hardware, out: &Path) -> String {
    let dirs: Vec<String> = dirs.iter().map(|dir| folder_name(dir)).collect();
    format!(
        "ridgepoint calibrate --measurements {} --hardware {} --out {}",
        dirs.join(" "),
        hardware.name(),
        folder_name(out)
    )
}

fn progress_bar(rows: &Rows, passes: u64) -> ProgressBar {
    let lengths = [
        rows.gemm.len(),
        rows.attention_prefill.len(),
        rows.attention_decode.len(),
        rows.moe.len(),
        rows.allreduce.len(),
    ];
    let folds = lengths.iter().filter(|rows| **rows > 0).count() as u64 * FOLDS * passes;
    progress::bar(folds, "{msg:18} [{bar:30}] {pos}/{len} folds, {elapsed}")
}

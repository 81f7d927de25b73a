//! `ridgepoint calibrate`: builds the efficiency tables of a GPU from measurements, or scores the present ones. Files are written
//! after all tables are built.

mod measurements;
mod table;

use std::path::{Path, PathBuf};

use clap::Args;
use indicatif::ProgressBar;
use ridgepoint::unstable::efficiency::Tables;
use ridgepoint::{ErrorKind, Hardware};
use ridgepoint_lab::calibrate::cross_validate::FOLDS;
use ridgepoint_lab::calibrate::latent_block::LATENT_BLOCK;
use ridgepoint_lab::calibrate::off_table::{CHECKS, MIXED, SMALL_KERNELS};
use ridgepoint_lab::calibrate::report::OperatorReport;
use ridgepoint_lab::calibrate::rows::{FamilyRows, Rows};
use ridgepoint_lab::evaluate::experiment::folder_name;

use crate::common::{Common, at_least_zero};
use crate::outcome::{Failure, Outcome};
use crate::output::{Force, Kind, OutputFolder, Outputs};
use crate::progress;
use table::Reports;

/// Median error of cross-validation above which a table is not worth having, percent: the nearest architecture's is better.
const MAX_TABLE_MEDIAN_APE_PCT: f64 = 30.0;

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
    #[command(flatten)]
    force: Force,
    /// Score the present tables on the measurements (given here or with --measurements) and write nothing
    #[arg(long, value_name = "DIR", num_args = 0..)]
    check: Option<Vec<PathBuf>>,
    /// Score another GPU's tables instead, scaled by both datasheets: what GPUs without tables of their own get
    #[arg(long, value_name = "NAME|PATH", requires = "check")]
    borrow_from: Option<String>,
    /// Tolerance: exit with 1 if an operator's median absolute error exceeds X percent
    #[arg(long, value_name = "X", value_parser = at_least_zero, allow_negative_numbers = true)]
    max_median_ape_pct: Option<f64>,
}

/// Builds or checks tables.
///
/// # Errors
/// Measurements, hardware or tables that are missing or at fault; files that can't be written.
pub fn run(args: &Calibrate, common: &Common) -> Result<Outcome<Reports>, Failure> {
    let mut dirs: Vec<PathBuf> = args.measurements.clone();
    dirs.extend(args.check.iter().flatten().cloned());
    if dirs.is_empty() {
        return Err(Failure::usage("no folder of measurements: give --measurements DIR or --check DIR"));
    }
    let data_dir = common.data_dir();
    let hardware = ridgepoint_replay::find_hardware(data_dir, &args.hardware)?;
    let (rows, notes) = measurements::load(&dirs, &hardware, data_dir)?;
    let mut outputs = Outputs::new(common, args.force);
    // A path that cannot be written is known before the tables are built, which takes minutes.
    let folder = args.out.as_ref().map(|out| OutputFolder::make(out.join(&hardware.name))).transpose()?;
    let file = |folder: &OutputFolder, operator: &str| folder.path.join(format!("{operator}.csv"));
    if let Some(folder) = &folder {
        for rows in rows.families().iter().filter(|rows| rows.count() > 0) {
            outputs.probe(&file(folder, rows.of.family.operator), Kind::EfficiencyTable)?;
        }
    }
    let lender = args.borrow_from.as_ref().map(|name| ridgepoint_replay::find_hardware(data_dir, name)).transpose()?;
    if lender.as_ref().is_some_and(|lender| lender.name == hardware.name) {
        return Err(Failure::usage("--borrow-from names the GPU of --hardware: leave it out to score its own tables"));
    }
    let engine = rows.engine.clone().unwrap_or_default();
    let own = || Tables::new(&hardware, &engine, data_dir);
    let borrowed = |lender: Hardware| Tables::borrowed(&hardware, &lender, &engine, data_dir);
    let tables = args.check.as_ref().map(|_| lender.map_or_else(own, borrowed));
    let mut work = Work {
        command: args.out.as_ref().map_or_else(String::new, |out| command_line(&dirs, &hardware, out)),
        notes,
        ..Work::new(&rows, &hardware, tables)
    };
    work.all()?;
    work.bar.finish_and_clear();
    work.refuse_nothing()?;
    if let Some(bad) = work.above(MAX_TABLE_MEDIAN_APE_PCT).filter(|_| args.out.is_some() && !args.force.force) {
        return Err(Failure::input(format!(
            "nothing was written, as the median absolute error in cross-validation is above {MAX_TABLE_MEDIAN_APE_PCT} %: \
             {bad}; look for rows of another unit or kernel, or pass --force"
        )));
    }
    let mut missed = args.max_median_ape_pct.and_then(|limit| work.missed(limit));
    if let (Some(missed), Some(_)) = (&mut missed, &folder) {
        missed.insert_str(0, "nothing was written: ");
    } else if let Some(folder) = &folder {
        let table = |(operator, report): &'_ (&str, OperatorReport)| {
            Some((file(folder, operator), Kind::EfficiencyTable, report.table.clone()?))
        };
        outputs.write_all(work.reports.iter().filter_map(table))?;
    }
    let title = format!("{} ({})", hardware.name, hardware.display_name);
    let notes = [work.notes, work.unreported].concat();
    Ok(Outcome { result: Reports { title, operators: work.reports }, notes, missed })
}

/// Scores the tables of `lender` on the measurements of another GPU, operator by operator.
///
/// # Errors
/// Measurements that can't be read or are of another GPU.
pub fn check_borrowed(
    dirs: &[PathBuf],
    hardware: &Hardware,
    lender: &Hardware,
    common: &Common,
) -> Result<Vec<(&'static str, OperatorReport)>, Failure> {
    let data_dir = common.data_dir();
    let (rows, _) = measurements::load(dirs, hardware, data_dir)?;
    let engine = rows.engine.clone().unwrap_or_default();
    let mut work = Work::new(&rows, hardware, Some(Tables::borrowed(hardware, lender, &engine, data_dir)));
    work.all()?;
    work.bar.finish_and_clear();
    Ok(work.reports)
}

struct Work<'a> {
    rows: &'a Rows,
    hardware: &'a Hardware,
    /// The tables to check; `None` builds new ones.
    tables: Option<Tables>,
    /// The command that builds the tables.
    command: String,
    reports: Vec<(&'static str, OperatorReport)>,
    notes: Vec<String>,
    /// Operators whose tables the GPU lacks.
    without_table: Vec<String>,
    /// Rows left out of operators that have no report to say so.
    unreported: Vec<String>,
    bar: ProgressBar,
}

impl<'a> Work<'a> {
    fn new(rows: &'a Rows, hardware: &'a Hardware, tables: Option<Tables>) -> Self {
        let passes = match &tables {
            Some(tables) if tables.are_borrowed() => 0,
            Some(_) => 1,
            None => 2,
        };
        let folds = rows.families().iter().filter(|rows| rows.count() > 0).count() as u64 * FOLDS * passes;
        Work {
            rows,
            hardware,
            tables,
            command: String::new(),
            reports: Vec::new(),
            notes: Vec::new(),
            without_table: Vec::new(),
            unreported: Vec::new(),
            bar: progress::bar(folds, "{msg:18} [{bar:30}] {pos}/{len} folds, {elapsed}"),
        }
    }

    fn all(&mut self) -> Result<(), Failure> {
        for rows in self.rows.families() {
            self.operator(rows)?;
            self.off_table(rows.of.family.operator)?;
        }
        self.off_table(MIXED)?;
        self.off_table(LATENT_BLOCK)?;
        self.off_table(SMALL_KERNELS)
    }

    fn operator(&mut self, rows: &FamilyRows) -> Result<(), Failure> {
        let operator = rows.of.family.operator;
        self.bar.set_message(operator);
        let tick = || self.bar.inc(1);
        let report = match &self.tables {
            None => rows.calibrate(self.hardware, &self.command, &tick),
            Some(tables) => rows.check(self.hardware, tables, &tick),
        };
        self.keep(operator, report)
    }

    /// Scores the calls that no table of `operator` holds.
    fn off_table(&mut self, operator: &str) -> Result<(), Failure> {
        for check in CHECKS.iter().filter(|check| check.operator == operator) {
            let score = |tables| (check.check)(&self.rows.off_table, self.hardware, tables);
            let report = self.tables.as_ref().map(score);
            self.keep(check.name, report.unwrap_or_else(|| Ok(OperatorReport::default())))?;
        }
        Ok(())
    }

    /// Keeps a report with the rows that were left out before; without predictions only their reasons are kept.
    fn keep(&mut self, operator: &'static str, report: ridgepoint::Result<OperatorReport>) -> Result<(), Failure> {
        let mut report = match report {
            Ok(report) => report,
            Err(error) if error.kind() == ErrorKind::MissingTable => {
                self.notes.push(format!("{operator} rows were not checked: {error}"));
                let table = error.location().and_then(|place| place.key.clone()).unwrap_or_default();
                if !self.without_table.contains(&table) {
                    self.without_table.push(table);
                }
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        };
        for (reason, rows) in self.rows.left_out_of(operator, self.tables.is_none()) {
            *report.left_out.entry(reason).or_default() += rows;
        }
        if report.total.is_some() {
            self.reports.push((operator, report));
        } else {
            let left_out = report.left_out.into_iter();
            let remarks = left_out.map(|(reason, rows)| format!("{rows} rows of {operator} left out: {reason}"));
            self.unreported.extend(remarks);
        }
        Ok(())
    }

    fn refuse_nothing(&self) -> Result<(), Failure> {
        if !self.reports.is_empty() {
            return Ok(());
        }
        if !self.without_table.is_empty() {
            return Err(Failure::input(format!(
                "{} has no efficiency table of {} to check; build them with `ridgepoint calibrate --out DIR`",
                &self.hardware.name,
                self.without_table.join(", ")
            )));
        }
        let reasons: String = self.unreported.iter().map(|reason| format!("; {reason}")).collect();
        Err(Failure::input(format!("the measurements hold no row that an efficiency table can take{reasons}")))
    }

    /// The operators whose median error is above a limit, with it.
    fn above(&self, limit_pct: f64) -> Option<String> {
        let medians =
            self.reports.iter().filter_map(|(name, report)| Some((name, report.total.as_ref()?.median_ape_pct)));
        let above = medians.filter(|(_, median_pct)| *median_pct > limit_pct);
        let parts: Vec<String> = above.map(|(name, median_pct)| format!("{name} {median_pct:.2} %")).collect();
        (!parts.is_empty()).then(|| parts.join(", "))
    }

    /// The operators above the tolerance. Those without a table miss it too.
    fn missed(&self, limit_pct: f64) -> Option<String> {
        let mut parts: Vec<String> = self.above(limit_pct).into_iter().collect();
        parts.extend(self.without_table.iter().map(|operator| format!("{operator} has no table")));
        (!parts.is_empty())
            .then(|| format!("median absolute error above the tolerance of {limit_pct} %: {}", parts.join(", ")))
    }
}

/// The command that makes the same tables again, folders by their own names.
fn command_line(dirs: &[PathBuf], hardware: &Hardware, out: &Path) -> String {
    let dirs: Vec<String> = dirs.iter().map(|dir| folder_name(dir)).collect();
    format!(
        "ridgepoint calibrate --measurements {} --hardware {} --out {}",
        dirs.join(" "),
        &hardware.name,
        folder_name(out)
    )
}

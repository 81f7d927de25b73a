//! All operators at once: the tables of a GPU built and cross-validated, or shipped ones checked.
//! Uses `build`, `cross_validate`, `rows`, `score`, `efficiency`.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;

use super::build::{Row, build, by_series};
use super::cross_validate::{Comparison, Unit, cross_validate, predict};
use super::family::Calibrated;
use super::repeated::{REPEATED, merge_repeated};
use super::score::{Labelled, Pair, Score};
use ridgepoint::Hardware;
use ridgepoint::internals::efficiency::Tables;
use ridgepoint::internals::efficiency::family::{Family, Key, chip};
use ridgepoint::internals::efficiency::table::{Header, Series, SeriesDraft, SeriesHeader, write_table};
use ridgepoint::{Error, Result};

/// Errors of one operator, as printed and as in the JSON.
#[derive(Debug, Clone, Serialize)]
pub struct OperatorReport {
    /// Everything that counts in the total.
    #[serde(flatten)]
    pub total: Score,
    /// By number format (by launch mode for all-reduce).
    pub by_dtype: BTreeMap<String, Score>,
    /// How each row was predicted without having been used.
    pub method: String,
    /// Rows that the shipped tables did not use, or rows left out in folds.
    pub rows_unseen: usize,
    /// The same rows by other methods, where they were compared.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub compared: BTreeMap<&'static str, Score>,
    /// Rows of which the whole line of the table was left out, as for a model whose shapes nobody measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub whole_lines_left_out: Option<Score>,
    /// By series of the table.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub by_series: BTreeMap<String, Score>,
    /// Rows left out, by reason.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub left_out: LeftOut,
}

/// Rows left out, by reason.
pub type LeftOut = BTreeMap<String, usize>;

/// Why a row is not scored by tables that have no series of its kernel.
pub(super) const NO_SERIES: &str = "no table series for this kernel";
const ALONE: &str = "not scored: no other row of its series to predict it from";
const TOO_FEW: &str = "too few rows for a table: none can be predicted from the others";

/// What came of an operator's rows.
#[derive(Debug)]
pub enum Outcome<T> {
    /// A result, which says itself what it leaves out.
    Made(T),
    /// None, as every row was left out; empty where there was no row.
    Nothing(LeftOut),
}

/// A built table file and its errors.
#[derive(Debug)]
pub struct CalibratedTable {
    /// Text of the file.
    pub text: String,
    /// Errors by cross-validation.
    pub report: OperatorReport,
}

/// Builds and cross-validates the table of one operator. Of a shape that several sources measured the median is taken.
/// No table is made where no row can be predicted from the others.
/// `tick` is called once a fold, twice [`FOLDS`](super::cross_validate::FOLDS) times in all.
///
/// # Errors
/// Those of building: a number format that the chip has no unit for.
pub fn calibrate_operator<F: Calibrated>(
    rows: &[Row<F>],
    hardware: &Hardware,
    command: &str,
    tick: impl Fn() + Sync,
) -> Result<Outcome<CalibratedTable>> {
    if rows.is_empty() {
        return Ok(Outcome::Nothing(LeftOut::new()));
    }
    let sources = sources_by_series(rows);
    let (rows, repeated) = merge_repeated(rows);
    let mut left_out = LeftOut::new();
    leave_out(&mut left_out, REPEATED, repeated);
    let all: Vec<&Row<F>> = rows.iter().collect();
    let comparison = cross_validate::<F>(&all, hardware, Unit::Row, &tick)?;
    let Some(mut report) = fold_report::<F>(&comparison) else {
        leave_out(&mut left_out, TOO_FEW, all.len());
        return Ok(Outcome::Nothing(left_out));
    };
    leave_out(&mut left_out, ALONE, all.len() - comparison.tables.len());
    report.whole_lines_left_out = total_of::<F>(&cross_validate::<F>(&all, hardware, Unit::Line, &tick)?.tables);
    report.left_out = left_out;
    let built = build::<F>(&all, hardware)?;
    let series_scores = comparison.by_series.scores();
    let members = by_series(rows.iter());
    let last = F::AXES.len() - 1;
    let drafts: Vec<SeriesDraft<F>> = built
        .into_iter()
        .map(|series| {
            let name = series.key.name();
            let rows = members.get(&name).map_or(&[][..], Vec::as_slice);
            let score = series_scores.get(&name);
            let header = SeriesHeader {
                source: sources.get(&name).map_or_else(String::new, |sources| sources.join("; ")),
                rows: rows.len(),
                id: 0,
                lines: 0,
                cross_validated_median_ape_pct: two_decimals(score.map_or(100.0, |s| s.median_ape_pct)),
                cross_validated_mape_pct: two_decimals(score.map_or(100.0, |s| s.mape_pct)),
                knots: series.grid.axes()[last].clone(),
            };
            SeriesDraft { series, header }
        })
        .collect();
    let text = write_table(hardware.name(), command, &drafts, |key| chip(hardware, F::compute_dtype(key)))?;
    Ok(Outcome::Made(CalibratedTable { text, report }))
}

fn leave_out(left_out: &mut LeftOut, reason: &str, rows: usize) {
    if rows > 0 {
        *left_out.entry(reason.to_owned()).or_default() += rows;
    }
}

/// Who measured each series, in the order of first appearance.
fn sources_by_series<F: Family>(rows: &[Row<F>]) -> BTreeMap<String, Vec<&str>> {
    let mut sources: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for row in rows {
        let known = sources.entry(row.key.name()).or_default();
        if !known.contains(&row.source.as_str()) {
            known.push(&row.source);
        }
    }
    sources
}

/// Everything that counts together, or everything there is where nothing counts.
fn total_of<F: Calibrated>(labelled: &Labelled) -> Option<Score> {
    let counted = labelled.by_label.iter().filter(|(label, _)| F::in_total(label));
    let pairs: Vec<Pair> = counted.flat_map(|(_, pairs)| pairs.iter().copied()).collect();
    Score::of(&pairs).or_else(|| labelled.total())
}

fn fold_report<F: Calibrated>(comparison: &Comparison) -> Option<OperatorReport> {
    let compared = [
        ("kernel_model", &comparison.kernel_model),
        ("nearest_neighbour", &comparison.nearest_neighbour),
        ("constant_mfu", &comparison.constant_mfu),
    ];
    let total = total_of::<F>(&comparison.tables)?;
    Some(OperatorReport {
        total,
        by_dtype: comparison.tables.scores(),
        method: "10-fold cross-validation".to_owned(),
        rows_unseen: total.rows,
        compared: compared.into_iter().filter_map(|(name, l)| Some((name, total_of::<F>(l)?))).collect(),
        whole_lines_left_out: None,
        by_series: comparison.by_series.scores(),
        left_out: LeftOut::new(),
    })
}

/// Header of the GPU's own table.
pub(super) fn own_header<'a, F: Family>(hardware: &Hardware, tables: &'a Tables) -> Result<&'a Header> {
    tables.own_header::<F>()?.ok_or_else(|| {
        Error::missing_table(
            hardware.name().to_owned(),
            F::OPERATOR.to_owned(),
            "the check needs tables of this very GPU; build them with `ridgepoint calibrate`",
        )
    })
}

/// The series of exactly this key, which the GPU's own table is known to have.
pub(super) fn own_series<F: Family>(key: &F::Key, tables: &Tables) -> Result<Arc<Series<F>>> {
    Ok(tables.of_key::<F>(key)?.series)
}

/// Scores the tables of the rows' own GPU on rows they did not use. Of a shape that several sources measured the median
/// is taken.
///
/// Rows at cells that the table has no measurement for are looked up as they are. Rows that the table was made from (its
/// cell is a measured one) are cross-validated: the table is built anew from such rows, each time without a tenth of
/// them. Where a series has fewer than half of the rows it was made from, that would judge another table, and its used
/// rows are left out with that reason. `tick` is called once a fold.
///
/// # Errors
/// Those of reading tables; `ErrorKind::MissingTable` where the GPU has none of this operator.
pub fn check_operator<F: Calibrated>(
    rows: &[Row<F>],
    hardware: &Hardware,
    tables: &Tables,
    tick: impl Fn() + Sync,
) -> Result<Outcome<OperatorReport>> {
    if rows.is_empty() {
        return Ok(Outcome::Nothing(LeftOut::new()));
    }
    let header = own_header::<F>(hardware, tables)?;
    let mut scored = Comparison::default();
    let mut used: Vec<&Row<F>> = Vec::new();
    let mut left_out = LeftOut::new();
    let mut rows_unseen = 0;
    let unmerged = by_series(rows.iter());
    let (rows, repeated) = merge_repeated(rows);
    leave_out(&mut left_out, REPEATED, repeated);
    for (name, members) in by_series(rows.iter()) {
        let Some(about) = header.series.get(&name) else {
            leave_out(&mut left_out, NO_SERIES, members.len());
            continue;
        };
        let key = &members[0].key;
        let series = own_series::<F>(key, tables)?;
        let chip = chip(hardware, F::compute_dtype(key))?;
        let was_used =
            |row: &Row<F>| series.grid.cell_at(&row.point).is_some_and(|offset| series.grid.measured(offset).is_some());
        let (seen, unseen): (Vec<&Row<F>>, Vec<&Row<F>>) = members.into_iter().partition(|row| was_used(row));
        rows_unseen += unseen.len();
        for row in unseen {
            let pair = Pair { predicted_us: predict(&series, &row.point, &chip), measured_us: row.time_us };
            scored.tables.push(&F::label(&row.key), pair);
            scored.by_series.push(&name, pair);
        }
        // A table may count repeated shapes as rows of their own, so that they must count here as well.
        let num_seen = unmerged.get(&name).map_or(0, |all| all.iter().filter(|row| was_used(row)).count());
        if 2 * num_seen >= about.rows {
            used.extend(seen);
        } else {
            leave_out(&mut left_out, "used to make the table, and too few to cross-validate it", seen.len());
        }
    }
    if !used.is_empty() {
        let folds = cross_validate::<F>(&used, hardware, Unit::Row, tick)?;
        leave_out(&mut left_out, ALONE, used.len() - folds.tables.len());
        scored.merge(folds);
    }
    let Some(mut report) = fold_report::<F>(&scored) else { return Ok(Outcome::Nothing(left_out)) };
    report.method =
        "rows without a measured cell in the table looked up as they are, all others by 10-fold cross-validation"
            .to_owned();
    report.rows_unseen = rows_unseen;
    report.left_out = left_out;
    Ok(Outcome::Made(report))
}

fn two_decimals(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

//! All operators at once: the tables of a GPU built and cross-validated, or shipped ones checked.
//! Uses `build`, `cross_validate`, `rows`, `score`, `efficiency`.

use std::collections::BTreeMap;

use serde::Serialize;

use super::build::{Row, build, by_series};
use super::cross_validate::{Comparison, Unit, cross_validate, predict};
use super::family::Calibrated;
use super::rows::Rows;
use super::score::{Labelled, Pair, Score};
use crate::efficiency::Tables;
use crate::efficiency::family::{Key, chip};
use crate::efficiency::table::{SeriesDraft, SeriesHeader, write_table};
use crate::error::{Error, Result};
use crate::hardware::Hardware;

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
    pub left_out: BTreeMap<String, usize>,
}

/// A built table file and its errors.
pub struct CalibratedTable {
    /// Text of the file.
    pub text: String,
    /// Errors by cross-validation.
    pub report: OperatorReport,
}

/// Builds and cross-validates the table of one operator; `None` where there is no row. `tick` is called once a fold, twice
/// [`FOLDS`](super::cross_validate::FOLDS) times in all.
///
/// # Errors
/// Those of building: a number format that the chip has no unit for.
pub fn calibrate_operator<F: Calibrated>(
    rows: &[Row<F>],
    hardware: &Hardware,
    command: &str,
    tick: impl Fn() + Sync,
) -> Result<Option<CalibratedTable>> {
    if rows.is_empty() {
        return Ok(None);
    }
    let all: Vec<&Row<F>> = rows.iter().collect();
    let comparison = cross_validate::<F>(&all, hardware, Unit::Row, &tick)?;
    let lines = cross_validate::<F>(&all, hardware, Unit::Line, &tick)?;
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
                source: rows.first().map_or_else(String::new, |row| row.source.clone()),
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
    let whole_lines_left_out = total_of::<F>(&lines.tables);
    Ok(fold_report::<F>(&comparison)
        .map(|report| CalibratedTable { text, report: OperatorReport { whole_lines_left_out, ..report } }))
}

fn total_of<F: Calibrated>(labelled: &Labelled) -> Option<Score> {
    let counted = labelled.by_label.iter().filter(|(label, _)| F::in_total(label));
    let pairs: Vec<Pair> = counted.flat_map(|(_, pairs)| pairs.iter().copied()).collect();
    Score::of(&pairs)
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
        left_out: BTreeMap::new(),
    })
}

/// Scores the tables of the rows' own GPU on rows they did not use; `None` where there is no row.
///
/// Rows at cells that the table has no measurement for are looked up as they are. Rows that the table was made from (its
/// cell is a measured one) are cross-validated: the table is built anew from such rows, each time without a tenth of
/// them. Where a series has fewer than half of the rows it was made from, that would judge another table, and its used
/// rows are left out with that reason. `tick` is called once a fold.
///
/// # Errors
/// Those of reading tables; [`Error::MissingTable`] where the GPU has none of this operator.
pub fn check_operator<F: Calibrated>(
    rows: &[Row<F>],
    hardware: &Hardware,
    tables: &Tables,
    tick: impl Fn() + Sync,
) -> Result<Option<OperatorReport>> {
    if rows.is_empty() {
        return Ok(None);
    }
    let Some(header) = tables.own_header::<F>()? else {
        return Err(Error::MissingTable {
            hardware: hardware.name().to_owned(),
            operator: F::OPERATOR.to_owned(),
            hint: "the check needs tables of this very GPU; build them with `ridgepoint calibrate`".to_owned(),
        });
    };
    let mut scored = Comparison::default();
    let mut used: Vec<&Row<F>> = Vec::new();
    let mut left_out: BTreeMap<String, usize> = BTreeMap::new();
    let mut rows_unseen = 0;
    for (name, members) in by_series(rows.iter()) {
        let Some(about) = header.series.get(&name) else {
            *left_out.entry("no table series for this kernel".to_owned()).or_default() += members.len();
            continue;
        };
        let key = &members[0].key;
        let (found, _) = tables.nearest::<F>(|k| if k == key { 0.0 } else { f64::INFINITY })?;
        let chip = chip(hardware, F::compute_dtype(key))?;
        let was_used = |row: &Row<F>| {
            let cell = found.series.grid.cell_at(&row.point);
            cell.is_some_and(|offset| found.series.grid.measured(offset).is_some())
        };
        let (seen, unseen): (Vec<&Row<F>>, Vec<&Row<F>>) = members.into_iter().partition(|row| was_used(row));
        rows_unseen += unseen.len();
        for row in unseen {
            let pair = Pair { predicted_us: predict(&found.series, &row.point, &chip), measured_us: row.time_us };
            scored.tables.push(&F::label(&row.key), pair);
            scored.by_series.push(&name, pair);
        }
        if 2 * seen.len() >= about.rows {
            used.extend(seen);
        } else if !seen.is_empty() {
            let reason = "used to make the table, and too few to cross-validate it".to_owned();
            *left_out.entry(reason).or_default() += seen.len();
        }
    }
    if !used.is_empty() {
        scored.merge(cross_validate::<F>(&used, hardware, Unit::Row, tick)?);
    }
    let Some(mut report) = fold_report::<F>(&scored) else { return Ok(None) };
    report.method =
        "rows the table did not use as they are, rows it was made from by 10-fold cross-validation".to_owned();
    report.rows_unseen = rows_unseen;
    report.left_out = left_out;
    Ok(Some(report))
}

/// Rows that were left out before anything was predicted, for one operator.
pub fn left_out_of(rows: &Rows, operator: &str) -> BTreeMap<String, usize> {
    let of_operator = rows.left_out.iter().filter(|((o, _), _)| *o == operator);
    of_operator.map(|((_, reason), count)| (reason.clone(), *count)).collect()
}

fn two_decimals(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

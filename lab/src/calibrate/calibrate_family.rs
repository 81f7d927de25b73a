//! Builds and cross-validates the tables of a GPU, operator by operator, and checks shipped tables against measurements.
#![expect(clippy::indexing_slicing, reason = "a group has one row at least, and a grid one axis")]

use std::collections::BTreeMap;

use ridgepoint::unstable::efficiency::Tables;
use ridgepoint::unstable::efficiency::family::{KernelFamily, SeriesKey};
use ridgepoint::unstable::efficiency::kernel_model::Chip;
use ridgepoint::unstable::efficiency::table::{Series, SeriesDraft, SeriesHeader, Table, write_table};
use ridgepoint::{Error, Hardware, Result};

use super::build::{CalibrationRow, build, by_series};
use super::cross_validate::{Unit, cross_validate, predicted};
use super::own_series::{NO_SERIES, own_series};
use super::repeated::merge_repeated;
use super::report::{OperatorReport, RowPrediction, RowsLeftOut, leave_out};
use super::rows::FamilyRows;

const ALONE: &str = "not scored: no other row of its series to predict it from";
const TOO_FEW: &str = "too few rows for a table: none can be predicted from the others";
const TOO_FEW_USED: &str = "used to make the table, and too few to cross-validate it";
const BY_FOLDS: &str = "10-fold cross-validation";
const BY_CHECK: &str = "rows without a measured cell in the table are looked up as they are, all others predicted by 10-fold cross-validation";

impl FamilyRows {
    /// Number of rows.
    pub fn count(&self) -> usize {
        self.rows.len()
    }

    /// Builds and cross-validates the table. A shape of several sources takes the median of their times. No table is made if no row can
    /// be predicted from the others. `tick` is called once a fold, twice [`FOLDS`](super::cross_validate::FOLDS) times in all.
    ///
    /// # Errors
    /// Those of building: a number format that the chip has no unit for.
    pub fn calibrate(&self, hardware: &Hardware, command: &str, tick: &(dyn Fn() + Sync)) -> Result<OperatorReport> {
        if self.rows.is_empty() {
            return Ok(OperatorReport::default());
        }
        let mut sources: BTreeMap<String, Vec<&str>> = BTreeMap::new();
        for row in &self.rows {
            let known = sources.entry(row.key.to_string()).or_default();
            if !known.contains(&row.source.as_str()) {
                known.push(&row.source);
            }
        }
        let (kept, mut left_out) = merge_repeated(&self.rows);
        let all: Vec<&CalibrationRow> = kept.iter().collect();
        let predictions = cross_validate(self.of, &all, &[], hardware, Unit::CalibrationRow, tick)?;
        leave_out(&mut left_out, if predictions.is_empty() { TOO_FEW } else { ALONE }, all.len() - predictions.len());
        let mut report = OperatorReport::new(&predictions, self.of.in_total, BY_FOLDS, left_out);
        if report.total.is_none() {
            return Ok(report);
        }
        let by_lines = cross_validate(self.of, &all, &[], hardware, Unit::Line, tick)?;
        report.whole_lines_left_out =
            OperatorReport::new(&by_lines, self.of.in_total, BY_FOLDS, RowsLeftOut::new()).total;
        let members = by_series(kept.iter());
        let last = self.of.family.axes.len() - 1;
        let draft = |series: Series| {
            let name = series.key.to_string();
            let score = report.by_series.get(&name);
            let header = SeriesHeader {
                source: sources.get(&name).map_or_else(String::new, |sources| sources.join("; ")),
                rows: members.get(&name).map_or(0, Vec::len),
                id: 0,
                lines: 0,
                cross_validated_median_ape_pct: two_decimals(score.map_or(100.0, |s| s.median_ape_pct)),
                cross_validated_mape_pct: two_decimals(score.map_or(100.0, |s| s.mape_pct)),
                stand_in_distance: self.stand_in_distances.get(&name).copied(),
                knots: series.grid.axes[last].clone(),
            };
            SeriesDraft { series, header }
        };
        let mut built = build(self.of, &all, hardware)?;
        let keys: Vec<SeriesKey> = built.iter().map(|series| series.key.clone()).collect();
        let keys: Vec<&SeriesKey> = keys.iter().collect();
        if keys.iter().any(|key| (self.of.is_read)(key, &keys)) {
            built.retain(|series| (self.of.is_read)(&series.key, &keys));
        }
        built.retain(|series| !self.unlisted.contains_key(&series.key.to_string()));
        let drafts: Vec<SeriesDraft> = built.into_iter().map(draft).collect();
        let text = write_table(self.of.family, &hardware.name, command, &drafts, |key| {
            Chip::new(hardware, key.compute_dtype())
        })?;
        check_readable(self.of.family, &text, hardware)?;
        Ok(OperatorReport { table: Some(text), ..report })
    }

    /// Scores the tables of the rows' own GPU on rows they did not use, and borrowed tables on all rows. A shape of several sources takes the
    /// median of their times.
    ///
    /// Rows at cells without a measurement in the table are looked up as they are. Rows that the table was made from (their
    /// cell is a measured one) are cross-validated: the table is built anew from such rows, each time without a tenth of
    /// them. If a series has fewer than half of the rows it was made from, that would judge another table, so its used rows
    /// are left out with that reason. The trees also learn from rows whose series no table holds. `tick` is called once a fold.
    ///
    /// # Errors
    /// Those of reading tables; `ErrorKind::MissingTable` if the GPU has none of this operator.
    pub fn check(&self, hardware: &Hardware, tables: &Tables, tick: &(dyn Fn() + Sync)) -> Result<OperatorReport> {
        if self.rows.is_empty() {
            return Ok(OperatorReport::default());
        }
        let own = own_series(self.of.family, hardware, tables)?;
        let mut predictions: Vec<RowPrediction> = Vec::new();
        let (mut used, mut only_learnt): (Vec<&CalibrationRow>, Vec<&CalibrationRow>) = Default::default();
        let unmerged = by_series(self.rows.iter());
        let keys: Vec<&SeriesKey> = unmerged.values().filter_map(|rows| Some(&rows.first()?.key)).collect();
        let (kept, mut left_out) = merge_repeated(&self.rows);
        for (name, members) in by_series(kept.iter()) {
            let Some(about) = own.get(&name) else {
                let excluded = self.unlisted.get(&name);
                leave_out(&mut left_out, excluded.map_or(NO_SERIES, String::as_str), members.len());
                if excluded.is_some() || !(self.of.is_read)(&members[0].key, &keys) {
                    only_learnt.extend(members);
                }
                continue;
            };
            let key = &members[0].key;
            let series = tables.of_key(self.of.family, key, &[])?.series;
            let chip = Chip::new(hardware, key.compute_dtype())?;
            let was_used = |row: &CalibrationRow| {
                let cell = series.grid.cell_at(&row.point).filter(|_| !tables.are_borrowed());
                cell.is_some_and(|offset| series.grid.measured(offset).is_some())
            };
            let (seen, unseen): (Vec<&CalibrationRow>, Vec<&CalibrationRow>) =
                members.into_iter().partition(|row| was_used(row));
            predictions.extend(unseen.into_iter().map(|row| predicted(&series, row, &chip)));
            // The header counts repetitions of a shape as rows, so they count here too.
            let num_seen = unmerged.get(&name).map_or(0, |all| all.iter().filter(|row| was_used(row)).count());
            if tables.are_borrowed() || 2 * num_seen >= about.rows {
                used.extend(seen);
            } else {
                leave_out(&mut left_out, TOO_FEW_USED, seen.len());
            }
        }
        let rows_unseen = predictions.len();
        if !used.is_empty() {
            let by_folds = cross_validate(self.of, &used, &only_learnt, hardware, Unit::CalibrationRow, tick)?;
            leave_out(&mut left_out, ALONE, used.len() - by_folds.len());
            predictions.extend(by_folds);
        }
        let report = OperatorReport::new(&predictions, self.of.in_total, BY_CHECK, left_out);
        Ok(OperatorReport { rows_unseen, ..report })
    }
}

/// Reads a table back. A table that predictions refuse must not replace a good one.
fn check_readable(family: &'static KernelFamily, text: &str, hardware: &Hardware) -> Result<()> {
    let origin = format!("the table of {} for {}", family.operator, hardware.name);
    let table = Table::parse(family, &hardware.name, &origin, text.to_owned())?;
    for key in &table.keys {
        let chip = Chip::new(hardware, key.compute_dtype())?;
        table.series(key, &chip, &[]).map_err(|error| {
            let problem =
                format!("{error}: the times lie too far from the roofline; are they in the unit of their column?");
            Error::invalid(family.operator, vec![problem])
        })?;
    }
    Ok(())
}

fn two_decimals(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

//! Cross-validation: every row is predicted by tables that were built without a tenth of the rows, among them the row
//! itself. Simpler methods predict the same rows from the same training rows.
#![expect(clippy::indexing_slicing, reason = "a point has a coordinate on every axis")]

use std::collections::BTreeMap;

use rayon::prelude::*;

use ridgepoint::unstable::efficiency::kernel_model::Chip;
use ridgepoint::unstable::efficiency::table::Series;
use ridgepoint::{Hardware, Result};

use super::build::{CalibrationRow, build, by_series};
use super::families::label;
use super::family::{CalibratedFamily, logs};
use super::report::RowPrediction;
use crate::stats::median;

/// Folds of a cross-validation; each leaves out a tenth of the rows, by a hash of the row's series and point.
pub const FOLDS: u64 = 10;

/// Rows that are left out together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Single rows: shapes with measured neighbours on every side.
    CalibrationRow,
    /// Whole lines along the last axis (all token counts of one n and k, all batches of one length): shapes of a model
    /// that was not measured.
    Line,
}

/// Predicts every row from tables built without its fold. Rows that are `only_learnt` are in every table and are not predicted. Rows
/// without another row of their series are missing from the result. `tick` is called once a fold.
///
/// # Errors
/// Those of [`build`].
pub fn cross_validate(
    family: &CalibratedFamily,
    rows: &[&CalibrationRow],
    only_learnt: &[&CalibrationRow],
    hardware: &Hardware,
    unit: Unit,
    tick: impl Fn() + Sync,
) -> Result<Vec<RowPrediction>> {
    let folds: Vec<u64> = rows.iter().map(|row| fold_of(row, unit)).collect();
    in_parallel(&|fold| {
        let of = |is_test: bool| -> Vec<&CalibrationRow> {
            let chosen = rows.iter().zip(&folds).filter(|(_, f)| (**f == fold) == is_test);
            chosen.map(|(row, _)| *row).collect()
        };
        let train = [&of(false)[..], only_learnt].concat();
        let part = predict_all(family, &train, &of(true), hardware);
        tick();
        part
    })
}

/// The predictions of all folds, in order.
fn in_parallel(of_fold: &(dyn Fn(u64) -> Result<Vec<RowPrediction>> + Sync)) -> Result<Vec<RowPrediction>> {
    let parts: Result<Vec<Vec<RowPrediction>>> = (0..FOLDS).into_par_iter().map(of_fold).collect();
    Ok(parts?.concat())
}

/// Predicts the `test` rows from tables and simpler methods that know the `train` rows.
fn predict_all(
    family: &CalibratedFamily,
    train: &[&CalibrationRow],
    test: &[&CalibrationRow],
    hardware: &Hardware,
) -> Result<Vec<RowPrediction>> {
    let train_by_series = by_series(train.iter().copied());
    let test_by_series = by_series(test.iter().copied());
    let constants = median_efficiencies(train, hardware)?;
    let mut predictions = Vec::with_capacity(test.len());
    for mut series in build(family, train, hardware)? {
        series.grid.fill_gaps();
        let name = series.key.to_string();
        let chip = Chip::new(hardware, series.key.compute_dtype())?;
        let neighbours: Vec<(Vec<f64>, &CalibrationRow)> =
            train_by_series.get(&name).into_iter().flatten().map(|row| (logs(&row.point), *row)).collect();
        for row in test_by_series.get(&name).map_or(&[][..], Vec::as_slice) {
            let by_table = predicted(&series, row, &chip);
            let shape = row.shape();
            let at_efficiency = |efficiency: f64| shape.bound_us(&chip) / efficiency;
            let near = nearest(&neighbours, &row.point);
            predictions.push(RowPrediction {
                simpler_us: [
                    Some(shape.time_us(&series.coefficients, &chip)),
                    near.map(|near| at_efficiency(near.efficiency(&chip))),
                    constants.get(&by_table.label).map(|efficiency| at_efficiency(*efficiency)),
                ],
                ..by_table
            });
        }
    }
    Ok(predictions)
}

/// A row as a series predicts it; the holes of the series must have been filled.
pub(super) fn predicted(series: &Series, row: &CalibrationRow, chip: &Chip) -> RowPrediction {
    RowPrediction {
        beats_roofline: row.efficiency(chip) > 1.0,
        ..RowPrediction::new(&row.key.to_string(), label(&row.key), row.time_us, predict(series, &row.point, chip))
    }
}

/// The time a series gives at a point; its holes must have been filled.
pub fn predict(series: &Series, point: &[f64], chip: &Chip) -> f64 {
    let (residual, _) = series.grid.lookup(point);
    let shape = series.key.shape(point);
    (shape.time_us(&series.coefficients, chip) * residual.exp()).max(shape.bound_us(chip))
}

/// The median efficiency of each label's rows.
fn median_efficiencies(rows: &[&CalibrationRow], hardware: &Hardware) -> Result<BTreeMap<String, f64>> {
    let mut efficiencies: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for row in rows {
        let chip = Chip::new(hardware, row.key.compute_dtype())?;
        efficiencies.entry(label(&row.key)).or_default().push(row.efficiency(&chip));
    }
    Ok(medians(efficiencies))
}

fn medians(groups: BTreeMap<String, Vec<f64>>) -> BTreeMap<String, f64> {
    groups.into_iter().filter_map(|(label, values)| Some((label, median(values)?))).collect()
}

fn nearest<'a>(rows: &[(Vec<f64>, &'a CalibrationRow)], point: &[f64]) -> Option<&'a CalibrationRow> {
    let point = logs(point);
    let distance = |of: &[f64]| of.iter().zip(&point).map(|(a, b)| (a - b).abs()).sum::<f64>();
    let all = rows.iter().map(|(of, row)| (distance(of), *row));
    all.min_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, row)| row)
}

/// FNV-1a over the series name and the coordinates: the same fold on every machine and in every order of rows.
fn fold_of(row: &CalibrationRow, unit: Unit) -> u64 {
    let coordinates = row.point.len() - usize::from(unit == Unit::Line);
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    let mut eat = |byte: u8| hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    row.key.to_string().bytes().for_each(&mut eat);
    row.point[..coordinates].iter().flat_map(|v| v.to_bits().to_le_bytes()).for_each(&mut eat);
    (hash >> 33) % FOLDS
}

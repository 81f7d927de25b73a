//! How good tables are on rows they did not see: they are built again and again, each time without a tenth of the rows. Nearest neighbour, one constant MFU and the bare kernel model stand beside them.
//! Uses `build`, `fill`, `score`, `efficiency`.

use std::collections::BTreeMap;

use rayon::prelude::*;

use super::build::{Row, build, by_series};
use super::family::Calibrated;
use super::score::{Labelled, Pair};
use crate::stats::median;
use ridgepoint::Hardware;
use ridgepoint::Result;
use ridgepoint::internals::efficiency::family::{Family, Key, chip};
use ridgepoint::internals::efficiency::kernel_model::Chip;
use ridgepoint::internals::efficiency::table::Series;

/// Folds of a cross-validation; each leaves out a tenth of the rows, by a hash of the row's series and point.
pub const FOLDS: u64 = 10;

/// What is left out together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Single rows: shapes like these, with neighbours on every side.
    Row,
    /// Whole lines along the last axis (all token counts of one n and k, all batches of one length): shapes of a model
    /// that nobody measured.
    Line,
}

/// Predictions of left-out rows by several methods.
#[derive(Debug, Default, Clone)]
pub struct Comparison {
    /// Tables with the kernel model.
    pub tables: Labelled,
    /// The kernel model alone, fitted on the same rows.
    pub kernel_model: Labelled,
    /// The efficiency of the nearest row of the series in log coordinates.
    pub nearest_neighbour: Labelled,
    /// One efficiency for the whole operator and number format: the median.
    pub constant_mfu: Labelled,
    /// Tables again, by series name.
    pub by_series: Labelled,
}

impl Comparison {
    /// Adds the predictions of another comparison.
    pub fn merge(&mut self, other: Comparison) {
        for (mine, theirs) in [
            (&mut self.tables, other.tables),
            (&mut self.kernel_model, other.kernel_model),
            (&mut self.nearest_neighbour, other.nearest_neighbour),
            (&mut self.constant_mfu, other.constant_mfu),
            (&mut self.by_series, other.by_series),
        ] {
            for (label, pairs) in theirs.by_label {
                mine.by_label.entry(label).or_default().extend(pairs);
            }
        }
    }
}

/// Predicts every row from tables built without its fold. `tick` is called once a fold.
///
/// # Errors
/// Those of [`build`].
pub fn cross_validate<F: Calibrated>(
    rows: &[&Row<F>],
    hardware: &Hardware,
    unit: Unit,
    tick: impl Fn() + Sync,
) -> Result<Comparison> {
    let folds: Vec<u64> = rows.iter().map(|row| fold_of(row, unit)).collect();
    let parts: Result<Vec<Comparison>> = (0..FOLDS)
        .into_par_iter()
        .map(|fold| {
            let of = |is_test: bool| -> Vec<&Row<F>> {
                let chosen = rows.iter().zip(&folds).filter(|(_, f)| (**f == fold) == is_test);
                chosen.map(|(row, _)| *row).collect()
            };
            let part = compare(&of(false), &of(true), hardware);
            tick();
            part
        })
        .collect();
    let mut all = Comparison::default();
    for part in parts? {
        all.merge(part);
    }
    Ok(all)
}

fn compare<F: Calibrated>(train: &[&Row<F>], test: &[&Row<F>], hardware: &Hardware) -> Result<Comparison> {
    let built = build::<F>(train, hardware)?;
    let train_by_series = by_series(train.iter().copied());
    let test_by_series = by_series(test.iter().copied());
    let constants = constant_efficiencies(train, hardware)?;
    let mut out = Comparison::default();
    for mut series in built {
        series.grid.hold_edges();
        let name = series.key.name();
        let chip = chip(hardware, F::compute_dtype(&series.key))?;
        let neighbours = train_by_series.get(&name).map_or(&[][..], Vec::as_slice);
        for row in test_by_series.get(&name).map_or(&[][..], Vec::as_slice) {
            let label = F::label(&row.key);
            let measured_us = row.time_us;
            let shape = row.shape();
            let bound_us = F::bound_us(&shape, &chip);
            let pair = |predicted_us: f64| Pair { predicted_us, measured_us };
            let predicted = pair(predict(&series, &row.point, &chip));
            out.tables.push(&label, predicted);
            out.by_series.push(&name, predicted);
            out.kernel_model.push(&label, pair(F::time_us(&series.coefficients, &shape, &chip)));
            if let Some(near) = nearest(neighbours, &row.point) {
                let efficiency = F::bound_us(&near.shape(), &chip) / near.time_us;
                out.nearest_neighbour.push(&label, pair(bound_us / efficiency));
            }
            if let Some(efficiency) = constants.get(&label) {
                out.constant_mfu.push(&label, pair(bound_us / efficiency));
            }
        }
    }
    Ok(out)
}

/// The time a series gives at a point, with its holes held.
pub fn predict<F: Family>(series: &Series<F>, point: &[f64], chip: &Chip) -> f64 {
    let (residual, _) = series.grid.lookup(point);
    let shape = F::shape(&series.key, point);
    (F::time_us(&series.coefficients, &shape, chip) * residual.exp()).max(F::bound_us(&shape, chip))
}

fn constant_efficiencies<F: Calibrated>(rows: &[&Row<F>], hardware: &Hardware) -> Result<BTreeMap<String, f64>> {
    let mut efficiencies: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for row in rows {
        let chip = chip(hardware, F::compute_dtype(&row.key))?;
        efficiencies.entry(F::label(&row.key)).or_default().push(F::bound_us(&row.shape(), &chip) / row.time_us);
    }
    Ok(efficiencies.into_iter().filter_map(|(label, values)| Some((label, median(values)?))).collect())
}

fn nearest<'a, F: Family>(rows: &[&'a Row<F>], point: &[f64]) -> Option<&'a Row<F>> {
    let distance = |row: &Row<F>| row.point.iter().zip(point).map(|(a, b)| (a / b).ln().abs()).sum::<f64>();
    rows.iter().copied().min_by(|a, b| distance(a).total_cmp(&distance(b)))
}

/// FNV-1a over the series name and the coordinates: the same fold on every machine and in every order of rows.
fn fold_of<F: Family>(row: &Row<F>, unit: Unit) -> u64 {
    let coordinates = row.point.len() - usize::from(unit == Unit::Line);
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    let mut eat = |byte: u8| hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    row.key.name().bytes().for_each(&mut eat);
    row.point[..coordinates].iter().flat_map(|v| v.to_bits().to_le_bytes()).for_each(&mut eat);
    (hash >> 33) % FOLDS
}

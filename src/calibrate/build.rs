//! From measured rows to the series of a table: coefficients per group, residuals per series, glitches out, holes that
//! measurements enclose filled. Uses `fit`, `fill`, `efficiency`.

use std::collections::BTreeMap;

use super::fill::estimate;
use super::fit::{Observation, fit_coefficients};
use crate::efficiency::family::{Family, Key, chip};
use crate::efficiency::grid::{Grid, Origin};
use crate::efficiency::table::Series;
use crate::error::Result;
use crate::hardware::Hardware;

/// A measured cell further than this from what its neighbours say (log ratio; a factor of 1.5) is a glitch of the
/// measurement: the neighbours' estimate stands instead.
const GLITCH_LOG_RATIO: f64 = 0.405;

/// One measured call, placed on the grid of its series.
#[derive(Debug, Clone)]
pub struct Row<F: Family> {
    /// Series.
    pub key: F::Key,
    /// Coordinates on the series' axes.
    pub point: Vec<f64>,
    /// Measured time, µs.
    pub time_us: f64,
    /// Who measured it.
    pub source: String,
}

impl<F: Family> Row<F> {
    /// The shape that was measured.
    pub fn shape(&self) -> F::Shape {
        F::shape(&self.key, &self.point)
    }
}

/// Rows of one series, with its name.
pub fn by_series<'a, F: Family>(rows: impl Iterator<Item = &'a Row<F>>) -> BTreeMap<String, Vec<&'a Row<F>>>
where
    F: 'a,
{
    let mut series: BTreeMap<String, Vec<&Row<F>>> = BTreeMap::new();
    for row in rows {
        series.entry(row.key.name()).or_default().push(row);
    }
    series
}

/// Fits and lays out all series of an operator. `keep_knot` says which values of the last axis get a column.
///
/// # Errors
/// [`crate::Error::MissingPeak`] where the chip has no unit for a row's number format.
pub fn build<F: Family>(
    rows: &[&Row<F>],
    hardware: &Hardware,
    keep_knot: impl Fn(&F::Key, f64) -> bool,
) -> Result<Vec<Series<F>>> {
    let mut groups: BTreeMap<String, Vec<Observation<F::Shape>>> = BTreeMap::new();
    for row in rows {
        let observation = Observation { shape: row.shape(), time_us: row.time_us };
        groups.entry(row.key.group()).or_default().push(observation);
    }
    let mut coefficients: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    let mut built = Vec::new();
    for members in by_series(rows.iter().copied()).into_values() {
        let key = members[0].key.clone();
        let chip = chip(hardware, F::compute_dtype(&key))?;
        let group = key.group();
        if !coefficients.contains_key(&group) {
            let fitted = fit_coefficients::<F>(groups.get(&group).map_or(&[], Vec::as_slice), &chip);
            coefficients.insert(group.clone(), fitted);
        }
        let fitted = coefficients.get(&group).cloned().unwrap_or_default();

        let last = F::AXES.len() - 1;
        let mut axes = vec![Vec::new(); F::AXES.len()];
        for row in &members {
            for (axis, value) in row.point.iter().enumerate() {
                if axis < last || keep_knot(&key, *value) {
                    axes[axis].push(*value);
                }
            }
        }
        for axis in &mut axes {
            axis.sort_by(f64::total_cmp);
            axis.dedup();
        }
        let mut grid = Grid::empty(axes);
        for row in &members {
            if let Some(offset) = grid.cell_at(&row.point) {
                let modelled = F::time_us(&fitted, &row.shape(), &chip);
                grid.set(offset, (row.time_us / modelled).ln(), Origin::Measured);
            }
        }
        drop_glitches(&mut grid);
        fill_holes(&mut grid);
        built.push(Series { key, coefficients: fitted, grid });
    }
    Ok(built)
}

fn drop_glitches(grid: &mut Grid) {
    let glitches: Vec<usize> = (0..grid.len())
        .filter(|offset| match (grid.measured(*offset), estimate(grid, *offset)) {
            (Some(own), Some((around, true))) => (own - around).abs() > GLITCH_LOG_RATIO,
            _ => false,
        })
        .collect();
    for offset in glitches {
        grid.clear(offset);
    }
}

fn fill_holes(grid: &mut Grid) {
    let filled: Vec<(usize, f64)> = (0..grid.len())
        .filter(|offset| grid.origin(*offset) == Origin::Hole)
        .filter_map(|offset| match estimate(grid, offset) {
            Some((value, true)) => Some((offset, value)),
            _ => None,
        })
        .collect();
    for (offset, value) in filled {
        grid.set(offset, value, Origin::Filled);
    }
}

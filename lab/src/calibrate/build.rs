//! Builds the series of a table from measured rows: fits coefficients per group, computes residuals per series, replaces
//! glitches and fills holes that measurements enclose.
#![expect(clippy::indexing_slicing, reason = "a group has a row at least, a point a coordinate per axis")]

use std::collections::BTreeMap;

use super::families::{features, label};
use super::family::CalibratedFamily;
use super::fill::estimate;
use super::fit::fit_coefficients;
use super::trees::Forest;
use ridgepoint::Provenance;
use ridgepoint::unstable::efficiency::family::{CallShape, SeriesKey};
use ridgepoint::unstable::efficiency::grid::Grid;
use ridgepoint::unstable::efficiency::kernel_model::Chip;
use ridgepoint::unstable::efficiency::table::Series;
use ridgepoint::{Error, Hardware, Result};

/// A measured cell whose log ratio to the estimate from its neighbours is larger than this (a factor of 1.5) is a glitch of
/// the measurement. The estimate replaces it.
const GLITCH_LOG_RATIO: f64 = 0.405;

/// One measured call, placed on the grid of its series.
#[derive(Debug, Clone)]
pub struct CalibrationRow {
    /// Series.
    pub key: SeriesKey,
    /// Coordinates on the series' axes.
    pub point: Vec<f64>,
    /// Measured time, µs.
    pub time_us: f64,
    /// Source of the measurement.
    pub source: String,
}

impl CalibrationRow {
    /// The shape that was measured.
    pub fn shape(&self) -> CallShape {
        self.key.shape(&self.point)
    }

    /// Roofline bound over measured time.
    pub(super) fn efficiency(&self, chip: &Chip) -> f64 {
        self.shape().bound_us(chip) / self.time_us
    }
}

/// Groups rows by the name of their series.
pub fn by_series<'a>(rows: impl Iterator<Item = &'a CalibrationRow>) -> BTreeMap<String, Vec<&'a CalibrationRow>> {
    by(rows, SeriesKey::to_string)
}

/// Groups rows by a name of their key.
fn by<'a>(
    rows: impl Iterator<Item = &'a CalibrationRow>,
    name: impl Fn(&SeriesKey) -> String,
) -> BTreeMap<String, Vec<&'a CalibrationRow>> {
    let mut groups: BTreeMap<String, Vec<&CalibrationRow>> = BTreeMap::new();
    rows.for_each(|row| groups.entry(name(&row.key)).or_default().push(row));
    groups
}

/// Builds all series of an operator. Each series and point must appear once, as
/// [`merge_repeated`](super::repeated::merge_repeated) leaves them.
///
/// Each group of series gets its kernel-model coefficients, and trees learn the residuals. A hole next to measured cells
/// gets the trees' estimate, moved by the family's neighbour share of the difference between the cells around it and their own
/// estimates.
///
/// # Errors
/// `ErrorKind::MissingPeak` if the chip has no unit for a row's number format; `ErrorKind::Invalid` for shapes that share so few
/// sizes that they span no grid.
pub fn build(of: &CalibratedFamily, rows: &[&CalibrationRow], hardware: &Hardware) -> Result<Vec<Series>> {
    let coefficients = coefficients_by_group(of, rows, hardware)?;
    let mut placed: BTreeMap<String, ForestRows> = BTreeMap::new();
    for row in rows {
        let chip = Chip::new(hardware, row.key.compute_dtype())?;
        let fitted = coefficients.get(&row.key.group()).map_or(&[][..], Vec::as_slice);
        let (known, residuals) = placed.entry(forest_name(of, &row.key)).or_default();
        known.push(features(&row.key, &row.point, &chip));
        residuals.push((row.time_us / row.shape().time_us(fitted, &chip)).ln());
    }
    let forests = forests(placed, of.pull_limit);

    let mut built = Vec::new();
    for members in by_series(rows.iter().copied()).into_values() {
        let key = members[0].key.clone();
        let chip = Chip::new(hardware, key.compute_dtype())?;
        let fitted = coefficients.get(&key.group()).cloned().unwrap_or_default();
        let Some(forest) = forests.get(&forest_name(of, &key)) else { continue };
        let mut series = Series { grid: empty_grid(of, &key, &members)?, key, coefficients: fitted };
        for row in &members {
            if let Some(offset) = series.grid.cell_at(&row.point) {
                let modelled = row.shape().time_us(&series.coefficients, &chip);
                series.grid.set(offset, (row.time_us / modelled).ln(), Provenance::Measured);
            }
        }
        fill_holes(&mut series, forest, of.neighbour_share, &chip);
        built.push(series);
    }
    Ok(built)
}

/// Name of the forest that learns a series.
fn forest_name(of: &CalibratedFamily, key: &SeriesKey) -> String {
    if of.shares_forest { String::new() } else { label(key) }
}

/// Features and residuals of the rows that a forest learns from.
type ForestRows = (Vec<Vec<f64>>, Vec<f64>);

fn forests(learnt: BTreeMap<String, ForestRows>, pull_limit: f64) -> BTreeMap<String, Forest> {
    let fit =
        |(name, (features, residuals)): (String, ForestRows)| (name, Forest::fit(&features, &residuals, pull_limit));
    learnt.into_iter().map(fit).collect()
}

fn coefficients_by_group(
    of: &CalibratedFamily,
    rows: &[&CalibrationRow],
    hardware: &Hardware,
) -> Result<BTreeMap<String, Vec<f64>>> {
    let mut coefficients = BTreeMap::new();
    for (name, members) in by(rows.iter().copied(), SeriesKey::group) {
        let chip = Chip::new(hardware, members[0].key.compute_dtype())?;
        let measured: Vec<(CallShape, f64)> = members.iter().map(|row| (row.shape(), row.time_us)).collect();
        coefficients.insert(name, fit_coefficients(of.family.coefficients, &measured, &chip)?);
    }
    Ok(coefficients)
}

fn empty_grid(of: &CalibratedFamily, key: &SeriesKey, members: &[&CalibrationRow]) -> Result<Grid> {
    let last = of.family.axes.len() - 1;
    let axis = |axis: usize| {
        let values = members.iter().map(|row| row.point[axis]);
        distinct(values.filter(|value| axis < last || (of.keep_knot)(key, *value)).collect())
    };
    grid(&key.to_string(), of.family.axes, (0..=last).map(axis).collect())
}

fn grid(series: &str, names: &[&str], axes: Vec<Vec<f64>>) -> Result<Grid> {
    if Grid::is_within_reason(&axes) {
        return Ok(Grid::empty(axes));
    }
    let knots: Vec<String> =
        names.iter().zip(&axes).map(|(name, knots)| format!("{} of {name}", knots.len())).collect();
    let problem = format!(
        "the measurements have {}, which span a grid of more than four million cells: measure shapes that share their sizes",
        knots.join(", ")
    );
    Err(Error::invalid(format!("series '{series}'"), vec![problem]))
}

fn distinct(mut values: Vec<f64>) -> Vec<f64> {
    values.sort_by(f64::total_cmp);
    values.dedup();
    values
}

/// Fills the holes that measured cells surround, and replaces glitches.
fn fill_holes(series: &mut Series, forest: &Forest, neighbour_share: f64, chip: &Chip) {
    let features = |offset| features(&series.key, &series.grid.point(offset), chip);
    let learnt = forest.predict(&(0..series.grid.num_cells()).map(features).collect::<Vec<_>>());
    let mut differences = series.grid.clone();
    for (offset, learnt) in learnt.iter().enumerate() {
        if let Some(measured) = series.grid.measured(offset) {
            differences.set(offset, measured - learnt, Provenance::Measured);
        }
    }
    for (offset, learnt) in learnt.iter().enumerate() {
        let Some((around, is_enclosed)) = estimate(&differences, offset) else { continue };
        let filled = learnt + neighbour_share * around;
        match series.grid.measured(offset) {
            Some(own) if (own - filled).abs() <= GLITCH_LOG_RATIO => {}
            Some(_) if !is_enclosed => {}
            None if !is_enclosed && !touches_measured(&differences, offset) => {}
            _ => series.grid.set(offset, filled, Provenance::Interpolated),
        }
    }
}

/// Returns whether measured cells are next to a hole along at least two axes.
fn touches_measured(grid: &Grid, offset: usize) -> bool {
    let index = grid.index(offset);
    let next_along = |axis: &usize| {
        [-1, 1]
            .into_iter()
            .any(|step| grid.neighbour(offset, &index, *axis, step).is_some_and(|near| grid.measured(near).is_some()))
    };
    (0..grid.axes.len()).filter(next_along).count() >= 2
}

//! A series sliced for one rank: a kernel model, and the residuals that are left to look up. Its times never fall as work grows.
#![expect(clippy::indexing_slicing, reason = "a model has a time for every cell")]

use super::chip::Chip;
use super::grid::Grid;
use super::isotonic::{rising, rising_rows};
use super::provenance::Provenance;
use super::series::Series;
use super::series_key::CallShape;

/// Largest log by which a time may differ from a rising sequence and stay as it is, on a GPU whose kernels of this kind were measured: kernels
/// are chosen by size, and the slower one is at times that of less work.
const OWN_NOISE: f64 = 0.15;

/// The same for kernels that are carried over from another format, shape or GPU, which no measurement speaks for.
const CARRIED_NOISE: f64 = 0.01;

/// Largest log by which rows may fall from one size to the next without a word.
const SILENT_FALL: f64 = 0.02;

/// Largest log by which rows may rise faster than their sizes without a word: tiles of a kernel that fill up.
const SILENT_RISE: f64 = 0.2;

/// Neighbouring rows whose times do not go with their sizes: less time for more work, or much more for a little.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Uneven {
    /// Size of one row, in the units of the table's axis.
    pub from: f64,
    /// Size of the next.
    pub to: f64,
    /// Time of the next over that of the one.
    pub ratio: f64,
}

impl Uneven {
    /// The share of the first row's time by which the next one is off: how much less it takes, or how much more than its size says.
    pub fn share(&self) -> f64 {
        if self.ratio < 1.0 { 1.0 - self.ratio } else { self.ratio - self.to / self.from }
    }
}

/// A time and its provenance.
pub type SourcedTime = (f64, Provenance);

/// Kernel-model coefficients and the residuals that are left to look up.
#[derive(Debug, Clone)]
pub(super) struct ResidualCurve {
    pub(super) coefficients: Vec<f64>,
    pub(super) chip: Chip,
    pub(super) residuals: Grid,
    at_best: Provenance,
    /// Logs of the modelled times at the knots of its only axis, if its times never fall along it; empty otherwise.
    log_modelled: Vec<f64>,
}

impl ResidualCurve {
    /// Slices `series` at `leading` coordinates of its first axes. Its times are `at_best` measured, clamped or borrowed: a series
    /// of a similar kernel is clamped, one of another GPU borrowed.
    pub(super) fn new(series: &Series, leading: &[f64], chip: Chip, at_best: Provenance) -> Self {
        let (residuals, provenance) = series.grid.slice(leading);
        ResidualCurve {
            coefficients: series.coefficients.clone(),
            chip,
            residuals,
            at_best: at_best.max(provenance),
            log_modelled: Vec::new(),
        }
    }

    /// The same curve of one axis with times that do not fall along it, as more work takes no less time. `modelled_us` is the modelled time
    /// at a knot, which must not fall.
    pub(super) fn rising(mut self, modelled_us: impl Fn(f64) -> f64) -> Self {
        let [knots] = &self.residuals.axes[..] else { return self };
        let log_modelled: Vec<f64> = knots.iter().map(|knot| modelled_us(*knot).ln()).collect();
        self.replace_falls(&log_modelled, rising);
        self.log_modelled = log_modelled;
        self
    }

    /// [`ResidualCurve::new`] of two axes with times that fall along neither, at the knots.
    pub(super) fn rising_at_knots(series: &Series, leading: &[f64], chip: Chip, at_best: Provenance) -> Self {
        let mut curve = ResidualCurve::new(series, leading, chip, at_best);
        let grid = &curve.residuals;
        let log_modelled = |cell: usize| {
            let shape = series.key.shape(&[leading, &grid.point(cell)].concat());
            shape.time_us(&series.coefficients, &chip).ln()
        };
        let log_modelled: Vec<f64> = (0..grid.num_cells()).map(log_modelled).collect();
        let width = grid.axes.last().map_or(0, Vec::len);
        curve.replace_falls(&log_modelled, |logs| rising_rows(logs, width));
        curve
    }

    /// Replaces the cells whose time differs from a rising sequence by more than the noise of their rows.
    fn replace_falls(&mut self, log_modelled: &[f64], rising: impl FnOnce(&[f64]) -> Vec<f64>) {
        let noise = self.noise();
        let logs: Vec<f64> = self
            .residuals
            .values
            .iter()
            .zip(log_modelled)
            .map(|(value, modelled)| f64::from(*value) + modelled)
            .collect();
        for (cell, (risen, log)) in rising(&logs).into_iter().zip(logs).enumerate() {
            if (risen - log).abs() > noise {
                self.residuals.replace(cell, risen - log_modelled[cell]);
            }
        }
    }

    /// A modelled time with the residual at `x` on the only axis of a curve that is [`ResidualCurve::rising`].
    ///
    /// # Formula
    /// `modelled · exp(residual)` with the residual interpolated. Where that falls from one knot to the next, a step of the model would
    /// overshoot the next knot's time and fall back to it: there the time stays between those of the two knots, but for the noise of its rows.
    pub(super) fn risen(&self, modelled_us: f64, x: f64) -> SourcedTime {
        let (residual, provenance) = self.residuals.lookup(&[x]);
        let (low, weight) = self.residuals.place(0, x).knot_and_weight();
        let provenance = self.at_best.max(provenance);
        let time_us = modelled_us * residual.exp();
        let (Some([from, to]), Some([model_from, model_to])) =
            (self.residuals.values.get(low..low + 2), self.log_modelled.get(low..low + 2))
        else {
            return (time_us, provenance);
        };
        let (from, to) = (f64::from(*from), f64::from(*to));
        let noise = self.noise();
        if weight <= 0.0 || from - to <= noise {
            return (time_us, provenance);
        }
        let (first, last) = (model_from + from, model_to + to);
        let (least, most) = (first.min(last) - noise, first.max(last) + noise);
        (time_us.clamp(least.exp(), most.exp()), provenance)
    }

    /// The most uneven neighbouring knots next to `x`, of a curve that is [`ResidualCurve::rising`] but for the noise of its rows.
    pub(super) fn uneven_near(&self, x: f64) -> Option<Uneven> {
        let [knots] = &self.residuals.axes[..] else { return None };
        let (low, _) = self.residuals.place(0, x).knot_and_weight();
        let log = |knot: usize| Some(self.log_modelled.get(knot)? + f64::from(*self.residuals.values.get(knot)?));
        let pair = |knot: usize| {
            let (from, to) = (*knots.get(knot)?, *knots.get(knot + 1)?);
            let rise = log(knot + 1)? - log(knot)?;
            let is_silent = rise > -SILENT_FALL && rise < (to / from).ln() + SILENT_RISE;
            (!is_silent).then(|| Uneven { from, to, ratio: rise.exp() })
        };
        let pairs = (low.saturating_sub(1)..low + 2).filter_map(pair);
        pairs.max_by(|one, other| one.share().total_cmp(&other.share()))
    }

    /// Largest log by which its times may differ from a rising sequence.
    fn noise(&self) -> f64 {
        if self.at_best < Provenance::Clamped { OWN_NOISE } else { CARRIED_NOISE }
    }

    /// Launch and set-up in every time of the curve, µs: the first coefficient of every kernel model.
    pub(super) fn launch_us(&self) -> f64 {
        self.coefficients.first().copied().unwrap_or(0.0)
    }

    /// Time of a call of a shape, never below the roofline bound.
    pub(super) fn timed(&self, shape: &CallShape, point: &[f64]) -> SourcedTime {
        let (time_us, provenance) = self.unbounded(shape, point);
        (time_us.max(shape.bound_us(&self.chip)), provenance)
    }

    /// [`ResidualCurve::timed`] at `x` on the only axis of a curve that is [`ResidualCurve::rising`].
    pub(super) fn timed_rising(&self, shape: &CallShape, x: f64) -> SourcedTime {
        let (time_us, provenance) = self.risen(shape.time_us(&self.coefficients, &self.chip), x);
        (time_us.max(shape.bound_us(&self.chip)), provenance)
    }

    /// [`ResidualCurve::timed`] that may be below the roofline bound.
    pub(super) fn unbounded(&self, shape: &CallShape, point: &[f64]) -> SourcedTime {
        self.with_residual(shape.time_us(&self.coefficients, &self.chip), point)
    }

    /// A modelled time with the residual of a point.
    pub(super) fn with_residual(&self, modelled_us: f64, point: &[f64]) -> SourcedTime {
        let (residual, provenance) = self.residuals.lookup(point);
        (modelled_us * residual.exp(), self.at_best.max(provenance))
    }
}

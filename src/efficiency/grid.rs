//! A rectangular grid of residuals over logarithmic axes: interpolated inside, clamped at the edge. A residual is the natural
//! log of measured over modelled time. [`Grid::fill_gaps`] fills the cells that no measurement covers.
#![expect(clippy::indexing_slicing, reason = "cells and axes are counted from the grid's own shape")]
#![expect(clippy::cast_possible_truncation, reason = "tables have three digits")]

use super::provenance::Provenance;

/// A coordinate on an axis: the knot below it, the weight of the next knot, and whether the value is exact, interpolated or clamped.
#[derive(Debug, Clone, Copy)]
pub struct GridPosition {
    low: usize,
    weight: f64,
    provenance: Provenance,
}

impl GridPosition {
    /// The knot at or below, and the weight of the next one.
    pub(super) fn knot_and_weight(&self) -> (usize, f64) {
        (self.low, self.weight)
    }
}

/// More cells than any grid has: coordinates of damaged lines or unplanned measurements are all different.
const MAX_CELLS: usize = 1 << 22;
/// Most axes a grid has.
pub const MAX_AXES: usize = 4;

/// Residuals on the product of up to [`MAX_AXES`] axes; the last axis varies fastest. A cell is measured, interpolated from
/// measurements around it, or clamped: spread from the nearest cells, or a hole.
#[derive(Debug, Clone)]
pub struct Grid {
    /// The knots of each axis.
    pub axes: Vec<Vec<f64>>,
    /// Natural logs of the knots of each axis.
    pub log_axes: Vec<Vec<f64>>,
    /// Cells from one knot to the next along each axis.
    strides: [usize; MAX_AXES],
    pub(super) values: Vec<f32>,
    origins: Vec<Provenance>,
}

impl Grid {
    /// Returns whether a grid on these axes has at most four million cells.
    pub fn is_within_reason(axes: &[Vec<f64>]) -> bool {
        axes.iter().fold(1, |cells: usize, axis| cells.saturating_mul(axis.len())) <= MAX_CELLS
    }

    /// A grid of NaN (holes) on ascending positive `axes`.
    pub fn empty(axes: Vec<Vec<f64>>) -> Self {
        let cells = axes.iter().map(Vec::len).product();
        let log_axes = axes.iter().map(|axis| axis.iter().map(|v| v.ln()).collect()).collect();
        let mut strides = [1; MAX_AXES];
        for axis in (1..axes.len()).rev() {
            strides[axis - 1] = strides[axis] * axes[axis].len();
        }
        Grid { axes, log_axes, strides, values: vec![f32::NAN; cells], origins: vec![Provenance::Clamped; cells] }
    }

    /// Cells in the grid, holes counted.
    pub fn num_cells(&self) -> usize {
        self.values.len()
    }

    /// Index along each axis of a cell.
    pub fn index(&self, mut cell: usize) -> [usize; MAX_AXES] {
        let mut index = [0; MAX_AXES];
        for (axis, knots) in self.axes.iter().enumerate().rev() {
            index[axis] = cell % knots.len();
            cell /= knots.len();
        }
        index
    }

    /// Coordinates of a cell.
    pub fn point(&self, cell: usize) -> Vec<f64> {
        self.axes.iter().zip(self.index(cell)).map(|(axis, index)| axis[index]).collect()
    }

    /// The value of a cell and its provenance; `None` for a hole.
    pub fn get(&self, cell: usize) -> Option<(f64, Provenance)> {
        let value = self.values[cell];
        (!value.is_nan()).then(|| (f64::from(value), self.origins[cell]))
    }

    /// The value of a cell that was measured; `None` for any other.
    pub fn measured(&self, cell: usize) -> Option<f64> {
        self.get(cell).filter(|(_, origin)| *origin == Provenance::Measured).map(|(value, _)| value)
    }

    /// Sets a cell.
    pub fn set(&mut self, cell: usize, value: f64, origin: Provenance) {
        self.values[cell] = value as f32;
        self.origins[cell] = origin;
    }

    /// Replaces the value of a cell by one that follows from its neighbours: it counts as interpolated at best.
    pub(super) fn replace(&mut self, cell: usize, value: f64) {
        self.set(cell, value, self.origins[cell].max(Provenance::Interpolated));
    }

    /// The cell at exactly `point`; `None` if the grid has no such knots.
    pub fn cell_at(&self, point: &[f64]) -> Option<usize> {
        let mut cell = 0;
        for (axis, value) in self.axes.iter().zip(point) {
            cell = cell * axis.len() + axis.iter().position(|knot| (knot - value).abs() <= 1e-9 * knot.abs())?;
        }
        Some(cell)
    }

    /// The cell `step` knots along `axis`; `None` beyond the grid.
    pub fn neighbour(&self, cell: usize, index: &[usize; MAX_AXES], axis: usize, step: isize) -> Option<usize> {
        let at = index[axis].checked_add_signed(step)?;
        if at >= self.axes[axis].len() {
            return None;
        }
        cell.checked_add_signed(step * self.strides[axis].cast_signed())
    }

    /// The grid of the remaining axes at `leading` coordinates of the first ones, interpolated or clamped there. A cell of it
    /// is as good as the worst cell that it depends on. Holes must have been filled by [`Grid::fill_gaps`].
    pub fn slice(&self, leading: &[f64]) -> (Grid, Provenance) {
        let places: Vec<GridPosition> =
            leading.iter().enumerate().map(|(axis, value)| self.place(axis, *value)).collect();
        let corners: Vec<(f64, usize)> = self.corners(&places).collect();
        let mut slice = Grid::empty(self.axes[leading.len()..].to_vec());
        for cell in 0..slice.num_cells() {
            let (mut sum, mut origin) = (0.0, Provenance::Measured);
            for (share, corner) in &corners {
                sum += share * f64::from(self.values[corner + cell]);
                origin = origin.max(self.origins[corner + cell]);
            }
            slice.set(cell, sum, origin);
        }
        (slice, places.iter().map(|place| place.provenance).max().unwrap_or(Provenance::Measured))
    }

    /// The cells around places on the first axes, with their positive weights; the first of them along the other axes.
    #[inline]
    fn corners(&self, places: &[GridPosition]) -> impl Iterator<Item = (f64, usize)> {
        let corner = |corner: usize| {
            let (mut share, mut cell) = (1.0, 0);
            for (axis, (place, stride)) in places.iter().zip(&self.strides).enumerate() {
                let upper = corner >> axis & 1;
                share *= if upper == 1 { place.weight } else { 1.0 - place.weight };
                cell += (place.low + upper) * stride;
            }
            (share, cell)
        };
        (0..1usize << places.len()).map(corner).filter(|(share, _)| *share > 0.0)
    }

    /// The multilinear interpolation in log coordinates at `point`, one positive coordinate per axis; beyond the edge
    /// the edge value applies. Holes must have been filled by [`Grid::fill_gaps`].
    pub fn lookup(&self, point: &[f64]) -> (f64, Provenance) {
        let mut places = [GridPosition { low: 0, weight: 0.0, provenance: Provenance::Measured }; MAX_AXES];
        for (axis, (place, value)) in places.iter_mut().zip(point).enumerate() {
            *place = self.place(axis, *value);
        }
        self.at(&places[..self.axes.len()])
    }

    /// The place of a positive coordinate on an axis. Points that share the coordinate can share its place.
    pub fn place(&self, axis: usize, value: f64) -> GridPosition {
        bracket(&self.log_axes[axis], value.ln())
    }

    /// [`Grid::lookup`] by places along the axes.
    #[inline]
    pub fn at(&self, places: &[GridPosition]) -> (f64, Provenance) {
        let mut provenance = places.iter().map(|place| place.provenance).max().unwrap_or(Provenance::Measured);
        let mut sum = 0.0;
        let mut add = |share: f64, corner: usize| {
            if share > 0.0 {
                sum += share * f64::from(self.values[corner]);
                // A clamped corner with a small weight does not make the time count as clamped.
                let origin = self.origins[corner];
                if origin != Provenance::Clamped || share > 0.25 {
                    provenance = provenance.max(origin);
                }
            }
        };
        // Curves have one or two axes, and lookup tables ask for tens of thousands of points.
        match (places, self.strides) {
            ([place], [stride, ..]) => {
                let cell = place.low * stride;
                add(1.0 - place.weight, cell);
                add(place.weight, cell + stride);
            }
            ([first, second], [down, right, ..]) => {
                let (cell, above, left) =
                    (first.low * down + second.low * right, 1.0 - first.weight, 1.0 - second.weight);
                add(above * left, cell);
                add(first.weight * left, cell + down);
                add(above * second.weight, cell + right);
                add(first.weight * second.weight, cell + down + right);
            }
            _ => self.corners(places).for_each(|(share, corner)| add(share, corner)),
        }
        (sum, provenance)
    }
}

/// First and last knot of an ascending axis that an interpolation at `value` reads.
pub(super) fn knots_around(axis: &[f64], value: f64) -> [usize; 2] {
    let log_axis: Vec<f64> = axis.iter().map(|knot| knot.ln()).collect();
    let GridPosition { low, weight, .. } = bracket(&log_axis, value.ln());
    if weight > 0.0 { [low, low + 1] } else { [low, low] }
}

/// Lower knot, weight of the upper one, and whether `x` is a knot, between two, or beyond the ends.
fn bracket(knots: &[f64], x: f64) -> GridPosition {
    const SAME: f64 = 1e-9;
    let last = knots.len() - 1;
    let knot = |low, provenance| GridPosition { low, weight: 0.0, provenance };
    let at_end = |low: usize| {
        let is_knot = (x - knots[low]).abs() <= SAME;
        knot(low, if is_knot { Provenance::Measured } else { Provenance::Clamped })
    };
    if x <= knots[0] {
        return at_end(0);
    }
    if x >= knots[last] {
        return at_end(last);
    }
    let low = knots.partition_point(|k| *k <= x) - 1;
    let weight = (x - knots[low]) / (knots[low + 1] - knots[low]);
    if weight <= SAME {
        knot(low, Provenance::Measured)
    } else if weight >= 1.0 - SAME {
        knot(low + 1, Provenance::Measured)
    } else {
        GridPosition { low, weight, provenance: Provenance::Interpolated }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plane() -> Grid {
        let mut grid = Grid::empty(vec![vec![1.0, 10.0, 100.0], vec![1.0, 8.0]]);
        for offset in 0..grid.num_cells() {
            let index = grid.index(offset);
            let value = grid.log_axes[0][index[0]] + 2.0 * grid.log_axes[1][index[1]];
            grid.set(offset, value, Provenance::Measured);
        }
        grid
    }

    #[test]
    fn a_plane_in_log_coordinates_is_reproduced_between_knots() {
        let (value, provenance) = plane().lookup(&[50.0, 3.0]);
        assert!((value - (50f64.ln() + 2.0 * 3f64.ln())).abs() < 1e-6);
        assert_eq!(provenance, Provenance::Interpolated);
    }

    #[test]
    fn beyond_the_edge_the_edge_value_applies() {
        let (value, provenance) = plane().lookup(&[1e6, 8.0]);
        assert!((value - (100f64.ln() + 2.0 * 8f64.ln())).abs() < 1e-6);
        assert_eq!(provenance, Provenance::Clamped);
        assert_eq!(plane().lookup(&[10.0, 8.0]).1, Provenance::Measured);
    }

    #[test]
    fn a_slice_agrees_with_the_whole() {
        let grid = plane();
        let (slice, provenance) = grid.slice(&[50.0]);
        assert_eq!(provenance, Provenance::Interpolated);
        assert!((slice.lookup(&[3.0]).0 - grid.lookup(&[50.0, 3.0]).0).abs() < 1e-6);
        assert_eq!(grid.slice(&[1e6]).1, Provenance::Clamped);
    }

    #[test]
    fn holes_are_filled_from_their_neighbours_and_known_as_clamped() {
        let mut grid = plane();
        let corner = grid.cell_at(&[100.0, 8.0]).expect("a cell");
        grid.set(corner, f64::NAN, Provenance::Clamped);
        grid.fill_gaps();
        assert_eq!(grid.lookup(&[100.0, 8.0]).1, Provenance::Clamped);
        assert_eq!(grid.lookup(&[10.0, 8.0]).1, Provenance::Measured);
    }
}

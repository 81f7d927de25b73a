//! A rectangular grid of residuals over logarithmic axes: interpolated inside, clamped at the edge. A residual is the natural
//! log of measured over modelled time. [`Grid::fill_gaps`] fills the cells that no measurement covers.

/// How a looked-up value relates to the measured ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Lookup {
    /// A measured knot of the grid.
    #[default]
    Exact,
    /// Between measured knots.
    Interpolated,
    /// Beyond the grid, or where it has no measurement: the nearest value is taken.
    Clamped,
}

/// Where the value of a cell comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// Nowhere yet.
    Hole,
    /// A measurement at this very shape.
    Measured,
    /// Interpolated from measurements around it.
    Filled,
    /// Spread from the nearest cells that have a value.
    Clamped,
}

/// A coordinate on an axis: the knot below it, the weight of the next one, and how far it is from either.
#[derive(Debug, Clone, Copy, Default)]
pub struct Place {
    low: usize,
    weight: f64,
    lookup: Lookup,
}

/// Most axes a grid has.
pub const MAX_AXES: usize = 4;

/// Residuals on the product of up to [`MAX_AXES`] axes; the last axis varies fastest.
#[derive(Debug, Clone)]
pub struct Grid {
    axes: Vec<Vec<f64>>,
    log_axes: Vec<Vec<f64>>,
    /// Cells from one knot to the next along each axis.
    strides: [usize; MAX_AXES],
    pub(super) values: Vec<f32>,
    origins: Vec<Origin>,
}

impl Grid {
    /// A grid of NaN (holes) on ascending positive `axes`.
    pub fn empty(axes: Vec<Vec<f64>>) -> Self {
        let cells = axes.iter().map(Vec::len).product();
        let log_axes = axes.iter().map(|axis| axis.iter().map(|v| v.ln()).collect()).collect();
        let mut strides = [1; MAX_AXES];
        for axis in (1..axes.len()).rev() {
            strides[axis - 1] = strides[axis] * axes[axis].len();
        }
        Grid { axes, log_axes, strides, values: vec![f32::NAN; cells], origins: vec![Origin::Hole; cells] }
    }

    /// The knots of each axis.
    pub fn axes(&self) -> &[Vec<f64>] {
        &self.axes
    }

    /// Natural logs of the knots of each axis.
    pub fn log_axes(&self) -> &[Vec<f64>] {
        &self.log_axes
    }

    /// Cells in the grid, holes counted.
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// True where the grid has no cell.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Position of a cell in storage order.
    pub fn offset(&self, index: &[usize]) -> usize {
        index.iter().zip(&self.axes).fold(0, |at, (i, axis)| at * axis.len() + i)
    }

    /// Index along each axis of the cell stored at `offset`.
    pub fn index(&self, mut offset: usize) -> [usize; MAX_AXES] {
        let mut index = [0; MAX_AXES];
        for (axis, knots) in self.axes.iter().enumerate().rev() {
            index[axis] = offset % knots.len();
            offset /= knots.len();
        }
        index
    }

    /// The value of a cell; `None` for a hole.
    pub fn get(&self, offset: usize) -> Option<f64> {
        let value = self.values[offset];
        if value.is_nan() { None } else { Some(f64::from(value)) }
    }

    /// Where the value of a cell comes from.
    pub fn origin(&self, offset: usize) -> Origin {
        self.origins[offset]
    }

    /// The value of a cell that was measured; `None` for any other.
    pub fn measured(&self, offset: usize) -> Option<f64> {
        if self.origins[offset] == Origin::Measured { Some(f64::from(self.values[offset])) } else { None }
    }

    /// Sets a cell.
    pub fn set(&mut self, offset: usize, value: f64, origin: Origin) {
        self.values[offset] = value as f32;
        self.origins[offset] = origin;
    }

    /// Empties a cell.
    pub fn clear(&mut self, offset: usize) {
        self.values[offset] = f32::NAN;
        self.origins[offset] = Origin::Hole;
    }

    /// Position of the cell at exactly `point`, where the grid has one.
    pub fn cell_at(&self, point: &[f64]) -> Option<usize> {
        let (last, leading) = point.split_last()?;
        Some(self.row_at(leading)? + self.knot(leading.len(), *last)?)
    }

    /// First cell of the row along the last axis at `point` on the others, where the grid has one.
    pub fn row_at(&self, point: &[f64]) -> Option<usize> {
        let mut row = 0;
        for (axis, value) in point.iter().enumerate() {
            row = row * self.axes[axis].len() + self.knot(axis, *value)?;
        }
        Some(row * self.axes.last().map_or(1, Vec::len))
    }

    /// Index of the knot equal to `value` on `axis`.
    pub fn knot(&self, axis: usize, value: f64) -> Option<usize> {
        self.axes[axis].iter().position(|k| (k - value).abs() <= 1e-9 * k.abs())
    }

    /// The cell `step` knots along `axis`, where the grid has one.
    pub fn neighbour(&self, offset: usize, index: &[usize; MAX_AXES], axis: usize, step: isize) -> Option<usize> {
        let at = index[axis].checked_add_signed(step)?;
        if at >= self.axes[axis].len() {
            return None;
        }
        offset.checked_add_signed(step * self.strides[axis] as isize)
    }

    /// The grid of the remaining axes at `leading` coordinates of the first ones, interpolated or clamped there. A cell of it
    /// is as good as the worst cell that it depends on. Holes must have been filled by [`Grid::fill_gaps`].
    pub fn slice(&self, leading: &[f64]) -> (Grid, Lookup) {
        let fixed = leading.len();
        let mut lookup = Lookup::Exact;
        let brackets: Vec<(usize, f64)> = leading
            .iter()
            .zip(&self.log_axes)
            .map(|(value, knots)| {
                let (at, weight, r) = bracket(knots, value.ln());
                lookup = lookup.max(r);
                (at, weight)
            })
            .collect();
        let mut slice = Grid::empty(self.axes[fixed..].to_vec());
        let cells = slice.len();
        for cell in 0..cells {
            let (mut sum, mut origin) = (0.0, Origin::Measured);
            for corner in 0..(1usize << fixed) {
                let mut share = 1.0;
                let mut block = 0;
                for (axis, (at, weight)) in brackets.iter().enumerate() {
                    let upper = corner >> axis & 1;
                    share *= if upper == 1 { *weight } else { 1.0 - weight };
                    block = block * self.axes[axis].len() + (at + upper).min(self.axes[axis].len() - 1);
                }
                if share > 0.0 {
                    let offset = block * cells + cell;
                    sum += share * f64::from(self.values[offset]);
                    origin = worse(origin, self.origins[offset]);
                }
            }
            slice.set(cell, sum, origin);
        }
        (slice, lookup)
    }

    /// The multilinear interpolation in log coordinates at `point`, one positive coordinate per axis; beyond the edge
    /// the edge value applies. Holes must have been filled by [`Grid::fill_gaps`].
    pub fn lookup(&self, point: &[f64]) -> (f64, Lookup) {
        match *point {
            [x] => self.at(&[self.place(0, x)]),
            [x, y] => self.at(&[self.place(0, x), self.place(1, y)]),
            [x, y, z] => self.at(&[self.place(0, x), self.place(1, y), self.place(2, z)]),
            [x, y, z, w] => self.at(&[self.place(0, x), self.place(1, y), self.place(2, z), self.place(3, w)]),
            _ => (0.0, Lookup::Clamped),
        }
    }

    /// Where a positive coordinate lies on an axis: for callers that look up many points which share it.
    pub fn place(&self, axis: usize, value: f64) -> Place {
        let (low, weight, lookup) = bracket(&self.log_axes[axis], value.ln());
        Place { low, weight, lookup }
    }

    /// [`Grid::lookup`] where the coordinates were placed before.
    pub fn at<const AXES: usize>(&self, places: &[Place; AXES]) -> (f64, Lookup) {
        let mut lookup = Lookup::Exact;
        let mut base = 0;
        for (place, knots) in places.iter().zip(&self.axes) {
            base = base * knots.len() + place.low;
            lookup = lookup.max(place.lookup);
        }
        let mut sum = 0.0;
        for corner in 0..(1usize << AXES) {
            let mut share = 1.0;
            let mut offset = base;
            for (axis, (place, stride)) in places.iter().zip(&self.strides).enumerate() {
                let is_upper = corner >> axis & 1 == 1;
                share *= if is_upper { place.weight } else { 1.0 - place.weight };
                offset += if is_upper { *stride } else { 0 };
            }
            if share > 0.0 {
                sum += share * f64::from(self.values[offset]);
                match self.origins[offset] {
                    Origin::Clamped | Origin::Hole if share > 0.25 => lookup = Lookup::Clamped,
                    Origin::Filled => lookup = lookup.max(Lookup::Interpolated),
                    _ => {}
                }
            }
        }
        (sum, lookup)
    }
}

fn worse(a: Origin, b: Origin) -> Origin {
    let rank = |o: Origin| match o {
        Origin::Measured => 0,
        Origin::Filled => 1,
        Origin::Clamped | Origin::Hole => 2,
    };
    if rank(a) >= rank(b) { a } else { b }
}

/// First and last knot of an ascending axis that an interpolation at `value` reads.
pub(super) fn knots_around(axis: &[f64], value: f64) -> [usize; 2] {
    let log_axis: Vec<f64> = axis.iter().map(|knot| knot.ln()).collect();
    let (low, weight, _) = bracket(&log_axis, value.ln());
    if weight > 0.0 { [low, low + 1] } else { [low, low] }
}

/// Lower knot, weight of the upper one, and whether `x` is a knot, between two, or beyond the ends.
fn bracket(knots: &[f64], x: f64) -> (usize, f64, Lookup) {
    const SAME: f64 = 1e-9;
    let last = knots.len() - 1;
    if x <= knots[0] {
        return (0, 0.0, if knots[0] - x <= SAME { Lookup::Exact } else { Lookup::Clamped });
    }
    if x >= knots[last] {
        return (last, 0.0, if x - knots[last] <= SAME { Lookup::Exact } else { Lookup::Clamped });
    }
    let at = knots.partition_point(|k| *k <= x) - 1;
    let weight = (x - knots[at]) / (knots[at + 1] - knots[at]);
    if weight <= SAME {
        (at, 0.0, Lookup::Exact)
    } else if weight >= 1.0 - SAME {
        (at + 1, 0.0, Lookup::Exact)
    } else {
        (at, weight, Lookup::Interpolated)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plane() -> Grid {
        let mut grid = Grid::empty(vec![vec![1.0, 10.0, 100.0], vec![1.0, 8.0]]);
        for offset in 0..grid.len() {
            let index = grid.index(offset);
            let value = grid.log_axes()[0][index[0]] + 2.0 * grid.log_axes()[1][index[1]];
            grid.set(offset, value, Origin::Measured);
        }
        grid
    }

    #[test]
    fn a_plane_in_log_coordinates_is_reproduced_between_knots() {
        let (value, lookup) = plane().lookup(&[50.0, 3.0]);
        assert!((value - (50f64.ln() + 2.0 * 3f64.ln())).abs() < 1e-6);
        assert_eq!(lookup, Lookup::Interpolated);
    }

    #[test]
    fn beyond_the_edge_the_edge_value_applies() {
        let (value, lookup) = plane().lookup(&[1e6, 8.0]);
        assert!((value - (100f64.ln() + 2.0 * 8f64.ln())).abs() < 1e-6);
        assert_eq!(lookup, Lookup::Clamped);
        assert_eq!(plane().lookup(&[10.0, 8.0]).1, Lookup::Exact);
    }

    #[test]
    fn a_slice_agrees_with_the_whole() {
        let grid = plane();
        let (slice, lookup) = grid.slice(&[50.0]);
        assert_eq!(lookup, Lookup::Interpolated);
        assert!((slice.lookup(&[3.0]).0 - grid.lookup(&[50.0, 3.0]).0).abs() < 1e-6);
        assert_eq!(grid.slice(&[1e6]).1, Lookup::Clamped);
    }

    #[test]
    fn holes_are_filled_from_their_neighbours_and_known_as_clamped() {
        let mut grid = plane();
        let corner = grid.offset(&[2, 1]);
        grid.clear(corner);
        grid.fill_gaps();
        assert_eq!(grid.lookup(&[100.0, 8.0]).1, Lookup::Clamped);
        assert_eq!(grid.lookup(&[10.0, 8.0]).1, Lookup::Exact);
    }
}

//! Holes of a grid filled from the nearest cells that have a value. Uses nothing else of the crate.

/// Cells of a grid that are holes (NaN) in `values`, with the value of the cells nearest in index distance along an axis,
/// spreading outwards until no hole is left. `lengths` are those of the axes, of which the last varies fastest.
pub(super) fn held(lengths: &[usize], values: &[f32]) -> Vec<(usize, f32)> {
    let mut framed = Framed::new(lengths);
    let (mut known, mut holes) = (Vec::new(), Vec::new());
    let width = lengths.last().copied().unwrap_or(1);
    let mut first = framed.strides.iter().sum();
    let mut index = vec![0; lengths.len()];
    for (row, cells) in values.chunks_exact(width).enumerate() {
        for (column, value) in cells.iter().enumerate() {
            let at = first + column;
            framed.values[at] = *value;
            if value.is_nan() {
                framed.is_open[at] = true;
                holes.push((row * width + column, at));
            } else {
                known.push(at);
            }
        }
        first = framed.next_row(first, &mut index, lengths);
    }
    framed.hold(known);
    holes.into_iter().map(|(cell, at)| (cell, framed.values[at])).collect()
}

/// Values of a grid within a frame of holes that stay holes, so that each cell has its neighbours at the same distances.
struct Framed {
    values: Vec<f32>,
    /// A hole that no round has reached yet.
    is_open: Vec<bool>,
    /// Distance to the next knot along each axis.
    strides: Vec<usize>,
}

impl Framed {
    fn new(lengths: &[usize]) -> Self {
        let mut strides = vec![1; lengths.len()];
        for axis in (1..lengths.len()).rev() {
            strides[axis - 1] = strides[axis] * (lengths[axis] + 2);
        }
        let cells = lengths.iter().map(|length| length + 2).product();
        Framed { values: vec![f32::NAN; cells], is_open: vec![false; cells], strides }
    }

    /// Offset of the row behind that at `at`, whose place on all axes but the last `index` says.
    fn next_row(&self, mut at: usize, index: &mut [usize], lengths: &[usize]) -> usize {
        for axis in (0..lengths.len().saturating_sub(1)).rev() {
            index[axis] += 1;
            at += self.strides[axis];
            if index[axis] < lengths[axis] {
                break;
            }
            at -= lengths[axis] * self.strides[axis];
            index[axis] = 0;
        }
        at
    }

    /// Each round fills the holes beside the cells that the one before it filled; the first, those beside `known` ones.
    fn hold(&mut self, known: Vec<usize>) {
        let mut filled = known;
        let mut means: Vec<f32> = Vec::new();
        while !filled.is_empty() {
            let mut due = Vec::new();
            for at in &filled {
                for stride in &self.strides {
                    for near in [at - stride, at + stride] {
                        if self.is_open[near] {
                            self.is_open[near] = false;
                            due.push(near);
                        }
                    }
                }
            }
            means.clear();
            means.extend(due.iter().map(|at| self.mean_beside(*at)));
            for (at, mean) in due.iter().zip(&means) {
                self.values[*at] = *mean;
            }
            filled = due;
        }
    }

    /// Mean of the values beside a cell that has some, lower before upper and axis by axis.
    fn mean_beside(&self, at: usize) -> f32 {
        let (mut sum, mut count) = (0.0, 0.0);
        for stride in &self.strides {
            for near in [at - stride, at + stride] {
                let value = self.values[near];
                let (value, one) = if value.is_nan() { (0.0, 0.0) } else { (value, 1.0) };
                sum += value;
                count += one;
            }
        }
        sum / count
    }
}

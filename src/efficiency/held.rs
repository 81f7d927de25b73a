//! Holes of a grid filled from the nearest cells that have a value. Uses nothing else of the crate.

/// Gives each hole (NaN) in `values` the value of the cells nearest in index distance along an axis, spreading outwards
/// until none is left. `lengths` are those of the axes, of which the last varies fastest.
pub(super) fn hold(lengths: &[usize], values: &mut [f32]) {
    let mut framed = Framed::new(lengths);
    let width = lengths.last().copied().unwrap_or(1);
    let mut known = Vec::new();
    for (first, row) in framed.rows(lengths).zip(values.chunks_exact(width)) {
        for (at, value) in (first..).zip(row) {
            if value.is_nan() {
                framed.is_open[at] = true;
            } else {
                framed.cells[at] = [*value, 1.0];
                known.push(at);
            }
        }
    }
    framed.spread(known);
    for (first, row) in framed.rows(lengths).zip(values.chunks_exact_mut(width)) {
        for ([held, _], value) in framed.cells[first..].iter().zip(row) {
            *value = *held;
        }
    }
}

/// Values of a grid within a frame of holes that stay holes, so that each cell has its neighbours at the same distances.
struct Framed {
    /// Value and 1, or zeros for a hole.
    cells: Vec<[f32; 2]>,
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
        let count = lengths.iter().map(|length| length + 2).product();
        Framed { cells: vec![[0.0; 2]; count], is_open: vec![false; count], strides }
    }

    /// First cell of each row along the last axis.
    fn rows(&self, lengths: &[usize]) -> impl Iterator<Item = usize> + use<> {
        let strides = self.strides.clone();
        let rows = lengths.split_last().map_or(&[][..], |(_, others)| others).to_vec();
        let mut index = vec![0; rows.len()];
        let mut at = strides.iter().sum();
        (0..rows.iter().product()).map(move |_| {
            let row = at;
            for axis in (0..rows.len()).rev() {
                index[axis] += 1;
                at += strides[axis];
                if index[axis] < rows[axis] {
                    break;
                }
                at -= rows[axis] * strides[axis];
                index[axis] = 0;
            }
            row
        })
    }

    /// Each round fills the holes beside the cells that the one before it filled; the first, those beside `known` ones.
    fn spread(&mut self, known: Vec<usize>) {
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
                self.cells[*at] = [*mean, 1.0];
            }
            filled = due;
        }
    }

    /// Mean of the values beside a cell that has some, lower before upper and axis by axis.
    fn mean_beside(&self, at: usize) -> f32 {
        let (mut sum, mut count) = (0.0, 0.0);
        for stride in &self.strides {
            for near in [at - stride, at + stride] {
                let [value, one] = self.cells[near];
                sum += value;
                count += one;
            }
        }
        sum / count
    }
}

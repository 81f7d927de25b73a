//! Cells of a grid that no measurement covers, filled from the nearest cells that have a value.
#![expect(clippy::indexing_slicing, reason = "cells and axes are counted from the grid's own shape")]

use super::grid::Grid;
use super::provenance::Provenance;

impl Grid {
    /// Gives each hole the mean of the neighbouring cells that have a value, spreading outwards round by round until none is
    /// left. A grid of holes only becomes all zero: the bare kernel model.
    pub fn fill_gaps(&mut self) {
        let holes: Vec<usize> = (0..self.num_cells()).filter(|cell| self.get(*cell).is_none()).collect();
        if holes.len() == self.num_cells() {
            holes.iter().for_each(|cell| self.set(*cell, 0.0, Provenance::Clamped));
            return;
        }
        let mut is_open = vec![false; self.num_cells()];
        holes.iter().for_each(|cell| is_open[*cell] = true);
        let mut round: Vec<usize> = holes.into_iter().filter(|cell| !self.mean_beside(*cell).is_nan()).collect();
        round.iter().for_each(|cell| is_open[*cell] = false);
        while !round.is_empty() {
            let means: Vec<f32> = round.iter().map(|cell| self.mean_beside(*cell)).collect();
            for (cell, mean) in round.iter().zip(means) {
                self.set(*cell, f64::from(mean), Provenance::Clamped);
            }
            let mut next = Vec::new();
            for cell in round {
                next.extend(self.neighbours(cell).filter(|near| std::mem::take(&mut is_open[*near])));
            }
            round = next;
        }
    }

    /// Cells next to one along each axis, lower before upper.
    fn neighbours(&self, cell: usize) -> impl Iterator<Item = usize> + use<'_> {
        let index = self.index(cell);
        let steps = (0..self.axes.len()).flat_map(|axis| [(axis, -1), (axis, 1)]);
        steps.filter_map(move |(axis, step)| self.neighbour(cell, &index, axis, step))
    }

    /// Mean of the known neighbours of a cell; NaN if there are none.
    fn mean_beside(&self, cell: usize) -> f32 {
        let known = self.neighbours(cell).map(|near| self.values[near]).filter(|value| !value.is_nan());
        let (sum, count) = known.fold((0.0, 0.0), |(sum, count), value| (sum + value, count + 1.0));
        sum / count
    }
}

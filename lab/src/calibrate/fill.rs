//! Estimates a grid cell from its neighbours. Every pair of measured cells on opposite sides of it along an axis gives an
//! interpolation; the estimate is their weighted median, which one glitch along one axis does not spoil.
#![expect(clippy::indexing_slicing, reason = "cells and axes are counted from the grid's own shape")]

use ridgepoint::unstable::efficiency::grid::{Grid, MAX_AXES};

/// Measured cells used on each side of a cell, per axis.
const DEPTH: usize = 2;
/// Weight of a one-sided neighbour relative to an interpolating pair.
const ONE_SIDED: f64 = 0.3;

/// Returns the estimate of the cell at `offset` from other cells, and whether at least one pair encloses it; `None` if no
/// measured cell shares a line with it.
pub fn estimate(grid: &Grid, offset: usize) -> Option<(f64, bool)> {
    let index = grid.index(offset);
    let mut candidates: Vec<(f64, f64)> = Vec::with_capacity(32);
    let mut enclosed = false;
    for axis in 0..grid.axes.len() {
        let below = measured_towards(grid, offset, &index, axis, -1);
        let above = measured_towards(grid, offset, &index, axis, 1);
        let logs = &grid.log_axes[axis];
        let x = logs[index[axis]];
        for (i, (low, low_value)) in below.iter().enumerate() {
            for (j, (high, high_value)) in above.iter().enumerate() {
                let weight = (x - logs[*low]) / (logs[*high] - logs[*low]);
                candidates.push((low_value * (1.0 - weight) + high_value * weight, 1.0 / (1.0 + (i + j) as f64)));
                enclosed = true;
            }
        }
        if below.is_empty() || above.is_empty() {
            for (i, (_, value)) in below.iter().chain(&above).enumerate() {
                candidates.push((*value, ONE_SIDED / (1.0 + i as f64)));
            }
        }
    }
    if candidates.is_empty() { None } else { Some((weighted_median(&mut candidates), enclosed)) }
}

fn measured_towards(
    grid: &Grid,
    offset: usize,
    index: &[usize; MAX_AXES],
    axis: usize,
    direction: isize,
) -> Vec<(usize, f64)> {
    let cell = |distance: isize| {
        let near = grid.neighbour(offset, index, axis, direction * distance)?;
        Some((index[axis].wrapping_add_signed(direction * distance), grid.measured(near)))
    };
    let measured = (1..).map_while(cell).filter_map(|(index, value)| Some((index, value?)));
    measured.take(DEPTH).collect()
}

/// The value at half of the summed weight, interpolated between the two candidates around it.
fn weighted_median(candidates: &mut [(f64, f64)]) -> f64 {
    candidates.sort_by(|a, b| a.0.total_cmp(&b.0));
    let half = candidates.iter().map(|c| c.1).sum::<f64>() / 2.0;
    let mut below = 0.0;
    let mut previous: Option<(f64, f64)> = None;
    for (value, weight) in candidates.iter().copied() {
        let centre = below + weight / 2.0;
        if centre >= half {
            return match previous {
                Some((v, c)) if centre > c => v + (value - v) * (half - c) / (centre - c),
                _ => value,
            };
        }
        previous = Some((value, centre));
        below += weight;
    }
    candidates.last().map_or(0.0, |c| c.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ridgepoint::Provenance;

    #[test]
    fn a_glitch_along_one_axis_does_not_move_the_estimate() {
        let axis: Vec<f64> = (0..7).map(|i| f64::from(1 << i)).collect();
        let mut grid = Grid::empty(vec![axis.clone(), axis.clone(), axis]);
        for offset in 0..grid.num_cells() {
            let index = grid.index(offset);
            grid.set(offset, 0.1 * (index[0] + 2 * index[1]) as f64 - 0.2 * index[2] as f64, Provenance::Measured);
        }
        let centre = grid.cell_at(&[8.0, 8.0, 8.0]).expect("a cell");
        let (truth, _) = grid.get(centre).expect("set above");
        grid.set(centre, f64::NAN, Provenance::Clamped);
        grid.set(grid.cell_at(&[4.0, 8.0, 8.0]).expect("a cell"), 5.0, Provenance::Measured);
        let (value, enclosed) = estimate(&grid, centre).expect("has neighbours");
        assert!(enclosed);
        assert!((value - truth).abs() < 1e-6, "{value} {truth}");
    }

    #[test]
    fn without_neighbours_there_is_no_estimate() {
        let mut grid = Grid::empty(vec![vec![1.0, 2.0], vec![1.0, 2.0]]);
        assert!(estimate(&grid, 0).is_none());
        grid.set(1, 0.5, Provenance::Measured);
        assert_eq!(estimate(&grid, 0), Some((0.5, false)));
    }
}

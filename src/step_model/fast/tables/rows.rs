//! Times by a number of rows (tokens, requests): a cell per row for few rows, a cell per kernel tile for more. Uses `correction`,
//! `efficiency`, `physics`.
#![expect(clippy::indexing_slicing, reason = "there is a sum for every group")]
#![expect(clippy::cast_possible_truncation, reason = "a row beyond a table is not found")]

use serde::Serialize;

use crate::correction::Term;
use crate::efficiency::gemm_model::NARROWEST_TILE;
use crate::physics::OperatorGroup;
use crate::units::{larger, real};

/// Up to here every number of rows has its own cell, as padding to captured graphs makes steps of any width.
pub(super) const DENSE_ROWS: u64 = 512;

/// Up to here a cell has the rows of the narrowest tile: times jump at its multiples only.
pub(super) const TILED_ROWS: u64 = 16_384;

/// Rows of a cell beyond.
pub(super) const TILE_ROWS: u64 = NARROWEST_TILE;

/// Rows of a cell beyond, where narrower tiles are never the fastest.
pub(super) const WIDE_ROWS: u64 = 64;

/// Cells of tiles.
const TILED_CELLS: u64 = (TILED_ROWS - DENSE_ROWS) / TILE_ROWS;

/// Operator groups that corrections weigh.
const GROUPS: usize = 7;

/// Whether `rows` is the last number of rows of its cell.
pub(super) fn ends_a_cell(rows: u64) -> bool {
    rows <= DENSE_ROWS || rows_of(position(rows).0).1 == rows
}

/// Times by operator group and their common roofline bound, µs.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct GroupTimes {
    groups_us: [f64; GROUPS],
    bound_us: f64,
}

impl GroupTimes {
    pub(super) fn add(&mut self, group: OperatorGroup, time_us: f64, bound_us: f64) {
        self.groups_us[Term::of_group(group).index()] += time_us;
        self.bound_us += bound_us;
    }

    fn weighed(&self, factors: &[f64; GROUPS]) -> f64 {
        self.groups_us.iter().zip(factors).map(|(time_us, factor)| time_us * factor).sum()
    }
}

/// Times by group at the first and the last row of each cell.
#[derive(Debug, Clone, Default)]
pub(super) struct GroupTable {
    cells: Vec<[GroupTimes; 2]>,
}

impl GroupTable {
    /// `times(rows)` for 1 to at least `limit_rows`.
    pub(super) fn new(limit_rows: u64, mut times: impl FnMut(u64) -> GroupTimes) -> Self {
        let last_cell = position(limit_rows.max(1)).0;
        let cells = (1..=last_cell).map(|cell| {
            let (first, last) = rows_of(cell);
            let at_first = times(first);
            [at_first, if last == first { at_first } else { times(last) }]
        });
        GroupTable { cells: cells.collect() }
    }

    /// The groups' times weighed by `factors` and summed, plus `extra_us(rows)`.
    pub(super) fn folded(&self, factors: &[f64; GROUPS], extra_us: impl Fn(u64) -> f64) -> RowTable {
        let mut cells = vec![Cell::default()];
        cells.extend(self.cells.iter().enumerate().map(|(index, [at_first, at_last])| {
            let (first, last) = rows_of(index + 1);
            let per_row = if last > first { 1.0 / (last - first) as f64 } else { 0.0 };
            let us = at_first.weighed(factors) + extra_us(first);
            Cell {
                us,
                us_per_row: (at_last.weighed(factors) + extra_us(last) - us) * per_row,
                bound_us: at_first.bound_us,
                bound_us_per_row: (at_last.bound_us - at_first.bound_us) * per_row,
            }
        }));
        RowTable { cells }
    }
}

/// A time and its roofline bound, µs.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Timed {
    pub(super) us: f64,
    pub(super) bound_us: f64,
}

impl Timed {
    #[inline(always)]
    pub(super) fn add(&mut self, other: Timed) {
        self.us += other.us;
        self.bound_us += other.bound_us;
    }

    /// The time, or the bound if that is longer.
    #[inline(always)]
    pub(super) fn bounded(&self) -> f64 {
        larger(self.us, self.bound_us)
    }
}

#[derive(Debug, Clone, Copy, Default, Serialize)]
struct Cell {
    us: f64,
    us_per_row: f64,
    bound_us: f64,
    bound_us_per_row: f64,
}

/// Times by number of rows.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(transparent)]
pub(super) struct RowTable {
    cells: Vec<Cell>,
}

impl RowTable {
    /// Whether all times and slopes are finite.
    pub(super) fn is_finite(&self) -> bool {
        let sum = |cell: &Cell| cell.us + cell.us_per_row + cell.bound_us + cell.bound_us_per_row;
        self.cells.iter().all(|cell| sum(cell).is_finite())
    }

    /// True for a table without rows.
    #[inline(always)]
    pub(super) fn is_empty(&self) -> bool {
        self.cells.len() < 2
    }

    /// Time for `rows`: 0 for no rows. Returns `None` beyond the table.
    #[inline(always)]
    pub(super) fn at(&self, rows: u64) -> Option<Timed> {
        let (cell, beyond) = position(rows);
        let cell = self.cells.get(cell)?;
        let beyond = real(beyond);
        Some(Timed { us: cell.us + beyond * cell.us_per_row, bound_us: cell.bound_us + beyond * cell.bound_us_per_row })
    }
}

/// Cell of a number of rows, and rows beyond its first.
#[inline(always)]
fn position(rows: u64) -> (usize, u64) {
    if rows <= DENSE_ROWS {
        (rows as usize, 0)
    } else if rows <= TILED_ROWS {
        let beyond = rows - DENSE_ROWS - 1;
        ((DENSE_ROWS + 1 + beyond / TILE_ROWS) as usize, beyond % TILE_ROWS)
    } else {
        let beyond = rows - TILED_ROWS - 1;
        ((DENSE_ROWS + TILED_CELLS + 1 + beyond / WIDE_ROWS) as usize, beyond % WIDE_ROWS)
    }
}

/// First and last row of a cell.
fn rows_of(cell: usize) -> (u64, u64) {
    let cell = cell as u64;
    if cell <= DENSE_ROWS {
        return (cell, cell);
    }
    let beyond = cell - DENSE_ROWS - 1;
    if beyond < TILED_CELLS {
        let first = DENSE_ROWS + 1 + beyond * TILE_ROWS;
        return (first, first + TILE_ROWS - 1);
    }
    let first = TILED_ROWS + 1 + (beyond - TILED_CELLS) * WIDE_ROWS;
    (first, first + WIDE_ROWS - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_follow_each_other_without_gaps() {
        for rows in (1..1200).chain(16_000..17_000).chain([131_072]) {
            let (cell, beyond) = position(rows);
            let (first, last) = rows_of(cell);
            assert_eq!(first + beyond, rows);
            assert!(last >= rows);
            assert_eq!(position(last + 1), (cell + 1, 0));
        }
        assert_eq!(position(0), (0, 0));
    }

    #[test]
    fn times_are_weighed_by_group_and_straight_within_a_cell() {
        let table = GroupTable::new(600, |rows| {
            let mut times = GroupTimes::default();
            times.add(OperatorGroup::Projections, rows as f64, 1.0);
            times.add(OperatorGroup::SmallKernels, 10.0, 2.0);
            times
        });
        let mut factors = [1.0; GROUPS];
        factors[Term::Projections.index()] = 2.0;
        let folded = table.folded(&factors, |rows| 100.0 * rows as f64);
        for rows in [1u64, 511, 512, 513, 520, 528, 529, 600] {
            let expected = Timed { us: 102.0 * rows as f64 + 10.0, bound_us: 3.0 };
            assert_eq!(folded.at(rows), Some(expected), "{rows}");
        }
        assert_eq!(folded.at(0), Some(Timed::default()));
        assert_eq!(folded.at(700), None);
    }
}

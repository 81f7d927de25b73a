//! Tables over one and two counts, and how they are read between their points. Uses nothing else of the crate.

use serde::Serialize;

/// Times over one count, µs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Line {
    /// Counts, ascending.
    pub at: Vec<f64>,
    /// Time at each, µs.
    pub time_us: Vec<f64>,
    /// Up to this count the time of the next point holds (a captured graph or a tile pads to it), above it lines connect the points.
    pub padded_up_to: f64,
}

/// Times over two counts, µs; lines connect the points in both directions.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Sheet {
    /// Counts of rows, ascending.
    pub rows: Vec<f64>,
    /// Counts of columns, ascending.
    pub columns: Vec<f64>,
    /// Time by row and column, µs.
    pub time_us: Vec<Vec<f64>>,
}

/// The two points around `x` and the way from the first to the second; below the first point it holds, beyond the last the
/// last line goes on.
fn around(at: &[f64], x: f64) -> (usize, usize, f64) {
    let last = at.len().saturating_sub(1);
    let upper = at.partition_point(|point| *point < x).clamp(1.min(last), last);
    let lower = upper.saturating_sub(1);
    match (at.get(lower), at.get(upper)) {
        (Some(a), Some(b)) if b > a => (lower, upper, ((x - a) / (b - a)).max(0.0)),
        _ => (lower, upper, 0.0),
    }
}

fn value(times: &[f64], index: usize) -> f64 {
    times.get(index).copied().unwrap_or(0.0)
}

fn between(times: &[f64], (lower, upper, way): (usize, usize, f64)) -> f64 {
    let (a, b) = (value(times, lower), value(times, upper));
    a + way * (b - a)
}

impl Line {
    /// The time at `x`, µs, never below 0.
    pub fn time_us(&self, x: f64) -> f64 {
        if x <= self.padded_up_to {
            let next = self.at.partition_point(|point| *point < x);
            return value(&self.time_us, next.min(self.at.len().saturating_sub(1)));
        }
        between(&self.time_us, around(&self.at, x)).max(0.0)
    }
}

impl Sheet {
    /// The time at a row's and a column's count, µs, never below 0.
    pub fn time_us(&self, row: f64, column: f64) -> f64 {
        let columns = around(&self.columns, column);
        let (lower, upper, way) = around(&self.rows, row);
        let of = |row: usize| self.time_us.get(row).map_or(0.0, |times| between(times, columns));
        (of(lower) + way * (of(upper) - of(lower))).max(0.0)
    }
}

#[allow(clippy::float_cmp)]
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_padded_line_steps_up_and_then_slopes() {
        let line = Line { at: vec![1.0, 4.0, 8.0, 16.0], time_us: vec![10.0, 20.0, 30.0, 70.0], padded_up_to: 8.0 };
        assert_eq!([0.0, 1.0, 2.0, 4.0, 5.0, 8.0].map(|x| line.time_us(x)), [10.0, 10.0, 20.0, 20.0, 30.0, 30.0]);
        // 5 µs a count above 8, also beyond the last point.
        assert_eq!([10.0, 16.0, 20.0].map(|x| line.time_us(x)), [40.0, 70.0, 90.0]);
        let single = Line { at: vec![1.0], time_us: vec![7.0], padded_up_to: 0.0 };
        assert_eq!([0.5, 3.0].map(|x| single.time_us(x)), [7.0, 7.0]);
    }

    #[test]
    fn a_sheet_is_linear_both_ways() {
        let sheet = Sheet {
            rows: vec![1.0, 3.0],
            columns: vec![0.0, 100.0],
            time_us: vec![vec![10.0, 20.0], vec![30.0, 80.0]],
        };
        assert_eq!(sheet.time_us(2.0, 50.0), (15.0 + 55.0) / 2.0);
        assert_eq!((sheet.time_us(0.0, -5.0), sheet.time_us(3.0, 200.0)), (10.0, 130.0));
    }
}

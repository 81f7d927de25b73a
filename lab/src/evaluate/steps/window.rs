//! Targets: rows in a row, taken together until what was sampled stands for what was not. Uses `case`'s rows.
//!
//! An interval between two sampled steps spans several, of which the first alone is described. As sampling is random, the mean
//! prediction of the sampled steps of a window is an unbiased estimate of the mean prediction of all its steps.

use std::ops::Range;

/// Rows of a window where nothing else is asked for.
pub const USUAL_ROWS: usize = 50;

/// Mean time of a step in a window, and what was predicted for it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    /// `Σ span / Σ steps`, µs.
    pub measured_us: f64,
    /// Mean prediction of the sampled steps, µs.
    pub predicted_us: f64,
    /// Mean lower and upper ends of the 90 % interval, µs, where the prediction has one.
    pub interval_us: Option<(f64, f64)>,
}

/// Cuts `rows` rows into windows of `size`; what is left at the end joins the last one, so that no row is lost and no window
/// is short but a lone one.
///
/// ```
/// use ridgepoint_lab::evaluate::steps::window::windows;
/// assert_eq!(windows(7, 3), [0..3, 3..7]);
/// assert_eq!(windows(2, 3), [0..2]);
/// assert!(windows(0, 3).is_empty());
/// ```
pub fn windows(rows: usize, size: usize) -> Vec<Range<usize>> {
    let size = size.max(1);
    let count = (rows / size).max(usize::from(rows > 0));
    (0..count).map(|index| index * size..if index + 1 == count { rows } else { (index + 1) * size }).collect()
}

/// Mean of some values; 0 of none.
pub(super) fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0u64), |(sum, count), value| (sum + value, count + 1));
    if count > 0 { sum / count as f64 } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_cover_every_row_once() {
        for (rows, size) in [(1, 1), (5, 1), (99, 50), (100, 50), (149, 50), (150, 50), (3, usize::MAX), (4, 0)] {
            let found = windows(rows, size);
            let covered: Vec<usize> = found.iter().cloned().flatten().collect();
            assert_eq!(covered, (0..rows).collect::<Vec<_>>(), "{rows} rows in windows of {size}");
            let least = found.iter().map(|window| window.len()).min();
            assert!(least.is_some_and(|least| least >= size.min(rows)), "{rows} rows in windows of {size}");
        }
        assert_eq!(windows(149, 50).len(), 2);
    }
}

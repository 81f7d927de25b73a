//! Windows: consecutive sampled steps that are judged together.
//!
//! An interval between two sampled steps spans several steps, and only the first is described. As sampling is random, the mean
//! prediction of the sampled steps of a window is an unbiased estimate of the mean prediction of all its steps.

use std::ops::Range;

use crate::ingest::Interval;

/// Usual number of sampled steps in a window.
pub const USUAL_ROWS: usize = 50;

/// Cuts `rows` rows into windows of `size`. The rows left at the end join the last window, so that no window is short but a lone
/// one.
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

/// Mean time of a step in consecutive intervals, µs.
pub fn mean_step_us(rows: &[Interval]) -> f64 {
    // A table may say anything of the steps that it lacks: their sum may exceed 64 bits.
    let (span_us, steps) = rows.iter().fold((0.0, 0.0), |(us, n), row| (us + row.span_us, n + row.steps as f64));
    span_us / f64::max(steps, 1.0)
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

    #[test]
    fn a_mean_step_counts_the_steps_that_were_not_sampled() {
        let interval = |steps, span_us| Interval { first: 0, steps, span_us };
        assert!((mean_step_us(&[interval(1, 30.0), interval(3, 90.0)]) - 30.0).abs() < 1e-9);
        // Together more than 2⁶⁴.
        let many = [interval(u64::MAX, 1e6), interval(u64::MAX, 3e6)];
        assert!((mean_step_us(&many) * u64::MAX as f64 / 2e6 - 1.0).abs() < 1e-12);
        assert!(mean_step_us(&[]).abs() < 1e-9);
    }
}

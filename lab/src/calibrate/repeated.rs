//! Merges rows of the same shape from several sources: the median of their times counts once.

use std::collections::HashMap;

use super::build::CalibrationRow;
use super::report::{RowsLeftOut, leave_out};
use crate::stats::median;

/// Why a row is not kept once its shape was merged.
const REPEATED: &str = "repeated shape: median kept";

/// Merges the rows of each series and point: one row with the median time and the source of the first, in the order of first
/// appearance. The rows beyond the first of their shape are counted as left out.
pub fn merge_repeated(rows: &[CalibrationRow]) -> (Vec<CalibrationRow>, RowsLeftOut) {
    let mut position: HashMap<(String, Vec<u64>), usize> = HashMap::with_capacity(rows.len());
    let mut merged: Vec<(&CalibrationRow, Vec<f64>)> = Vec::with_capacity(rows.len());
    for row in rows {
        let shape = (row.key.to_string(), row.point.iter().map(|value| value.to_bits()).collect());
        let at = *position.entry(shape).or_insert(merged.len());
        match merged.get_mut(at) {
            Some((_, times_us)) => times_us.push(row.time_us),
            None => merged.push((row, vec![row.time_us])),
        }
    }
    let mut left_out = RowsLeftOut::new();
    leave_out(&mut left_out, REPEATED, rows.len() - merged.len());
    let kept = merged.into_iter().map(|(row, times_us)| CalibrationRow {
        key: row.key.clone(),
        point: row.point.clone(),
        time_us: median(times_us).unwrap_or(row.time_us),
        source: row.source.clone(),
    });
    (kept.collect(), left_out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ridgepoint::dtype::MatmulFormat;
    use ridgepoint::unstable::efficiency::family::SeriesKey;

    fn row(key: MatmulFormat, m: f64, time_us: f64, source: &str) -> CalibrationRow {
        CalibrationRow { key: SeriesKey::Gemm(key), point: vec![4096.0, 1024.0, m], time_us, source: source.into() }
    }

    #[test]
    fn a_shape_of_three_sources_keeps_the_median_and_others_stay_as_they_are() {
        let rows = [
            row(MatmulFormat::Fp8, 16.0, 9.0, "a"),
            row(MatmulFormat::Fp8, 32.0, 5.0, "a"),
            row(MatmulFormat::Fp8, 16.0, 4.0, "b"),
            row(MatmulFormat::Bfloat16, 16.0, 100.0, "b"),
            row(MatmulFormat::Fp8, 16.0, 6.0, "c"),
        ];
        let (kept, left_out) = merge_repeated(&rows);
        assert_eq!(left_out[REPEATED], 2);
        let times: Vec<f64> = kept.iter().map(|row| row.time_us).collect();
        assert_eq!(times, [6.0, 5.0, 100.0]);
        assert_eq!(kept[0].source, "a");
    }

    #[test]
    fn of_two_times_the_mean_is_kept_whatever_their_order() {
        let pair = [row(MatmulFormat::Fp8, 16.0, 4.0, "a"), row(MatmulFormat::Fp8, 16.0, 6.0, "b")];
        let turned = [row(MatmulFormat::Fp8, 16.0, 6.0, "b"), row(MatmulFormat::Fp8, 16.0, 4.0, "a")];
        assert_eq!(merge_repeated(&pair).0[0].time_us.to_bits(), 5f64.to_bits());
        assert_eq!(merge_repeated(&turned).0[0].time_us.to_bits(), 5f64.to_bits());
    }
}

//! Leaves out series whose rows are faster than the roofline allows, and refuses rows in another unit.

use std::collections::BTreeMap;

use ridgepoint::unstable::efficiency::kernel_model::Chip;
use ridgepoint::{Error, Hardware, Result};

use super::build::CalibrationRow;
use super::family::CalibratedFamily;
use super::report::{RowsLeftOut, leave_out};

/// Most rows in a hundred of an operator, and of a series then, that may be too fast.
const MAX_TOO_FAST_PCT: usize = 1;

/// Most rows in a hundred of a series of an operator that is not too fast in all.
const MAX_OF_A_SERIES_PCT: usize = 50;

/// How many rows are faster than the roofline allows.
#[derive(Default)]
struct TooFast {
    rows: usize,
    too_fast: usize,
    /// Largest efficiency of a row.
    worst: f64,
}

impl TooFast {
    fn add(&mut self, efficiency: f64, max: f64) {
        self.rows += 1;
        self.too_fast += usize::from(efficiency > max);
        self.worst = self.worst.max(efficiency);
    }

    fn is_more_than(&self, pct: usize) -> bool {
        100 * self.too_fast > pct * self.rows
    }
}

/// Leaves out series that are too fast: their kernel did less than their shapes say, or they are in another unit. A few rows that are too
/// fast are kept, as timings scatter.
///
/// # Errors
/// `ErrorKind::Invalid` if that leaves fewer than a quarter of the rows: they are in another unit, or of another GPU.
pub(super) fn leave_out_too_fast(
    of: &CalibratedFamily,
    rows: Vec<CalibrationRow>,
    hardware: &Hardware,
    left_out: &mut RowsLeftOut,
) -> Result<Vec<CalibrationRow>> {
    let mut total = TooFast::default();
    let mut by_series: BTreeMap<String, TooFast> = BTreeMap::new();
    for row in &rows {
        // A repetition may find operands in L2, at most its size of them.
        let from_memory = (1.0 - hardware.l2_bytes / row.shape().work().bytes).max(0.0);
        let efficiency = from_memory * row.efficiency(&Chip::new(hardware, row.key.compute_dtype())?);
        total.add(efficiency, of.max_efficiency);
        by_series.entry(row.key.to_string()).or_default().add(efficiency, of.max_efficiency);
    }
    let limit_pct = if total.is_more_than(MAX_TOO_FAST_PCT) { MAX_TOO_FAST_PCT } else { MAX_OF_A_SERIES_PCT };
    by_series.retain(|_, series| series.is_more_than(limit_pct));
    let num_left_out: usize = by_series.values().map(|series| series.rows).sum();
    if 4 * (rows.len() - num_left_out) < rows.len() {
        let problem = format!(
            "{} of {} rows are faster than the roofline of {} allows, up to {:.0} times: are these milliseconds? \
             latency_us is in microseconds. Or was another GPU measured?",
            total.too_fast, total.rows, hardware.name, total.worst
        );
        return Err(Error::invalid(of.family.operator, vec![problem]));
    }
    for (name, TooFast { rows, too_fast, worst }) in &by_series {
        let reason = format!(
            "{name}: {too_fast} of {rows} rows are faster than the roofline allows, up to {worst:.1} times, so that \
             the kernel did less than its shape says, or the unit is another"
        );
        leave_out(left_out, &reason, *rows);
    }
    Ok(rows.into_iter().filter(|row| !by_series.contains_key(&row.key.to_string())).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calibrate::families::gemm;
    use ridgepoint::dtype::MatmulFormat;
    use ridgepoint::unstable::efficiency::family::SeriesKey;

    /// A bf16 GEMM of 8192³: 1.1e12 FLOP, 1,112 µs at the 989 TFLOP/s of an H100.
    fn row(key: MatmulFormat, time_us: f64) -> CalibrationRow {
        CalibrationRow { key: SeriesKey::Gemm(key), point: vec![8192.0, 8192.0, 8192.0], time_us, source: "a".into() }
    }

    fn kept(rows: Vec<CalibrationRow>) -> Result<(usize, RowsLeftOut)> {
        let mut left_out = RowsLeftOut::new();
        let hardware = Hardware::find("h100_sxm").expect("a built-in GPU");
        let kept = leave_out_too_fast(&gemm::FAMILY, rows, &hardware, &mut left_out)?;
        Ok((kept.len(), left_out))
    }

    #[test]
    fn a_series_that_is_too_fast_is_left_out_by_name() {
        let mut rows = vec![row(MatmulFormat::Bfloat16, 1_400.0); 6];
        rows.extend(vec![row(MatmulFormat::Fp8, 250.0); 4]);
        let (num_kept, left_out) = kept(rows).expect("most rows are slow enough");
        assert_eq!(num_kept, 6);
        let (reason, rows) = left_out.first_key_value().expect("a reason");
        assert!(reason.starts_with("fp8: 4 of 4 rows") && reason.contains("up to 1.8 times"), "{reason}");
        assert_eq!(*rows, 4);
    }

    #[test]
    fn rows_in_another_unit_are_refused() {
        let error = kept(vec![row(MatmulFormat::Bfloat16, 1.4); 6]).expect_err("milliseconds");
        assert!(error.to_string().contains("6 of 6 rows are faster"), "{error}");
    }

    #[test]
    fn a_small_series_is_judged_by_itself() {
        let mut rows = vec![row(MatmulFormat::Bfloat16, 1_400.0); 2_000];
        rows.extend(vec![row(MatmulFormat::Fp8, 0.7); 15]);
        let (num_kept, left_out) = kept(rows).expect("most rows are slow enough");
        assert_eq!((num_kept, left_out.into_values().sum::<usize>()), (2_000, 15));
    }

    #[test]
    fn one_fast_row_of_two_hundred_is_noise() {
        let mut rows = vec![row(MatmulFormat::Bfloat16, 1_400.0); 199];
        rows.push(row(MatmulFormat::Bfloat16, 800.0));
        assert_eq!(kept(rows).expect("noise").0, 200);
    }
}

//! Rows of request files: lengths and times.
#![expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "floats saturate; readers check ranges")]

use ridgepoint::Result;
use ridgepoint::units::NS_PER_S;

use super::WorkloadRequest;
use super::limits::{MAX_TIME_NS, MAX_TOKENS};
use crate::input::{Row, RowReader};

/// The requests of a file in order of arrival, and notes about requests that were left out.
#[derive(Debug, Default)]
pub(super) struct Rows {
    pub(super) requests: Vec<WorkloadRequest>,
    pub(super) notes: Vec<String>,
    /// Whether the file does not say when they are sent; all arrivals are 0 then.
    pub(super) lacks_arrivals: bool,
}

impl Rows {
    /// Refuses a request that arrives before the one in the row above.
    pub(super) fn check_order(&self, row: &Row<'_>, column: &str, arrival_ns: u64) -> Result<()> {
        let Some(last) = self.requests.last().filter(|last| arrival_ns < last.arrival_ns) else { return Ok(()) };
        let last_s = last.arrival_ns as f64 / NS_PER_S as f64;
        Err(row.bad(column, format!("at least that of the row above, {last_s} s: sort the rows by arrival")))
    }
}

/// Reads all rows with `request`; their times are in the column `arrival` and must not decrease.
pub(super) fn read_all(
    mut reader: RowReader<'_>,
    arrival: &str,
    mut request: impl FnMut(&Row<'_>) -> Result<WorkloadRequest>,
) -> Result<Rows> {
    let mut rows = Rows::default();
    while let Some(row) = reader.next_row()? {
        let request = request(&row)?;
        rows.check_order(&row, arrival, request.arrival_ns)?;
        rows.requests.push(request);
    }
    Ok(rows)
}

/// Reads a number of tokens.
pub(super) fn tokens(row: &Row<'_>, column: &str) -> Result<u32> {
    row.whole(column, 1..=MAX_TOKENS)
}

/// Reads a time that is given in units of `ns_per_unit`, in ns.
pub(super) fn time_ns(row: &Row<'_>, column: &str, ns_per_unit: u64) -> Result<u64> {
    let limit = MAX_TIME_NS / ns_per_unit;
    let expected = format_args!("a number from 0 to {limit}, counted from the start of the load");
    row.read(column, expected, |cell| to_ns(cell, ns_per_unit))
}

/// Converts a time to ns. Whole numbers keep every digit.
fn to_ns(cell: &str, ns_per_unit: u64) -> Option<u64> {
    let time_ns = match cell.parse::<u64>() {
        Ok(whole) => whole.checked_mul(ns_per_unit)?,
        Err(_) => {
            let time = cell.parse::<f64>().ok().filter(|time| *time >= 0.0 && time.is_finite())?;
            (time * ns_per_unit as f64).round() as u64
        }
    };
    (time_ns <= MAX_TIME_NS).then_some(time_ns)
}

#[cfg(test)]
mod tests {
    use ridgepoint::units::{NS_PER_MS, NS_PER_US};

    use super::*;

    #[test]
    fn times_keep_their_digits() {
        let ns = |cell, unit| to_ns(cell, unit).unwrap();
        assert_eq!(ns("0.1", NS_PER_S), 100_000_000);
        assert_eq!(ns("123456.789012345", NS_PER_S), 123_456_789_012_345);
        assert_eq!(ns("999999999999999999", 1), 999_999_999_999_999_999);
        assert_eq!((ns("30500", NS_PER_MS), ns("1.5e3", NS_PER_US)), (30_500_000_000, 1_500_000));
        for cell in ["-1", "-0.5", "NaN", "inf", "", "soon", "1000000001", "1e300", "18446744073709551615"] {
            assert_eq!(to_ns(cell, NS_PER_S), None, "{cell}");
        }
    }
}

//! Azure's traces of LLM inference: csv with a date and two lengths.
//!
//! # Source
//! Patel et al., "Splitwise", ISCA 2024, and Stojkovic et al., "DynamoLLM", HPCA 2025: the AzurePublicDataset files.

use std::io::BufRead;

use super::WorkloadRequest;
use super::limits::MAX_TIME_NS;
use super::rows::{Rows, tokens};
use crate::error::Result;
use crate::input::{Columns, RowReader};
use crate::units::NS_PER_S;

pub(super) const COLUMNS: Columns = Columns::exactly(&["TIMESTAMP", "ContextTokens", "GeneratedTokens"]);

const DATE: &str = "a date and time as in 2023-11-20 09:30:10.1234500, with an offset from UTC or none";

/// Reads a trace. Times count from the first row.
pub(super) fn read(origin: &str, reader: impl BufRead) -> Result<Rows> {
    let mut reader = RowReader::csv(origin, reader, COLUMNS)?;
    let mut rows = Rows::default();
    let mut first = None;
    while let Some(row) = reader.next_row()? {
        let instant_ns = row.read("TIMESTAMP", DATE, instant_ns)?;
        let since_first_ns = instant_ns - *first.get_or_insert(instant_ns);
        let arrival_ns = u64::try_from(since_first_ns).ok().filter(|time_ns| *time_ns <= MAX_TIME_NS);
        let arrival_ns = arrival_ns.ok_or_else(|| {
            row.bad("TIMESTAMP", "a time from that of the first row to 31 years after it: sort the rows")
        })?;
        let (input, output) = (tokens(&row, "ContextTokens")?, tokens(&row, "GeneratedTokens")?);
        rows.push(&row, "TIMESTAMP", WorkloadRequest::new(arrival_ns, input, output))?;
    }
    Ok(rows)
}

/// Parses a date and time into nanoseconds since the beginning of 1970 in UTC.
fn instant_ns(text: &str) -> Option<i128> {
    let (date, time) = text.split_once([' ', 'T'])?;
    let mut parts = date.split('-');
    let (year, month, day) = (digits(parts.next()?, 4)?, digits(parts.next()?, 2)?, digits(parts.next()?, 2)?);
    let (time, offset_s) = match time.find(['Z', '+', '-']) {
        Some(at) => (time.get(..at)?, offset_s(time.get(at..)?)?),
        None => (time, 0),
    };
    let mut parts_of_time = time.split(':');
    let (hour, minute) = (digits(parts_of_time.next()?, 2)?, digits(parts_of_time.next()?, 2)?);
    let (second, fraction) = parts_of_time.next().map(|s| s.split_once('.').unwrap_or((s, "0")))?;
    let second = digits(second, 2)?;
    if parts.next().is_some() || parts_of_time.next().is_some() || !(1..=9).contains(&fraction.len()) {
        return None;
    }
    let fraction_ns = digits(&format!("{fraction:0<9}"), 9)?;
    if !(1..=days_in(year, month)?).contains(&day) || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let seconds = days_since_1970(year, month, day) * 86_400 + hour * 3_600 + minute * 60 + second - offset_s;
    Some(i128::from(seconds) * i128::from(NS_PER_S) + i128::from(fraction_ns))
}

/// Parses a number of exactly `count` digits.
fn digits(text: &str, count: usize) -> Option<i64> {
    let all = text.len() == count && text.bytes().all(|byte| byte.is_ascii_digit());
    all.then(|| text.parse().ok()).flatten()
}

/// Parses an offset such as `Z`, `+00:00` or `-0800` into seconds east of Greenwich.
fn offset_s(text: &str) -> Option<i64> {
    if text == "Z" {
        return Some(0);
    }
    let sign = if text.starts_with('-') { -1 } else { 1 };
    let clock: String = text.get(1..)?.chars().filter(|c| *c != ':').collect();
    let (hours, minutes) = (digits(clock.get(..2)?, 2)?, digits(clock.get(2..)?, 2)?);
    (hours < 24 && minutes < 60).then_some(sign * (hours * 3_600 + minutes * 60))
}

fn days_in(year: i64, month: i64) -> Option<i64> {
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    match month {
        1 | 3 | 5 | 7 | 8 | 10 | 12 => Some(31),
        4 | 6 | 9 | 11 => Some(30),
        2 => Some(if leap { 29 } else { 28 }),
        _ => None,
    }
}

/// Days from 1 January 1970 in the Gregorian calendar. Years begin in March here, so that leap days come last.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let years = if month <= 2 { year - 1 } else { year };
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    years * 365 + years.div_euclid(4) - years.div_euclid(100) + years.div_euclid(400) + day_of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = "TIMESTAMP,ContextTokens,GeneratedTokens\n";

    fn load(rows: &str) -> Result<Rows> {
        read("azure.csv", format!("{HEADER}{rows}").as_bytes())
    }

    #[test]
    fn instants_count_from_1970() {
        assert_eq!(instant_ns("1970-01-01 00:00:00"), Some(0));
        assert_eq!(instant_ns("1970-01-01 01:00:00+01:00"), Some(0));
        // 2000-03-01 is 951,868,800 s, 2024-05-10 is 1,715,299,200 s.
        assert_eq!(instant_ns("2000-02-29 23:59:59.9999999"), Some(951_868_799_999_999_900));
        assert_eq!(instant_ns("2024-05-10T00:00:00.009930+00:00"), Some(1_715_299_200_009_930_000));
        assert_eq!(instant_ns("2024-05-09 16:00:00-0800"), Some(1_715_299_200_000_000_000));
        for bad in [
            "",
            "2023-11-20",
            "2023-02-29 00:00:00",
            "2023-13-01 00:00:00",
            "2023-11-20 24:00:00",
            "2023-11-20 1:00:00",
            "2023-11-20 00:00:00.",
            "2023-11-20 00:00:00.0000000000",
            "20/11/2023 00:00:00",
            "2023-11-20 00:00:00+é1",
        ] {
            assert_eq!(instant_ns(bad), None, "{bad}");
        }
    }

    #[test]
    fn times_count_from_the_first_row_over_midnight() {
        let rows = load("2023-11-20 23:59:59.5000000,370,40\n2023-11-21 00:00:00.2500001,400,110\n").unwrap();
        assert_eq!(rows.requests[0], WorkloadRequest::new(0, 370, 40));
        assert_eq!(rows.requests[1], WorkloadRequest::new(750_000_100, 400, 110));
    }

    #[test]
    fn bad_rows_name_what_is_wrong() {
        let second = "2023-11-20 09:30:10.1234500,370,40\n";
        for (rows, expected) in [
            ("2023-11-20 09:30:10,0,44\n".to_owned(), "row 1: column 'ContextTokens': found 0"),
            ("2023-11-20 09:30:10,4,0\n".to_owned(), "row 1: column 'GeneratedTokens': found 0"),
            (
                "yesterday,4,4\n".to_owned(),
                "row 1: column 'TIMESTAMP': found yesterday, expected a date and time as in",
            ),
            (format!("{second}2023-11-20 09:30:10.1234499,1,1\n"), "row 2: column 'TIMESTAMP': found 2023-11-20"),
            (format!("{second}2093-11-20 09:30:10,1,1\n"), "row 2: column 'TIMESTAMP'"),
        ] {
            let error = load(&rows).map(|_| ()).unwrap_err().to_string();
            assert!(error.starts_with("azure.csv: ") && error.contains(expected), "{error}");
        }
        let error =
            read("azure.csv", "TIMESTAMP,ContextTokens,Model\n".as_bytes()).map(|_| ()).unwrap_err().to_string();
        assert!(
            error.contains("column 'Model' is not known") && error.contains("'GeneratedTokens' is missing"),
            "{error}"
        );
    }
}

//! Azure's traces of LLM inference: csv with a date and two lengths.
//!
//! # Source
//! Patel et al., "Splitwise", ISCA 2024, and Stojkovic et al., "DynamoLLM", HPCA 2025: the AzurePublicDataset files.

use chrono::{DateTime, NaiveDateTime};
use ridgepoint::Result;
use ridgepoint::input::Input;

use super::WorkloadRequest;
use super::limits::MAX_TIME_NS;
use super::list_remarks::ListRemarks;
use super::rows::{Rows, read_all, tokens};
use crate::input::{Columns, RowReader};

pub(super) const COLUMNS: Columns = Columns::exactly("TIMESTAMP,ContextTokens,GeneratedTokens");

pub(super) const DATE: &str = "a date and time as in 2023-11-20 09:30:10.1234500, with an offset from UTC or none";

/// Reads a trace. Times count from the first row.
pub(super) fn read(input: Input<'_>) -> Result<Rows> {
    let (mut first, mut remarks) = (None, ListRemarks::default());
    let mut rows = read_all(RowReader::csv(input, COLUMNS.among_others())?, "TIMESTAMP", |row| {
        remarks.see_others(row)?;
        let instant_ns = row.read("TIMESTAMP", DATE, instant_ns)?;
        let since_first_ns = instant_ns.checked_sub(*first.get_or_insert(instant_ns));
        let arrival_ns = since_first_ns.and_then(|time_ns| u64::try_from(time_ns).ok());
        let arrival_ns = arrival_ns.filter(|time_ns| *time_ns <= MAX_TIME_NS).ok_or_else(|| {
            row.bad("TIMESTAMP", "a time from that of the first row to 31 years after it: sort the rows")
        })?;
        Ok(WorkloadRequest::new(arrival_ns, tokens(row, "ContextTokens")?, tokens(row, "GeneratedTokens")?))
    })?;
    rows.notes.extend(remarks.notes(true));
    Ok(rows)
}

/// Parses a date and time into nanoseconds since the beginning of 1970 in UTC; `None` also for years before 1678 and after 2261.
pub(super) fn instant_ns(text: &str) -> Option<i64> {
    const FORMAT: &str = "%Y-%m-%d %H:%M:%S%.f";
    let text = text.replacen('T', " ", 1);
    let instant = match NaiveDateTime::parse_from_str(&text, FORMAT) {
        Ok(instant) => instant.and_utc(),
        Err(_) => DateTime::parse_from_str(&text, &format!("{FORMAT}%#z")).ok()?.to_utc(),
    };
    instant.timestamp_nanos_opt()
}

#[cfg(test)]
mod tests {
    use ridgepoint::input::FileKind;

    use super::*;

    const HEADER: &str = "TIMESTAMP,ContextTokens,GeneratedTokens\n";

    fn load(rows: &str) -> Result<Rows> {
        read(Input::new(FileKind::Requests, "azure.csv", format!("{HEADER}{rows}").as_bytes())?)
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
            "2023-11-20 00:00:00.",
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
        let input = Input::new(FileKind::Requests, "azure.csv", b"TIMESTAMP,ContextTokens,Model\n".as_slice()).unwrap();
        let error = read(input).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains("'GeneratedTokens' is missing") && !error.contains("Model"), "{error}");
    }

    #[test]
    fn further_columns_are_noted() {
        let text = "TIMESTAMP,NumImages,ContextTokens,GeneratedTokens\n2025-01-01 00:00:00.1,2,1200,64\n";
        let rows = read(Input::new(FileKind::Requests, "azure.csv", text.as_bytes()).unwrap()).unwrap();
        assert_eq!(rows.requests, [WorkloadRequest::new(0, 1200, 64)]);
        assert_eq!(
            rows.notes,
            ["columns that do not shape the load are not read: NumImages; images are not predicted"]
        );
    }
}

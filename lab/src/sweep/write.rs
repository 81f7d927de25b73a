//! Rows as csv, JSON and JSON lines. Uses `row`; the csv crate and serde_json write.

use std::io::{self, Write};

use super::row::{Cell, Row};

/// A header and a line per row; what is not there is an empty cell. Numbers have as many digits as it takes to read the same
/// number back.
///
/// # Errors
/// What `out` says.
pub fn write_csv(out: impl Write, rows: &[Row]) -> io::Result<()> {
    let mut lines = csv::Writer::from_writer(out);
    lines.write_record(Row::COLUMNS)?;
    for row in rows {
        lines.write_record(row.cells().into_iter().map(|cell| match cell {
            Cell::Text(text) => text.unwrap_or_default().to_owned(),
            Cell::Count(count) => count.map(|count| count.to_string()).unwrap_or_default(),
            Cell::Number(number) => number.map(|number| number.to_string()).unwrap_or_default(),
            Cell::Switch(switch) => switch.map(|switch| switch.to_string()).unwrap_or_default(),
        }))?;
    }
    lines.flush()
}

/// A list of objects with the columns as keys; what is not there is null.
///
/// # Errors
/// What `out` says.
pub fn write_json(mut out: impl Write, rows: &[Row]) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut out, rows)?;
    out.write_all(b"\n")?;
    out.flush()
}

/// The same objects, one a line.
///
/// # Errors
/// What `out` says.
pub fn write_jsonl(mut out: impl Write, rows: &[Row]) -> io::Result<()> {
    for row in rows {
        serde_json::to_writer(&mut out, row)?;
        out.write_all(b"\n")?;
    }
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(write: impl Fn(&mut Vec<u8>, &[Row]) -> io::Result<()>) -> String {
        let first = Row { status: "ok".to_owned(), model: "a,\"b\"".to_owned(), gpus: 2, ..Row::default() };
        let second = Row { ttft_p99_ms: Some(0.1), enable_prefix_caching: Some(true), ..first.clone() };
        let mut out = Vec::new();
        write(&mut out, &[first, second]).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn csv_has_a_cell_for_every_column() {
        let text = written(|out, rows| write_csv(out, rows));
        let mut lines = csv::Reader::from_reader(text.as_bytes());
        assert_eq!(lines.headers().unwrap(), Row::COLUMNS);
        let records: Vec<csv::StringRecord> = lines.records().map(|record| record.unwrap()).collect();
        let cell = |row: usize, name: &str| {
            records[row].get(Row::COLUMNS.iter().position(|column| *column == name).unwrap()).unwrap()
        };
        assert_eq!((cell(0, "model"), cell(0, "gpus"), cell(0, "ttft_p99_ms")), ("a,\"b\"", "2", ""));
        assert_eq!((cell(1, "ttft_p99_ms"), cell(1, "enable_prefix_caching")), ("0.1", "true"));
    }

    #[test]
    fn json_and_its_lines_say_the_same() {
        let list: Vec<Row> = serde_json::from_str(&written(|out, rows| write_json(out, rows))).unwrap();
        let text = written(|out, rows| write_jsonl(out, rows));
        let lines: Vec<Row> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!((list.len(), &list), (2, &lines));
        assert!(text.contains("\"ttft_p99_ms\":null"));
    }
}

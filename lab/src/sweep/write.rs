//! Rows as csv, JSON and JSON lines.

use std::io::{self, Write};

use super::row::Row;

/// Writes a header and a line per row; `None` is an empty cell. Numbers have as many digits as it takes to read the same number back.
///
/// # Errors
/// Those of `out`.
pub fn write_csv(out: impl Write, rows: &[Row]) -> io::Result<()> {
    let mut lines = csv::Writer::from_writer(out);
    for row in rows {
        lines.serialize(row).map_err(io::Error::other)?;
    }
    lines.flush()
}

/// Writes a list of objects with the columns as keys; `None` is null.
///
/// # Errors
/// Those of `out`.
pub fn write_json(mut out: impl Write, rows: &[Row]) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut out, rows)?;
    out.write_all(b"\n")?;
    out.flush()
}

/// Writes the same objects, one per line.
///
/// # Errors
/// Those of `out`.
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

    fn rows() -> [Row; 2] {
        let first = Row { status: "ok".to_owned(), model: "a,\"b\"".to_owned(), gpus: 2, ..Row::default() };
        let second =
            Row { ttft_p99_ms: Some(0.1), enable_prefix_caching: Some(true), keeps_up: Some(false), ..first.clone() };
        [first, second]
    }

    #[test]
    fn every_format_reads_back_as_it_was() {
        let mut out = Vec::new();
        write_csv(&mut out, &rows()).unwrap();
        let csv: Vec<Row> = csv::Reader::from_reader(out.as_slice()).deserialize().map(|row| row.unwrap()).collect();
        assert_eq!(csv, rows());
        let (mut list, mut lines) = (Vec::new(), Vec::new());
        write_json(&mut list, &rows()).unwrap();
        write_jsonl(&mut lines, &rows()).unwrap();
        assert_eq!(serde_json::from_slice::<Vec<Row>>(&list).unwrap(), rows());
        let lines = String::from_utf8(lines).unwrap();
        let lines: Vec<Row> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines, rows());
    }
}

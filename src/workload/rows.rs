//! Rows of request files: lines of JSON or csv, cells as lengths and times, errors with row and column. All readers of
//! request files use it. Uses `error`, `limits`, `request`.

use std::borrow::Cow;
use std::cell::Cell;
use std::fmt;
use std::io::{self, BufRead, Read};

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::{Map, Value};

use super::WorkloadRequest;
use super::limits::{MAX_TIME_NS, MAX_TOKENS};
pub(super) use crate::error::cut;
use crate::error::{Error, Result};
use crate::input::csv_error;
use crate::units::NS_PER_S;

/// Longest line, bytes: ten million token ids fit.
const MAX_LINE_BYTES: u64 = 128 << 20;
/// Longest csv row, bytes: a quote that is never closed makes one row of the rest of a file.
const MAX_ROW_BYTES: usize = 1 << 20;

/// What a reader found: its requests in order of arrival, and what it left out.
#[derive(Debug, Default)]
pub(super) struct Rows {
    pub(super) requests: Vec<WorkloadRequest>,
    pub(super) notes: Vec<String>,
}

/// A row for messages.
#[derive(Debug, Clone, Copy)]
pub(super) struct Row<'a> {
    pub(super) origin: &'a str,
    /// From 1; a csv header does not count.
    pub(super) number: usize,
}

impl Row<'_> {
    /// The error of a cell.
    pub(super) fn bad(&self, column: &str, found: &str, expected: impl Into<String>) -> Error {
        Error::bad_row(
            self.origin.to_owned(),
            self.number,
            column,
            if found.is_empty() { "nothing".to_owned() } else { cut(found) },
            expected.into(),
        )
    }

    /// A number of tokens, at least `min`.
    pub(super) fn tokens(&self, column: &str, cell: &str, min: u32) -> Result<u32> {
        let tokens = cell.parse().ok().filter(|tokens| (min..=MAX_TOKENS).contains(tokens));
        tokens.ok_or_else(|| self.bad(column, cell, format!("a whole number of tokens from {min} to {MAX_TOKENS}")))
    }

    /// A time in ns, given in units of `ns_per_unit`; whole numbers keep every digit.
    pub(super) fn time_ns(&self, column: &str, cell: &str, ns_per_unit: u64) -> Result<u64> {
        let time_ns = match cell.parse::<u64>() {
            Ok(whole) => whole.checked_mul(ns_per_unit),
            Err(_) => cell
                .parse::<f64>()
                .ok()
                .filter(|time| *time >= 0.0 && time.is_finite())
                .map(|time| (time * ns_per_unit as f64).round() as u64),
        };
        time_ns.filter(|time_ns| *time_ns <= MAX_TIME_NS).ok_or_else(|| {
            let limit = MAX_TIME_NS / ns_per_unit;
            self.bad(column, cell, format!("a number from 0 to {limit}, counted from the start of the load"))
        })
    }

    /// Checks that the row is not sent before the one above it.
    pub(super) fn in_order(&self, column: &str, found: &str, arrival_ns: u64, rows: &Rows) -> Result<()> {
        match rows.requests.last() {
            Some(last) if arrival_ns < last.arrival_ns => {
                let last_s = last.arrival_ns as f64 / NS_PER_S as f64;
                Err(self.bad(
                    column,
                    found,
                    format!("at least that of the row above, {last_s} s: sort the rows by arrival"),
                ))
            }
            _ => Ok(()),
        }
    }

    /// Keys of a JSON line that the format does not have.
    pub(super) fn check_keys(&self, line: &Map<String, Value>, known: &[&str]) -> Result<()> {
        let unknown: Vec<&str> = line.keys().map(String::as_str).filter(|key| !known.contains(key)).collect();
        if unknown.is_empty() {
            return Ok(());
        }
        Err(Error::parse(
            format!("{}: row {}", self.origin, self.number),
            format!("unknown key '{}': the format has {}", cut(&unknown.join("', '")), known.join(", ")),
        ))
    }
}

/// Calls `each` with every line that is not blank, as a JSON object.
pub(super) fn each_json_line(
    origin: &str,
    mut reader: impl BufRead,
    mut each: impl FnMut(Row<'_>, &Map<String, Value>) -> Result<()>,
) -> Result<()> {
    let mut line = Vec::new();
    for number in 1.. {
        line.clear();
        let read = reader.by_ref().take(MAX_LINE_BYTES).read_until(b'\n', &mut line);
        let length = read.map_err(|error| Error::io(origin, error))?;
        let row = Row { origin, number };
        if length as u64 >= MAX_LINE_BYTES && !line.ends_with(b"\n") {
            return Err(row.bad("line", "more than 128 MiB", "one request per line"));
        }
        if length == 0 {
            break;
        }
        let text = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&line).trim_ascii();
        if text.is_empty() {
            continue;
        }
        let line: Line = serde_json::from_slice(text).map_err(|error| {
            Error::parse(
                format!("{origin}: row {number}"),
                format!("is not a JSON object on a line of its own: {error}"),
            )
        })?;
        if let Some(key) = line.twice {
            return Err(row.bad(&cut(&key), "two values", "one: the key stands there twice"));
        }
        each(row, &line.object)?;
    }
    Ok(())
}

/// An object, and a key that it has twice.
struct Line {
    object: Map<String, Value>,
    twice: Option<String>,
}

impl<'de> Deserialize<'de> for Line {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        struct Keys;
        impl<'de> Visitor<'de> for Keys {
            type Value = Line;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<Line, A::Error> {
                let mut line = Line { object: Map::new(), twice: None };
                while let Some((key, value)) = map.next_entry::<String, Value>()? {
                    if line.object.contains_key(&key) {
                        line.twice.get_or_insert(key);
                    } else {
                        line.object.insert(key, value);
                    }
                }
                Ok(line)
            }
        }
        deserializer.deserialize_map(Keys)
    }
}

/// A JSON value as the text of a cell; null is absent.
pub(super) fn cell<'a>(line: &'a Map<String, Value>, key: &str) -> Option<Cow<'a, str>> {
    match line.get(key)? {
        Value::Null => None,
        Value::String(text) => Some(Cow::Borrowed(text.trim())),
        other => Some(Cow::Owned(other.to_string())),
    }
}

/// A csv reader with the conventions of the project: `#` begins a comment, cells are trimmed.
pub(super) fn csv_reader<R: Read>(reader: R) -> csv::Reader<RowLimit<R>> {
    let limited = RowLimit { reader, row_bytes: Cell::new(0) };
    csv::ReaderBuilder::new().comment(Some(b'#')).trim(csv::Trim::All).from_reader(limited)
}

/// Reads the next row; false where there is none.
pub(super) fn read_row<R: Read>(
    origin: &str,
    reader: &mut csv::Reader<RowLimit<R>>,
    record: &mut csv::StringRecord,
) -> Result<bool> {
    reader.get_ref().row_bytes.set(0);
    reader.read_record(record).map_err(|error| csv_error(origin, error))
}

/// A reader that fails where it is asked for more than a row can have.
pub(super) struct RowLimit<R> {
    reader: R,
    /// Bytes since the row began.
    row_bytes: Cell<usize>,
}

impl<R: Read> Read for RowLimit<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.reader.read(buffer)?;
        let row_bytes = self.row_bytes.get().saturating_add(read);
        self.row_bytes.set(row_bytes);
        if row_bytes > MAX_ROW_BYTES {
            return Err(io::Error::other("a row of more than 1 MiB: is a quote not closed, or is the file no csv?"));
        }
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::{NS_PER_MS, NS_PER_US};

    const ROW: Row<'static> = Row { origin: "requests.csv", number: 7 };

    #[test]
    fn times_keep_their_digits() {
        let ns = |cell, unit| ROW.time_ns("arrival", cell, unit).unwrap();
        assert_eq!(ns("0.1", NS_PER_S), 100_000_000);
        assert_eq!(ns("123456.789012345", NS_PER_S), 123_456_789_012_345);
        assert_eq!(ns("999999999999999999", 1), 999_999_999_999_999_999);
        assert_eq!((ns("30500", NS_PER_MS), ns("1.5e3", NS_PER_US)), (30_500_000_000, 1_500_000));
    }

    #[test]
    fn times_that_can_not_be_name_row_and_column() {
        for cell in ["-1", "-0.5", "NaN", "inf", "", "soon", "1000000001", "1e300", "18446744073709551615"] {
            let error = ROW.time_ns("arrival", cell, NS_PER_S).unwrap_err().to_string();
            assert!(error.starts_with("requests.csv: row 7: column 'arrival': found"), "{error}");
            assert!(error.contains("from 0 to 1000000000"), "{error}");
        }
    }

    #[test]
    fn lengths_are_whole_and_bounded() {
        assert_eq!(ROW.tokens("input_len", "10000000", 1).unwrap(), 10_000_000);
        for cell in ["0", "10000001", "-3", "12.5", "4294967297", "many"] {
            assert!(ROW.tokens("input_len", cell, 1).is_err(), "{cell}");
        }
        assert_eq!(ROW.tokens("prefix_len", "0", 0).unwrap(), 0);
    }

    #[test]
    fn lines_that_are_no_objects_name_their_row() {
        let read = |text: &[u8]| each_json_line("r.jsonl", text, |_, _| Ok(())).unwrap_err().to_string();
        assert!(read(b"{}\n\n[1]\n").starts_with("r.jsonl: row 3: is not a JSON object"));
        assert!(read(b"{\"a\":1} {\"a\":2}\n").starts_with("r.jsonl: row 1: "));
        assert!(read(b"\xff\xfe\n").starts_with("r.jsonl: row 1: "));
        let mut rows = Vec::new();
        let text = "\u{feff}{\"a\":1}\r\n\r\n{\"a\":2}";
        each_json_line("r.jsonl", text.as_bytes(), |row, line| {
            rows.push((row.number, line["a"].as_u64()));
            Ok(())
        })
        .unwrap();
        assert_eq!(rows, [(1, Some(1)), (3, Some(2))]);
    }

    #[test]
    fn a_key_that_stands_there_twice_is_not_one_of_its_values() {
        let text = b"{\"a\":1,\"b\":{\"c\":1,\"c\":2}}\n{\"a\":1,\"b\":2,\"a\":1}\n".as_slice();
        let error = each_json_line("r.jsonl", text, |_, _| Ok(())).unwrap_err().to_string();
        assert_eq!(error, "r.jsonl: row 2: column 'a': found two values, expected one: the key stands there twice");
    }

    #[test]
    fn a_row_does_not_grow_without_end() {
        let endless = || io::Read::chain(b"a,b\n1,\"".as_slice(), io::repeat(b'x'));
        let mut reader = csv_reader(endless());
        let mut record = csv::StringRecord::new();
        let error = read_row("r.csv", &mut reader, &mut record).unwrap_err().to_string();
        assert!(error.starts_with("r.csv: a row of more than 1 MiB"), "{error}");
        // Many rows are no long row.
        let rows = format!("a,b\n{}", "1,2\n".repeat(1 << 19));
        let mut reader = csv_reader(rows.as_bytes());
        let mut count = 0;
        while read_row("r.csv", &mut reader, &mut record).unwrap() {
            count += 1;
        }
        assert_eq!(count, 1 << 19);
    }
}

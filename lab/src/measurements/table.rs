//! A measurement file as named columns, before its rows get their types, and the checks of single cells. Both readers
//! fill it; what the columns mean is decided in `build`. Uses `error`.

use std::collections::HashMap;
use std::fmt::Display;
use std::sync::Arc;

use super::row::SourceFormat;
use ridgepoint::{Error, Result};

/// Text cells, each distinct text stored once.
#[derive(Debug, Default)]
pub(super) struct TextColumn {
    values: Vec<Arc<str>>,
    codes: Vec<u32>,
    code_of: HashMap<Arc<str>, u32>,
}

impl TextColumn {
    pub(super) fn push(&mut self, text: &str) {
        let previous = self.codes.last().copied().filter(|code| &*self.values[*code as usize] == text);
        let code = previous.or_else(|| self.code_of.get(text).copied()).unwrap_or_else(|| {
            let shared: Arc<str> = text.into();
            let code = self.values.len() as u32;
            self.values.push(shared.clone());
            self.code_of.insert(shared, code);
            code
        });
        self.codes.push(code);
    }
}

/// The cells of one column; csv cells are all text.
#[derive(Debug)]
#[cfg_attr(not(feature = "parquet"), allow(dead_code))]
pub(super) enum Cells {
    Text(TextColumn),
    Integer(Vec<i64>),
    Float(Vec<f64>),
}

#[cfg(feature = "parquet")]
impl Cells {
    pub(super) fn len(&self) -> usize {
        match self {
            Cells::Text(text) => text.codes.len(),
            Cells::Integer(values) => values.len(),
            Cells::Float(values) => values.len(),
        }
    }
}

/// A file's columns, all of the same length.
#[derive(Debug)]
pub(super) struct Table {
    /// Path of the file.
    pub(super) origin: String,
    pub(super) format: SourceFormat,
    pub(super) num_rows: usize,
    pub(super) columns: Vec<(String, Cells)>,
    /// Line of each row, where the file has lines.
    pub(super) lines: Vec<u64>,
}

/// A cell that can't be used.
#[derive(Debug)]
pub(super) struct BadCell {
    row: usize,
    column: String,
    found: String,
    expected: String,
}

/// What the check of one cell or row returns.
pub(super) type CellResult<T> = std::result::Result<T, BadCell>;

/// One column of a table.
#[derive(Clone, Copy)]
pub(super) struct Column<'a> {
    name: &'a str,
    cells: &'a Cells,
}

impl Table {
    /// Checks that the file has all the columns of `required`, none but those and `optional`, and at least one row.
    pub(super) fn check_columns(&self, required: &[&str], optional: &[&str]) -> Result<()> {
        let mut problems = Vec::new();
        let known: Vec<&str> = required.iter().chain(optional).copied().collect();
        let present: Vec<&str> = self.columns.iter().map(|(name, _)| name.as_str()).collect();
        for name in required.iter().filter(|name| !present.contains(name)) {
            problems.push(format!("column '{name}' is missing"));
        }
        for (position, name) in present.iter().enumerate() {
            if present[..position].contains(name) {
                problems.push(format!("column '{name}' stands there twice"));
            } else if !known.contains(name) {
                let near = known.iter().find(|k| strsim::jaro_winkler(k, name) > 0.85 && !present.contains(k));
                let hint = near.map_or(String::new(), |k| format!(" (did you mean '{k}'?)"));
                problems.push(format!("unknown column '{name}'{hint}"));
            }
        }
        if !problems.is_empty() {
            problems.push(format!("the columns are {}", required.join(", ")));
            return Err(Error::parse(self.origin.clone(), problems.join("; ")));
        }
        if self.num_rows == 0 {
            return Err(Error::parse(
                self.origin.clone(),
                "has columns but no rows; remove the file or add a measurement",
            ));
        }
        Ok(())
    }

    /// The column of that name.
    pub(super) fn column(&self, name: &str) -> Option<Column<'_>> {
        self.columns.iter().find(|(n, _)| n == name).map(|(name, cells)| Column { name, cells })
    }

    /// The column of that name, an error where the file lacks it.
    pub(super) fn required(&self, name: &str) -> Result<Column<'_>> {
        self.column(name).ok_or_else(|| Error::parse(self.origin.clone(), format!("column '{name}' is missing")))
    }

    /// Builds every row; the error names the first bad cell and says in how many other rows there is one.
    pub(super) fn rows<T>(&self, mut build: impl FnMut(usize) -> CellResult<T>) -> Result<Vec<T>> {
        let mut rows = Vec::with_capacity(self.num_rows);
        let mut first = None;
        let mut further = 0_usize;
        for row in 0..self.num_rows {
            match build(row) {
                Ok(value) => rows.push(value),
                Err(bad) if first.is_none() => first = Some(bad),
                Err(_) => further += 1,
            }
        }
        match first {
            None => Ok(rows),
            Some(mut bad) => {
                if further > 0 {
                    bad.expected = format!("{} ({further} further rows of the file are bad too)", bad.expected);
                }
                Err(self.bad_row(bad))
            }
        }
    }

    /// The error for a bad cell, with the file and the line.
    pub(super) fn bad_row(&self, bad: BadCell) -> Error {
        let line = self.lines.get(bad.row).map_or(String::new(), |line| format!(" on line {line}"));
        Error::bad_row(self.origin.clone(), bad.row + 1, bad.column, format!("{}{line}", bad.found), bad.expected)
    }
}

impl BadCell {
    /// `row` counts from 0.
    pub(super) fn new(row: usize, column: &str, found: impl Display, expected: &str) -> Self {
        BadCell { row, column: column.into(), found: found.to_string(), expected: expected.into() }
    }
}

impl<'a> Column<'a> {
    /// A bad cell of this column, with what stands there.
    pub(super) fn bad(&self, row: usize, expected: &str) -> BadCell {
        let found = match self.cells {
            Cells::Text(text) => format!("'{}'", text.values[text.codes[row] as usize]),
            Cells::Integer(values) => values[row].to_string(),
            Cells::Float(values) => values[row].to_string(),
        };
        BadCell::new(row, self.name, found, expected)
    }

    /// The text of a cell, shared with the cells that hold the same.
    pub(super) fn text(&self, row: usize) -> CellResult<&'a Arc<str>> {
        match self.cells {
            Cells::Text(text) => Ok(&text.values[text.codes[row] as usize]),
            _ => Err(self.bad(row, "text")),
        }
    }

    /// A cell with one of a set of names.
    pub(super) fn named<T>(&self, row: usize, from_name: impl Fn(&str) -> Option<T>, expected: &str) -> CellResult<T> {
        from_name(self.text(row)?).ok_or_else(|| self.bad(row, expected))
    }

    /// A whole number, 0 included.
    pub(super) fn count(&self, row: usize) -> CellResult<u64> {
        let value = match self.cells {
            Cells::Text(text) => text.values[text.codes[row] as usize].parse().ok(),
            Cells::Integer(values) => u64::try_from(values[row]).ok(),
            Cells::Float(_) => None,
        };
        value.filter(|v| *v <= MAX_COUNT).ok_or_else(|| self.bad(row, "a whole number from 0 to 2^53"))
    }

    /// A whole number of at least 1.
    pub(super) fn size(&self, row: usize) -> CellResult<u64> {
        match self.count(row) {
            Ok(value) if value >= 1 => Ok(value),
            _ => Err(self.bad(row, "a whole number from 1 to 2^53")),
        }
    }

    /// A finite number above 0.
    pub(super) fn positive(&self, row: usize) -> CellResult<f64> {
        let value = match self.cells {
            Cells::Text(text) => text.values[text.codes[row] as usize].parse().ok(),
            Cells::Integer(values) => Some(values[row] as f64),
            Cells::Float(values) => Some(values[row]),
        };
        value.filter(|v: &f64| v.is_finite() && *v > 0.0).ok_or_else(|| self.bad(row, "a finite number above 0"))
    }
}

/// Larger counts are no longer exact as `f64`.
const MAX_COUNT: u64 = 1 << 53;

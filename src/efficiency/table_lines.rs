//! Reading the lines of a table file: which are whose, and the series that they make. Uses `table`, `family`, `grid`,
//! `kernel_model`, `error`.

use std::ops::Range;

use memchr::memchr_iter;

use super::family::{Family, Key};
use super::grid::{Grid, MAX_AXES, Origin};
use super::kernel_model::Chip;
use super::table::{Header, Series, SeriesHeader, columns};
use crate::error::{Error, Result};

/// Furthest that a measurement may be from the kernel model, as a log ratio (a factor of 22 000): beyond it the line or
/// the coefficients are damaged, and times between and beyond the knots would overflow.
const MAX_RESIDUAL: f64 = 10.0;

/// More cells than any series spans: coordinates of damaged lines are all different.
const MOST_CELLS: usize = 1 << 22;

/// Where the lines of each series stand in the text of a table file.
#[derive(Debug, Clone)]
pub(super) struct Lines {
    runs: Vec<Run>,
}

/// Lines of one series that follow each other.
#[derive(Debug, Clone)]
struct Run {
    id: usize,
    first_row: usize,
    bytes: Range<usize>,
}

impl Lines {
    /// The lines of the series with this id and their rows, from 1 on; each without the id and the comma behind it.
    fn of<'a>(&'a self, id: usize, text: &'a str) -> impl Iterator<Item = (usize, &'a str)> {
        let runs = self.runs.iter().filter(move |run| run.id == id);
        let numbered = move |run: &'a Run| {
            let lines = text.get(run.bytes.clone()).unwrap_or("").lines().enumerate();
            lines.map(|(beyond, line)| (run.first_row + beyond, split_at_comma(line).1))
        };
        runs.flat_map(numbered)
    }
}

/// Every line belongs to a series of the header, and their columns are the operator's: a file cut off within its header
/// has neither.
pub(super) fn lines_by_series<F: Family>(origin: &str, text: &str, header: &Header) -> Result<Lines> {
    let is_comment = |line: &&str| line.starts_with('#');
    let above: usize = text.split_inclusive('\n').take_while(is_comment).map(str::len).sum();
    let (columns, found) = (columns::<F>(), text.get(above..).and_then(|below| below.lines().next()).unwrap_or(""));
    if found != columns {
        let message = format!("'{found}' stands below the table header, expected '{columns}'");
        return Err(Error::parse(origin, message));
    }
    let known: Vec<(String, usize)> = header.series.values().map(|series| (series.id.to_string(), series.id)).collect();
    let mut runs: Vec<Run> = Vec::new();
    let below = text.get(above..).unwrap_or("");
    let ends = memchr_iter(b'\n', below.as_bytes()).map(|newline| above + newline + 1);
    let is_cut = !below.ends_with('\n');
    let (mut id, mut at) = ("", above);
    for (row, end) in ends.chain(is_cut.then_some(text.len())).enumerate() {
        let start = std::mem::replace(&mut at, end);
        let Some(line) = text.get(start..end).filter(|_| row > 0) else { continue };
        let is_next = line.strip_prefix(id).is_some_and(|rest| rest.starts_with(','));
        if let (true, Some(run)) = (is_next, runs.last_mut()) {
            run.bytes.end = at;
            continue;
        }
        id = line.lines().next().and_then(|line| line.split(',').next()).unwrap_or("");
        let Some((_, number)) = known.iter().find(|(name, _)| name == id) else {
            let known: Vec<&str> = known.iter().map(|(name, _)| name.as_str()).collect();
            return Err(bad(origin, row, "series", id, &format!("an id of the header: {}", known.join(", "))));
        };
        runs.push(Run { id: *number, first_row: row, bytes: start..at });
    }
    if is_cut {
        let message = "the last line has no end: the file is cut off, perhaps within a number; copy or write it again";
        return Err(Error::parse(origin, message));
    }
    Ok(Lines { runs })
}

fn bad(origin: &str, row: usize, column: &str, found: &str, expected: &str) -> Error {
    Error::bad_row(origin, row, column, if found.is_empty() { "nothing" } else { found }.to_owned(), expected)
}

/// Reads one series of a table file.
///
/// # Errors
/// `ErrorKind::BadRow` for a line that can't be, `ErrorKind::Parse` where lines or coefficients are missing.
pub fn parse_series<F: Family>(
    origin: &str,
    text: &str,
    header: &Header,
    key: &F::Key,
    chip: &Chip,
) -> Result<Option<Series<F>>> {
    let lines = lines_by_series::<F>(origin, text, header)?;
    SeriesText { origin, text, header, lines: &lines }.series(key, chip, None)
}

/// A table file whose header has told which lines are whose.
pub(super) struct SeriesText<'a> {
    pub origin: &'a str,
    pub text: &'a str,
    pub header: &'a Header,
    pub lines: &'a Lines,
}

/// A line before its values are read.
struct Line<'a> {
    row: usize,
    /// Coordinates on all axes but the last, and room for that one.
    point: [f64; MAX_AXES],
    values: &'a str,
}

impl SeriesText<'_> {
    /// The series of `key`. With the coordinates on the first axes that it is wanted `near`, only the lines around them are
    /// read where these have no holes: holes take their values from lines further off.
    ///
    /// # Errors
    /// As [`parse_series`], for the lines that are read.
    pub(super) fn series<F: Family>(
        &self,
        key: &F::Key,
        chip: &Chip,
        near: Option<&[f64]>,
    ) -> Result<Option<Series<F>>> {
        let name = key.name();
        let Some(about) = self.header.series.get(&name) else { return Ok(None) };
        let coefficients = coefficients_of::<F>(self.origin, self.header, key)?;
        let lines = self.lines::<F>(about)?;
        let leading = F::AXES.len() - 1;
        let mut axes: Vec<Vec<f64>> = (0..leading).map(|axis| sorted(lines.iter().map(|l| l.point[axis]))).collect();
        axes.push(about.knots.clone());
        if axes.iter().fold(1, |cells: usize, axis| cells.saturating_mul(axis.len())) > MOST_CELLS {
            return Err(Error::parse(
                self.origin.to_owned(),
                format!("series '{name}' spans a grid of more than four million cells"),
            ));
        }
        let mut series = Series { key: key.clone(), coefficients, grid: Grid::empty(Vec::new()) };
        if let Some(near) = near {
            let around = axes.iter().enumerate().map(|(axis, knots)| match near.get(axis) {
                Some(value) => knots_around(knots, *value).to_vec(),
                None => knots.clone(),
            });
            series.grid = Grid::empty(around.collect());
            self.fill(&mut series, &lines, chip)?;
            if !series.grid.has_holes() && lines.len() == about.lines {
                return Ok(Some(series));
            }
        }
        series.grid = Grid::empty(axes);
        self.fill(&mut series, &lines, chip)?;
        if lines.len() != about.lines || lines.is_empty() {
            let (found, said) = (lines.len(), about.lines);
            let message = format!(
                "series '{name}' has {found} lines, its header says {said}; as many must be there, and one at least"
            );
            return Err(Error::parse(self.origin.to_owned(), message));
        }
        series.grid.hold_edges();
        Ok(Some(series))
    }

    fn lines<F: Family>(&self, about: &SeriesHeader) -> Result<Vec<Line<'_>>> {
        let mut lines = Vec::with_capacity(about.lines.min(self.text.len()));
        for (row, rest) in self.lines.of(about.id, self.text) {
            let mut line = Line { row, point: [0.0; MAX_AXES], values: rest };
            for (axis, coordinate) in F::AXES[..F::AXES.len() - 1].iter().zip(&mut line.point) {
                let (field, values) = split_at_comma(line.values);
                let value = decimal(field).filter(|v| v.is_finite() && *v > 0.0);
                *coordinate = value.ok_or_else(|| bad(self.origin, row, axis, field, "a positive number"))?;
                line.values = values;
            }
            lines.push(line);
        }
        Ok(lines)
    }

    /// Reads the values of the lines that lie on the grid of `series`.
    fn fill<F: Family>(&self, series: &mut Series<F>, lines: &[Line<'_>], chip: &Chip) -> Result<()> {
        let Series { key, coefficients, grid } = series;
        let last = F::AXES.len() - 1;
        let knots = grid.axes()[last].clone();
        for Line { row, point, values } in lines {
            let Some(first) = grid.row_at(&point[..last]) else { continue };
            let bad_value = |found: &str, expected: &str| bad(self.origin, *row, "efficiency_pct", found, expected);
            if (first..first + knots.len()).any(|cell| grid.get(cell).is_some()) {
                let found = format!("{:?} again", &point[..last]);
                return Err(bad(self.origin, *row, F::AXES[0], &found, "one line per point"));
            }
            let mut fields = values.split_ascii_whitespace();
            let mut point = *point;
            for (cell, (knot, field)) in (first..).zip(knots.iter().zip(&mut fields)) {
                if field == "-" {
                    continue;
                }
                let (digits, origin) =
                    field.strip_prefix('~').map_or((field, Origin::Measured), |digits| (digits, Origin::Filled));
                let percent = decimal(digits).filter(|v| *v > 0.0 && *v <= 100.0);
                let percent = percent.ok_or_else(|| bad_value(field, "a number in (0, 100] or -"))?;
                point[last] = *knot;
                let shape = F::shape(key, &point[..=last]);
                let time_us = F::bound_us(&shape, chip) / (percent / 100.0);
                let residual = (time_us / F::time_us(coefficients, &shape, chip)).ln();
                if !residual.is_finite() || residual.abs() > MAX_RESIDUAL {
                    let expected = "an efficiency within a factor of 20000 of what the header's coefficients give";
                    return Err(bad_value(field, expected));
                }
                grid.set(cell, residual, origin);
            }
            if values.trim_ascii().is_empty() || fields.next().is_some() {
                let count = values.split_ascii_whitespace().count();
                let expected = format!("1 to {}, as many as the series has knots", knots.len());
                return Err(bad_value(&format!("{count} values"), &expected));
            }
        }
        Ok(())
    }
}

/// The coefficients of a series' group, in the kernel model's order.
pub fn coefficients_of<F: Family>(origin: &str, header: &Header, key: &F::Key) -> Result<Vec<f64>> {
    let group = key.group();
    F::COEFFICIENTS
        .iter()
        .map(|(name, _)| {
            let value = header.coefficients.get(&group).and_then(|g| g.get(*name)).copied();
            value.filter(|v| v.is_finite() && *v > 0.0).ok_or_else(|| {
                Error::parse(origin, format!("table header: coefficients.\"{group}\".{name} must be a positive number"))
            })
        })
        .collect()
}

/// What is before the first comma and behind it. By bytes: fields are shorter than what a search for characters sets up.
fn split_at_comma(text: &str) -> (&str, &str) {
    let comma = text.bytes().position(|byte| byte == b',').unwrap_or(text.len());
    (&text[..comma], text.get(comma + 1..).unwrap_or(""))
}

/// The knots between which `value` lies: one where it is a knot or beyond the ends.
fn knots_around(knots: &[f64], value: f64) -> &[f64] {
    let Some(last) = knots.len().checked_sub(1) else { return knots };
    let above = knots.partition_point(|knot| *knot < value).min(last);
    let first = if knots[above] > value { above.saturating_sub(1) } else { above };
    &knots[first..=above]
}

/// A number as [`str::parse`] reads it. Few digits and a dot, as tables have them, are read here: both they and the power
/// of ten are exact numbers, so that their quotient has the same bits.
fn decimal(text: &str) -> Option<f64> {
    const TENS: [f64; 16] = [1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15];
    let (mut digits, mut decimals, mut has_dot) = (0u64, 0, false);
    for byte in text.bytes() {
        match byte {
            b'0'..=b'9' => {
                digits = digits.wrapping_mul(10).wrapping_add(u64::from(byte - b'0'));
                decimals += usize::from(has_dot);
            }
            b'.' if !has_dot => has_dot = true,
            _ => return text.parse().ok(),
        }
    }
    let is_short = (2..TENS.len()).contains(&text.len()) || (text.len() == 1 && !has_dot);
    if is_short { Some(digits as f64 / TENS[decimals]) } else { text.parse().ok() }
}

fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.dedup_by(|a, b| (*a - *b).abs() <= 1e-9 * b.abs());
    values
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn short_decimals_are_read_to_the_same_bits() {
        for text in ["7", ".0255", "41.2", "100", "0.1", "5.", "1234567.8901234", "999999999999999", ".00000000000001"]
        {
            assert_eq!(decimal(text).map(f64::to_bits), text.parse().ok().map(f64::to_bits), "{text}");
        }
        for text in ["1e3", "-2", "0.12345678901234567", "184467440737095516170"] {
            assert_eq!(decimal(text), text.parse().ok(), "{text}");
        }
        for text in ["", ".", "1.2.3", "~3", "4x"] {
            assert_eq!(decimal(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn numbers_are_read_as_the_standard_library_reads_them(
            text in prop_oneof![
                4 => "[0-9]{0,12}\\.?[0-9]{0,13}",
                1 => "[0-9]{14,20}|[0-9]{0,2}\\.[0-9]{12,16}|0{0,20}\\.?0{0,20}[0-9]{0,3}",
                1 => "[-+]?[0-9]{0,3}\\.?[0-9]{0,3}([eE][-+]?[0-9]{0,3})?|inf|nan|[-+0-9.eE_ ,x\u{ff11}]{0,6}",
            ],
        ) {
            prop_assert_eq!(decimal(&text).map(f64::to_bits), text.parse().ok().map(f64::to_bits), "{}", text);
        }
    }

    #[test]
    fn knots_around_a_value_are_those_that_interpolation_needs() {
        let knots = [1.0, 2.0, 4.0, 8.0];
        assert_eq!(knots_around(&knots, 2.0), [2.0]);
        assert_eq!(knots_around(&knots, 3.0), [2.0, 4.0]);
        assert_eq!(knots_around(&knots, 0.5), [1.0]);
        assert_eq!(knots_around(&knots, 9.0), [8.0]);
        assert!(knots_around(&[], 9.0).is_empty());
    }
}

//! The table file: one csv per GPU and operator, a header of commented TOML in front. Each line holds the efficiencies of
//! one series along its last axis, in percent of the roofline bound, three digits each; `~` marks one interpolated
//! from its neighbours, `-` one beyond what was measured (left out at a
//! line's end). Reading is strict: unknown header keys, duplicate or missing lines and anything outside (0, 100] are errors.
//! Uses `family`, `grid`, `error`.

use std::collections::BTreeMap;
use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::family::{Family, Key};
use super::grid::{Grid, Origin};
use super::kernel_model::Chip;
use crate::error::{Error, Result};

pub use super::table_text::{SeriesDraft, write_table};

/// What stands above the lines of a table file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Header {
    /// Operator, as in the file's name.
    pub operator: String,
    /// GPU, as in the folder's name.
    pub hardware: String,
    /// Unit of the values.
    pub unit: String,
    /// Command that wrote the file.
    pub command: String,
    /// Kernel-model coefficients by group of series.
    pub coefficients: BTreeMap<String, BTreeMap<String, f64>>,
    /// The series, by name.
    pub series: BTreeMap<String, SeriesHeader>,
}

/// What the header says of one series.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SeriesHeader {
    /// Who measured, with which engine version and kernel.
    pub source: String,
    /// Measured rows used.
    pub rows: usize,
    /// What stands in front of its lines.
    pub id: usize,
    /// Lines of the series in this file.
    pub lines: usize,
    /// Median absolute error of rows left out, percent.
    pub cross_validated_median_ape_pct: f64,
    /// Mean absolute error of rows left out, percent.
    pub cross_validated_mape_pct: f64,
    /// Knots of the last axis, along the values of a line.
    pub knots: Vec<f64>,
}

/// One series, ready to be looked up: the kernel model's coefficients and the residuals that measurements leave.
#[derive(Debug, Clone)]
pub struct Series<F: Family> {
    /// What it was measured for.
    pub key: F::Key,
    /// Kernel-model coefficients, in the order of [`super::kernel_model::KernelModel::COEFFICIENTS`].
    pub coefficients: Vec<f64>,
    /// Log of measured over modelled time.
    pub grid: Grid,
}

/// Furthest that a measurement may be from the kernel model, as a log ratio (a factor of 22 000): beyond it the line or
/// the coefficients are damaged, and times between and beyond the knots would overflow.
const MAX_RESIDUAL: f64 = 10.0;

pub(super) const UNIT: &str = "efficiency: percent of the roofline bound";

/// Reads the header of a table file.
///
/// # Errors
/// As [`parse_table`].
pub fn parse_header<F: Family>(origin: &str, text: &str) -> Result<Header> {
    Ok(parse_table::<F>(origin, text)?.0)
}

/// Splits a table file into its header and the lines of each series.
///
/// # Errors
/// [`Error::Parse`] where the header is not TOML, has unknown or missing keys, or belongs to another operator,
/// [`Error::BadRow`] for a line of no series.
pub fn parse_table<F: Family>(origin: &str, text: &str) -> Result<(Header, Lines)> {
    let commented: String = text
        .lines()
        .take_while(|line| line.starts_with('#'))
        .map(|line| line.trim_start_matches('#').trim_start())
        .flat_map(|line| [line, "\n"])
        .collect();
    let header: Header = toml::from_str(&commented).map_err(|e| {
        let before = e.span().and_then(|span| commented.get(..span.start)).unwrap_or("");
        let line = before.matches('\n').count() + 1;
        Error::Parse { origin: origin.to_owned(), message: format!("table header, line {line}: {}", e.message()) }
    })?;
    if header.operator != F::OPERATOR || header.unit != UNIT {
        return Err(Error::Parse {
            origin: origin.to_owned(),
            message: format!(
                "table header: operator '{}' in '{}', expected '{}' in '{UNIT}'",
                header.operator,
                header.unit,
                F::OPERATOR
            ),
        });
    }
    for (name, series) in &header.series {
        let ascending = series.knots.windows(2).all(|pair| pair[0] < pair[1]);
        let positive = series.knots.iter().all(|k| k.is_finite() && *k > 0.0);
        let id_is_unique = header.series.values().filter(|other| other.id == series.id).count() == 1;
        if !id_is_unique || F::Key::parse(name).is_none() || series.knots.is_empty() || !ascending || !positive {
            return Err(Error::Parse {
                origin: origin.to_owned(),
                message: format!(
                    "table header: series '{name}' needs a known name, an id of its own and ascending positive knots"
                ),
            });
        }
    }
    for (group, coefficients) in &header.coefficients {
        let is_unknown = |name: &&String| F::COEFFICIENTS.iter().all(|(known, _)| known != name);
        if let Some(name) = coefficients.keys().find(is_unknown) {
            let known: Vec<&str> = F::COEFFICIENTS.iter().map(|(name, _)| *name).collect();
            let known = known.join(", ");
            return Err(Error::Parse {
                origin: origin.to_owned(),
                message: format!("table header: unknown coefficients.\"{group}\".{name}; there are {known}"),
            });
        }
    }
    let lines = lines_by_series::<F>(origin, text, &header)?;
    Ok((header, lines))
}

/// Where the lines of each series stand in the text of a table file.
#[derive(Debug, Clone)]
pub struct Lines {
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
            lines.map(|(beyond, line)| (run.first_row + beyond, line.split_once(',').map_or("", |(_, rest)| rest)))
        };
        runs.flat_map(numbered)
    }
}

/// Every line belongs to a series of the header, and their columns are the operator's: a file cut off within its header
/// has neither.
fn lines_by_series<F: Family>(origin: &str, text: &str, header: &Header) -> Result<Lines> {
    let is_comment = |line: &&str| line.starts_with('#');
    let mut at: usize = text.split_inclusive('\n').take_while(is_comment).map(str::len).sum();
    let (columns, found) = (columns::<F>(), body(text).next().unwrap_or(""));
    if found != columns {
        let message = format!("'{found}' stands below the table header, expected '{columns}'");
        return Err(Error::Parse { origin: origin.to_owned(), message });
    }
    let known: Vec<(String, usize)> = header.series.values().map(|series| (series.id.to_string(), series.id)).collect();
    let mut runs: Vec<Run> = Vec::new();
    let mut id = "";
    for (row, line) in text.get(at..).unwrap_or("").split_inclusive('\n').enumerate() {
        let start = at;
        at += line.len();
        if row == 0 {
            continue;
        }
        let is_next = line.strip_prefix(id).is_some_and(|rest| rest.starts_with(','));
        if let (true, Some(run)) = (is_next, runs.last_mut()) {
            run.bytes.end = at;
            continue;
        }
        id = line.lines().next().and_then(|line| line.split(',').next()).unwrap_or("");
        let Some((_, number)) = known.iter().find(|(name, _)| name == id) else {
            let known: Vec<&str> = known.iter().map(|(name, _)| name.as_str()).collect();
            return Err(Error::BadRow {
                origin: origin.to_owned(),
                row,
                column: "series".to_owned(),
                found: id.to_owned(),
                expected: format!("an id of the header: {}", known.join(", ")),
            });
        };
        runs.push(Run { id: *number, first_row: row, bytes: start..at });
    }
    Ok(Lines { runs })
}

pub(super) fn columns<F: Family>() -> String {
    format!("series,{},efficiency_pct", F::AXES[..F::AXES.len() - 1].join(","))
}

/// Reads one series of a table file.
///
/// # Errors
/// [`Error::BadRow`] for a line that can't be, [`Error::Parse`] where lines or coefficients are missing.
pub fn parse_series<F: Family>(
    origin: &str,
    text: &str,
    header: &Header,
    key: &F::Key,
    chip: &Chip,
) -> Result<Option<Series<F>>> {
    let lines = lines_by_series::<F>(origin, text, header)?;
    parse_series_lines(origin, text, (header, &lines), key, chip)
}

/// [`parse_series`] where [`parse_table`] has told which lines are whose.
///
/// # Errors
/// As [`parse_series`].
pub fn parse_series_lines<F: Family>(
    origin: &str,
    text: &str,
    (header, lines_of): (&Header, &Lines),
    key: &F::Key,
    chip: &Chip,
) -> Result<Option<Series<F>>> {
    let name = key.name();
    let Some(about) = header.series.get(&name) else { return Ok(None) };
    let coefficients = coefficients_of::<F>(origin, header, key)?;
    let leading = F::AXES.len() - 1;
    let bad = |row: usize, column: &str, found: &str, expected: &str| Error::BadRow {
        origin: origin.to_owned(),
        row,
        column: column.to_owned(),
        found: found.to_owned(),
        expected: expected.to_owned(),
    };

    let mut lines: Vec<(usize, Vec<f64>, &str)> = Vec::with_capacity(about.lines.min(text.len()));
    for (row, rest) in lines_of.of(about.id, text) {
        let mut fields = rest.splitn(leading + 1, ',');
        let mut point = Vec::with_capacity(F::AXES.len());
        for axis in &F::AXES[..leading] {
            let field = fields.next().unwrap_or("");
            let value = field.parse::<f64>().ok().filter(|v| v.is_finite() && *v > 0.0);
            point.push(value.ok_or_else(|| bad(row, axis, field, "a positive number"))?);
        }
        lines.push((row, point, fields.next().unwrap_or("")));
    }
    let found = lines.len();

    let mut axes: Vec<Vec<f64>> = (0..leading).map(|axis| sorted(lines.iter().map(|l| l.1[axis]))).collect();
    axes.push(about.knots.clone());
    if axes.iter().map(Vec::len).product::<usize>() > 1 << 22 {
        return Err(Error::Parse {
            origin: origin.to_owned(),
            message: format!("series '{name}' spans a grid of more than four million cells"),
        });
    }
    let mut grid = Grid::empty(axes);
    for (row, mut point, values) in lines {
        let mut index: Vec<usize> = point.iter().enumerate().filter_map(|(axis, v)| grid.knot(axis, *v)).collect();
        index.push(0);
        let first = grid.offset(&index);
        if (0..about.knots.len()).any(|i| grid.get(first + i).is_some()) {
            return Err(bad(row, F::AXES[0], &format!("{point:?} again"), "one line per point"));
        }
        let count = values.split_ascii_whitespace().count();
        if count == 0 || count > about.knots.len() {
            let expected = format!("1 to {}, as many as the series has knots", about.knots.len());
            return Err(bad(row, "efficiency_pct", &format!("{count} values"), &expected));
        }
        point.push(0.0);
        for (i, (field, knot)) in values.split_ascii_whitespace().zip(&about.knots).enumerate() {
            if field == "-" {
                continue;
            }
            let (digits, origin_of_cell) =
                field.strip_prefix('~').map_or((field, Origin::Measured), |digits| (digits, Origin::Filled));
            let percent = digits.parse::<f64>().ok().filter(|v| *v > 0.0 && *v <= 100.0);
            let percent = percent.ok_or_else(|| bad(row, "efficiency_pct", field, "a number in (0, 100] or -"))?;
            point[leading] = *knot;
            let shape = F::shape(key, &point);
            let time_us = F::bound_us(&shape, chip) / (percent / 100.0);
            let residual = (time_us / F::time_us(&coefficients, &shape, chip)).ln();
            if !residual.is_finite() || residual.abs() > MAX_RESIDUAL {
                let expected = "an efficiency within a factor of 20000 of what the header's coefficients give";
                return Err(bad(row, "efficiency_pct", field, expected));
            }
            grid.set(first + i, residual, origin_of_cell);
        }
    }
    if found != about.lines {
        return Err(Error::Parse {
            origin: origin.to_owned(),
            message: format!("series '{name}' has {found} lines, its header says {}", about.lines),
        });
    }
    grid.hold_edges();
    Ok(Some(Series { key: key.clone(), coefficients, grid }))
}

/// The coefficients of a series' group, in the kernel model's order.
pub fn coefficients_of<F: Family>(origin: &str, header: &Header, key: &F::Key) -> Result<Vec<f64>> {
    let group = key.group();
    F::COEFFICIENTS
        .iter()
        .map(|(name, _)| {
            let value = header.coefficients.get(&group).and_then(|g| g.get(*name)).copied();
            value.filter(|v| v.is_finite() && *v > 0.0).ok_or_else(|| Error::Parse {
                origin: origin.to_owned(),
                message: format!("table header: coefficients.\"{group}\".{name} must be a positive number"),
            })
        })
        .collect()
}

fn body(text: &str) -> impl Iterator<Item = &str> {
    text.lines().skip_while(|line| line.starts_with('#'))
}

fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.dedup_by(|a, b| (*a - *b).abs() <= 1e-9 * b.abs());
    values
}

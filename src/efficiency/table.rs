//! A table file: one csv per GPU and operator, below a header of commented TOML. Each line holds the efficiencies of one
//! series along its last axis, in per mille of the roofline bound, three digits each. `~` marks a value filled in from other
//! measurements, `-` one beyond them (left out at a line's end). `=` and a bare `~` stand for a measured and a filled-in value that the
//! neighbouring numbers give, as a lookup between them does. Blanks stand only where values would run together. A line leaves out the series and the coordinates that the line above begins
//! with. Reading is strict: unknown header keys, duplicate or missing lines and anything outside (0, 1000] are errors.
#![expect(clippy::indexing_slicing, reason = "a family has an axis at least, an axis the knots that were read")]

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use crate::error::{Error, Result};

use super::chip::Chip;
use super::family::KernelFamily;
use super::grid::{Grid, MAX_AXES, knots_around};
use super::line_values::{self, FILLED_IN, MEASURED};
use super::packed::PackedTable;
use super::provenance::Provenance;
use super::series::{Header, Series, VALUES, columns};
use super::series_key::{CallShape, SeriesKey};
use super::table_compression::{Value, interpolated};
use super::table_header::{coefficients, parse_header};

/// Furthest that a measurement may be from the kernel model, as a log ratio (a factor of 22 000): beyond it the line or
/// the coefficients are damaged, and times between and beyond the knots would overflow.
const MAX_RESIDUAL: f64 = 10.0;

/// One operator's table of one GPU. The header is read at once, the lines of a series on first use.
pub struct Table {
    family: &'static KernelFamily,
    /// Header of the file.
    pub header: Arc<Header>,
    /// The keys of its series, in the order of the header.
    pub keys: Vec<SeriesKey>,
    /// Path of the file; a built-in one has a name of its own.
    origin: String,
    text: Text,
    /// The lines of the requested series, by id.
    points: Mutex<BTreeMap<usize, Arc<Points>>>,
    series: Mutex<KnownSeries>,
}

/// The source of a table's lines.
enum Text {
    /// In a file that was read, by series.
    Read(String, BTreeMap<usize, Vec<Line>>),
    /// In a built-in table, whose series are unpacked when they are needed. Tests have read all of it, so that parts of a series may be
    /// left unread.
    Packed(&'static PackedTable),
}

/// The series that were read, by name and the requested knots, with the chip of their residuals.
type KnownSeries = BTreeMap<(String, Vec<[usize; 2]>), (Chip, Arc<Series>)>;

/// A line of values.
struct Line {
    /// Number below the columns, from 1 on.
    row: usize,
    /// Place in the text.
    values: Range<usize>,
    /// Coordinates that it leaves out, as it shares them with the line above.
    shared: usize,
}

impl Line {
    /// The line without the id of its series, which a line that shares coordinates with the one above does not have.
    fn without_id(self, family: &KernelFamily, text: &str) -> Line {
        let Range { start, end } = self.values;
        let leading = family.axes.len() - 1;
        let commas = text[start..end].bytes().filter(|byte| *byte == b',').count();
        if (1..leading).contains(&commas) {
            return Line { shared: leading - commas, ..self };
        }
        let id = text[start..end].find(',').map_or(end - start, |comma| comma + 1);
        Line { values: start + id..end, ..self }
    }
}

/// The lines of a series, whose coordinates were read: matrices of one model ask for the same series, and so do models.
struct Points {
    /// The text of a built-in series; `None` for lines of a file.
    unpacked: Option<String>,
    points: Vec<Point>,
    /// Their knots on all axes but the last.
    axes: Vec<Vec<f64>>,
}

/// A line whose coordinates were read.
struct Point {
    row: usize,
    /// Coordinates on all axes but the last.
    at: [f64; MAX_AXES],
    /// Place in the text of the efficiencies along the last axis.
    values: Range<usize>,
}

impl Table {
    /// Reads the header of a table file of `gpu` and finds the lines of each series.
    ///
    /// # Errors
    /// [`ErrorKind::Parse`](crate::ErrorKind) if the header is not TOML, has unknown or missing keys, or belongs to another
    /// operator or GPU, and for a line of no series.
    pub fn parse(family: &'static KernelFamily, gpu: &str, origin: &str, text: String) -> Result<Self> {
        let header = parse_header(family, gpu, origin, &text)?;
        let lines = lines_by_series(family, origin, &text, &header.0)?;
        Ok(Table::new(family, header, origin.to_owned(), Text::Read(text, lines)))
    }

    /// Reads the header of a built-in table.
    ///
    /// # Errors
    /// Those of [`Table::parse`].
    pub fn packed(family: &'static KernelFamily, table: &'static PackedTable) -> Result<Self> {
        let origin = table.path();
        let header = parse_header(family, table.gpu, &origin, &table.text(&table.header)?)?;
        Ok(Table::new(family, header, origin, Text::Packed(table)))
    }

    fn new(
        family: &'static KernelFamily,
        (header, keys): (Header, Vec<SeriesKey>),
        origin: String,
        text: Text,
    ) -> Self {
        let (points, series) = (Mutex::default(), Mutex::default());
        Table { family, header: Arc::new(header), keys, origin, text, points, series }
    }

    /// The series of `key`, measured on `chip`; `None` if the table has no such series. A built-in table is read only at the
    /// knots around the coordinates `around` of its first axes, if no measurement is missing there.
    ///
    /// # Errors
    /// [`ErrorKind::Parse`](crate::ErrorKind) for a line that can't be read, and if lines or coefficients are missing.
    pub fn series(&self, key: &SeriesKey, chip: &Chip, around: &[f64]) -> Result<Option<Arc<Series>>> {
        let name = key.to_string();
        let Some(about) = self.header.series.get(&name) else { return Ok(None) };
        let all = self.points_of(about.id)?;
        let (text, around) = match (&self.text, &all.unpacked) {
            (Text::Read(text, _), _) => (text.as_str(), &[][..]),
            (Text::Packed(_), text) => (text.as_deref().unwrap_or_default(), around),
        };
        let miscounted = || {
            let (found, expected) = (all.points.len(), about.lines);
            self.parse_error(format!(
                "series '{key}' has {found} lines, its header says {expected}; as many must be there, and one at least"
            ))
        };
        if all.points.is_empty() {
            return Err(miscounted());
        }
        let knots: Vec<[usize; 2]> = all.axes.iter().zip(around).map(|(axis, x)| knots_around(axis, *x)).collect();
        let place = (name, knots);
        let known = self.series.lock().unwrap_or_else(PoisonError::into_inner).get(&place).cloned();
        if let Some((_, series)) = known.filter(|(known, _)| known == chip) {
            return Ok(Some(series));
        }
        let part = if around.is_empty() { None } else { complete_part(&all, text, &place.1, about.knots.len()) };
        let (mut axes, points) = part.unwrap_or_else(|| (all.axes.clone(), all.points.iter().collect()));
        axes.push(about.knots.clone());
        let series = Arc::new(self.read(key, text, &points, axes, chip)?);
        if all.points.len() != about.lines {
            return Err(miscounted());
        }
        let mut all = self.series.lock().unwrap_or_else(PoisonError::into_inner);
        all.insert(place, (*chip, series.clone()));
        Ok(Some(series))
    }

    /// The lines of a series, read once.
    fn points_of(&self, id: usize) -> Result<Arc<Points>> {
        let known = || self.points.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(points) = known().get(&id) {
            return Ok(points.clone());
        }
        let (unpacked, of_unpacked);
        let (text, lines) = match &self.text {
            Text::Read(text, lines) => (text, lines.get(&id).map_or(&[][..], Vec::as_slice)),
            Text::Packed(table) => {
                unpacked = table.lines(id)?;
                of_unpacked =
                    lines_of(&unpacked).map(|line| line.without_id(self.family, &unpacked)).collect::<Vec<_>>();
                (&unpacked, of_unpacked.as_slice())
            }
        };
        let mut above = [0.0; MAX_AXES];
        let points = lines.iter().map(|line| self.point(text, line, &mut above)).collect::<Result<Vec<_>>>()?;
        let axes = (0..self.family.axes.len() - 1).map(|axis| sorted(points.iter().map(|p| p.at[axis]))).collect();
        let unpacked = matches!(self.text, Text::Packed(_)).then(|| text.clone());
        let points = Arc::new(Points { unpacked, points, axes });
        known().insert(id, points.clone());
        Ok(points)
    }

    fn read(&self, key: &SeriesKey, text: &str, points: &[&Point], axes: Vec<Vec<f64>>, chip: &Chip) -> Result<Series> {
        let coefficients = coefficients(self.family, &self.origin, &self.header, key)?;
        if !Grid::is_within_reason(&axes) {
            return Err(self.parse_error(format!("series '{key}' spans a grid of more than four million cells")));
        }
        let mut series = Series { key: key.clone(), coefficients, grid: Grid::empty(axes) };
        for point in points {
            self.fill_line(&mut series, text, point, chip)?;
        }
        series.grid.fill_gaps();
        Ok(series)
    }

    /// Reads a line. `above` holds the coordinates of the line above and is set to those of this one.
    fn point(&self, text: &str, line: &Line, above: &mut [f64; MAX_AXES]) -> Result<Point> {
        let mut values = &text[line.values.clone()];
        for (axis, coordinate) in
            self.family.axes[..self.family.axes.len() - 1].iter().zip(above.iter_mut()).skip(line.shared)
        {
            let (field, rest) = values.split_once(',').unwrap_or((values, ""));
            let value = field.parse().ok().filter(|v: &f64| v.is_finite() && *v > 0.0);
            *coordinate = value.ok_or_else(|| bad_row(&self.origin, line.row, axis, field, "a positive number"))?;
            values = rest;
        }
        Ok(Point { row: line.row, at: *above, values: line.values.end - values.len()..line.values.end })
    }

    fn fill_line(&self, series: &mut Series, text: &str, point: &Point, chip: &Chip) -> Result<()> {
        let (row, mut point, values) = (point.row, point.at, &text[point.values.clone()]);
        let Series { key, coefficients, grid } = series;
        let last = self.family.axes.len() - 1;
        let bad_value = |found: &str, expected: &str| bad_row(&self.origin, row, VALUES, found, expected);
        let knots = grid.axes[last].clone();
        point[last] = knots[0];
        let Some(first) = grid.cell_at(&point[..=last]) else { return Ok(()) };
        if (first..first + knots.len()).any(|cell| grid.get(cell).is_some()) {
            let found = format!("{:?} again", &point[..last]);
            return Err(bad_row(&self.origin, row, self.family.axes[0], &found, "one line per point"));
        }
        let count = line_values::split(values).count();
        if count == 0 || count > knots.len() {
            let expected = format!("1 to {}, as many as the series has knots", knots.len());
            return Err(bad_value(&format!("{count} values"), &expected));
        }
        let expected = "a number in (0, 1000], or -, or = or ~ with a number on both sides and no - before it";
        // The last number of the line with its knot, and the cells since then that follow from it and the next one.
        let (mut before, mut following) = (None, Vec::new());
        for (cell, (knot, field)) in (first..).zip(knots.into_iter().zip(line_values::split(values))) {
            let (digits, origin) = match field.strip_prefix(FILLED_IN) {
                Some(digits) => (digits, Provenance::Interpolated),
                None if field == MEASURED => ("", Provenance::Measured),
                None => (field, Provenance::Measured),
            };
            if digits.is_empty() && before.is_some() {
                following.push((cell, knot.ln(), origin));
                continue;
            }
            if field == "-" && following.is_empty() {
                before = None;
                continue;
            }
            let per_mille = digits.parse().ok().filter(|v: &f64| *v > 0.0 && *v <= 1000.0);
            let per_mille = per_mille.ok_or_else(|| bad_value(field, expected))?;
            point[last] = knot;
            let residual = residual_of(&key.shape(&point), per_mille, coefficients, chip);
            if !residual.is_finite() || residual.abs() > MAX_RESIDUAL {
                let expected = "an efficiency within a factor of 20000 of what the header's coefficients give";
                return Err(bad_value(field, expected));
            }
            let here = Value { log_knot: knot.ln(), residual, is_filled_in: origin == Provenance::Interpolated };
            if let Some(before) = before {
                for (cell, knot, origin) in following.drain(..) {
                    grid.set(cell, interpolated(before, here, knot), origin);
                }
            }
            before = Some(here);
            grid.set(cell, residual, origin);
        }
        if following.is_empty() { Ok(()) } else { Err(bad_value("a line that ends with = or ~", expected)) }
    }

    fn parse_error(&self, message: String) -> Error {
        Error::parse(&self.origin, message)
    }
}

/// The residual of an efficiency in per mille: the logarithm of measured over modelled time.
pub(super) fn residual_of(shape: &CallShape, per_mille: f64, coefficients: &[f64], chip: &Chip) -> f64 {
    let measured_us = shape.bound_us(chip) / (per_mille / 1000.0);
    (measured_us / shape.time_us(coefficients, chip)).ln()
}

/// Every line belongs to a series of the header, and their columns are the operator's: a file cut off within its header
/// has neither.
fn lines_by_series(
    family: &KernelFamily,
    origin: &str,
    text: &str,
    header: &Header,
) -> Result<BTreeMap<usize, Vec<Line>>> {
    let parse_error = |message: String| Error::parse(origin, message);
    let mut lines: BTreeMap<String, (usize, Vec<Line>)> =
        header.series.values().map(|series| (series.id.to_string(), (series.id, Vec::new()))).collect();
    let known = lines.keys().cloned().collect::<Vec<_>>().join(", ");
    let mut below = lines_of(text);
    let found = below.by_ref().map(|line| &text[line.values]).find(|line| !line.starts_with('#')).unwrap_or_default();
    let columns = columns(family);
    if found != columns {
        return Err(parse_error(format!("'{found}' stands below the table header, expected '{columns}'")));
    }
    let mut id = "";
    for (row, line) in (1..).zip(below) {
        let first = text[line.values.clone()].split(',').next().unwrap_or_default();
        let line = Line { row, ..line }.without_id(family, text);
        id = if line.shared > 0 { id } else { first };
        let Some((_, of_series)) = lines.get_mut(id) else {
            return Err(bad_row(origin, row, "series", id, &format!("an id of the header: {known}")));
        };
        of_series.push(line);
    }
    if !text.ends_with('\n') {
        let message = "the last line has no end: the file is cut off, perhaps within a number; copy or write it again";
        return Err(parse_error(message.to_owned()));
    }
    Ok(lines.into_values().filter(|(_, lines)| !lines.is_empty()).collect())
}

/// The lines of a text, without their ends.
fn lines_of(text: &str) -> impl Iterator<Item = Line> {
    let mut end = 0;
    (1..).zip(text.split_inclusive('\n')).map(move |(row, line)| {
        let start = end;
        end += line.len();
        let content = line.strip_suffix('\n').unwrap_or(line);
        let content = content.strip_suffix('\r').unwrap_or(content);
        Line { row, values: start..start + content.len(), shared: 0 }
    })
}

/// The part of a series from the first to the last of `knots` on its first axes; `None` if a line or a value is missing there.
fn complete_part<'a>(
    all: &'a Points,
    text: &str,
    knots: &[[usize; 2]],
    width: usize,
) -> Option<(Vec<Vec<f64>>, Vec<&'a Point>)> {
    let part: Vec<Vec<f64>> = all
        .axes
        .iter()
        .enumerate()
        .map(|(axis, all)| knots.get(axis).map_or_else(|| all.clone(), |[first, last]| all[*first..=*last].to_vec()))
        .collect();
    let is_inside = |point: &Point| part.iter().zip(point.at).all(|(axis, at)| axis.contains(&at));
    let is_complete = |point: &Point| {
        let values = || line_values::split(&text[point.values.clone()]);
        values().count() == width && values().all(|value| value != "-")
    };
    let inside: Vec<&Point> = all.points.iter().filter(|point| is_inside(point)).collect();
    let complete = inside.iter().filter(|point| is_complete(point)).count();
    (complete == part.iter().map(Vec::len).product::<usize>()).then_some((part, inside))
}

fn bad_row(origin: &str, row: usize, column: &str, found: &str, expected: &str) -> Error {
    Error::bad_row(origin, row, column, if found.is_empty() { "nothing" } else { found }, expected)
}

fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.dedup_by(|a, b| (*a - *b).abs() <= 1e-9 * b.abs());
    values
}

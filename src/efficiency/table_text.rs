//! Writing a table file: the counterpart of `table`, with three digits for each value that matters.
#![expect(clippy::indexing_slicing, reason = "a grid has one axis at least")]
#![expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a number of digits, from 0 to 12")]

use std::collections::BTreeMap;

use crate::error::{Error, Result};

use super::chip::Chip;
use super::family::KernelFamily;
use super::line_values::{MEASURED, joined};
use super::provenance::Provenance;
use super::series::{Header, Series, SeriesHeader, UNIT, columns};
use super::series_key::SeriesKey;
use super::table::residual_of;
use super::table_compression::{Value, significant_knots};

/// A series to be written: its grid of residuals with holes, and its header entry.
pub struct SeriesDraft {
    /// Identity, coefficients and residuals.
    pub series: Series,
    /// Header entry; its `lines` is filled in when written.
    pub header: SeriesHeader,
}

/// The text of a table file.
pub fn write_table(
    family: &KernelFamily,
    hardware: &str,
    command: &str,
    drafts: &[SeriesDraft],
    chip_of: impl Fn(&SeriesKey) -> Result<Chip>,
) -> Result<String> {
    let mut coefficients: BTreeMap<String, BTreeMap<String, f64>> = BTreeMap::new();
    let mut headers = BTreeMap::new();
    let mut lines = String::new();
    for draft in drafts {
        let key = &draft.series.key;
        let named = family.coefficients.iter().zip(&draft.series.coefficients);
        coefficients.insert(key.group(), named.map(|((name, _), v)| ((*name).to_owned(), rounded(*v))).collect());
        let before = lines.lines().count();
        let id = headers.len() + 1;
        write_lines(&draft.series, id, &chip_of(key)?, &mut lines);
        headers.insert(
            key.to_string(),
            SeriesHeader { id, lines: lines.lines().count() - before, ..draft.header.clone() },
        );
    }
    let header = Header {
        operator: family.operator.to_owned(),
        hardware: hardware.to_owned(),
        unit: UNIT.to_owned(),
        command: command.to_owned(),
        coefficients,
        series: headers,
    };
    let toml = toml::to_string(&header)
        .map_err(|e| Error::parse(format!("{hardware}/{}.csv", family.operator), format!("table header: {e}")))?;
    let mut text = String::new();
    for line in toml.lines() {
        text.push_str(if line.is_empty() { "#" } else { "# " });
        text.push_str(line);
        text.push('\n');
    }
    text.push_str(&columns(family));
    text.push('\n');
    text.push_str(&lines);
    Ok(text)
}

fn write_lines(series: &Series, id: usize, chip: &Chip, out: &mut String) {
    let grid = &series.grid;
    let last = grid.axes.len() - 1;
    let width = grid.axes[last].len();
    // The digits of a cell, and its value as they are read back.
    let known = |(cell, log_knot): (usize, &f64)| {
        let (residual, origin) = grid.get(cell)?;
        let shape = series.key.shape(&grid.point(cell));
        let time_us = shape.time_us(&series.coefficients, chip) * residual.exp();
        let per_mille = three_digits((1000.0 * shape.bound_us(chip) / time_us).min(1000.0));
        let residual = residual_of(&shape, per_mille.parse().ok()?, &series.coefficients, chip);
        Some((per_mille, Value { log_knot: *log_knot, residual, is_filled_in: origin == Provenance::Interpolated }))
    };
    let mut above = Vec::new();
    for first in (0..grid.num_cells()).step_by(width) {
        let Some(used) = (first..first + width).rev().find(|cell| grid.get(*cell).is_some()) else { continue };
        let at = grid.point(first)[..last].to_vec();
        let is_same = |(own, of_above): &(&f64, &f64)| own.to_bits() == of_above.to_bits();
        let shared = at.iter().zip(&above).take_while(is_same).count();
        let coordinates: String = at[shared..].iter().map(|value| format!("{value},")).collect();
        let id = if shared > 0 { String::new() } else { format!("{id},") };
        above = at;
        let cells: Vec<Option<(String, Value)>> = (first..=used).zip(&grid.log_axes[last]).map(known).collect();
        let values: Vec<Option<Value>> = cells.iter().map(|cell| cell.as_ref().map(|(_, value)| *value)).collect();
        let field = |(cell, matters): (Option<(String, Value)>, bool)| match cell {
            None => "-".to_owned(),
            Some((per_mille, value)) if value.is_filled_in => format!("~{}", if matters { &per_mille } else { "" }),
            Some((per_mille, _)) if matters => per_mille,
            Some(_) => MEASURED.to_owned(),
        };
        let values: Vec<String> = cells.into_iter().zip(significant_knots(&values)).map(field).collect();
        out.push_str(&format!("{id}{coordinates}{}\n", joined(&values)));
    }
}

fn three_digits(value: f64) -> String {
    let decimals = (2.0 - value.log10().floor()).clamp(0.0, 12.0) as usize;
    let text = format!("{value:.decimals$}");
    if text.contains('.') {
        let short = text.trim_end_matches('0').trim_end_matches('.');
        short.strip_prefix('0').filter(|rest| rest.starts_with('.')).unwrap_or(short).to_owned()
    } else {
        text
    }
}

fn rounded(value: f64) -> f64 {
    let factor = 10f64.powf(4.0 - value.abs().log10().floor());
    (value * factor).round() / factor
}

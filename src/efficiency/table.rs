//! The table file: one csv per GPU and operator, a header of commented TOML in front. Each line holds the efficiencies of
//! one series along its last axis, in percent of the roofline bound, three digits each; `~` marks one interpolated
//! from its neighbours, `-` one beyond what was measured (left out at a
//! line's end). Reading is strict: unknown header keys, duplicate or missing lines and anything outside (0, 100] are errors.
//! Here is the header; `table_lines` reads the lines. Uses `family`, `grid`, `error`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::family::{Family, Key};
use super::grid::Grid;
use super::table_lines::{Lines, lines_by_series};
use crate::error::{Error, Result};

pub use super::table_lines::parse_series;
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

pub(super) const UNIT: &str = "efficiency: percent of the roofline bound";

/// Reads the header of a table file.
///
/// # Errors
/// `ErrorKind::Parse` where the header is not TOML, has unknown or missing keys, or belongs to another operator,
/// `ErrorKind::BadRow` for a line of no series.
pub fn parse_header<F: Family>(origin: &str, text: &str) -> Result<Header> {
    Ok(parse_table::<F>(origin, text)?.0)
}

/// Splits a table file into its header and the lines of each series; errors are those of [`parse_header`].
pub(super) fn parse_table<F: Family>(origin: &str, text: &str) -> Result<(Header, Lines)> {
    let commented: String = text
        .lines()
        .take_while(|line| line.starts_with('#'))
        .map(|line| line.trim_start_matches('#').trim_start())
        .flat_map(|line| [line, "\n"])
        .collect();
    let header: Header = toml::from_str(&commented).map_err(|e| {
        let before = e.span().and_then(|span| commented.get(..span.start)).unwrap_or("");
        let line = before.matches('\n').count() + 1;
        Error::parse(origin, format!("table header, line {line}: {}", e.message()))
    })?;
    if header.operator != F::OPERATOR || header.unit != UNIT {
        return Err(Error::parse(
            origin,
            format!(
                "table header: operator '{}' in '{}', expected '{}' in '{UNIT}'",
                header.operator,
                header.unit,
                F::OPERATOR
            ),
        ));
    }
    for (name, series) in &header.series {
        let ascending = series.knots.windows(2).all(|pair| pair[0] < pair[1]);
        let positive = series.knots.iter().all(|k| k.is_finite() && *k > 0.0);
        let id_is_unique = header.series.values().filter(|other| other.id == series.id).count() == 1;
        // A name that is written otherwise when asked for would never be found.
        let is_known = F::Key::parse(name).is_some_and(|key| key.name() == *name);
        if !id_is_unique || !is_known || series.knots.is_empty() || !ascending || !positive {
            return Err(Error::parse(
                origin,
                format!(
                    "table header: series '{name}' needs a known name, an id of its own and ascending positive knots"
                ),
            ));
        }
    }
    for (group, coefficients) in &header.coefficients {
        let is_unknown = |name: &&String| F::COEFFICIENTS.iter().all(|(known, _)| known != name);
        if let Some(name) = coefficients.keys().find(is_unknown) {
            let known: Vec<&str> = F::COEFFICIENTS.iter().map(|(name, _)| *name).collect();
            let known = known.join(", ");
            return Err(Error::parse(
                origin,
                format!("table header: unknown coefficients.\"{group}\".{name}; there are {known}"),
            ));
        }
    }
    let lines = lines_by_series::<F>(origin, text, &header)?;
    Ok((header, lines))
}

pub(super) fn columns<F: Family>() -> String {
    format!("series,{},efficiency_pct", F::AXES[..F::AXES.len() - 1].join(","))
}

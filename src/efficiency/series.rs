//! The series of a table, and the header of the file that holds it.
#![expect(clippy::indexing_slicing, reason = "a family has one axis at least")]

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::family::KernelFamily;
use super::grid::Grid;
use super::series_key::SeriesKey;

/// Header of a table file.
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

/// Header entry of one series.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SeriesHeader {
    /// Publisher, engine version and kernel of the measurements.
    pub source: String,
    /// Measured rows used.
    pub rows: usize,
    /// Number at the beginning of its lines.
    pub id: usize,
    /// Lines of the series in this file.
    pub lines: usize,
    /// Median absolute error of rows left out, percent.
    pub cross_validated_median_ape_pct: f64,
    /// Mean absolute error of rows left out, percent.
    pub cross_validated_mape_pct: f64,
    /// Distance added where another engine's kernel is looked for, as the exclusions of calibration name it: the series answers for that
    /// engine where every other one is farther.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stand_in_distance: Option<f64>,
    /// Knots of the last axis, along the values of a line.
    pub knots: Vec<f64>,
}

/// One series, ready to be looked up: the kernel model's coefficients and the residuals that measurements leave.
#[derive(Debug, Clone)]
pub struct Series {
    /// Kernel that it was measured for.
    pub key: SeriesKey,
    /// Kernel-model coefficients, in the order of the coefficients of the kernel model.
    pub coefficients: Vec<f64>,
    /// Log of measured over modelled time.
    pub grid: Grid,
}

/// Unit of the values in a table file.
pub(super) const UNIT: &str = "efficiency: per mille of the roofline bound";

/// Column of the values.
pub(super) const VALUES: &str = "efficiency";

/// The line between the header and the values.
pub(super) fn columns(family: &KernelFamily) -> String {
    format!("series,{},{VALUES}", family.axes[..family.axes.len() - 1].join(","))
}

//! All operators at once: the tables of a GPU built and cross-validated, or shipped ones checked.
//! Uses `build`, `cross_validate`, `rows`, `score`, `efficiency`.

use std::collections::BTreeMap;

use serde::Serialize;

use super::build::{Row, build, by_series};
use super::cross_validate::{Comparison, cross_validate, predict, predict_without_own};
use super::rows::Rows;
use super::score::{Labelled, Pair, Score};
use crate::efficiency::Tables;
use crate::efficiency::family::{AllReduceKind, AttentionKey, Family, GemmKind, Key, MoeKey, chip};
use crate::efficiency::kernel_model::{AllReduceModel, DecodeModel, GemmModel, MoeModel, PrefillModel};
use crate::efficiency::table::{SeriesDraft, SeriesHeader, write_table};
use crate::error::{Error, Result};
use crate::hardware::Hardware;

/// What the calibration of a family needs besides its shapes.
pub trait Calibrated: Family + Send + Sync
where
    Self::Key: Sync,
{
    /// What errors are summed by: the number format, the launch mode.
    fn label(key: &Self::Key) -> String;

    /// Whether a value of the last axis gets a column in the table.
    fn keep_knot(_: &Self::Key, _: f64) -> bool {
        true
    }

    /// Whether a label counts in the operator's total.
    fn in_total(_: &str) -> bool {
        true
    }
}

impl Calibrated for GemmModel {
    fn label(key: &GemmKind) -> String {
        key.name().to_owned()
    }
}

impl Calibrated for PrefillModel {
    fn label(key: &AttentionKey) -> String {
        key.kv_dtype.to_string()
    }
}

impl Calibrated for DecodeModel {
    fn label(key: &AttentionKey) -> String {
        key.kv_dtype.to_string()
    }
}

impl Calibrated for MoeModel {
    fn label(key: &MoeKey) -> String {
        key.kind.name().to_owned()
    }
}

impl Calibrated for AllReduceModel {
    fn label(key: &AllReduceKind) -> String {
        key.name()
    }

    /// Steps run inside graphs; eager rows are reported beside.
    fn in_total(label: &str) -> bool {
        label == "graph"
    }
}

/// Errors of one operator, as printed and as in the JSON.
#[derive(Debug, Clone, Serialize)]
pub struct OperatorReport {
    /// Everything that counts in the total.
    #[serde(flatten)]
    pub total: Score,
    /// By number format (by launch mode for all-reduce).
    pub by_dtype: BTreeMap<String, Score>,
    /// How each row was predicted without having been used.
    pub method: String,
    /// Rows that the shipped tables did not use, or rows left out in folds.
    pub rows_unseen: usize,
    /// The same rows by other methods, where they were compared.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub compared: BTreeMap<&'static str, Score>,
    /// By series of the table.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub by_series: BTreeMap<String, Score>,
    /// Rows left out, by reason.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub left_out: BTreeMap<String, usize>,
}

/// A built table file and its errors.
pub struct Calibrated1 {
    /// Text of the file.
    pub text: String,
    /// Errors by cross-validation.
    pub report: OperatorReport,
}

/// Builds and cross-validates the table of one operator; `None` where there is no row.
///
/// # Errors
/// Those of building: a number format that the chip has no unit for.
pub fn calibrate_operator<F: Calibrated>(
    rows: &[Row<F>],
    hardware: &Hardware,
    command: &str,
    tick: impl Fn() + Sync,
) -> Result<Option<Calibrated1>>
where
    F::Key: Sync,
{
    if rows.is_empty() {
        return Ok(None);
    }
    let comparison = cross_validate::<F>(rows, hardware, F::keep_knot, F::label, tick)?;
    let all: Vec<&Row<F>> = rows.iter().collect();
    let built = build::<F>(&all, hardware, F::keep_knot)?;
    let series_scores = comparison.by_series.scores();
    let members = by_series(rows.iter());
    let last = F::AXES.len() - 1;
    let drafts: Vec<SeriesDraft<F>> = built
        .into_iter()
        .map(|series| {
            let name = series.key.name();
            let rows = members.get(&name).map_or(&[][..], Vec::as_slice);
            let score = series_scores.get(&name);
            let header = SeriesHeader {
                source: rows.first().map_or_else(String::new, |row| row.source.clone()),
                rows: rows.len(),
                lines: 0,
                cross_validated_median_ape_pct: two_decimals(score.map_or(100.0, |s| s.median_ape_pct)),
                cross_validated_mape_pct: two_decimals(score.map_or(100.0, |s| s.mape_pct)),
                knots: series.grid.axes()[last].clone(),
            };
            SeriesDraft { series, header }
        })
        .collect();
    let text = write_table(hardware.name(), command, &drafts, |key| chip(hardware, F::compute_dtype(key)))?;
    let Some(report) = fold_report::<F>(&comparison) else { return Ok(None) };
    Ok(Some(Calibrated1 { text, report }))
}

fn fold_report<F: Calibrated>(comparison: &Comparison) -> Option<OperatorReport>
where
    F::Key: Sync,
{
    let total = |labelled: &Labelled| {
        let counted: Vec<Pair> = labelled
            .by_label
            .iter()
            .filter(|(label, _)| F::in_total(label))
            .flat_map(|(_, pairs)| pairs.iter().copied())
            .collect();
        Score::of(&counted)
    };
    let compared = [
        ("kernel_model", &comparison.kernel_model),
        ("nearest_neighbour", &comparison.nearest_neighbour),
        ("constant_mfu", &comparison.constant_mfu),
    ];
    let score = total(&comparison.tables)?;
    Some(OperatorReport {
        total: score,
        by_dtype: comparison.tables.scores(),
        method: "10-fold cross-validation".to_owned(),
        rows_unseen: score.rows,
        compared: compared.into_iter().filter_map(|(name, l)| Some((name, total(l)?))).collect(),
        by_series: comparison.by_series.scores(),
        left_out: BTreeMap::new(),
    })
}

/// Scores the tables that `tables` finds for the rows' own GPU; `None` where there is no row.
///
/// A row at a measured cell of the table was (or one like it) used to make it: its cell is left out and estimated from the
/// cells around it. Every other row is looked up as it is.
///
/// # Errors
/// Those of reading tables; [`Error::MissingTable`] where the GPU has none of this operator.
pub fn check_operator<F: Calibrated>(
    rows: &[Row<F>],
    hardware: &Hardware,
    tables: &Tables,
) -> Result<Option<OperatorReport>>
where
    F::Key: Sync,
{
    if rows.is_empty() {
        return Ok(None);
    }
    if !tables.has_own::<F>()? {
        return Err(Error::MissingTable {
            hardware: hardware.name().to_owned(),
            operator: F::OPERATOR.to_owned(),
            hint: "the check needs tables of this very GPU; build them with `ridgepoint calibrate`".to_owned(),
        });
    }
    let mut scored = Labelled::default();
    let mut by_name = Labelled::default();
    let mut rows_unseen = 0;
    let mut without_series = 0;
    for (name, members) in by_series(rows.iter()) {
        let key = &members[0].key;
        let exact = |candidate: &F::Key| if candidate == key { 0.0 } else { f64::INFINITY };
        let found = match tables.nearest::<F>(exact) {
            Ok((found, _)) if !found.is_borrowed => found,
            Ok(_) => {
                without_series += members.len();
                continue;
            }
            Err(error) if error.is_missing_measurement() => {
                without_series += members.len();
                continue;
            }
            Err(error) => return Err(error),
        };
        let chip = chip(hardware, F::compute_dtype(key))?;
        for row in members {
            let (predicted_us, was_used) = predict_without_own(&found.series, &row.point, &chip);
            rows_unseen += usize::from(!was_used);
            let pair = Pair { predicted_us, measured_us: row.time_us };
            scored.push(&F::label(&row.key), pair);
            by_name.push(&name, pair);
        }
        debug_assert!(predict(&found.series, &rows[0].point, &chip) >= 0.0);
    }
    let counted: Vec<Pair> = scored
        .by_label
        .iter()
        .filter(|(label, _)| F::in_total(label))
        .flat_map(|(_, pairs)| pairs.iter().copied())
        .collect();
    let Some(total) = Score::of(&counted) else { return Ok(None) };
    let mut left_out = BTreeMap::new();
    if without_series > 0 {
        left_out.insert("no table series for this kernel".to_owned(), without_series);
    }
    Ok(Some(OperatorReport {
        total,
        by_dtype: scored.scores(),
        method: "shipped tables; rows they were made from by leave-one-out".to_owned(),
        rows_unseen,
        compared: BTreeMap::new(),
        by_series: by_name.scores(),
        left_out,
    }))
}

/// Rows that were left out before anything was predicted, for one operator.
pub fn left_out_of(rows: &Rows, operator: &str) -> BTreeMap<String, usize> {
    let of_operator = rows.left_out.iter().filter(|((o, _), _)| *o == operator);
    of_operator.map(|((_, reason), count)| (reason.clone(), *count)).collect()
}

fn two_decimals(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

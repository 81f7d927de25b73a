//! Owns the least-squares problem of a fit: rows that are linear in the parameters, a robust loss of their log error, and a
//! Gaussian prior. Uses `huber` and `solver`.
#![expect(clippy::indexing_slicing, reason = "a row has a share for every parameter; rows are counted here")]

use std::collections::BTreeMap;
use std::fmt;

use ridgepoint::correction::{Basis, NUM_TERMS};
use ridgepoint::{Error, Result};
use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::solver::{self, LeastSquares, Parameter, Solution};

/// Share of the measured value below which the logarithm of a prediction is continued by its tangent. The cost of a
/// prediction of zero or less is therefore finite and still has a slope.
const LOG_FLOOR: f64 = 1e-3;
/// First line of the text that is hashed. A change of the layout changes the number.
const HASHED_LAYOUT: &str = "ridgepoint rows 2\n";
/// When a fit stops; it takes some ten iterations.
const OPTIONS: solver::Options = solver::Options { max_iterations: 300, tolerance: 1e-12 };

/// The kind of a measured figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Target {
    /// Mean time from one step's start to the next's.
    StepPeriod,
    /// Mean time from a request's first token to its last.
    Decoding,
    /// Mean time to first token.
    Ttft,
}

impl Target {
    /// Standard deviation of ln(measured / predicted) that is expected of a good prediction. It decides how much a figure of
    /// one kind counts against one of another. Assumed: 3 % for a mean over steps, and 8 % for a mean TTFT, which also has the
    /// noise of a front end.
    pub fn expected_sd(self) -> f64 {
        match self {
            Target::StepPeriod | Target::Decoding => 0.03,
            Target::Ttft => 0.08,
        }
    }
}

/// The name that JSON has too.
impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// A measured figure and its prediction, which is linear in the parameters θ: `predicted = offset + x·θ`.
#[derive(Debug, Clone, PartialEq)]
pub struct FitRow {
    /// The kind of figure. Not used in the cost.
    pub target: Target,
    /// Part of the prediction that no parameter changes, in the unit of `measured`.
    pub offset: f64,
    /// Factor of each parameter.
    pub x: Vec<f64>,
    /// Measured value, above 0.
    pub measured: f64,
    /// Expected standard deviation of ln(measured / predicted), above 0.
    pub sd: f64,
    /// Number of independent rows that it counts as, at least 0.
    pub weight: f64,
}

impl FitRow {
    /// `offset + x·θ`.
    pub fn predicted(&self, values: &[f64]) -> f64 {
        self.offset + self.x.iter().zip(values).map(|(x, value)| x * value).sum::<f64>()
    }

    /// The terms among the factors.
    pub(super) fn basis(&self) -> Basis {
        let mut values = [0.0; NUM_TERMS];
        values.iter_mut().zip(&self.x).for_each(|(value, x)| *value = *x);
        Basis::from(values)
    }

    /// ln(predicted / measured) / sd, and its derivative by `predicted`.
    fn residual(&self, values: &[f64]) -> (f64, f64) {
        let (predicted, floor) = (self.predicted(values), LOG_FLOOR * self.measured);
        if predicted >= floor {
            ((predicted / self.measured).ln() / self.sd, 1.0 / (predicted * self.sd))
        } else {
            ((LOG_FLOOR.ln() + (predicted - floor) / floor) / self.sd, 1.0 / (floor * self.sd))
        }
    }

    /// Whether the row can be fitted by so many parameters.
    fn is_possible(&self, parameters: usize) -> bool {
        let are_finite =
            [self.offset, self.measured, self.sd, self.weight].iter().chain(&self.x).all(|x| x.is_finite());
        are_finite && self.measured > 0.0 && self.sd > 0.0 && self.weight >= 0.0 && self.x.len() == parameters
    }

    /// The row's line in the hashed text.
    fn hashed_line(&self) -> String {
        // Adding 0 turns −0 into 0.
        let number = |value: f64| format!("{:e}", value + 0.0);
        let columns: Vec<String> = self.x.iter().map(|x| number(*x)).collect();
        let [offset, measured, sd, weight] = [self.offset, self.measured, self.sd, self.weight].map(number);
        format!("{offset};{};{measured};{sd};{weight}\n", columns.join(","))
    }
}

/// A checked set of parameters and rows.
#[derive(Debug, Clone)]
pub struct Problem {
    /// The parameters.
    pub parameters: Vec<Parameter>,
    /// The rows.
    pub rows: Vec<FitRow>,
}

impl Problem {
    /// Checks `rows`; `origin` names the data in errors.
    ///
    /// # Errors
    /// `ErrorKind::Invalid` for fewer than two rows, rows of which none counts, and a row with a number that is not finite, a
    /// measured value or standard deviation of 0 or less, a negative weight, or another number of factors than parameters.
    pub fn new(origin: &str, parameters: Vec<Parameter>, rows: Vec<FitRow>) -> Result<Problem> {
        let mut problems: Vec<String> = Vec::new();
        if rows.len() < 2 {
            let count = if rows.is_empty() { "are no rows" } else { "is one row" };
            problems.push(format!("there {count}: a fit needs at least two"));
        } else if rows.iter().all(|row| row.weight <= 0.0) {
            problems.push("every row's weight is 0: at least one must count".to_owned());
        }
        let mut bad = rows.iter().enumerate().filter(|(_, row)| !row.is_possible(parameters.len()));
        if let Some((index, FitRow { offset, x, measured, sd, weight, .. })) = bad.next() {
            problems.push(format!(
                "row {}: measured {measured}, predicted {offset} + {x:?} by parameter, sd {sd}, weight {weight}: all must be \
                 finite, measured and sd above 0 ({} further rows are bad too)",
                index + 1,
                bad.count()
            ));
        }
        if problems.is_empty() { Ok(Problem { parameters, rows }) } else { Err(Error::invalid(origin, problems)) }
    }

    /// Number of rows of each kind.
    pub fn rows_by_target(&self) -> BTreeMap<Target, u64> {
        let mut counts = BTreeMap::new();
        self.rows.iter().for_each(|row| *counts.entry(row.target).or_default() += 1);
        counts
    }

    /// Remarks on the parameters that occur in no row.
    pub fn notes(&self) -> Vec<String> {
        let has = |index: usize| self.rows.iter().any(|row| row.weight > 0.0 && row.x[index] != 0.0);
        let missing = self.parameters.iter().enumerate().filter(|(index, _)| !has(*index));
        missing.map(|(_, of)| format!("no row has '{}': it stays at its prior", of.name)).collect()
    }

    /// Finds the parameters of least cost within their bounds, from `start`. A parameter that no row has ends at its prior.
    ///
    /// # Errors
    /// `ErrorKind::InvalidArgument` if `start` has another length than there are parameters or a number that is not finite.
    pub fn minimise(&self, start: &[f64]) -> Result<Solution> {
        solver::minimise(self, start, OPTIONS)
    }

    /// SHA-256 in hexadecimal digits of the rows' offsets, columns, measured values, standard deviations and weights. The
    /// order of rows does not matter; the order of columns does.
    ///
    /// # Formula
    /// One line per row, `offset;x₁,x₂,…;measured;sd;weight`, each number as the shortest text that reads back as it; lines in
    /// the order of their bytes.
    pub fn rows_sha256(&self) -> String {
        let mut lines: Vec<String> = self.rows.iter().map(FitRow::hashed_line).collect();
        lines.sort_unstable();
        let hash = Sha256::digest(HASHED_LAYOUT.to_owned() + &lines.concat());
        hash.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// A row's residual is ln(predicted / measured) / sd; below a thousandth of `measured` the logarithm is continued by its
/// tangent.
impl LeastSquares for Problem {
    fn parameters(&self) -> &[Parameter] {
        &self.parameters
    }

    fn residuals(&self, values: &[f64]) -> Result<Vec<f64>> {
        Ok(self.rows.iter().map(|row| row.residual(values).0).collect())
    }

    fn derivatives(&self, values: &[f64], _: &[f64]) -> Result<Vec<Vec<f64>>> {
        let by_prediction: Vec<f64> = self.rows.iter().map(|row| row.residual(values).1).collect();
        let column = |index: usize| self.rows.iter().zip(&by_prediction).map(|(row, by)| row.x[index] * by).collect();
        Ok((0..self.parameters.len()).map(column).collect())
    }

    fn weight(&self, row: usize) -> f64 {
        self.rows[row].weight
    }
}

#[cfg(test)]
#[path = "problem_tests.rs"]
mod tests;

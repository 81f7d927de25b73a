//! Fits a correction to results of load generators, with the replay in the loop: the throughput and the mean latencies are fitted; all
//! other figures, and results that are left out in turn, judge.
#![expect(clippy::indexing_slicing, reason = "a solution has a value for every parameter")]

use nalgebra::DMatrix;
use ridgepoint::correction::NUM_TERMS;
use ridgepoint::{Correction, Result};
use serde::Serialize;

use super::fitted_terms::{NUM_FITTED, applied, parameters, slopes};
use super::judge::{BenchCase, BenchRow};
use crate::fit::{ParameterReport, Target};
use crate::solver::{self, NumericFit, Options, Solution, minimise};
use crate::stats::median;

/// Each iteration replays every result seven times.
const OPTIONS: Options = Options { max_iterations: 12, tolerance: 1e-5 };
/// Difference of a term that its slope is taken over, as a share of its prior's standard deviation.
const DIFFERENCE: f64 = 0.1;
/// The figures that are fitted, with the standard deviation of ln(predicted / measured) that a good prediction has: the first of each list that
/// a result has, medians where it has no means.
const FITTED: [(&[&str], Target); 4] = [
    (&["total_tokens"], Target::Decoding),
    (&["ttft_mean", "ttft_p50"], Target::Ttft),
    (&["tpot_mean", "tpot_p50"], Target::Decoding),
    (&["e2e_mean", "e2e_p50"], Target::Decoding),
];

/// The row of the first of these figures that there is.
fn fitted<'a>(rows: &'a [BenchRow], names: &[&str]) -> Option<&'a BenchRow> {
    names.iter().find_map(|name| rows.iter().find(|row| row.figure == *name))
}

/// How well a correction predicts what it was not fitted to.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BenchVerdict {
    /// Median absolute error of the fitted figures before, percent.
    pub before_pct: f64,
    /// The same after the fit.
    pub after_pct: f64,
    /// Of the figures that were not fitted, before and after, percent; `None` where the results have none.
    pub others_pct: Option<BeforeAfter>,
    /// Of the fitted figures of each result, by a fit to the others, before and after, percent; `None` for one result.
    pub left_out_pct: Option<BeforeAfter>,
}

/// An error before and after a fit, percent.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct BeforeAfter {
    /// Before.
    pub before: f64,
    /// After.
    pub after: f64,
}

impl BenchVerdict {
    /// Whether what judges it is further off than before.
    pub fn is_worse(&self) -> bool {
        self.left_out_pct.or(self.others_pct).is_some_and(|of| of.after > of.before + 1.0)
    }

    /// The verdict in a sentence or two.
    pub fn in_words(&self) -> String {
        let fitted =
            format!("fitted figures are {:.1} % off in the median, {:.1} % before", self.after_pct, self.before_pct);
        let pair = |what: &str, BeforeAfter { before, after }| format!("{what} {after:.1} %, {before:.1} % before");
        let judged = match (self.left_out_pct, self.others_pct) {
            (Some(left_out), _) => pair("each result by a fit to the others", left_out),
            (None, Some(others)) => pair("medians and percentiles, which were not fitted,", others),
            (None, None) => "no other figure judges it".to_owned(),
        };
        let word = if self.is_worse() { "Do not use it" } else { "Use it for this server" };
        format!("{word}: {fitted}; {judged}.")
    }
}

/// The report of a fit. Serialised keys are stable.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BenchFitReport {
    /// How well it predicts.
    pub verdict: BenchVerdict,
    /// How the solver ended.
    #[serde(flatten)]
    pub solution: Solution,
    /// The terms; those that are not identified stay near their prior.
    pub parameters: Vec<ParameterReport>,
    /// Figures of each result with their predictions by the fit.
    pub results: Vec<FittedResult>,
    /// Remarks.
    pub notes: Vec<String>,
}

/// A result by the fit.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FittedResult {
    /// Its file.
    pub name: String,
    /// Its figures.
    pub rows: Vec<BenchRow>,
}

/// A correction with its report.
#[derive(Debug, Clone)]
pub struct BenchFit {
    /// The correction.
    pub correction: Correction,
    /// How the fit went.
    pub report: BenchFitReport,
}

/// Fits the terms to all results, and to all but each of them where there are several. `done` is called after each replay.
///
/// # Errors
/// Those of [`ridgepoint_replay::replay`].
pub fn fit_bench(cases: &[BenchCase], around: &Correction, done: &dyn Fn()) -> Result<BenchFit> {
    let all: Vec<&BenchCase> = cases.iter().collect();
    let before = rows_of(&all, around, done)?;
    let (solution, fitted, covariance) = fitted_to(&all, around, done)?;
    let after = rows_of(&all, &fitted, done)?;
    let left_out = if all.len() < 2 { None } else { Some(left_out(&all, around, done)?) };
    let verdict = BenchVerdict {
        before_pct: error(&before, true).unwrap_or(0.0),
        after_pct: error(&after, true).unwrap_or(0.0),
        others_pct: both(error(&before, false), error(&after, false)),
        left_out_pct: left_out.and_then(|of| both(error(&before, true), error(&of, true))),
    };
    let report = |(index, of): (usize, &solver::Parameter)| {
        ParameterReport::of_host(*of, solution.values[index], Some(covariance[(index, index)].max(0.0).sqrt()))
    };
    let parameters: Vec<ParameterReport> = parameters(around).iter().enumerate().map(report).collect();
    let unknown: Vec<&str> = parameters.iter().filter(|of| !of.identified).map(|of| of.parameter.name).collect();
    let mut notes = Vec::new();
    if !unknown.is_empty() {
        notes.push(format!(
            "not identified by these figures, so that they stay near what was assumed: {}",
            unknown.join(", ")
        ));
    }
    if !solution.converged {
        notes.push(format!("the fit has not converged: {}", solution.why_stopped));
    }
    let names = cases.iter().map(|case| case.result.name.clone());
    let results = names.zip(after).map(|(name, rows)| FittedResult { name, rows }).collect();
    Ok(BenchFit { correction: fitted, report: BenchFitReport { verdict, solution, parameters, results, notes } })
}

fn both(before: Option<f64>, after: Option<f64>) -> Option<BeforeAfter> {
    Some(BeforeAfter { before: before?, after: after? })
}

/// The figures of each result by a correction.
fn rows_of(cases: &[&BenchCase], correction: &Correction, done: &dyn Fn()) -> Result<Vec<Vec<BenchRow>>> {
    let rows = |case: &&BenchCase| {
        let (metrics, spread, _) = case.replayed(Some(correction))?;
        done();
        Ok(case.rows(&metrics, &spread))
    };
    cases.iter().map(rows).collect()
}

/// The figures of each result by a fit to the others.
fn left_out(cases: &[&BenchCase], around: &Correction, done: &dyn Fn()) -> Result<Vec<Vec<BenchRow>>> {
    let judged = |index: usize| {
        let others: Vec<&BenchCase> =
            cases.iter().enumerate().filter(|(at, _)| *at != index).map(|(_, case)| *case).collect();
        let (_, fitted, _) = fitted_to(&others, around, done)?;
        Ok(rows_of(&cases[index..=index], &fitted, done)?.concat())
    };
    (0..cases.len()).map(judged).collect()
}

/// Median absolute error of the fitted figures, or of the others; `None` without any.
fn error(rows: &[Vec<BenchRow>], is_fitted: bool) -> Option<f64> {
    let of_result = |rows: &Vec<BenchRow>| -> Vec<f64> {
        let chosen: Vec<&str> =
            FITTED.iter().filter_map(|(names, _)| fitted(rows, names)).map(|row| row.figure.as_str()).collect();
        // Requests a second are tokens a second over a constant.
        let is_meant = |row: &&BenchRow| row.figure != "requests" && chosen.contains(&row.figure.as_str()) == is_fitted;
        rows.iter().filter(is_meant).map(|row| row.error_pct.abs()).collect()
    };
    median(rows.iter().flat_map(of_result).collect())
}

/// The terms of least cost, the correction with them, and their covariance.
fn fitted_to(
    cases: &[&BenchCase],
    around: &Correction,
    done: &dyn Fn(),
) -> Result<(Solution, Correction, DMatrix<f64>)> {
    let residuals = |values: &[f64]| -> Result<Vec<f64>> {
        let rows = rows_of(cases, &applied(around, values), done)?;
        let of_result = |rows: &Vec<BenchRow>| {
            FITTED.map(|(names, target)| {
                let log_error = fitted(rows, names)
                    .map(|row| (row.predicted / row.measured).ln())
                    .filter(|error| error.is_finite());
                log_error.map_or(0.0, |error| error / target.expected_sd())
            })
        };
        Ok(rows.iter().flat_map(of_result).collect())
    };
    let problem = NumericFit { residuals, parameters: parameters(around), difference: DIFFERENCE };
    let start: Vec<f64> = problem.parameters.iter().map(|of| of.prior).collect();
    let solution = minimise(&problem, &start, OPTIONS)?;
    let curvature = solver::slopes(&problem, &solution.values)?.curvature;
    let covariance = curvature.clone().try_inverse().unwrap_or_else(|| DMatrix::zeros(NUM_FITTED, NUM_FITTED));
    let mut fitted = applied(around, &solution.values);
    let slopes = slopes(around);
    fitted.covariance = std::array::from_fn(|row| {
        std::array::from_fn(|column| {
            let part = |a: usize, b: usize| slopes[a][row] * covariance[(a, b)] * slopes[b][column];
            (0..NUM_FITTED).flat_map(|a| (0..NUM_FITTED).map(move |b| (a, b))).map(|(a, b)| part(a, b)).sum::<f64>()
        })
    });
    fitted.identified = [false; NUM_TERMS];
    Ok((solution, fitted, covariance))
}

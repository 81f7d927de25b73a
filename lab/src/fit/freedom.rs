//! Chooses which coefficients get wider priors, by the later rows of a fit.

use super::batch_kind::BatchKind;
use super::fit_rows::{FitResult, Prior};
use super::fit_steps::{StepRun, fit_widened};
use super::report::ParameterReport;
use crate::evaluate::steps::window::USUAL_ROWS;
use crate::ingest::Interval;
use crate::stats::mean;
use ridgepoint::correction::Term;
use ridgepoint::{Correction, Result};

/// The last of so many parts of the rows judges; the others are fitted.
const CHOOSING: usize = 4;
/// Share by which a freer fit must lower the error.
const LEAST_GAIN: f64 = 0.1;
/// Least difference of two errors: below it they count as equal.
const LEAST_GAIN_ABSOLUTE: f64 = 0.001;
/// Standard deviations from its assumed prior at which a coefficient contradicts it (assumed). On the public traces none is that far.
const STRAINED_SDS: f64 = 5.0;
/// Least number of rows of a kind that judges.
const LEAST_ROWS: usize = 20;

/// The coefficients whose priors may be wider than assumed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Freedom {
    /// None.
    Assumed,
    /// Prices of what the operators leave out.
    Prices,
    /// Factors on the operators' times too.
    All,
}

impl Freedom {
    /// The coefficients whose priors stay as assumed.
    pub(super) fn as_assumed(self) -> Vec<&'static str> {
        let factors = Term::ALL.into_iter().filter(|term| term.is_factor()).map(Term::name);
        if self == Freedom::All { Vec::new() } else { factors.collect() }
    }

    /// Fits the earlier rows of runs with each freedom, and returns the least one whose error on the later rows is about the smallest, and
    /// that its assumed priors do not contradict.
    ///
    /// # Errors
    /// Those of a fit.
    pub(super) fn chosen(origin: &str, runs: &[&StepRun<'_>], prior: &Prior) -> Result<Freedom> {
        let cut = |run: &StepRun<'_>| run.fitted.end - run.fitted.len() / CHOOSING;
        let earlier: Vec<StepRun<'_>> =
            runs.iter().map(|run| StepRun { fitted: run.fitted.start..cut(run), ..(*run).clone() }).collect();
        let earlier: Vec<&StepRun<'_>> = earlier.iter().collect();
        let judged = |freedom: Freedom| -> Result<(Freedom, f64, bool)> {
            let FitResult { correction, report } = fit_widened(origin, &earlier, prior, freedom)?;
            let error = runs.iter().map(|run| error_of(run, cut(run), &correction)).sum::<f64>() / runs.len() as f64;
            Ok((freedom, error, freedom.is_strained(&report.parameters)))
        };
        let freedoms = [Freedom::Assumed, Freedom::Prices, Freedom::All];
        let fits: Vec<(Freedom, f64, bool)> = freedoms.into_iter().map(judged).collect::<Result<_>>()?;
        let least = fits.iter().map(|(_, error, _)| *error).fold(f64::INFINITY, f64::min);
        let limit = (least / (1.0 - LEAST_GAIN)).max(least + LEAST_GAIN_ABSOLUTE);
        let good = || fits.iter().filter(|(_, error, _)| *error <= limit);
        let found = good().find(|(.., is_strained)| !is_strained).or_else(|| good().next());
        Ok(found.map_or(Freedom::Assumed, |(freedom, ..)| *freedom))
    }

    /// Whether the rows contradict an assumed prior: a coefficient that keeps it ends more than [`STRAINED_SDS`] from it.
    fn is_strained(self, parameters: &[ParameterReport]) -> bool {
        let held = self.as_assumed();
        let is_far = |of: &ParameterReport| of.parameter.sds_from_prior(of.value) > STRAINED_SDS;
        parameters.iter().any(|of| held.contains(&of.parameter.name) && is_far(of))
    }
}

/// Mean error of the means of 50 times of a kind, averaged over the kinds, of the rows to fit from `cut` on.
fn error_of(run: &StepRun<'_>, cut: usize, by: &Correction) -> f64 {
    let range = cut..run.fitted.end;
    let rows: Vec<(&Interval, _)> = run.part(&range).0.iter().zip(run.terms(&range)).collect();
    let of_kind = |kind: BatchKind| {
        let times: Vec<(f64, f64)> = rows
            .iter()
            .filter(|(_, (of, _))| *of == kind)
            .map(|(row, (_, basis))| (row.period_us(), run.case.period_us(by, row, basis)))
            .collect();
        let window = |times: &[(f64, f64)]| {
            let (measured, predicted) =
                times.iter().fold((0.0, 0.0), |(m, p), (measured, predicted)| (m + measured, p + predicted));
            (predicted / measured - 1.0).abs()
        };
        let windows: Vec<f64> =
            times.chunks(USUAL_ROWS).filter(|times| times.len() >= LEAST_ROWS).map(window).collect();
        mean(&windows)
    };
    let kinds = [BatchKind::Decodes, BatchKind::WithPrompts, BatchKind::Several];
    mean(&kinds.into_iter().filter_map(of_kind).collect::<Vec<_>>()).unwrap_or(0.0)
}

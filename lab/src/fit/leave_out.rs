//! Fits with a group of runs left out, and the scatter of the left-out runs: the error to expect for a model that was never
//! measured. Uses `fit_serving`, `problem`, `evaluate::case`.
#![expect(clippy::indexing_slicing, reason = "the index counts the list itself")]

use super::fit_rows::{Prior, parameters_of};
use super::fit_serving::{fit_serving, replayed_rows};
use super::problem::{FitRow, Target};
use crate::evaluate::case::Case;
use crate::evaluate::fold::{GroupBy, groups_to_leave_out};
use ridgepoint::correction::{SDS_OF_90_PCT, Scatter};
use ridgepoint::{Correction, Result};

/// A group of runs that was left out of a fit.
#[derive(Debug, Clone)]
pub struct LeftOut {
    /// The model, workload or experiment.
    pub group: String,
    /// The correction fitted on all other runs. Its scatter is that of the other groups, so it has not seen this one either.
    pub correction: Correction,
    residuals: Vec<Residual>,
}

/// Error of a left-out figure.
#[derive(Debug, Clone, Copy)]
struct Residual {
    target: Target,
    log_error: f64,
    coefficients_sd: f64,
    weight: f64,
}

/// Fits once per group, each time without that group, starting from `start`.
///
/// # Errors
/// `ErrorKind::InvalidArgument` if there are fewer than two groups; otherwise as [`fit_serving`].
pub fn leave_out(
    cases: &[&Case],
    by: GroupBy,
    prior: &Prior,
    start: &Correction,
    seed: u64,
    done: &(dyn Fn() + Sync),
) -> Result<Vec<LeftOut>> {
    let groups = groups_to_leave_out(cases.iter().map(|case| &case.labels), by)?;
    let fit = |group: String| {
        let (out, seen): (Vec<&Case>, Vec<&Case>) = cases.iter().partition(|case| case.labels.group(by) == group);
        let (fitted, _) = fit_serving(&format!("all but {group}"), &seen, prior, start, seed, done)?;
        let rows = replayed_rows(&out, &fitted.correction, seed, done)?;
        let residuals = rows.iter().flatten().map(|row| residual(row, &fitted.correction)).collect();
        Ok(LeftOut { group, correction: fitted.correction, residuals })
    };
    let mut all: Vec<LeftOut> = groups.into_iter().map(fit).collect::<Result<_>>()?;
    for index in 0..all.len() {
        all[index].correction.scatter = scatter(all[..index].iter().chain(&all[index + 1..]));
    }
    Ok(all)
}

fn residual(row: &FitRow, correction: &Correction) -> Residual {
    Residual {
        target: row.target,
        log_error: (row.predicted(&parameters_of(correction)) / row.measured).ln(),
        coefficients_sd: correction.coefficients_sd(&row.basis()),
        weight: row.weight,
    }
}

/// The scatter of left-out figures, which a model that was never measured gets.
pub fn scatter<'a>(left_out: impl IntoIterator<Item = &'a LeftOut>) -> Scatter {
    let residuals: Vec<Residual> = left_out.into_iter().flat_map(|of| of.residuals.iter().copied()).collect();
    let of = |target: Target| -> Vec<Residual> { residuals.iter().filter(|r| r.target == target).copied().collect() };
    let usual = Scatter::default();
    Scatter {
        step: covering(&of(Target::Decoding)).unwrap_or(usual.step),
        ttft: covering(&of(Target::Ttft)).unwrap_or(usual.ttft),
    }
}

/// The least scatter with which intervals hold nine tenths of the figures, given the uncertainty of the coefficients. At
/// least 1 %.
fn covering(residuals: &[Residual]) -> Option<f64> {
    let total: f64 = residuals.iter().map(|r| r.weight).sum();
    if residuals.is_empty() || total <= 0.0 {
        return None;
    }
    // The scatter that each figure needs: |error| = 1.645·√(coefficients² + scatter²).
    let needed = |r: &Residual| {
        let beyond = (r.log_error / SDS_OF_90_PCT).powi(2) - r.coefficients_sd.powi(2);
        (beyond.max(0.0).sqrt(), r.weight)
    };
    let mut needed: Vec<(f64, f64)> = residuals.iter().map(needed).collect();
    needed.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut held = 0.0;
    let enough = needed.iter().find(|(_, weight)| {
        held += weight;
        held >= 0.9 * total
    });
    enough.or(needed.last()).map(|(scatter, _)| scatter.max(0.01))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn residual(log_error: f64, coefficients_sd: f64, weight: f64) -> Residual {
        Residual { target: Target::Decoding, log_error, coefficients_sd, weight }
    }

    #[test]
    fn nine_tenths_of_the_weight_is_covered() {
        let ten: Vec<Residual> = (1..=10).map(|i| residual(-0.01 * f64::from(i), 0.0, 1.0)).collect();
        let scatter = covering(&ten).expect("ten");
        assert!((scatter * SDS_OF_90_PCT - 0.09).abs() < 1e-12, "{scatter}");
        // The largest counts little: the others are enough.
        let light = [residual(0.02, 0.0, 9.5), residual(0.5, 0.0, 0.5)];
        assert!((covering(&light).expect("two") - 0.02 / SDS_OF_90_PCT).abs() < 1e-12);
        assert!(covering(&[]).is_none());
    }

    #[test]
    fn few_runs_say_little_of_their_scatter() {
        let (own, prior) = (Scatter { step: 0.01, ttft: 0.02 }, Scatter { step: 0.05, ttft: 0.2 });
        let prior = Prior::around(&Correction { scatter: prior, ..Correction::neutral() });
        let two = prior.shrunk(own, 2);
        assert!((two.step - 0.0013f64.sqrt()).abs() < 1e-12 && (two.ttft - 0.0202f64.sqrt()).abs() < 1e-12);
        assert!((prior.shrunk(own, 1000).step - 0.01).abs() < 1e-3);
    }

    #[test]
    fn what_the_coefficients_leave_open_is_not_counted_twice() {
        let error = SDS_OF_90_PCT * 0.05;
        let scatter = covering(&[residual(error, 0.03, 1.0)]).expect("one");
        assert!((scatter - 0.04).abs() < 1e-12);
        assert_eq!(covering(&[residual(error, 0.06, 1.0)]), Some(0.01));
    }
}

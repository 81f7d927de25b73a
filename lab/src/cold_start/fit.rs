//! Fits rates of a start to the times of several logs: in logarithms, robustly, and shrunk towards the assumed rates.
#![expect(clippy::indexing_slicing, reason = "a matrix has a row for every parameter")]

use nalgebra::DMatrix;
use ridgepoint::cold_start::{FittedRate, RateName, Rates};
use ridgepoint::internals::correction::SDS_OF_90_PCT;
use ridgepoint::{Error, Result};
use serde::Serialize;

use super::measured::{Measured, Sum};
use crate::fit::IDENTIFIED_SD_SHARE;
use crate::huber;
use crate::solver::{LeastSquares, NumericFit, Options, Parameter, minimise, slopes};

/// Standard deviation of the logarithm of a time between starts of one server, assumed. Residuals that are larger widen it.
const SCATTER: f64 = 0.1;
const OPTIONS: Options = Options { max_iterations: 300, tolerance: 1e-12 };

/// A rate after the fit. JSON keys are stable.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct RateFit {
    /// The rate.
    pub rate: RateName,
    /// Its value before the logs.
    pub prior: f64,
    /// Its value.
    pub value: f64,
    /// Lower end of the 90 % interval of the rate itself.
    pub lower: f64,
    /// Upper end.
    pub upper: f64,
    /// Standard deviation of its logarithm.
    pub sd: f64,
    /// Whether the logs tell it: they reduce its standard deviation below two thirds of the prior's.
    pub identified: bool,
    /// Times that it is part of.
    pub times: usize,
}

impl RateFit {
    /// The rate as a file has it.
    pub fn stored(&self) -> FittedRate {
        FittedRate { value: self.value, sd: self.sd, identified: self.identified }
    }
}

/// Rates fitted to measured times; those that no time depends on are left out. The second value is the scatter between starts.
///
/// # Formula
/// Minimises `Σ huber((ln predicted − ln measured) / s) + ½ Σ ((ln rate − ln prior) / prior_sd)²` with
/// `s² = scatter² + (rounding / measured)²`. The covariance is that of the curvature at the minimum; residuals that are larger than
/// their `s` widen it and the scatter.
///
/// # Errors
/// `ErrorKind::Invalid` for times that no rate explains, or if the curvature overflows.
pub(super) fn fit_rows(rows: &[(Measured, Sum)], prior: &Rates) -> Result<(Vec<RateFit>, f64)> {
    let mut names: Vec<RateName> = rows.iter().flat_map(|(_, sum)| sum.names()).collect();
    names.sort_unstable();
    names.dedup();
    if names.is_empty() {
        return Err(Error::invalid("the logs", vec!["tell no time that a rate is part of".to_owned()]));
    }
    let parameter = |name: &RateName| {
        let rate = prior.of(*name);
        Parameter {
            name: name.name(),
            unit: "logarithm",
            prior: rate.value.ln(),
            prior_sd: ((rate.upper / rate.lower).ln() / (2.0 * SDS_OF_90_PCT)).max(1e-3),
            bounds: (f64::NEG_INFINITY, f64::INFINITY),
        }
    };
    let residuals = |values: &[f64]| {
        let rate = |name: RateName| {
            let at = names.binary_search(&name).ok();
            at.and_then(|at| values.get(at)).map_or_else(|| prior.of(name).value, |value| value.exp())
        };
        let residual = |(measured, sum): &(Measured, Sum)| {
            let sd = SCATTER.hypot(measured.rounding_s / measured.seconds);
            (sum.seconds(rate) / measured.seconds).ln() / sd
        };
        Ok(rows.iter().map(residual).collect())
    };
    let parameters: Vec<Parameter> = names.iter().map(parameter).collect();
    let start: Vec<f64> = parameters.iter().map(|of| of.prior).collect();
    let problem = NumericFit { residuals, parameters, difference: 1e-6 };
    let values = minimise(&problem, &start, OPTIONS)?.values;

    let data = slopes(&problem, &values)?.data_curvature;
    let precision = |i: usize| problem.parameters[i].prior_sd.powi(-2);
    let size = names.len();
    let covariance = |widened: f64| {
        let curvature =
            DMatrix::from_fn(size, size, |i, j| data[(i, j)] / widened + if i == j { precision(i) } else { 0.0 });
        let overflow = || Error::invalid("the fit", vec!["the curvature of the times overflows".to_owned()]);
        curvature.cholesky().map(|cholesky| cholesky.inverse()).ok_or_else(overflow)
    };
    let mut found = covariance(1.0)?;
    let determined = size as f64 - (0..size).map(|i| found[(i, i)] * precision(i)).sum::<f64>();
    let squares: f64 = problem.residuals(&values)?.iter().map(|r| huber::weight(*r) * r * r).sum();
    let dof = rows.len() as f64 - determined;
    let mut widened = 1.0;
    // Without a degree of freedom, the times do not tell their own scatter.
    if dof > 0.5 {
        widened = (squares / huber::MEAN_WEIGHTED_SQUARE / dof).max(1.0);
        found = covariance(widened)?;
    }
    let rate_fit = |(at, name): (usize, &RateName)| {
        let (value, sd) = (values[at].exp(), found[(at, at)].max(0.0).sqrt());
        let factor = (SDS_OF_90_PCT * sd).exp();
        RateFit {
            rate: *name,
            prior: prior.of(*name).value,
            value,
            lower: value / factor,
            upper: value * factor,
            sd,
            identified: sd < IDENTIFIED_SD_SHARE * problem.parameters[at].prior_sd,
            times: rows.iter().filter(|(_, sum)| sum.names().any(|of| of == *name)).count(),
        }
    };
    Ok((names.iter().enumerate().map(rate_fit).collect(), SCATTER * widened.sqrt()))
}

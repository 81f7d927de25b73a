//! Fits rates of a start to the times of several logs: in logarithms, robustly, and shrunk towards the assumed rates.
#![expect(clippy::indexing_slicing, reason = "a matrix has a row for every parameter")]

use nalgebra::DMatrix;
use ridgepoint::correction::SDS_OF_90_PCT;
use ridgepoint::{Error, Result};
use ridgepoint_replay::cold_start::{FittedRate, RateName, Rates};
use serde::Serialize;

use super::measured::{MeasuredTime, RateSum};
use crate::fit::IDENTIFIED_SD_SHARE;
use crate::huber;
use crate::solver::{LeastSquares, NumericFit, Options, Parameter, minimise, slopes};

/// Standard deviation of the logarithm of a time between starts of one server, assumed. Residuals that are larger widen it.
const SCATTER: f64 = 0.1;
/// Standard deviation of any time from what else the host does, s, assumed. It keeps times of hundredths of a second from deciding how
/// far starts scatter.
const JITTER_S: f64 = 0.1;
/// Residuals that exceed their expected square by less than this share do not widen the scatter.
const ENOUGH: f64 = 1.02;
/// Rounds of a fit; the scatter comes close to its end in a few.
const MOST_ROUNDS: u32 = 20;
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
    /// Whether the logs determine it: they reduce its standard deviation below two thirds of the prior's.
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
/// `s² = scatter² + (rounding² + jitter²) / measured²`. The covariance is that of the curvature at the minimum. The scatter is at least the assumed
/// one, and grows until residuals are as large as their `s`. A rate that the logs do not determine keeps its prior uncertainty.
///
/// # Errors
/// `ErrorKind::Invalid` for times that no rate explains, or if the curvature overflows.
pub(super) fn fit_rows(rows: &[(MeasuredTime, RateSum)], prior: &Rates) -> Result<(Vec<RateFit>, f64)> {
    let mut names: Vec<RateName> = rows.iter().flat_map(|(_, sum)| sum.names()).collect();
    names.sort_unstable();
    names.dedup();
    if names.is_empty() {
        return Err(Error::invalid("the logs", vec!["no start-up time that can be fitted".to_owned()]));
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
    let parameters: Vec<Parameter> = names.iter().map(parameter).collect();
    let mut values: Vec<f64> = parameters.iter().map(|of| of.prior).collect();
    let mut scatter = SCATTER;
    let (mut covariance, mut rounds) = (DMatrix::zeros(0, 0), 0);
    // Huber's loss takes large residuals for outliers, so the scatter grows round by round until it explains them.
    while rounds < MOST_ROUNDS {
        let residuals = |values: &[f64]| {
            let rate = |name: RateName| {
                let at = names.binary_search(&name).ok();
                at.and_then(|at| values.get(at)).map_or_else(|| prior.of(name).value, |value| value.exp())
            };
            let residual = |(measured, sum): &(MeasuredTime, RateSum)| {
                let sd = scatter.hypot(measured.rounding_s.hypot(JITTER_S) / measured.seconds);
                (sum.seconds(rate) / measured.seconds).ln() / sd
            };
            Ok(rows.iter().map(residual).collect())
        };
        let problem = NumericFit { residuals, parameters: parameters.clone(), difference: 1e-6 };
        values = minimise(&problem, &values, OPTIONS)?.values;
        let Some(cholesky) = slopes(&problem, &values)?.curvature.cholesky() else {
            return Err(Error::invalid("the fit", vec!["the curvature of the times overflows".to_owned()]));
        };
        covariance = cholesky.inverse();
        let undetermined = |(at, of): (usize, &Parameter)| covariance[(at, at)] * of.prior_sd.powi(-2);
        let determined = names.len() as f64 - parameters.iter().enumerate().map(undetermined).sum::<f64>();
        let dof = rows.len() as f64 - determined;
        let widened = huber::chi_square(problem.residuals(&values)?.into_iter().map(|r| (1.0, r))) / dof;
        rounds += 1;
        // Without a degree of freedom, the times do not determine their own scatter.
        if dof < 0.5 || widened < ENOUGH {
            break;
        }
        scatter *= widened.sqrt();
    }
    let rate_fit = |(at, name): (usize, &RateName)| {
        let (value, prior_sd) = (values[at].exp(), parameters[at].prior_sd);
        let fitted_sd = covariance[(at, at)].max(0.0).sqrt();
        let identified = fitted_sd < IDENTIFIED_SD_SHARE * prior_sd;
        // The sum of two rates that only occur together is known, and the normal approximation is too sure of each.
        let sd = if identified { fitted_sd } else { prior_sd };
        let factor = (SDS_OF_90_PCT * sd).exp();
        RateFit {
            rate: *name,
            prior: prior.of(*name).value,
            value,
            lower: value / factor,
            upper: value * factor,
            sd,
            identified,
            times: rows.iter().filter(|(_, sum)| sum.names().any(|of| of == *name)).count(),
        }
    };
    Ok((names.iter().enumerate().map(rate_fit).collect(), scatter))
}

//! Learns the widths of priors from the evidence of the rows.
#![expect(clippy::indexing_slicing, reason = "matrices are square, with a row for every parameter")]

use nalgebra::DMatrix;
use serde::Serialize;

use super::problem::Problem;
use crate::solver::{Parameter, Solution, slopes};
use ridgepoint::Result;

/// Factors on the standard deviations of priors that are tried.
const TRIED: [f64; 4] = [1.0, 4.0, 16.0, 64.0];
/// Gain of log evidence below which a parameter keeps its assumed prior: odds of one in twenty that it is far from it (assumed).
const LEAST_GAIN: f64 = 3.0;

/// How much wider priors are than assumed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Widths {
    /// Factor on the standard deviations of factors on times.
    pub factors: f64,
    /// Factor on those of prices.
    pub prices: f64,
    /// Parameters that keep their assumed priors.
    pub as_assumed: Vec<&'static str>,
}

impl Widths {
    /// As assumed.
    pub const ASSUMED: Widths = Widths { factors: 1.0, prices: 1.0, as_assumed: Vec::new() };
    /// The widest that are tried.
    pub(super) const WIDEST: Widths =
        Widths { factors: TRIED[TRIED.len() - 1], prices: TRIED[TRIED.len() - 1], as_assumed: Vec::new() };

    /// The factor on the standard deviation of a parameter's prior.
    pub(super) fn of(&self, name: &str, is_factor: bool) -> f64 {
        if self.as_assumed.contains(&name) {
            1.0
        } else if is_factor {
            self.factors
        } else {
            self.prices
        }
    }
}

/// Finds the widths of greatest evidence for the rows of a problem: one for all parameters, then one for each kind. Then each parameter goes
/// back to its assumed prior unless the evidence falls by more than [`LEAST_GAIN`]. `parameters` returns the parameters with the priors of some
/// widths; those of `as_assumed` are never widened; fits begin at `start`.
///
/// # Errors
/// Those of a fit.
pub(super) fn learned(
    problem: Problem,
    parameters: &dyn Fn(&Widths) -> Vec<Parameter>,
    as_assumed: &[&'static str],
    start: &[f64],
) -> Result<Widths> {
    let mut search = WidthSearch { problem, parameters, best: None, at: start.to_vec() };
    for factor in TRIED {
        search.try_out(&Widths { factors: factor, prices: factor, as_assumed: as_assumed.to_vec() })?;
    }
    search.try_kinds()?;
    while search.take_back()? {
        search.try_kinds()?;
    }
    Ok(search.best.map_or(Widths::ASSUMED, |best| best.widths))
}

struct WidthSearch<'p> {
    problem: Problem,
    parameters: &'p dyn Fn(&Widths) -> Vec<Parameter>,
    best: Option<Supported>,
    at: Vec<f64>,
}

struct Supported {
    /// Logarithm of the evidence, less what each widened prior must gain.
    score: f64,
    widths: Widths,
}

impl WidthSearch<'_> {
    /// Fits with these widths, and keeps them if they are better than the best so far.
    fn try_out(&mut self, widths: &Widths) -> Result<bool> {
        self.problem.parameters = (self.parameters)(widths);
        let solution = self.problem.minimise(&self.at)?;
        let widened = self.problem.parameters.len() - widths.as_assumed.len();
        let score = log_evidence(&self.problem, &solution)? - LEAST_GAIN * widened as f64;
        self.at = solution.values;
        let is_best = self.best.as_ref().is_none_or(|best| score > best.score);
        if is_best {
            self.best = Some(Supported { score, widths: widths.clone() });
        }
        Ok(is_best)
    }

    /// One kind at a time, next to the best so far.
    fn try_kinds(&mut self) -> Result<()> {
        for is_factor in [true, false] {
            for factor in TRIED {
                let Some(best) = &self.best else { return Ok(()) };
                let mut widths = best.widths.clone();
                let of_kind = if is_factor { &mut widths.factors } else { &mut widths.prices };
                if (*of_kind - factor).abs() > 0.0 {
                    *of_kind = factor;
                    self.try_out(&widths)?;
                }
            }
        }
        Ok(())
    }

    /// Each widened parameter by itself, those first that are nearest to their priors; whether any is taken back.
    fn take_back(&mut self) -> Result<bool> {
        let mut any = false;
        let assumed = (self.parameters)(&Widths::ASSUMED);
        let mut order: Vec<(f64, &'static str)> =
            assumed.into_iter().zip(&self.at).map(|(of, value)| (of.sds_from_prior(*value), of.name)).collect();
        order.sort_by(|a, b| a.0.total_cmp(&b.0));
        for (_, name) in order {
            let Some(best) = &self.best else { break };
            let mut widths = best.widths.clone();
            if !widths.as_assumed.contains(&name) {
                widths.as_assumed.push(name);
                any |= self.try_out(&widths)?;
            }
        }
        Ok(any)
    }
}

/// Logarithm of the probability of the rows given the prior's widths, but for a constant.
///
/// # Formula
/// Laplace's approximation at the minimum: `−cost − ½ ln det(1 + S·H·S)` with H the rows' curvature and S the prior's standard deviations.
/// MacKay, "Bayesian interpolation" (1992).
fn log_evidence(problem: &Problem, solution: &Solution) -> Result<f64> {
    let size = problem.parameters.len();
    let sd = |index: usize| if problem.parameters[index].is_fixed() { 0.0 } else { problem.parameters[index].prior_sd };
    let data = slopes(problem, &solution.values)?.data_curvature;
    let scaled = DMatrix::from_fn(size, size, |row, column| data[(row, column)] * sd(row) * sd(column));
    let factored = (DMatrix::identity(size, size) + scaled).cholesky();
    // Half the logarithm of the determinant is the sum of the logarithms of the factor's diagonal.
    let half_log_determinant = factored.map_or(f64::INFINITY, |of| of.l().diagonal().iter().map(|d| d.ln()).sum());
    Ok(-solution.cost_after - half_log_determinant)
}

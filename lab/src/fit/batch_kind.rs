//! Kinds of batch, each with its own scatter of times, and the number of independent rows that the rows of a kind count as.
#![expect(clippy::indexing_slicing, reason = "there is a scale for every kind")]

use crate::stats::{mean, median, robust_sd};
use ridgepoint::correction::{Basis, Term};

/// Least scatter of single times: clocks and kernels repeat no better (assumed).
const LEAST_SD: f64 = 0.01;
/// Fewer rows of a kind than this have the scatter of all.
const ROWS_FOR_OWN_SCATTER: usize = 10;
/// Correlations of residuals are summed up to a lag of one for so many of a kind's rows.
const ROWS_PER_LAG: usize = 5;
/// Standard deviations at which a residual is cut before its correlation is taken.
const FAR_SDS: f64 = 4.0;

/// What a time is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum BatchKind {
    /// One step of decodes alone.
    Decodes,
    /// One step with prompt tokens.
    WithPrompts,
    /// Several steps; the trace describes one or two of them.
    Several,
}

impl BatchKind {
    /// Number of kinds.
    pub(super) const COUNT: usize = 3;

    /// The kind of a time with these terms, of steps that are all described or not.
    pub(super) fn of(basis: &Basis, is_described: bool) -> BatchKind {
        match (is_described, basis.get(Term::PrefillRequests) > 0.0) {
            (false, _) => BatchKind::Several,
            (true, true) => BatchKind::WithPrompts,
            (true, false) => BatchKind::Decodes,
        }
    }
}

/// Scatter of the times of a kind, and the weight of its rows in a fit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Scale {
    /// Standard deviation of ln(measured / predicted) around the kind's median.
    pub(super) sd: f64,
    /// Number of independent rows that a row counts as, at most 1.
    pub(super) independent: f64,
}

impl Scale {
    /// Before anything is fitted.
    pub(super) fn expected(sd: f64) -> Scale {
        Scale { sd, independent: 1.0 }
    }

    /// Of errors in the order of time.
    fn of(errors: &[f64], of_all: f64, rows_per_row: f64) -> Scale {
        let own = if errors.len() < ROWS_FOR_OWN_SCATTER { of_all } else { robust_sd(errors.to_vec()) };
        Scale { sd: own.max(LEAST_SD), independent: 1.0 / (rows_per_row * rows_per_independent(errors)) }
    }
}

/// The scale of each kind, from a run's errors ln(measured / predicted) in the order of time. So many independent rows count as one.
pub(super) fn scales(errors: &[(BatchKind, f64)], rows_per_row: f64) -> [Scale; BatchKind::COUNT] {
    let of_all = robust_sd(errors.iter().map(|(_, error)| *error).collect());
    [BatchKind::Decodes, BatchKind::WithPrompts, BatchKind::Several].map(|kind| {
        let of_kind: Vec<f64> = errors.iter().filter(|(of, _)| *of == kind).map(|(_, error)| *error).collect();
        Scale::of(&of_kind, of_all, rows_per_row)
    })
}

/// Number of rows that say as much about a mean as one independent row: `1 + 2 Σ ρ(lag)`, at least 1.
///
/// # Source
/// Geyer, "Practical Markov chain Monte Carlo" (1992): the sum ends before the first pair of neighbouring lags whose correlations are
/// negative together, beyond which they are noise.
pub(super) fn rows_per_independent(errors: &[f64]) -> f64 {
    let sd = robust_sd(errors.to_vec());
    let Some(middle) = median(errors.to_vec()).filter(|_| sd > 0.0) else { return 1.0 };
    let cut: Vec<f64> = errors.iter().map(|error| (error - middle).clamp(-FAR_SDS * sd, FAR_SDS * sd)).collect();
    let centre = mean(&cut).unwrap_or_default();
    let at_lag =
        |lag: usize| -> f64 { cut.iter().zip(cut.iter().skip(lag)).map(|(a, b)| (a - centre) * (b - centre)).sum() };
    let variance = at_lag(0);
    if variance <= 0.0 {
        return 1.0;
    }
    let longest = errors.len() / ROWS_PER_LAG;
    let pairs = (1..longest.max(1)).step_by(2).map(|lag| (at_lag(lag) + at_lag(lag + 1)) / variance);
    (1.0 + 2.0 * pairs.take_while(|pair| *pair > 0.0).sum::<f64>()).max(1.0)
}

/// The scale of a kind.
pub(super) fn scale_of(scales: &[Scale; BatchKind::COUNT], kind: BatchKind) -> Scale {
    scales[kind as usize]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An autoregression of coefficient `of` driven by a fixed pseudo-random sequence of unit variance.
    fn series(of: f64, count: usize) -> Vec<f64> {
        let mut state = 12_345_u64;
        let mut draw = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            12f64.sqrt() * ((state >> 11) as f64 / (1u64 << 53) as f64 - 0.5)
        };
        let mut last = 0.0;
        (0..count)
            .map(|_| {
                last = of * last + (1.0 - of * of).sqrt() * draw();
                last
            })
            .collect()
    }

    #[test]
    fn rows_that_err_together_count_as_fewer() {
        // The correlation time of an autoregression is (1 + a) / (1 − a).
        for (of, expected) in [(0.0, 1.0), (0.5, 3.0), (0.8, 9.0)] {
            let found = rows_per_independent(&series(of, 20_000));
            assert!((found / expected - 1.0).abs() < 0.15, "{of}: {found}, not {expected}");
        }
        assert!(
            (rows_per_independent(&[]) - 1.0).abs() < 1e-12 && (rows_per_independent(&[0.1; 9]) - 1.0).abs() < 1e-12
        );
    }

    #[test]
    fn a_kind_scatters_around_its_own_median() {
        let decodes = series(0.0, 1000).into_iter().map(|error| (BatchKind::Decodes, 0.02 * error));
        let prompts = series(0.0, 100).into_iter().map(|error| (BatchKind::WithPrompts, 0.4 + 0.1 * error));
        let found = scales(&decodes.chain(prompts).collect::<Vec<_>>(), 1.0);
        let sd = |kind| scale_of(&found, kind).sd;
        // MAD of a uniform distribution: √3 / 2 standard deviations, times 1.4826.
        let of_uniform = 1.4826 * 3f64.sqrt() / 2.0;
        assert!((sd(BatchKind::Decodes) / (0.02 * of_uniform) - 1.0).abs() < 0.1, "{found:?}");
        assert!((sd(BatchKind::WithPrompts) / (0.1 * of_uniform) - 1.0).abs() < 0.25, "{found:?}");
    }
}

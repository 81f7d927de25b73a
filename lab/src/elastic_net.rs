//! Straight lines through rows of many columns: ridge and lasso, the two ends of the elastic net, by coordinate descent.
//!
//! Columns are standardised by their mean and deviation. The penalty is chosen by folds in the order of the rows: each judges a block by
//! what came before it.
#![expect(clippy::indexing_slicing, reason = "rows have a value for every column")]

use std::fmt;

use nalgebra::{DMatrix, DVector};
use serde::Serialize;

/// Blocks of the rows, in order. All but the first are judged.
const BLOCKS: usize = 5;
/// Penalties that are tried, the greatest first: a quarter of a decade apart.
const PENALTIES: i32 = 25;
/// The greatest penalty is taken whose error is at most this share above the least.
const ERROR_TOLERANCE: f64 = 0.02;
/// Rounds over all columns, at most, and the change of a coefficient below which they end, in deviations of the target.
const ROUNDS: usize = 5000;
const CONVERGED_CHANGE: f64 = 1e-10;

/// What is paid for a coefficient `b` of standardised columns, times λ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Penalty {
    /// `b² / 2`: columns that go together share.
    Ridge,
    /// `|b|`: columns that say little are dropped.
    Lasso,
}

/// The name that JSON has too.
impl fmt::Display for Penalty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// One row of the data: its columns and its target.
#[derive(Debug, Clone, PartialEq)]
pub struct Observation {
    /// Columns.
    pub x: Vec<f64>,
    /// Target.
    pub y: f64,
}

/// A fitted line.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    /// Target where all columns are 0.
    pub intercept: f64,
    /// By column: 0 if it was dropped, `None` if it is constant.
    pub coefficients: Vec<Option<f64>>,
    /// λ.
    pub penalty: f64,
}

/// Fits a line to rows in the order of time; `None` with fewer rows than blocks, or if the target is constant. With `non_negative` neither
/// the intercept nor a coefficient is below 0.
///
/// # Formula
/// The least `Σ (y − a − b·x)² / 2n + λ · penalty(b)` over standardised columns and targets. An intercept that would be negative is 0:
/// the problem is convex.
pub fn fit(rows: &[Observation], penalty: Penalty, non_negative: bool) -> Option<Line> {
    let standard = Standard::of(rows)?;
    let size = rows.len() / BLOCKS;
    if size == 0 {
        return None;
    }
    let blocks: Vec<Moments> = (0..BLOCKS)
        .map(|at| &rows[at * size..if at + 1 == BLOCKS { rows.len() } else { (at + 1) * size }])
        .map(|rows| Moments::of(rows, &standard))
        .collect();
    let before: Vec<Moments> = (1..=BLOCKS).map(|until| Moments::sum(&blocks[..until])).collect();
    let problem = |moments| PenalisedProblem { moments, standard: &standard, penalty, non_negative };
    let penalties: Vec<f64> = (0..PENALTIES).map(|at| 10f64.powf(-0.25 * f64::from(at))).collect();
    let mut errors = vec![0.0; penalties.len()];
    for (training, judged) in before.iter().zip(&blocks[1..]) {
        let mut b = DVector::zeros(standard.columns());
        for (error, lambda) in errors.iter_mut().zip(&penalties) {
            let a = problem(training).solve(&mut b, *lambda);
            *error += judged.squared_error(a, &b);
        }
    }
    let least = errors.iter().copied().fold(f64::INFINITY, f64::min);
    let most = least * (1.0 + ERROR_TOLERANCE).powi(2);
    let chosen = errors.iter().position(|error| *error <= most)?;
    let (mut a, mut b) = (0.0, DVector::zeros(standard.columns()));
    for lambda in &penalties[..=chosen] {
        a = problem(before.last()?).solve(&mut b, *lambda);
    }
    Some(standard.line(a, &b, penalties[chosen]))
}

/// Means and deviations, those of the target last.
struct Standard {
    mean: DVector<f64>,
    /// 0 for a constant column.
    sd: DVector<f64>,
}

impl Standard {
    fn of(rows: &[Observation]) -> Option<Self> {
        let count = rows.len() as f64;
        let width = rows.first()?.x.len() + 1;
        let mean = rows.iter().fold(DVector::zeros(width), |sum, row| sum + row.vector()) / count;
        let squares = rows.iter().fold(DVector::zeros(width), |sum, row| sum + (row.vector() - &mean).map(|x| x * x));
        // Equal values differ from their mean by rounding alone.
        let sd = (squares / count).zip_map(&mean, |square, mean| {
            let sd = square.sqrt();
            if sd > 1e-9 * mean.abs() { sd } else { 0.0 }
        });
        (sd[width - 1] > 0.0 && sd.iter().chain(&mean).all(|of| of.is_finite())).then_some(Standard { mean, sd })
    }

    fn columns(&self) -> usize {
        self.sd.len() - 1
    }

    /// A row in deviations from the means; 0 where all are equal.
    fn scaled(&self, row: &Observation) -> DVector<f64> {
        (row.vector() - &self.mean).zip_map(&self.sd, |x, sd| if sd > 0.0 { x / sd } else { 0.0 })
    }

    /// How many deviations the means are from 0.
    fn origin(&self) -> DVector<f64> {
        self.mean.zip_map(&self.sd, |mean, sd| if sd > 0.0 { mean / sd } else { 0.0 })
    }

    fn line(&self, a: f64, b: &DVector<f64>, penalty: f64) -> Line {
        let (y, columns) = (self.columns(), 0..self.columns());
        let of = |at: usize| (self.sd[at] > 0.0).then(|| self.sd[y] * b[at] / self.sd[at]);
        let coefficients: Vec<Option<f64>> = columns.map(of).collect();
        let moved: f64 = coefficients.iter().zip(&self.mean).filter_map(|(of, mean)| Some((*of)? * mean)).sum();
        let intercept = self.mean[y] + self.sd[y] * a - moved;
        Line { intercept, coefficients, penalty }
    }
}

impl Observation {
    fn vector(&self) -> DVector<f64> {
        DVector::from_iterator(self.x.len() + 1, self.x.iter().copied().chain([self.y]))
    }
}

/// Sums over standardised rows, the target last.
struct Moments {
    count: f64,
    first: DVector<f64>,
    second: DMatrix<f64>,
}

impl Moments {
    fn of(rows: &[Observation], standard: &Standard) -> Self {
        let width = standard.sd.len();
        let mut sums = Moments { count: 0.0, first: DVector::zeros(width), second: DMatrix::zeros(width, width) };
        for row in rows {
            let z = standard.scaled(row);
            sums.count += 1.0;
            sums.second.ger(1.0, &z, &z, 1.0);
            sums.first += z;
        }
        sums
    }

    fn sum(of: &[Moments]) -> Self {
        let width = of[0].first.len();
        let zero = Moments { count: 0.0, first: DVector::zeros(width), second: DMatrix::zeros(width, width) };
        of.iter().fold(zero, |sum, more| Moments {
            count: sum.count + more.count,
            first: sum.first + &more.first,
            second: sum.second + &more.second,
        })
    }

    /// Mean of `(y − a − b·x)²`.
    fn squared_error(&self, a: f64, b: &DVector<f64>) -> f64 {
        let residual = DVector::from_iterator(b.len() + 1, b.iter().map(|b| -b).chain([1.0]));
        let squares = (self.second.clone() * &residual).dot(&residual) - 2.0 * a * self.first.dot(&residual);
        squares / self.count + a * a
    }
}

/// A penalised problem of least squares.
struct PenalisedProblem<'a> {
    moments: &'a Moments,
    standard: &'a Standard,
    penalty: Penalty,
    non_negative: bool,
}

impl PenalisedProblem<'_> {
    /// Moves the coefficients to the minimum, and returns the intercept.
    fn solve(&self, b: &mut DVector<f64>, lambda: f64) -> f64 {
        let mean = &self.moments.first / self.moments.count;
        let second = &self.moments.second / self.moments.count;
        self.descend(&(&second - &mean * mean.transpose()), b, lambda);
        let last = self.standard.columns();
        let a = mean[last] - mean.rows(0, last).dot(b);
        let origin = self.standard.origin();
        // The intercept in units of the target's deviation.
        let intercept = origin[last] + a - origin.rows(0, last).dot(b);
        if !self.non_negative || intercept >= 0.0 {
            return a;
        }
        // Through the origin: products of values instead of deviations.
        let mixed = &mean * origin.transpose();
        self.descend(&(second + &mixed + mixed.transpose() + &origin * origin.transpose()), b, lambda);
        origin.rows(0, last).dot(b) - origin[last]
    }

    /// Coordinate descent; `products` are mean products of columns, the target last.
    fn descend(&self, products: &DMatrix<f64>, b: &mut DVector<f64>, lambda: f64) {
        let y = b.len();
        let (lasso, ridge) = if self.penalty == Penalty::Lasso { (lambda, 0.0) } else { (0.0, lambda) };
        for _ in 0..ROUNDS {
            let mut change = 0.0f64;
            for at in (0..y).filter(|at| self.standard.sd[*at] > 0.0) {
                let without = products[(at, y)] - products.column(at).rows(0, y).dot(b) + products[(at, at)] * b[at];
                let least = if self.non_negative { 0.0 } else { f64::NEG_INFINITY };
                let shrunk = (without.max(least).abs() - lasso).max(0.0).copysign(without);
                let curvature = products[(at, at)] + ridge;
                let value = if curvature > 0.0 { (shrunk / curvature).max(least) } else { 0.0 };
                change = change.max((value - b[at]).abs());
                b[at] = value;
            }
            if change < CONVERGED_CHANGE {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{RngExt, SeedableRng};
    use rand_pcg::Pcg64;

    /// `y = 50 + 3·x₀ − 2·x₁ + 0·x₂`, in columns of very different sizes, with noise of a hundredth of its deviation.
    fn rows(seed: u64, count: usize) -> Vec<Observation> {
        let mut random = Pcg64::seed_from_u64(seed);
        let row = |_| {
            let x = [100.0, 1e-3, 1e6].map(|size| size * random.random_range(0.0..1.0f64));
            let noise = random.random_range(-1.0..1.0f64);
            Observation { y: 50.0 + 3.0 * x[0] - 2e5 * x[1] + noise, x: x.to_vec() }
        };
        (0..count).map(row).collect()
    }

    #[test]
    fn a_line_is_recovered_and_lasso_drops_what_says_nothing() {
        for seed in 0..20 {
            for penalty in [Penalty::Ridge, Penalty::Lasso] {
                let line = fit(&rows(seed, 1000), penalty, false).unwrap();
                let b = |at: usize| line.coefficients[at].unwrap();
                for (found, planted) in [(b(0), 3.0), (b(1), -2e5)] {
                    assert!((found / planted - 1.0).abs() < 0.02, "{seed} {penalty:?}: {line:?}");
                }
                assert!((line.intercept - 50.0).abs() < 2.0, "{seed} {penalty:?}: {line:?}");
                assert!(b(2).abs() < 1e-6, "{seed} {penalty:?}: {line:?}");
                assert_eq!(b(2).abs() <= 0.0, penalty == Penalty::Lasso, "{seed}: {line:?}");
            }
        }
    }

    #[test]
    fn prices_and_intercept_are_not_negative_if_that_is_asked_for() {
        let line = fit(&rows(1, 1000), Penalty::Ridge, true).unwrap();
        assert!(line.coefficients[0].unwrap() > 1.0 && line.coefficients[1].unwrap().abs() <= 0.0, "{line:?}");
        assert!(line.intercept >= 0.0, "{line:?}");
        // y = 10·x − 20: without an intercept the least squares are Σxy / Σx².
        let rows: Vec<Observation> = (0..100)
            .map(|at| f64::from(at % 10) + 2.0)
            .map(|x| Observation { x: vec![x], y: 10.0 * x - 20.0 })
            .collect();
        let (xy, xx) = rows.iter().fold((0.0, 0.0), |(xy, xx), row| (xy + row.x[0] * row.y, xx + row.x[0] * row.x[0]));
        let line = fit(&rows, Penalty::Ridge, true).unwrap();
        assert!(
            line.intercept.abs() < 1e-9 && (line.coefficients[0].unwrap() / (xy / xx) - 1.0).abs() < 0.05,
            "{line:?}"
        );
        let free = fit(&rows, Penalty::Ridge, false).unwrap();
        assert!((free.coefficients[0].unwrap() - 10.0).abs() < 0.1 && (free.intercept + 20.0).abs() < 1.0, "{free:?}");
    }

    #[test]
    fn a_penalty_weighs_a_deviation() {
        // One column of deviation 1, y = x: ridge gives 1 / (1 + λ), lasso 1 − λ.
        let rows: Vec<Observation> =
            (0..10).map(|at| if at % 2 == 0 { 1.0 } else { -1.0 }).map(|x| Observation { x: vec![x], y: x }).collect();
        let standard = Standard::of(&rows).unwrap();
        let moments = Moments::of(&rows, &standard);
        for (penalty, expected) in [(Penalty::Ridge, 0.8), (Penalty::Lasso, 0.75)] {
            let mut b = DVector::zeros(1);
            PenalisedProblem { moments: &moments, standard: &standard, penalty, non_negative: false }
                .solve(&mut b, 0.25);
            assert!((b[0] - expected).abs() < 1e-9, "{penalty:?}: {b}");
        }
    }

    #[test]
    fn nothing_to_learn_from_is_no_line() {
        let rows = rows(1, 4);
        assert_eq!(fit(&rows, Penalty::Ridge, false), None);
        assert_eq!(fit(&[], Penalty::Ridge, false), None);
        let constant = vec![Observation { x: vec![1.0], y: 3.0 }; 50];
        assert_eq!(fit(&constant, Penalty::Lasso, false), None);
        let mut with_constant = super::tests::rows(2, 100);
        with_constant.iter_mut().for_each(|row| row.x[2] = 7.0);
        assert_eq!(fit(&with_constant, Penalty::Ridge, false).unwrap().coefficients[2], None);
    }
}

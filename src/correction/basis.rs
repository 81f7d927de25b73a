//! The terms of one step, or summed over many. Uses `term`.
#![expect(clippy::indexing_slicing, reason = "there is a value for every term")]

use super::term::{NUM_TERMS, Term};

/// Values of the terms: µs for times, counts for the rest.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Basis {
    values: [f64; NUM_TERMS],
}

impl Basis {
    /// One term's value.
    pub fn get(&self, term: Term) -> f64 {
        self.values[term.index()]
    }

    /// Adds to one term.
    pub fn add(&mut self, term: Term, value: f64) {
        self.values[term.index()] += value;
    }

    /// Adds `weight` times another step's terms.
    pub fn add_scaled(&mut self, other: &Basis, weight: f64) {
        for (value, other) in self.values.iter_mut().zip(other.values) {
            *value += weight * other;
        }
    }

    /// Multiplied by `factor`.
    #[must_use]
    pub fn scaled(&self, factor: f64) -> Basis {
        Basis { values: self.values.map(|value| value * factor) }
    }

    /// All values, in the order of [`Term::ALL`].
    pub fn values(&self) -> &[f64; NUM_TERMS] {
        &self.values
    }

    /// Time at these coefficients, µs.
    pub fn time_us(&self, coefficients: &[f64; NUM_TERMS]) -> f64 {
        self.values.iter().zip(coefficients).map(|(value, coefficient)| value * coefficient).sum()
    }
}

impl From<[f64; NUM_TERMS]> for Basis {
    fn from(values: [f64; NUM_TERMS]) -> Self {
        Basis { values }
    }
}

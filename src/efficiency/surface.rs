//! Lookup tables for functions of one or two positive variables. Knots are evenly spaced within each power of two, so the
//! index comes from the float's exponent and mantissa instead of a logarithm.
#![expect(clippy::indexing_slicing, reason = "a surface has a row, a column and a knot beyond its cells")]
#![expect(clippy::cast_possible_truncation, reason = "bits of a double, and values of three digits")]

use std::sync::Arc;

use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};

use crate::units::{larger, smaller};

const MANTISSA_BITS: u32 = f64::MANTISSA_DIGITS - 1;
const MANTISSA: u64 = (1 << MANTISSA_BITS) - 1;
const ONE: u64 = 1f64.to_bits();

/// Knots from one power of two to another, `2^STEPS_LOG2` of them in each octave.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct OctaveAxis<const STEPS_LOG2: u32> {
    low: f64,
    /// The last knot.
    pub high: f64,
    knots_per_octave: u32,
    #[serde(skip)]
    first: u64,
}

impl<const STEPS_LOG2: u32> OctaveAxis<STEPS_LOG2> {
    /// The axis that covers `low` to `high`, both positive.
    pub fn covering(low: f64, high: f64) -> Self {
        let low = 2f64.powi(low.max(f64::MIN_POSITIVE).log2().floor() as i32);
        let high = 2f64.powi(high.log2().ceil() as i32).max(2.0 * low);
        let first = low.to_bits() >> (MANTISSA_BITS - STEPS_LOG2);
        OctaveAxis { low, high, knots_per_octave: 1 << STEPS_LOG2, first }
    }

    /// Number of knots: one more than the last octave needs, so that every interval has an upper knot.
    pub fn num_knots(&self) -> usize {
        (((self.high.to_bits() >> (MANTISSA_BITS - STEPS_LOG2)) - self.first) + 2) as usize
    }

    /// Value of a knot; the last two are the same.
    pub fn knot(&self, index: usize) -> f64 {
        f64::from_bits((self.first + index as u64) << (MANTISSA_BITS - STEPS_LOG2)).min(self.high)
    }

    /// Knot at or below `value` and the weight of the next one; beyond the ends, the end.
    #[inline(always)]
    pub fn position(&self, value: f64) -> (usize, f64) {
        let value = smaller(larger(value, self.low), self.high);
        let bits = value.to_bits();
        let index = (bits >> (MANTISSA_BITS - STEPS_LOG2)) - self.first;
        let rest = f64::from_bits(((bits << STEPS_LOG2) & MANTISSA) | ONE) - 1.0;
        (index as usize, rest)
    }
}

/// Rows of values over an [`OctaveAxis`], as patches between four knots.
#[derive(Debug, Clone)]
pub struct Surface<const STEPS_LOG2: u32> {
    /// The axis.
    pub axis: OctaveAxis<STEPS_LOG2>,
    width: usize,
    patches: Arc<[Patch]>,
}

/// A value at a knot and how it grows towards the next knot, towards the next row, and towards both: a cache line holds two.
#[derive(Debug, Clone, Copy)]
struct Patch {
    value: f64,
    along: f64,
    across: f64,
    both: f64,
}

impl<const STEPS_LOG2: u32> Surface<STEPS_LOG2> {
    /// `value(row, index)` for each row of `rows` and each knot of the axis, by its index.
    pub fn new<R: Copy>(rows: &[R], axis: OctaveAxis<STEPS_LOG2>, mut value: impl FnMut(R, usize) -> f64) -> Self {
        let width = axis.num_knots();
        let mut values: Vec<f64> = Vec::with_capacity(rows.len() * width);
        for row in rows {
            values.extend((0..width - 1).map(|index| value(*row, index)));
            values.push(values[values.len() - 1]);
        }
        let mut last = width - 1;
        let patches = (0..values.len()).map(|at| {
            // The last row and the last knot of each have no neighbour but themselves.
            last += if at > last { width } else { 0 };
            let across = if at + width < values.len() { width } else { 0 };
            let along = usize::from(at < last);
            let step = values[at + along] - values[at];
            Patch {
                value: values[at],
                along: step,
                across: values[at + across] - values[at],
                both: values[at + across + along] - values[at + across] - step,
            }
        });
        // The iterator knows its length, so that `collect` allocates once and copies nothing.
        let patches: Arc<[Patch]> = patches.collect();
        Surface { axis, width, patches }
    }

    /// Whether all of its values are numbers.
    pub fn is_finite(&self) -> bool {
        self.patches.iter().all(|patch| (patch.value + patch.along + patch.across + patch.both).is_finite())
    }

    /// [`Surface::at`] the first knot.
    #[inline(always)]
    pub fn at_first(&self, row: usize, row_weight: f64) -> f64 {
        self.patches.get(row * self.width).map_or(0.0, |patch| patch.value + row_weight * patch.across)
    }

    /// The value `row_weight` of the way from `row` to the next one, interpolated at `value`; 0 outside the rows.
    #[inline(always)]
    pub fn at(&self, row: usize, row_weight: f64, value: f64) -> f64 {
        let (column, weight) = self.axis.position(value);
        let Some(patch) = self.patches.get(row * self.width + column) else { return 0.0 };
        patch.value + weight * patch.along + row_weight * (patch.across + weight * patch.both)
    }
}

/// The axis, and for each row the values at the axis' knots, to seven digits.
impl<const STEPS_LOG2: u32> Serialize for Surface<STEPS_LOG2> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let rows = self.patches.chunks(self.width);
        // The last two knots of the axis are the same.
        let values = rows.map(|row| row.iter().take(self.width - 1).map(|patch| patch.value as f32).collect());
        let mut surface = serializer.serialize_struct("Surface", 2)?;
        surface.serialize_field("axis", &self.axis)?;
        surface.serialize_field("values", &values.collect::<Vec<Vec<f32>>>())?;
        surface.end()
    }
}

/// Integer axis: every count up to 32 is a knot, then 16 knots per power of two.
#[derive(Debug, Clone, Serialize)]
#[serde(transparent)]
pub struct CountAxis {
    /// The knots; the last one only closes the last interval.
    pub knots: Vec<u64>,
}

impl CountAxis {
    /// Knots for 1 to at least `high`, so many in each octave beyond that number.
    pub fn up_to(high: u64, per_octave: u64) -> Self {
        let mut knots = vec![1];
        while let Some(last) = knots.last().copied().filter(|last| *last < high) {
            knots.push(last + (last / per_octave).checked_ilog2().map_or(1, |octave| 1 << octave));
        }
        knots.push(knots.last().map_or(1, |last| last + 1));
        CountAxis { knots }
    }

    /// Knot at or below `count` and the weight of the next one.
    pub fn position(&self, count: u64) -> (usize, f64) {
        let index = self.knots.partition_point(|knot| *knot <= count).clamp(1, self.knots.len() - 1) - 1;
        let (low, high) = (self.knots[index], self.knots[index + 1]);
        (index, (count.saturating_sub(low) as f64 / (high - low) as f64).min(1.0))
    }
}

#[cfg(test)]
mod tests {
    use approx::assert_relative_eq;

    use super::*;

    #[test]
    fn knots_are_even_within_an_octave() {
        let axis = OctaveAxis::<2>::covering(1.0, 5.0);
        let knots: Vec<f64> = (0..axis.num_knots()).map(|index| axis.knot(index)).collect();
        assert_eq!(knots, [1.0, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 5.0, 6.0, 7.0, 8.0, 8.0]);
        assert_eq!(axis.position(2.75), (5, 0.5));
        assert_eq!((axis.position(0.1), axis.position(f64::NAN), axis.position(1e9)), ((0, 0.0), (0, 0.0), (12, 0.0)));
        let below_one = OctaveAxis::<1>::covering(0.3, 1.0);
        assert_eq!((0..4).map(|i| below_one.knot(i)).collect::<Vec<_>>(), [0.25, 0.375, 0.5, 0.75]);
    }

    #[test]
    fn a_bilinear_function_is_reproduced_and_held_at_the_ends() {
        let plane = |row: f64, x: f64| 3.0 + 2.0 * row + 5.0 * x + row * x;
        let axis = OctaveAxis::<3>::covering(1.0, 64.0);
        let surface = Surface::new(&[1.0, 2.0, 4.0], axis, |row, index| plane(row, axis.knot(index)));
        assert_relative_eq!(surface.at(1, 0.25, 33.3), plane(2.5, 33.3), max_relative = 1e-12);
        assert_relative_eq!(surface.at(2, 0.0, 1e6), plane(4.0, 64.0), max_relative = 1e-12);
        assert!(surface.at(9, 0.0, 3.0).abs() < f64::MIN_POSITIVE);
    }

    #[test]
    fn small_counts_are_knots_and_large_ones_lie_between() {
        let axis = CountAxis::up_to(1000, 16);
        assert_eq!(axis.knots[..32], (1..=32).collect::<Vec<u64>>());
        assert_eq!(axis.knots[32..36], [34, 36, 38, 40]);
        assert_eq!((axis.position(1), axis.position(32), axis.position(35)), ((0, 0.0), (31, 0.0), (32, 0.5)));
        assert!(axis.knots.len() < 32 + 5 * 16 + 2, "{}", axis.knots.len());
    }
}

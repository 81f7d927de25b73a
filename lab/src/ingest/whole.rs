//! Whole numbers whose `Option` takes 8 bytes: captures hold millions of optional times and counts.

use std::num::NonZeroU64;

use serde::{Deserialize, Serialize};

/// A whole number whose `Option` takes 8 bytes. `u64::MAX`, which no clock or count reaches, counts as one less.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(from = "u64", into = "u64")]
pub struct Whole(NonZeroU64);

impl Whole {
    /// 0.
    pub const ZERO: Whole = Whole(NonZeroU64::MIN);

    /// Returns the number.
    pub const fn get(self) -> u64 {
        self.0.get() - 1
    }

    /// Returns the difference; `None` if `earlier` is the greater one.
    pub fn since(self, earlier: Whole) -> Option<u64> {
        self.get().checked_sub(earlier.get())
    }
}

impl From<u64> for Whole {
    fn from(number: u64) -> Self {
        Whole(NonZeroU64::MIN.saturating_add(number))
    }
}

impl From<Whole> for u64 {
    fn from(number: Whole) -> Self {
        number.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_their_values_and_order_in_eight_bytes() {
        assert_eq!(size_of::<Option<Whole>>(), 8);
        for number in [0, 1, u64::MAX - 1] {
            assert_eq!(Whole::from(number).get(), number);
        }
        assert_eq!(Whole::from(u64::MAX).get(), u64::MAX - 1);
        assert!(Whole::from(0) < Whole::from(1));
        assert_eq!((Whole::from(5).since(3.into()), Whole::from(3).since(5.into())), (Some(2), None));
    }
}

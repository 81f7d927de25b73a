//! The work of one call of an operator, and the time that the roofline model bounds it by.

use crate::units::time_us;

/// FLOPs and bytes of one call on one rank.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Work {
    /// Floating-point operations.
    pub flops: f64,
    /// Bytes moved to or from device memory, or sent where the call is communication.
    pub bytes: f64,
}

impl Work {
    /// Roofline bound, µs.
    ///
    /// # Formula
    /// `max(flops / peak, bytes / bandwidth)`
    ///
    /// # Source
    /// Williams, Waterman and Patterson, Roofline (2009).
    ///
    /// ```
    /// use ridgepoint::physics::Work;
    /// assert_eq!(Work { flops: 2e9, bytes: 1e6 }.bound_us(1e15, 1e12), 2.0);
    /// assert_eq!(Work { flops: 2e9, bytes: 9e6 }.bound_us(1e15, 1e12), 9.0);
    /// ```
    pub fn bound_us(self, peak_flop_per_s: f64, bytes_per_s: f64) -> f64 {
        time_us(self.flops, peak_flop_per_s).max(time_us(self.bytes, bytes_per_s))
    }
}

/// The shape of a call. Sizes are `f64`, as kernel models also need shapes between whole ones.
pub trait Shape: Copy {
    /// FLOPs and bytes of a call of this shape.
    fn work(&self) -> Work;
}

//! The rates of a chip, and the times that follow from them and from a kernel's coefficients.

use crate::dtype::DType;
use crate::error::Result;
use crate::hardware::Hardware;
use crate::physics::Work;
use crate::units::time_us;

/// Rates of a chip, with the peak of one number format.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Chip {
    /// Dense peak of the unit that does the work, FLOP/s.
    pub peak_flop_per_s: f64,
    /// Device memory bandwidth, bytes/s.
    pub hbm_bytes_per_s: f64,
    /// Link of one GPU, one direction, bytes/s; infinite without one, where no operator uses it.
    pub link_bytes_per_s: f64,
    /// Streaming multiprocessors.
    pub sm_count: f64,
}

impl Chip {
    /// The chip of `hardware` with the peak of `dtype`.
    ///
    /// # Errors
    /// [`ErrorKind::MissingPeak`](crate::ErrorKind) if the chip has no such unit.
    pub fn new(hardware: &Hardware, dtype: DType) -> Result<Self> {
        Ok(Chip {
            peak_flop_per_s: hardware.peak_dense_flop_per_s(dtype)?,
            hbm_bytes_per_s: hardware.hbm_bytes_per_s,
            link_bytes_per_s: hardware.interconnect.map_or(f64::INFINITY, |link| link.unidirectional_bytes_per_s),
            sm_count: f64::from(hardware.sm_count),
        })
    }

    /// Roofline bound of a call on one GPU, µs.
    pub fn bound_us(&self, work: Work) -> f64 {
        work.bound_us(self.peak_flop_per_s, self.hbm_bytes_per_s)
    }

    /// Roofline bound of a call whose bytes go over the link, µs.
    pub fn link_bound_us(&self, work: Work) -> f64 {
        work.bound_us(self.peak_flop_per_s, self.link_bytes_per_s)
    }
}

/// Smooth maximum of two times that overlap imperfectly: `(aᵖ + bᵖ)^(1/p)` with `p = 1 + sharpness`.
pub(super) fn overlapped_us(a: f64, b: f64, sharpness: f64) -> f64 {
    let p = 1.0 + sharpness;
    let (large, small) = if a > b { (a, b) } else { (b, a) };
    if large <= 0.0 { 0.0 } else { large * (1.0 + (small / large).powf(p)).powf(1.0 / p) }
}

/// [`overlapped_us`] by logarithms: fourteen of its digits in half of its time, for tables of many thousand times.
pub(super) fn overlapped_by_logs_us(a: f64, b: f64, sharpness: f64) -> f64 {
    let p = 1.0 + sharpness;
    let (large, small) = if a > b { (a, b) } else { (b, a) };
    if large <= 0.0 { 0.0 } else { large * ((1.0 + ((small / large).ln() * p).exp()).ln() / p).exp() }
}

/// Bytes that are added to those of a call, so that the ramp of an empty call is finite (assumed).
const LEAST_RAMP_BYTES: f64 = 1e4;

/// Returns the slowdown of a call that moves `bytes`, relative to the rate of large calls: `√(1 + ramp / bytes)`.
#[inline]
pub(super) fn ramp(bytes: f64, ramp_bytes: f64) -> f64 {
    (1.0 + ramp_bytes / (bytes + LEAST_RAMP_BYTES)).sqrt()
}

/// Returns the time to move `bytes` at a rate that rises with the size of the call.
pub(super) fn ramped_us(bytes: f64, bytes_per_s: f64, ramp_bytes: f64) -> f64 {
    time_us(bytes, bytes_per_s) * ramp(bytes, ramp_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlap_by_logs_has_fourteen_digits() {
        for sharpness in [0.000_335_46, 0.5, 0.888, 2.7] {
            for ratio in [0.0, 1e-12, 1e-3, 0.3, 0.999, 1.0, 7.0] {
                let (exact, by_logs) =
                    (overlapped_us(3.0, 3.0 * ratio, sharpness), overlapped_by_logs_us(3.0, 3.0 * ratio, sharpness));
                assert!((by_logs / exact - 1.0).abs() < 1e-14, "{sharpness} {ratio}");
            }
        }
    }
}

//! A kernel family: its model of time, with named coefficients, and the layout of its tables.

use super::chip::Chip;
use super::keys::Key;
use crate::dtype::DType;
use crate::physics::Shape;

/// Bytes of the 16-bit activations that measured kernels write.
pub(super) const OUTPUT_BYTES: f64 = 2.0;

/// A kernel family that has efficiency tables: a model of its time with named positive coefficients, and the layout of its
/// tables.
pub trait Family: Sized + 'static {
    /// Shape of a call.
    type Shape: Shape;
    /// Kernel that one series of the table is measured for.
    type Key: Key;
    /// Operator name: the stem of the table file and the key in reports.
    const OPERATOR: &'static str;
    /// Library whose kernels these are whatever the engine: the first part of the folder's name. `None` for kernels of engines.
    const LIBRARY: Option<&'static str> = None;
    /// Whether calls go over the link between GPUs.
    const IS_COLLECTIVE: bool = false;
    /// Distance added to that of the keys if a series is another engine's. It is set where engines differ more than two GPUs of one
    /// chip do.
    const OTHER_ENGINE: Option<f64> = None;
    /// Names of the grid's axes; a table line runs along the last.
    const AXES: &'static [&'static str];
    /// Coefficients: name and starting value of the fit. The first is the launch, µs.
    const COEFFICIENTS: &'static [(&'static str, f64)];

    /// Modelled time, µs.
    fn time_us(coefficients: &[f64], shape: &Self::Shape, chip: &Chip) -> f64;

    /// The shape at a grid point of a series.
    fn shape(key: &Self::Key, point: &[f64]) -> Self::Shape;

    /// Format of the matrix unit that limits the roofline bound.
    fn compute_dtype(_: &Self::Key) -> DType {
        DType::Bfloat16
    }

    /// The version of vLLM that replaced the kernels of a series; `None` if none is known to have.
    fn replaced_in(_: &Self::Key) -> Option<(u32, u32)> {
        None
    }

    /// Rate at which the call's bytes move at best, bytes/s.
    fn bytes_per_s(chip: &Chip) -> f64 {
        chip.hbm_bytes_per_s
    }

    /// Roofline bound, µs.
    fn bound_us(shape: &Self::Shape, chip: &Chip) -> f64 {
        shape.work().bound_us(chip.peak_flop_per_s, Self::bytes_per_s(chip))
    }
}

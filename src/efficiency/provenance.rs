//! Where an operator's time comes from, kept through every sum.

use std::fmt::{Display, Formatter, Result};

use serde::Serialize;

/// Where an operator's time comes from, best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum Provenance {
    /// The shape is one that was measured on this GPU.
    Measured,
    /// Interpolated between measured shapes of this GPU.
    Interpolated,
    /// Beyond the measured shapes of this GPU: the efficiency at the table's edge.
    Clamped,
    /// Measured on a fallback GPU: its efficiency against this GPU's datasheet.
    Borrowed,
    /// No measurement of this kind of kernel: the datasheet bound and a launch floor.
    Datasheet,
    /// The textbook roofline: ideal efficiency.
    Ideal,
    /// No operator of the physics: time that a correction adds, fitted to real engines.
    Learned,
}

impl Display for Provenance {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        self.serialize(f)
    }
}

/// The resource that limits an operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum Bound {
    /// The matrix units.
    Compute,
    /// Device memory bandwidth.
    Memory,
    /// The board's power, which does not let the matrix units run at their highest clock for long.
    Power,
    /// The link between GPUs.
    Network,
    /// Neither: a launch, a dependency, too little work to fill the chip.
    Latency,
}

impl Display for Bound {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        self.serialize(f)
    }
}

/// The time of one call of an operator.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct OperatorTime {
    /// Predicted time, µs.
    pub time_us: f64,
    /// The roofline bound: the larger of FLOPs over peak and bytes over bandwidth, µs.
    pub bound_us: f64,
    /// The resource that limits it.
    pub bound: Bound,
    /// Where the time comes from.
    pub provenance: Provenance,
}

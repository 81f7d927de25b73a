//! Where an operator's time comes from, kept through every sum.

use serde::Serialize;

use super::grid::Lookup;

/// Where an operator's time comes from, best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Provenance {
    /// The shape is one that was measured on this GPU.
    Measured,
    /// Interpolated between measured shapes of this GPU.
    Interpolated,
    /// Beyond the measured shapes of this GPU: clamped to the efficiency at the table's edge.
    Held,
    /// Measured on a fallback GPU: its efficiency against this GPU's datasheet.
    Borrowed,
    /// No measurement of this kind of kernel: the datasheet bound and a launch floor.
    Datasheet,
    /// The textbook roofline: ideal efficiency.
    Ideal,
    /// No operator of the physics: time that a correction adds, fitted to real engines.
    Learned,
}

impl Provenance {
    /// Every kind, best first.
    pub const ALL: [Provenance; 7] = [
        Provenance::Measured,
        Provenance::Interpolated,
        Provenance::Held,
        Provenance::Borrowed,
        Provenance::Datasheet,
        Provenance::Ideal,
        Provenance::Learned,
    ];

    /// The name used in tables and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Provenance::Measured => "measured",
            Provenance::Interpolated => "interpolated",
            Provenance::Held => "held",
            Provenance::Borrowed => "borrowed",
            Provenance::Datasheet => "datasheet",
            Provenance::Ideal => "ideal",
            Provenance::Learned => "learned",
        }
    }
}

impl From<Lookup> for Provenance {
    fn from(lookup: Lookup) -> Self {
        match lookup {
            Lookup::Exact => Provenance::Measured,
            Lookup::Interpolated => Provenance::Interpolated,
            Lookup::Clamped => Provenance::Held,
        }
    }
}

/// The resource that limits an operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    /// The matrix units.
    Compute,
    /// Device memory bandwidth.
    Memory,
    /// The link between GPUs.
    Network,
    /// Neither: a launch, a dependency, too little work to fill the chip.
    Latency,
}

impl Bound {
    /// The name used in tables and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Bound::Compute => "compute",
            Bound::Memory => "memory",
            Bound::Network => "network",
            Bound::Latency => "latency",
        }
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

impl OperatorTime {
    /// Bound over time: 1 on the roofline; 0 where nothing is moved or computed.
    pub fn efficiency(&self) -> f64 {
        if self.time_us > 0.0 { self.bound_us / self.time_us } else { 0.0 }
    }
}

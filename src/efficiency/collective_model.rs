//! The kernel models of collectives: an engine's own all-reduce, and those of NCCL.
#![expect(clippy::indexing_slicing, reason = "lengths are the family's constants; readers check files for them")]

use super::chip::{Chip, ramped_us};
use super::keys::{AllReduceKind, Key};
use crate::physics::Shape;
use crate::physics::communication::{Collective, ExchangeShape};

/// vLLM's own all-reduce: launch + per rank + the bytes that each rank sends over its link.
#[derive(Debug, Clone, Copy)]
pub struct AllReduceModel;

impl AllReduceModel {
    /// Coefficients: name and starting value of the fit. The first is the launch, µs.
    pub const COEFFICIENTS: &'static [(&'static str, f64)] =
        &[("launch_us", 4.0), ("bandwidth_efficiency", 0.7), ("ramp_bytes", 1e6), ("rank_us", 0.1)];

    /// Modelled time, µs.
    pub fn time_us(c: &[f64], shape: &ExchangeShape, chip: &Chip) -> f64 {
        c[0] + c[3] * shape.gpus + ramped_us(shape.work().bytes, chip.link_bytes_per_s * c[1], c[2])
    }

    /// The shape at a grid point of a series.
    pub fn shape(_: &AllReduceKind, point: &[f64]) -> ExchangeShape {
        ExchangeShape::all_reduce(point[1], point[0])
    }
}

/// NCCL's collectives: the model of an all-reduce, with coefficients and tables of their own.
#[derive(Debug, Clone, Copy)]
pub struct ExchangeModel;

impl ExchangeModel {
    /// The coefficient of a rank's time, µs.
    pub(super) fn rank_us(c: &[f64]) -> f64 {
        c[3]
    }
}

impl ExchangeModel {
    /// Coefficients: name and starting value of the fit. The first is the launch, µs.
    pub const COEFFICIENTS: &'static [(&'static str, f64)] =
        &[("launch_us", 4.0), ("bandwidth_efficiency", 0.7), ("ramp_bytes", 1e6), ("rank_us", 0.8)];

    /// Modelled time, µs.
    pub fn time_us(c: &[f64], shape: &ExchangeShape, chip: &Chip) -> f64 {
        AllReduceModel::time_us(c, shape, chip)
    }

    /// The shape at a grid point of a series.
    pub fn shape(key: &Collective, point: &[f64]) -> ExchangeShape {
        ExchangeShape { collective: *key, gpus: point[0], message_bytes: point[1] }
    }
}

impl Key for Collective {
    fn parse(name: &str) -> Option<Self> {
        Collective::parse(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_collective_takes_its_launch_its_ranks_and_its_bytes() {
        let chip = Chip { peak_flop_per_s: 1e15, hbm_bytes_per_s: 1e12, link_bytes_per_s: 1e11, sm_count: 100.0 };
        let time = |collective, gpus| {
            let shape = ExchangeModel::shape(&collective, &[gpus, 8e6]);
            ExchangeModel::time_us(&[5.0, 0.5, 1e-3, 2.0], &shape, &chip)
        };
        // 3/4 of 8 MB at 50 GB/s are 120 µs, a launch and four ranks 13 µs; an all-reduce sends twice as much.
        assert!((time(Collective::AllGather, 4.0) - 133.0).abs() < 1e-3);
        assert!((time(Collective::AllToAll, 4.0) - 133.0).abs() < 1e-3);
        assert!((time(Collective::AllReduce, 4.0) - 253.0).abs() < 1e-3);
        assert_eq!(Collective::parse(&Collective::ReduceScatter.to_string()), Some(Collective::ReduceScatter));
    }
}

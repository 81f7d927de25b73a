//! Calibration of all-reduces.

use ridgepoint::physics::Shape;
use ridgepoint::unstable::efficiency::family::AllReduceKind;
use ridgepoint::unstable::efficiency::kernel_model::{AllReduceModel, Chip};

use super::super::family::{Calibrated, Placed, logs};
use super::super::source::Source;
use crate::measurements::{AllReduceCall, Timed};

impl Calibrated for AllReduceModel {
    fn features(key: &AllReduceKind, shape: &Self::Shape, _: &Chip) -> Vec<f64> {
        let mut features = logs(&[shape.message_bytes, shape.gpus, shape.work().bytes]);
        features.push(if *key == AllReduceKind::Graph { 0.0 } else { 1.0 });
        features
    }

    /// Steps run inside graphs, so eager rows do not count.
    fn in_total(label: &str) -> bool {
        label == "graph"
    }

    fn place(row: &Timed<AllReduceCall>, _: &Source) -> Result<Placed<Self>, String> {
        Ok(Placed::OnGrid(row.call.backend, vec![row.call.num_gpus as f64, row.call.message_bytes as f64]))
    }
}

//! Calibration of all-reduces.

use ridgepoint::physics::Shape;
use ridgepoint::physics::communication::ExchangeShape;
use ridgepoint::unstable::efficiency::family::{ALL_REDUCE, AllReduceKind, SeriesKey};

use super::super::family::{CalibratedFamily, Placed, logs};
use super::super::source::RowSource;
use crate::measurements::{AllReduceCall, Timed};

/// Steps run inside graphs, so eager rows do not count.
pub(in crate::calibrate) static FAMILY: CalibratedFamily =
    CalibratedFamily { in_total: |label| label == "graph", ..CalibratedFamily::of(&ALL_REDUCE) };

pub(super) fn features(key: &AllReduceKind, shape: &ExchangeShape) -> Vec<f64> {
    let mut features = logs(&[shape.message_bytes, shape.gpus, shape.work().bytes]);
    features.push(if *key == AllReduceKind::Graph { 0.0 } else { 1.0 });
    features
}

pub(in crate::calibrate) fn place(row: &Timed<AllReduceCall>, _: &RowSource) -> Result<Placed, String> {
    let AllReduceCall { num_gpus, message_bytes, backend } = row.call;
    Ok(Placed::OnGrid(SeriesKey::AllReduce(backend), vec![num_gpus as f64, message_bytes as f64]))
}

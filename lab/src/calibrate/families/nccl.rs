//! Calibration of NCCL's collectives.

use ridgepoint::physics::Shape;
use ridgepoint::physics::communication::ExchangeShape;
use ridgepoint::unstable::efficiency::family::{EXCHANGE, SeriesKey};

use super::super::family::{CalibratedFamily, Placed, logs};
use super::super::source::RowSource;
use crate::measurements::{ExchangeCall, Timed};

/// NVLink switches add up messages on their way, so that an all-reduce sends less than a ring.
pub(in crate::calibrate) static FAMILY: CalibratedFamily =
    CalibratedFamily { shares_forest: false, max_efficiency: 2.0, ..CalibratedFamily::of(&EXCHANGE) };

pub(super) fn features(shape: &ExchangeShape) -> Vec<f64> {
    logs(&[shape.message_bytes, shape.gpus, shape.work().bytes])
}

pub(in crate::calibrate) fn place(row: &Timed<ExchangeCall>, _: &RowSource) -> Result<Placed, String> {
    let ExchangeCall { collective, num_gpus, message_bytes } = row.call;
    Ok(Placed::OnGrid(SeriesKey::Exchange(collective), vec![num_gpus as f64, message_bytes as f64]))
}

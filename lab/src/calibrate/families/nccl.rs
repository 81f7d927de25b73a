//! Calibration of NCCL's collectives.

use ridgepoint::physics::Shape;
use ridgepoint::physics::communication::Collective;
use ridgepoint::unstable::efficiency::kernel_model::{Chip, ExchangeModel};

use super::super::family::{Calibrated, Placed, logs};
use super::super::source::Source;
use crate::measurements::{ExchangeCall, Timed};

impl Calibrated for ExchangeModel {
    const SHARES_FOREST: bool = false;

    /// NVLink switches add up messages on their way, so that an all-reduce sends less than a ring.
    const MAX_EFFICIENCY: f64 = 2.0;

    fn place(row: &Timed<ExchangeCall>, _: &Source) -> Result<Placed<Self>, String> {
        let ExchangeCall { collective, num_gpus, message_bytes } = row.call;
        Ok(Placed::OnGrid(collective, vec![num_gpus as f64, message_bytes as f64]))
    }

    fn features(_: &Collective, shape: &Self::Shape, _: &Chip) -> Vec<f64> {
        logs(&[shape.message_bytes, shape.gpus, shape.work().bytes])
    }
}

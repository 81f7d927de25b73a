//! Calibration of the kernels of layers with a state.

use ridgepoint::physics::{Shape, StateShape};
use ridgepoint::unstable::efficiency::family::{STATE, SeriesKey, StateKey};
use ridgepoint::unstable::efficiency::kernel_model::Chip;

use super::super::family::{CalibratedFamily, Placed, logs};
use super::super::source::RowSource;
use crate::measurements::{StateCall, Timed};

pub(in crate::calibrate) static FAMILY: CalibratedFamily =
    CalibratedFamily { shares_forest: false, ..CalibratedFamily::of(&STATE) };

pub(super) fn features(shape: &StateShape, chip: &Chip) -> Vec<f64> {
    let work = shape.work();
    let (heads, key_heads) = (shape.heads.num_heads as f64, shape.heads.num_key_heads as f64);
    let (blocks, tokens) = (shape.requests * heads, shape.tokens / shape.requests);
    let mut features = logs(&[
        shape.requests,
        tokens,
        shape.tokens,
        heads,
        key_heads,
        blocks,
        blocks * tokens,
        work.flops,
        work.bytes,
        work.flops / work.bytes,
    ]);
    features.push((blocks / chip.sm_count).ceil() * chip.sm_count / blocks);
    features
}

pub(in crate::calibrate) fn place(row: &Timed<StateCall>, _: &RowSource) -> Result<Placed, String> {
    let StateCall { recurrence, kernel, key_head_dim, head_dim, conv_kernel, .. } = row.call;
    let key = SeriesKey::State(StateKey { kernel, recurrence, key_head_dim, head_dim, conv_kernel });
    let StateCall { num_key_heads, num_heads, batch_size, num_scheduled_tokens, .. } = row.call;
    let group = num_heads as f64 / num_key_heads as f64;
    Ok(Placed::OnGrid(key, vec![num_key_heads as f64, group, num_scheduled_tokens as f64, batch_size as f64]))
}

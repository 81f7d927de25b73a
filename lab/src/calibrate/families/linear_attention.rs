//! Calibration of the kernels of layers with a state.

use ridgepoint::physics::Shape;
use ridgepoint::unstable::efficiency::family::StateKey;
use ridgepoint::unstable::efficiency::kernel_model::{Chip, StateModel};

use super::super::family::{Calibrated, Placed, logs};
use super::super::source::Source;
use crate::measurements::{StateCall, Timed};

impl Calibrated for StateModel {
    const SHARES_FOREST: bool = false;

    fn label(key: &StateKey) -> String {
        format!("{} {}", key.recurrence.name(), key.kernel.name())
    }

    fn features(_: &StateKey, shape: &Self::Shape, chip: &Chip) -> Vec<f64> {
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

    fn place(row: &Timed<StateCall>, _: &Source) -> Result<Placed<Self>, String> {
        let StateCall { recurrence, kernel, key_head_dim, head_dim, conv_kernel, .. } = row.call;
        let key = StateKey { kernel, recurrence, key_head_dim, head_dim, conv_kernel };
        let StateCall { num_key_heads, num_heads, batch_size, num_scheduled_tokens, .. } = row.call;
        let group = num_heads as f64 / num_key_heads as f64;
        let point = vec![num_key_heads as f64, group, num_scheduled_tokens as f64, batch_size as f64];
        Ok(Placed::OnGrid(key, point))
    }
}

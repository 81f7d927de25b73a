//! Calibration of routed experts.

use ridgepoint::physics::Shape;
use ridgepoint::physics::moe::MoeShape;
use ridgepoint::unstable::efficiency::family::{MOE, MoeKey, Routing, SeriesKey};

use super::super::family::{CalibratedFamily, NO_MODEL, Placed, logs};
use super::super::source::RowSource;
use crate::measurements::{MoeCall, Timed};

/// The bound assumes that tokens choose experts evenly. Skewed or grouped routing reads fewer, and experts without a gate are two
/// thirds as large.
pub(in crate::calibrate) static FAMILY: CalibratedFamily =
    CalibratedFamily { shares_forest: false, max_efficiency: 2.0, is_read, ..CalibratedFamily::of(&MOE) };

/// Predictions read layers under the assumed routing, and under the skewed one where nothing else was measured.
fn is_read(key: &SeriesKey, all: &[&SeriesKey]) -> bool {
    let SeriesKey::Moe(key) = key else { return true };
    let assumed = Routing::assumed(key.num_experts);
    let under_assumed = SeriesKey::Moe(MoeKey { routing: assumed, ..*key });
    key.routing == assumed || key.routing == Routing::SKEWED && !all.contains(&&under_assumed)
}

pub(super) fn features(key: &MoeKey, shape: &MoeShape) -> Vec<f64> {
    let skew = match key.routing {
        Routing::Balanced => 0.5,
        Routing::PowerLaw(exponent) => exponent,
    };
    let active = shape.active_experts().max(1e-6);
    let work = shape.work();
    logs(&[
        skew,
        shape.tokens,
        shape.hidden,
        shape.intermediate,
        shape.top_k,
        shape.experts,
        shape.local_experts,
        shape.pairs(),
        active,
        shape.pairs() / active,
        shape.tokens * shape.top_k,
        shape.tokens * shape.top_k / shape.experts,
        shape.hidden * shape.intermediate,
        work.flops,
        work.bytes,
        work.flops / work.bytes,
        shape.experts / shape.local_experts,
        key.intermediate_size as f64 / shape.intermediate,
    ])
}

pub(in crate::calibrate) fn place(row: &Timed<MoeCall>, _: &RowSource) -> Result<Placed, String> {
    let call = &row.call;
    let point = vec![call.moe_tp_size as f64, call.moe_ep_size as f64, call.num_tokens as f64];
    Ok(Placed::OnGrid(SeriesKey::Moe(moe_key(call).ok_or(NO_MODEL)?), point))
}

/// `None` for a number format that no table has.
fn moe_key(call: &MoeCall) -> Option<MoeKey> {
    Some(MoeKey {
        format: call.dtype.tabulated()?,
        routing: Routing::parse(&call.distribution)?,
        hidden_size: call.hidden_size,
        intermediate_size: call.intermediate_size,
        top_k: call.top_k,
        num_experts: call.num_experts,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_power_law_over_few_experts_is_read_where_nothing_even_was_measured() {
        let key = |name: &str| (MOE.parse)(name).unwrap();
        let [even, skewed, steeper, many] = [
            "bfloat16/balanced/h4096/i14336/k2/e8",
            "bfloat16/power_law_1.01/h4096/i14336/k2/e8",
            "bfloat16/power_law_1.2/h4096/i14336/k2/e8",
            "bfloat16/power_law_1.01/h2048/i768/k8/e128",
        ]
        .map(key);
        let read = is_read;
        assert!(read(&even, &[&even, &skewed]) && !read(&skewed, &[&even, &skewed]));
        assert!(read(&skewed, &[&skewed, &steeper]) && !read(&steeper, &[&skewed, &steeper]));
        assert!(read(&many, &[&even, &many]));
    }
}

//! Calibration of attention: prefill chunks and decodes.

use ridgepoint::DType;
use ridgepoint::physics::Shape;
use ridgepoint::physics::attention::{AttentionShape, HeadShape};
use ridgepoint::unstable::efficiency::family::{AttentionKey, DECODE, PREFILL, SeriesKey};
use ridgepoint::unstable::efficiency::kernel_model::{Chip, QUERY_TILE};

use super::super::attention_call::{AttentionCall, is_uneven};
use super::super::family::{CalibratedFamily, NO_MODEL, Placed, logs};
use super::super::source::RowSource;
use crate::measurements::{DecodeCall, Heads, PrefillCall, Timed};

pub(in crate::calibrate) static PREFILL_FAMILY: CalibratedFamily = CalibratedFamily::of(&PREFILL);
pub(in crate::calibrate) static DECODE_FAMILY: CalibratedFamily = CalibratedFamily::of(&DECODE);

pub(in crate::calibrate) fn place_prefill(row: &Timed<PrefillCall>, source: &RowSource) -> Result<Placed, String> {
    let call = &row.call;
    let key = attention_key(&call.heads, source)?;
    if call.num_computed_tokens > 0 {
        return AttentionCall::prefill(key, row).map(Placed::OffTable);
    }
    let point = attention_point(&call.heads, call.num_scheduled_tokens as f64, call.batch_size);
    Ok(Placed::OnGrid(SeriesKey::Prefill(key), point))
}

pub(in crate::calibrate) fn place_decode(row: &Timed<DecodeCall>, source: &RowSource) -> Result<Placed, String> {
    let call = &row.call;
    let key = attention_key(&call.heads, source)?;
    if is_uneven(call) {
        return AttentionCall::decode(key, row).map(Placed::OffTable);
    }
    let point = attention_point(&call.heads, call.kv_tokens_mean(), call.batch_size);
    Ok(Placed::OnGrid(SeriesKey::Decode(key), point))
}

pub(super) fn features(key: &AttentionKey, shape: &AttentionShape, chip: &Chip) -> Vec<f64> {
    let AttentionShape { batch, query, visible, keys, heads } = *shape;
    let HeadShape { kv_heads, group, head_dim, kv_bytes, .. } = heads;
    let work = shape.work();
    let heads = kv_heads * group;
    let units = batch * kv_heads;
    let tiles = batch * heads * (query / QUERY_TILE).ceil();
    let packed = batch * kv_heads * (query * group / QUERY_TILE).ceil();
    let window = key.window.map_or(1e9, |w| w as f64);
    let mut features = logs(&[
        batch,
        query,
        visible,
        keys,
        kv_heads,
        group,
        head_dim,
        kv_bytes,
        window,
        heads,
        units,
        units * keys,
        tiles,
        packed,
        work.flops,
        work.bytes,
        work.flops / work.bytes,
    ]);
    for work in [units, tiles, packed] {
        features.push((work / chip.sm_count).ceil() * chip.sm_count / work);
    }
    features.push(key.engine.bytes().map(f64::from).sum());
    features
}

/// The series of a call; an error is the reason why no table takes the row.
pub(in crate::calibrate) fn attention_key(heads: &Heads, source: &RowSource) -> Result<AttentionKey, &'static str> {
    Ok(AttentionKey {
        engine: source.engine.to_string(),
        kv_dtype: match heads.kv_dtype {
            DType::Bfloat16 | DType::Float16 => DType::Bfloat16,
            DType::Fp8 => DType::Fp8,
            _ => return Err(NO_MODEL),
        },
        head_size: heads.head_size,
        window: heads.window.size(),
    })
}

fn attention_point(heads: &Heads, tokens: f64, batch_size: u64) -> Vec<f64> {
    let group = heads.num_heads as f64 / heads.num_kv_heads as f64;
    vec![heads.num_kv_heads as f64, group, tokens, batch_size as f64]
}

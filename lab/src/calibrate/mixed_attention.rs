//! Measured attention calls of prefill chunks mixed with decodes. No table has them: a check predicts them as a step's attention is.

use ridgepoint::Provenance;
use ridgepoint::physics::window::{visible_pairs, visible_tokens};
use ridgepoint::physics::{AttentionHeads, Kernel};
use ridgepoint::unstable::efficiency::curve::{DecodeCurve, PrefillCurve};
use ridgepoint::unstable::efficiency::family::{AttentionKey, DECODE, PREFILL, SeriesKey};
use ridgepoint::unstable::efficiency::kernel_model::Chip;
use ridgepoint::unstable::efficiency::{Tables, mixed};
use ridgepoint::{Hardware, Result};

use super::attention_call::{UNEVEN_WINDOW, heads_of};
use super::families::attention::attention_key;
use super::families::label;
use super::own_series::{NO_SERIES, own_series};
use super::report::{LOOKED_UP, OperatorReport, RowPrediction, RowsLeftOut, TOO_LONG, leave_out};
use super::source::RowSource;
use crate::measurements::{MixedCall, Timed};

/// A measured call of both kinds.
#[derive(Debug, Clone)]
pub struct MixedAttention {
    /// Series that predict it.
    key: AttentionKey,
    heads: AttentionHeads,
    chunks: Kernel,
    decodes: Kernel,
    time_us: f64,
}

impl MixedAttention {
    /// The call of a row; an error is the reason why it cannot be looked up.
    pub(super) fn new(row: &Timed<MixedCall>, source: &RowSource) -> std::result::Result<Self, String> {
        let (call, too_long) = (&row.call, |_| TOO_LONG);
        let key = attention_key(&call.heads, source)?;
        let query = u32::try_from(call.num_scheduled_tokens).map_err(too_long)?;
        let computed = u32::try_from(call.num_computed_tokens).map_err(too_long)?;
        if key.window.is_some_and(|window| call.kv_tokens_total.div_ceil(call.num_decodes) > window) {
            return Err(UNEVEN_WINDOW.to_owned());
        }
        let of_all = |tokens: u64| call.num_prefills.checked_mul(tokens).ok_or(TOO_LONG);
        let (heads, window) = (heads_of(&key, &call.heads)?, call.heads.window);
        let query_tokens = of_all(call.num_scheduled_tokens)?;
        let chunks = Kernel::AttentionPrefill {
            heads,
            num_requests: call.num_prefills,
            query_tokens,
            pairs: call.num_prefills as f64 * visible_pairs(window, query, computed) as f64,
            kv_tokens: of_all(visible_tokens(window, query, computed))?,
            mean_query_tokens: query_tokens as f64 / call.num_prefills as f64,
        };
        let decodes =
            Kernel::AttentionDecode { heads, num_requests: call.num_decodes, kv_tokens: call.kv_tokens_total };
        Ok(MixedAttention { key, heads, chunks, decodes, time_us: row.latency_us })
    }
}

/// Scores calls of chunks mixed with decodes against the tables of each kind.
///
/// # Errors
/// Those of reading tables; `ErrorKind::MissingTable` if the GPU has none of prefill or decode attention.
pub fn check(calls: &[MixedAttention], hardware: &Hardware, tables: &Tables) -> Result<OperatorReport> {
    if calls.is_empty() {
        return Ok(OperatorReport::default());
    }
    let (prefill_series, decode_series) =
        (own_series(&PREFILL, hardware, tables)?, own_series(&DECODE, hardware, tables)?);
    let (mut predictions, mut left_out) = (Vec::with_capacity(calls.len()), RowsLeftOut::new());
    for MixedAttention { key, heads, chunks, decodes, time_us } in calls {
        let name = key.to_string();
        if !prefill_series.contains_key(&name) || !decode_series.contains_key(&name) {
            leave_out(&mut left_out, NO_SERIES, 1);
            continue;
        }
        let series = SeriesKey::Prefill(key.clone());
        let chip = Chip::new(hardware, series.compute_dtype())?;
        let kv_heads = heads.num_kv_heads as f64;
        let group = heads.num_heads as f64 / kv_heads;
        let (prefill, decode) = (tables.of_key(&PREFILL, key, &[])?.series, tables.of_key(&DECODE, key, &[])?.series);
        let decode = DecodeCurve::new(&decode, kv_heads, group, chip, Provenance::Measured);
        let prefill =
            PrefillCurve::new(&prefill, kv_heads, group, chip, Provenance::Measured).with_decode(decode.clone());
        let predicted_us = mixed::time_us(&prefill, &decode, chunks, decodes, chip.sm_count);
        predictions.extend(predicted_us.map(|us| RowPrediction::new(&name, label(&series), *time_us, us)));
    }
    Ok(OperatorReport::new(&predictions, |_| true, LOOKED_UP, left_out))
}

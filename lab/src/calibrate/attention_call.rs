//! Measured attention calls that no table holds: prefill chunks on prior KV, and decodes of uneven lengths.

use ridgepoint::physics::AttentionHeads;
use ridgepoint::physics::attention::AttentionShape;
use ridgepoint::physics::window::{visible_pairs, visible_tokens};
use ridgepoint::unstable::efficiency::curve::mean_attention;
use ridgepoint::unstable::efficiency::family::{AttentionKey, HeadSize};

use super::report::TOO_LONG;
use crate::measurements::{DecodeCall, Heads, PrefillCall, Timed};

const ONE_TOKEN: &str = "one new token on prior KV: a prediction takes it for a decode";
pub(super) const UNEVEN_WINDOW: &str =
    "uneven KV lengths under a window: what each request sees does not follow from the mean";

/// Contexts count as even where the longest is at most this much longer than the mean.
const EVEN_RATIO: f64 = 1.001;

/// Whether the contexts of a call differ, so that no table holds it.
pub(super) fn is_uneven(call: &DecodeCall) -> bool {
    call.kv_tokens_max as f64 > call.kv_tokens_mean() * EVEN_RATIO
}

const LATENT: &str = "latent attention on prior KV or of uneven contexts: no check knows it";

/// A measured attention call.
#[derive(Debug, Clone)]
pub struct AttentionCall {
    /// Prefill chunks on prior KV, not decodes.
    pub(super) is_prefill: bool,
    /// Series that predicts it.
    pub(super) key: AttentionKey,
    pub(super) heads: Heads,
    /// Shape of the mean request.
    pub(super) shape: AttentionShape,
    /// Measured time, µs.
    pub(super) time_us: f64,
}

impl AttentionCall {
    /// A prefill chunk on prior KV; an error is the reason why it cannot be looked up.
    pub(super) fn prefill(key: AttentionKey, row: &Timed<PrefillCall>) -> std::result::Result<Self, String> {
        let (call, too_long) = (&row.call, |_| TOO_LONG);
        let query = u32::try_from(call.num_scheduled_tokens).map_err(too_long)?;
        let computed = u32::try_from(call.num_computed_tokens).map_err(too_long)?;
        if query == 1 {
            return Err(ONE_TOKEN.to_owned());
        }
        let (heads, requests) = (call.heads.clone(), call.batch_size as f64);
        let pairs = requests * visible_pairs(heads.window, query, computed) as f64;
        let keys = requests * visible_tokens(heads.window, query, computed) as f64;
        let shape = mean_attention(requests, requests * f64::from(query), pairs, keys, &heads_of(&key, &heads)?);
        Ok(AttentionCall { is_prefill: true, key, heads, shape, time_us: row.latency_us })
    }

    /// A decode of even or uneven contexts; an error is the reason why it cannot be looked up.
    pub(super) fn decode(key: AttentionKey, row: &Timed<DecodeCall>) -> std::result::Result<Self, String> {
        let call = &row.call;
        if key.window.is_some_and(|window| call.kv_tokens_max > window) {
            return Err(UNEVEN_WINDOW.to_owned());
        }
        let (heads, requests) = (call.heads.clone(), call.batch_size as f64);
        let keys = requests * call.kv_tokens_mean();
        let shape = mean_attention(requests, requests, keys, keys, &heads_of(&key, &heads)?);
        Ok(AttentionCall { is_prefill: false, key, heads, shape, time_us: row.latency_us })
    }
}

/// The heads of a call; an error is the reason why there is no check.
pub(super) fn heads_of(key: &AttentionKey, heads: &Heads) -> std::result::Result<AttentionHeads, String> {
    let HeadSize::Plain(width) = heads.head_size else { return Err(LATENT.to_owned()) };
    Ok(AttentionHeads {
        num_heads: heads.num_heads,
        num_kv_heads: heads.num_kv_heads,
        head_dim: width,
        v_head_dim: width,
        kv_dtype: key.kv_dtype,
        window: heads.window,
        is_mla: false,
    })
}

//! Measured calls that no table holds: chunks on prior KV, decodes of uneven lengths, small kernels. No table is built
//! from them; a check looks them up as a prediction does and reports the error under names of their own.
//! Uses `measurements`, `efficiency`, `physics`, `operators`, `score`.

use std::collections::BTreeMap;

use super::family::Calibrated;
use super::operators::{LeftOut, NO_SERIES, OperatorReport, Outcome, own_header, own_series};
use super::score::{Labelled, Pair};
use crate::measurements::{DecodeRow, PrefillRow, SmallKernelRow};
use ridgepoint::DType;
use ridgepoint::Hardware;
use ridgepoint::Result;
use ridgepoint::internals::efficiency::curve::{DecodeCurve, Match, PrefillCurve, Timed, mean_attention};
use ridgepoint::internals::efficiency::family::{AttentionKey, Key, chip};
use ridgepoint::internals::efficiency::kernel_model::{AttentionShape, Chip, DecodeModel, PrefillModel};
use ridgepoint::internals::efficiency::table::Series;
use ridgepoint::internals::efficiency::{EfficiencyMode, Tables, Timer};
use ridgepoint::model::Window;
use ridgepoint::physics::window::{visible_pairs, visible_tokens};
use ridgepoint::physics::{AttentionHeads, Kernel, Operator, OperatorGroup, OperatorId, OperatorKind, small};

/// Report name of prompt chunks on top of cached tokens.
pub const PREFILL_PRIOR_KV: &str = "attention_prefill_prior_kv";
/// Report name of decodes whose contexts differ in length.
pub const DECODE_UNEVEN: &str = "attention_decode_uneven";
/// Report name of kernels that only move bytes.
pub const SMALL_KERNELS: &str = "small_kernels";

const PRIOR_KV: &str = "chunk with prior KV: tables hold whole prompts, a check scores it";
const UNEVEN: &str = "uneven KV lengths: tables hold even ones, a check scores it";
const NO_TABLE: &str = "small kernels have no table: a launch floor and their bytes predict them, a check scores it";
const TOO_LONG: &str = "more tokens in a request than a prediction takes";
const ONE_TOKEN: &str = "one new token on prior KV: a prediction takes it for a decode";
const UNEVEN_WINDOW: &str = "uneven KV lengths under a window: what each request sees does not follow from the mean";

const METHOD: &str = "looked up as a prediction looks it up, no table holds such rows";

/// Contexts count as even where the longest is at most this much longer than the mean.
const EVEN_RATIO: f64 = 1.001;

/// Activations of the timed small kernels are 16-bit.
const ACTIVATION: DType = DType::Bfloat16;

/// Whether a call's contexts differ, so that it is no row of a table.
pub(super) fn is_uneven(row: &DecodeRow) -> bool {
    row.kv_tokens_max as f64 > row.kv_tokens_mean * EVEN_RATIO
}

/// A measured attention call, as a prediction sees it.
#[derive(Debug, Clone)]
pub struct AttentionCall {
    /// Series that answers for it.
    pub key: AttentionKey,
    /// Query heads of the rank.
    pub num_heads: u64,
    /// KV heads of the rank.
    pub num_kv_heads: u64,
    /// What its requests are in the mean.
    pub shape: AttentionShape,
    /// Measured time, µs.
    pub time_us: f64,
}

impl AttentionCall {
    /// A chunk on prior KV; an error is the reason why it can't be looked up.
    pub(super) fn prefill(key: AttentionKey, row: &PrefillRow) -> std::result::Result<Self, &'static str> {
        let (Ok(query), Ok(computed)) =
            (u32::try_from(row.num_scheduled_tokens), u32::try_from(row.num_computed_tokens))
        else {
            return Err(TOO_LONG);
        };
        if query == 1 {
            return Err(ONE_TOKEN);
        }
        let requests = row.batch_size as f64;
        let heads = heads_of(&key, row.num_heads, row.num_kv_heads, row.head_dim, row.window);
        let pairs = requests * visible_pairs(row.window, query, computed) as f64;
        let keys = requests * visible_tokens(row.window, query, computed) as f64;
        let shape = mean_attention(requests, requests * f64::from(query), pairs, keys, &heads);
        Ok(AttentionCall {
            key,
            num_heads: row.num_heads,
            num_kv_heads: row.num_kv_heads,
            shape,
            time_us: row.latency_us,
        })
    }

    /// A decode of even or uneven contexts; an error is the reason why it can't be looked up.
    pub(super) fn decode(key: AttentionKey, row: &DecodeRow) -> std::result::Result<Self, &'static str> {
        if key.window.is_some_and(|window| row.kv_tokens_max > window) {
            return Err(UNEVEN_WINDOW);
        }
        let requests = row.batch_size as f64;
        let keys = requests * row.kv_tokens_mean;
        let heads = heads_of(&key, row.num_heads, row.num_kv_heads, row.head_dim, row.window);
        Ok(AttentionCall {
            key,
            num_heads: row.num_heads,
            num_kv_heads: row.num_kv_heads,
            shape: mean_attention(requests, requests, keys, keys, &heads),
            time_us: row.latency_us,
        })
    }
}

fn heads_of(key: &AttentionKey, num_heads: u64, num_kv_heads: u64, head_dim: u64, window: Window) -> AttentionHeads {
    AttentionHeads {
        num_heads,
        num_kv_heads,
        head_dim,
        v_head_dim: head_dim,
        kv_dtype: key.kv_dtype,
        window,
        is_mla: false,
    }
}

/// A measured call of a small kernel.
#[derive(Debug, Clone, PartialEq)]
pub struct SmallCall {
    /// Name of the kernel.
    pub kernel: String,
    /// Bytes that it moves.
    pub bytes: f64,
    /// Kernel launches.
    pub launches: u64,
    /// Measured time of all launches together, µs.
    pub time_us: f64,
}

impl SmallCall {
    /// The call of a row; an error is the reason why it can't be predicted.
    pub(super) fn new(row: &SmallKernelRow) -> std::result::Result<Self, String> {
        let Some(bytes_per_token) = bytes_per_token(&row.kernel, row.width) else {
            return Err(format!("no byte count is known for a small kernel named '{}'", row.kernel));
        };
        Ok(SmallCall {
            kernel: row.kernel.clone(),
            bytes: bytes_per_token * row.num_tokens as f64,
            launches: row.launches,
            time_us: row.latency_us,
        })
    }
}

/// Bytes that a small kernel moves per token of `width`, as `docs/measurements.md` defines it for each name; `None` for
/// a name that is not listed there. Activations and cache are 16-bit; a norm's weights are read once and not counted.
///
/// ```
/// use crate::calibrate::beyond::bytes_per_token;
/// assert_eq!(bytes_per_token("fused_add_rms_norm", 100), Some(800.0));
/// assert_eq!(bytes_per_token("quantise_fp8", 100), Some(300.0));
/// assert_eq!(bytes_per_token("sort", 100), None);
/// ```
pub fn bytes_per_token(kernel: &str, width: u64) -> Option<f64> {
    let element = ACTIVATION.bytes();
    match kernel {
        // Read and written once.
        "rms_norm" | "rotary" | "embedding" | "reshape_and_cache" | "empty_launch" => {
            Some(small::in_place_bytes(width, element))
        }
        "fused_add_rms_norm" => Some(small::norm_bytes(1, width, element)),
        "silu_and_mul" => Some(small::activation_bytes_per_token(width, true, element)),
        // Two read, one written.
        "residual_add" => Some(3.0 * width as f64 * element),
        "quantise_fp8" => Some(width as f64 * (element + DType::Fp8.bytes())),
        _ => None,
    }
}

/// The rows of all three kinds.
#[derive(Debug, Default)]
pub struct Beyond {
    /// Prompt chunks on top of cached tokens.
    pub prefill_prior_kv: Vec<AttentionCall>,
    /// Decodes whose contexts differ in length.
    pub decode_uneven: Vec<AttentionCall>,
    /// Kernels that only move bytes.
    pub small_kernels: Vec<SmallCall>,
}

impl Beyond {
    /// The rows that building the tables of `operator` leaves out, with the reason.
    pub fn left_out_of(&self, operator: &str) -> LeftOut {
        let (reason, rows) = match operator {
            "attention_prefill" => (PRIOR_KV, self.prefill_prior_kv.len()),
            "attention_decode" => (UNEVEN, self.decode_uneven.len()),
            SMALL_KERNELS => (NO_TABLE, self.small_kernels.len()),
            _ => return LeftOut::new(),
        };
        if rows == 0 { LeftOut::new() } else { LeftOut::from([(reason.to_owned(), rows)]) }
    }

    /// Adds the rows of another folder.
    pub fn extend(&mut self, other: Beyond) {
        self.prefill_prior_kv.extend(other.prefill_prior_kv);
        self.decode_uneven.extend(other.decode_uneven);
        self.small_kernels.extend(other.small_kernels);
    }

    /// Scores chunks on prior KV against the table of whole prompts, through [`PrefillCurve`].
    ///
    /// # Errors
    /// Those of reading tables; [`ridgepoint::Error::MissingTable`] where the GPU has none of prefill attention.
    pub fn check_prefill_prior_kv(&self, hardware: &Hardware, tables: &Tables) -> Result<Outcome<OperatorReport>> {
        let curve = |series: &Series<PrefillModel>, kv_heads, group, chip| {
            PrefillCurve::new(series, kv_heads, group, chip, Match::Exact)
        };
        check_attention(&self.prefill_prior_kv, hardware, tables, curve, PrefillCurve::time)
    }

    /// Scores decodes of uneven contexts against the table of even ones, through [`DecodeCurve`].
    ///
    /// # Errors
    /// Those of reading tables; [`ridgepoint::Error::MissingTable`] where the GPU has none of decode attention.
    pub fn check_decode_uneven(&self, hardware: &Hardware, tables: &Tables) -> Result<Outcome<OperatorReport>> {
        let curve = |series: &Series<DecodeModel>, kv_heads, group, chip| {
            DecodeCurve::new(series, kv_heads, group, chip, Match::Exact)
        };
        check_attention(&self.decode_uneven, hardware, tables, curve, DecodeCurve::time)
    }

    /// Scores small kernels, which every GPU predicts from its datasheet; the labels are the kernels' names.
    ///
    /// # Errors
    /// [`ridgepoint::Error::MissingPeak`] where the chip's 16-bit peak is not known.
    pub fn check_small_kernels(&self, hardware: &Hardware, tables: &Tables) -> Result<Outcome<OperatorReport>> {
        let operator = |call: &SmallCall| Operator {
            id: OperatorId::first(OperatorKind::Norms),
            name: SMALL_KERNELS,
            group: OperatorGroup::SmallKernels,
            count: 1,
            flops: 0.0,
            bytes: call.bytes,
            compute_dtype: ACTIVATION,
            kernel: Kernel::Elementwise { launches: call.launches },
        };
        let Some(first) = self.small_kernels.first() else { return Ok(Outcome::Nothing(LeftOut::new())) };
        let timer = Timer::new(&operator(first), hardware, tables, EfficiencyMode::Tables)?;
        let mut scored = Labelled::default();
        for call in &self.small_kernels {
            let predicted_us = timer.time(&operator(call)).time_us;
            scored.push(&call.kernel, Pair { predicted_us, measured_us: call.time_us });
        }
        Ok(reported(&scored, &Labelled::default(), LeftOut::new()))
    }
}

fn check_attention<F, C>(
    calls: &[AttentionCall],
    hardware: &Hardware,
    tables: &Tables,
    curve_of: impl Fn(&Series<F>, f64, f64, Chip) -> C,
    time: impl Fn(&C, &AttentionShape) -> Timed,
) -> Result<Outcome<OperatorReport>>
where
    F: Calibrated<Key = AttentionKey>,
{
    if calls.is_empty() {
        return Ok(Outcome::Nothing(LeftOut::new()));
    }
    let header = own_header::<F>(hardware, tables)?;
    let mut by_series: BTreeMap<String, Vec<&AttentionCall>> = BTreeMap::new();
    for call in calls {
        by_series.entry(call.key.name()).or_default().push(call);
    }
    let (mut scored, mut scored_by_series) = (Labelled::default(), Labelled::default());
    let mut left_out = LeftOut::new();
    for (name, members) in by_series {
        if !header.series.contains_key(&name) {
            *left_out.entry(NO_SERIES.to_owned()).or_default() += members.len();
            continue;
        }
        let key = &members[0].key;
        let series = own_series::<F>(key, tables)?;
        let chip = chip(hardware, F::compute_dtype(key))?;
        let mut curves: BTreeMap<(u64, u64), C> = BTreeMap::new();
        for call in members {
            let curve = curves.entry((call.num_heads, call.num_kv_heads)).or_insert_with(|| {
                let group = call.num_heads as f64 / call.num_kv_heads as f64;
                curve_of(&series, call.num_kv_heads as f64, group, chip)
            });
            let (predicted_us, _) = time(curve, &call.shape);
            let pair = Pair { predicted_us, measured_us: call.time_us };
            scored.push(&F::label(key), pair);
            scored_by_series.push(&name, pair);
        }
    }
    Ok(reported(&scored, &scored_by_series, left_out))
}

fn reported(scored: &Labelled, by_series: &Labelled, left_out: LeftOut) -> Outcome<OperatorReport> {
    let Some(total) = scored.total() else { return Outcome::Nothing(left_out) };
    Outcome::Made(OperatorReport {
        total,
        by_dtype: scored.scores(),
        method: METHOD.to_owned(),
        rows_unseen: total.rows,
        compared: BTreeMap::new(),
        whole_lines_left_out: None,
        by_series: by_series.scores(),
        left_out,
    })
}

//! Measured calls that no table holds: prefill chunks on prior KV, decodes of uneven lengths, small kernels. No table is
//! built from them. A check predicts them as a step's prediction does and reports the error under names of their own.

use std::collections::BTreeMap;

use super::family::Calibrated;
use super::operators::{NO_SERIES, own_header, own_series};
use super::report::{LeftOut, OperatorReport, Prediction, leave_out};
use crate::measurements::{DecodeCall, Heads, PrefillCall, SmallKernelCall};
use ridgepoint::DType;
use ridgepoint::Hardware;
use ridgepoint::Result;
use ridgepoint::internals::efficiency::curve::{DecodeCurve, PrefillCurve, Timed, mean_attention};
use ridgepoint::internals::efficiency::family::AttentionKey;
use ridgepoint::internals::efficiency::kernel_model::{Chip, DecodeModel, PrefillModel};
use ridgepoint::internals::efficiency::table::Series;
use ridgepoint::internals::efficiency::{EfficiencyMode, Provenance, Tables, Timer};
use ridgepoint::physics::attention::AttentionShape;
use ridgepoint::physics::window::{visible_pairs, visible_tokens};
use ridgepoint::physics::{AttentionHeads, Kernel, Operator, OperatorGroup, OperatorId, OperatorKind, small};

/// Report name of prefill chunks on prior KV.
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

const METHOD: &str = "looked up as in a prediction, no table holds such rows";

/// Contexts count as even where the longest is at most this much longer than the mean.
const EVEN_RATIO: f64 = 1.001;

/// Activations of the timed small kernels are 16-bit.
const ACTIVATION: DType = DType::Bfloat16;

/// Whether the contexts of a call differ, so that no table holds it.
pub(super) fn is_uneven(call: &DecodeCall) -> bool {
    call.kv_tokens_max as f64 > call.kv_tokens_mean() * EVEN_RATIO
}

/// A measured attention call.
#[derive(Debug, Clone)]
pub struct AttentionCall {
    /// Series that predicts it.
    pub key: AttentionKey,
    /// Query heads of the rank.
    pub num_heads: u64,
    /// KV heads of the rank.
    pub num_kv_heads: u64,
    /// Shape of the mean request.
    pub shape: AttentionShape,
    /// Measured time, µs.
    pub time_us: f64,
}

impl AttentionCall {
    /// A prefill chunk on prior KV; an error is the reason why it cannot be looked up.
    pub(super) fn prefill(
        key: AttentionKey,
        call: &PrefillCall,
        time_us: f64,
    ) -> std::result::Result<Self, &'static str> {
        let (Ok(query), Ok(computed)) =
            (u32::try_from(call.num_scheduled_tokens), u32::try_from(call.num_computed_tokens))
        else {
            return Err(TOO_LONG);
        };
        if query == 1 {
            return Err(ONE_TOKEN);
        }
        let requests = call.batch_size as f64;
        let pairs = requests * visible_pairs(call.heads.window, query, computed) as f64;
        let keys = requests * visible_tokens(call.heads.window, query, computed) as f64;
        let shape = mean_attention(requests, requests * f64::from(query), pairs, keys, &heads_of(&key, &call.heads));
        Ok(AttentionCall::new(key, &call.heads, shape, time_us))
    }

    /// A decode of even or uneven contexts; an error is the reason why it cannot be looked up.
    pub(super) fn decode(
        key: AttentionKey,
        call: &DecodeCall,
        time_us: f64,
    ) -> std::result::Result<Self, &'static str> {
        if key.window.is_some_and(|window| call.kv_tokens_max > window) {
            return Err(UNEVEN_WINDOW);
        }
        let requests = call.batch_size as f64;
        let keys = requests * call.kv_tokens_mean();
        let shape = mean_attention(requests, requests, keys, keys, &heads_of(&key, &call.heads));
        Ok(AttentionCall::new(key, &call.heads, shape, time_us))
    }

    fn new(key: AttentionKey, heads: &Heads, shape: AttentionShape, time_us: f64) -> Self {
        AttentionCall { key, num_heads: heads.num_heads, num_kv_heads: heads.num_kv_heads, shape, time_us }
    }
}

fn heads_of(key: &AttentionKey, heads: &Heads) -> AttentionHeads {
    AttentionHeads {
        num_heads: heads.num_heads,
        num_kv_heads: heads.num_kv_heads,
        head_dim: heads.head_dim,
        v_head_dim: heads.head_dim,
        kv_dtype: key.kv_dtype,
        window: heads.window,
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
    /// The call of a row; an error is the reason why it cannot be predicted.
    pub(super) fn new(call: &SmallKernelCall, time_us: f64) -> std::result::Result<Self, String> {
        let Some(bytes_per_token) = bytes_per_token(&call.kernel, call.width) else {
            return Err(format!("no byte count is known for a small kernel named '{}'", call.kernel));
        };
        let bytes = bytes_per_token * call.num_tokens as f64;
        Ok(SmallCall { kernel: call.kernel.clone(), bytes, launches: call.launches, time_us })
    }
}

/// Returns the bytes that a small kernel moves per token of `width`, as `docs/measurements.md` defines them; `None` for a
/// name that is not listed there. Activations and cache are 16-bit. A norm's weights are read once and not counted.
///
/// ```
/// use ridgepoint_lab::calibrate::off_table::bytes_per_token;
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

/// The calls that no table holds.
#[derive(Debug, Default)]
pub struct OffTable {
    /// Prefill chunks on prior KV.
    pub prefill_prior_kv: Vec<AttentionCall>,
    /// Decodes whose contexts differ in length.
    pub decode_uneven: Vec<AttentionCall>,
    /// Kernels that only move bytes.
    pub small_kernels: Vec<SmallCall>,
}

impl OffTable {
    /// The number of calls that building the tables of `operator` leaves out, with the reason.
    pub fn left_out_of(&self, operator: &str) -> LeftOut {
        let (reason, rows) = match operator {
            "attention_prefill" => (PRIOR_KV, self.prefill_prior_kv.len()),
            "attention_decode" => (UNEVEN, self.decode_uneven.len()),
            SMALL_KERNELS => (NO_TABLE, self.small_kernels.len()),
            _ => return LeftOut::new(),
        };
        let mut left_out = LeftOut::new();
        leave_out(&mut left_out, reason, rows);
        left_out
    }

    /// Scores prefill chunks on prior KV against the table of whole prompts.
    ///
    /// # Errors
    /// Those of reading tables; `ErrorKind::MissingTable` if the GPU has none of prefill attention.
    pub fn check_prefill_prior_kv(&self, hardware: &Hardware, tables: &Tables) -> Result<OperatorReport> {
        let curve = |series: &Series<PrefillModel>, kv_heads, group, chip| {
            PrefillCurve::new(series, kv_heads, group, chip, Provenance::Measured)
        };
        check_attention(&self.prefill_prior_kv, hardware, tables, curve, PrefillCurve::time)
    }

    /// Scores decodes of uneven contexts against the table of even ones.
    ///
    /// # Errors
    /// Those of reading tables; `ErrorKind::MissingTable` if the GPU has none of decode attention.
    pub fn check_decode_uneven(&self, hardware: &Hardware, tables: &Tables) -> Result<OperatorReport> {
        let curve = |series: &Series<DecodeModel>, kv_heads, group, chip| {
            DecodeCurve::new(series, kv_heads, group, chip, Provenance::Measured)
        };
        check_attention(&self.decode_uneven, hardware, tables, curve, DecodeCurve::time)
    }

    /// Scores small kernels, which are predicted from the datasheet. Their names are the labels.
    ///
    /// # Errors
    /// `ErrorKind::MissingPeak` if the chip's 16-bit peak is not known.
    pub fn check_small_kernels(&self, hardware: &Hardware, tables: &Tables) -> Result<OperatorReport> {
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
        let Some(first) = self.small_kernels.first() else { return Ok(OperatorReport::default()) };
        let timer = Timer::new(&operator(first), hardware, tables, EfficiencyMode::Tables)?;
        let prediction = |call: &SmallCall| Prediction {
            series: String::new(),
            label: call.kernel.clone(),
            measured_us: call.time_us,
            predicted_us: timer.time(&operator(call)).time_us,
            simpler_us: [None; 3],
        };
        let predictions: Vec<Prediction> = self.small_kernels.iter().map(prediction).collect();
        Ok(OperatorReport::new(&predictions, |_| true, METHOD, LeftOut::new()))
    }
}

/// Predicts each call through a `C`, which `curve_of` makes for a pair of head counts.
fn check_attention<F, C>(
    calls: &[AttentionCall],
    hardware: &Hardware,
    tables: &Tables,
    curve_of: impl Fn(&Series<F>, f64, f64, Chip) -> C,
    time: impl Fn(&C, &AttentionShape) -> Timed,
) -> Result<OperatorReport>
where
    F: Calibrated<Key = AttentionKey>,
{
    if calls.is_empty() {
        return Ok(OperatorReport::default());
    }
    let header = own_header::<F>(hardware, tables)?;
    let mut by_series: BTreeMap<String, Vec<&AttentionCall>> = BTreeMap::new();
    for call in calls {
        by_series.entry(call.key.to_string()).or_default().push(call);
    }
    let mut predictions = Vec::with_capacity(calls.len());
    let mut left_out = LeftOut::new();
    for (series_name, members) in by_series {
        if !header.series.contains_key(&series_name) {
            leave_out(&mut left_out, NO_SERIES, members.len());
            continue;
        }
        let key = &members[0].key;
        let series = own_series::<F>(key, tables)?;
        let chip = Chip::new(hardware, F::compute_dtype(key))?;
        let mut curves: BTreeMap<(u64, u64), C> = BTreeMap::new();
        for call in members {
            let curve = curves.entry((call.num_heads, call.num_kv_heads)).or_insert_with(|| {
                let group = call.num_heads as f64 / call.num_kv_heads as f64;
                curve_of(&series, call.num_kv_heads as f64, group, chip)
            });
            predictions.push(Prediction {
                series: series_name.clone(),
                label: F::label(key),
                measured_us: call.time_us,
                predicted_us: time(curve, &call.shape).0,
                simpler_us: [None; 3],
            });
        }
    }
    Ok(OperatorReport::new(&predictions, |_| true, METHOD, left_out))
}

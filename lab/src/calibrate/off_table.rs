//! Measured calls that no table holds: prefill chunks on prior KV, decodes of uneven lengths, small kernels. No table is
//! built from them. A check predicts them as a step's prediction does and reports the error under names of their own.

use super::attention_call::AttentionCall;
use super::families::label;
use super::latent_block::{self, LATENT_BLOCK, LatentBlock};
use super::mixed_attention::{self, MixedAttention};
use super::own_series::{NO_SERIES, own_series};
use super::report::{LOOKED_UP, OperatorReport, RowPrediction, RowsLeftOut, leave_out};
use crate::measurements::{SmallKernelCall, Timed};
use ridgepoint::physics::attention::AttentionShape;
use ridgepoint::physics::{Kernel, Operator, OperatorGroup, OperatorId, OperatorKind, sampler, small};
use ridgepoint::unstable::efficiency::curve::{DecodeCurve, PrefillCurve};
use ridgepoint::unstable::efficiency::family::{AttentionKey, DECODE, KernelFamily, PREFILL};
use ridgepoint::unstable::efficiency::kernel_model::Chip;
use ridgepoint::unstable::efficiency::{SeriesMatch, Tables, Timer, if_any};
use ridgepoint::{DType, Hardware, Result};
use ridgepoint::{EfficiencyMode, Provenance};

/// Report name of prefill chunks on prior KV.
pub const PREFILL_PRIOR_KV: &str = "attention_prefill_prior_kv";
/// Report name of decodes whose contexts differ in length.
pub const DECODE_UNEVEN: &str = "attention_decode_uneven";
/// Report name of prefill chunks mixed with decodes.
pub const MIXED: &str = "attention_mixed";
/// Report name of kernels that only move bytes.
pub const SMALL_KERNELS: &str = "small_kernels";

/// Activations of the timed small kernels are 16-bit.
const ACTIVATION: DType = DType::Bfloat16;

/// A measured call of a small kernel.
#[derive(Debug, Clone)]
pub struct SmallCall {
    name: String,
    /// Bytes that it moves.
    bytes: f64,
    kernel: Kernel,
    /// Measured time of all launches together, µs.
    time_us: f64,
}

impl SmallCall {
    /// The call of a row; an error is the reason why it cannot be predicted.
    pub(super) fn new(row: &Timed<SmallKernelCall>) -> std::result::Result<Self, String> {
        let SmallKernelCall { kernel, num_tokens, width, launches } = row.call.clone();
        let small = || Some((bytes_per_token(&kernel, width)?, Kernel::Elementwise { launches }));
        let Some((bytes_per_token, of)) = small().or_else(|| sampler::kernel_of(&kernel, width)) else {
            return Err(format!("no byte count is known for a small kernel named '{kernel}'"));
        };
        Ok(SmallCall { name: kernel, bytes: bytes_per_token * num_tokens as f64, kernel: of, time_us: row.latency_us })
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

/// A check of calls that no table holds.
pub struct OffTableCheck {
    /// Operator after whose report it stands.
    pub operator: &'static str,
    /// Name of its report.
    pub name: &'static str,
    /// Why no table takes the calls.
    pub(super) why_off_table: &'static str,
    pub(super) count: fn(&OffTable) -> usize,
    /// Scores the calls against tables.
    pub check: fn(&OffTable, &Hardware, &Tables) -> Result<OperatorReport>,
}

/// The checks of calls that no table holds, in the order of reports.
pub static CHECKS: [OffTableCheck; 5] = [
    OffTableCheck {
        operator: PREFILL.operator,
        name: PREFILL_PRIOR_KV,
        why_off_table: "chunk with prior KV: tables hold whole prompts, a check scores it",
        count: |calls| calls.prefill_prior_kv.len(),
        check: OffTable::check_prefill_prior_kv,
    },
    OffTableCheck {
        operator: DECODE.operator,
        name: DECODE_UNEVEN,
        why_off_table: "uneven KV lengths: tables hold even ones, a check scores it",
        count: |calls| calls.decode_uneven.len(),
        check: OffTable::check_decode_uneven,
    },
    OffTableCheck {
        operator: MIXED,
        name: MIXED,
        why_off_table: "chunks mixed with decodes: tables have each kind alone, a check scores them together",
        count: |calls| calls.mixed.len(),
        check: |calls, hardware, tables| mixed_attention::check(&calls.mixed, hardware, tables),
    },
    OffTableCheck {
        operator: LATENT_BLOCK,
        name: LATENT_BLOCK,
        why_off_table: "whole blocks of latent attention: tables hold their kernels, a check scores the sum",
        count: |calls| calls.latent_blocks.len(),
        check: |calls, hardware, tables| latent_block::check(&calls.latent_blocks, hardware, tables),
    },
    OffTableCheck {
        operator: SMALL_KERNELS,
        name: SMALL_KERNELS,
        why_off_table: "small kernels have no table: a launch floor and their bytes predict them, a check scores it",
        count: |calls| calls.small_kernels.len(),
        check: OffTable::check_small_kernels,
    },
];

/// The calls that no table holds.
#[derive(Debug, Default)]
pub struct OffTable {
    /// Prefill chunks on prior KV.
    pub prefill_prior_kv: Vec<AttentionCall>,
    /// Decodes whose contexts differ in length.
    pub decode_uneven: Vec<AttentionCall>,
    /// Chunks mixed with decodes.
    pub mixed: Vec<MixedAttention>,
    /// Whole blocks of latent attention.
    pub latent_blocks: Vec<LatentBlock>,
    /// Kernels that only move bytes.
    pub small_kernels: Vec<SmallCall>,
}

impl OffTable {
    /// Adds an attention call to those of its kind.
    pub(super) fn push(&mut self, call: AttentionCall) {
        let calls = if call.is_prefill { &mut self.prefill_prior_kv } else { &mut self.decode_uneven };
        calls.push(call);
    }

    /// Scores prefill chunks on prior KV against the tables of whole prompts and of decodes.
    ///
    /// # Errors
    /// Those of reading tables; `ErrorKind::MissingTable` if the GPU has none of prefill attention.
    pub fn check_prefill_prior_kv(&self, hardware: &Hardware, tables: &Tables) -> Result<OperatorReport> {
        check_attention(&PREFILL, &self.prefill_prior_kv, hardware, tables, |found, kv_heads, group, chip, shape| {
            let series = &found.series;
            let prefill = PrefillCurve::new(series, kv_heads, group, chip, Provenance::Measured);
            let curve = match if_any(tables.of_key(&DECODE, &found.key, &[]))? {
                Some(found) => {
                    let decode = DecodeCurve::new(&found.series, kv_heads, group, chip, Provenance::Measured);
                    prefill.with_decode(decode)
                }
                None => prefill,
            };
            Ok(curve.time(shape, shape.batch, found.key.window).0)
        })
    }

    /// Scores decodes of uneven contexts against the table of even ones.
    ///
    /// # Errors
    /// Those of reading tables; `ErrorKind::MissingTable` if the GPU has none of decode attention.
    pub fn check_decode_uneven(&self, hardware: &Hardware, tables: &Tables) -> Result<OperatorReport> {
        check_attention(&DECODE, &self.decode_uneven, hardware, tables, |found, kv_heads, group, chip, shape| {
            Ok(DecodeCurve::new(&found.series, kv_heads, group, chip, Provenance::Measured).time(shape).0)
        })
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
            kernel: call.kernel,
        };
        let Some(first) = self.small_kernels.first() else { return Ok(OperatorReport::default()) };
        let timer = Timer::new(&operator(first), hardware, tables, EfficiencyMode::Tables)?;
        let prediction = |call: &SmallCall| {
            RowPrediction::new("", call.name.clone(), call.time_us, timer.time(&operator(call)).time_us)
        };
        let predictions: Vec<RowPrediction> = self.small_kernels.iter().map(prediction).collect();
        Ok(OperatorReport::new(&predictions, |_| true, LOOKED_UP, RowsLeftOut::new()))
    }
}

/// Scores calls with a prediction from series, KV heads, query heads of each, chip and shape.
fn check_attention(
    family: &'static KernelFamily,
    calls: &[AttentionCall],
    hardware: &Hardware,
    tables: &Tables,
    time_us: impl Fn(&SeriesMatch<AttentionKey>, f64, f64, Chip, &AttentionShape) -> Result<f64>,
) -> Result<OperatorReport> {
    if calls.is_empty() {
        return Ok(OperatorReport::default());
    }
    let own = own_series(family, hardware, tables)?;
    let (mut predictions, mut left_out) = (Vec::with_capacity(calls.len()), RowsLeftOut::new());
    for AttentionCall { key, heads, shape, time_us: measured_us, .. } in calls {
        if !own.contains_key(&key.to_string()) {
            leave_out(&mut left_out, NO_SERIES, 1);
            continue;
        }
        let found = tables.of_key(family, key, &[])?;
        let chip = Chip::new(hardware, found.series.key.compute_dtype())?;
        let kv_heads = heads.num_kv_heads as f64;
        let predicted_us = time_us(&found, kv_heads, heads.num_heads as f64 / kv_heads, chip, shape)?;
        predictions.push(RowPrediction::new(&key.to_string(), label(&found.series.key), *measured_us, predicted_us));
    }
    Ok(OperatorReport::new(&predictions, |_| true, LOOKED_UP, left_out))
}

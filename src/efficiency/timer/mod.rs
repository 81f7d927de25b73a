//! From an operator to its time: which series answers for it, chosen once per model and rank, and the look-up of each
//! step. Uses `tables`, `curve`, `physics`, `hardware`.

mod attention;

pub use attention::{AttentionBound, heads_of};

use super::curve::{
    AllReduceCurve, DecodeCurve, GemmCurve, Match, MoeCurve, PrefillCurve, Timed, attention_distance,
    expert_layer_distance, mean_attention, nearest_split, stand_in_weight,
};
use super::family::{AllReduceKind, AttentionKey, Family, GemmKind, MoeKey, MoeKind, Routing, chip};
use super::kernel_model::{AllReduceModel, Chip, DecodeModel, GemmModel, GemmShape, MoeModel, MoeShape, PrefillModel};
use super::provenance::{Bound, OperatorTime, Provenance};
use super::tables::{Found, Tables};
use crate::dtype::{DType, WeightFormat};
use crate::error::Result;
use crate::hardware::Hardware;
use crate::model::Window;
use crate::physics::{AttentionHeads, Kernel, Operator, OperatorGroup};
use crate::units::time_us;

/// Least time of a kernel inside a CUDA graph, µs: the shortest GEMM of the vLLM 0.14.0 tables takes 2.41 µs on an H200
/// and 2.45 µs on an A100 and an H100, with next to nothing to do.
const KERNEL_FLOOR_US: f64 = 2.45;

/// Share of the datasheet bandwidth that kernels reach which only move bytes (as large copies and norms do; assumed).
const STREAMING_EFFICIENCY: f64 = 0.85;

/// Operators whose time is part of a measured kernel: fp8 projections were timed with the quantisation of their inputs, fused
/// experts with the sort of tokens, the quantisation and the sum over a token's experts.
const MEASURED_WITHIN_OTHERS: [&str; 5] = ["activation_quant", "lm_head_quant", "expert_quant", "moe_align", "moe_sum"];

/// Whether tables hold the time of `operator` as a part of another's.
pub fn is_within_another(operator: &Operator) -> bool {
    MEASURED_WITHIN_OTHERS.iter().any(|name| operator.name.starts_with(name))
}

/// Engine whose attention kernels are taken where several were measured: the nearest to vLLM 0.15.1, on which serving
/// predictions are judged.
const PREFERRED_ENGINE: &str = "vllm-0.14";

/// Spread of tokens over experts that is assumed of a trained router.
const ROUTING: Routing = Routing::PowerLaw(1.01);

/// Expert layers closest to an unmeasured one that are averaged.
const MOE_NEIGHBOURS: usize = 3;

/// How efficient kernels are taken to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum EfficiencyMode {
    /// As measured.
    #[default]
    Tables,
    /// On the roofline: the textbook bound.
    Ideal,
}

/// Looks up the time of one operator of a model, whatever the batch.
#[derive(Debug, Clone)]
pub struct Timer {
    curve: Curve,
    peak_flop_per_s: f64,
    bytes_per_s: f64,
    is_network: bool,
    /// What is unusual about where its times come from, in plain words.
    pub note: Option<String>,
}

#[derive(Debug, Clone)]
enum Curve {
    Gemm(GemmCurve),
    Prefill(PrefillCurve),
    Decode(DecodeCurve),
    Moe(MoeCurve),
    AllReduce(AllReduceCurve),
    Exchange { floor_us: f64, bytes_per_s: f64 },
    Streaming,
    Ideal,
}

impl Timer {
    /// Chooses the series that answers for `operator`.
    ///
    /// # Errors
    /// Those of reading tables; [`crate::Error::MissingTable`], [`crate::Error::MissingPeak`] where there is nothing to go by.
    pub fn new(operator: &Operator, hardware: &Hardware, tables: &Tables, mode: EfficiencyMode) -> Result<Self> {
        let is_network = operator.group == OperatorGroup::Communication;
        let (peak_dtype, weight_only) = usable_dtype(operator.compute_dtype, hardware);
        let (curve, mut notes) = match mode {
            EfficiencyMode::Ideal => (Curve::Ideal, Vec::new()),
            EfficiencyMode::Tables => curve_of(operator, hardware, tables, peak_dtype)?,
        };
        if weight_only {
            notes.insert(
                0,
                format!(
                    "{} has no {} unit: {} runs weight-only at {peak_dtype} speed",
                    hardware.display_name(),
                    operator.compute_dtype,
                    operator.name
                ),
            );
        }
        Ok(Timer {
            curve,
            peak_flop_per_s: hardware.peak_dense_flop_per_s(peak_dtype)?,
            bytes_per_s: if is_network {
                hardware.interconnect().unidirectional_bytes_per_s
            } else {
                hardware.hbm_bytes_per_s()
            },
            is_network,
            note: if notes.is_empty() { None } else { Some(notes.join("; ")) },
        })
    }

    /// Launch and set-up in the time of an attention call, µs; 0 for any other kernel.
    pub fn attention_launch_us(&self) -> f64 {
        match &self.curve {
            Curve::Decode(curve) => curve.launch_us(),
            Curve::Prefill(curve) => curve.launch_us(),
            _ => 0.0,
        }
    }

    /// Peak of the unit that does the operator's FLOPs, FLOP/s.
    pub fn peak_flop_per_s(&self) -> f64 {
        self.peak_flop_per_s
    }

    /// Time of one call of `operator`, whose static part must be the one this timer was made for.
    pub fn time(&self, operator: &Operator) -> OperatorTime {
        let compute_us = time_us(operator.flops, self.peak_flop_per_s);
        let bytes_us = time_us(operator.bytes, self.bytes_per_s);
        let bound_us = compute_us.max(bytes_us);
        let (time_us, provenance) = self.looked_up(operator, bound_us);
        let time_us = time_us.max(bound_us);
        let bound = if bound_us < 0.25 * time_us {
            Bound::Latency
        } else if self.is_network {
            Bound::Network
        } else if compute_us >= bytes_us {
            Bound::Compute
        } else {
            Bound::Memory
        };
        OperatorTime { time_us, bound_us, bound, provenance }
    }

    fn looked_up(&self, operator: &Operator, bound_us: f64) -> Timed {
        match (&self.curve, operator.kernel) {
            (Curve::Gemm(curve), Kernel::Gemm { m, .. }) => curve.time(m as f64),
            (
                Curve::Prefill(curve),
                Kernel::AttentionPrefill { heads, query_tokens, mean_query_tokens, pairs, kv_tokens, .. },
            ) => {
                // A chunk of a few tokens beside a long one must not make that look short: chunks count by their tokens.
                let query_tokens = query_tokens as f64;
                let chunks = query_tokens / mean_query_tokens;
                curve.time(&mean_attention(chunks, query_tokens, pairs, kv_tokens as f64, &heads))
            }
            (Curve::Decode(curve), Kernel::AttentionDecode { heads, num_requests, kv_tokens, .. }) => {
                let requests = num_requests as f64;
                let keys = kv_tokens as f64;
                curve.time(&mean_attention(requests, requests, keys, keys, &heads))
            }
            (Curve::Moe(curve), Kernel::Moe { num_tokens, .. }) => curve.time(num_tokens as f64),
            (Curve::AllReduce(curve), Kernel::AllReduce { message_bytes, .. }) => curve.time(message_bytes),
            (Curve::Exchange { floor_us, bytes_per_s }, Kernel::Exchange { sent_bytes, .. }) => {
                (floor_us + time_us(sent_bytes, *bytes_per_s), Provenance::Datasheet)
            }
            (Curve::Streaming, Kernel::Elementwise { launches }) => {
                (launches as f64 * KERNEL_FLOOR_US + bound_us / STREAMING_EFFICIENCY, Provenance::Datasheet)
            }
            _ => (bound_us, Provenance::Ideal),
        }
    }
}

/// Whether two operators differ in the batch only, so that one timer serves both.
pub fn same_kernel(a: &Operator, b: &Operator) -> bool {
    if a.compute_dtype != b.compute_dtype {
        return false;
    }
    match (a.kernel, b.kernel) {
        (Kernel::Gemm { n, k, weights, .. }, Kernel::Gemm { n: n2, k: k2, weights: w2, .. }) => {
            (n, k, weights) == (n2, k2, w2)
        }
        (Kernel::AttentionPrefill { heads, .. }, Kernel::AttentionPrefill { heads: other, .. })
        | (Kernel::AttentionDecode { heads, .. }, Kernel::AttentionDecode { heads: other, .. }) => heads == other,
        (
            Kernel::Moe { hidden_size, intermediate_size, top_k, num_experts, local_experts, weights, .. },
            Kernel::Moe {
                hidden_size: h2,
                intermediate_size: i2,
                top_k: t2,
                num_experts: e2,
                local_experts: l2,
                weights: w2,
                ..
            },
        ) => (hidden_size, intermediate_size, top_k, num_experts, local_experts, weights) == (h2, i2, t2, e2, l2, w2),
        (Kernel::AllReduce { num_gpus, .. }, Kernel::AllReduce { num_gpus: other, .. })
        | (Kernel::Exchange { num_gpus, .. }, Kernel::Exchange { num_gpus: other, .. }) => num_gpus == other,
        (Kernel::Elementwise { .. }, Kernel::Elementwise { .. }) => true,
        _ => false,
    }
}

/// The format that the chip's matrix unit runs for operands of `dtype`, and whether that is only a stand-in: formats that
/// it lacks are stored as they are and computed in 16 bits (Marlin kernels).
fn usable_dtype(dtype: DType, hardware: &Hardware) -> (DType, bool) {
    if hardware.peak_dense_flop_per_s(dtype).is_ok() {
        return (dtype, false);
    }
    match dtype {
        DType::Float16 | DType::Float32 => (DType::Bfloat16, false),
        _ => (DType::Bfloat16, true),
    }
}

fn curve_of(operator: &Operator, hardware: &Hardware, tables: &Tables, dtype: DType) -> Result<(Curve, Vec<String>)> {
    let chip = chip(hardware, dtype)?;
    match operator.kernel {
        Kernel::Gemm { n, k, weights, .. } => gemm_curve(operator, (n, k, weights), chip, dtype, tables),
        Kernel::AttentionPrefill { heads, .. } => {
            let (found, matched, notes) = attention_series::<PrefillModel>(operator, &heads, tables)?;
            let (kv, group) = kv_and_group(&heads);
            Ok((Curve::Prefill(PrefillCurve::new(&found.series, kv, group, chip, matched)), notes))
        }
        Kernel::AttentionDecode { heads, .. } => {
            let (found, matched, notes) = attention_series::<DecodeModel>(operator, &heads, tables)?;
            let (kv, group) = kv_and_group(&heads);
            Ok((Curve::Decode(DecodeCurve::new(&found.series, kv, group, chip, matched)), notes))
        }
        Kernel::Moe { .. } => moe_curve(operator, chip, dtype, tables),
        Kernel::AllReduce { num_gpus, .. } => {
            let found = tables.of_key::<AllReduceModel>(&AllReduceKind::Graph)?;
            let matched = found.matched(true);
            let notes = borrowed_note(operator, &found).into_iter().collect();
            Ok((Curve::AllReduce(AllReduceCurve::new(&found.series, num_gpus as f64, chip, matched)), notes))
        }
        Kernel::Exchange { .. } => {
            let found = tables.of_key::<AllReduceModel>(&AllReduceKind::Graph)?;
            let [launch, efficiency, ..] = found.series.coefficients[..] else {
                return Ok((Curve::Ideal, Vec::new()));
            };
            let curve = Curve::Exchange { floor_us: launch, bytes_per_s: chip.link_bytes_per_s * efficiency.min(1.0) };
            Ok((curve, vec![format!("{}: not measured, priced by the link and an all-reduce's floor", operator.name)]))
        }
        Kernel::Elementwise { .. } => Ok((Curve::Streaming, Vec::new())),
    }
}

fn kv_and_group(heads: &AttentionHeads) -> (f64, f64) {
    (heads.num_kv_heads as f64, heads.num_heads as f64 / heads.num_kv_heads as f64)
}

fn borrowed_note<F: Family>(operator: &Operator, found: &Found<F>) -> Option<String> {
    found.is_borrowed.then(|| {
        let what = operator.name;
        format!("{what}: efficiency borrowed from {} against this GPU's datasheet", found.folder)
    })
}

fn gemm_curve(
    operator: &Operator,
    (n, k, weights): (u64, u64, WeightFormat),
    chip: Chip,
    dtype: DType,
    tables: &Tables,
) -> Result<(Curve, Vec<String>)> {
    let wanted = match (weights, dtype) {
        (WeightFormat::Fp8Block { .. }, DType::Fp8) => GemmKind::Fp8Block,
        (_, DType::Fp8 | DType::Int8 | DType::Fp4) => GemmKind::Fp8,
        _ => GemmKind::Bfloat16,
    };
    let found = tables.of_key_near::<GemmModel>(&wanted, &[n as f64, k as f64])?;
    let measured_format = match wanted {
        GemmKind::Bfloat16 => matches!(weights, WeightFormat::Plain(_)),
        GemmKind::Fp8 => weights == WeightFormat::Fp8,
        GemmKind::Fp8Block => true,
    };
    let mut notes: Vec<String> = borrowed_note(operator, &found).into_iter().collect();
    if !measured_format {
        notes.push(format!("{}: no {weights} kernels were measured, {} ones stand in", operator.name, wanted.name()));
    }
    let matched = found.matched(measured_format);
    let shape = GemmShape {
        m: 1.0,
        n: n as f64,
        k: k as f64,
        weight_bytes: weights.bytes_per_weight(),
        activation_bytes: wanted.operand_bytes(),
    };
    Ok((Curve::Gemm(GemmCurve::new(&found.series, shape, chip, matched)), notes))
}

fn attention_series<F>(
    operator: &Operator,
    heads: &AttentionHeads,
    tables: &Tables,
) -> Result<(Found<F>, Match, Vec<String>)>
where
    F: Family<Key = AttentionKey>,
{
    let wanted = AttentionKey {
        engine: PREFERRED_ENGINE.to_owned(),
        kv_dtype: if heads.kv_dtype.bytes() <= 1.0 { DType::Fp8 } else { DType::Bfloat16 },
        head_dim: if heads.is_mla { 128 } else { heads.head_dim },
        window: match heads.window {
            Window::Full => None,
            Window::Sliding(n) | Window::Chunked(n) => Some(n),
        },
    };
    let (found, _) = tables.nearest::<F>(|key| attention_distance(key, &wanted))?;
    let key = &found.series.key;
    let mut notes: Vec<String> = borrowed_note(operator, &found).into_iter().collect();
    let alike = AttentionKey { engine: key.engine.clone(), ..wanted };
    if heads.is_mla {
        notes.push(format!(
            "{}: latent attention was not measured, grouped-query kernels of head size 128 stand in",
            operator.name
        ));
    } else if *key != alike {
        notes.push(format!(
            "{}: not measured for {}, {} stands in",
            operator.name,
            alike_name(&alike),
            alike_name(key)
        ));
    }
    let matched = found.matched(*key == alike && !heads.is_mla);
    Ok((found, matched, notes))
}

fn alike_name(key: &AttentionKey) -> String {
    let window = key.window.map_or_else(|| "no window".to_owned(), |w| format!("window {w}"));
    format!("head size {}, {window}, {} KV", key.head_dim, key.kv_dtype)
}

fn moe_curve(operator: &Operator, chip: Chip, dtype: DType, tables: &Tables) -> Result<(Curve, Vec<String>)> {
    let Kernel::Moe { hidden_size, intermediate_size, top_k, num_experts, local_experts, weights, .. } =
        operator.kernel
    else {
        return Ok((Curve::Ideal, Vec::new()));
    };
    let kind = match (weights, dtype) {
        (WeightFormat::Plain(_), _) => MoeKind::Bfloat16,
        (WeightFormat::Fp8Block { .. }, DType::Fp8) => MoeKind::Fp8Block,
        (_, DType::Fp8 | DType::Int8 | DType::Fp4) => MoeKind::Fp8,
        (WeightFormat::Fp8 | WeightFormat::Fp8Block { .. } | WeightFormat::Int8, _) => MoeKind::Bfloat16,
        _ => MoeKind::Int4WeightOnly,
    };
    let ep = num_experts as f64 / local_experts as f64;
    let shape = MoeShape {
        tokens: 1.0,
        hidden: hidden_size as f64,
        intermediate: intermediate_size as f64,
        top_k: top_k as f64,
        experts: num_experts as f64,
        local_experts: local_experts as f64,
        weight_bytes: weights.bytes_per_weight(),
        activation_bytes: kind.activation_bytes(),
    };
    let distance = |key: &MoeKey| {
        if key.kind == kind && key.routing == ROUTING { expert_layer_distance(key, &shape) } else { f64::INFINITY }
    };
    let mut found = tables.nearest_few::<MoeModel>(distance, MOE_NEIGHBOURS)?;
    let is_exact = found[0].1 < 1e-9;
    if is_exact {
        found.truncate(1);
    }
    let mut notes: Vec<String> = borrowed_note(operator, &found[0].0).into_iter().collect();
    if !is_exact {
        notes.push(format!(
            "{}: {num_experts} experts of {hidden_size} × {intermediate_size}, top {top_k}, were not measured; the nearest layers ({}) stand in",
            operator.name,
            found.iter().map(|(f, _)| layer_name(&f.series.key)).collect::<Vec<_>>().join(", ")
        ));
    }
    let measured_format = matches!(
        (kind, weights),
        (MoeKind::Bfloat16, WeightFormat::Plain(_))
            | (MoeKind::Fp8, WeightFormat::Fp8)
            | (MoeKind::Fp8Block, WeightFormat::Fp8Block { .. })
            | (MoeKind::Int4WeightOnly, WeightFormat::Int4 { .. })
    );
    if !measured_format {
        notes.push(format!("{}: no {weights} kernels were measured, {} ones stand in", operator.name, kind.name()));
    }
    let matched = found[0].0.matched(is_exact && measured_format);
    let tp = nearest_split(&found[0].0.series.key, &shape);
    let series: Vec<_> = found.iter().map(|(f, d)| (&*f.series, stand_in_weight(*d), matched)).collect();
    Ok((Curve::Moe(MoeCurve::new(&series, shape, tp, ep, chip)), notes))
}

fn layer_name(key: &MoeKey) -> String {
    format!("{}×{}×{} top {}", key.num_experts, key.hidden_size, key.intermediate_size, key.top_k)
}

//! Chooses the series that answers for an operator, and notes fallbacks and stand-ins.

use super::super::chip::Chip;
use super::super::curve::{
    AllReduceCurve, DecodeCurve, GemmCurve, Match, MoeCurve, PrefillCurve, attention_distance, expert_layer_distance,
    nearest_split, stand_in_weight,
};
use super::super::family::{Family, OUTPUT_BYTES};
use super::super::gemm_model::GemmModel;
use super::super::kernel_model::{AllReduceModel, DecodeModel, MoeModel, PrefillModel};
use super::super::keys::{AllReduceKind, AttentionKey, GemmKind, MoeKey, MoeKind, Routing};
use super::super::tables::{Found, Tables};
use super::Curve;
use crate::dtype::{DType, WeightFormat};
use crate::error::Result;
use crate::hardware::Hardware;
use crate::model::Window;
use crate::physics::projection::GemmShape;
use crate::physics::{AttentionHeads, Experts, Kernel, Operator};

/// Engine whose attention kernels are taken where several were measured: the nearest to vLLM 0.15.1, the version that
/// serving predictions are judged on.
const PREFERRED_ENGINE: &str = "vllm-0.14";

/// Spread of tokens over experts that is assumed of a trained router.
const ROUTING: Routing = Routing::PowerLaw(1.01);

/// Expert layers closest to an unmeasured one that are averaged.
const MOE_NEIGHBOURS: usize = 3;

/// The format that the chip's matrix unit runs for operands of `dtype`, and whether that is only a stand-in: formats that
/// it lacks are stored as they are and computed in 16 bits (Marlin kernels).
pub(super) fn usable_dtype(dtype: DType, hardware: &Hardware) -> (DType, bool) {
    if hardware.peak_dense_flop_per_s(dtype).is_ok() {
        return (dtype, false);
    }
    match dtype {
        DType::Float16 | DType::Float32 => (DType::Bfloat16, false),
        _ => (DType::Bfloat16, true),
    }
}

/// The curve of `operator` on this GPU, and notes on fallbacks and stand-ins.
pub(super) fn curve_of(
    operator: &Operator,
    hardware: &Hardware,
    tables: &Tables,
    dtype: DType,
) -> Result<(Curve, Vec<String>)> {
    let chip = Chip::new(hardware, dtype)?;
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
            let notes = fallback_note(operator, &found).into_iter().collect();
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

fn fallback_note<F: Family>(operator: &Operator, found: &Found<F>) -> Option<String> {
    found.is_fallback.then(|| {
        let what = operator.name;
        format!("{what}: efficiency borrowed from {} against this GPU's datasheet", found.gpu)
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
    let found = tables.of_key_around::<GemmModel>(&wanted, &[n as f64, k as f64])?;
    let measured_format = match wanted {
        GemmKind::Bfloat16 => matches!(weights, WeightFormat::Plain(_)),
        GemmKind::Fp8 => weights == WeightFormat::Fp8,
        GemmKind::Fp8Block => true,
    };
    let mut notes: Vec<String> = fallback_note(operator, &found).into_iter().collect();
    if !measured_format {
        notes.push(format!("{}: no {weights} kernels were measured, {} ones stand in", operator.name, wanted.name()));
    }
    let matched = found.matched(measured_format);
    let shape = GemmShape {
        m: 1.0,
        n: n as f64,
        k: k as f64,
        input_bytes: wanted.operand_bytes(),
        weight_bytes: weights.bytes_per_weight(),
        output_bytes: OUTPUT_BYTES,
    };
    Ok((Curve::Gemm(Box::new(GemmCurve::new(&found.series, shape, chip, matched))), notes))
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
    let (found, _) = tables.nearest::<F>(|key| attention_distance(key, &wanted), 1)?.remove(0);
    let key = &found.series.key;
    let mut notes: Vec<String> = fallback_note(operator, &found).into_iter().collect();
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
    let Kernel::Moe { experts, .. } = operator.kernel else { return Ok((Curve::Ideal, Vec::new())) };
    let Experts { hidden_size, intermediate_size, top_k, num_experts, weights, .. } = experts;
    let kind = match (weights, dtype) {
        (WeightFormat::Plain(_), _) => MoeKind::Bfloat16,
        (WeightFormat::Fp8Block { .. }, DType::Fp8) => MoeKind::Fp8Block,
        (_, DType::Fp8 | DType::Int8 | DType::Fp4) => MoeKind::Fp8,
        (WeightFormat::Fp8 | WeightFormat::Fp8Block { .. } | WeightFormat::Int8, _) => MoeKind::Bfloat16,
        _ => MoeKind::Int4WeightOnly,
    };
    let ep = num_experts as f64 / experts.local_experts as f64;
    let shape = experts.shape(1.0, kind.activation_bytes(), OUTPUT_BYTES);
    let distance = |key: &MoeKey| {
        if key.kind == kind && key.routing == ROUTING { expert_layer_distance(key, &shape) } else { f64::INFINITY }
    };
    let mut found = tables.nearest::<MoeModel>(distance, MOE_NEIGHBOURS)?;
    let is_exact = found[0].1 < 1e-9;
    if is_exact {
        found.truncate(1);
    }
    let mut notes: Vec<String> = fallback_note(operator, &found[0].0).into_iter().collect();
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

//! Chooses the series that answers for an operator, and notes fallbacks and stand-ins.
#![expect(clippy::indexing_slicing, reason = "a search that succeeds finds one series at least")]

use super::super::chip::Chip;
use super::super::curve::{
    DecodeCurve, GemmCurve, MoeCurve, PrefillCurve, StateCurve, attention_distance, expert_layer_distance,
    fallback_weight, nearest_split, state_distance,
};
use super::super::family::{DECODE, GEMM, KernelFamily, MOE, OUTPUT_BYTES, PREFILL, STATE};
use super::super::gemm_model::GemmModel;
use super::super::keys::{AttentionKey, HeadSize, MoeKey, Routing, StateKey, operand_dtype};
use super::super::provenance::Provenance;
use super::super::state_model::StateModel;
use super::super::tables::{SeriesMatch, Tables, if_any};
use super::FamilyCurve;
use super::crossing::LinkCrossing;
use crate::dtype::{DType, MatmulFormat, WeightFormat};
use crate::engine::Engine;
use crate::error::Result;
use crate::hardware::{Architecture, Hardware, Interconnect};
use crate::physics::projection::GemmShape;
use crate::physics::{AttentionHeads, Experts, Kernel, Operator, StateHeads, StateKernel};

/// Distance of kernels of another number format. It is more than that of any layer of the same format.
const OTHER_FORMAT_DISTANCE: f64 = 1000.0;

/// Distance of experts that were timed under another routing. It is more than that of any layer under the assumed one.
const OTHER_ROUTING_DISTANCE: f64 = 500.0;

/// Expert layers closest to an unmeasured one that are averaged.
const MOE_NEIGHBOURS: usize = 3;

/// The format that the chip's matrix unit runs for operands of `dtype`, and whether that is only a stand-in: formats that
/// it lacks are stored as they are and computed in 16 bits (Marlin kernels). Models in bf16 are computed in fp16 by a chip without bf16.
pub(super) fn usable_dtype(dtype: DType, hardware: &Hardware) -> (DType, bool) {
    if hardware.peak_dense_flop_per_s(dtype).is_ok() {
        return (dtype, false);
    }
    let has_bf16 = hardware.peak_dense_flop_per_s(DType::Bfloat16).is_ok();
    let of_16_bits = if has_bf16 { DType::Bfloat16 } else { DType::Float16 };
    (of_16_bits, !matches!(dtype, DType::Float16 | DType::Bfloat16 | DType::Float32))
}

/// The format in which the kernels of an operator multiply. On Blackwell SGLang and TensorRT-LLM quantise the inputs of mxfp4 experts to
/// mxfp8 (SGLang's `flashinfer_mxfp4` with its default precision, TensorRT-LLM's `W4A8_MXFP4_MXFP8`); vLLM keeps 16 bits by default.
pub(super) fn multiplied_dtype(operator: &Operator, tables: &Tables) -> DType {
    let is_quantised = tables.architecture() == Architecture::Blackwell && !tables.engine().is_vllm();
    match operator.kernel {
        Kernel::Moe { experts, .. } if experts.weights == WeightFormat::Mxfp4 && is_quantised => DType::Fp8,
        _ => operator.compute_dtype,
    }
}

/// The search for the series that answer for an operator.
pub(super) struct Choice<'a> {
    pub(super) operator: &'a Operator,
    pub(super) chip: Chip,
    /// Format whose peak `chip` has.
    pub(super) dtype: DType,
    pub(super) tables: &'a Tables,
    /// The link between the GPUs.
    pub(super) link: Option<Interconnect>,
    /// GPUs over PCIe have no peer access: what they send goes through the host's memory. `chip` has the rate of such copies.
    pub(super) is_through_host: bool,
    /// Cost of leaving the GPUs that a link joins.
    pub(super) crossing: Option<LinkCrossing>,
    /// Fallbacks and stand-ins.
    pub(super) notes: Vec<String>,
}

impl Choice<'_> {
    /// The curve of the operator on this GPU.
    pub(super) fn curve(&mut self) -> Result<FamilyCurve> {
        match self.operator.kernel {
            Kernel::Gemm { n, k, copies, weights, .. } if copies > 1 => self.batched(n, k, copies, weights),
            Kernel::Gemm { n, k, weights, .. } => self.gemm(n as f64, k as f64, weights),
            Kernel::AttentionPrefill { heads, .. } => {
                let (found, at_best) = self.attention(&PREFILL, &heads)?;
                let (kv, group) = kv_and_group(&heads);
                let prefill = PrefillCurve::new(&found.series, kv, group, self.chip, at_best);
                // Chunks of latent attention run other kernels than its decodes.
                Ok(FamilyCurve::Prefill(if is_latent(&heads) || heads.is_indexer() {
                    prefill
                } else {
                    prefill.with_decode(self.decode(&heads)?)
                }))
            }
            Kernel::AttentionDecode { heads, .. } => Ok(FamilyCurve::Decode(self.decode(&heads)?)),
            Kernel::Moe { experts, .. } => self.moe(&experts),
            Kernel::AllReduce { num_gpus, is_ring, .. } => self.all_reduce(num_gpus, is_ring),
            Kernel::Exchange { collective, group, .. } => self.exchange(collective, group),
            Kernel::State { kernel, heads, .. } => self.state(kernel, &heads),
            Kernel::Elementwise { .. } | Kernel::Sort { .. } | Kernel::RowScan { .. } => Ok(FamilyCurve::Streaming),
        }
    }

    /// Adds a note once: the series of a chunk and of its decodes may be borrowed alike.
    pub(super) fn note(&mut self, what: impl std::fmt::Display) {
        let note = what.to_string();
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    pub(super) fn note_fallback<K>(&mut self, found: &SeriesMatch<K>) {
        if found.is_fallback {
            self.note(format_args!("efficiency borrowed from {} against this GPU's datasheet", found.gpu));
        }
        let wanted = self.tables.engine();
        let of_version = |engine: &Engine, what: &str| match engine.version().filter(|_| engine.has_name_of(wanted)) {
            Some(version) => format!("; engine_version = {version} {what}"),
            None => String::new(),
        };
        if let Some(engine) = found.engine.as_ref().filter(|engine| !wanted.is_served_by(engine)) {
            let remedy = of_version(engine, "launches them");
            self.note(format_args!("kernels of {engine} are the fallback for {wanted}{remedy}"));
        }
        if let Some(engine) = &found.nearer_in {
            let remedy = of_version(engine, "has them");
            self.note(format_args!("nearer kernels were measured under {engine}{remedy}"));
        }
    }

    /// Whether kernels of `format` are those of the weights. Adds a note if they are not.
    fn is_own_format(&mut self, weights: WeightFormat, format: MatmulFormat) -> bool {
        let is_own = match weights {
            // Blocks of fp8 were measured in the size of DeepSeek-V3's alone.
            WeightFormat::Fp8Block { rows, columns } if (rows, columns) != (128, 128) => false,
            WeightFormat::Mxfp4 => matches!(format, MatmulFormat::Mxfp4 | MatmulFormat::Mxfp4Mxfp8),
            _ => MatmulFormat::from(weights).tabulated() == Some(format),
        };
        if !is_own {
            self.note(format_args!("no {weights} kernels were measured; fallback: {format}"));
        }
        is_own
    }

    pub(super) fn gemm(&mut self, n: f64, k: f64, weights: WeightFormat) -> Result<FamilyCurve> {
        let (format, fallback) = match (weights, self.dtype) {
            (WeightFormat::Fp8Block { .. }, DType::Fp8) => (MatmulFormat::Fp8Block, None),
            (WeightFormat::Nvfp4, DType::Fp4) => (MatmulFormat::Nvfp4, Some(MatmulFormat::Fp8)),
            (_, DType::Fp8 | DType::Int8 | DType::Fp4) => (MatmulFormat::Fp8, None),
            _ => (MatmulFormat::Bfloat16, None),
        };
        let distance = |key: &MatmulFormat| format_distance(*key, format, fallback);
        let found = self.tables.nearest(&GEMM, distance, 1, &[n, k])?.remove(0);
        let format = found.key;
        self.note_fallback(&found);
        let at_best = found.at_best(self.is_own_format(weights, format));
        let shape = GemmShape { weight_bytes: weights.bytes_per_weight(), ..GemmModel::shape(&format, &[n, k, 1.0]) };
        Ok(FamilyCurve::Gemm(Box::new(GemmCurve::new(&found.series, shape, self.chip, at_best))))
    }

    fn attention(
        &mut self,
        family: &'static KernelFamily,
        heads: &AttentionHeads,
    ) -> Result<(SeriesMatch<AttentionKey>, Provenance)> {
        let wanted = AttentionKey {
            engine: self.tables.engine().to_string(),
            kv_dtype: if heads.kv_dtype.bytes() <= 1.0 { DType::Fp8 } else { DType::Bfloat16 },
            head_size: head_size(heads),
            window: heads.window.size(),
        };
        let distance = |key: &AttentionKey| attention_distance(key, &wanted);
        let mut found = self.tables.nearest(family, distance, 1, &[])?.remove(0);
        // A table may hold series of several engines, and the key of a series names its own.
        found.engine = found.engine.and_then(|_| Engine::parse(&found.key.engine, None));
        self.note_fallback(&found);
        let key = &found.key;
        let comparable = AttentionKey { engine: key.engine.clone(), ..wanted };
        let described = |key: &AttentionKey| {
            let window = key.window.map_or_else(|| "no window".to_owned(), |w| format!("window {w}"));
            format!("heads {}, {window}, {} KV", key.head_size, key.kv_dtype)
        };
        let kind = match comparable.head_size {
            HeadSize::Indexer => Some("indexers were"),
            HeadSize::Latent => Some("latent attention was"),
            HeadSize::Sparse | HeadSize::Plain(_) => None,
        };
        if let Some(kind) = kind.filter(|_| comparable.head_size != key.head_size) {
            self.note(format_args!("{kind} not measured; fallback: grouped-query kernels of heads {}", key.head_size));
        } else if *key != comparable {
            self.note(format_args!("not measured for {}; fallback: {}", described(&comparable), described(key)));
        }
        let at_best = found.at_best(*key == comparable);
        Ok((found, at_best))
    }

    fn decode(&mut self, heads: &AttentionHeads) -> Result<DecodeCurve> {
        let (found, at_best) = self.attention(&DECODE, heads)?;
        let (kv, group) = kv_and_group(heads);
        Ok(DecodeCurve::new(&found.series, kv, group, self.chip, at_best))
    }

    fn state(&mut self, kernel: StateKernel, heads: &StateHeads) -> Result<FamilyCurve> {
        let StateHeads { recurrence, key_head_dim, head_dim, conv_kernel, .. } = *heads;
        let wanted = StateKey { kernel, recurrence, key_head_dim, head_dim, conv_kernel };
        let found = if_any(self.tables.nearest(&STATE, |key| state_distance(key, &wanted), 1, &[]))?;
        let Some(found) = found.and_then(|found| found.into_iter().next()) else {
            if let Some(curve) = self.convolution(kernel, heads)? {
                return Ok(curve);
            }
            self.note("not measured, priced by its bytes and the datasheet's peak");
            return Ok(FamilyCurve::Streaming);
        };
        self.note_fallback(&found);
        let key = found.key;
        if key != wanted {
            self.note(format_args!("{wanted} was not measured; fallback: {key}"));
        }
        let group = heads.num_heads as f64 / heads.num_key_heads as f64;
        let at_best = found.at_best(key == wanted);
        Ok(FamilyCurve::State(StateCurve::new(&found.series, heads.num_key_heads as f64, group, self.chip, at_best)))
    }

    /// The convolution of a recurrence that was not measured, as another one's was: the kernel is the same, and knows channels alone.
    fn convolution(&mut self, kernel: StateKernel, heads: &StateHeads) -> Result<Option<FamilyCurve>> {
        let is_convolution = matches!(kernel, StateKernel::ConvPrefill | StateKernel::ConvDecode);
        let is_same = |key: &StateKey| is_convolution && (key.kernel, key.conv_kernel) == (kernel, heads.conv_kernel);
        let distance = |key: &StateKey| if is_same(key) { 0.0 } else { f64::INFINITY };
        let Some(mut found) = if_any(self.tables.nearest(&STATE, distance, 1, &[]))? else { return Ok(None) };
        let found = found.remove(0);
        self.note_fallback(&found);
        let key = found.key;
        self.note(format_args!("measured under another recurrence; fallback: {key} with the same number of channels"));
        let key_heads = heads.num_key_heads as f64 * heads.key_head_dim as f64 / key.key_head_dim as f64;
        let group = heads.value_dim() as f64 / key.head_dim as f64 / key_heads;
        let comparable = StateModel::shape(&key, &[key_heads, group, 1.0, 1.0]).heads;
        let curve = StateCurve::new(&found.series, key_heads, group, self.chip, found.at_best(false));
        Ok(Some(FamilyCurve::State(curve.looked_up_with(comparable))))
    }

    fn moe(&mut self, experts: &Experts) -> Result<FamilyCurve> {
        let Experts { hidden_size, intermediate_size, top_k, num_experts, weights, .. } = *experts;
        let format = match (weights, self.dtype) {
            (WeightFormat::Plain(_), _) => MatmulFormat::Bfloat16,
            (WeightFormat::Fp8Block { .. }, DType::Fp8) => MatmulFormat::Fp8Block,
            (WeightFormat::Nvfp4, DType::Fp4) => MatmulFormat::Nvfp4,
            (WeightFormat::Mxfp4, DType::Fp8) => MatmulFormat::Mxfp4Mxfp8,
            (_, DType::Fp8 | DType::Int8 | DType::Fp4) => MatmulFormat::Fp8,
            (WeightFormat::Fp8 | WeightFormat::Fp8Block { .. } | WeightFormat::Int8, _) => MatmulFormat::Bfloat16,
            (WeightFormat::Mxfp4, _) => MatmulFormat::Mxfp4,
            _ => MatmulFormat::Int4WeightOnly,
        };
        // Kernels of the same GPU that are the fallback for formats which were not measured on it.
        let fallback = match format {
            MatmulFormat::Nvfp4 => Some(MatmulFormat::Fp8),
            MatmulFormat::Mxfp4 => Some(MatmulFormat::Int4WeightOnly),
            _ => None,
        };
        let layer = experts.shape(1.0, 0.0, OUTPUT_BYTES);
        let assumed = Routing::assumed(num_experts);
        let of_routing = |routing| if routing == assumed { 0.0 } else { OTHER_ROUTING_DISTANCE };
        let distance = |key: &MoeKey| {
            format_distance(key.format, format, fallback) + of_routing(key.routing) + expert_layer_distance(key, &layer)
        };
        let mut found = self.tables.nearest(&MOE, distance, MOE_NEIGHBOURS, &[])?;
        let MoeKey { format, routing, .. } = found[0].key;
        found.retain(|of| (of.key.format, of.key.routing) == (format, routing));
        found.iter_mut().for_each(|of| of.distance = expert_layer_distance(&of.key, &layer));
        let shape = experts.shape(1.0, operand_dtype(format).bytes(), OUTPUT_BYTES);
        let is_exact = found[0].distance < 1e-9;
        if is_exact {
            found.truncate(1);
        }
        self.note_fallback(&found[0]);
        if !is_exact {
            let layer = |found: &SeriesMatch<MoeKey>| {
                let MoeKey { num_experts, hidden_size, intermediate_size, top_k, .. } = found.key;
                format!("{num_experts}×{hidden_size}×{intermediate_size} top {top_k}")
            };
            self.note(format_args!(
                "{num_experts} experts of {hidden_size} × {intermediate_size}, top {top_k}, were not measured; fallback: the nearest layers ({})",
                found.iter().map(layer).collect::<Vec<_>>().join(", ")
            ));
        }
        if routing != assumed {
            self.note(format_args!("{assumed} routing was not measured; fallback: {routing} routing"));
        }
        if !experts.gated {
            self.note("experts without gate were not measured; fallback: gated ones");
        }
        let is_own = self.is_own_format(weights, format);
        let at_best = found[0].at_best(is_exact && is_own && experts.gated && routing == assumed);
        let tp = nearest_split(&found[0].key, &shape);
        let ep = num_experts as f64 / experts.local_experts as f64;
        let series: Vec<_> =
            found.iter().map(|of| (&of.key, &*of.series, fallback_weight(of.distance), at_best)).collect();
        Ok(FamilyCurve::Moe(MoeCurve::new(&series, shape, tp, ep, self.chip)))
    }
}

/// Distance of kernels of another number format: infinite, except for the fallback of the wanted one.
fn format_distance(format: MatmulFormat, wanted: MatmulFormat, fallback: Option<MatmulFormat>) -> f64 {
    match format {
        own if own == wanted => 0.0,
        other if Some(other) == fallback => OTHER_FORMAT_DISTANCE,
        _ => f64::INFINITY,
    }
}

/// The head size under which tables hold the kernels of these heads.
fn head_size(heads: &AttentionHeads) -> HeadSize {
    if heads.is_indexer() {
        HeadSize::Indexer
    } else if heads.is_sparse() {
        HeadSize::Sparse
    } else if is_latent(heads) {
        HeadSize::Latent
    } else {
        HeadSize::Plain(heads.head_dim)
    }
}

/// Whether the heads are of latent attention: of its decodes, or of its prompts, whose keys are wider than their values.
fn is_latent(heads: &AttentionHeads) -> bool {
    heads.is_mla || heads.head_dim != heads.v_head_dim
}

fn kv_and_group(heads: &AttentionHeads) -> (f64, f64) {
    (heads.num_kv_heads as f64, heads.num_heads as f64 / heads.num_kv_heads as f64)
}

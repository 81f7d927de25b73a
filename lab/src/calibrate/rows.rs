//! From measurements as read to rows on the tables' grids, and to calls that no table holds but a prediction has; what
//! has neither is left out with a named reason. Uses `measurements`, `efficiency::family`, `build`, `beyond`.

use std::collections::BTreeMap;

use super::beyond::{AttentionCall, Beyond, SMALL_KERNELS, SmallCall, is_uneven};
use super::build::Row;
use crate::measurements::{AllReduceBackend, Distribution, GemmDtype, Measurements, SourceFile, SourceFormat};
use ridgepoint::DType;
use ridgepoint::internals::efficiency::family::{AllReduceKind, AttentionKey, GemmKind, MoeKey, MoeKind, Routing};
use ridgepoint::internals::efficiency::kernel_model::{AllReduceModel, DecodeModel, GemmModel, MoeModel, PrefillModel};
use ridgepoint::model::Window;

/// Rows of every operator, and how many were left out for which reason.
#[derive(Debug, Default)]
pub struct Rows {
    /// Projections.
    pub gemm: Vec<Row<GemmModel>>,
    /// Attention of prompt chunks.
    pub attention_prefill: Vec<Row<PrefillModel>>,
    /// Attention of decodes.
    pub attention_decode: Vec<Row<DecodeModel>>,
    /// Routed experts.
    pub moe: Vec<Row<MoeModel>>,
    /// All-reduces.
    pub allreduce: Vec<Row<AllReduceModel>>,
    /// What tables don't hold and a check scores nonetheless.
    pub beyond: Beyond,
    /// Rows left out whatever is done with the others, by operator and reason.
    pub left_out: BTreeMap<(&'static str, String), usize>,
}

const FLOOR: &str = "timed outside a CUDA graph: a launch floor hides the kernel";
const NO_MODEL: &str = "no kernel model for this number format";

impl Rows {
    /// Places every measurement.
    pub fn from_measurements(measurements: &Measurements) -> Self {
        let mut rows = Rows::default();
        let source_of = |source: u16| &measurements.sources[usize::from(source)];
        for r in &measurements.gemm {
            let source = source_of(r.source);
            let kind = match r.dtype {
                GemmDtype::Bfloat16 | GemmDtype::Float16 => GemmKind::Bfloat16,
                GemmDtype::Fp8 => GemmKind::Fp8,
                GemmDtype::Fp8Block => GemmKind::Fp8Block,
                _ => {
                    rows.leave_out("gemm", NO_MODEL);
                    continue;
                }
            };
            if kind != GemmKind::Bfloat16 && engine(source) == "vllm-0.14" {
                rows.leave_out("gemm", FLOOR);
                continue;
            }
            let point = vec![r.n as f64, r.k as f64, r.m as f64];
            rows.gemm.push(Row { key: kind, point, time_us: r.latency_us, source: describe(source) });
        }
        for r in &measurements.attention_prefill {
            let source = source_of(r.source);
            let Some(key) = attention_key(source, r.kv_dtype, r.head_dim, r.window) else {
                rows.leave_out("attention_prefill", NO_MODEL);
                continue;
            };
            if r.num_computed_tokens > 0 {
                match AttentionCall::prefill(key, r) {
                    Ok(call) => rows.beyond.prefill_prior_kv.push(call),
                    Err(reason) => rows.leave_out("attention_prefill", reason),
                }
                continue;
            }
            let group = r.num_heads as f64 / r.num_kv_heads as f64;
            let point = vec![r.num_kv_heads as f64, group, r.num_scheduled_tokens as f64, r.batch_size as f64];
            rows.attention_prefill.push(Row { key, point, time_us: r.latency_us, source: describe(source) });
        }
        for r in &measurements.attention_decode {
            let source = source_of(r.source);
            let Some(key) = attention_key(source, r.kv_dtype, r.head_dim, r.window) else {
                rows.leave_out("attention_decode", NO_MODEL);
                continue;
            };
            if is_uneven(r) {
                match AttentionCall::decode(key, r) {
                    Ok(call) => rows.beyond.decode_uneven.push(call),
                    Err(reason) => rows.leave_out("attention_decode", reason),
                }
                continue;
            }
            let group = r.num_heads as f64 / r.num_kv_heads as f64;
            let point = vec![r.num_kv_heads as f64, group, r.kv_tokens_mean, r.batch_size as f64];
            rows.attention_decode.push(Row { key, point, time_us: r.latency_us, source: describe(source) });
        }
        for r in &measurements.moe {
            let kind = match r.dtype {
                GemmDtype::Bfloat16 | GemmDtype::Float16 => MoeKind::Bfloat16,
                GemmDtype::Fp8 => MoeKind::Fp8,
                GemmDtype::Fp8Block => MoeKind::Fp8Block,
                GemmDtype::Int4WeightOnly => MoeKind::Int4WeightOnly,
                _ => {
                    rows.leave_out("moe", NO_MODEL);
                    continue;
                }
            };
            let key = MoeKey {
                kind,
                routing: match r.distribution {
                    Distribution::Balanced => Routing::Balanced,
                    Distribution::PowerLaw(exponent) => Routing::PowerLaw(exponent),
                },
                hidden_size: r.hidden_size,
                intermediate_size: r.intermediate_size,
                top_k: r.top_k,
                num_experts: r.num_experts,
            };
            let point = vec![r.moe_tp_size as f64, r.moe_ep_size as f64, r.num_tokens as f64];
            let source = describe(source_of(r.source));
            rows.moe.push(Row { key, point, time_us: r.latency_us, source });
        }
        for r in &measurements.allreduce {
            let key = match r.backend {
                AllReduceBackend::Graph => AllReduceKind::Graph,
                AllReduceBackend::Eager => AllReduceKind::Eager,
            };
            let point = vec![r.num_gpus as f64, r.message_bytes];
            let source = describe(source_of(r.source));
            rows.allreduce.push(Row { key, point, time_us: r.latency_us, source });
        }
        for r in &measurements.small_kernels {
            match SmallCall::new(r) {
                Ok(call) => rows.beyond.small_kernels.push(call),
                Err(reason) => rows.leave_out(SMALL_KERNELS, &reason),
            }
        }
        rows
    }

    /// Adds the rows of another folder.
    pub fn extend(&mut self, other: Rows) {
        self.gemm.extend(other.gemm);
        self.attention_prefill.extend(other.attention_prefill);
        self.attention_decode.extend(other.attention_decode);
        self.moe.extend(other.moe);
        self.allreduce.extend(other.allreduce);
        self.beyond.extend(other.beyond);
        for (reason, count) in other.left_out {
            *self.left_out.entry(reason).or_default() += count;
        }
    }

    /// Rows of one operator that were left out before anything was built or predicted.
    pub fn left_out_of(&self, operator: &str) -> BTreeMap<String, usize> {
        let of_operator = self.left_out.iter().filter(|((o, _), _)| *o == operator);
        of_operator.map(|((_, reason), count)| (reason.clone(), *count)).collect()
    }

    fn leave_out(&mut self, operator: &'static str, reason: &str) {
        *self.left_out.entry((operator, reason.to_owned())).or_default() += 1;
    }
}

/// Engine and minor version, as `vllm-0.14`: patch releases and development builds share their kernels.
fn engine(source: &SourceFile) -> String {
    let framework = source.framework.as_deref().unwrap_or("unknown").to_lowercase();
    let version: Vec<&str> = source.version.as_deref().unwrap_or("0.0").split('.').take(2).collect();
    let clean = |c: char| c.is_alphanumeric() || c == '.' || c == '-';
    format!("{framework}-{}", version.join(".")).chars().filter(|c| clean(*c)).collect()
}

/// `None` for a KV format that no table has.
fn attention_key(source: &SourceFile, kv_dtype: DType, head_dim: u64, window: Window) -> Option<AttentionKey> {
    Some(AttentionKey {
        engine: engine(source),
        kv_dtype: match kv_dtype {
            DType::Bfloat16 | DType::Float16 => DType::Bfloat16,
            DType::Fp8 => DType::Fp8,
            _ => return None,
        },
        head_dim,
        window: match window {
            Window::Full => None,
            Window::Sliding(n) | Window::Chunked(n) => Some(n),
        },
    })
}

/// The public kernel tables all come from one project; one's own measurements name themselves in `meta.toml`.
fn describe(source: &SourceFile) -> String {
    let part = |value: &Option<String>| value.as_deref().unwrap_or("?").to_owned();
    let publisher = match source.format {
        SourceFormat::Parquet => "ai-dynamo/aiconfigurator (Apache-2.0): ",
        SourceFormat::Csv => "",
    };
    format!(
        "{publisher}{} {} {}, {}, {}",
        part(&source.framework),
        part(&source.version),
        part(&source.kernel_source),
        part(&source.device),
        source.file
    )
}

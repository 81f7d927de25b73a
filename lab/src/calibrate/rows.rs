//! Places measurements on the tables' grids, or among the calls that no table holds. Every other row is left out with a
//! named reason.

use std::collections::BTreeMap;

use ridgepoint::internals::efficiency::family::{AttentionKey, MoeKey, Routing};
use ridgepoint::internals::efficiency::kernel_model::{AllReduceModel, DecodeModel, GemmModel, MoeModel, PrefillModel};
use ridgepoint::model::Window;
use ridgepoint::{DType, MatmulFormat};

use super::build::Row;
use super::off_table::{AttentionCall, OffTable, SMALL_KERNELS, SmallCall, is_uneven};
use super::report::LeftOut;
use crate::measurements::{EngineVersion, GemmCall, Heads, Measurements, MoeCall, SourceFile, SourceFormat};

/// Rows of every operator, and how many were left out for which reason.
#[derive(Debug, Default)]
pub struct Rows {
    /// Projections.
    pub gemm: Vec<Row<GemmModel>>,
    /// Attention of prefill chunks.
    pub attention_prefill: Vec<Row<PrefillModel>>,
    /// Attention of decodes.
    pub attention_decode: Vec<Row<DecodeModel>>,
    /// Routed experts.
    pub moe: Vec<Row<MoeModel>>,
    /// All-reduces.
    pub allreduce: Vec<Row<AllReduceModel>>,
    /// Calls that no table holds and a check scores.
    pub off_table: OffTable,
    /// Rows that neither a table nor a check takes, by operator and reason.
    left_out: BTreeMap<(&'static str, String), usize>,
}

const FLOOR: &str = "timed outside a CUDA graph: a launch floor hides the kernel";
const NO_MODEL: &str = "no kernel model for this number format";

impl Rows {
    /// Places every measurement.
    pub fn from_measurements(measurements: &Measurements) -> Self {
        let sources: Vec<Source> = measurements.sources.iter().map(Source::new).collect();
        let mut rows = Rows::default();
        for row in &measurements.gemm {
            let (call, source) = (&row.call, &sources[row.source]);
            match gemm_format(call, source) {
                Ok(key) => {
                    let point = vec![call.n as f64, call.k as f64, call.m as f64];
                    rows.gemm.push(Row { key, point, time_us: row.latency_us, source: source.name.clone() });
                }
                Err(reason) => rows.leave_out("gemm", reason),
            }
        }
        for row in &measurements.attention_prefill {
            let (call, source) = (&row.call, &sources[row.source]);
            let Some(key) = attention_key(&call.heads, source) else {
                rows.leave_out("attention_prefill", NO_MODEL);
                continue;
            };
            if call.num_computed_tokens > 0 {
                match AttentionCall::prefill(key, call, row.latency_us) {
                    Ok(call) => rows.off_table.prefill_prior_kv.push(call),
                    Err(reason) => rows.leave_out("attention_prefill", reason),
                }
                continue;
            }
            let point = attention_point(&call.heads, call.num_scheduled_tokens as f64, call.batch_size);
            rows.attention_prefill.push(Row { key, point, time_us: row.latency_us, source: source.name.clone() });
        }
        for row in &measurements.attention_decode {
            let (call, source) = (&row.call, &sources[row.source]);
            let Some(key) = attention_key(&call.heads, source) else {
                rows.leave_out("attention_decode", NO_MODEL);
                continue;
            };
            if is_uneven(call) {
                match AttentionCall::decode(key, call, row.latency_us) {
                    Ok(call) => rows.off_table.decode_uneven.push(call),
                    Err(reason) => rows.leave_out("attention_decode", reason),
                }
                continue;
            }
            let point = attention_point(&call.heads, call.kv_tokens_mean(), call.batch_size);
            rows.attention_decode.push(Row { key, point, time_us: row.latency_us, source: source.name.clone() });
        }
        for row in &measurements.moe {
            let call = &row.call;
            let Some(key) = moe_key(call) else {
                rows.leave_out("moe", NO_MODEL);
                continue;
            };
            let point = vec![call.moe_tp_size as f64, call.moe_ep_size as f64, call.num_tokens as f64];
            let source = sources[row.source].name.clone();
            rows.moe.push(Row { key, point, time_us: row.latency_us, source });
        }
        for row in &measurements.allreduce {
            let point = vec![row.call.num_gpus as f64, row.call.message_bytes as f64];
            let source = sources[row.source].name.clone();
            rows.allreduce.push(Row { key: row.call.backend, point, time_us: row.latency_us, source });
        }
        for row in &measurements.small_kernels {
            match SmallCall::new(&row.call, row.latency_us) {
                Ok(call) => rows.off_table.small_kernels.push(call),
                Err(reason) => rows.leave_out(SMALL_KERNELS, &reason),
            }
        }
        rows
    }

    /// Rows of one operator that were left out before anything was built or predicted.
    pub fn left_out_of(&self, operator: &str) -> LeftOut {
        let of_operator = self.left_out.iter().filter(|((o, _), _)| *o == operator);
        of_operator.map(|((_, reason), count)| (reason.clone(), *count)).collect()
    }

    fn leave_out(&mut self, operator: &'static str, reason: &str) {
        *self.left_out.entry((operator, reason.to_owned())).or_default() += 1;
    }
}

/// A source as rows need it.
struct Source {
    engine: EngineVersion,
    /// Name in the header of a table.
    name: String,
    /// Whether quantised GEMMs were timed outside CUDA graphs.
    has_eager_fp8_gemms: bool,
}

impl Source {
    fn new(source: &SourceFile) -> Self {
        let engine = source.engine();
        // The public tables of this version timed their quantised GEMMs eagerly. Later versions use graphs throughout.
        let has_eager_fp8_gemms = engine == EngineVersion { engine: "vllm".into(), minor: "0.14".into() };
        Source { engine, name: describe(source), has_eager_fp8_gemms }
    }
}

/// The kernel of a projection; an error is the reason why no table takes the row.
fn gemm_format(call: &GemmCall, source: &Source) -> std::result::Result<MatmulFormat, &'static str> {
    match call.dtype {
        MatmulFormat::Bfloat16 | MatmulFormat::Float16 => Ok(MatmulFormat::Bfloat16),
        MatmulFormat::Fp8 | MatmulFormat::Fp8Block if source.has_eager_fp8_gemms => Err(FLOOR),
        MatmulFormat::Fp8 | MatmulFormat::Fp8Block => Ok(call.dtype),
        _ => Err(NO_MODEL),
    }
}

/// `None` for a number format that no table has.
fn moe_key(call: &MoeCall) -> Option<MoeKey> {
    Some(MoeKey {
        format: match call.dtype {
            MatmulFormat::Bfloat16 | MatmulFormat::Float16 => MatmulFormat::Bfloat16,
            MatmulFormat::Fp8 | MatmulFormat::Fp8Block | MatmulFormat::Int4WeightOnly => call.dtype,
            _ => return None,
        },
        routing: Routing::parse(&call.distribution)?,
        hidden_size: call.hidden_size,
        intermediate_size: call.intermediate_size,
        top_k: call.top_k,
        num_experts: call.num_experts,
    })
}

/// `None` for a KV format that no table has.
fn attention_key(heads: &Heads, source: &Source) -> Option<AttentionKey> {
    Some(AttentionKey {
        engine: source.engine.to_string(),
        kv_dtype: match heads.kv_dtype {
            DType::Bfloat16 | DType::Float16 => DType::Bfloat16,
            DType::Fp8 => DType::Fp8,
            _ => return None,
        },
        head_dim: heads.head_dim,
        window: match heads.window {
            Window::Full => None,
            Window::Sliding(n) | Window::Chunked(n) => Some(n),
        },
    })
}

fn attention_point(heads: &Heads, tokens: f64, batch_size: u64) -> Vec<f64> {
    let group = heads.num_heads as f64 / heads.num_kv_heads as f64;
    vec![heads.num_kv_heads as f64, group, tokens, batch_size as f64]
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

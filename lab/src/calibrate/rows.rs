//! Places measurements on the tables' grids, or among the calls that no table holds. Every other row is left out with a
//! named reason.
#![expect(clippy::indexing_slicing, reason = "a row's source is the position of one that was read with it")]

use std::collections::BTreeMap;

use ridgepoint::internals::dtype::MatmulFormat;
use ridgepoint::internals::efficiency::family::{AttentionKey, Family, MoeKey, Routing, StateKey};
use ridgepoint::internals::efficiency::kernel_model::{
    AllReduceModel, DecodeModel, GemmModel, MoeModel, PrefillModel, StateModel,
};
use ridgepoint::{DType, Engine, Hardware};

use super::build::Row;
use super::off_table::{AttentionCall, OffTable, SMALL_KERNELS, SmallCall, is_uneven};
use super::report::{LeftOut, leave_out};
use crate::measurements::{
    GemmCall, Heads, Measurements, MoeCall, PrefillCall, SourceFile, SourceFormat, StateCall, Timed,
};

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
    /// Kernels of layers with a state.
    pub linear_attention: Vec<Row<StateModel>>,
    /// Calls that no table holds and a check scores.
    pub off_table: OffTable,
    /// Engine of the first source that names a known one.
    pub engine: Option<Engine>,
    /// Rows that neither a table nor a check takes, by operator.
    left_out: BTreeMap<&'static str, LeftOut>,
}

const FLOOR: &str = "timed outside a CUDA graph: a launch floor hides the kernel";
const OTHER_ENGINE: &str = "kernels of another engine than those of the folder that was named first";
const NO_MODEL: &str = "no kernel model for this number format";
const PRIOR_KV: &str = "chunk with prior KV: tables hold whole prompts, a check scores it";
const UNEVEN: &str = "uneven KV lengths: tables hold even ones, a check scores it";
const NO_TABLE: &str = "small kernels have no table: a launch floor and their bytes predict them, a check scores it";

impl Rows {
    /// Places every measurement.
    pub fn from_measurements(measurements: &Measurements, hardware: &Hardware) -> Self {
        let sources: Vec<Source> = measurements.sources.iter().map(Source::new).collect();
        let engine = sources.iter().find_map(|source| Engine::parse(&source.engine, None));
        let mut rows = Rows { engine, ..Rows::default() };
        let mut firsts = FirstEngines { hardware, engines: BTreeMap::new() };
        rows.gemm = rows.place("gemm", &measurements.gemm, |row| {
            let (call, source) = (&row.call, &sources[row.source]);
            let point = vec![call.n as f64, call.k as f64, call.m as f64];
            firsts.check(source.row(gemm_format(call, source)?, point, row.latency_us), source)
        });
        let is_chunk = |row: &&Timed<PrefillCall>| row.call.num_computed_tokens > 0;
        let (chunks, whole): (Vec<_>, Vec<_>) = measurements.attention_prefill.iter().partition(is_chunk);
        rows.attention_prefill = rows.place("attention_prefill", whole, |row| {
            let (call, source) = (&row.call, &sources[row.source]);
            let point = attention_point(&call.heads, call.num_scheduled_tokens as f64, call.batch_size);
            Ok(source.row(attention_key(&call.heads, source)?, point, row.latency_us))
        });
        rows.off_table.prefill_prior_kv = rows.place("attention_prefill", chunks, |row| {
            AttentionCall::prefill(attention_key(&row.call.heads, &sources[row.source])?, row)
        });
        let (uneven, even): (Vec<_>, Vec<_>) =
            measurements.attention_decode.iter().partition(|row| is_uneven(&row.call));
        rows.attention_decode = rows.place("attention_decode", even, |row| {
            let (call, source) = (&row.call, &sources[row.source]);
            let point = attention_point(&call.heads, call.kv_tokens_mean(), call.batch_size);
            Ok(source.row(attention_key(&call.heads, source)?, point, row.latency_us))
        });
        rows.off_table.decode_uneven = rows.place("attention_decode", uneven, |row| {
            AttentionCall::decode(attention_key(&row.call.heads, &sources[row.source])?, row)
        });
        rows.moe = rows.place("moe", &measurements.moe, |row| {
            let call = &row.call;
            let point = vec![call.moe_tp_size as f64, call.moe_ep_size as f64, call.num_tokens as f64];
            let source = &sources[row.source];
            firsts.check(source.row(moe_key(call).ok_or(NO_MODEL)?, point, row.latency_us), source)
        });
        rows.allreduce = rows.place("allreduce", &measurements.allreduce, |row| {
            let point = vec![row.call.num_gpus as f64, row.call.message_bytes as f64];
            firsts.check(sources[row.source].row(row.call.backend, point, row.latency_us), &sources[row.source])
        });
        rows.linear_attention = rows.place("linear_attention", &measurements.linear_attention, |row| {
            let StateCall { recurrence, kernel, key_head_dim, head_dim, conv_kernel, .. } = row.call;
            let key = StateKey { kernel, recurrence, key_head_dim, head_dim, conv_kernel };
            let StateCall { num_key_heads, num_heads, batch_size, num_scheduled_tokens, .. } = row.call;
            let group = num_heads as f64 / num_key_heads as f64;
            let point = vec![num_key_heads as f64, group, num_scheduled_tokens as f64, batch_size as f64];
            firsts.check(sources[row.source].row(key, point, row.latency_us), &sources[row.source])
        });
        rows.off_table.small_kernels = rows.place(SMALL_KERNELS, &measurements.small_kernels, SmallCall::new);
        rows
    }

    /// The rows that can be placed; the others are counted by their reason.
    fn place<'a, C: 'a, T>(
        &mut self,
        operator: &'static str,
        rows: impl IntoIterator<Item = &'a Timed<C>>,
        mut place: impl FnMut(&Timed<C>) -> Result<T, String>,
    ) -> Vec<T> {
        let left_out = self.left_out.entry(operator).or_default();
        let place = |row| place(row).map_err(|reason| leave_out(left_out, &reason, 1)).ok();
        rows.into_iter().filter_map(place).collect()
    }

    /// Rows of one operator that were left out before anything was built or predicted, where tables `are_built` with those
    /// that only a check takes.
    pub fn left_out_of(&self, operator: &str, are_built: bool) -> LeftOut {
        let mut left_out = self.left_out.get(operator).cloned().unwrap_or_default();
        let OffTable { prefill_prior_kv, decode_uneven, small_kernels } = &self.off_table;
        for (name, reason, rows) in [
            ("attention_prefill", PRIOR_KV, prefill_prior_kv.len()),
            ("attention_decode", UNEVEN, decode_uneven.len()),
            (SMALL_KERNELS, NO_TABLE, small_kernels.len()),
        ] {
            leave_out(&mut left_out, reason, if are_built && name == operator { rows } else { 0 });
        }
        left_out
    }
}

/// The engine that gives each series its rows: the first that has any. Engines launch different kernels, which are not averaged.
struct FirstEngines<'a> {
    hardware: &'a Hardware,
    engines: BTreeMap<(&'static str, String), String>,
}

impl FirstEngines<'_> {
    /// The row; an error is that the chip lacks the unit for it, or that another engine has its series.
    fn check<F: Family>(&mut self, row: Row<F>, source: &Source) -> Result<Row<F>, String> {
        let dtype = F::compute_dtype(&row.key);
        if self.hardware.peak_dense_flop_per_s(dtype).is_err() {
            return Err(format!("the GPU has no unit for {dtype}"));
        }
        let name = source.engine.split('-').next().unwrap_or_default();
        let first = self.engines.entry((F::OPERATOR, row.key.to_string())).or_insert_with(|| name.to_owned());
        if first == name { Ok(row) } else { Err(OTHER_ENGINE.to_owned()) }
    }
}

/// A source as rows need it.
struct Source {
    engine: String,
    /// A row of the public tables.
    is_public: bool,
    /// Name in the header of a table.
    name: String,
}

impl Source {
    fn new(source: &SourceFile) -> Self {
        Source { engine: source.engine(), is_public: source.format == SourceFormat::Parquet, name: describe(source) }
    }

    fn row<F: Family>(&self, key: F::Key, point: Vec<f64>, time_us: f64) -> Row<F> {
        Row { key, point, time_us, source: self.name.clone() }
    }
}

/// The kernel of a projection; an error is the reason why no table takes the row.
fn gemm_format(call: &GemmCall, source: &Source) -> Result<MatmulFormat, &'static str> {
    match call.dtype {
        MatmulFormat::Bfloat16 | MatmulFormat::Float16 => Ok(MatmulFormat::Bfloat16),
        // The public tables of these versions timed them eagerly.
        MatmulFormat::Fp8 | MatmulFormat::Fp8Block if source.engine == "vllm-0.14" => Err(FLOOR),
        MatmulFormat::Fp8Block if source.engine == "vllm-0.24" && source.is_public => Err(FLOOR),
        MatmulFormat::Fp8 | MatmulFormat::Fp8Block | MatmulFormat::Nvfp4 => Ok(call.dtype),
        _ => Err(NO_MODEL),
    }
}

/// `None` for a number format that no table has.
fn moe_key(call: &MoeCall) -> Option<MoeKey> {
    Some(MoeKey {
        format: match call.dtype {
            MatmulFormat::Bfloat16 | MatmulFormat::Float16 => MatmulFormat::Bfloat16,
            MatmulFormat::Fp8
            | MatmulFormat::Fp8Block
            | MatmulFormat::Int4WeightOnly
            | MatmulFormat::Nvfp4
            | MatmulFormat::Mxfp4
            | MatmulFormat::Mxfp4Mxfp8 => call.dtype,
            _ => return None,
        },
        routing: Routing::parse(&call.distribution)?,
        hidden_size: call.hidden_size,
        intermediate_size: call.intermediate_size,
        top_k: call.top_k,
        num_experts: call.num_experts,
    })
}

/// The series of a call; an error is the reason why no table takes the row.
fn attention_key(heads: &Heads, source: &Source) -> Result<AttentionKey, &'static str> {
    Ok(AttentionKey {
        engine: source.engine.to_string(),
        kv_dtype: match heads.kv_dtype {
            DType::Bfloat16 | DType::Float16 => DType::Bfloat16,
            DType::Fp8 => DType::Fp8,
            _ => return Err(NO_MODEL),
        },
        head_size: heads.head_size,
        window: heads.window.size(),
    })
}

fn attention_point(heads: &Heads, tokens: f64, batch_size: u64) -> Vec<f64> {
    let group = heads.num_heads as f64 / heads.num_kv_heads as f64;
    vec![heads.num_kv_heads as f64, group, tokens, batch_size as f64]
}

/// The public kernel tables all come from one project; one's own measurements name themselves in `meta.toml`.
fn describe(source: &SourceFile) -> String {
    let publisher = match source.format {
        SourceFormat::Parquet => "ai-dynamo/aiconfigurator (Apache-2.0): ",
        SourceFormat::Csv => "",
    };
    let parts = [&source.framework, &source.version, &source.kernel_source, &source.device];
    let [framework, version, kernel, device] = parts.map(|part| part.as_deref().unwrap_or("?"));
    format!("{publisher}{framework} {version} {kernel}, {device}, {}", source.file)
}

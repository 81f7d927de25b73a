//! Turns the columns of a file into typed rows: which columns each kind of file has, what the public tables call them
//! and which values are impossible. Uses `row`, `table`, `units`, `dtype`.

use serde::Deserialize;
use serde::de::IntoDeserializer;
use serde::de::value::{Error as ValueError, StrDeserializer};

use super::row::{
    AllReduceBackend, AllReduceRow, DecodeRow, Distribution, GemmDtype, GemmRow, MoeRow, PrefillRow, SmallKernelRow,
    SourceFormat,
};
use super::sources::RowSources;
use super::table::{BadCell, CellResult, Column, Table};
use ridgepoint::DType;
use ridgepoint::Result;
use ridgepoint::internals::units::US_PER_MS;
use ridgepoint::model::Window;

pub(super) const DTYPES: &str = "bfloat16, float16, fp8, fp8_block, int8, int8_wo, int4_wo, nvfp4 or mxfp4";
const KV_DTYPES: &str = "bfloat16, float16, fp8 or another number format";
const DISTRIBUTIONS: &str = "balanced, or power_law_<alpha> with alpha above 0";

/// Columns that every public table has and no row keeps.
const PUBLIC: [&str; 6] = ["framework", "version", "device", "op_name", "kernel_source", "latency"];
/// Columns that some public tables have beside the times; they are not read.
const PUBLIC_IGNORED: [&str; 2] = ["power", "power_limit"];

impl Table {
    /// The name of a column in this kind of file.
    fn name(&self, csv: &'static str, parquet: &'static str) -> &'static str {
        if self.format == SourceFormat::Csv { csv } else { parquet }
    }

    fn check(&self, csv: &[&str], parquet: &[&str], parquet_optional: &[&str]) -> Result<()> {
        match self.format {
            SourceFormat::Csv => self.check_columns(&[csv, &["latency_us"]].concat(), &[]),
            SourceFormat::Parquet => {
                self.check_columns(&[&PUBLIC, parquet].concat(), &[parquet_optional, &PUBLIC_IGNORED].concat())
            }
        }
    }

    fn latency(&self) -> Result<Latency<'_>> {
        let us_per_unit = if self.format == SourceFormat::Csv { 1.0 } else { US_PER_MS };
        Ok(Latency { column: self.required(self.name("latency_us", "latency"))?, us_per_unit })
    }

    /// Columns of a public table that hold one value throughout.
    fn constants<'a>(&'a self, expected: &[(&str, Constant)]) -> Result<Vec<(Column<'a>, Constant)>> {
        if self.format == SourceFormat::Csv {
            return Ok(Vec::new());
        }
        expected.iter().map(|(name, value)| Ok((self.required(name)?, *value))).collect()
    }
}

/// What a column that says nothing new must hold; another value would be another kernel.
#[derive(Clone, Copy)]
enum Constant {
    Text(&'static str),
    Count(u64),
}

fn check_constants(constants: &[(Column<'_>, Constant)], row: usize) -> CellResult<()> {
    for (column, constant) in constants {
        match *constant {
            Constant::Text(expected) if &**column.text(row)? != expected => return Err(column.bad(row, expected)),
            Constant::Count(expected) if column.count(row)? != expected => {
                return Err(column.bad(row, &expected.to_string()));
            }
            _ => {}
        }
    }
    Ok(())
}

struct Latency<'a> {
    column: Column<'a>,
    us_per_unit: f64,
}

impl Latency<'_> {
    fn us(&self, row: usize) -> CellResult<f64> {
        let latency_us = self.column.positive(row)? * self.us_per_unit;
        if latency_us.is_finite() { Ok(latency_us) } else { Err(self.column.bad(row, "a finite time")) }
    }
}

fn dtype(name: &str) -> Option<DType> {
    let deserializer: StrDeserializer<'_, ValueError> = name.into_deserializer();
    DType::deserialize(deserializer).ok()
}

pub(super) fn gemm(table: &Table, sources: &mut RowSources<'_>) -> Result<Vec<GemmRow>> {
    table.check(&["dtype", "m", "n", "k"], &["gemm_dtype", "m", "n", "k"], &[])?;
    let dtype = table.required(table.name("dtype", "gemm_dtype"))?;
    let [m, n, k] = [table.required("m")?, table.required("n")?, table.required("k")?];
    let constants = table.constants(&[("op_name", Constant::Text("gemm"))])?;
    let latency = table.latency()?;
    table.rows(|row| {
        check_constants(&constants, row)?;
        Ok(GemmRow {
            dtype: dtype.named(row, GemmDtype::from_name, DTYPES)?,
            m: m.size(row)?,
            n: n.size(row)?,
            k: k.size(row)?,
            latency_us: latency.us(row)?,
            source: sources.of(row)?,
        })
    })
}

const HEADS: [&str; 5] = ["num_heads", "num_kv_heads", "head_dim", "kv_cache_dtype", "window_size"];
const PUBLIC_ATTENTION: [&str; 9] = [
    "batch_size",
    "isl",
    "num_heads",
    "num_key_value_heads",
    "head_dim",
    "beam_width",
    "attn_dtype",
    "kv_cache_dtype",
    "step",
];

/// The columns that both attention files share.
struct Heads<'a> {
    num_heads: Column<'a>,
    num_kv_heads: Column<'a>,
    head_dim: Column<'a>,
    kv_dtype: Column<'a>,
    window_size: Option<Column<'a>>,
    batch_size: Column<'a>,
}

impl<'a> Heads<'a> {
    fn of(table: &'a Table) -> Result<Self> {
        Ok(Heads {
            num_heads: table.required("num_heads")?,
            num_kv_heads: table.required(table.name("num_kv_heads", "num_key_value_heads"))?,
            head_dim: table.required("head_dim")?,
            kv_dtype: table.required("kv_cache_dtype")?,
            window_size: table.column("window_size"),
            batch_size: table.required("batch_size")?,
        })
    }

    /// Query and KV heads, of which the former are a multiple of the latter.
    fn counts(&self, row: usize) -> CellResult<(u64, u64)> {
        let (num_heads, num_kv_heads) = (self.num_heads.size(row)?, self.num_kv_heads.size(row)?);
        if !num_heads.is_multiple_of(num_kv_heads) {
            return Err(self.num_kv_heads.bad(row, &format!("a divisor of num_heads = {num_heads}")));
        }
        Ok((num_heads, num_kv_heads))
    }

    fn kv_dtype(&self, row: usize) -> CellResult<DType> {
        self.kv_dtype.named(row, dtype, KV_DTYPES)
    }

    fn window(&self, row: usize) -> CellResult<Window> {
        match self.window_size.map(|column| column.count(row)).transpose()? {
            None | Some(0) => Ok(Window::Full),
            Some(tokens) => Ok(Window::Sliding(tokens)),
        }
    }
}

pub(super) fn attention_prefill(table: &Table, sources: &mut RowSources<'_>) -> Result<Vec<PrefillRow>> {
    let csv = [&HEADS[..], &["batch_size", "num_scheduled_tokens", "num_computed_tokens"]].concat();
    table.check(&csv, &PUBLIC_ATTENTION, &["window_size"])?;
    let heads = Heads::of(table)?;
    let num_scheduled_tokens = table.required(table.name("num_scheduled_tokens", "isl"))?;
    let num_computed_tokens = table.required(table.name("num_computed_tokens", "step"))?;
    let constants = table.constants(&[
        ("op_name", Constant::Text("context_attention")),
        ("attn_dtype", Constant::Text("bfloat16")),
        ("beam_width", Constant::Count(1)),
    ])?;
    let latency = table.latency()?;
    table.rows(|row| {
        check_constants(&constants, row)?;
        let (num_heads, num_kv_heads) = heads.counts(row)?;
        Ok(PrefillRow {
            num_heads,
            num_kv_heads,
            head_dim: heads.head_dim.size(row)?,
            kv_dtype: heads.kv_dtype(row)?,
            window: heads.window(row)?,
            batch_size: heads.batch_size.size(row)?,
            num_scheduled_tokens: num_scheduled_tokens.size(row)?,
            num_computed_tokens: num_computed_tokens.count(row)?,
            latency_us: latency.us(row)?,
            source: sources.of(row)?,
        })
    })
}

pub(super) fn attention_decode(table: &Table, sources: &mut RowSources<'_>) -> Result<Vec<DecodeRow>> {
    let csv = [&HEADS[..], &["batch_size", "kv_tokens_total", "kv_tokens_max"]].concat();
    table.check(&csv, &PUBLIC_ATTENTION, &["window_size"])?;
    let heads = Heads::of(table)?;
    let constants = table.constants(&[
        ("op_name", Constant::Text("generation_attention")),
        ("attn_dtype", Constant::Text("bfloat16")),
        ("beam_width", Constant::Count(1)),
        ("isl", Constant::Count(1)),
    ])?;
    let context = Context::of(table)?;
    let latency = table.latency()?;
    table.rows(|row| {
        check_constants(&constants, row)?;
        let (num_heads, num_kv_heads) = heads.counts(row)?;
        let batch_size = heads.batch_size.size(row)?;
        let (kv_tokens_mean, kv_tokens_max) = context.mean_and_max(row, batch_size)?;
        Ok(DecodeRow {
            num_heads,
            num_kv_heads,
            head_dim: heads.head_dim.size(row)?,
            kv_dtype: heads.kv_dtype(row)?,
            window: heads.window(row)?,
            batch_size,
            kv_tokens_mean,
            kv_tokens_max,
            latency_us: latency.us(row)?,
            source: sources.of(row)?,
        })
    })
}

/// How a file says how long the contexts of a decode call are.
enum Context<'a> {
    /// Total over the call and longest, the new tokens included.
    TotalAndMax(Column<'a>, Column<'a>),
    /// Cached tokens of every request, before the new one.
    Cached(Column<'a>),
}

impl<'a> Context<'a> {
    fn of(table: &'a Table) -> Result<Self> {
        match table.format {
            SourceFormat::Parquet => Ok(Context::Cached(table.required("step")?)),
            SourceFormat::Csv => {
                Ok(Context::TotalAndMax(table.required("kv_tokens_total")?, table.required("kv_tokens_max")?))
            }
        }
    }

    fn mean_and_max(&self, row: usize, batch_size: u64) -> CellResult<(f64, u64)> {
        match self {
            Context::Cached(column) => {
                let kv_tokens = column.count(row)? + 1;
                Ok((kv_tokens as f64, kv_tokens))
            }
            Context::TotalAndMax(total_column, max_column) => {
                let (total, max) = (total_column.size(row)?, max_column.size(row)?);
                // Each request reads its new token at least and the longest one `max`; none reads more.
                let others = u128::from(batch_size - 1);
                let (least, most) = (u128::from(max) + others, u128::from(max) * (others + 1));
                if !(least..=most).contains(&u128::from(total)) {
                    let expected = format!(
                        "{least} to {most}: {batch_size} requests, the longest of {max} tokens and each of at least 1"
                    );
                    return Err(total_column.bad(row, &expected));
                }
                Ok((total as f64 / batch_size as f64, max))
            }
        }
    }
}

pub(super) fn moe(table: &Table, sources: &mut RowSources<'_>) -> Result<Vec<MoeRow>> {
    let sizes = ["num_tokens", "hidden_size", "num_experts", "moe_tp_size", "moe_ep_size", "distribution"];
    let csv = [&sizes[..], &["dtype", "intermediate_size", "top_k"]].concat();
    let parquet = [&sizes[..], &["moe_dtype", "inter_size", "topk"]].concat();
    table.check(&csv, &parquet, &[])?;
    let dtype = table.required(table.name("dtype", "moe_dtype"))?;
    let [num_tokens, hidden_size] = [table.required("num_tokens")?, table.required("hidden_size")?];
    let intermediate_size = table.required(table.name("intermediate_size", "inter_size"))?;
    let top_k = table.required(table.name("top_k", "topk"))?;
    let num_experts = table.required("num_experts")?;
    let [moe_tp_size, moe_ep_size] = [table.required("moe_tp_size")?, table.required("moe_ep_size")?];
    let distribution = table.required("distribution")?;
    let kernel_source = table.column("kernel_source");
    let constants = table.constants(&[("op_name", Constant::Text("moe"))])?;
    let latency = table.latency()?;
    table.rows(|row| {
        check_constants(&constants, row)?;
        let moe = MoeRow {
            dtype: dtype.named(row, GemmDtype::from_name, DTYPES)?,
            kernel_source: kernel_source.map(|column| column.text(row).cloned()).transpose()?,
            num_tokens: num_tokens.size(row)?,
            hidden_size: hidden_size.size(row)?,
            intermediate_size: intermediate_size.size(row)?,
            top_k: top_k.size(row)?,
            num_experts: num_experts.size(row)?,
            moe_tp_size: moe_tp_size.size(row)?,
            moe_ep_size: moe_ep_size.size(row)?,
            distribution: distribution.named(row, Distribution::from_name, DISTRIBUTIONS)?,
            latency_us: latency.us(row)?,
            source: sources.of(row)?,
        };
        if moe.top_k > moe.num_experts {
            return Err(top_k.bad(row, &format!("at most num_experts = {}", moe.num_experts)));
        }
        if !moe.num_experts.is_multiple_of(moe.moe_ep_size) {
            return Err(moe_ep_size.bad(row, &format!("a divisor of num_experts = {}", moe.num_experts)));
        }
        if !moe.intermediate_size.is_multiple_of(moe.moe_tp_size) {
            return Err(moe_tp_size.bad(row, &format!("a divisor of the experts' width {}", moe.intermediate_size)));
        }
        Ok(moe)
    })
}

pub(super) fn allreduce(table: &Table, sources: &mut RowSources<'_>) -> Result<Vec<AllReduceRow>> {
    let csv = ["num_gpus", "message_bytes", "backend"];
    table.check(&csv, &["num_gpus", "message_size", "backend", "allreduce_dtype"], &[])?;
    let num_gpus = table.required("num_gpus")?;
    let message = table.required(table.name("message_bytes", "message_size"))?;
    // The public tables count elements of this format.
    let element = table.column("allreduce_dtype");
    let backend = table.required("backend")?;
    let constants = table.constants(&[("op_name", Constant::Text("all_reduce"))])?;
    let latency = table.latency()?;
    table.rows(|row| {
        check_constants(&constants, row)?;
        let num_gpus_value = num_gpus.size(row)?;
        if num_gpus_value < 2 {
            return Err(num_gpus.bad(row, "at least 2: one GPU has nothing to reduce"));
        }
        let element = element.map(|column| column.named(row, dtype, KV_DTYPES)).transpose()?;
        Ok(AllReduceRow {
            num_gpus: num_gpus_value,
            message_bytes: message.size(row)? as f64 * element.map_or(1.0, DType::bytes),
            backend: backend.named(row, AllReduceBackend::from_name, "graph or eager")?,
            latency_us: latency.us(row)?,
            source: sources.of(row)?,
        })
    })
}

pub(super) fn small_kernels(table: &Table, sources: &mut RowSources<'_>) -> Result<Vec<SmallKernelRow>> {
    table.check(&["kernel", "num_tokens", "width", "launches"], &[], &[])?;
    let kernel = table.required("kernel")?;
    let [num_tokens, width] = [table.required("num_tokens")?, table.required("width")?];
    let launches = table.required("launches")?;
    let latency = table.latency()?;
    table.rows(|row| {
        let name = kernel.text(row)?;
        if name.is_empty() {
            return Err(BadCell::new(row, "kernel", "nothing", "the name of the kernel"));
        }
        Ok(SmallKernelRow {
            kernel: name.to_string(),
            num_tokens: num_tokens.size(row)?,
            width: width.size(row)?,
            launches: launches.size(row)?,
            latency_us: latency.us(row)?,
            source: sources.of(row)?,
        })
    })
}

//! The layout of each kernel family's table: the axes of its grids, and the shape at a grid point.

use crate::dtype::DType;
use crate::physics::attention::{AttentionShape, HeadShape};
use crate::physics::communication::AllReduceShape;
use crate::physics::moe::MoeShape;
use crate::physics::projection::GemmShape;
use crate::physics::window::mean_visible;

use super::chip::Chip;
use super::gemm_model::{GemmModel, GemmRows};
use super::kernel_model::{AllReduceModel, DecodeModel, KernelModel, MoeModel, PrefillModel};
use super::keys::{AllReduceKind, AttentionKey, GemmKind, Key, MoeKey, MoeKind};
use super::table_cache::{TableCache, TablesOf};

/// Bytes of the 16-bit activations that measured kernels write.
pub(super) const OUTPUT_BYTES: f64 = 2.0;

/// A kernel family that has efficiency tables.
pub trait Family: KernelModel + Sized + 'static {
    /// Operator name: the stem of the table file and the key in reports.
    const OPERATOR: &'static str;
    /// Names of the grid's axes; a table line runs along the last.
    const AXES: &'static [&'static str];
    /// Kernel that one series of the table is measured for.
    type Key: Key;
    /// The shape at a grid point of a series.
    fn shape(key: &Self::Key, point: &[f64]) -> Self::Shape;
    /// Modelled times and roofline bounds along a line of the table, µs: at each of `knots` on the last axis, with `leading`
    /// coordinates on the others.
    fn line_us(c: &[f64], key: &Self::Key, leading: &[f64], knots: &[f64], chip: &Chip) -> Vec<(f64, f64)> {
        let mut point = [leading, &[0.0]].concat();
        let at = |knot: &f64| {
            point[leading.len()] = *knot;
            let shape = Self::shape(key, &point);
            (Self::time_us(c, &shape, chip), Self::bound_us(&shape, chip))
        };
        knots.iter().map(at).collect()
    }

    /// The unit whose peak the bound is taken against.
    fn compute_dtype(key: &Self::Key) -> DType;
    /// The tables of this family among those that were read.
    fn tables(cache: &TableCache) -> &TablesOf<Self>;
}

impl Family for GemmModel {
    const OPERATOR: &'static str = "gemm";
    const AXES: &'static [&'static str] = &["n", "k", "m"];
    type Key = GemmKind;

    fn shape(key: &GemmKind, point: &[f64]) -> GemmShape {
        let operand = key.operand_bytes();
        GemmShape {
            n: point[0],
            k: point[1],
            m: point[2],
            input_bytes: operand,
            weight_bytes: operand,
            output_bytes: OUTPUT_BYTES,
        }
    }

    /// The matrix is the same along a line, so its costs are computed once.
    fn line_us(c: &[f64], key: &GemmKind, leading: &[f64], knots: &[f64], chip: &Chip) -> Vec<(f64, f64)> {
        let rows = GemmRows::new(c, GemmModel::shape(key, &[leading, &[1.0]].concat()), *chip);
        knots.iter().map(|m| (rows.time_us(*m), rows.bound_us(*m))).collect()
    }

    fn compute_dtype(key: &GemmKind) -> DType {
        if *key == GemmKind::Bfloat16 { DType::Bfloat16 } else { DType::Fp8 }
    }

    fn tables(cache: &TableCache) -> &TablesOf<Self> {
        &cache.gemm
    }
}

impl AttentionKey {
    /// The shape of `batch` requests with `query` new tokens each after `past` cached ones.
    fn attention_shape(&self, kv_heads: f64, group: f64, query: f64, past: f64, batch: f64) -> AttentionShape {
        let (visible, keys) = mean_visible(query, past, self.window.map_or(f64::INFINITY, |w| w as f64));
        let heads = HeadShape {
            kv_heads,
            group,
            head_dim: self.head_dim as f64,
            v_head_dim: self.head_dim as f64,
            kv_bytes: self.kv_dtype.bytes(),
            activation_bytes: OUTPUT_BYTES,
            shares_kv: false,
        };
        AttentionShape { batch, query, visible, keys, heads }
    }
}

impl Family for PrefillModel {
    const OPERATOR: &'static str = "attention_prefill";
    const AXES: &'static [&'static str] = &["num_kv_heads", "group_size", "num_scheduled_tokens", "batch_size"];
    type Key = AttentionKey;

    fn shape(key: &AttentionKey, point: &[f64]) -> AttentionShape {
        key.attention_shape(point[0], point[1], point[2], 0.0, point[3])
    }

    fn compute_dtype(_: &AttentionKey) -> DType {
        DType::Bfloat16
    }

    fn tables(cache: &TableCache) -> &TablesOf<Self> {
        &cache.attention_prefill
    }
}

impl Family for DecodeModel {
    const OPERATOR: &'static str = "attention_decode";
    const AXES: &'static [&'static str] = &["num_kv_heads", "group_size", "kv_tokens", "batch_size"];
    type Key = AttentionKey;

    fn shape(key: &AttentionKey, point: &[f64]) -> AttentionShape {
        key.attention_shape(point[0], point[1], 1.0, point[2] - 1.0, point[3])
    }

    fn compute_dtype(_: &AttentionKey) -> DType {
        DType::Bfloat16
    }

    fn tables(cache: &TableCache) -> &TablesOf<Self> {
        &cache.attention_decode
    }
}

impl Family for MoeModel {
    const OPERATOR: &'static str = "moe";
    const AXES: &'static [&'static str] = &["moe_tp_size", "moe_ep_size", "num_tokens"];
    type Key = MoeKey;

    fn shape(key: &MoeKey, point: &[f64]) -> MoeShape {
        MoeShape {
            tokens: point[2],
            hidden: key.hidden_size as f64,
            intermediate: key.intermediate_size as f64 / point[0],
            top_k: key.top_k as f64,
            experts: key.num_experts as f64,
            local_experts: key.num_experts as f64 / point[1],
            skew: 0.0,
            weight_bytes: key.kind.weight_bytes(),
            input_bytes: key.kind.activation_bytes(),
            output_bytes: OUTPUT_BYTES,
        }
    }

    fn compute_dtype(key: &MoeKey) -> DType {
        match key.kind {
            MoeKind::Fp8 | MoeKind::Fp8Block => DType::Fp8,
            MoeKind::Bfloat16 | MoeKind::Int4WeightOnly => DType::Bfloat16,
        }
    }

    fn tables(cache: &TableCache) -> &TablesOf<Self> {
        &cache.moe
    }
}

impl Family for AllReduceModel {
    const OPERATOR: &'static str = "allreduce";
    const AXES: &'static [&'static str] = &["num_gpus", "message_bytes"];
    type Key = AllReduceKind;

    fn shape(_: &AllReduceKind, point: &[f64]) -> AllReduceShape {
        AllReduceShape { gpus: point[0], message_bytes: point[1] }
    }

    fn compute_dtype(_: &AllReduceKind) -> DType {
        DType::Bfloat16
    }

    fn tables(cache: &TableCache) -> &TablesOf<Self> {
        &cache.allreduce
    }
}

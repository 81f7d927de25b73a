//! The properties of a kernel family that only calibration needs: features of the trees, labels of the report, columns of
//! the table.

#![allow(clippy::float_cmp)] // table coordinates are whole numbers

use ridgepoint::internals::dtype::MatmulFormat;
use ridgepoint::internals::efficiency::family::{AllReduceKind, AttentionKey, Family, MoeKey, Routing, StateKey};
use ridgepoint::internals::efficiency::kernel_model::{
    AllReduceModel, Chip, DecodeModel, GEMM_TILES, GemmModel, MoeModel, PrefillModel, QUERY_TILE, StateModel,
};
use ridgepoint::internals::physics::Shape;
use ridgepoint::internals::physics::attention::{AttentionShape, HeadShape};
use ridgepoint::internals::physics::projection::GemmShape;

/// A kernel family that can be calibrated.
pub trait Calibrated: Family + Send + Sync {
    /// Whether all labels are learnt by one forest of trees, not each by its own.
    const SHARES_FOREST: bool = true;

    /// Efficiency above which a row is too fast to be true; timings scatter, and short kernels find operands in the L2 cache.
    const MAX_EFFICIENCY: f64 = 1.1;

    /// Label that errors are grouped by: the number format, or the launch mode.
    fn label(key: &Self::Key) -> String {
        key.to_string()
    }

    /// Features of a call for the trees: sizes, work, and the padding of tiles and waves. Sizes and work are logarithms, so that
    /// a threshold is a ratio.
    fn features(key: &Self::Key, shape: &Self::Shape, chip: &Chip) -> Vec<f64>;

    /// Returns whether a value of the last axis gets a column in the table.
    fn keep_knot(_: &Self::Key, _: f64) -> bool {
        true
    }

    /// Returns whether a label counts in the operator's total.
    fn in_total(_: &str) -> bool {
        true
    }
}

/// Logarithms of sizes and work.
fn logs(values: &[f64]) -> Vec<f64> {
    values.iter().map(|v| v.max(1e-9).ln()).collect()
}

impl Calibrated for GemmModel {
    const SHARES_FOREST: bool = false;

    fn features(_: &MatmulFormat, shape: &Self::Shape, chip: &Chip) -> Vec<f64> {
        let GemmShape { m, n, k, .. } = *shape;
        let work = shape.work();
        let mut features = logs(&[m, n, k, n * k, m * n, m * k, work.flops, work.bytes, work.flops / work.bytes]);
        for (rows, columns) in GEMM_TILES {
            let tiles = (m / rows).ceil() * (n / columns).ceil();
            features.push(tiles.ln());
            features.push((tiles / chip.sm_count).ceil() * chip.sm_count / tiles);
        }
        for rows in [16.0, 64.0, 128.0, 256.0] {
            features.push((m / rows).ceil() * rows / m);
        }
        features
    }

    /// Leaves out columns that repeat their neighbours: few tokens cost the same, and past the first waves one more row
    /// matters little. The noisy block format keeps all.
    fn keep_knot(key: &MatmulFormat, m: f64) -> bool {
        let flat = m < 16.0 && m.log2().fract() != 0.0;
        let one_row_more = m > 1200.0 && m % 256.0 == 1.0 && m != 2049.0;
        *key == MatmulFormat::Fp8Block || !(flat || one_row_more)
    }
}

impl Calibrated for PrefillModel {
    fn label(key: &AttentionKey) -> String {
        key.kv_dtype.to_string()
    }

    fn features(key: &AttentionKey, shape: &Self::Shape, chip: &Chip) -> Vec<f64> {
        attention_features(key, shape, chip)
    }
}

impl Calibrated for DecodeModel {
    fn label(key: &AttentionKey) -> String {
        key.kv_dtype.to_string()
    }

    fn features(key: &AttentionKey, shape: &Self::Shape, chip: &Chip) -> Vec<f64> {
        attention_features(key, shape, chip)
    }
}

fn attention_features(key: &AttentionKey, shape: &AttentionShape, chip: &Chip) -> Vec<f64> {
    let AttentionShape { batch, query, visible, keys, heads } = *shape;
    let HeadShape { kv_heads, group, head_dim, kv_bytes, .. } = heads;
    let work = shape.work();
    let heads = kv_heads * group;
    let units = batch * kv_heads;
    let tiles = batch * heads * (query / QUERY_TILE).ceil();
    let packed = batch * kv_heads * (query * group / QUERY_TILE).ceil();
    let window = key.window.map_or(1e9, |w| w as f64);
    let mut features = logs(&[
        batch,
        query,
        visible,
        keys,
        kv_heads,
        group,
        head_dim,
        kv_bytes,
        window,
        heads,
        units,
        units * keys,
        tiles,
        packed,
        work.flops,
        work.bytes,
        work.flops / work.bytes,
    ]);
    for work in [units, tiles, packed] {
        features.push((work / chip.sm_count).ceil() * chip.sm_count / work);
    }
    features.push(key.engine.bytes().map(f64::from).sum());
    features
}

impl Calibrated for MoeModel {
    const SHARES_FOREST: bool = false;

    /// The bound assumes that tokens choose experts evenly. Skewed or grouped routing reads fewer, and experts without a gate are two
    /// thirds as large.
    const MAX_EFFICIENCY: f64 = 2.0;

    fn label(key: &MoeKey) -> String {
        key.format.to_string()
    }

    fn features(key: &MoeKey, shape: &Self::Shape, _: &Chip) -> Vec<f64> {
        let skew = match key.routing {
            Routing::Balanced => 0.5,
            Routing::PowerLaw(exponent) => exponent,
        };
        let active = shape.active_experts().max(1e-6);
        let work = shape.work();
        logs(&[
            skew,
            shape.tokens,
            shape.hidden,
            shape.intermediate,
            shape.top_k,
            shape.experts,
            shape.local_experts,
            shape.pairs(),
            active,
            shape.pairs() / active,
            shape.tokens * shape.top_k,
            shape.tokens * shape.top_k / shape.experts,
            shape.hidden * shape.intermediate,
            work.flops,
            work.bytes,
            work.flops / work.bytes,
            shape.experts / shape.local_experts,
            key.intermediate_size as f64 / shape.intermediate,
        ])
    }
}

impl Calibrated for AllReduceModel {
    fn features(key: &AllReduceKind, shape: &Self::Shape, _: &Chip) -> Vec<f64> {
        let mut features = logs(&[shape.message_bytes, shape.gpus, shape.work().bytes]);
        features.push(if *key == AllReduceKind::Graph { 0.0 } else { 1.0 });
        features
    }

    /// Steps run inside graphs, so eager rows do not count.
    fn in_total(label: &str) -> bool {
        label == "graph"
    }
}

impl Calibrated for StateModel {
    const SHARES_FOREST: bool = false;

    fn label(key: &StateKey) -> String {
        format!("{} {}", key.recurrence.name(), key.kernel.name())
    }

    fn features(_: &StateKey, shape: &Self::Shape, chip: &Chip) -> Vec<f64> {
        let work = shape.work();
        let (heads, key_heads) = (shape.heads.num_heads as f64, shape.heads.num_key_heads as f64);
        let (blocks, tokens) = (shape.requests * heads, shape.tokens / shape.requests);
        let mut features = logs(&[
            shape.requests,
            tokens,
            shape.tokens,
            heads,
            key_heads,
            blocks,
            blocks * tokens,
            work.flops,
            work.bytes,
            work.flops / work.bytes,
        ]);
        features.push((blocks / chip.sm_count).ceil() * chip.sm_count / blocks);
        features
    }
}

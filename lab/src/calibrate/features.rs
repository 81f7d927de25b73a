//! Features of a call for the trees: sizes, work, and the padding of tiles and waves. Sizes and work are logarithms, so that a
//! threshold is a ratio.

use ridgepoint::internals::efficiency::family::{AllReduceKind, AttentionKey, GemmKind, MoeKey, Routing};
use ridgepoint::internals::efficiency::kernel_model::{Chip, GEMM_TILES, QUERY_TILE};
use ridgepoint::physics::Shape;
use ridgepoint::physics::attention::{AttentionShape, HeadShape};
use ridgepoint::physics::communication::AllReduceShape;
use ridgepoint::physics::moe::MoeShape;
use ridgepoint::physics::projection::GemmShape;

fn logs<const N: usize>(values: [f64; N]) -> Vec<f64> {
    values.into_iter().map(|v| v.max(1e-9).ln()).collect()
}

/// Features of a projection.
pub fn gemm(_: &GemmKind, shape: &GemmShape, chip: &Chip) -> Vec<f64> {
    let GemmShape { m, n, k, .. } = *shape;
    let work = shape.work();
    let mut features = logs([m, n, k, n * k, m * n, m * k, work.flops, work.bytes, work.flops / work.bytes]);
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

/// Features of an attention call, prefill or decode.
pub fn attention(key: &AttentionKey, shape: &AttentionShape, chip: &Chip) -> Vec<f64> {
    let AttentionShape { batch, query, visible, keys, heads } = *shape;
    let HeadShape { kv_heads, group, head_dim, kv_bytes, .. } = heads;
    let work = shape.work();
    let heads = kv_heads * group;
    let units = batch * kv_heads;
    let tiles = batch * heads * (query / QUERY_TILE).ceil();
    let packed = batch * kv_heads * (query * group / QUERY_TILE).ceil();
    let window = key.window.map_or(1e9, |w| w as f64);
    let mut features = logs([
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

/// Features of an expert layer.
pub fn moe(key: &MoeKey, shape: &MoeShape, _: &Chip) -> Vec<f64> {
    let skew = match key.routing {
        Routing::Balanced => 0.5,
        Routing::PowerLaw(exponent) => exponent,
    };
    let active = shape.active_experts().max(1e-6);
    let work = shape.work();
    logs([
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

/// Features of an all-reduce.
pub fn all_reduce(key: &AllReduceKind, shape: &AllReduceShape, _: &Chip) -> Vec<f64> {
    let mut features = logs([shape.message_bytes, shape.gpus, shape.work().bytes]);
    features.push(if *key == AllReduceKind::Graph { 0.0 } else { 1.0 });
    features
}

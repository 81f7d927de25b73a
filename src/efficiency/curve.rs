//! A series reduced to one model on one rank: the grid sliced at the coordinates that stay the same from step to step (n and
//! k, heads, experts), so that a step looks up one or two coordinates.
#![expect(clippy::indexing_slicing, reason = "a grid has its family's axes, and an axis a knot at least")]

use super::chip::Chip;
use super::family::OUTPUT_BYTES;
use super::gemm_model::GemmRows;
use super::kernel_model::{CachedKeys, PrefillModel, tiled_keys};
use super::keys::{AttentionKey, BatchedGemmKey, HeadSize, MoeKey, StateKey};
use super::provenance::Provenance;
use super::residual_curve::{ResidualCurve, SourcedTime, Uneven};
use super::series::Series;
use super::series_key::{CallShape, OfSeries};
use crate::engine::Engine;
use crate::physics::AttentionHeads;
use crate::physics::attention::{AttentionShape, HeadShape};
use crate::physics::moe::MoeShape;
use crate::physics::projection::GemmShape;
use crate::physics::{Shape, StateHeads, StateShape};

/// A projection of fixed n and k, or a batch of them.
#[derive(Debug, Clone)]
pub struct GemmCurve {
    curve: ResidualCurve,
    rows: GemmRows,
}

impl GemmCurve {
    /// `shape.m` is ignored; everything else is fixed from here on.
    pub fn new(series: &Series, shape: GemmShape, chip: Chip, at_best: Provenance) -> Self {
        GemmCurve::sliced(series, &[shape.n, shape.k], shape, chip, at_best)
    }

    /// The same for a batch of products.
    pub fn batched(series: &Series, shape: GemmShape, chip: Chip, at_best: Provenance) -> Self {
        GemmCurve::sliced(series, &[shape.copies], shape, chip, at_best)
    }

    fn sliced(series: &Series, leading: &[f64], shape: GemmShape, chip: Chip, at_best: Provenance) -> Self {
        let rows = GemmRows::new(&series.coefficients, shape, chip);
        let curve = ResidualCurve::new(series, leading, chip, at_best).rising(|m| rows.time_us(m));
        GemmCurve { curve, rows }
    }

    /// Time for `m` rows.
    pub fn time(&self, m: f64) -> SourcedTime {
        let (time_us, provenance) = self.curve.risen(self.rows.time_us(m), m);
        (time_us.max(self.rows.bound_us(m)), provenance)
    }

    /// Rows near `m` rows that fall.
    pub fn uneven_near(&self, m: f64) -> Option<Uneven> {
        self.curve.uneven_near(m)
    }
}

/// Decode attention of fixed heads.
#[derive(Debug, Clone)]
pub struct DecodeCurve {
    pub(super) curve: ResidualCurve,
    /// KV heads over the most KV heads of the table: the kernel spreads (request, KV head) pairs, so that more heads act like
    /// more requests.
    pub(super) batch_factor: f64,
    /// The series is of latent attention, whose values lie in its keys.
    pub(super) is_latent: bool,
    /// Keys added before a lookup: 1 for sparse attention, which was timed at 2ⁿ cached tokens and the new one; otherwise 0.
    beyond: f64,
}

impl DecodeCurve {
    /// Heads beyond the table's are looked up as more requests of the most heads it has.
    pub fn new(series: &Series, kv_heads: f64, group: f64, chip: Chip, at_best: Provenance) -> Self {
        let most = series.grid.axes[0].last().copied().unwrap_or(kv_heads);
        let measured = kv_heads.min(most);
        let head_size = AttentionKey::of(&series.key).map(|key| key.head_size);
        DecodeCurve {
            curve: ResidualCurve::rising_at_knots(series, &[measured, group], chip, at_best),
            batch_factor: kv_heads / measured,
            is_latent: matches!(head_size, Some(HeadSize::Latent | HeadSize::Sparse)),
            beyond: if matches!(head_size, Some(HeadSize::Sparse | HeadSize::Indexer)) { 1.0 } else { 0.0 },
        }
    }

    /// A shape as the kernels of the series see it: grouped-query kernels store keys and values separately.
    pub(super) fn seen(&self, shape: &AttentionShape) -> AttentionShape {
        AttentionShape { heads: HeadShape { shares_kv: self.is_latent, ..shape.heads }, ..*shape }
    }

    /// Time of a call of decodes with `kv_tokens` keys together.
    pub fn time_of(&self, heads: &AttentionHeads, num_requests: u64, kv_tokens: u64) -> SourcedTime {
        let (requests, keys) = (num_requests as f64, kv_tokens as f64);
        self.time(&mean_attention(requests, requests, keys, keys, heads))
    }

    /// Returns the time of a call by the mean lengths of its requests, which may be below the roofline bound. The bound that holds is the
    /// operator's: grouped-query kernels that stand in for latent attention would read its keys twice.
    pub fn time(&self, shape: &AttentionShape) -> SourcedTime {
        let at = [self.knot(shape.keys.max(1.0)), shape.batch * self.batch_factor];
        self.curve.unbounded(&CallShape::Decode(self.seen(shape)), &at)
    }

    /// The place of `keys` keys on the table's axis. Powers of two lie on knots, as in compiled steps, which have no other bends.
    pub(super) fn knot(&self, keys: f64) -> f64 {
        keys + self.beyond
    }

    /// Time that reading `keys` keys of each request adds to a call, µs.
    fn read_us(&self, requests: f64, keys: f64, heads: HeadShape) -> f64 {
        let us = |keys: f64| {
            let shape = AttentionShape { batch: requests, query: 1.0, visible: keys, keys, heads };
            let at = [self.knot(keys), requests * self.batch_factor];
            self.curve.unbounded(&CallShape::Decode(shape), &at).0
        };
        us(keys.max(1.0)) - us(1.0)
    }
}

/// Prefill attention of fixed heads.
#[derive(Debug, Clone)]
pub struct PrefillCurve {
    pub(super) curve: ResidualCurve,
    pub(super) windowed: bool,
    /// Decode attention of the same heads; `None` for latent attention, whose chunks run other kernels than its decodes.
    pub(super) decode: Option<DecodeCurve>,
}

impl PrefillCurve {
    /// Slices at the heads of the rank.
    pub fn new(series: &Series, kv_heads: f64, group: f64, chip: Chip, at_best: Provenance) -> Self {
        let windowed = AttentionKey::of(&series.key).is_some_and(|key| key.window.is_some());
        PrefillCurve { curve: ResidualCurve::new(series, &[kv_heads, group], chip, at_best), windowed, decode: None }
    }

    /// The same with the decode attention of its heads.
    pub fn with_decode(self, decode: DecodeCurve) -> Self {
        PrefillCurve { decode: Some(decode), ..self }
    }

    /// Time of a call of prefill chunks. `mean_query_tokens` is their mean length over tokens: a chunk of a few tokens with a long one
    /// must not make that look short, so that chunks count by their tokens.
    pub fn time_of(
        &self,
        heads: &AttentionHeads,
        num_requests: u64,
        (query_tokens, mean_query_tokens): (u64, f64),
        pairs: f64,
        kv_tokens: u64,
    ) -> SourcedTime {
        let query_tokens = query_tokens as f64;
        let shape = mean_attention(query_tokens / mean_query_tokens, query_tokens, pairs, kv_tokens as f64, heads);
        self.time(&shape, num_requests as f64, heads.window.size())
    }

    /// Time for `requests` chunks alike in the mean. Measured prompts have no cached keys, so a chunk takes the time of a prompt of its
    /// own tokens, and what its cached keys add: as much as they add to a decode, or the time of their query tiles, with the
    /// residual of the prompt that has as many visible keys per query. Such a time is interpolated at best.
    pub fn time(&self, shape: &AttentionShape, requests: f64, window: Option<u64>) -> SourcedTime {
        let (own_us, provenance) = self.own(shape);
        let bound_us = self.curve.chip.bound_us(shape.work());
        match self.cached(shape, requests, window) {
            None => (own_us.max(bound_us), provenance),
            Some((us, looked_up)) => {
                ((own_us + us).max(bound_us), provenance.max(looked_up).max(Provenance::Interpolated))
            }
        }
    }

    /// Time over the keys of the chunks themselves, which may be below the roofline bound.
    pub(super) fn own(&self, shape: &AttentionShape) -> SourcedTime {
        let own = AttentionShape { visible: own_visible(shape), keys: shape.keys.min(shape.query), ..*shape };
        self.curve.unbounded(&CallShape::Prefill(own), &[own.query, self.prompts(own.batch)])
    }

    /// Time that cached keys add; `None` without any.
    fn cached(&self, shape: &AttentionShape, requests: f64, window: Option<u64>) -> Option<SourcedTime> {
        let AttentionShape { batch, query, visible, keys, heads } = *shape;
        let cached_keys = batch * (keys - query).max(0.0);
        if cached_keys < 0.5 {
            return None;
        }
        let prompt = if self.windowed { query } else { (2.0 * visible - 1.0).max(query) };
        let ResidualCurve { coefficients, chip, .. } = &self.curve;
        let tile_us_per_key = PrefillModel::tile_us_per_key(coefficients, &heads, chip) / chip.sm_count;
        let cached_pairs = batch * query * (visible - own_visible(shape));
        let tiled_keys = tiled_keys(cached_pairs, cached_keys, heads.group);
        let tiles_us = tile_us_per_key * heads.kv_heads * tiled_keys;
        let (tiles_us, provenance) =
            self.curve.with_residual(tiles_us, &[prompt, self.prompts(batch * query / prompt)]);
        let cached = CachedKeys { keys: cached_keys, pairs: cached_pairs, query_tokens: batch * query, query, window };
        let (readers, keys) = cached.readers(requests);
        let read_us = self.decode.as_ref().map_or(0.0, |decode| decode.read_us(readers, keys, heads));
        Some((tiles_us.max(read_us), provenance))
    }

    /// Clamps a number of prompts to the smallest knot of the table.
    fn prompts(&self, number: f64) -> f64 {
        number.max(self.curve.residuals.axes[1][0])
    }
}

/// Keys of its own chunk that a token sees, on average.
fn own_visible(shape: &AttentionShape) -> f64 {
    shape.visible.min(0.5 * (shape.query + 1.0))
}

/// Routed experts of fixed sizes.
#[derive(Debug, Clone)]
pub struct MoeCurve {
    /// One entry per nearby series: its curve, its weight in the mean, and the factor on tokens that loads its experts alike.
    curves: Vec<(ResidualCurve, f64, f64)>,
    shape: MoeShape,
}

impl MoeCurve {
    /// Residuals of several series are averaged by weight. Each is looked up at the load that gives its experts as many tokens.
    pub fn new(series: &[(&MoeKey, &Series, f64, Provenance)], shape: MoeShape, tp: f64, ep: f64, chip: Chip) -> Self {
        let load = shape.top_k / shape.experts;
        let curves = series
            .iter()
            .map(|(key, series, weight, at_best)| {
                let tokens = load * key.num_experts as f64 / key.top_k as f64;
                let curve = ResidualCurve::new(series, &[tp, ep], chip, *at_best);
                let at = |knot: f64| CallShape::Moe(MoeShape { tokens: knot / tokens, ..shape });
                let curve = curve.rising(|knot| at(knot).time_us(&series.coefficients, &chip));
                (curve, *weight, tokens)
            })
            .collect();
        MoeCurve { curves, shape }
    }

    /// Time for `tokens` before routing.
    pub fn time(&self, tokens: f64) -> SourcedTime {
        let shape = MoeShape { tokens, ..self.shape };
        let mut log_time = 0.0;
        let mut total = 0.0;
        let mut provenance = Provenance::Measured;
        for (curve, weight, tokens_there) in &self.curves {
            let (time_us, p) = curve.timed_rising(&CallShape::Moe(shape), tokens * tokens_there);
            log_time += weight * time_us.ln();
            total += weight;
            provenance = provenance.max(p);
        }
        ((log_time / total).exp(), provenance)
    }

    /// The most uneven rows near `tokens`, in tokens of the layer.
    pub fn uneven_near(&self, tokens: f64) -> Option<Uneven> {
        let pairs = self.curves.iter().filter_map(|(curve, _, there)| {
            let Uneven { from, to, ratio } = curve.uneven_near(tokens * there)?;
            Some(Uneven { from: from / there, to: to / there, ratio })
        });
        pairs.max_by(|one, other| one.share().total_cmp(&other.share()))
    }
}

/// A kernel of layers with a state, of fixed heads.
#[derive(Debug, Clone)]
pub struct StateCurve {
    curve: ResidualCurve,
    /// Heads that the kernel is looked up with; `None` for those of the call.
    heads: Option<StateHeads>,
}

impl StateCurve {
    /// Slices at the heads of the rank.
    pub fn new(series: &Series, key_heads: f64, group: f64, chip: Chip, at_best: Provenance) -> Self {
        StateCurve { curve: ResidualCurve::new(series, &[key_heads, group], chip, at_best), heads: None }
    }

    /// Returns the curve with its calls looked up under other `heads` of equal work.
    pub fn looked_up_with(self, heads: StateHeads) -> Self {
        StateCurve { heads: Some(heads), ..self }
    }

    /// Returns the time of a call by the mean lengths of its requests.
    pub fn time(&self, shape: &StateShape) -> SourcedTime {
        let shape = StateShape { heads: self.heads.unwrap_or(shape.heads), ..*shape };
        self.curve.timed(&CallShape::State(shape), &[shape.tokens / shape.requests, shape.requests])
    }
}

/// The attention shape of a call over unequal requests: their means.
pub fn mean_attention(
    requests: f64,
    query_tokens: f64,
    pairs: f64,
    keys: f64,
    heads: &AttentionHeads,
) -> AttentionShape {
    // In absorbed latent attention the values lie in the keys. `DecodeCurve::seen` overrides this by the kernel of the series.
    let heads = HeadShape { activation_bytes: OUTPUT_BYTES, ..HeadShape::new(heads, heads.kv_dtype) };
    AttentionShape {
        batch: requests,
        query: query_tokens / requests,
        visible: pairs / query_tokens,
        keys: keys / requests,
        heads,
    }
}

/// Distance of a series of batched products from a kernel: infinite for another format, 0 for the same sides.
pub fn batched_distance(key: &BatchedGemmKey, wanted: &BatchedGemmKey) -> f64 {
    if key.format != wanted.format {
        return f64::INFINITY;
    }
    log_ratio(key.n, wanted.n as f64) + log_ratio(key.k, wanted.k as f64)
}

fn log_ratio(a: u64, b: f64) -> f64 {
    (a as f64 / b).ln().abs()
}

/// Distance of an attention series from a kernel; 0 for the same kernel.
pub fn attention_distance(key: &AttentionKey, wanted: &AttentionKey) -> f64 {
    let head = match (key.head_size, wanted.head_size) {
        (HeadSize::Plain(a), HeadSize::Plain(b)) => log_ratio(a, b as f64),
        (HeadSize::Latent, HeadSize::Latent)
        | (HeadSize::Sparse, HeadSize::Sparse)
        | (HeadSize::Indexer, HeadSize::Indexer) => 0.0,
        // Kernels of latent attention over all tokens read as many keys as were picked, but in order.
        (HeadSize::Latent, HeadSize::Sparse) => 5.0,
        (HeadSize::Plain(width), HeadSize::Sparse | HeadSize::Indexer) => 10.0 + log_ratio(width, 128.0),
        (HeadSize::Sparse | HeadSize::Indexer, _) | (HeadSize::Latent, HeadSize::Indexer) => f64::INFINITY,
        // Grouped-query kernels are the fallback for latent attention, those of head size 128 first.
        (HeadSize::Plain(width), HeadSize::Latent) => 10.0 + log_ratio(width, 128.0),
        (HeadSize::Latent, HeadSize::Plain(_)) => f64::INFINITY,
    };
    let format = if key.kv_dtype == wanted.kv_dtype { 0.0 } else { 10.0 };
    let window = match (key.window, wanted.window) {
        (None, None) => 0.0,
        (Some(a), Some(b)) => 0.2 * log_ratio(a, b as f64),
        _ => 3.0,
    };
    let engine = match [&wanted.engine, &key.engine].map(|name| Engine::parse(name, None)) {
        [Some(wanted), Some(own)] => wanted.distance(&own).min(1.0),
        _ => 1.0,
    };
    format + 2.0 * head + window + 0.05 * engine
}

/// Distance of a linear-attention series from a kernel: infinite for another kernel or recurrence, 0 for the same sizes.
pub fn state_distance(key: &StateKey, wanted: &StateKey) -> f64 {
    if (key.kernel, key.recurrence) != (wanted.kernel, wanted.recurrence) {
        return f64::INFINITY;
    }
    log_ratio(key.key_head_dim, wanted.key_head_dim as f64)
        + log_ratio(key.head_dim, wanted.head_dim as f64)
        + log_ratio(key.conv_kernel, wanted.conv_kernel as f64)
}

/// Distance of a measured expert layer from another one of `shape` per rank; 0 for the same layer.
/// A layer is measured whole and split by its own tensor-parallel size: the split that comes nearest counts.
pub fn expert_layer_distance(key: &MoeKey, shape: &MoeShape) -> f64 {
    log_ratio(key.num_experts, shape.experts)
        + 0.5 * log_ratio(key.top_k, shape.top_k)
        + 0.5 * log_ratio(key.hidden_size, shape.hidden)
        + 0.5 * log_ratio(key.intermediate_size, shape.intermediate * nearest_split(key, shape))
}

/// Tensor-parallel size at which a measured layer's experts are about as wide as the wanted ones.
pub fn nearest_split(key: &MoeKey, shape: &MoeShape) -> f64 {
    (key.intermediate_size as f64 / shape.intermediate).round().max(1.0)
}

/// Weight of a series at that distance in the average that replaces an unmeasured one.
pub fn fallback_weight(distance: f64) -> f64 {
    1.0 / (0.1 + distance).powi(2)
}

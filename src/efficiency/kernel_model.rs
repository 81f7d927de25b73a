//! What is known of kernels before any table: a few physical coefficients per kernel family (launch, tile and wave
//! quantisation, bandwidth that ramps with the bytes of a call), fitted once per GPU and number format. Tables store
//! what these models leave over, so that shapes between and beyond the measured ones stay physical.
//! Uses nothing else of the crate but `units`; dense GEMMs are in `gemm_model`.

use crate::units::time_us;

pub use super::gemm_model::{GEMM_TILES, GemmModel, GemmRows, GemmShape};

/// What a kernel model needs of the chip.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Chip {
    /// Dense peak of the unit that does the work, FLOP/s.
    pub peak_flop_per_s: f64,
    /// Device memory bandwidth, bytes/s.
    pub hbm_bytes_per_s: f64,
    /// Link of one GPU, one direction, bytes/s.
    pub link_bytes_per_s: f64,
    /// Streaming multiprocessors.
    pub sm_count: f64,
}

/// A kernel family's model: named positive coefficients and the time they give for a shape.
pub trait KernelModel {
    /// What the kernel is given.
    type Shape: Copy;
    /// Coefficients: name and starting value of the fit.
    const COEFFICIENTS: &'static [(&'static str, f64)];
    /// Modelled time, µs.
    fn time_us(coefficients: &[f64], shape: &Self::Shape, chip: &Chip) -> f64;
    /// Roofline bound, µs: the larger of FLOPs over peak and bytes over bandwidth.
    fn bound_us(shape: &Self::Shape, chip: &Chip) -> f64;
}

/// Smooth maximum of two times that overlap imperfectly: `(aᵖ + bᵖ)^(1/p)`.
pub(super) fn overlapped(a: f64, b: f64, sharpness: f64) -> f64 {
    let p = 1.0 + sharpness;
    let (large, small) = if a > b { (a, b) } else { (b, a) };
    if large <= 0.0 { 0.0 } else { large * (1.0 + (small / large).powf(p)).powf(1.0 / p) }
}

/// [`overlapped`] by logarithms: fourteen of its digits in half of its time, for tables of many thousand times.
fn overlapped_by_logs(a: f64, b: f64, sharpness: f64) -> f64 {
    let p = 1.0 + sharpness;
    let (large, small) = if a > b { (a, b) } else { (b, a) };
    if large <= 0.0 { 0.0 } else { large * ((1.0 + ((small / large).ln() * p).exp()).ln() / p).exp() }
}

/// Memory time whose efficiency rises with the bytes of the call: `bytes / (bw·e) · √(1 + ramp / bytes)`.
pub(super) fn ramped_memory_us(bytes: f64, efficiency: f64, ramp_bytes: f64, chip: &Chip) -> f64 {
    time_us(bytes, chip.hbm_bytes_per_s * efficiency) * (1.0 + ramp_bytes / (bytes + 1e4)).sqrt()
}

/// [`f64::ceil`] of a positive number, inline: for want of an instruction on the oldest x86-64 it is a call there.
pub(super) fn rounded_up(value: f64) -> f64 {
    const WHOLE_FROM: f64 = (1u64 << 52) as f64;
    if value < WHOLE_FROM {
        let down = value as i64 as f64;
        if down < value { down + 1.0 } else { down }
    } else {
        value
    }
}

/// Attention of `batch` equal requests, `query` new tokens each, `visible` keys per query on average.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AttentionShape {
    /// Requests.
    pub batch: f64,
    /// New tokens per request.
    pub query: f64,
    /// Visible keys per new token, on average.
    pub visible: f64,
    /// Keys read per request.
    pub keys: f64,
    /// KV heads of the rank.
    pub kv_heads: f64,
    /// Query heads per KV head.
    pub group: f64,
    /// Width of a query and key head.
    pub head_dim: f64,
    /// Width of a value head.
    pub v_head_dim: f64,
    /// Bytes of a cached value.
    pub kv_bytes: f64,
}

impl AttentionShape {
    /// FLOPs: `2·pairs·heads·(head_dim + v_head_dim)`.
    pub fn flops(&self) -> f64 {
        2.0 * self.batch * self.query * self.visible * self.kv_heads * self.group * (self.head_dim + self.v_head_dim)
    }

    /// Bytes: K and V once per request, 16-bit Q in and O out.
    pub fn bytes(&self) -> f64 {
        let width = self.head_dim + self.v_head_dim;
        self.batch * self.kv_heads * width * (self.keys * self.kv_bytes + 2.0 * self.query * self.group)
    }

    fn bound_us(&self, chip: &Chip) -> f64 {
        time_us(self.flops(), chip.peak_flop_per_s).max(time_us(self.bytes(), chip.hbm_bytes_per_s))
    }
}

/// Decode attention: launch + overlap(waves, memory, compute). The (request, KV head) pairs are spread over the SMs; each wave
/// of them costs a fixed time however short the cache is, which is the per-request term that decode kernels show.
#[derive(Debug, Clone, Copy)]
pub struct DecodeModel;

impl KernelModel for DecodeModel {
    type Shape = AttentionShape;

    const COEFFICIENTS: &'static [(&'static str, f64)] = &[
        ("launch_us", 9.0),
        ("unit_wave_us", 3.5),
        ("bandwidth_efficiency", 0.93),
        ("overlap_sharpness", 1.0),
        ("ramp_bytes", 1e7),
        ("split_us", 1.0),
    ];

    fn time_us(c: &[f64], shape: &AttentionShape, chip: &Chip) -> f64 {
        let (spread, memory) = DecodeModel::parts_us(c, shape, chip);
        c[0] + DecodeModel::split_us(c, shape.keys) + overlapped(spread, memory, c[3])
    }

    fn bound_us(shape: &AttentionShape, chip: &Chip) -> f64 {
        shape.bound_us(chip)
    }
}

impl DecodeModel {
    /// What splitting the keys of a request and merging the parts takes, µs.
    pub(super) fn split_us(c: &[f64], keys: f64) -> f64 {
        c[5] * (1.0 + keys / 256.0).ln()
    }

    /// Modelled time where [`DecodeModel::split_us`] is at hand, to fourteen digits, µs.
    pub(super) fn tabulated_us(c: &[f64], shape: &AttentionShape, chip: &Chip, split_us: f64) -> f64 {
        let (spread, memory) = DecodeModel::parts_us(c, shape, chip);
        c[0] + split_us + overlapped_by_logs(spread, memory, c[3])
    }

    /// Waves of (request, KV head) pairs, and memory or compute, µs.
    fn parts_us(c: &[f64], shape: &AttentionShape, chip: &Chip) -> (f64, f64) {
        let units = shape.batch * shape.kv_heads;
        let waves = (units / chip.sm_count).max(1.0);
        let memory =
            ramped_memory_us(shape.bytes(), c[2], c[4], chip).max(time_us(shape.flops(), 0.5 * chip.peak_flop_per_s));
        (c[1] * waves, memory)
    }
}

/// Prefill attention: launch + overlap(compute, memory). Query tiles of 128 rows per head walk over their visible keys;
/// the chip is busy for the larger of the mean load per SM and the longest tile.
#[derive(Debug, Clone, Copy)]
pub struct PrefillModel;

/// Query rows of a prefill tile (FlashAttention-2 and -3 at head size 128).
pub const QUERY_TILE: f64 = 128.0;

impl KernelModel for PrefillModel {
    type Shape = AttentionShape;

    const COEFFICIENTS: &'static [(&'static str, f64)] = &[
        ("launch_us", 10.0),
        ("tile_us", 1.0),
        ("bandwidth_efficiency", 0.8),
        ("overlap_sharpness", 1.0),
        ("ramp_bytes", 1e6),
        ("compute_efficiency", 0.7),
        ("diagonal_keys", 64.0),
    ];

    fn time_us(c: &[f64], shape: &AttentionShape, chip: &Chip) -> f64 {
        let heads = shape.kv_heads * shape.group;
        let tiles_per_head = (shape.query / QUERY_TILE).ceil();
        let tiles = shape.batch * heads * tiles_per_head;
        let width = shape.head_dim + shape.v_head_dim;
        let sm_flop_per_s = chip.peak_flop_per_s / chip.sm_count * c[5];
        let tile = |keys: f64| time_us(2.0 * QUERY_TILE * width * (keys + c[6]), sm_flop_per_s) + c[1];
        let compute = (tiles / chip.sm_count * tile(shape.visible)).max(tile(shape.keys));
        let memory = ramped_memory_us(shape.bytes(), c[2], c[4], chip);
        c[0] + overlapped(compute, memory, c[3])
    }

    fn bound_us(shape: &AttentionShape, chip: &Chip) -> f64 {
        shape.bound_us(chip)
    }
}

/// Routed experts of one rank: both grouped GEMMs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MoeShape {
    /// Tokens before routing.
    pub tokens: f64,
    /// Width of the residual stream.
    pub hidden: f64,
    /// Width of an expert on this rank.
    pub intermediate: f64,
    /// Experts per token.
    pub top_k: f64,
    /// Experts of the layer.
    pub experts: f64,
    /// Experts on this rank.
    pub local_experts: f64,
    /// Bytes of one weight.
    pub weight_bytes: f64,
    /// Bytes of one activation as the matrix unit reads it.
    pub activation_bytes: f64,
}

impl MoeShape {
    /// Token-expert pairs that fall on this rank, on average.
    pub fn pairs(&self) -> f64 {
        self.tokens * self.top_k * self.local_experts / self.experts
    }

    /// Expected experts of this rank that see a token under uniform routing: `E·(1 − (1 − k/E)^T)`.
    pub fn active_experts(&self) -> f64 {
        let miss = 1.0 - self.top_k / self.experts;
        self.local_experts * (1.0 - miss.max(0.0).powf(self.tokens))
    }

    /// FLOPs of gate, up and down: `6·hidden·intermediate` per pair.
    pub fn flops(&self) -> f64 {
        6.0 * self.hidden * self.intermediate * self.pairs()
    }

    /// Bytes: weights of the active experts once; activations in, between and out.
    pub fn bytes(&self) -> f64 {
        let weights = self.active_experts() * 3.0 * self.hidden * self.intermediate * self.weight_bytes;
        let per_pair = self.hidden * (self.activation_bytes + 2.0) + self.intermediate * (6.0 + self.activation_bytes);
        weights + self.pairs() * per_pair
    }
}

/// Grouped expert GEMM: launch + per active expert + overlap(memory, padded compute). Each active expert's tokens are padded
/// to a tile that grows with their number.
#[derive(Debug, Clone, Copy)]
pub struct MoeModel;

impl KernelModel for MoeModel {
    type Shape = MoeShape;

    const COEFFICIENTS: &'static [(&'static str, f64)] = &[
        ("launch_us", 20.0),
        ("expert_us", 0.05),
        ("bandwidth_efficiency", 0.7),
        ("overlap_sharpness", 1.0),
        ("ramp_bytes", 1e7),
        ("compute_efficiency", 0.5),
        ("tile_rows", 16.0),
        ("pair_us", 0.002),
    ];

    fn time_us(c: &[f64], shape: &MoeShape, chip: &Chip) -> f64 {
        let active = shape.active_experts().max(1e-3);
        let rows = shape.pairs() / active;
        let padded = active * (rows * rows + c[6] * c[6]).sqrt();
        let flops = 6.0 * shape.hidden * shape.intermediate * padded;
        let memory = ramped_memory_us(shape.bytes(), c[2], c[4], chip);
        let compute = time_us(flops, chip.peak_flop_per_s * c[5]);
        c[0] + c[1] * active + c[7] * shape.pairs() + overlapped(memory, compute, c[3])
    }

    fn bound_us(shape: &MoeShape, chip: &Chip) -> f64 {
        time_us(shape.flops(), chip.peak_flop_per_s).max(time_us(shape.bytes(), chip.hbm_bytes_per_s))
    }
}

/// An all-reduce of `message_bytes` over `gpus` ranks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AllReduceShape {
    /// Bytes on each rank.
    pub message_bytes: f64,
    /// Ranks.
    pub gpus: f64,
}

/// All-reduce: launch + bytes each rank must send in a bandwidth-optimal exchange, `2·(n−1)/n·message`, over its link.
#[derive(Debug, Clone, Copy)]
pub struct AllReduceModel;

impl AllReduceShape {
    /// Bytes that one rank sends: `2·(n−1)/n·message` (Patarasuk and Yuan 2009, bandwidth-optimal all-reduce).
    pub fn sent_bytes(&self) -> f64 {
        2.0 * (self.gpus - 1.0) / self.gpus * self.message_bytes
    }
}

impl KernelModel for AllReduceModel {
    type Shape = AllReduceShape;

    const COEFFICIENTS: &'static [(&'static str, f64)] =
        &[("launch_us", 4.0), ("bandwidth_efficiency", 0.7), ("ramp_bytes", 1e6), ("rank_us", 0.1)];

    fn time_us(c: &[f64], shape: &AllReduceShape, chip: &Chip) -> f64 {
        let sent = shape.sent_bytes();
        let wire = time_us(sent, chip.link_bytes_per_s * c[1]) * (1.0 + c[2] / (sent + 1e4)).sqrt();
        c[0] + c[3] * shape.gpus + wire
    }

    fn bound_us(shape: &AllReduceShape, chip: &Chip) -> f64 {
        time_us(shape.sent_bytes(), chip.link_bytes_per_s)
    }
}

#[cfg(test)]
#[path = "kernel_model_tests.rs"]
mod tests;

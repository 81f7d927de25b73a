//! The kernel model of layers with a state: gated delta nets and Mamba-2.
#![expect(clippy::indexing_slicing, reason = "lengths are the family's constants; readers check files for them")]
#![expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "heads of a table are whole numbers")]

use super::chip::{Chip, overlapped_us, ramped_us};
use super::keys::StateKey;
use crate::dtype::DType;
use crate::physics::{Shape, StateHeads, StateShape, Work};
use crate::units::time_us;

/// Kernels of layers with a state: launch + overlap(pieces × waves, memory or compute). A thread block runs one head of one request
/// in pieces of tokens. Blocks beyond the number of SMs run in another wave.
#[derive(Debug, Clone, Copy)]
pub struct StateModel;

/// Tokens of a piece in the measured chunk scans.
///
/// # Source
/// vLLM, `FLA_CHUNK_SIZE` (`vllm/third_party/flash_linear_attention/ops/utils.py`).
const PIECE_TOKENS: u64 = 64;

impl StateModel {
    /// Coefficients: name and starting value of the fit. The first is the launch, µs.
    pub const COEFFICIENTS: &'static [(&'static str, f64)] = &[
        ("launch_us", 4.0),
        ("piece_us", 1.0),
        ("bandwidth_efficiency", 0.8),
        ("overlap_sharpness", 1.0),
        ("ramp_bytes", 1e6),
        ("compute_efficiency", 0.5),
    ];

    /// Modelled time, µs.
    pub fn time_us(c: &[f64], shape: &StateShape, chip: &Chip) -> f64 {
        let Work { flops, bytes } = shape.work();
        let pieces = (shape.tokens / shape.requests / shape.heads.chunk_size as f64).max(1.0);
        let waves = (shape.requests * shape.heads.num_heads as f64 / chip.sm_count).max(1.0);
        let memory_us = ramped_us(bytes, chip.hbm_bytes_per_s * c[2], c[4]);
        let compute_us = time_us(flops, chip.peak_flop_per_s * c[5]);
        c[0] + overlapped_us(c[1] * pieces * waves, memory_us.max(compute_us), c[3])
    }

    /// Heads with a 32-bit state and 16-bit activations, as measured.
    pub fn shape(key: &StateKey, point: &[f64]) -> StateShape {
        let StateKey { kernel, recurrence, key_head_dim, head_dim, conv_kernel } = *key;
        let [num_key_heads, num_heads] = [point[0], point[0] * point[1]].map(|heads| heads.round() as u64);
        let heads = StateHeads {
            recurrence,
            num_heads,
            head_dim,
            num_key_heads,
            key_head_dim,
            conv_kernel,
            chunk_size: PIECE_TOKENS,
            activation: DType::Bfloat16,
            state_dtype: DType::Float32,
        };
        StateShape { kernel, heads, requests: point[3], tokens: point[2] * point[3] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Recurrence;
    use crate::physics::StateKernel;

    #[test]
    fn a_scan_takes_pieces_by_waves_where_nothing_else_binds() {
        let chip = Chip { peak_flop_per_s: 1e18, hbm_bytes_per_s: 1e15, link_bytes_per_s: 1e12, sm_count: 100.0 };
        let key = StateKey {
            kernel: StateKernel::ChunkScan,
            recurrence: Recurrence::GatedDeltaNet,
            key_head_dim: 128,
            head_dim: 128,
            conv_kernel: 4,
        };
        let time = |point: &[f64]| {
            StateModel::time_us(&[5.0, 2.0, 1.0, 100.0, 1.0, 1.0], &StateModel::shape(&key, point), &chip)
        };
        // 10 pieces of 64 tokens; 50 heads fill half of the SMs, 200 take two waves.
        assert!((time(&[25.0, 2.0, 640.0, 1.0]) - 25.0).abs() < 0.1);
        assert!((time(&[25.0, 2.0, 640.0, 4.0]) - 45.0).abs() < 0.1);
        assert!((time(&[25.0, 2.0, 1.0, 1.0]) - 7.0).abs() < 0.1);
    }
}

//! The kernel model of dense GEMMs, and the same with all but the rows filled in for callers that ask for many.
//! Uses `kernel_model`, `units`.

use super::kernel_model::{Chip, KernelModel, overlapped, ramped_memory_us, rounded_up};
use crate::units::time_us;

/// A dense GEMM `y[m,n] = x[m,k] · W[k,n]`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GemmShape {
    /// Rows of the activations.
    pub m: f64,
    /// Outputs.
    pub n: f64,
    /// Inputs.
    pub k: f64,
    /// Bytes of one weight.
    pub weight_bytes: f64,
    /// Bytes of one activation as the matrix unit reads it.
    pub activation_bytes: f64,
}

impl GemmShape {
    /// FLOPs: `2·m·n·k`.
    pub fn flops(&self) -> f64 {
        2.0 * self.m * self.n * self.k
    }

    /// Bytes read and written once: activations, weights, 16-bit outputs.
    pub fn bytes(&self) -> f64 {
        self.activation_bytes * self.m * self.k + self.weight_bytes * self.n * self.k + 2.0 * self.m * self.n
    }
}

/// Dense GEMM: launch + overlap(memory, best tile). A tile shape needs `⌈⌈m/tm⌉·⌈n/tn⌉ / SMs⌉` waves, each of
/// `2·tm·tn·k` FLOPs per SM at the tile's efficiency plus a fixed prologue; the library takes the fastest shape.
#[derive(Debug, Clone, Copy)]
pub struct GemmModel;

/// Output tiles that cuBLAS and CUTLASS kernels commonly use, rows × columns.
pub const GEMM_TILES: [(f64, f64); 8] = [
    (64.0, 64.0),
    (64.0, 128.0),
    (128.0, 128.0),
    (128.0, 256.0),
    (64.0, 256.0),
    (256.0, 128.0),
    (16.0, 64.0),
    (32.0, 64.0),
];

impl KernelModel for GemmModel {
    type Shape = GemmShape;

    const COEFFICIENTS: &'static [(&'static str, f64)] = &[
        ("launch_us", 2.5),
        ("wave_us", 0.5),
        ("bandwidth_efficiency", 0.9),
        ("overlap_sharpness", 2.7),
        ("ramp_bytes", 1e5),
        ("tile_64x64", 0.4),
        ("tile_64x128", 0.6),
        ("tile_128x128", 0.75),
        ("tile_128x256", 0.8),
        ("tile_64x256", 0.7),
        ("tile_256x128", 0.8),
        ("tile_16x64", 0.2),
        ("tile_32x64", 0.3),
    ];

    fn time_us(c: &[f64], shape: &GemmShape, chip: &Chip) -> f64 {
        GemmRows::new(c, *shape, *chip).time_us(shape.m)
    }

    fn bound_us(shape: &GemmShape, chip: &Chip) -> f64 {
        time_us(shape.flops(), chip.peak_flop_per_s).max(time_us(shape.bytes(), chip.hbm_bytes_per_s))
    }
}

/// [`GemmModel`] over one matrix, for any number of rows.
#[derive(Debug, Clone)]
pub struct GemmRows {
    shape: GemmShape,
    chip: Chip,
    launch_us: f64,
    bandwidth_efficiency: f64,
    overlap_sharpness: f64,
    ramp_bytes: f64,
    tiles: [TileRows; GEMM_TILES.len()],
}

/// A tile shape over one matrix.
#[derive(Debug, Clone, Copy, Default)]
struct TileRows {
    /// One over its rows, exact: they are a power of two.
    per_row: f64,
    /// Tiles that the matrix is wide.
    across: f64,
    wave_us: f64,
}

impl GemmRows {
    /// The model with coefficients `c`; `shape.m` is ignored.
    pub fn new(c: &[f64], shape: GemmShape, chip: Chip) -> Self {
        let sm_flop_per_s = chip.peak_flop_per_s / chip.sm_count;
        let mut tiles = [TileRows::default(); GEMM_TILES.len()];
        for ((tile, (rows, columns)), efficiency) in tiles.iter_mut().zip(GEMM_TILES).zip(&c[5..]) {
            *tile = TileRows {
                per_row: 1.0 / rows,
                across: rounded_up(shape.n / columns),
                wave_us: time_us(2.0 * rows * columns * shape.k, sm_flop_per_s * efficiency) + c[1],
            };
        }
        GemmRows {
            shape,
            chip,
            launch_us: c[0],
            bandwidth_efficiency: c[2],
            overlap_sharpness: c[3],
            ramp_bytes: c[4],
            tiles,
        }
    }

    /// Modelled time for `m` rows, µs.
    pub fn time_us(&self, m: f64) -> f64 {
        let shape = self.of_rows(m);
        let memory_us = ramped_memory_us(shape.bytes(), self.bandwidth_efficiency, self.ramp_bytes, &self.chip);
        let mut compute_us = f64::INFINITY;
        for tile in &self.tiles {
            let tiles = rounded_up(m * tile.per_row) * tile.across;
            let us = rounded_up(tiles / self.chip.sm_count) * tile.wave_us;
            compute_us = if us < compute_us { us } else { compute_us };
        }
        self.launch_us + overlapped(compute_us, memory_us, self.overlap_sharpness)
    }

    /// Roofline bound for `m` rows, µs.
    pub fn bound_us(&self, m: f64) -> f64 {
        GemmModel::bound_us(&self.of_rows(m), &self.chip)
    }

    fn of_rows(&self, m: f64) -> GemmShape {
        GemmShape { m, ..self.shape }
    }
}

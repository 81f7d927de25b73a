//! The kernel model of dense GEMMs, and the same with all but the rows filled in for callers that ask for many.
#![expect(clippy::indexing_slicing, reason = "lengths are the family's constants; readers check files for them")]

use super::chip::{Chip, overlapped_us, ramped_us};
use super::family::OUTPUT_BYTES;
use super::keys::{operand_dtype, weight_bytes};
use crate::dtype::MatmulFormat;
use crate::physics::Shape;
use crate::physics::projection::GemmShape;
use crate::units::{ceiling, smaller, time_us};

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

/// Rows of the narrowest of them.
pub const NARROWEST_TILE: u64 = 16;

impl GemmModel {
    /// Coefficients: name and starting value of the fit. The first is the launch, µs.
    pub const COEFFICIENTS: &'static [(&'static str, f64)] = &[
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

    /// Modelled time, µs.
    pub fn time_us(c: &[f64], shape: &GemmShape, chip: &Chip) -> f64 {
        GemmRows::new(c, *shape, *chip).time_us(shape.m)
    }

    /// The shape at a grid point of a series.
    pub fn shape(format: &MatmulFormat, point: &[f64]) -> GemmShape {
        GemmShape {
            n: point[0],
            k: point[1],
            m: point[2],
            copies: 1.0,
            input_bytes: operand_dtype(*format).bytes(),
            weight_bytes: weight_bytes(*format),
            output_bytes: OUTPUT_BYTES,
        }
    }
}

/// [`GemmModel`] over one matrix, or a batch of them, for any number of rows.
#[derive(Debug, Clone)]
pub struct GemmRows {
    shape: GemmShape,
    chip: Chip,
    /// Launch, wave, bandwidth, overlap and ramp: the coefficients before the tiles'.
    c: [f64; 5],
    tiles: [TileRows; GEMM_TILES.len()],
}

/// A tile shape over one matrix.
#[derive(Debug, Clone, Copy, Default)]
struct TileRows {
    /// One over its rows, exact: they are a power of two.
    per_row: f64,
    /// Tiles that all matrices are wide.
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
                across: shape.copies * ceiling(shape.n / columns),
                wave_us: time_us(2.0 * rows * columns * shape.k, sm_flop_per_s * efficiency) + c[1],
            };
        }
        GemmRows { shape, chip, c: [c[0], c[1], c[2], c[3], c[4]], tiles }
    }

    /// Modelled time for `m` rows, µs.
    pub fn time_us(&self, m: f64) -> f64 {
        let bytes_per_s = self.chip.hbm_bytes_per_s * self.c[2];
        let memory_us = ramped_us(self.of_rows(m).work().bytes, bytes_per_s, self.c[4]);
        let mut compute_us = f64::INFINITY;
        for tile in &self.tiles {
            let tiles = ceiling(m * tile.per_row) * tile.across;
            let us = ceiling(tiles / self.chip.sm_count) * tile.wave_us;
            compute_us = smaller(us, compute_us);
        }
        self.c[0] + overlapped_us(compute_us, memory_us, self.c[3])
    }

    /// Roofline bound for `m` rows, µs.
    pub fn bound_us(&self, m: f64) -> f64 {
        self.chip.bound_us(self.of_rows(m).work())
    }

    fn of_rows(&self, m: f64) -> GemmShape {
        GemmShape { m, ..self.shape }
    }
}

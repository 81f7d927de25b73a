//! Targets of measurements, measured runs and sweeps.

use std::sync::LazyLock;

use ridgepoint::{EfficiencyMode, Options};
use ridgepoint_lab::calibrate::exclusions::Exclusions;
use ridgepoint_lab::evaluate::closed_loop_row::read_closed_loop;
use ridgepoint_lab::evaluate::measured::Measured;
use ridgepoint_lab::measurements::Measurements;
use ridgepoint_lab::sweep::{Grid, RowFile, Sweep};

use crate::scratch;

/// Tables of measurements, by the name that the first line of a case may give after `# `.
const CSV_FILES: [&str; 6] =
    ["gemm.csv", "attention_prefill.csv", "attention_decode.csv", "moe.csv", "allreduce.csv", "small_kernels.csv"];
const PARQUET_FILES: [&str; 5] = [
    "gemm_perf.parquet",
    "context_attention_perf.parquet",
    "generation_attention_perf.parquet",
    "moe_perf.parquet",
    "custom_allreduce_perf.parquet",
];

fn load(files: &[(&str, &[u8])]) {
    let Ok(measurements) = Measurements::load(&scratch::folder("measurements", files)) else { return };
    let times_us = measurements.calls.gemm.iter().map(|row| row.latency_us);
    let times_us = times_us.chain(measurements.calls.small_kernels.iter().map(|row| row.latency_us));
    times_us.for_each(|time_us| assert!(time_us.is_finite() && time_us > 0.0, "{time_us} µs were accepted"));
    measurements.devices();
}

/// Measurements as csv. A comment in the first line names the table.
pub fn measurements_csv(bytes: &[u8]) {
    let named =
        CSV_FILES.iter().find(|name| bytes.strip_prefix(b"# ").is_some_and(|of| of.starts_with(name.as_bytes())));
    load(&[(named.unwrap_or(&CSV_FILES[bytes.len() % CSV_FILES.len()]), bytes)]);
}

/// Measurements as parquet.
pub fn measurements_parquet(bytes: &[u8]) {
    load(&[("gemm_perf.parquet", bytes)]);
    load(&[(PARQUET_FILES[bytes.len() % PARQUET_FILES.len()], bytes)]);
}

/// The certificate of measurements.
pub fn certificate(bytes: &[u8]) {
    load(&[("gemm.csv", b"dtype,m,n,k,latency_us\nbfloat16,1,1024,1024,5.0\n"), ("meta.toml", bytes)]);
}

/// The exclusions of calibration.
pub fn exclusions(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let _ = Exclusions::parse("fuzzed.toml", &text, None);
}

/// What clients measured of a serving run.
pub fn measured(bytes: &[u8]) {
    if let Ok(measured) = Measured::read(scratch::write("measured.csv", bytes)) {
        assert!(measured.iter().all(|(_, _, value_ms)| value_ms.is_finite() && value_ms > 0.0));
    }
}

/// Measured closed loops.
pub fn closed_loop(bytes: &[u8]) {
    if let Ok(rows) = read_closed_loop(&[scratch::write("closed_loop.csv", bytes)]) {
        assert!(rows.iter().all(|row| row.ttft_ms.is_finite() && row.tpot_ms.is_finite()));
    }
}

/// Options of sweeps without tables.
pub fn ideal() -> Options {
    Options { efficiency: EfficiencyMode::Ideal, ..Options::default() }
}

/// A grid of a sweep.
pub fn sweep_grid(bytes: &[u8]) {
    let Ok(grid) = Grid::parse("grid.toml", &String::from_utf8_lossy(bytes)) else { return };
    let number = grid.num_configurations();
    assert_eq!(grid.configurations().count(), number);
    if number <= 16 {
        let _ = Sweep::new(grid, ideal());
    }
}

static SWEEP: LazyLock<Sweep> = LazyLock::new(|| {
    let text = include_str!("../corpus/law_sweep/grid.toml");
    Sweep::new(Grid::parse("grid.toml", text).unwrap(), ideal()).unwrap()
});

/// Rows of a sweep that is to be resumed.
pub fn sweep_rows(bytes: &[u8]) {
    for name in ["rows.csv", "rows.json", "rows.jsonl"] {
        let file = RowFile::new(&scratch::write(name, bytes)).unwrap();
        if let Ok(known) = SWEEP.known(&file) {
            assert_eq!(known.len(), SWEEP.grid().num_configurations());
        }
    }
}

//! The public tables, where `RIDGEPOINT_DATA` points at them. The bounds are physics: a wrong unit or a wrong count
//! breaks them at once.

use std::path::PathBuf;

use super::*;
use ridgepoint::DType;
use ridgepoint::model::Window;
use ridgepoint::unstable::efficiency::family::HeadSize;

const H100_BF16_FLOP_PER_S: f64 = 989.4e12;
const H100_HBM_BYTES_PER_S: f64 = 3.35e12;
const H100_NVLINK_BYTES_PER_S: f64 = 450e9;

/// The folder of the data, or a line that says that the test was skipped.
#[allow(clippy::print_stdout)]
fn kernels() -> Option<PathBuf> {
    let dir = std::env::var_os("RIDGEPOINT_DATA").map(|dir| PathBuf::from(dir).join("kernels"));
    if dir.is_none() || cfg!(not(feature = "parquet")) {
        println!("skipped: needs the feature 'parquet' and RIDGEPOINT_DATA pointing at the public kernel tables");
        return None;
    }
    dir
}

fn best(efficiencies: impl Iterator<Item = f64>) -> f64 {
    efficiencies.fold(0.0, f64::max)
}

#[test]
fn the_best_public_h100_kernels_come_close_to_their_bound_and_none_beats_it() {
    let Some(kernels) = kernels() else { return };
    let measurements = Measurements::load(&kernels.join("h100_sxm/vllm-0.14.0")).unwrap();
    assert_eq!(measurements.devices(), ["NVIDIA H100 80GB HBM3"]);

    let bf16 = measurements.calls.gemm.iter().filter(|row| row.call.dtype == MatmulFormat::Bfloat16);
    let mfu = best(bf16.map(|r| 2e6 * (r.call.m * r.call.n * r.call.k) as f64 / r.latency_us / H100_BF16_FLOP_PER_S));
    assert!((0.85..1.0).contains(&mfu), "GEMM: {mfu}");

    let mfu = best(measurements.calls.prefill.iter().map(|r| {
        let call = &r.call;
        let pairs = call.batch_size * call.num_scheduled_tokens * (call.num_scheduled_tokens + 1) / 2;
        4e6 * (call.heads.num_heads * width(&call.heads) * pairs) as f64 / r.latency_us / H100_BF16_FLOP_PER_S
    }));
    assert!((0.5..0.8).contains(&mfu), "prefill attention: {mfu}");

    // Smaller caches partly stay in the second-level cache.
    let mbu = best(measurements.calls.decode.iter().filter_map(|r| {
        let heads = &r.call.heads;
        let width = (heads.num_kv_heads * width(heads)) as f64;
        let bytes = 2.0 * r.call.kv_tokens_total as f64 * width * heads.kv_dtype.bytes();
        (bytes > 5e8).then_some(bytes * 1e6 / r.latency_us / H100_HBM_BYTES_PER_S)
    }));
    assert!((0.85..1.0).contains(&mbu), "decode attention: {mbu}");

    // Two GPUs: each sends the message once.
    let pairs =
        measurements.calls.all_reduce.iter().filter(|r| r.call.num_gpus == 2 && r.call.message_bytes > 100_000_000);
    let share = best(pairs.map(|r| r.call.message_bytes as f64 * 1e6 / r.latency_us / H100_NVLINK_BYTES_PER_S));
    assert!((0.6..0.9).contains(&share), "all-reduce: {share}");

    // Two grouped GEMMs of a gated block: three matrices per expert, divided over the GPUs.
    let whole =
        measurements.calls.moe.iter().filter(|r| r.call.dtype == MatmulFormat::Bfloat16 && r.call.moe_ep_size == 1);
    let mfu = best(whole.map(|r| {
        let weights = 3 * r.call.hidden_size * r.call.intermediate_size / r.call.moe_tp_size;
        2e6 * (r.call.num_tokens * r.call.top_k * weights) as f64 / r.latency_us / H100_BF16_FLOP_PER_S
    }));
    assert!((0.4..1.0).contains(&mfu), "experts: {mfu}");
}

#[test]
fn public_repetitions_are_merged_and_noted() {
    let Some(kernels) = kernels() else { return };
    let measurements = Measurements::load(&kernels.join("h100_sxm/vllm-0.14.0")).unwrap();
    for file in ["context_attention_perf.parquet", "moe_perf.parquet"] {
        assert!(measurements.notes.iter().any(|note| note.contains(file)), "{file}: {:?}", measurements.notes);
    }
    assert_eq!(measurements.notes.len(), 2, "{:?}", measurements.notes);
    let kernels: std::collections::BTreeSet<_> =
        measurements.calls.moe.iter().map(|row| &measurements.sources[row.source].kernel_source).collect();
    assert_eq!(kernels.len(), 2);
}

#[test]
fn every_public_folder_is_read_whole() {
    let Some(kernels) = kernels() else { return };
    let mut folders = 0;
    for gpu in std::fs::read_dir(&kernels).unwrap() {
        for dir in std::fs::read_dir(gpu.unwrap().path()).unwrap() {
            let dir = dir.unwrap().path();
            let measurements = Measurements::load(&dir).unwrap();
            assert_eq!(measurements.devices().len(), 1, "{}", dir.display());
            let counts = [
                (measurements.calls.gemm.len(), 5_000),
                (measurements.calls.prefill.len(), 3_000),
                (measurements.calls.decode.len(), 3_000),
                (measurements.calls.moe.len(), 3_000),
                (measurements.calls.all_reduce.len(), 50),
            ];
            for (rows, least) in counts {
                assert!(rows == 0 || (least..200_000).contains(&rows), "{}: {counts:?}", dir.display());
            }
            folders += 1;
        }
    }
    assert!(folders >= 1, "{} holds no folders", kernels.display());
}

#[test]
fn newer_public_attention_has_windows_heads_and_both_cache_formats() {
    let Some(kernels) = kernels() else { return };
    let measurements = Measurements::load(&kernels.join("h100_sxm/vllm-0.24.0")).unwrap();
    let decode = measurements.calls.decode;
    assert!(decode.iter().any(|row| row.call.heads.window == Window::Sliding(128)));
    assert!(decode.iter().any(|row| row.call.heads.window == Window::Full));
    assert!(decode.iter().all(|row| row.call.kv_tokens_max >= 2), "every row has at least one cached token");
    assert!(measurements.calls.prefill.iter().all(|row| row.call.num_computed_tokens == 0));
    for head_dim in [64, 128, 256] {
        for kv_dtype in [DType::Bfloat16, DType::Fp8] {
            assert!(
                decode.iter().any(|row| (width(&row.call.heads), row.call.heads.kv_dtype) == (head_dim, kv_dtype)),
                "{head_dim}"
            );
        }
    }
}

/// Width of a head that is not latent attention's.
fn width(heads: &Heads) -> u64 {
    match heads.head_size {
        HeadSize::Plain(width) => width,
        HeadSize::Latent | HeadSize::Sparse | HeadSize::Indexer => 0,
    }
}

//! The built-in GPUs' figures against those of their datasheets, and against each other.

use ridgepoint::hardware::{Architecture, HostLinkKind, InterconnectKind, builtin_names};
use ridgepoint::{DType, ErrorKind, Hardware};

/// Products written out with the figures that datasheets round to three digits.
const REL_DATASHEET_ROUNDING: f64 = 0.01;
/// The L40S datasheet states 362.05 TFLOP/s of bf16 and 733 of fp8; the clock of its fp32 figure gives 366.4.
const REL_L40S_BF16: f64 = 0.015;
const REL_SAME_FIGURE: f64 = 1e-12;

fn assert_rel(got: f64, want: f64, tolerance: f64, what: &str) {
    assert!(got.is_finite() && ((got - want) / want).abs() <= tolerance, "{what}: got {got:e}, want {want:e}");
}

fn peak(name: &str, dtype: DType) -> f64 {
    Hardware::builtin(name).unwrap().peak_dense_flop_per_s(dtype).unwrap()
}

/// The figures of a datasheet that a built-in GPU must have.
struct Datasheet {
    name: &'static str,
    architecture: Architecture,
    sm_count: u32,
    memory_gib: f64,
    memory_gb_per_s: f64,
    link: InterconnectKind,
    link_gb_per_s: f64,
    /// 16-bit FLOP per SM and clock with 32-bit accumulation.
    flop_per_clock: f64,
    /// Clock of the datasheet's matrix peaks.
    clock_ghz: f64,
    /// Dense peaks of fp8, int8 and fp4 over that of 16 bits.
    ratios: [Option<f64>; 3],
}

/// One row per built-in GPU.
#[rustfmt::skip]
const GPUS: &[Datasheet] = {
    use Architecture::{Ada, Ampere, Blackwell, BlackwellConsumer, Hopper, Turing, Volta};
    use InterconnectKind::{Nvlink, Pcie};
    #[allow(clippy::too_many_arguments)]
    const fn gpu(
        name: &'static str, architecture: Architecture, sm_count: u32, memory_gib: f64, memory_gb_per_s: f64,
        link: InterconnectKind, link_gb_per_s: f64, flop_per_clock: f64, clock_ghz: f64, ratios: [Option<f64>; 3],
    ) -> Datasheet {
        Datasheet {
            name, architecture, sm_count, memory_gib, memory_gb_per_s, link, link_gb_per_s, flop_per_clock, clock_ghz, ratios,
        }
    }
    const HOPPER: [Option<f64>; 3] = [Some(2.0), Some(2.0), None];
    const AMPERE: [Option<f64>; 3] = [None, Some(2.0), None];
    const L40S: [Option<f64>; 3] = [Some(733.0 / 362.05), Some(733.0 / 362.05), None];
    const BLACKWELL: [Option<f64>; 3] = [Some(2.0), Some(2.0), Some(4.0)];
    &[
        // name, architecture, SMs, GiB, GB/s, link, GB/s one way, 16-bit FLOP per SM and clock, GHz, fp8 int8 fp4 ratios
        gpu("h100_sxm", Hopper, 132, 80.0, 3350.0, Nvlink, 450.0, 4096.0, 1.83, HOPPER),
        gpu("h100_pcie", Hopper, 114, 80.0, 2039.0, Pcie, 64.0, 4096.0, 1.62, HOPPER),
        gpu("h100_nvl", Hopper, 132, 94.0, 3938.0, Nvlink, 300.0, 4096.0, 1.545, HOPPER),
        gpu("h200_sxm", Hopper, 132, 141.0, 4800.0, Nvlink, 450.0, 4096.0, 1.83, HOPPER),
        gpu("h20", Hopper, 78, 96.0, 4000.0, Nvlink, 450.0, 4096.0, 1.98, HOPPER),
        gpu("h200_nvl", Hopper, 132, 141.0, 4800.0, Nvlink, 450.0, 4096.0, 1.545, HOPPER),
        gpu("a100_sxm", Ampere, 108, 80.0, 2039.0, Nvlink, 300.0, 2048.0, 1.41, AMPERE),
        gpu("a100_sxm_40gb", Ampere, 108, 40.0, 1555.0, Nvlink, 300.0, 2048.0, 1.41, AMPERE),
        gpu("a100_pcie", Ampere, 108, 80.0, 1935.0, Pcie, 32.0, 2048.0, 1.41, AMPERE),
        gpu("a100_pcie_40gb", Ampere, 108, 40.0, 1555.0, Pcie, 32.0, 2048.0, 1.41, AMPERE),
        gpu("rtx_3090", Ampere, 82, 24.0, 936.0, Pcie, 32.0, 512.0, 1.695, [None, Some(4.0), None]),
        gpu("rtx_a6000", Ampere, 84, 48.0, 768.0, Pcie, 32.0, 1024.0, 1.8, AMPERE),
        gpu("rtx_6000_ada", Ada, 142, 48.0, 960.0, Pcie, 32.0, 1024.0, 2.505, [Some(2.0), Some(2.0), None]),
        gpu("rtx_5090", BlackwellConsumer, 170, 32.0, 1792.0, Pcie, 64.0, 512.0, 2.407, [Some(2.0), Some(4.0), Some(8.0)]),
        gpu("gb10", BlackwellConsumer, 48, 128.0, 273.0, Pcie, 25.0, 1024.0, 2.52, BLACKWELL),
        gpu("v100_sxm", Volta, 80, 32.0, 900.0, Nvlink, 150.0, 1024.0, 1.53, [None; 3]),
        gpu("v100_sxm_16gb", Volta, 80, 16.0, 900.0, Nvlink, 150.0, 1024.0, 1.53, [None; 3]),
        gpu("t4", Turing, 40, 16.0, 320.0, Pcie, 16.0, 1024.0, 1.59, [None, Some(2.0), None]),
        gpu("a10", Ampere, 72, 24.0, 600.0, Pcie, 32.0, 1024.0, 1.695, AMPERE),
        gpu("l40s", Ada, 142, 48.0, 864.0, Pcie, 32.0, 1024.0, 2.52, L40S),
        gpu("l4", Ada, 58, 24.0, 300.0, Pcie, 32.0, 1024.0, 2.04, [Some(2.0), Some(2.0), None]),
        gpu("rtx_4090", Ada, 128, 24.0, 1008.0, Pcie, 32.0, 512.0, 2.52, [Some(2.0), Some(4.0), None]),
        gpu("rtx_pro_6000", BlackwellConsumer, 188, 96.0, 1792.0, Pcie, 64.0, 1024.0, 2.617, BLACKWELL),
        gpu("rtx_pro_6000_server", BlackwellConsumer, 188, 96.0, 1597.0, Pcie, 64.0, 1024.0, 2.493, BLACKWELL),
        gpu("b200_sxm", Blackwell, 148, 180.0, 8000.0, Nvlink, 900.0, 8192.0, 1.856, BLACKWELL),
        gpu("gb200", Blackwell, 152, 186.0, 8000.0, Nvlink, 900.0, 8192.0, 2.008, BLACKWELL),
        // Blackwell Ultra trades units for integers against such for FP4.
        gpu("b300_sxm", Blackwell, 148, 270.0, 8000.0, Nvlink, 900.0, 8192.0, 1.856, [Some(2.0), Some(125.0 / 2250.0), Some(6.0)]),
        gpu("gb300", Blackwell, 152, 279.0, 8000.0, Nvlink, 900.0, 8192.0, 2.008, [Some(2.0), Some(165.0 / 2500.0), Some(6.0)]),
    ]
};

#[test]
fn every_built_in_gpu_has_a_row_here() {
    let mut names: Vec<_> = GPUS.iter().map(|gpu| gpu.name).collect();
    names.sort_unstable();
    assert_eq!(builtin_names(), names, "add the missing rows to GPUS");
}

#[test]
fn sizes_and_rates_are_those_of_the_datasheets() {
    for want in GPUS {
        let (gpu, name) = (Hardware::builtin(want.name).unwrap(), want.name);
        assert_eq!((gpu.name.as_str(), gpu.architecture, gpu.sm_count), (name, want.architecture, want.sm_count));
        assert_rel(gpu.hbm_capacity_bytes, want.memory_gib * 1_073_741_824.0, REL_SAME_FIGURE, name);
        assert_rel(gpu.hbm_bytes_per_s, want.memory_gb_per_s * 1e9, REL_SAME_FIGURE, name);
        let link = gpu.interconnect.unwrap();
        assert_eq!(link.kind, want.link, "{name}");
        assert_rel(link.unidirectional_bytes_per_s, want.link_gb_per_s * 1e9, REL_SAME_FIGURE, name);
        // GPUs that talk to each other over NVLink have a network and a link to the host with sources of their own.
        let of_links = if want.link == InterconnectKind::Pcie && name != "gb10" { 2 } else { 4 };
        assert_eq!(gpu.sources.len(), of_links + usize::from(gpu.power_limit.is_some()), "{name}");
        // Sustained FLOP rates are below the peaks, and the rate of bytes is above the memory's bandwidth.
        if let Some(limit) = &gpu.power_limit {
            let share = |(dtype, rate): (&DType, &f64)| rate / gpu.peaks_dense_flop_per_s[dtype];
            assert!(limit.flop_per_s.iter().all(|of| (0.6..0.8).contains(&share(of))), "{name}");
            assert!(limit.bytes_per_s > 2.0 * gpu.hbm_bytes_per_s, "{name}");
        }
        let (linked, network_gb_per_s) = match name {
            "gb200" => (72, Some(50.0)),
            "gb300" => (72, Some(100.0)),
            "b300_sxm" => (8, Some(100.0)),
            "a100_sxm" | "a100_sxm_40gb" => (8, Some(25.0)),
            "h100_nvl" => (2, Some(64.0)),
            "h200_nvl" => (4, Some(64.0)),
            "gb10" => (1, Some(25.0)),
            "v100_sxm" | "v100_sxm_16gb" => (8, Some(6.25)),
            _ => (8, (want.link == InterconnectKind::Nvlink).then_some(50.0)),
        };
        let per_host = if linked == 72 { 4 } else { linked };
        assert_eq!((link.num_gpus, link.num_gpus_per_host), (linked, per_host), "{name}");
        let network = gpu.network.map(|network| network.unidirectional_bytes_per_s / 1e9);
        assert_eq!(network, network_gb_per_s, "{name}");
        let host = gpu.host_link.unwrap();
        let gb_per_s = match name {
            // 900 GB/s in both directions for two GPUs.
            "gb200" | "gb300" => 225.0,
            "gb10" => 300.0,
            _ if matches!(want.architecture, Architecture::Volta | Architecture::Turing) => 16.0,
            _ if matches!(want.architecture, Architecture::Ampere | Architecture::Ada) => 32.0,
            _ => 64.0,
        };
        assert_rel(host.unidirectional_bytes_per_s, gb_per_s * 1e9, REL_SAME_FIGURE, name);
        assert_eq!(host.kind == HostLinkKind::NvlinkC2c, name.starts_with("gb"), "{name}");
    }
}

#[test]
fn matrix_peaks_are_units_times_rate_times_clock() {
    for want in GPUS {
        let tolerance = if want.name == "l40s" { REL_L40S_BF16 } else { REL_DATASHEET_ROUNDING };
        let flop_per_s = f64::from(want.sm_count) * want.flop_per_clock * want.clock_ghz * 1e9;
        let of_16_bits = peak(want.name, DType::Float16);
        match CAPPED_PARTS.iter().find(|part| part.name == want.name) {
            Some(part) => {
                assert_rel(of_16_bits, part.matrix_flop_per_s, REL_SAME_FIGURE, want.name);
                assert!(of_16_bits < flop_per_s, "{}: a cap is below what the units reach", want.name);
            }
            None => assert_rel(of_16_bits, flop_per_s, tolerance, &format!("{} ({CAPPED})", want.name)),
        }
        match want.architecture {
            Architecture::Volta | Architecture::Turing => {
                assert!(Hardware::builtin(want.name).unwrap().peak_dense_flop_per_s(DType::Bfloat16).is_err());
            }
            _ => assert_rel(peak(want.name, DType::Bfloat16), of_16_bits, REL_SAME_FIGURE, want.name),
        }
    }
}

/// A part that is sold with capped units. Its published peaks hold, though units × rate × clock gives others.
struct CappedPart {
    name: &'static str,
    /// Published dense peak of 16 bits.
    matrix_flop_per_s: f64,
    /// Published peak of the vector units, which lanes and clock do not give either.
    vector_flop_per_s: f64,
}

const CAPPED_PARTS: &[CappedPart] = &[CappedPart { name: "h20", matrix_flop_per_s: 148e12, vector_flop_per_s: 44e12 }];
/// What to do with another such part.
const CAPPED: &str = "if its published peaks are capped, add it to CAPPED_PARTS in tests/laws/datasheets.rs";

#[test]
fn vector_peaks_are_lanes_times_two_times_boost_clock() {
    for name in builtin_names() {
        if let Some(part) = CAPPED_PARTS.iter().find(|part| part.name == name) {
            assert_rel(peak(name, DType::Float32), part.vector_flop_per_s, REL_SAME_FIGURE, name);
            continue;
        }
        let gpu = Hardware::builtin(name).unwrap();
        let lanes = if ["a100", "v100", "t4"].iter().any(|of| name.starts_with(of)) { 64.0 } else { 128.0 };
        let want = f64::from(gpu.sm_count) * lanes * 2.0 * gpu.boost_clock_hz;
        assert_rel(peak(name, DType::Float32), want, REL_DATASHEET_ROUNDING, &format!("{name} ({CAPPED})"));
    }
}

#[test]
fn narrower_formats_have_their_published_ratio_to_bf16() {
    for want in GPUS {
        let gpu = Hardware::builtin(want.name).unwrap();
        for (dtype, ratio) in [DType::Fp8, DType::Int8, DType::Fp4].into_iter().zip(want.ratios) {
            match (gpu.peak_dense_flop_per_s(dtype), ratio) {
                (Ok(peak_flop_per_s), Some(ratio)) => {
                    let of_16_bits = peak(want.name, DType::Float16);
                    assert_rel(peak_flop_per_s / of_16_bits, ratio, 0.005, &format!("{} {dtype}", want.name));
                }
                (Err(error), None) => assert_eq!(error.kind(), ErrorKind::MissingPeak, "{error}"),
                (got, ratio) => panic!("{} {dtype}: got {got:?}, want ratio {ratio:?}", want.name),
            }
        }
    }
    assert_rel(peak("h100_sxm", DType::Fp8), 1978.9e12, REL_SAME_FIGURE, "h100_sxm fp8");
    assert_rel(peak("rtx_4090", DType::Fp8), 330.3e12, REL_SAME_FIGURE, "rtx_4090 fp8");
}

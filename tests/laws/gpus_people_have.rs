//! GPUs without bf16, without peer access and under a power limit: what a step's time, interval and notes say of them.

use ridgepoint::hardware::PeerAccess;
use ridgepoint::{DType, Deployment, Engine, Hardware, Model, Options, Request, StepEstimate, StepModel};

/// A formula evaluated in another order.
const REL_SAME_FORMULA: f64 = 1e-9;

fn steps(gpu: &str, tensor_parallel_size: u32, options: Options) -> StepModel {
    let (model, hardware) = (Model::find("llama-3.1-8b").unwrap(), Hardware::find(gpu).unwrap());
    let options = Options { engine: Engine::fitted(), ..options };
    StepModel::with_options(&model, &hardware, &Deployment::tensor_parallel(tensor_parallel_size), &options).unwrap()
}

fn estimate(gpu: &str, tensor_parallel_size: u32, options: Options) -> StepEstimate {
    steps(gpu, tensor_parallel_size, options).estimate(&[Request::prefill(2048, 0)]).unwrap()
}

fn limited(watt: f64) -> Options {
    Options { power_limit_watt: Some(watt), ..Options::uncorrected() }
}

fn with_peers(is_there: bool) -> Options {
    Options { peer_access: Some(is_there), ..Options::uncorrected() }
}

fn notes_of(step: &StepEstimate, part: &str) -> usize {
    step.warnings.iter().filter(|note| note.contains(part)).count()
}

/// Time of the sums over ranks, µs.
fn all_reduce_us(step: &StepEstimate) -> f64 {
    step.operators.iter().filter(|of| of.name.contains("all_reduce")).map(|of| of.time_us).sum()
}

#[test]
fn a_power_limit_slows_prefill_by_the_clock_and_hardly_touches_decodes() {
    let (whole, half) = (estimate("a100", 1, Options::uncorrected()), estimate("a100", 1, limited(200.0)));
    let ratio = half.step_time_us / whole.step_time_us;
    // ∛(0.35 / 0.85) = 0.744 of the clock.
    assert!((1.25..=1.0 / 0.744).contains(&ratio), "a chunk is bound by FLOPs: {ratio}");
    let decodes = |options| steps("a100", 1, options).estimate(&[Request::decode(512); 4]).unwrap().step_time_us;
    let ratio = decodes(limited(200.0)) / decodes(Options::uncorrected());
    assert!((1.0..1.1).contains(&ratio), "decodes are bound by the memory: {ratio}");
}

#[test]
fn half_of_what_a_power_limit_changes_is_in_the_interval() {
    let (whole, half) = (estimate("a100", 1, Options::uncorrected()), estimate("a100", 1, limited(200.0)));
    let change = (half.step_time_us - whole.step_time_us) / half.step_time_us;
    // The half width without the limit's part, of operators with the same provenance, and half of the change are independent.
    let half_width = 1.645 * half.tables_sd;
    assert!(half_width > 0.5 * change && half_width < 0.5 * change + 0.5, "{half_width} {change}");
    assert!(half.tables_sd > whole.tables_sd);
    assert_eq!(notes_of(&half, "power_limit_watt = 200 of 400 W: all peaks are taken as 74.4 %"), 1);
    assert_eq!(notes_of(&whole, "power_limit_watt"), 0);
    let corrected = |options: Options| estimate("a100", 1, Options { correction: "auto".into(), ..options });
    assert!(corrected(limited(200.0)).tables_sd > corrected(Options::default()).tables_sd);
}

#[test]
fn measured_rates_within_the_boards_power_fall_with_the_limit() {
    let (whole, half) = (estimate("h200", 1, Options::uncorrected()), estimate("h200", 1, limited(350.0)));
    let ratio = half.step_time_us / whole.step_time_us;
    // ∛(0.35 / 0.85) = 0.744.
    assert!((1.15..=1.0 / 0.744 + 1e-3).contains(&ratio), "{ratio}");
}

#[test]
fn a_limit_beyond_the_boards_range_is_refused() {
    let (model, gpu) = (Model::find("llama-3.1-8b").unwrap(), Hardware::find("h100").unwrap());
    for watt in [200.0, 800.0] {
        let error = StepModel::with_options(&model, &gpu, &Deployment::default(), &limited(watt)).unwrap_err();
        assert!(error.to_string().contains("from 210 to 700 W"), "{error}");
    }
}

#[test]
fn a_ring_through_the_host_moves_bytes_at_half_of_the_links_rate() {
    // 2,048 tokens of 4,096 bf16 values are 16.8 MB, which each of two ranks sends once: at 0.8 · 32 GB/s 655 µs, at half of it 1,311 µs,
    // after 6.6 + 2 · 1 µs. Llama-3.1-8B has 65 sums in a step: two per layer and the embedding's.
    let step = estimate("rtx_4090", 2, Options::uncorrected());
    let calls = step.operators.iter().filter(|of| of.name.contains("all_reduce"));
    let count: u64 = calls.map(|of| of.count).sum();
    let one_us = all_reduce_us(&step) / count as f64;
    let want_us = 6.6 + 2.0 + 2048.0 * 4096.0 * 2.0 / (0.5 * 0.8 * 32e9) * 1e6;
    assert!((one_us / want_us - 1.0).abs() < REL_SAME_FORMULA, "{one_us} {want_us}");
    assert_eq!(notes_of(&step, "without peer access"), 1, "{:?}", step.warnings);
    // NCCL's ring sums over four cards in both cases; without peer access each byte takes twice as long.
    let four = |is_there| all_reduce_us(&estimate("rtx_4090", 4, with_peers(is_there)));
    let ratio = four(false) / four(true);
    assert!((1.9..2.0).contains(&ratio), "{ratio}");
}

#[test]
fn peer_access_that_is_assumed_widens_the_interval_to_the_time_without() {
    let (assumed, with, without) = (
        estimate("rtx_a6000", 2, Options::uncorrected()),
        estimate("rtx_a6000", 2, with_peers(true)),
        estimate("rtx_a6000", 2, with_peers(false)),
    );
    assert!((assumed.step_time_us / with.step_time_us - 1.0).abs() < REL_SAME_FORMULA);
    assert!(assumed.upper_us >= without.step_time_us && assumed.tables_sd > with.tables_sd);
    assert_eq!((notes_of(&assumed, "assumed to have peer access"), notes_of(&with, "peer access")), (1, 0));
    let alone = estimate("rtx_a6000", 1, Options::uncorrected());
    assert_eq!(notes_of(&alone, "peer access"), 0, "one GPU has no peers");
}

#[test]
fn nvlink_has_peer_access_whatever_is_said() {
    let (as_it_is, without) = (estimate("h100", 2, Options::uncorrected()), estimate("h100", 2, with_peers(false)));
    assert!((as_it_is.step_time_us / without.step_time_us - 1.0).abs() < REL_SAME_FORMULA);
    assert_eq!(notes_of(&without, "changes nothing on h100_sxm"), 1);
}

#[test]
fn two_machines_of_one_gpu_sum_over_their_network() {
    let step = estimate("gb10", 2, Options::uncorrected());
    assert!(
        step.step_time_us.is_finite() && notes_of(&step, "over 2 groups of linked GPUs") == 2,
        "{:?}",
        step.warnings
    );
    assert_eq!(Hardware::find("gb10").unwrap().peer_access(), None::<PeerAccess>);
}

#[test]
fn a_model_in_bf16_is_predicted_in_fp16_on_a_chip_without_bf16() {
    for gpu in ["v100", "t4"] {
        assert!(Hardware::find(gpu).unwrap().peak_dense_flop_per_s(DType::Bfloat16).is_err());
        let step = estimate(gpu, 1, Options::uncorrected());
        assert_eq!(notes_of(&step, "has no bf16 unit: predicted in float16"), 1, "{:?}", step.warnings);
        assert_eq!(notes_of(&step, "need compute capability 8.0"), 1);
        // 2,048 tokens of 8 billion parameters are 3.3e13 FLOPs without the head: 0.5 s at the 65 TFLOP/s of a T4.
        let peak = Hardware::find(gpu).unwrap().peak_dense_flop_per_s(DType::Float16).unwrap();
        assert!(step.step_time_us > 0.8 * step.total_flops / peak * 1e6 && step.mfu < 1.0, "{gpu}");
    }
}

#[test]
fn cards_of_one_product_line_are_no_other_cards_of_a_chip() {
    let others = |name: &str| Hardware::find(name).unwrap().other_cards().unwrap();
    assert!(others("rtx_5090").is_empty() && others("rtx_a6000").is_empty());
    assert_eq!(others("h200"), ["h200_nvl"]);
    assert_eq!(others("v100"), ["v100_sxm_16gb"]);
}

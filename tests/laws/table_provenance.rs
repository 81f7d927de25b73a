//! Sources of times: measured at a table's knots, interpolated between them, clamped beyond, borrowed from another GPU.

use crate::compare;

use compare::is_rel;
use ridgepoint::Provenance;
use ridgepoint::dtype::MatmulFormat;
use ridgepoint::dtype::WeightFormat;
use ridgepoint::physics::projection::GemmShape;
use ridgepoint::unstable::efficiency::Tables;
use ridgepoint::unstable::efficiency::curve::{
    CollectiveCurve, DecodeCurve, GemmCurve, MoeCurve, PrefillCurve, SourcedTime,
};
use ridgepoint::unstable::efficiency::family::{
    ALL_REDUCE, AllReduceKind, AttentionKey, DECODE, GEMM, HeadSize, KernelFamily, MOE, MoeKey, OfSeries, PREFILL,
    Routing,
};
use ridgepoint::unstable::efficiency::kernel_model::{Chip, DecodeModel, GemmModel, MoeModel, PrefillModel};
use ridgepoint::unstable::efficiency::table::Series;
use ridgepoint::{Deployment, Engine, Hardware, Model, Options, Request, StepEstimate, StepModel};

/// Residuals are kept as `f32`.
const REL_RESIDUAL_ROUNDING: f64 = 1e-6;
const OWN_TABLES: [&str; 3] = ["h100_sxm", "h200_sxm", "a100_sxm"];

fn on(gpu: &str, model: &str, tensor_parallel_size: u32) -> StepEstimate {
    let model = Model::find(model).expect("built in");
    let hardware = Hardware::find(gpu).expect("a GPU");
    let deployment = Deployment::tensor_parallel(tensor_parallel_size);
    let options = Options { engine: Engine::fitted(), ..Options::uncorrected() };
    let step_model =
        StepModel::with_options(&model, &hardware, &deployment, &options).expect("own tables or borrowed ones");
    let mut batch = vec![Request::decode(2048); 64];
    batch.push(Request::prefill(512, 0));
    step_model.estimate_unchecked(&batch)
}

/// The series of a GPU whose key is wanted, and the key.
fn series<K: OfSeries>(
    family: &'static KernelFamily,
    gpu: &str,
    is_wanted: impl Fn(&K) -> bool,
) -> (K, std::sync::Arc<Series>) {
    let tables = Tables::new(&Hardware::find(gpu).expect("built in"), &Engine::fitted(), None);
    let distance = |key: &K| if is_wanted(key) { 0.0 } else { f64::INFINITY };
    let found = tables.nearest(family, distance, 1, &[]).expect("such a series").remove(0);
    assert!(!found.is_fallback);
    (found.key, found.series)
}

/// Checks what a series says at, between and beyond its measured cells; `time` makes a curve of the leading axes and looks up the rest.
fn assert_provenance(gpu: &str, series: &Series, time: impl Fn(&[f64]) -> SourcedTime) {
    let chip = chip_of(gpu, series);
    let (grid, name) = (&series.grid, series.key.to_string());
    let last = grid.axes.len() - 1;
    let at = |cell: usize| grid.point(cell);
    let (mut knots, mut between, mut replaced) = (0, 0, 0);
    for offset in (0..grid.num_cells()).step_by(1 + grid.num_cells() / 400) {
        let Some(residual) = grid.measured(offset) else { continue };
        let point = at(offset);
        let shape = series.key.shape(&point);
        let expected = (shape.time_us(&series.coefficients, &chip) * residual.exp()).max(shape.bound_us(&chip));
        let (time_us, provenance) = time(&point);
        // A time that is longer than that of more work is replaced by the median of both.
        let is_kept = is_rel(time_us, expected, REL_RESIDUAL_ROUNDING);
        let best = if is_kept { Provenance::Measured } else { Provenance::Interpolated };
        assert_eq!(provenance, best, "{gpu} {name} {point:?}: {time_us}, measured {expected}");
        replaced += usize::from(!is_kept);
        knots += 1;
        let mut further = point.clone();
        further[last] = 3.0 * grid.axes[last].last().expect("knots");
        assert_eq!(time(&further).1, Provenance::Clamped, "{gpu} {name} {further:?}");
        let Some(next) = grid.neighbour(offset, &grid.index(offset), last, 1) else { continue };
        if grid.measured(next).is_some() && at(next)[last] > point[last] * 1.01 {
            let mut middle = point.clone();
            middle[last] = (point[last] * at(next)[last]).sqrt();
            assert_eq!(time(&middle).1, Provenance::Interpolated, "{gpu} {name} {middle:?}");
            between += 1;
        }
    }
    assert!(knots > 0 && between > 0, "{gpu} {name}: {knots} knots, {between} between");
    assert!(replaced * 5 < knots, "{gpu} {name}: {replaced} of {knots} measured times break the order");
}

fn chip_of(gpu: &str, series: &Series) -> Chip {
    Chip::new(&Hardware::find(gpu).expect("built in"), series.key.compute_dtype()).expect("has the unit")
}

#[test]
fn times_are_measured_at_knots_interpolated_between_and_clamped_beyond() {
    for gpu in OWN_TABLES {
        let (gemm_key, gemm) = series(&GEMM, gpu, |key: &MatmulFormat| *key == MatmulFormat::Bfloat16);
        assert_provenance(gpu, &gemm, |p| {
            let shape = GemmModel::shape(&gemm_key, p);
            GemmCurve::new(&gemm, shape, chip_of(gpu, &gemm), Provenance::Measured).time(p[2])
        });
        let (decode_key, decode) =
            series(&DECODE, gpu, |key: &AttentionKey| key.head_size == HeadSize::Plain(128) && key.window.is_none());
        assert_provenance(gpu, &decode, |p| {
            let shape = DecodeModel::shape(&decode_key, p);
            DecodeCurve::new(&decode, p[0], p[1], chip_of(gpu, &decode), Provenance::Measured).time(&shape)
        });
        let (prefill_key, prefill) =
            series(&PREFILL, gpu, |key: &AttentionKey| key.head_size == HeadSize::Plain(128) && key.window.is_none());
        assert_provenance(gpu, &prefill, |p| {
            let shape = PrefillModel::shape(&prefill_key, p);
            PrefillCurve::new(&prefill, p[0], p[1], chip_of(gpu, &prefill), Provenance::Measured).time(
                &shape,
                shape.batch,
                None,
            )
        });
        let (moe_key, moe) = series(&MOE, gpu, |key: &MoeKey| {
            key.format == MatmulFormat::Bfloat16 && key.routing == Routing::PowerLaw(1.01)
        });
        assert_provenance(gpu, &moe, |p| {
            let shape = MoeModel::shape(&moe_key, p);
            let chip = chip_of(gpu, &moe);
            MoeCurve::new(&[(&moe_key, &moe, 1.0, Provenance::Measured)], shape, p[0], p[1], chip).time(p[2])
        });
        let (_, all_reduce) = series(&ALL_REDUCE, gpu, |key: &AllReduceKind| *key == AllReduceKind::Graph);
        assert_provenance(gpu, &all_reduce, |p| {
            let chip = chip_of(gpu, &all_reduce);
            CollectiveCurve::all_reduce(&all_reduce, p[0], chip, Provenance::Measured).time(p[1])
        });
    }
}

#[test]
fn a_similar_or_foreign_series_never_claims_a_measurement() {
    let (gemm_key, gemm) = series(&GEMM, "h100", |key: &MatmulFormat| *key == MatmulFormat::Bfloat16);
    let cell = (0..gemm.grid.num_cells()).find(|cell| gemm.grid.measured(*cell).is_some()).expect("a measured cell");
    let point = gemm.grid.point(cell);
    let shape = GemmModel::shape(&gemm_key, &point);
    let chip = chip_of("h100", &gemm);
    let as_if = |matched| GemmCurve::new(&gemm, shape, chip, matched).time(point[2]).1;
    assert_eq!(as_if(Provenance::Measured), Provenance::Measured);
    assert_eq!(as_if(Provenance::Clamped), Provenance::Clamped);
    assert_eq!(as_if(Provenance::Borrowed), Provenance::Borrowed);
    let quantised = GemmShape { weight_bytes: WeightFormat::Int4 { group_size: 128 }.bytes_per_weight(), ..shape };
    assert!(GemmCurve::new(&gemm, quantised, chip, Provenance::Clamped).time(point[2]).0 > 0.0);
}

/// A GPU that nobody sells.
const CUSTOM: &str = r#"
display_name = "Custom"
architecture = "hopper"
[datasheet]
sm_count = 100
l2_bytes = 50e6
boost_clock_hz = 1.5e9
hbm_bytes_per_s = 2e12
hbm_capacity_bytes = 80e9
peak_bf16_dense_flop_per_s = 500e12
source = "made up"
retrieved = "2026-11"
[interconnect]
kind = "nvlink"
unidirectional_bytes_per_s = 300e9
source = "made up"
retrieved = "2026-11"
"#;

fn share(step: &StepEstimate, wanted: Provenance) -> f64 {
    step.provenance.iter().filter(|(p, _)| *p == wanted).map(|(_, share)| share).sum()
}

#[test]
fn another_gpu_borrows_and_names_the_lender() {
    let dir = tempfile::tempdir().expect("a folder");
    let custom = dir.path().join("custom.toml");
    std::fs::write(&custom, CUSTOM).expect("written");
    let custom = custom.display().to_string();
    for (gpu, lender) in
        [("l4", "l40s"), ("gb300", "b300_sxm"), ("h100_pcie", "h100_sxm"), (custom.as_str(), "h100_sxm")]
    {
        // A rack's collectives are those of the other rack.
        let rack = |operator: &str| gpu == "gb300" && operator == "all_reduce";
        let step = on(gpu, "llama-3.1-8b", 2);
        for operator in ["qkv_proj", "attention_prefill", "attention_decode", "all_reduce"] {
            let lender = if rack(operator) { "gb200" } else { lender };
            let names_lender = |w: &String| w.contains(operator) && w.contains("borrowed from") && w.contains(lender);
            assert!(step.warnings.iter().any(names_lender), "{gpu}: {operator}: {:?}", step.warnings);
            let found = step.operators.iter().find(|o| o.name == operator).expect("in every step");
            assert_eq!(found.provenance, Provenance::Borrowed, "{gpu}: {operator}");
        }
        for own in [Provenance::Measured, Provenance::Interpolated, Provenance::Clamped] {
            assert!(share(&step, own) == 0.0, "{gpu} has no tables: {:?}", step.provenance);
        }
        assert!(share(&step, Provenance::Borrowed) > 0.5, "{gpu}: {:?}", step.provenance);
    }
    let own = on("h100", "llama-3.1-8b", 2);
    assert!(share(&own, Provenance::Borrowed) == 0.0);
    assert!(!own.warnings.iter().any(|w| w.contains("borrowed")), "{:?}", own.warnings);
}

#[test]
fn a_format_that_the_nearest_lender_lacks_is_borrowed_from_the_next() {
    let step = on("l40s", "qwen3-32b-fp8", 1);
    let from_hopper = |w: &String| w.contains("qkv_proj") && w.contains("borrowed from h100_sxm");
    assert!(step.warnings.iter().any(from_hopper), "an A100 has no fp8: {:?}", step.warnings);
}

/// Times of vLLM 0.24.0's kernels on an H100 with 16 key heads and 64 heads, as those of Qwen3.5-397B-A17B on one GPU, µs: rows of
/// the public tables, before their neighbours smooth them.
#[test]
fn measured_kernels_of_gated_delta_nets_come_back() {
    let (model, hardware) =
        (Model::find("qwen3.5-397b-a17b").expect("built in"), Hardware::find("h100").expect("a GPU"));
    let steps = StepModel::with_options(&model, &hardware, &Deployment::default(), &Options::uncorrected());
    let steps = steps.expect("own tables");
    let of_call = |batch: &[Request], name: &str| {
        let step = steps.estimate_unchecked(batch);
        let of = step.operators.iter().find(|operator| operator.name == name).expect("a hybrid");
        assert_eq!(of.provenance, Provenance::Measured, "{name}");
        of.time_us / of.count as f64
    };
    for (name, batch, measured_us) in [
        ("chunk_scan", vec![Request::prefill(1024, 0)], 60.4),
        ("chunk_scan", vec![Request::prefill(8192, 512); 4], 837.7),
        ("state_update", vec![Request::decode(700); 512], 1437.8),
        ("conv_decode", vec![Request::decode(700); 256], 15.1),
    ] {
        let predicted_us = of_call(&batch, name);
        assert!(is_rel(predicted_us, measured_us, 0.02), "{name}: {predicted_us} for {measured_us} µs");
    }
    // Chunks count by their tokens: a short chunk with a long one takes a hundredth off the mean length.
    let long = of_call(&[Request::prefill(8192, 0)], "chunk_scan");
    let both = steps.estimate_unchecked(&[Request::prefill(8192, 0), Request::prefill(64, 0)]);
    let both = both.operators.iter().find(|operator| operator.name == "chunk_scan").expect("a hybrid");
    assert!(both.time_us / both.count as f64 >= 0.98 * long, "{} and {long} µs", both.time_us);
}

/// The GPU and the engine whose series answers nearest by `distance`.
fn nearest<K: OfSeries>(
    family: &'static KernelFamily,
    gpu: &str,
    engine: &str,
    distance: impl Fn(&K) -> f64,
) -> (String, String) {
    let engine = Engine::parse(engine, None).expect("a known engine");
    let tables = Tables::new(&Hardware::find(gpu).expect("built in"), &engine, None);
    let found = tables.nearest(family, distance, 1, &[]).expect("such a series").remove(0);
    (found.gpu, found.engine.expect("built-in tables have one").to_string())
}

#[test]
fn an_engine_that_was_not_measured_on_a_gpu_has_its_kernels_of_the_same_chip() {
    let attention = |gpu, engine: &str| {
        let key = |engine: &str| format!("{engine}/bfloat16/d128/full");
        nearest(&DECODE, gpu, engine, |of: &AttentionKey| match of.to_string() {
            of if of == key(engine) => 0.0,
            of if of == key("vllm-0.24") => 0.05,
            _ => f64::INFINITY,
        })
    };
    assert_eq!(attention("gb200", "trtllm-1.3"), ("b200_sxm".to_owned(), "trtllm-1.3".to_owned()));
    assert_eq!(attention("b200", "trtllm-1.3"), ("b200_sxm".to_owned(), "trtllm-1.3".to_owned()));
    assert_eq!(
        attention("h200", "sglang-0.5"),
        ("h100_sxm".to_owned(), "sglang-0.5".to_owned()),
        "it has others of it"
    );
    assert_eq!(attention("gb300", "vllm-0.24"), ("b300_sxm".to_owned(), "vllm-0.24".to_owned()));
    assert_eq!(attention("gb200", "vllm-0.24"), ("gb200".to_owned(), "vllm-0.24".to_owned()));
    assert_eq!(
        attention("b300", "trtllm-1.3"),
        ("b300_sxm".to_owned(), "vllm-0.24".to_owned()),
        "no same chip has them"
    );
    // Projections differ less between engines than between the two GPUs.
    let projection = |key: &MatmulFormat| if *key == MatmulFormat::Bfloat16 { 0.0 } else { f64::INFINITY };
    assert_eq!(nearest(&GEMM, "gb200", "trtllm-1.3", projection).0, "gb200");
}

//! Rows that no table holds are scored through the lookup of predictions, on hand-worked shapes and a made-up table.

use ridgepoint::{DType, Deployment, Engine, ErrorKind, Hardware, Model, Options, Provenance, Request, StepModel};
use std::path::Path;

use ridgepoint::physics::attention::{AttentionShape, HeadShape};
use ridgepoint::unstable::efficiency::Tables;
use ridgepoint::unstable::efficiency::family::{AttentionKey, DECODE, Key, PREFILL, SeriesKey};
use ridgepoint::unstable::efficiency::grid::Grid;
use ridgepoint::unstable::efficiency::kernel_model::{Chip, DecodeModel, PrefillModel};
use ridgepoint::unstable::efficiency::table::{Series, SeriesDraft, SeriesHeader, write_table};
use ridgepoint_lab::calibrate::exclusions::Exclusions;
use ridgepoint_lab::calibrate::mixed_attention;
use ridgepoint_lab::calibrate::off_table::{MIXED, SMALL_KERNELS};
use ridgepoint_lab::calibrate::report::OperatorReport;
use ridgepoint_lab::calibrate::rows::Rows;
use ridgepoint_lab::measurements::Measurements;
use ridgepoint_lab::stats::ErrorSummary;

/// Times go through a csv file in full precision.
const REL_SAME_FORMULA: f64 = 1e-9;
/// Tables have efficiencies with three digits.
const REL_TABLE_ROUNDING: f64 = 0.006;

const ATTENTION: &str = "num_heads,num_kv_heads,head_dim,kv_cache_dtype,window_size,batch_size";
const SMALL: &str = "kernel,num_tokens,width,launches,latency_us\n";

fn prefill_csv(rows: &str) -> String {
    format!("{ATTENTION},num_scheduled_tokens,num_computed_tokens,latency_us\n{rows}")
}

fn decode_csv(rows: &str) -> String {
    format!("{ATTENTION},kv_tokens_total,kv_tokens_max,latency_us\n{rows}")
}

fn rows_of(files: &[(&str, String)]) -> Rows {
    let dir = tempfile::tempdir().unwrap();
    for (name, text) in files {
        std::fs::write(dir.path().join(name), text).unwrap();
    }
    std::fs::write(dir.path().join("meta.toml"), "framework = \"vLLM\"\nversion = \"0.14.0\"\n").unwrap();
    Rows::from_measurements(&Measurements::load(dir.path()).unwrap(), &h100(), &Exclusions::find(None).unwrap())
        .unwrap()
}

fn total(report: &OperatorReport) -> ErrorSummary {
    report.total.unwrap()
}

fn made(report: ridgepoint::Result<OperatorReport>) -> OperatorReport {
    let report = report.unwrap();
    assert!(report.total.is_some(), "nothing scored: {report:?}");
    report
}

fn h100() -> Hardware {
    Hardware::find("h100").unwrap()
}

/// µs of one call of an operator in the predicted step of Llama-3.1-8B (32 query and 8 KV heads of 128 on one GPU).
fn predicted_us(batch: &[Request], operator: &str) -> f64 {
    let model = Model::find("llama-3.1-8b").unwrap();
    let options = Options { engine: Engine::fitted(), ..Options::uncorrected() };
    let step =
        StepModel::with_options(&model, &h100(), &Deployment::default(), &options).unwrap().estimate_unchecked(batch);
    let found = step.operators.iter().find(|o| o.name == operator).unwrap();
    found.time_us / found.count as f64
}

fn assert_no_error(report: &OperatorReport, rows: usize) {
    assert_eq!(total(report).rows, rows);
    assert!(total(report).mape_pct < 100.0 * REL_SAME_FORMULA, "{:?}", report.total);
}

#[test]
fn chunks_on_prior_kv_that_take_as_long_as_predicted_have_no_error() {
    let mut rows = String::new();
    for (batch, query, computed) in [(2, 512, 2048), (1, 64, 16_000), (1, 2, 30)] {
        let time_us = predicted_us(&vec![Request::prefill(query, computed); batch], "attention_prefill");
        rows += &format!("32,8,128,bfloat16,0,{batch},{query},{computed},{time_us}\n");
    }
    let rows = rows_of(&[("attention_prefill.csv", prefill_csv(&rows))]);
    assert!(rows.of(&PREFILL).is_empty());
    let tables = Tables::new(&h100(), &Engine::fitted(), None);
    assert_no_error(&made(rows.off_table.check_prefill_prior_kv(&h100(), &tables)), 3);
}

#[test]
fn uneven_decodes_that_take_as_long_as_predicted_have_no_error() {
    let batch = [Request::decode(99), Request::decode(299), Request::decode(1999), Request::decode(3)];
    let time_us = predicted_us(&batch, "attention_decode");
    // 100 + 300 + 2000 + 4 tokens, the new ones included.
    let rows = decode_csv(&format!("32,8,128,bfloat16,0,4,2404,2000,{time_us}\n"));
    let rows = rows_of(&[("attention_decode.csv", rows)]);
    assert!(rows.of(&DECODE).is_empty());
    let report = made(rows.off_table.check_decode_uneven(&h100(), &Tables::new(&h100(), &Engine::fitted(), None)));
    assert_no_error(&report, 1);
    assert_eq!(report.by_dtype["bfloat16"].rows, 1);
    assert_eq!(report.by_series["vllm-0.14/bfloat16/d128/full"].rows, 1);
}

#[test]
fn chunks_beside_decodes_that_take_as_long_as_predicted_have_no_error() {
    let mut batch = vec![Request::decode(999); 8];
    batch.push(Request::prefill(512, 2048));
    // In a step, the operator of chunks is what they add to the call.
    let time_us = predicted_us(&batch, "attention_decode") + predicted_us(&batch, "attention_prefill");
    let columns = ATTENTION.replace("batch_size", "num_prefills");
    let head = format!("{columns},num_scheduled_tokens,num_computed_tokens,num_decodes,kv_tokens_total,latency_us\n");
    // As many tokens as a file may say, in as many chunks, are beyond every count.
    let (most, long) = (1_u64 << 53, u32::MAX);
    let rows = format!("32,8,128,bfloat16,0,1,512,2048,8,8000,{time_us}\n32,8,128,bfloat16,0,{most},{long},0,1,1,9\n");
    let rows = rows_of(&[("attention_mixed.csv", head + &rows)]);
    let report =
        made(mixed_attention::check(&rows.off_table.mixed, &h100(), &Tables::new(&h100(), &Engine::fitted(), None)));
    assert_no_error(&report, 1);
    assert_eq!(rows.left_out_of(MIXED, false).into_values().sum::<usize>(), 1);
}

#[test]
fn small_kernels_that_take_as_long_as_predicted_have_no_error() {
    let batch = vec![Request::decode(1000); 8];
    // The layer's two norms are one operator of two launches; all others are one kernel.
    let rows = [
        ("norms", "fused_add_rms_norm", 4096, 0.5),
        ("rotary", "rotary", 5120, 1.0),
        ("kv_cache_write", "reshape_and_cache", 2048, 1.0),
        ("activation", "silu_and_mul", 14_336, 1.0),
        ("embedding", "embedding", 4096, 1.0),
        ("top_p_sort", "top_p_sort", 128_256, 1.0),
        ("top_p_cumsum", "top_p_cumsum", 128_256, 1.0),
        ("top_p_mask", "top_p_mask", 128_256, 1.0),
    ];
    let text: String = rows
        .iter()
        .map(|(operator, kernel, width, share)| {
            format!("{kernel},8,{width},1,{}\n", share * predicted_us(&batch, operator))
        })
        .collect();
    let rows = rows_of(&[("small_kernels.csv", format!("{SMALL}{text}"))]);
    let report = made(rows.off_table.check_small_kernels(&h100(), &Tables::new(&h100(), &Engine::fitted(), None)));
    assert_no_error(&report, 8);
    assert_eq!(report.by_dtype.len(), 8);
}

#[test]
fn errors_are_those_of_the_times() {
    let time_us = predicted_us(&[Request::prefill(512, 2048)], "attention_prefill");
    let row = |heads: u64, factor: f64| format!("{heads},8,128,bfloat16,0,1,512,2048,{}\n", factor * time_us);
    let rows = rows_of(&[("attention_prefill.csv", prefill_csv(&row(32, 2.0)))]);
    let report = made(rows.off_table.check_prefill_prior_kv(&h100(), &Tables::new(&h100(), &Engine::fitted(), None)));
    assert!((total(&report).bias_pct + 50.0).abs() < 1e-6, "{:?}", report.total);
    // A row of twice the heads is another shape.
    let rows = rows_of(&[("attention_prefill.csv", prefill_csv(&row(64, 1.0)))]);
    let report = made(rows.off_table.check_prefill_prior_kv(&h100(), &Tables::new(&h100(), &Engine::fitted(), None)));
    assert!(total(&report).median_ape_pct > 10.0, "{:?}", report.total);
}

/// A data directory whose H100 tables hold one series of each kind of attention: residual 0 up to 1,024 tokens and a
/// factor of two from 4,096 on.
fn made_up_tables(dir: &Path) {
    let folder = dir.join("bench_data/h100_sxm");
    std::fs::create_dir_all(&folder).unwrap();
    let tokens = vec![256.0, 1024.0, 4096.0, 16_384.0];
    let grid = || {
        let mut grid = Grid::empty(vec![vec![8.0], vec![4.0], tokens.clone(), vec![1.0, 8.0]]);
        for offset in 0..grid.num_cells() {
            let is_long = grid.index(offset)[2] >= 2;
            grid.set(offset, if is_long { 2f64.ln() } else { 0.0 }, Provenance::Measured);
        }
        grid
    };
    let header = SeriesHeader {
        source: "made up".into(),
        rows: 8,
        id: 0,
        lines: 0,
        cross_validated_median_ape_pct: 0.0,
        cross_validated_mape_pct: 0.0,
        stand_in_distance: None,
        knots: vec![1.0, 8.0],
    };
    let chip_of = |_: &SeriesKey| Chip::new(&h100(), DType::Bfloat16);
    let (grid_of_prefill, grid_of_decode) = (grid(), grid());
    let series =
        Series { key: SeriesKey::Prefill(key()), coefficients: PREFILL_COEFFICIENTS.to_vec(), grid: grid_of_prefill };
    let text =
        write_table(&PREFILL, "h100_sxm", "none", &[SeriesDraft { series, header: header.clone() }], chip_of).unwrap();
    std::fs::write(folder.join("attention_prefill.csv"), text).unwrap();
    let series =
        Series { key: SeriesKey::Decode(key()), coefficients: DECODE_COEFFICIENTS.to_vec(), grid: grid_of_decode };
    let text = write_table(&DECODE, "h100_sxm", "none", &[SeriesDraft { series, header }], chip_of).unwrap();
    std::fs::write(folder.join("attention_decode.csv"), text).unwrap();
}

const PREFILL_COEFFICIENTS: [f64; 7] = [10.0, 1.0, 0.8, 1.0, 1e6, 0.5, 64.0];
const DECODE_COEFFICIENTS: [f64; 6] = [9.0, 3.5, 0.8, 1.0, 1e7, 1.0];

fn key() -> AttentionKey {
    AttentionKey::parse("vllm-0.14/bfloat16/d128/full").unwrap()
}

fn shape(batch: f64, query: f64, visible: f64, keys: f64) -> AttentionShape {
    AttentionShape {
        batch,
        query,
        visible,
        keys,
        heads: HeadShape {
            kv_heads: 8.0,
            group: 4.0,
            head_dim: 128.0,
            v_head_dim: 128.0,
            kv_bytes: 2.0,
            activation_bytes: 2.0,
            shares_kv: false,
        },
    }
}

#[test]
fn a_chunk_is_a_prompt_and_the_tiles_of_its_cached_keys() {
    let dir = tempfile::tempdir().unwrap();
    made_up_tables(dir.path());
    let chip = Chip::new(&h100(), DType::Bfloat16).unwrap();
    // Two prompts of 512 tokens, where the table has no residual.
    let own_us = PrefillModel::time_us(&PREFILL_COEFFICIENTS, &shape(2.0, 512.0, 256.5, 512.0), &chip);
    // 512 queries of 4 heads are 16 tiles of 128 rows, and half a tile more is assumed; 8 KV heads, scores and values 128 wide, at half
    // of the peak.
    let tiles_us =
        |computed: f64| 8.0 * 2.0 * 16.5 * computed * 2.0 * 128.0 * 256.0 / (0.5 * chip.peak_flop_per_s) * 1e6;
    // After 2,048 cached tokens they see 2048 + 256.5 keys each, as a prompt of 4,608 tokens does: residual ln 2.
    let long = own_us + 2.0 * tiles_us(2048.0);
    // After 64 they see 64 + 256.5: as a prompt of 640.
    let short = own_us + tiles_us(64.0);
    let tables = Tables::new(&h100(), &Engine::fitted(), Some(dir.path()));
    for (computed, time_us) in [(2048, long), (64, short)] {
        let rows = prefill_csv(&format!("32,8,128,bfloat16,0,2,512,{computed},{time_us}\n"));
        let rows = rows_of(&[("attention_prefill.csv", rows)]);
        let report = made(rows.off_table.check_prefill_prior_kv(&h100(), &tables));
        assert!(total(&report).mape_pct < 100.0 * REL_TABLE_ROUNDING, "{computed}: {:?}", report.total);
    }
}

#[test]
fn uneven_decodes_are_looked_up_at_their_mean() {
    let dir = tempfile::tempdir().unwrap();
    made_up_tables(dir.path());
    let chip = Chip::new(&h100(), DType::Bfloat16).unwrap();
    let time_us = DecodeModel::time_us(&DECODE_COEFFICIENTS, &shape(8.0, 1.0, 1000.0, 1000.0), &chip);
    // Eight requests of 1,000 tokens in the mean; the longest is where the table has the factor of two.
    let rows =
        rows_of(&[("attention_decode.csv", decode_csv(&format!("32,8,128,bfloat16,0,8,8000,7000,{time_us}\n")))]);
    let report =
        made(rows.off_table.check_decode_uneven(&h100(), &Tables::new(&h100(), &Engine::fitted(), Some(dir.path()))));
    assert!(total(&report).mape_pct < 100.0 * REL_TABLE_ROUNDING, "{:?}", report.total);
}

#[test]
fn what_can_not_be_looked_up_is_left_out_with_its_reason() {
    let rows = rows_of(&[
        ("attention_prefill.csv", prefill_csv("32,8,128,int8,0,1,512,0,9\n32,8,128,bfloat16,0,1,1,100,9\n")),
        // Under a window of 128 the mean of the visible tokens is known only where all fit into it.
        ("attention_decode.csv", decode_csv("32,8,128,bfloat16,128,4,400,300,9\n32,8,128,bfloat16,128,4,400,128,9\n")),
        ("small_kernels.csv", format!("{SMALL}rms_norm,8,4096,1,9\nsort,8,4096,1,9\nsort,9,4096,1,9\n")),
    ]);
    let of = |operator: &str| rows.left_out_of(operator, false);
    assert_eq!(of("attention_prefill").values().sum::<usize>(), 2);
    assert_eq!(of("attention_prefill")["no kernel model for this number format"], 1);
    assert_eq!(of("attention_prefill")["one new token on prior KV: a prediction takes it for a decode"], 1);
    let reason = "uneven KV lengths under a window: what each request sees does not follow from the mean";
    assert_eq!(of("attention_decode")[reason], 1);
    assert_eq!(rows.off_table.decode_uneven.len(), 1);
    assert_eq!(of(SMALL_KERNELS)["no byte count is known for a small kernel named 'sort'"], 2);
    assert_eq!(rows.off_table.small_kernels.len(), 1);
}

#[test]
fn a_kernel_without_a_series_is_left_out_and_a_gpu_without_a_table_is_an_error() {
    let rows = rows_of(&[("attention_prefill.csv", prefill_csv("32,8,96,bfloat16,0,1,512,100,9\n"))]);
    let dir = tempfile::tempdir().unwrap();
    made_up_tables(dir.path());
    let tables = Tables::new(&h100(), &Engine::fitted(), Some(dir.path()));
    let report = rows.off_table.check_prefill_prior_kv(&h100(), &tables).unwrap();
    assert!(report.total.is_none() && report.left_out["no table series for this kernel"] == 1, "{report:?}");
    let a10 = Hardware::find("a10").unwrap();
    let error = rows.off_table.check_prefill_prior_kv(&a10, &Tables::new(&a10, &Engine::fitted(), None)).unwrap_err();
    assert!(error.kind() == ErrorKind::MissingTable, "{error}");
}

#[test]
fn small_kernels_need_no_table() {
    let a10 = Hardware::find("a10").unwrap();
    let rows = rows_of(&[("small_kernels.csv", format!("{SMALL}rms_norm,8,4096,1,9\n"))]);
    assert_eq!(
        total(&made(rows.off_table.check_small_kernels(&a10, &Tables::new(&a10, &Engine::fitted(), None)))).rows,
        1
    );
}

#[test]
fn a_broken_table_of_decodes_is_no_missing_one() {
    let dir = tempfile::tempdir().unwrap();
    made_up_tables(dir.path());
    let rows = rows_of(&[("attention_prefill.csv", prefill_csv("32,8,128,bfloat16,0,1,512,2048,100\n"))]);
    let check = || {
        let tables = Tables::new(&h100(), &Engine::fitted(), Some(dir.path()));
        rows.off_table.check_prefill_prior_kv(&h100(), &tables)
    };
    assert!(check().is_ok());
    let path = dir.path().join("bench_data/h100_sxm/attention_decode.csv");
    std::fs::write(path, "no table\n").unwrap();
    let message = check().unwrap_err().to_string();
    assert!(message.contains("attention_decode.csv"), "{message}");
}

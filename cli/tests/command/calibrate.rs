//! `ridgepoint calibrate`: tables built from made-up measurements, scored, and refused.

use crate::cli_support;

use std::path::Path;

use cli_support::{DEVICE, data_dir_with_tables, run, write_gemm_measurements, write_measurements};
use serde_json::Value;

fn build(measurements: &Path, out: &Path, more: &[&str]) -> cli_support::Run {
    let (measurements, out) = (measurements.to_str().unwrap(), out.to_str().unwrap());
    let line = ["calibrate", "--measurements", measurements, "--hardware", "h100", "--out", out, "--format", "json"];
    run(&[&line[..], more].concat())
}

fn assert_scores(json: &Value, operators: &[&str]) {
    let keys: Vec<&String> = json.as_object().unwrap().keys().collect();
    assert_eq!(keys.len(), operators.len(), "{keys:?}");
    for operator in operators {
        for scores in [&json[operator], &json[operator]["by_dtype"]["bfloat16"]] {
            assert!(scores["rows"].as_u64().unwrap() > 0, "{operator}");
            for key in ["mape_pct", "median_ape_pct", "p90_ape_pct"] {
                assert!(scores[key].as_f64().unwrap() >= 0.0, "{operator} {key}");
            }
        }
    }
}

const OPERATORS: [&str; 3] = ["gemm", "attention_prefill", "attention_decode"];

#[test]
fn tables_are_written_and_scored_beside_simpler_methods() {
    let dir = tempfile::tempdir().unwrap();
    let measurements = dir.path().join("made_up");
    write_measurements(&measurements);
    let out = dir.path().join("bench_data");
    let run = build(&measurements, &out, &[]);
    let json = run.json();
    assert_scores(&json, &OPERATORS);
    for method in ["nearest_neighbour", "constant_mfu", "kernel_model"] {
        assert!(json["gemm"]["compared"][method]["median_ape_pct"].is_number(), "{method}");
    }
    let mut files: Vec<String> = std::fs::read_dir(out.join("h100_sxm"))
        .unwrap()
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .collect();
    files.sort();
    assert_eq!(files, ["attention_decode.csv", "attention_prefill.csv", "gemm.csv"]);
    let text = std::fs::read_to_string(out.join("h100_sxm/gemm.csv")).unwrap();
    let command = "ridgepoint calibrate --measurements made_up --hardware h100_sxm --out bench_data";
    assert!(text.contains(&format!("# command = \"{command}\"")), "{text}");
    assert!(!text.contains(dir.path().to_str().unwrap()), "no path of this machine");
}

#[test]
fn the_same_measurements_give_the_same_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let measurements = dir.path().join("made_up");
    write_gemm_measurements(&measurements);
    let read = |out: &str| {
        let out = dir.path().join(out).join("bench_data");
        assert_eq!(build(&measurements, &out, &[]).code, 0);
        std::fs::read_to_string(out.join("h100_sxm/gemm.csv")).unwrap()
    };
    assert_eq!(read("one"), read("two"));
}

#[test]
fn a_check_scores_tables_and_writes_nothing() {
    let dir = data_dir_with_tables();
    let measurements = dir.path().join("made_up");
    let measurements = measurements.to_str().unwrap();
    let data_dir = dir.path().to_str().unwrap();
    let gemm = dir.path().join("bench_data/h100_sxm/gemm.csv");
    let before = std::fs::metadata(&gemm).unwrap().modified().unwrap();
    let common = ["calibrate", "--hardware", "h100", "--data-dir", data_dir];
    let json = run(&[&common[..], &["--format", "json", "--check", measurements]].concat()).json();
    assert_scores(&json, &OPERATORS);
    let other_spelling = ["--format", "json", "--measurements", measurements, "--check"];
    assert_eq!(run(&[&common[..], &other_spelling[..]].concat()).json(), json);
    assert_eq!(std::fs::metadata(&gemm).unwrap().modified().unwrap(), before);
    let table = run(&[&common[..], &["--check", measurements]].concat());
    assert!(table.stdout.contains("gemm") && table.stdout.contains("median"), "{}", table.stdout);
}

#[test]
fn another_gpus_tables_are_scored_on_all_rows() {
    let dir = data_dir_with_tables();
    let (measurements, data_dir) = (dir.path().join("made_up"), dir.path().to_str().unwrap());
    let check = ["calibrate", "--hardware", "h100", "--data-dir", data_dir, "--check", measurements.to_str().unwrap()];
    let json = run(&[&check[..], &["--borrow-from", "a100", "--format", "json"]].concat()).json();
    let own = run(&[&check[..], &["--format", "json"]].concat()).json();
    let (borrowed, own) = (&json["gemm"], &own["gemm"]);
    assert_eq!(borrowed["rows"], borrowed["rows_unseen"], "{borrowed}");
    assert!(borrowed["median_ape_pct"].as_f64() > own["median_ape_pct"].as_f64(), "{borrowed} {own}");
    run(&[&check[..], &["--borrow-from", "h100"]].concat()).fails(2, &["--borrow-from names the GPU of --hardware"]);
    run(&["calibrate", "--hardware", "h100", "--out", "x", "--borrow-from", "a100"]).fails(2, &["--check"]);
}

#[test]
fn a_missed_tolerance_exits_with_1_after_the_report() {
    let dir = tempfile::tempdir().unwrap();
    let (measurements, data_dir) = (dir.path().join("made_up"), dir.path().to_str().unwrap());
    write_gemm_measurements(&measurements);
    let built = build(&measurements, &dir.path().join("bench_data"), &["--max-median-ape-pct", "1000"]);
    assert_eq!(built.code, 0, "{}", built.stderr);
    let check = |limit: &str| {
        let measurements = measurements.to_str().unwrap();
        let line = ["calibrate", "--hardware", "h100", "--data-dir", data_dir, "--check", measurements];
        run(&[&line[..], &["--max-median-ape-pct", limit, "--format", "json"]].concat())
    };
    assert_eq!(check("1000").code, 0);
    let missed = check("0");
    assert_eq!(missed.code, 1);
    assert!(missed.stderr.contains("above the tolerance of 0 %: gemm"), "{}", missed.stderr);
    assert_scores(&serde_json::from_str(&missed.stdout).unwrap(), &["gemm"]);
    check("-1").fails(2, &["at least 0"]);
    let out = dir.path().join("missed");
    let missed = build(&measurements, &out, &["--max-median-ape-pct", "0"]);
    assert!(missed.code == 1 && missed.stderr.contains("nothing was written: "), "{}", missed.stderr);
    assert!(missed.stdout.contains("gemm") && !out.exists(), "{}", missed.stdout);
}

#[test]
fn measurements_of_another_gpu_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    write_gemm_measurements(dir.path());
    let out = dir.path().join("out");
    let line = ["calibrate", "--hardware", "h200", "--measurements", dir.path().to_str().unwrap()];
    run(&[&line[..], &["--out", out.to_str().unwrap()]].concat())
        .fails(1, &[DEVICE, "which is h100_sxm, not h200_sxm", "--hardware h100_sxm"]);
    assert!(!out.exists());
}

#[test]
fn an_unlisted_device_is_only_a_warning() {
    let dir = tempfile::tempdir().unwrap();
    write_gemm_measurements(dir.path());
    std::fs::write(dir.path().join("meta.toml"), "framework = \"vLLM\"\ndevice = \"NVIDIA X9000\"\n").unwrap();
    let run = build(dir.path(), &dir.path().join("out"), &[]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert!(run.stderr.contains("'NVIDIA X9000'") && run.stderr.contains("taken for h100_sxm"), "{}", run.stderr);
}

#[test]
fn what_is_no_measurement_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    write_gemm_measurements(dir.path());
    std::fs::write(dir.path().join("meta.toml"), "kind = \"not a measurement\"\ndevice = \"cpu\"\n").unwrap();
    let out = dir.path().join("out");
    build(dir.path(), &out, &[]).fails(1, &["meta.toml", "kind = \"not a measurement\""]);
    assert!(!out.exists());
}

/// Adds a chunk on prior KV, a decode of uneven lengths, a known and an unknown small kernel, and experts in a format
/// without a kernel model.
fn add_rows_beyond_the_tables(dir: &Path) {
    let add = |file: &str, rows: &str| {
        let path = dir.join(file);
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        std::fs::write(&path, text + rows).unwrap();
    };
    add("attention_prefill.csv", "32,8,128,bfloat16,0,1,512,2048,60\n32,8,128,bfloat16,0,1,512,4096,110\n");
    add("attention_decode.csv", "32,8,128,bfloat16,0,8,8192,4096,20\n");
    add("small_kernels.csv", "kernel,num_tokens,width,launches,latency_us\nrms_norm,8,4096,1,3\nsort,8,4096,1,3\n");
    let columns =
        "dtype,num_tokens,hidden_size,intermediate_size,top_k,num_experts,moe_tp_size,moe_ep_size,distribution";
    add("moe.csv", &format!("{columns},latency_us\nnvfp4,8,4096,14336,2,8,1,1,balanced,90\n"));
}

#[test]
fn rows_that_no_table_holds_are_left_out_of_a_build_with_their_reasons() {
    let dir = tempfile::tempdir().unwrap();
    let measurements = dir.path().join("made_up");
    write_measurements(&measurements);
    add_rows_beyond_the_tables(&measurements);
    let run = build(&measurements, &dir.path().join("out"), &[]);
    let json = run.json();
    assert_scores(&json, &OPERATORS);
    let prior_kv = &json["attention_prefill"]["left_out"];
    assert_eq!(prior_kv["chunk with prior KV: tables hold whole prompts, a check scores it"], 2, "{prior_kv}");
    let uneven = &json["attention_decode"]["left_out"];
    assert_eq!(uneven["uneven KV lengths: tables hold even ones, a check scores it"], 1, "{uneven}");
    for said in [
        "1 rows of moe left out: the GPU has no unit for fp4",
        "1 rows of small_kernels left out: small kernels have no table",
        "1 rows of small_kernels left out: no byte count is known for a small kernel named 'sort'",
    ] {
        assert!(run.stderr.contains(said), "{said}: {}", run.stderr);
    }
}

#[test]
fn rows_that_no_table_holds_are_scored_in_a_check() {
    let dir = data_dir_with_tables();
    let measurements = dir.path().join("made_up");
    add_rows_beyond_the_tables(&measurements);
    let (measurements, data_dir) = (measurements.to_str().unwrap(), dir.path().to_str().unwrap());
    let line = ["calibrate", "--hardware", "h100", "--data-dir", data_dir, "--check", measurements];
    let run = cli_support::run(&[&line[..], &["--format", "json"]].concat());
    let json = run.json();
    let keys: Vec<&String> = json.as_object().unwrap().keys().collect();
    assert_eq!(keys.len(), 6, "{keys:?}");
    for (operator, label, rows) in [
        ("attention_prefill_prior_kv", "bfloat16", 2),
        ("attention_decode_uneven", "bfloat16", 1),
        ("small_kernels", "rms_norm", 1),
    ] {
        assert_eq!(json[operator]["rows"], rows, "{operator}");
        assert_eq!(json[operator]["by_dtype"][label]["rows"], rows, "{operator}");
        assert!(json[operator]["median_ape_pct"].is_number(), "{operator}");
    }
    assert_eq!(json["small_kernels"]["left_out"].as_object().unwrap().len(), 1);
    assert!(json["attention_prefill"]["left_out"].is_null());
    assert!(run.stderr.contains("1 rows of moe left out: the GPU has no unit for fp4"), "{}", run.stderr);
    let table = cli_support::run(&line).stdout;
    assert!(table.contains("attention_prefill_prior_kv") && table.contains("named 'sort'"), "{table}");
}

#[test]
fn a_shape_of_two_folders_keeps_the_median_of_both() {
    let dir = tempfile::tempdir().unwrap();
    let (one, two) = (dir.path().join("one"), dir.path().join("two"));
    write_gemm_measurements(&one);
    write_gemm_measurements(&two);
    std::fs::write(
        two.join("meta.toml"),
        format!("framework = \"vLLM\"\nversion = \"0.14.1\"\ndevice = \"{DEVICE}\"\n"),
    )
    .unwrap();
    let out = dir.path().join("out");
    let json = build(&one, &out, &["--measurements", two.to_str().unwrap()]).json();
    // 54 shapes in each folder.
    assert_eq!(json["gemm"]["left_out"]["repeated shape: median kept"], 54, "{}", json["gemm"]["left_out"]);
    let text = std::fs::read_to_string(out.join("h100_sxm/gemm.csv")).unwrap();
    assert!(text.contains("rows = 54"), "{text}");
    assert!(text.contains("vLLM 0.14.0") && text.contains("; vLLM 0.14.1"), "both sources are named: {text}");
    // Equal times of both: the table of one folder is the table of two, but for what the header says of its making.
    let alone = dir.path().join("alone");
    build(&one, &alone, &[]);
    let body = |out: &Path| {
        let text = std::fs::read_to_string(out.join("h100_sxm/gemm.csv")).unwrap();
        text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(body(&out), body(&alone));
}

#[test]
fn too_few_rows_for_a_table_are_named() {
    let dir = tempfile::tempdir().unwrap();
    write_gemm_measurements(dir.path());
    let columns = "num_gpus,message_bytes,backend,latency_us";
    std::fs::write(dir.path().join("allreduce.csv"), format!("{columns}\n8,1048576,graph,21\n")).unwrap();
    let run = build(dir.path(), &dir.path().join("out"), &[]);
    assert_scores(&run.json(), &["gemm"]);
    assert!(run.stderr.contains("1 rows of allreduce left out: too few rows for a table"), "{}", run.stderr);
}

#[test]
fn what_the_measuring_kit_marks_as_no_measurement_is_refused() {
    let fixture = concat!(env!("CARGO_MANIFEST_DIR"), "/../lab/tests/fixtures/measuring_kit");
    run(&["calibrate", "--hardware", "h100", "--check", fixture])
        .fails(1, &["meta.toml", "kind = \"not a measurement\"", "bench_data/measure/measure.py"]);
}

#[test]
fn bad_folders_and_rows_are_named_together() {
    let dir = tempfile::tempdir().unwrap();
    let bad = dir.path().join("bad");
    std::fs::create_dir(&bad).unwrap();
    std::fs::write(bad.join("gemm.csv"), "dtype,m,n,k,latency_us\nbfloat16,1,2,3,4\nbfloat16,1,2,4,NaN\n").unwrap();
    let empty = dir.path().join("empty");
    std::fs::create_dir(&empty).unwrap();
    let paths = [bad.to_str().unwrap(), empty.to_str().unwrap(), "no_such_folder"];
    let line = ["calibrate", "--hardware", "h100", "--out", "unused", "--measurements"];
    run(&[&line[..], &paths[..]].concat())
        .fails(1, &["gemm.csv: row 2", "latency_us", "NaN", "empty: holds no measurements", "no_such_folder"]);
    run(&["calibrate", "--hardware", "h100", "--check", bad.to_str().unwrap(), "--data-dir", "no_such_dir"])
        .fails(1, &["--data-dir no_such_dir"]);
}

#[test]
fn a_gpu_without_tables_cannot_be_checked() {
    let dir = tempfile::tempdir().unwrap();
    write_measurements(dir.path());
    std::fs::write(dir.path().join("meta.toml"), "device = \"NVIDIA H100 NVL\"\n").unwrap();
    run(&["calibrate", "--hardware", "h100_nvl", "--check", dir.path().to_str().unwrap()])
        .fails(1, &["h100_nvl has no efficiency table of gemm, attention_prefill, attention_decode to check"]);
}

#[test]
fn an_output_folder_that_cannot_be_made_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let measurements = dir.path().join("made_up");
    write_gemm_measurements(&measurements);
    let file = dir.path().join("a_file");
    std::fs::write(&file, "").unwrap();
    build(&measurements, &file, &[]).fails(1, &["a_file"]);
}

/// Writes made-up measurements of projections whose times are changed by `change`, from the row's number and its time.
fn write_changed(dir: &Path, change: impl Fn(usize, f64) -> f64) {
    write_gemm_measurements(dir);
    let path = dir.join("gemm.csv");
    let text = std::fs::read_to_string(&path).unwrap();
    let changed = text.lines().enumerate().map(|(row, line)| match line.rsplit_once(',') {
        Some((shape, time_us)) if row > 0 => format!("{shape},{:e}\n", change(row, time_us.parse().unwrap())),
        _ => format!("{line}\n"),
    });
    std::fs::write(&path, changed.collect::<String>()).unwrap();
}

#[test]
fn times_faster_than_the_roofline_are_taken_for_milliseconds() {
    let tables = data_dir_with_tables();
    let dir = tempfile::tempdir().unwrap();
    let (measurements, out) = (dir.path().join("slip"), dir.path().join("out"));
    write_changed(&measurements, |_, time_us| time_us / 1000.0);
    let said = ["gemm: 23 of 54 rows are faster than the roofline of h100_sxm allows", "are these milliseconds?"];
    build(&measurements, &out, &["--force"]).fails(1, &said);
    assert!(!out.join("h100_sxm/gemm.csv").exists());
    let data_dir = tables.path().to_str().unwrap();
    let check = ["calibrate", "--hardware", "h100", "--data-dir", data_dir, "--check"];
    run(&[&check[..], &[measurements.to_str().unwrap()]].concat()).fails(1, &said);
}

#[test]
fn a_table_that_predictions_would_refuse_is_not_written() {
    let dir = tempfile::tempdir().unwrap();
    let (measurements, out) = (dir.path().join("slow"), dir.path().join("out"));
    write_changed(&measurements, |_, _| 1e11);
    build(&measurements, &out, &["--force"]).fails(1, &["gemm", "are they in the unit of their column?"]);
    assert!(!out.exists());
}

#[test]
fn a_table_that_predicts_badly_is_written_with_force_alone() {
    let dir = tempfile::tempdir().unwrap();
    let (measurements, out) = (dir.path().join("noise"), dir.path().join("out"));
    write_changed(&measurements, |row, time_us| time_us * [1.0, 9.0, 40.0, 3.0, 100.0][row % 5]);
    build(&measurements, &out, &[]).fails(1, &["nothing was written", "above 30 %: gemm", "--force"]);
    assert!(!out.exists(), "a refusal leaves no folder");
    assert_eq!(build(&measurements, &out, &["--force"]).code, 0);
    assert!(out.join("h100_sxm/gemm.csv").exists());
}

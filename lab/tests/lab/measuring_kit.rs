//! The reader accepts what the measuring kit (bench_data/measure) writes. The kit's writer made the fixture from made-up times:
//! `python3 bench_data/measure/synthetic.py --out lab/tests/fixtures/measuring_kit`.

use std::path::{Path, PathBuf};
use std::process::Command;

use ridgepoint::Hardware;
use ridgepoint::unstable::efficiency::family::{DECODE, GEMM, MOE, PREFILL};
use ridgepoint_lab::calibrate::exclusions::Exclusions;
use ridgepoint_lab::calibrate::rows::Rows;
use ridgepoint_lab::measurements::Measurements;

fn fixture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/measuring_kit")
}

/// The folder as a run on a GPU would have left it: every file and key as the kit writes it, but the kind.
fn as_if_measured() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(fixture()).unwrap() {
        let entry = entry.unwrap();
        let text = std::fs::read_to_string(entry.path()).unwrap();
        let text = text.replace("kind = \"not a measurement\"", "kind = \"measurement\"");
        std::fs::write(dir.path().join(entry.file_name()), text).unwrap();
    }
    dir
}

#[test]
fn a_folder_of_the_kit_is_read_without_a_remark() {
    let measurements = Measurements::load(as_if_measured().path()).unwrap();
    assert_eq!(measurements.notes, [""; 0]);
    assert_eq!(measurements.devices(), ["made-up GPU"]);
    let rows = [
        measurements.calls.prefill.len(),
        measurements.calls.decode.len(),
        measurements.calls.small_kernels.len(),
        measurements.calls.moe.len(),
        measurements.calls.gemm.len(),
    ];
    assert_eq!(rows, [4, 12, 29, 4, 4]);
    for source in &measurements.sources {
        assert_eq!(source.framework.as_deref(), Some("torch"));
        assert_eq!(source.version.as_deref(), Some("0.0.0+synthetic"));
        assert_eq!(source.kernel_source.as_deref(), Some("none: a formula"), "{}", source.file);
        assert_eq!(source.driver.as_deref(), Some("000.00"));
        assert_eq!(source.date.as_deref(), Some("2026-01-01T00:00:00+00:00"));
    }
}

#[test]
fn times_of_the_kit_are_read_in_microseconds() {
    let measurements = Measurements::load(as_if_measured().path()).unwrap();
    let of = |computed: u64, scheduled: u64| {
        let mut rows = measurements.calls.prefill.iter();
        rows.find(|r| (r.call.num_computed_tokens, r.call.num_scheduled_tokens) == (computed, scheduled))
            .unwrap()
            .latency_us
    };
    // 512 queries on 2,048 cached tokens: 512·2048 + 512·513/2 = 1,179,904 pairs, 4·32·128 FLOP each, at 400 TFLOP/s;
    // and 4 µs.
    assert!((of(2048, 512) - (4.0 + 1_179_904.0 * 16_384.0 / 400e6)).abs() < 1e-3, "{}", of(2048, 512));
    // Without a prefix: 131,328 pairs.
    assert!((of(0, 512) - (4.0 + 131_328.0 * 16_384.0 / 400e6)).abs() < 1e-3, "{}", of(0, 512));
}

#[test]
fn every_row_of_the_kit_has_a_place() {
    let rows = Rows::from_measurements(
        &Measurements::load(as_if_measured().path()).unwrap(),
        &Hardware::find("h100").unwrap(),
        &Exclusions::find(None).unwrap(),
    )
    .unwrap();
    for operator in
        ["gemm", "attention_prefill", "attention_decode", "attention_mixed", "moe", "allreduce", "small_kernels"]
    {
        let left_out = rows.left_out_of(operator, false);
        assert!(left_out.is_empty(), "{operator}: {left_out:?}");
    }
    assert_eq!((rows.of(&PREFILL).len(), rows.off_table.prefill_prior_kv.len()), (2, 2));
    assert_eq!((rows.of(&DECODE).len(), rows.off_table.decode_uneven.len()), (4, 8));
    assert_eq!(rows.off_table.mixed.len(), 6);
    assert_eq!((rows.of(&GEMM).len(), rows.of(&MOE).len(), rows.off_table.small_kernels.len()), (4, 4, 29));
}

#[test]
fn what_the_kit_marks_as_no_measurement_is_refused() {
    let message = Measurements::load(&fixture()).unwrap_err().to_string();
    assert!(message.contains("meta.toml") && message.contains("kind = \"not a measurement\""), "{message}");
    assert!(message.contains("measure on a GPU with bench_data/measure/measure.py"), "{message}");
}

#[test]
fn the_documentation_lists_every_key_and_kernel_of_the_kit() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/measurements.md");
    let docs = std::fs::read_to_string(docs).unwrap();
    let meta: toml::Table = std::fs::read_to_string(fixture().join("meta.toml")).unwrap().parse().unwrap();
    let mut names: Vec<&str> = meta.keys().map(String::as_str).filter(|key| *key != "tables").collect();
    names.extend(meta["tables"]["gemm"].as_table().unwrap().keys().map(String::as_str));
    let measurements = Measurements::load(as_if_measured().path()).unwrap();
    names.extend(measurements.calls.small_kernels.iter().map(|row| row.call.kernel.as_str()));
    for name in names {
        let listed = [format!("`{name}`"), format!("`[{name}]`")].iter().any(|text| docs.contains(text));
        assert!(listed, "docs/measurements.md does not list `{name}`");
    }
}

/// Skipped, with a line that says so, where there is no Python 3.10.
#[test]
#[allow(clippy::print_stdout)]
fn the_kit_of_today_writes_the_folder_that_is_tested() {
    let works = "import sys; sys.exit(sys.version_info < (3, 10))";
    if !Command::new("python3").args(["-c", works]).status().is_ok_and(|status| status.success()) {
        println!("skipped: no python3 of 3.10 or later");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../bench_data/measure/synthetic.py");
    // Compiled files next to the script would end up in the binary, which embeds bench_data.
    let mut command = Command::new("python3");
    let run = command.arg("-B").arg(script).arg("--out").arg(dir.path()).output().unwrap();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    let names = |folder: &Path| {
        let mut names: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    assert_eq!(names(dir.path()), names(&fixture()));
    for name in names(dir.path()) {
        let read = |folder: &Path| std::fs::read_to_string(folder.join(&name)).unwrap();
        assert_eq!(read(dir.path()), read(&fixture()), "{name:?}: write the fixture anew");
    }
}

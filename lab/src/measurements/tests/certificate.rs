//! `meta.toml`: which keys it may have, what becomes of them, and what is refused.

use super::*;
use ridgepoint::ErrorKind;

const GEMM: &str = "dtype,m,n,k,latency_us\nfp8,1,2,3,4\nfp8,2,2,3,4\n";

fn with_meta(meta: &str) -> Result<Measurements> {
    load(&[("gemm.csv", GEMM), ("meta.toml", meta)])
}

fn refused_meta(meta: &str) -> Error {
    with_meta(meta).unwrap_err()
}

#[test]
fn what_meta_toml_says_is_in_the_sources() {
    let meta = "framework = \"vLLM\"\nversion = \"0.15.1\"\ndevice = \"NVIDIA L4\"\ndate = 2025-01-31\n\
                [kernel_source]\ngemm = \"cuBLAS\"\nmoe = \"marlin\"\n";
    let measurements = with_meta(meta).unwrap();
    let source = &measurements.sources[0];
    assert_eq!(source.framework.as_deref(), Some("vLLM"));
    assert_eq!(source.date.as_deref(), Some("2025-01-31"));
    assert_eq!(source.kernel_source.as_deref(), Some("cuBLAS"));
    assert_eq!(source.driver, None);
    assert_eq!(measurements.devices(), ["NVIDIA L4"]);
    assert_eq!(measurements.notes, [""; 0]);
}

#[test]
fn without_meta_toml_no_device_is_claimed() {
    assert!(load(&[("gemm.csv", GEMM)]).unwrap().devices().is_empty());
}

#[test]
fn an_unknown_key_is_named_wherever_it_stands() {
    for (meta, key) in
        [("gpu = \"L4\"\n", "gpu"), ("[tables.gem]\nplanned = 1\n", "tables.gem"), ("[clocks]\nsm = 1\n", "clocks")]
    {
        let message = refused_meta(meta).to_string();
        assert!(message.contains("meta.toml") && message.contains(&format!("{key} is not a known key")), "{message}");
    }
}

#[test]
fn sections_on_unknown_tables_are_named_together() {
    let counts = "planned = 1\nmeasured = 1\nskipped_too_large = 0\nskipped_out_of_memory = 0\n\
                  skipped_unsupported = 0\nskipped_out_of_time = 0\n";
    let error = refused_meta(&format!("[kernel_source]\ngem = \"x\"\n[tables.attention]\n{counts}"));
    let message = error.to_string();
    assert!(error.kind() == ErrorKind::Invalid, "{message}");
    for part in
        ["meta.toml", "kernel_source.gem is not a known key", "tables.attention is not a known key", "attention_decode"]
    {
        assert!(message.contains(part), "{part}: {message}");
    }
}

#[test]
fn a_kind_other_than_measurement_is_refused_before_any_row_is_read() {
    assert!(with_meta("kind = \"measurement\"\n").is_ok());
    for kind in ["not a measurement", "simulation", ""] {
        let text = format!("kind = \"{kind}\"\n");
        let error = load(&[("gemm.csv", "damaged"), ("meta.toml", &text)]).unwrap_err();
        let message = error.to_string();
        assert!(error.kind() == ErrorKind::Invalid, "{message}");
        assert!(message.contains("meta.toml") && message.contains(&format!("kind = \"{kind}\"")), "{message}");
    }
}

#[test]
fn values_of_the_wrong_type_are_refused() {
    for meta in ["date = 5\n", "device = [\"L4\"]\n", "tables = 1\n"] {
        let error = refused_meta(meta);
        assert_eq!(error.kind(), ErrorKind::Invalid, "{meta}: {error}");
        assert!(error.to_string().contains("meta.toml: "), "{meta}: {error}");
    }
}

#[test]
fn skipped_shapes_and_rows_that_are_not_there_are_noted() {
    let counts = |measured: u64, out_of_time: u64| {
        format!(
            "planned = 9\nmeasured = {measured}\nskipped_too_large = 1\nskipped_out_of_memory = 0\n\
             skipped_unsupported = 0\nskipped_out_of_time = {out_of_time}\n"
        )
    };
    let measurements = with_meta(&format!("[tables.gemm]\n{}[tables.moe]\n{}", counts(7, 1), counts(8, 0))).unwrap();
    let notes = measurements.notes.join("\n");
    assert_eq!(measurements.notes.len(), 4, "{notes}");
    for part in [
        "meta.toml counts 7 rows of gemm, 2 were read",
        "gemm: not all of 9 planned shapes were measured: 1 too large, 1 out of time",
        "meta.toml counts 8 rows of moe, 0 were read",
        "moe: not all of 9 planned shapes were measured: 1 too large",
    ] {
        assert!(notes.contains(part), "{part}: {notes}");
    }
}

#[test]
fn the_spread_of_the_samples_is_no_misnamed_file() {
    let files = [("gemm.csv", GEMM), ("spread.csv", "table,row\n"), ("spreads.csv", "x\n")];
    let notes = load(&files).unwrap().notes;
    assert_eq!(notes.len(), 1, "{notes:?}");
    assert!(notes[0].contains("spreads.csv"), "{notes:?}");
    assert!(refused(&files[1..]).contains("holds no measurements"));
}

//! Tests of reading measurements: csv, parquet written on the spot, and the public tables where they are at hand.

mod certificate;
mod csv;
mod data_pack;
#[cfg(feature = "parquet")]
mod parquet;

use ridgepoint::ErrorKind;
use ridgepoint::dtype::MatmulFormat;
use ridgepoint::unstable::efficiency::family::AllReduceKind;
use std::path::Path;

use tempfile::TempDir;

use super::*;

/// A folder of files with these contents.
fn folder(files: &[(&str, &str)]) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (name, text) in files {
        std::fs::write(dir.path().join(name), text).unwrap();
    }
    dir
}

fn load(files: &[(&str, &str)]) -> Result<Measurements> {
    Measurements::load(folder(files).path())
}

/// The message of the error that reading these files gives.
fn refused(files: &[(&str, &str)]) -> String {
    load(files).unwrap_err().to_string()
}

#[test]
fn a_folder_without_known_files_says_what_was_looked_for() {
    let message = refused(&[("notes.txt", "nothing")]);
    assert!(message.contains("holds no measurements"), "{message}");
    assert!(message.contains("gemm.csv") && message.contains("custom_allreduce_perf.parquet"), "{message}");
}

#[test]
fn a_folder_that_is_not_there_is_an_io_error() {
    let error = Measurements::load(Path::new("no/such/folder")).unwrap_err();
    assert!(error.kind() == ErrorKind::Io, "{error}");
}

#[test]
fn a_file_in_place_of_the_folder_is_an_io_error() {
    let dir = folder(&[("gemm.csv", "dtype,m,n,k,latency_us\nfp8,1,2,3,4\n")]);
    let error = Measurements::load(&dir.path().join("gemm.csv")).unwrap_err();
    assert!(error.kind() == ErrorKind::Io, "{error}");
}

#[test]
fn a_misnamed_file_is_noted_and_folders_below_are_not_read() {
    let dir = folder(&[("gemm.csv", "dtype,m,n,k,latency_us\nfp8,1,2,3,4\n"), ("gemms.csv", "x\n1\n")]);
    std::fs::create_dir(dir.path().join("below")).unwrap();
    std::fs::write(dir.path().join("below/moe.csv"), "not read").unwrap();
    let measurements = Measurements::load(dir.path()).unwrap();
    assert_eq!(measurements.calls.gemm.len(), 1);
    assert_eq!(measurements.notes.len(), 1);
    assert!(measurements.notes[0].contains("gemms.csv"), "{}", measurements.notes[0]);
}

#[test]
fn appended_rows_keep_pointing_at_their_sources() {
    let rows = "dtype,m,n,k,latency_us\nfp8,1,2,3,4\n";
    let mut first = load(&[("gemm.csv", rows), ("meta.toml", "device = \"one\"")]).unwrap();
    let second = load(&[("gemm.csv", rows), ("meta.toml", "device = \"two\"")]).unwrap();
    first.append(second);
    let devices: Vec<&str> =
        first.calls.gemm.iter().map(|row| first.sources[row.source].device.as_deref().unwrap()).collect();
    assert_eq!(devices, ["one", "two"]);
    assert_eq!(first.devices(), ["one", "two"]);
}

#[cfg(not(feature = "parquet"))]
#[test]
fn a_build_without_parquet_refuses_parquet_files_instead_of_skipping_them() {
    let message = refused(&[("gemm_perf.parquet", "")]);
    assert!(message.contains("feature 'parquet'"), "{message}");
}

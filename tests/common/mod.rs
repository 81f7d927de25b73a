//! Helpers of several test binaries.

use std::path::PathBuf;

/// The data pack, where `RIDGEPOINT_DATA` points at one; says that the test is skipped otherwise.
pub fn data_pack(test: &str) -> Option<PathBuf> {
    match std::env::var_os("RIDGEPOINT_DATA") {
        Some(dir) => Some(PathBuf::from(dir)),
        None => {
            eprintln!("{test}: skipped, RIDGEPOINT_DATA is not set");
            None
        }
    }
}

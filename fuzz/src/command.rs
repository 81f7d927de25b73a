//! Targets of what the command alone reads, through the command itself: batches, and the shorthand of its flags.

use std::ffi::OsString;

use crate::scratch;

const PREDICT: &str = "ridgepoint predict-step --efficiency ideal --model llama-3.1-8b --hardware h100 --format json";

fn run(arguments: impl Iterator<Item = OsString>) {
    let line = PREDICT.split(' ').map(OsString::from).chain(arguments);
    assert!(ridgepoint_cli::run(line) <= 2, "an exit code that is not documented");
}

/// A batch file.
pub fn batch(bytes: &[u8]) {
    let path = scratch::write("batch.json", bytes);
    run(["--batch".into(), path.into_os_string()].into_iter());
}

/// Words of a command line: the flags of a batch, and any others of `predict-step`, which writes no file.
pub fn shorthand(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    run(text.split_ascii_whitespace().map(OsString::from));
}

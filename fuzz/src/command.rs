//! Targets of what the command alone reads, through the command itself: batches, and the shorthand of its flags.

use std::ffi::OsString;

use crate::scratch;

const PREDICT: &str = "ridgepoint predict-step --efficiency ideal --model llama-3.1-8b --hardware h100 --format json";

/// Predicts a step with these arguments.
fn predict(arguments: impl Iterator<Item = OsString>) {
    run(PREDICT.split(' ').map(OsString::from).chain(arguments));
}

/// Runs a command line of anything but `simulate` and `sweep`; returns whether it ended well.
pub fn run(line: impl Iterator<Item = OsString>) -> bool {
    let code = ridgepoint_cli::run_unguarded(&line.collect::<Vec<OsString>>());
    assert!(code <= 2, "an exit code that is not documented");
    code == 0
}

/// A batch file.
pub fn batch(bytes: &[u8]) {
    let path = scratch::write("batch.json", bytes);
    predict(["--batch".into(), path.into_os_string()].into_iter());
}

/// Words of a command line: the flags of a batch, and any others of `predict-step`, which writes no file.
pub fn shorthand(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    predict(text.split_ascii_whitespace().map(OsString::from));
}

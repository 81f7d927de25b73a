//! The `--correction` flag: none is shipped yet and none can be read from a file yet.

use super::output::Failure;

/// Refuses corrections that are not there.
///
/// # Errors
/// Anything but `none` and `auto`.
pub fn check(correction: &str) -> Result<(), Failure> {
    match correction {
        "none" | "auto" => Ok(()),
        "global" => Err(Failure::input(
            "--correction global: no global correction is shipped yet; use --correction none for the calibrated roofline",
        )),
        file => Err(Failure::input(format!(
            "--correction {file}: no correction is shipped yet and none can be read from a file yet; use --correction \
             none for the calibrated roofline"
        ))),
    }
}

//! The command `ridgepoint`, which the wheel installs as a console script.

use std::ffi::OsString;

use pyo3::prelude::*;

use crate::fault::detached;

/// Runs the command and returns its exit code. The first argument is the name of the program.
///
/// # Errors
/// `RuntimeError` after a panic.
#[pyfunction]
#[pyo3(name = "_run_command")]
pub fn run_command(py: Python<'_>, arguments: Vec<OsString>) -> PyResult<u8> {
    detached(py, || Ok(ridgepoint_cli::run(arguments)))
}

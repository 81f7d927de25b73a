//! Errors and panics of the library as Python exceptions, and structures as JSON text.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use pyo3::create_exception;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use serde::Serialize;
use serde::de::DeserializeOwned;

create_exception!(
    ridgepoint,
    RidgepointError,
    PyValueError,
    "Input that cannot be: an unknown name, a file at fault, a deployment that does not fit the model. The message names \
     the place, the value and the way out."
);

/// Converts an error of the library.
pub fn raised(error: ridgepoint::Error) -> PyErr {
    RidgepointError::new_err(error.to_string())
}

/// Joins several errors, one per line.
pub fn all_raised(errors: &[ridgepoint::Error]) -> PyErr {
    let lines: Vec<String> = errors.iter().map(ToString::to_string).collect();
    RidgepointError::new_err(lines.join("\n"))
}

/// Runs `work` without the GIL. A panic becomes a `RuntimeError`.
///
/// # Errors
/// Those of `work`, and `RuntimeError` after a panic.
pub fn detached<T: Send>(py: Python<'_>, work: impl FnOnce() -> PyResult<T> + Send) -> PyResult<T> {
    py.detach(|| caught(work))
}

/// Runs `work`. A panic becomes a `RuntimeError`.
///
/// # Errors
/// Those of `work`, and `RuntimeError` after a panic.
pub fn caught<T>(work: impl FnOnce() -> PyResult<T>) -> PyResult<T> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| Err(defect(&*panic)))
}

fn defect(panic: &(dyn Any + Send)) -> PyErr {
    let said = panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message");
    PyRuntimeError::new_err(format!("a defect of ridgepoint, please report it: {said}"))
}

/// Panics, for tests.
#[pyfunction]
#[pyo3(name = "_raise_defect")]
#[allow(clippy::panic)]
pub fn raise_defect(py: Python<'_>) -> PyResult<()> {
    detached(py, || panic!("raised for a test"))
}

/// Writes a structure as JSON.
///
/// # Errors
/// None that a caller can cause.
pub fn to_json(value: &impl Serialize) -> PyResult<String> {
    serde_json::to_string(value).map_err(|error| PyRuntimeError::new_err(error.to_string()))
}

/// Reads a structure from JSON written by the package's Python half. Messages call it `what`.
///
/// # Errors
/// [`RidgepointError`] if a key or value is unknown.
pub fn from_json<T: DeserializeOwned>(what: &str, text: &str) -> PyResult<T> {
    serde_json::from_str(text).map_err(|error| {
        let said = error.to_string();
        let said = said.split(" at line ").next().unwrap_or(&said);
        RidgepointError::new_err(format!("{what}: {said}"))
    })
}

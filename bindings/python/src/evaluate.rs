//! `evaluate_serving`: compares replays with measured serving runs.

use std::path::PathBuf;

use pyo3::prelude::*;
use ridgepoint_lab::evaluate::case::correct;
use ridgepoint_lab::evaluate::experiment::{Experiment, serving_cases};
use ridgepoint_lab::evaluate::judge::judge;

use crate::fault::{all_raised, detached, raised, to_json};

/// Replays experiments and returns measured and predicted metrics as JSON.
#[pyfunction]
#[pyo3(signature = (paths, correction, seed, data_dir, /))]
pub fn evaluate_serving(
    py: Python<'_>,
    paths: Vec<PathBuf>,
    correction: &str,
    seed: u64,
    data_dir: Option<PathBuf>,
) -> PyResult<String> {
    detached(py, || {
        let experiments = Experiment::find(&paths).map_err(|errors| all_raised(&errors))?;
        let (mut cases, skipped) = serving_cases(&experiments, data_dir.as_deref());
        correct(&mut cases, correction).map_err(raised)?;
        to_json(&judge(&cases, skipped, seed, &[], &|| ()).map_err(raised)?)
    })
}

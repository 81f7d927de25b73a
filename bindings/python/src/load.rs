//! Loads from Python: a JSON description or columns of requests.

use pyo3::PyResult;
use ridgepoint::Result;
use ridgepoint_replay::workload;
use ridgepoint_replay::workload::{FixedList, OpenedLoad, ReplicaShare, WorkloadRequest};
use serde::Deserialize;
use serde_json::Value;

use crate::fault::{RidgepointError, from_json};

/// A load as the classes of `_loads.py` describe it.
#[derive(Debug)]
pub enum Load {
    /// Requests in columns, passed beside the description.
    Columns,
    /// Any other load.
    Described(workload::Load),
}

impl Load {
    /// Reads a description.
    ///
    /// # Errors
    /// `RidgepointError` if a kind, key or value is unknown.
    pub fn parse(json: &str) -> PyResult<Self> {
        let load: Value = from_json("load", json)?;
        if load["kind"] == "request_arrays" {
            return Ok(Load::Columns);
        }
        let load = workload::Load::deserialize(load);
        load.map(Load::Described).map_err(|error| RidgepointError::new_err(format!("load: {error}")))
    }
}

/// Columns of requests: arrival, prompt tokens, output tokens.
pub type Arrays<'a> = (&'a [u64], &'a [u32], &'a [u32]);

/// Opens the share of the load that one of `replicas` replicas gets.
///
/// # Errors
/// `RidgepointError` if a file cannot be read or is malformed, or if a number is out of range.
pub fn source(load: &Load, arrays: Arrays<'_>, seed: u64, replicas: u32) -> Result<OpenedLoad> {
    match load {
        Load::Described(load) => load.open(seed, replicas),
        Load::Columns => {
            let (arrivals_ns, inputs, outputs) = arrays;
            let requests = arrivals_ns
                .iter()
                .zip(inputs)
                .zip(outputs)
                .map(|((arrival_ns, input), output)| WorkloadRequest::new(*arrival_ns, *input, *output));
            let share = ReplicaShare::new(replicas);
            let list = share.list(FixedList::new(requests.collect())?)?;
            let summary = list.summary();
            let notes = share.note_on_figures(None, None).into_iter().collect();
            Ok(OpenedLoad { workload: list.workload(), name: "columns".to_owned(), summary, notes })
        }
    }
}

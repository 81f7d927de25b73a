//! Loads from Python: a JSON description or columns of requests.

use pyo3::PyResult;
use ridgepoint::Result;
use ridgepoint_replay::workload;
use ridgepoint_replay::workload::{
    FixedList, GeneratedLoad, OpenedLoad, ReplicaShare, WorkloadRequest, load_arguments,
};
use serde_json::{Map, Value};

use crate::fault::{from_json, raised};

/// A load as the classes of `_loads.py` describe it.
#[derive(Debug)]
pub enum Load {
    /// Requests in columns, passed along with the description.
    Columns,
    /// Any other load.
    Described(Box<workload::Load>),
}

impl Load {
    /// Reads a description.
    ///
    /// # Errors
    /// `RidgepointError` if a kind, key or value is unknown.
    pub fn parse(json: &str) -> PyResult<Self> {
        let mut load: Map<String, Value> = from_json("load", json)?;
        let kind = load.remove("kind");
        let path = || load.get("path").and_then(Value::as_str).unwrap_or_default().into();
        match kind.as_ref().and_then(Value::as_str) {
            Some("request_arrays") => Ok(Load::Columns),
            Some("profile") => Ok(Load::Described(Box::new(workload::Load::Profile { path: path() }))),
            Some("request_file") => {
                let format = load.get("format").and_then(Value::as_str).map(str::parse).transpose().map_err(raised)?;
                let sent = GeneratedLoad::default();
                Ok(Load::Described(Box::new(workload::Load::RequestFile { path: path(), format, sent })))
            }
            _ => {
                let given = load_arguments().read_all("load", &load).map_err(raised)?;
                Ok(Load::Described(Box::new(workload::Load::Generated(GeneratedLoad::from_given(&given)))))
            }
        }
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

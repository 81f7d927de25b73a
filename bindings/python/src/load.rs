//! What clients send, from Python's description of it to a workload. Uses the library's `workload`.

use std::path::PathBuf;

use ridgepoint::Result;
use ridgepoint::workload::profile::Profile;
use ridgepoint::workload::requests::{Format, RequestFile};
use ridgepoint::workload::{
    ArrivalPattern, ClosedLoop, FixedList, OpenLoop, RequestShape, Summary, Workload, WorkloadRequest,
};
use serde::Deserialize;

/// A load as the classes of `ridgepoint.loads` say it.
#[derive(Debug, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Load {
    /// A file of the load generator inference-perf.
    Profile {
        /// The file.
        path: PathBuf,
    },
    /// A file of requests one by one.
    RequestFile {
        /// The file.
        path: PathBuf,
        /// What kind of file it is; the file says where nothing is given.
        format: Option<String>,
    },
    /// So many in flight.
    ClosedLoop {
        /// Requests in flight.
        concurrency: u32,
        /// Tokens of each prompt.
        input_len: u32,
        /// Tokens that each generates.
        output_len: u32,
        /// Requests in all.
        num_requests: u64,
    },
    /// So many per second.
    OpenLoop {
        /// Mean rate.
        requests_per_s: f64,
        /// Tokens of each prompt.
        input_len: u32,
        /// Tokens that each generates.
        output_len: u32,
        /// Requests in all.
        num_requests: u64,
        /// Shape of the gamma distribution of gaps; 1 is Poisson.
        burstiness: f64,
    },
    /// Columns that come beside.
    RequestArrays,
}

/// Requests as columns: when each is sent, its prompt and its output.
pub type Arrays<'a> = (&'a [u64], &'a [u32], &'a [u32]);

/// A load opened.
pub struct Source {
    /// Where the requests come from.
    pub workload: Box<dyn Workload>,
    /// What they come to.
    pub summary: Summary,
    /// Remarks.
    pub notes: Vec<String>,
}

/// What equal requests in a closed loop do.
const LOCKSTEP: &str = "all requests are equally long: those that are prefilled together finish together, round after round, and queue behind \
                        each other more than the requests of real clients do";

impl Source {
    /// Opens a load.
    ///
    /// # Errors
    /// Files at fault, figures out of range.
    pub fn open(load: &Load, arrays: Arrays<'_>, seed: u64) -> Result<Self> {
        let source = |workload: Box<dyn Workload>, summary, notes: Vec<String>| Source { workload, summary, notes };
        Ok(match load {
            Load::Profile { path } => {
                let profile = Profile::read(path)?;
                source(profile.workload(seed), profile.summary(seed), profile.notes.clone())
            }
            Load::RequestFile { path, format } => {
                let format = format.as_deref().map(str::parse::<Format>).transpose()?;
                let file = RequestFile::read(path, format)?;
                source(Box::new(file.workload()), file.summary(), file.notes)
            }
            Load::ClosedLoop { concurrency, input_len, output_len, num_requests } => {
                let closed = ClosedLoop::new(*concurrency, *num_requests, RequestShape::new(*input_len, *output_len))?;
                let summary = closed.summary();
                source(Box::new(closed), summary, vec![LOCKSTEP.to_owned()])
            }
            Load::OpenLoop { requests_per_s, input_len, output_len, num_requests, burstiness } => {
                let pattern = match *burstiness {
                    1.0 => ArrivalPattern::Poisson,
                    burstiness => ArrivalPattern::Gamma { burstiness },
                };
                let shape = RequestShape::new(*input_len, *output_len);
                let open = OpenLoop::new(pattern, *requests_per_s, *num_requests, shape, seed)?;
                let summary = open.summary();
                source(Box::new(open), summary, Vec::new())
            }
            Load::RequestArrays => {
                let (arrivals_ns, inputs, outputs) = arrays;
                let requests = arrivals_ns
                    .iter()
                    .zip(inputs)
                    .zip(outputs)
                    .map(|((arrival_ns, input), output)| WorkloadRequest::new(*arrival_ns, *input, *output));
                let list = FixedList::new(requests.collect())?;
                let summary = list.summary();
                source(Box::new(list), summary, Vec::new())
            }
        })
    }
}

//! The loads of a grid, and the share of them that one replica of a server gets.
#![expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "floats saturate; readers check ranges")]

use std::sync::Arc;

use ridgepoint::Result;
use ridgepoint::workload::profile::Profile;
use ridgepoint::workload::requests::RequestFile;
use ridgepoint::workload::{
    ArrivalPattern, ClosedLoop, FixedList, NormalLengths, OpenLoop, ReplicaShare, RequestShape, Workload,
    WorkloadRequest,
};

/// One load of a grid. With limits and neither rate nor concurrency, the highest rate is searched; without limits, the requests of a
/// file are sent at the times that it has.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LoadPoint {
    /// Rate over the whole server, requests/s.
    pub rate_per_s: Option<f64>,
    /// Requests in flight over the whole server.
    pub concurrency: Option<u32>,
    /// Shape of the gamma distribution of gaps; 1 is Poisson.
    pub burstiness: f64,
    /// Lengths of prompt and output; `None` for the requests of a file.
    pub lengths: Option<(NormalLengths, NormalLengths)>,
    /// Number of requests; `None` for the requests of a file.
    pub num_requests: Option<u64>,
    /// Seed of arrival times and lengths.
    pub seed: u64,
}

/// Where the requests of all loads of a grid come from.
#[derive(Debug, Clone)]
pub enum Source {
    /// Generated as each load says.
    Generated,
    /// A list of requests.
    Requests(Arc<RequestFile>),
    /// A profile of inference-perf.
    Profile(Arc<Profile>),
}

impl Source {
    /// The path of the file, if there is one.
    pub fn path(&self) -> Option<&str> {
        match self {
            Source::Generated => None,
            Source::Requests(file) => Some(&file.origin),
            Source::Profile(profile) => Some(&profile.origin),
        }
    }

    /// The number of requests of a load, without drawing them.
    pub(super) fn num_requests(&self, load: &LoadPoint) -> u64 {
        match self {
            Source::Generated => load.num_requests.unwrap_or(0),
            Source::Requests(file) => file.workload().requests().len() as u64,
            Source::Profile(profile) => profile.num_requests(),
        }
    }

    /// Remarks on the file.
    pub fn notes(&self) -> &[String] {
        match self {
            Source::Generated => &[],
            Source::Requests(file) => &file.notes,
            Source::Profile(profile) => &profile.notes,
        }
    }

    /// One replica's share of a load. `rate_per_s` is that of the whole server, if there is one. The same seed sends the same requests
    /// at any rate, only closer together.
    ///
    /// # Errors
    /// Loads that last too long.
    pub fn workload(
        &self,
        load: &LoadPoint,
        rate_per_s: Option<f64>,
        share: ReplicaShare,
    ) -> Result<Box<dyn Workload>> {
        match self {
            Source::Generated => generated(load, rate_per_s, share),
            Source::Requests(file) => {
                let list = file.workload();
                let stretch = rate_per_s.zip(mean_rate_per_s(&list)).map(|(rate, own)| own / rate);
                let list = share.list(list)?;
                let Some(stretch) = stretch else { return Ok(Box::new(list)) };
                let requests = list.requests().iter().map(|request| retimed(request, stretch)).collect();
                Ok(Box::new(FixedList::new(requests)?))
            }
            Source::Profile(profile) => Ok(profile.workload(load.seed)),
        }
    }

    /// Mean prompt tokens, mean output tokens and number of requests of a load.
    pub fn shape(&self, load: &LoadPoint) -> (f64, f64, u64) {
        let summary = match self {
            Source::Generated => {
                let mean = |of: Option<NormalLengths>| of.map_or(0.0, |of| of.mean);
                let (input, output) = load.lengths.unzip();
                return (mean(input), mean(output), load.num_requests.unwrap_or(0));
            }
            Source::Requests(file) => file.summary(),
            Source::Profile(profile) => profile.summary(load.seed),
        };
        (summary.mean_input_tokens, summary.mean_output_tokens, summary.requests as u64)
    }
}

fn generated(load: &LoadPoint, rate_per_s: Option<f64>, share: ReplicaShare) -> Result<Box<dyn Workload>> {
    let (input, output) = load.lengths.unwrap_or((NormalLengths::fixed(1), NormalLengths::fixed(1)));
    let shape = RequestShape::drawn(input, output, load.seed);
    let num_requests = share.requests(load.num_requests.unwrap_or(1));
    if let Some(concurrency) = load.concurrency {
        return Ok(Box::new(ClosedLoop::new(share.concurrency(concurrency), num_requests, shape)?));
    }
    let pattern = ArrivalPattern::of_burstiness(load.burstiness);
    let rate_per_s = share.rate_per_s(rate_per_s.unwrap_or(1.0));
    Ok(Box::new(OpenLoop::new(pattern, rate_per_s, num_requests, shape, load.seed)?))
}

/// Requests over the time between the first and the last; `None` if all are sent at once.
pub(super) fn mean_rate_per_s(list: &FixedList) -> Option<f64> {
    let requests = list.requests();
    let span_ns = requests.last()?.arrival_ns.saturating_sub(requests.first()?.arrival_ns);
    (span_ns > 0).then(|| (requests.len() - 1) as f64 / (span_ns as f64 / 1e9))
}

fn retimed(request: &WorkloadRequest, stretch: f64) -> WorkloadRequest {
    let arrival_ns = (request.arrival_ns as f64 * stretch).round() as u64;
    WorkloadRequest { arrival_ns, ..request.clone() }
}

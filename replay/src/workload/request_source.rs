//! The requests of a file: single ones, or those of sessions. Uses `fixed_list`, `sessions`.
#![expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "floats saturate; new checks ranges")]

use ridgepoint::Result;
use ridgepoint::units::NS_PER_S;

use super::fixed_list::FixedList;
use super::sessions::{Session, SessionList, Turn};
use super::{Summary, Workload, WorkloadRequest};

/// Requests with their times.
#[derive(Debug, Clone)]
pub enum RequestSource {
    /// Requests that are sent at their times.
    Requests(FixedList),
    /// Sessions that start at their times.
    Sessions(SessionList),
}

impl RequestSource {
    /// Returns the requests as a load, which begins at the first one.
    pub fn workload(&self) -> Box<dyn Workload + Send> {
        match self {
            RequestSource::Requests(list) => Box::new(list.clone()),
            RequestSource::Sessions(list) => Box::new(list.workload()),
        }
    }

    /// Returns the number of requests.
    pub fn num_requests(&self) -> u64 {
        match self {
            RequestSource::Requests(list) => list.requests().len() as u64,
            RequestSource::Sessions(list) => list.num_requests(),
        }
    }

    /// Returns the summary of the requests.
    pub fn summary(&self) -> Summary {
        match self {
            RequestSource::Requests(list) => list.summary(),
            RequestSource::Sessions(list) => list.summary(),
        }
    }

    /// Returns requests, or starts of sessions, over the time between the first and the last; `None` if that is no time.
    pub fn mean_rate_per_s(&self) -> Option<f64> {
        let starts_ns: Vec<u64> = match self {
            RequestSource::Requests(list) => list.requests().iter().map(|request| request.arrival_ns).collect(),
            RequestSource::Sessions(list) => list.sessions().iter().map(Session::start_ns).collect(),
        };
        let span_ns = starts_ns.last()?.saturating_sub(*starts_ns.first()?);
        (span_ns > 0).then(|| (starts_ns.len() - 1) as f64 / (span_ns as f64 / NS_PER_S as f64))
    }

    /// Returns the same requests with their times multiplied by `factor`. Think times within sessions stay as they are.
    ///
    /// # Errors
    /// Times beyond the limit of a load.
    pub fn stretched(&self, factor: f64) -> Result<Self> {
        let retimed = |request: &WorkloadRequest| {
            let arrival_ns = (request.arrival_ns as f64 * factor).round() as u64;
            WorkloadRequest { arrival_ns, ..request.clone() }
        };
        match self {
            RequestSource::Requests(list) => {
                FixedList::new(list.requests().iter().map(retimed).collect()).map(Self::from)
            }
            RequestSource::Sessions(list) => {
                let turn = |turn: &Turn| Turn { request: retimed(&turn.request), ..*turn };
                let sessions = list.sessions().iter().map(|of| Session { turns: of.turns.iter().map(turn).collect() });
                SessionList::new(sessions.collect()).map(Self::from)
            }
        }
    }

    /// Returns every n-th request, or every n-th session, from the first.
    ///
    /// # Errors
    /// Those of [`FixedList::new`].
    pub(super) fn every_nth(self, n: usize) -> Result<Self> {
        match self {
            RequestSource::Requests(list) => {
                FixedList::new(list.requests().iter().step_by(n).cloned().collect()).map(Self::from)
            }
            RequestSource::Sessions(list) => {
                SessionList::new(list.sessions().iter().step_by(n).cloned().collect()).map(Self::from)
            }
        }
    }
}

impl From<FixedList> for RequestSource {
    fn from(list: FixedList) -> Self {
        RequestSource::Requests(list)
    }
}

impl From<SessionList> for RequestSource {
    fn from(list: SessionList) -> Self {
        RequestSource::Sessions(list)
    }
}

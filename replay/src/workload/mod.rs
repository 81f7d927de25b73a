//! Workloads: requests with their times, lengths and shared prefixes. They come from load profiles, request lists and traces, or
//! from a closed loop. Uses `error`, `input`, `units`; knows nothing of engines.
//!
//! A load is a [`profile::Profile`], a [`requests::RequestFile`], a [`FixedList`], an [`OpenLoop`] or a [`ClosedLoop`], and each
//! has a [`Summary`]. Requests that continue each other are sessions: a [`SessionList`], or
//! [`GeneratedSessions`]. Everything random is drawn from a seed: equal seeds give equal requests.
//!
//! ```
//! use ridgepoint_replay::workload::Workload;
//! use ridgepoint_replay::workload::profile::Profile;
//!
//! let profile = Profile::parse("profile.yaml", "
//!   load: {type: constant, stages: [{rate: 5, duration: 60}]}
//!   data: {type: random, input_distribution: {min: 100, max: 900, mean: 500, std_dev: 100},
//!          output_distribution: {min: 10, max: 10, mean: 10, std_dev: 0}}
//! ")?;
//! let mut load = profile.workload(42);
//! let times: Vec<u64> = std::iter::from_fn(|| load.next_request()).map(|request| request.arrival_ns).collect();
//! assert_eq!((times.len(), times.last()), (300, Some(&60_000_000_000)));
//! # Ok::<(), ridgepoint::Error>(())
//! ```

mod arrivals;
mod azure;
mod fixed_list;
mod generated;
mod generated_load;
mod hash_blocks;
mod lengths;
pub(crate) mod limits;
mod list_remarks;
mod load;
pub mod profile;
mod prompts;
mod recorded_contents;
mod request;
mod request_list;
mod request_source;
pub mod requests;
mod roles;
mod rows;
pub(crate) mod seed;
mod sent_list;
mod session_rows;
mod sessions;
mod share;
mod staged;
mod starts;
mod stoppable;
mod summary;
mod trace_clock;
mod traces;
mod vllm_bench;

pub use arrivals::ArrivalPattern;
pub use fixed_list::FixedList;
pub use generated::{ClosedLoop, OpenLoop};
pub use generated_load::{GeneratedLoad, LOAD_ARGUMENTS, ROUNDS, load_arguments};
pub use lengths::{NormalLengths, RequestShape, lockstep};
pub use limits::{MAX_DURATION_S, MAX_RATE_PER_S, MAX_REQUESTS, MAX_TOKENS, check_block_memory, check_memory};
pub use load::{Load, OpenedLoad};
pub use prompts::Prompts;
pub use recorded_contents::RecordedContents;
pub use request::{Content, Segment, WorkloadRequest};
pub use request_source::RequestSource;
pub use sessions::{GeneratedSessions, Session, SessionList, SessionLoad, SessionShape, SessionStarts, Turn};
pub use share::ReplicaShare;
pub use staged::StageLoad;
pub use stoppable::Stoppable;
pub use summary::Summary;

/// Source of the requests of a replay. The replay asks for the next request that does not depend on requests in flight, and
/// reports each finished request, so that a closed loop can send its next one.
///
/// Implementations promise that times never decrease, neither from request to request nor below a time that was passed to
/// `finished`, and that the same source gives the same requests again.
pub trait Workload {
    /// Returns when the next request is sent, ns from the start; `None` if none is due before a request in flight finishes.
    fn next_arrival_ns(&self) -> Option<u64>;

    /// Returns the next request; `None` exactly if [`next_arrival_ns`](Self::next_arrival_ns) does.
    fn next_request(&mut self) -> Option<WorkloadRequest>;

    /// Reports that a request of `stage` finished for its client at `now_ns`: it has its last token, or was refused. It is the `request`-th
    /// one that [`next_request`](Self::next_request) returned, from 0.
    fn finished(&mut self, now_ns: u64, stage: u32, request: u32);

    /// Reports that the client of the `request`-th request has its first token at `now_ns`. A load need not care.
    fn began(&mut self, _now_ns: u64, _request: u32) {}

    /// Returns the total number of requests, if known, for progress bars and reserved memory.
    fn expected_requests(&self) -> Option<usize> {
        None
    }
}

impl<W: Workload + ?Sized> Workload for &mut W {
    fn next_arrival_ns(&self) -> Option<u64> {
        (**self).next_arrival_ns()
    }

    fn next_request(&mut self) -> Option<WorkloadRequest> {
        (**self).next_request()
    }

    fn finished(&mut self, now_ns: u64, stage: u32, request: u32) {
        (**self).finished(now_ns, stage, request);
    }

    fn began(&mut self, now_ns: u64, request: u32) {
        (**self).began(now_ns, request);
    }

    fn expected_requests(&self) -> Option<usize> {
        (**self).expected_requests()
    }
}

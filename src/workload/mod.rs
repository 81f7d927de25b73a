//! What clients send: requests with their times, lengths and shared prefixes, read from load profiles, request lists and traces,
//! or kept in flight by a closed loop. Uses `error`, `units`; knows nothing of engines.

mod arrivals;
mod azure;
mod fixed_list;
mod generated;
mod limits;
mod llmservingsim;
mod mooncake;
mod request;
mod request_list;
pub mod requests;
mod rows;
mod seed;
mod summary;
mod vllm_bench;

pub use arrivals::ArrivalPattern;
pub use fixed_list::FixedList;
pub use generated::{ClosedLoop, OpenLoop, RequestShape};
pub use request::{Content, Segment, WorkloadRequest};
pub use summary::Summary;

/// Where the requests of a replay come from. The replay asks for the next request that does not depend on anything
/// still in flight, and says when a request is over, so that a closed loop can send its next.
///
/// Promise: times never decrease, neither from request to request nor below a time that was passed to `finished`; the
/// same source gives the same requests again.
pub trait Workload {
    /// When the next request is sent, ns from the start; `None` where none is due before something in flight is over.
    fn next_arrival_ns(&self) -> Option<u64>;

    /// The next request; `None` exactly where [`next_arrival_ns`](Self::next_arrival_ns) is.
    fn next_request(&mut self) -> Option<WorkloadRequest>;

    /// A request of `stage` is over for its client at `now_ns`: it has its last token, or was refused.
    fn finished(&mut self, now_ns: u64, stage: u32);

    /// Requests that will have been sent at the end, where known: for progress bars and reserved memory.
    fn expected_requests(&self) -> Option<usize> {
        None
    }
}

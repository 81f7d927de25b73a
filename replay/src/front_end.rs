//! Requests that were sent but have not reached the engine.

use ridgepoint::{Error, Result};

use crate::workload::WorkloadRequest;
use crate::workload::limits::MAX_STAGES;

/// A request on its way to the engine, in the order in which they reach it; of two at once, the one sent first.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Pending {
    pub(super) visible_ns: u64,
    pub(super) record: u32,
    pub(super) request: WorkloadRequest,
}

/// Checks the workload's `index`-th request, which must not arrive before `not_before_ns`: its announced time, and the arrival
/// before it.
pub(super) fn check(request: &WorkloadRequest, index: usize, not_before_ns: u64) -> Result<()> {
    let refused = |field: &str, value: u64, reason: String| {
        Err(Error::invalid_requests(&[(index, format!("{field} = {value} {reason}"))]))
    };
    if request.num_prompt_tokens == 0 {
        return refused("num_prompt_tokens", 0, "must be at least 1".to_owned());
    }
    if request.num_output_tokens == 0 {
        return refused("num_output_tokens", 0, "must be at least 1: a prompt alone samples one token".to_owned());
    }
    if request.stage >= MAX_STAGES {
        return refused("stage", request.stage.into(), format!("must be below {MAX_STAGES}"));
    }
    if request.arrival_ns < not_before_ns {
        let reason = format!("is before the request sent before it ({not_before_ns}); sort requests by arrival");
        return refused("arrival_ns", request.arrival_ns, reason);
    }
    if index >= u32::MAX as usize {
        return refused("number of requests", index as u64, format!("must be below {}", u32::MAX));
    }
    Ok(())
}

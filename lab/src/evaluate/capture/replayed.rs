//! A capture's requests with their measured times and those of a replay.

use super::load::load;
use super::times::RequestTimes;
use crate::ingest::RequestRow;
use ridgepoint::Result;
use ridgepoint::latency::LatencyModel;
use ridgepoint_replay::{EngineConfig, Outcome, replay};

/// A request with its measured and its predicted times.
#[derive(Debug, Clone)]
pub struct ReplayedRequest {
    /// As captured.
    pub row: RequestRow,
    /// As measured.
    pub measured: RequestTimes,
    /// By the replay.
    pub predicted: RequestTimes,
}

/// Replays requests at their captured times. Returns those that finish, by arrival.
///
/// # Errors
/// No request that can be sent, and those of [`replay`].
pub fn replayed_requests(
    rows: Vec<RequestRow>,
    engine: &EngineConfig,
    latency: &dyn LatencyModel,
) -> Result<Vec<ReplayedRequest>> {
    let mut captured = load(rows, engine.block_size)?;
    let replayed = replay(latency, engine, &mut captured.list, &mut [])?;
    replayed.check_clock()?;
    let finished = captured.rows.into_iter().zip(&replayed.records).filter(|(_, of)| of.outcome == Outcome::Finished);
    let times = |(row, record)| {
        let (measured, predicted) = (RequestTimes::measured(&row), RequestTimes::predicted(record));
        ReplayedRequest { row, measured, predicted }
    };
    Ok(finished.map(times).collect())
}

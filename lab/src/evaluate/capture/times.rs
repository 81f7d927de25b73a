//! The times of one request, measured or predicted, from which every metric follows.

use crate::ingest::{RequestRow, Whole};
use crate::training::QueueRow;
use ridgepoint::units::ns_to_ms;
use ridgepoint_replay::RequestRecord;
use serde::Serialize;

/// What a client, or the engine alone, saw of a request.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct RequestTimes {
    /// Time in the scheduler's waiting queue, ms.
    pub queue_wait_ms: Option<f64>,
    /// From sending to the first token, ms.
    pub ttft_ms: Option<f64>,
    /// From sending to the last token, ms.
    pub e2e_ms: Option<f64>,
    /// (E2E − TTFT) / (output tokens − 1), ms.
    pub tpot_ms: Option<f64>,
}

/// A request with its measured and its predicted times.
#[derive(Debug, Clone)]
pub struct JudgedRequest {
    /// As captured.
    pub row: RequestRow,
    /// Cached tokens of the replay.
    pub num_cached_tokens: u32,
    /// Preemptions of the replay.
    pub num_preemptions: u32,
    /// Measured times.
    pub measured: RequestTimes,
    /// Predicted times.
    pub predicted: RequestTimes,
    /// The wait of the request and the queues at its arrival; `None` if the capture does not report them.
    pub queued: Option<QueueRow>,
}

impl RequestTimes {
    /// The measured times. A trace of the engine alone has its own first and last token, and begins in the queue.
    pub fn measured(row: &RequestRow) -> Self {
        let since = |from: Option<Whole>, to: Option<Whole>| Some(ns_to_ms(to?.since(from?)?));
        let begin = row.arrived_ns.or(row.queued_ns);
        let ttft_ms = since(begin, row.first_response_ns.or(row.first_token_ns));
        let e2e_ms = since(begin, row.departed_ns.or(row.finished_ns));
        RequestTimes {
            queue_wait_ms: since(row.queued_ns, row.scheduled_ns),
            ttft_ms,
            e2e_ms,
            tpot_ms: tpot_ms(ttft_ms, e2e_ms, row.num_output_tokens.map_or(0, Whole::get)),
        }
    }

    /// The predicted times of a finished request.
    pub fn predicted(record: &RequestRecord) -> Self {
        RequestTimes {
            queue_wait_ms: Some(record.queue_wait_ms()),
            ttft_ms: Some(record.ttft_ms()),
            e2e_ms: Some(record.e2e_ms()),
            tpot_ms: record.tpot_ms(),
        }
    }
}

fn tpot_ms(ttft_ms: Option<f64>, e2e_ms: Option<f64>, output_tokens: u64) -> Option<f64> {
    let gaps = output_tokens.checked_sub(1).filter(|gaps| *gaps > 0)?;
    Some((e2e_ms? - ttft_ms?) / gaps as f64)
}

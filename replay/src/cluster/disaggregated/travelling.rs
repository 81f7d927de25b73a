//! Requests on their way between two pools, and what happens to them.
#![expect(clippy::indexing_slicing, reason = "an engine numbers its requests within their list")]

use std::cmp::Reverse;
use std::collections::VecDeque;

use super::KvTransferRecord;
use crate::record::{Outcome, RequestRecord};
use crate::workload::{Workload, WorkloadRequest};

/// What happens to a request. At equal times in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Happening {
    /// Its client on the prefill or decode replica has the first token.
    Began { is_decode: bool },
    /// It ended there.
    Ended { is_decode: bool },
    /// It was refused before any replica got it.
    Refused,
    /// So many tokens of its prompt are computed.
    Computed { num_tokens: u32 },
    /// Its decode replica has blocks, so many of which must be moved.
    GotBlocks { num_blocks: u32 },
    /// So many blocks may move.
    MayMove { num_blocks: u32 },
}

/// A happening with its time and its request.
pub(super) type Due = Reverse<(u64, Happening, u32)>;

/// The requests that an engine was sent and has not taken yet, and what it told of those that it has.
#[derive(Debug, Default)]
pub(super) struct Mailbox {
    pub(super) is_decode: bool,
    pub(super) sent: VecDeque<WorkloadRequest>,
    /// Numbers of its requests among all.
    pub(super) numbers: Vec<u32>,
    pub(super) told: Vec<Due>,
}

impl Workload for Mailbox {
    fn next_arrival_ns(&self) -> Option<u64> {
        self.sent.front().map(|request| request.arrival_ns)
    }

    fn next_request(&mut self) -> Option<WorkloadRequest> {
        self.sent.pop_front()
    }

    fn finished(&mut self, now_ns: u64, _stage: u32, request: u32) {
        self.told.push(Reverse((
            now_ns,
            Happening::Ended { is_decode: self.is_decode },
            self.numbers[request as usize],
        )));
    }

    fn began(&mut self, now_ns: u64, request: u32) {
        self.told.push(Reverse((
            now_ns,
            Happening::Began { is_decode: self.is_decode },
            self.numbers[request as usize],
        )));
    }
}

/// A request on its way.
#[derive(Debug)]
pub(super) struct Travelling {
    pub(super) request: WorkloadRequest,
    /// Its engines, and its numbers there.
    pub(super) prefill: Option<(usize, u32)>,
    pub(super) decode: Option<(usize, u32)>,
    /// Blocks that move, those that may by now, and those whose latency has passed.
    pub(super) num_blocks: u32,
    pub(super) num_offered: u32,
    pub(super) num_begun: u32,
    pub(super) refused_ns: Option<u64>,
    pub(super) transfer: KvTransferRecord,
}

impl Travelling {
    /// Its record: the beginning on the prefill replica, and the tokens where these came from.
    pub(super) fn as_clients_see(
        &self,
        prefill: Option<RequestRecord>,
        decode: Option<RequestRecord>,
    ) -> RequestRecord {
        let (request, began) = (&self.request, prefill.unwrap_or_default());
        let ended = match self.refused_ns {
            Some(finish_ns) => RequestRecord { outcome: Outcome::Rejected, finish_ns, ..RequestRecord::default() },
            None => decode.unwrap_or(began),
        };
        RequestRecord {
            stage: request.stage,
            turn: request.turn,
            num_prompt_tokens: request.num_prompt_tokens,
            num_output_tokens: request.num_output_tokens,
            arrival_ns: request.arrival_ns,
            num_preemptions: began.num_preemptions + decode.map_or(0, |of| of.num_preemptions),
            outcome: ended.outcome,
            first_token_ns: ended.first_token_ns,
            finish_ns: ended.finish_ns,
            ..began
        }
    }
}

//! Sessions: requests that continue each other. A turn is sent when the turn before it has finished for its client and the client has
//! thought. `list` has the sessions of a file, `generated` those of a few numbers. Uses `arrivals`, `lengths`, `limits`, `seed`.

mod generated;
mod list;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use super::{Workload, WorkloadRequest};

pub use generated::{GeneratedSessions, SessionShape, SessionStarts};
pub(super) use list::grown;
pub use list::{Session, SessionList, Turn};

/// A turn of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct SessionTurn {
    /// Session, in order of start from 0.
    session: u32,
    /// Turn of the session, from 0.
    turn: u32,
    /// Tokens in front of the turn's new text.
    context_tokens: u32,
}

/// The sessions of a load: when they start, and what their turns are.
trait Script {
    /// Returns when the next session starts; `None` if no further one does before a session in progress ends.
    fn next_start_ns(&self) -> Option<u64>;

    /// Starts the next session.
    fn start(&mut self) -> Option<SessionTurn>;

    /// Returns the request of a turn, whose time counts for nothing.
    fn request(&self, place: SessionTurn) -> Option<WorkloadRequest>;

    /// Returns the turn after one that ended at `now_ns`, behind the time at which it is sent; `None` after the last.
    fn next(&self, place: SessionTurn, now_ns: u64) -> Option<(u64, SessionTurn)>;

    /// Reports that the last turn of a session finished.
    fn ended(&mut self, now_ns: u64);
}

/// Sessions as a load. A turn that the server refuses counts as finished, so that the later turns of its session are sent too.
pub struct SessionLoad {
    script: Box<dyn Script + Send>,
    num_requests: u64,
    /// Turns whose time is known: their time, a number that keeps the order of equal times, and the turn.
    due: BinaryHeap<Reverse<(u64, u64, SessionTurn)>>,
    num_due: u64,
    /// Turns that were sent and have not finished, by number of the request.
    in_flight: BTreeMap<u32, SessionTurn>,
    sent: u32,
    /// The latest time that was reported or at which a request was sent.
    last_ns: u64,
}

impl SessionLoad {
    fn new(script: Box<dyn Script + Send>, num_requests: u64) -> Self {
        let (due, in_flight) = (BinaryHeap::new(), BTreeMap::new());
        SessionLoad { script, num_requests, due, num_due: 0, in_flight, sent: 0, last_ns: 0 }
    }

    fn next_due_ns(&self) -> Option<u64> {
        self.due.peek().map(|Reverse((due_ns, ..))| *due_ns)
    }

    /// Whether the next request is a turn that is due, not the first of a session.
    fn is_turn_first(&self) -> bool {
        let start_ns = self.script.next_start_ns();
        self.next_due_ns().is_some_and(|due_ns| start_ns.is_none_or(|start_ns| due_ns <= start_ns))
    }
}

impl Workload for SessionLoad {
    fn next_arrival_ns(&self) -> Option<u64> {
        let next_ns = [self.next_due_ns(), self.script.next_start_ns()].into_iter().flatten().min();
        next_ns.map(|next_ns| next_ns.max(self.last_ns))
    }

    fn next_request(&mut self) -> Option<WorkloadRequest> {
        let arrival_ns = self.next_arrival_ns()?;
        let place =
            if self.is_turn_first() { self.due.pop().map(|Reverse((.., place))| place) } else { self.script.start() }?;
        let request = self.script.request(place)?;
        self.in_flight.insert(self.sent, place);
        self.sent = self.sent.saturating_add(1);
        self.last_ns = arrival_ns;
        Some(WorkloadRequest { arrival_ns, turn: place.turn, session: Some(place.session), ..request })
    }

    fn finished(&mut self, now_ns: u64, _stage: u32, request: u32) {
        let Some(place) = self.in_flight.remove(&request) else { return };
        self.last_ns = self.last_ns.max(now_ns);
        match self.script.next(place, self.last_ns) {
            Some((due_ns, place)) => {
                self.due.push(Reverse((due_ns, self.num_due, place)));
                self.num_due += 1;
            }
            None => self.script.ended(self.last_ns),
        }
    }

    fn expected_requests(&self) -> Option<usize> {
        usize::try_from(self.num_requests).ok()
    }
}

#[cfg(test)]
mod tests;

//! Several engines behind a router: replicas of one server that share a load. `router` chooses an engine for each request, `prefixes` knows
//! what was sent where, `ranks` has the engines of a server with data-parallel ranks. The engines are those of a replay of one server, each with its own clock, queues and KV cache.
//!
//! Everything happens in the order of time: an engine goes on only when no request can reach it before, and a router knows what has
//! ended by then, but for steps that end while their engine's host is busy with the next: of these it hears a round later. One seed gives
//! the same bytes.
#![expect(clippy::indexing_slicing, reason = "replicas and requests are numbered within their lists")]

mod disaggregated;
mod kv_costs;
mod prefixes;
mod ranks;
mod router;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use ridgepoint::latency::LatencyModel;
use ridgepoint::{Error, Result};

use super::config::EngineConfig;
use super::engine::Engine;
use super::front_end::announced;
use super::observe::{Observer, Observers};
use super::record::{EngineCounters, Replay};
use crate::workload::{Workload, WorkloadRequest};
use ranks::{Rounds, Routes};

pub use disaggregated::{Disaggregated, DisaggregatedReplay, KvTransfer, KvTransferRecord};
pub use ranks::{Lockstep, Ranks};
pub use router::{Router, RouterKind};

/// Most replicas of a cluster.
pub const MAX_REPLICAS: usize = 4096;

/// What a server reports of its queues and KV cache.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Gauges {
    /// Requests in the running queue.
    pub(super) running: u32,
    /// Requests in the waiting queue.
    pub(super) waiting: u32,
    /// Share of the KV blocks that requests hold.
    pub(super) kv_use: f64,
}

impl Gauges {
    /// Those of a server's ranks together.
    fn of_all(ranks: impl ExactSizeIterator<Item = Gauges>) -> Self {
        let count = ranks.len().max(1) as f64;
        ranks.fold(Gauges::default(), |all, of| Gauges {
            running: all.running + of.running,
            waiting: all.waiting + of.waiting,
            kv_use: all.kv_use + of.kv_use / count,
        })
    }
}

/// Replicas behind a router. Each has a latency model and an engine of its own, so that they may be unlike each other.
#[derive(Clone)]
pub struct Cluster<'a> {
    /// The replicas.
    pub replicas: Vec<(&'a dyn LatencyModel, &'a EngineConfig)>,
    /// How requests are spread over them.
    pub router: Router,
}

/// The result of a replay of several replicas.
#[derive(Debug, Clone)]
pub struct ClusterReplay {
    /// All requests in order of arrival, all gaps between tokens, and counters: sums over the replicas, the largest of maxima.
    pub all: Replay,
    /// The replica that each request was sent to.
    pub replica_of: Vec<u32>,
    /// The counters of each replica.
    pub replicas: Vec<EngineCounters>,
}

/// The requests that a replica was sent and has not taken yet, and those that ended there.
#[derive(Debug, Default)]
struct Inbox {
    sent: VecDeque<WorkloadRequest>,
    told: Vec<Told>,
    /// Numbers of the replica's requests among those of the cluster.
    numbers: Vec<u32>,
}

/// What a client is told: that a request has its first token, or that it ended. First tokens come first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Told {
    now_ns: u64,
    number: u32,
    /// The stage of a request that ended.
    ended: Option<u32>,
}

impl Workload for Inbox {
    fn next_arrival_ns(&self) -> Option<u64> {
        self.sent.front().map(|request| request.arrival_ns)
    }

    fn next_request(&mut self) -> Option<WorkloadRequest> {
        self.sent.pop_front()
    }

    fn finished(&mut self, now_ns: u64, stage: u32, request: u32) {
        self.told.push(Told { now_ns, number: self.numbers[request as usize], ended: Some(stage) });
    }

    fn began(&mut self, now_ns: u64, request: u32) {
        self.told.push(Told { now_ns, number: self.numbers[request as usize], ended: None });
    }
}

impl Cluster<'_> {
    /// Replays `workload` on the replicas until every request has ended. `observers` watch the first replica.
    ///
    /// # Errors
    /// Those of [`replay`](super::replay); `ErrorKind::InvalidArgument` without replicas or with more than 4,096 of them.
    pub fn replay(&self, workload: &mut dyn Workload, observers: &mut [&mut dyn Observer]) -> Result<ClusterReplay> {
        let routes = Routes::to(self.router.start(self.replicas.len()));
        replay_on(&self.replicas, routes, Vec::new(), workload, Observers::new(observers))
    }
}

/// Replays `workload` on engines. There are `rounds` for each server whose engines run in lockstep.
fn replay_on<'a>(
    engines: &'a [(&'a dyn LatencyModel, &'a EngineConfig)],
    routes: Routes,
    rounds: Vec<Rounds>,
    workload: &mut dyn Workload,
    observers: Observers<'a>,
) -> Result<ClusterReplay> {
    let count = engines.len();
    if count == 0 || count > MAX_REPLICAS {
        return Err(Error::invalid_argument("replicas", count, format!("must be from 1 to {MAX_REPLICAS}")));
    }
    let mut watching = Some(observers);
    let engines = engines.iter().map(|(latency, config)| {
        let watching = watching.take().unwrap_or_else(|| Observers::new(&mut []));
        Engine::new(true, *latency, config, Inbox::default(), watching)
    });
    let engines = engines.collect::<Result<Vec<_>>>()?;
    let mut running = Running {
        next_ns: vec![None; count],
        per_server: count.checked_div(rounds.len()).unwrap_or(1),
        rounds,
        routes,
        engines,
        told: BinaryHeap::new(),
        replica_of: Vec::new(),
    };
    running.run(workload)?;
    running.finished()
}

/// A replay of replicas in its middle.
struct Running<'a> {
    engines: Vec<Engine<'a, Inbox>>,
    /// When each engine goes on.
    next_ns: Vec<Option<u64>>,
    routes: Routes,
    /// The rounds of each server whose engines run in lockstep, and the number of these.
    rounds: Vec<Rounds>,
    per_server: usize,
    /// What clients have not been told yet.
    told: BinaryHeap<Reverse<Told>>,
    replica_of: Vec<u32>,
}

impl Running<'_> {
    fn run(&mut self, workload: &mut dyn Workload) -> Result<()> {
        loop {
            let first = self.first();
            let engine_ns = first.and_then(|at| self.next_ns[at]);
            let arrival_ns = workload.next_arrival_ns();
            let told_ns = self.told.peek().map(|Reverse(of)| of.now_ns);
            let Some(now_ns) = [engine_ns, arrival_ns, told_ns].into_iter().flatten().min() else { return Ok(()) };
            if let Some(poll_ns) = self.routes.next_poll_ns().filter(|poll_ns| *poll_ns <= now_ns) {
                let engines = &self.engines;
                self.routes.poll(poll_ns, |replica| engines[replica].gauges(poll_ns));
            } else if told_ns == Some(now_ns) {
                if let Some(Reverse(of)) = self.told.pop() {
                    self.tell(of, workload);
                }
            } else if arrival_ns == Some(now_ns) {
                self.send(workload)?;
            } else if let Some(replica) = first {
                self.go_on(replica)?;
            }
        }
    }

    /// Tells the router and the senders.
    fn tell(&mut self, of: Told, workload: &mut dyn Workload) {
        let replica = self.replica_of[of.number as usize];
        match of.ended {
            None => self.routes.began(replica, of.number),
            Some(stage) => {
                self.routes.ended(replica, of.number);
                workload.finished(of.now_ns, stage, of.number);
            }
        }
    }

    /// The engine that goes on first; of equal times the first.
    fn first(&self) -> Option<usize> {
        let due = self.next_ns.iter().enumerate().filter_map(|(at, next_ns)| next_ns.map(|next_ns| (next_ns, at)));
        due.min().map(|(_, at)| at)
    }

    /// Sends the workload's next request to the replica that the router chooses.
    fn send(&mut self, workload: &mut dyn Workload) -> Result<()> {
        let number = u32::try_from(self.replica_of.len())
            .map_err(|_| Error::invalid_argument("requests", self.replica_of.len(), "must be fewer than 2^32"))?;
        let request = announced(workload, number as usize)?;
        let replica = self.routes.choose(number, &request);
        self.replica_of.push(replica);
        let inbox = &mut self.engines[replica as usize].workload;
        inbox.numbers.push(number);
        inbox.sent.push_back(request);
        self.look_at(replica as usize);
        Ok(())
    }

    fn go_on(&mut self, replica: usize) -> Result<()> {
        let server = replica / self.per_server;
        let first = server * self.per_server;
        match self.rounds.get_mut(server) {
            None => {
                self.engines[replica].iterate()?;
            }
            Some(rounds) => rounds.go_on(replica - first, &mut self.engines[first..first + self.per_server])?,
        }
        for replica in first..first + self.per_server {
            self.told.extend(self.engines[replica].workload.told.drain(..).map(Reverse));
            self.look_at(replica);
        }
        Ok(())
    }

    /// Asks an engine when it goes on.
    fn look_at(&mut self, replica: usize) {
        let engine = &self.engines[replica];
        self.next_ns[replica] = match self.rounds.get(replica / self.per_server) {
            None => engine.next_ns(),
            Some(rounds) => rounds.next_ns(replica % self.per_server, engine),
        };
    }

    fn finished(self) -> Result<ClusterReplay> {
        let mut records = vec![super::RequestRecord::default(); self.replica_of.len()];
        let (mut all, mut replicas) = (Replay::default(), Vec::new());
        for engine in self.engines {
            let numbers = engine.workload.numbers.clone();
            let of = engine.finished();
            for (number, record) in numbers.iter().zip(&of.records) {
                records[*number as usize] = *record;
            }
            all.add(&of)?;
            replicas.push(of.counters);
            all.offload = all.offload.or(of.offload);
        }
        all.records = records;
        Ok(ClusterReplay { all, replica_of: self.replica_of, replicas })
    }
}

//! Data-parallel ranks of servers: which of them gets a request, and how those that share experts run their steps together. Uses `router`.
//!
//! # Sources
//! vLLM 0.32.0, `DPEngineCoreProc.run_busy_loop` (`vllm/v1/engine/core.py`) and `DPCoordinatorProc` (`vllm/v1/engine/coordinator.py`);
//! SGLang 0.5.9, `prepare_mlp_sync_batch` (`managers/scheduler.py`); TensorRT-LLM 1.2, `PyExecutor` (`_torch/pyexecutor/py_executor.py`).
//!
//! # Approximations
//! - A step that ranks share lasts as long as the slowest of their own: each is predicted as if all ranks had its batch.
//! - Messages between ranks take no time. The host of a rank that launches a dummy step goes on when all ranks have joined it; where none has
//!   requests, once the dummy step before has ended.
#![expect(clippy::indexing_slicing, reason = "replicas are numbered within their lists")]

use ridgepoint::latency::LatencyModel;
use ridgepoint::{Error, Request, Result, Step};

use super::router::{Router, Started};
use super::{ClusterReplay, Gauges, Inbox};
use crate::config::EngineConfig;
use crate::engine::{Engine, Joined};
use crate::observe::{Observer, Observers};
use crate::workload::{Workload, WorkloadRequest};

/// How the ranks of a server run their steps together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lockstep {
    /// vLLM: while any rank has work, one without a step runs a dummy batch. Ranks ask each other only every so many steps whether any has
    /// work left, and until then all run dummy batches.
    Waves {
        /// Steps from one question to the next, at least 1.
        sync_interval: u32,
        /// Whether they ask behind the first step of a wave, too.
        syncs_first: bool,
    },
    /// SGLang and TensorRT-LLM with data-parallel attention: ranks ask before each step, and those without one take part in it if another
    /// has one.
    Steps,
}

impl Lockstep {
    /// That of a version of vLLM: every 32 steps up to 0.29, every 16 and behind the first from 0.30 on.
    pub fn vllm(version: (u32, u32)) -> Self {
        let is_new = version >= (0, 30);
        Lockstep::Waves { sync_interval: if is_new { 16 } else { 32 }, syncs_first: is_new }
    }

    /// Whether a rank without a step ends the oldest one in flight before it joins the others.
    fn ends_first(self) -> bool {
        matches!(self, Lockstep::Waves { .. })
    }
}

/// Servers behind a router, each of which has data-parallel ranks behind one of its own. Each rank has queues and a KV cache of its own.
#[derive(Clone)]
pub struct Ranks<'a> {
    /// The ranks of the first server, then those of the next.
    pub ranks: Vec<(&'a dyn LatencyModel, &'a EngineConfig)>,
    /// Ranks of a server, at least 1.
    pub per_server: u32,
    /// How they run their steps together; `None` for ranks that run on their own.
    pub lockstep: Option<Lockstep>,
    /// How a server spreads its requests over its ranks.
    pub router: Router,
    /// How requests are spread over the servers.
    pub servers: Router,
}

impl Ranks<'_> {
    /// Replays `workload` until every request has ended. `observers` watch the first rank. The replicas of the result are the ranks.
    ///
    /// # Errors
    /// Those of [`replay`](crate::replay); `ErrorKind::InvalidArgument` without ranks, with more than 4,096 of them, with servers of unequal
    /// numbers, and for ranks that run in lockstep and have KV blocks on the host.
    pub fn replay(&self, workload: &mut dyn Workload, observers: &mut [&mut dyn Observer]) -> Result<ClusterReplay> {
        let (count, per_server) = (self.ranks.len(), self.per_server as usize);
        if per_server == 0 || !count.is_multiple_of(per_server) {
            let reason = format!("must be a multiple of per_server = {per_server}");
            return Err(Error::invalid_argument("ranks", count, reason));
        }
        if self.lockstep.is_some() && self.ranks.iter().any(|(_, config)| config.kv_offload.is_some()) {
            let reason = "is not modelled for ranks that run in lockstep: leave one of them out";
            return Err(Error::invalid_argument("kv_offload", "given", reason));
        }
        if let Some(Lockstep::Waves { sync_interval: 0, .. }) = self.lockstep {
            return Err(Error::invalid_argument("sync_interval", 0, "must be at least 1"));
        }
        let servers = count / per_server;
        let routes = Routes {
            servers: self.servers.start(servers),
            ranks: (0..servers).map(|_| self.router.start(per_server)).collect(),
            per_server: self.per_server,
        };
        let rounds = self.lockstep.map(|kind| (0..servers).map(|_| Rounds::new(kind, per_server)).collect());
        super::replay_on(&self.ranks, routes, rounds.unwrap_or_default(), workload, Observers::new(observers))
    }
}

/// The routers of servers and of their ranks; of servers alone if there are no ranks.
#[derive(Debug)]
pub(super) struct Routes {
    servers: Started,
    ranks: Vec<Started>,
    per_server: u32,
}

impl Routes {
    /// A router of servers of one rank.
    pub(super) fn to(servers: Started) -> Self {
        Routes { servers, ranks: Vec::new(), per_server: 1 }
    }

    /// When the next report is due; `None` for routers that ask for none.
    pub(super) fn next_poll_ns(&self) -> Option<u64> {
        std::iter::once(&self.servers).chain(&self.ranks).filter_map(Started::next_poll_ns).min()
    }

    /// Takes the reports of `now_ns`.
    pub(super) fn poll(&mut self, now_ns: u64, of: impl Fn(usize) -> Gauges) {
        let Routes { servers, ranks, .. } = self;
        let per_server = self.per_server as usize;
        let is_due = |router: &Started| router.next_poll_ns().is_some_and(|due_ns| due_ns <= now_ns);
        if is_due(servers) {
            servers.poll(now_ns, |server| Gauges::of_all((0..per_server).map(|rank| of(server * per_server + rank))));
        }
        for (server, router) in ranks.iter_mut().enumerate().filter(|(_, router)| is_due(router)) {
            router.poll(now_ns, |rank| of(server * per_server + rank));
        }
    }

    /// Chooses the replica or rank of the `number`-th request.
    pub(super) fn choose(&mut self, number: u32, request: &WorkloadRequest) -> u32 {
        let server = self.servers.choose(number, request);
        match self.ranks.get_mut(server as usize) {
            None => server,
            Some(router) => server * self.per_server + router.choose(number, request),
        }
    }

    /// The routers that chose a rank, each with what it chose.
    fn of(&mut self, rank: u32) -> impl Iterator<Item = (&mut Started, u32)> {
        let per_server = self.per_server;
        let server = rank / per_server;
        let inner = self.ranks.get_mut(server as usize).map(|router| (router, rank % per_server));
        std::iter::once((&mut self.servers, server)).chain(inner)
    }

    /// The `number`-th request has ended at a rank.
    pub(super) fn ended(&mut self, rank: u32, number: u32) {
        self.of(rank).for_each(|(router, at)| router.ended(at, number));
    }

    /// The `number`-th request has its first token.
    pub(super) fn began(&mut self, rank: u32, number: u32) {
        self.of(rank).for_each(|(router, at)| router.began(at, number));
    }
}

/// The rounds of ranks in lockstep: each of them joins, then all run a step.
#[derive(Debug)]
pub(super) struct Rounds {
    kind: Lockstep,
    /// Whether ranks run steps; they wait for requests otherwise.
    is_running: bool,
    /// Rounds since the ranks began to run.
    number: u32,
    joined: Vec<Option<Joined>>,
}

impl Rounds {
    fn new(kind: Lockstep, ranks: usize) -> Self {
        Rounds { kind, is_running: false, number: 0, joined: vec![None; ranks] }
    }

    /// When a rank goes on.
    pub(super) fn next_ns(&self, rank: usize, engine: &Engine<'_, Inbox>) -> Option<u64> {
        match self.joined[rank] {
            _ if !self.is_running => engine.wakes_ns(),
            Some(_) => None,
            None => Some(engine.host_ns()),
        }
    }

    /// A rank goes on. With the last rank that joins a round, all run it.
    pub(super) fn go_on(&mut self, rank: usize, engines: &mut [Engine<'_, Inbox>]) -> Result<()> {
        if !self.is_running {
            let Some(now_ns) = engines[rank].wakes_ns() else { return Ok(()) };
            engines[rank].wait_until(now_ns);
            if !engines[rank].wake()? {
                return Ok(());
            }
            engines.iter_mut().for_each(|engine| engine.wait_until(now_ns));
            (self.is_running, self.number) = (true, 0);
        }
        self.joined[rank] = Some(engines[rank].join(self.kind.ends_first())?);
        let joined: Option<Vec<Joined>> = self.joined.iter().copied().collect();
        match joined {
            None => Ok(()),
            Some(joined) => {
                self.joined.fill(None);
                self.run(&joined, engines)
            }
        }
    }

    /// All ranks run a step.
    fn run(&mut self, joined: &[Joined], engines: &mut [Engine<'_, Inbox>]) -> Result<()> {
        let latest_ns = |of: fn(&Joined) -> u64| joined.iter().map(of).max().unwrap_or(0);
        let (host_ns, start_ns) = (latest_ns(|of| of.host_ns), latest_ns(|of| of.start_ns));
        let slowest_us = joined.iter().filter_map(|of| of.step_us).reduce(f64::max);
        let goes_on = slowest_us.is_some() || joined.iter().any(|of| of.goes_on);
        let ends_first = self.kind.ends_first();
        match (self.kind, slowest_us) {
            (Lockstep::Steps, None) => {
                for engine in engines.iter_mut() {
                    engine.wait_until(host_ns);
                    engine.end_oldest()?;
                }
            }
            (Lockstep::Steps, Some(step_us)) => {
                for engine in engines.iter_mut() {
                    engine.wait_until(host_ns);
                    engine.run_round(start_ns, step_us, host_ns, ends_first)?;
                }
            }
            (Lockstep::Waves { .. }, Some(step_us)) => {
                for engine in engines.iter_mut() {
                    engine.run_round(start_ns, step_us, host_ns, ends_first)?;
                }
            }
            (Lockstep::Waves { .. }, None) => {
                let dummy = [Request::decode(0)];
                let times_us = engines.iter().map(|engine| engine.latency().step_time_us(&Step::from(&dummy)));
                let step_us = times_us.fold(0.0, f64::max);
                for engine in engines.iter_mut() {
                    engine.run_round(start_ns, step_us, start_ns, ends_first)?;
                }
            }
        }
        self.is_running = match self.kind {
            Lockstep::Steps => goes_on,
            Lockstep::Waves { sync_interval, syncs_first } => {
                self.number += 1;
                let syncs = (syncs_first && self.number == 1) || self.number.is_multiple_of(sync_interval);
                if syncs {
                    let latest_ns = engines.iter().map(Engine::host_ns).max().unwrap_or(0);
                    engines.iter_mut().for_each(|engine| engine.wait_until(latest_ns));
                }
                let has_unfinished = engines.iter().any(Engine::has_unfinished);
                // Where nothing changes any more, only another request can help.
                if has_unfinished { goes_on } else { !syncs }
            }
        };
        Ok(())
    }
}

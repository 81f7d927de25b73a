//! Routers: which replica a request is sent to, by the rules of public ones. Uses `prefixes`, `kv_costs`.
#![expect(clippy::indexing_slicing, reason = "replicas are numbered within their lists")]
#![expect(clippy::cast_possible_truncation, reason = "there are at most 4,096 replicas")]

use std::collections::HashMap;

use rand::RngExt;
use rand_pcg::Pcg64;
use ridgepoint::units::NS_PER_MS;
use serde::{Deserialize, Serialize};

use super::Gauges;
use super::kv_costs::{KvCosts, Prompt};
use super::prefixes::{MOST_BLOCKS, Prefixes};
use crate::workload::WorkloadRequest;
use crate::workload::seed::{Stream, generator};

/// How a request's replica is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum RouterKind {
    /// One after the other.
    #[default]
    RoundRobin,
    /// The replica with the fewest requests in flight, by the router's own count; of equals the first.
    LeastRequests,
    /// Of two that are drawn at random, the one with fewer requests in flight.
    PowerOfTwo,
    /// Turns of a session go where its first one went; first turns, and requests of no session, as under `LeastRequests`.
    Session,
    /// The cache-aware policy of SGLang's and vLLM's routers: where most of the prompt was sent before, unless loads are uneven.
    CacheAware,
    /// llm-d's endpoint picker: the sum of weighted scores of prefix, queue and KV cache.
    LlmD,
    /// Dynamo's KV router: the fewest blocks to compute and to hold.
    Dynamo,
    /// vLLM's own balancing of data-parallel ranks: the shortest queues, which are reported every 100 ms.
    VllmDp,
    /// TensorRT-LLM's attention data parallelism: of replicas with fewer requests than an even share or than the fullest one, the one with the
    /// fewest prompt tokens in flight.
    TrtllmAdp,
}

/// A router: its rule, and the seed of its random choices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Router {
    /// The rule.
    pub kind: RouterKind,
    /// Seed of random choices, and of those among equals where the rule draws them.
    pub seed: u64,
}

/// Cache-aware routing: loads are uneven if they differ by more than 64 requests and half. A replica that was sent more than this share of a prompt
/// gets it.
///
/// # Source
/// sglang-router 0.3.2 and vllm-router 0.1.17, defaults of `cache_aware`.
const UNEVEN_REQUESTS: u32 = 64;
const UNEVEN_RATIO: f64 = 1.5;
const LEAST_MATCH: f64 = 0.3;

/// Weights of llm-d's default profile, and the period at which it polls servers.
///
/// # Source
/// llm-d inference scheduler 520af478: prefix 3, queue 2, KV use 2; metrics are polled each 50 ms.
const PREFIX_WEIGHT: f64 = 3.0;
const QUEUE_WEIGHT: f64 = 2.0;
const KV_WEIGHT: f64 = 2.0;
const LLM_D_POLL_NS: u64 = 50 * NS_PER_MS;

/// A waiting request of a data-parallel rank counts as four that run; counts are published each 100 ms.
///
/// # Source
/// vLLM 0.11 to 0.26, `DPLBAsyncMPClient` (`vllm/v1/engine/core_client.py`) and `DPCoordinator` (`vllm/v1/engine/coordinator.py`).
const WAITING_WEIGHT: u32 = 4;
const VLLM_POLL_NS: u64 = 100 * NS_PER_MS;

impl Router {
    /// A router of so many replicas that has sent nothing.
    pub(super) fn start(&self, replicas: usize) -> Started {
        let poll_ns = match self.kind {
            RouterKind::LlmD => Some(LLM_D_POLL_NS),
            RouterKind::VllmDp => Some(VLLM_POLL_NS),
            _ => None,
        };
        Started {
            kind: self.kind,
            rng: generator(self.seed, Stream::Routes, 0),
            in_flight: vec![0; replicas],
            costs: KvCosts::new(replicas),
            gauges: vec![Gauges::default(); replicas],
            prefixes: Prefixes::new(replicas, if self.kind == RouterKind::Dynamo { usize::MAX } else { MOST_BLOCKS }),
            sessions: HashMap::new(),
            prompt_tokens: vec![0; replicas],
            prompts: HashMap::new(),
            sent: 0,
            poll_ns,
            polled_ns: 0,
        }
    }
}

/// A router at work.
#[derive(Debug)]
pub(super) struct Started {
    kind: RouterKind,
    rng: Pcg64,
    /// Requests that were sent to each replica and have not ended.
    in_flight: Vec<u32>,
    /// Their prompts, which Dynamo counts.
    costs: KvCosts,
    /// What replicas reported last.
    gauges: Vec<Gauges>,
    prefixes: Prefixes,
    /// The replica of each session.
    sessions: HashMap<u32, u32>,
    /// Prompt tokens in flight at each replica, and those of each request, where the rule asks for them.
    prompt_tokens: Vec<u64>,
    prompts: HashMap<u32, u32>,
    sent: usize,
    /// Time between reports.
    poll_ns: Option<u64>,
    /// When the next report is due.
    polled_ns: u64,
}

impl Started {
    /// When replicas report next; `None` for a router that asks none.
    pub(super) fn next_poll_ns(&self) -> Option<u64> {
        self.poll_ns.map(|_| self.polled_ns)
    }

    /// Takes the reports of `now_ns`.
    pub(super) fn poll(&mut self, now_ns: u64, of: impl Fn(usize) -> Gauges) {
        for (replica, gauges) in self.gauges.iter_mut().enumerate() {
            *gauges = of(replica);
        }
        self.polled_ns = now_ns + self.poll_ns.unwrap_or(u64::MAX - now_ns);
    }

    /// Chooses the replica of the `number`-th request, and counts it.
    pub(super) fn choose(&mut self, number: u32, request: &WorkloadRequest) -> u32 {
        if matches!(self.kind, RouterKind::CacheAware | RouterKind::LlmD | RouterKind::Dynamo) {
            self.prefixes.look_up(request);
        }
        let replica = match self.kind {
            RouterKind::RoundRobin => self.sent % self.in_flight.len(),
            RouterKind::LeastRequests => self.least_requests(),
            RouterKind::PowerOfTwo => self.of_two(),
            RouterKind::Session => self.of_session(request),
            RouterKind::CacheAware => self.cache_aware(request),
            RouterKind::LlmD => self.by_scores(request),
            RouterKind::Dynamo => self.fewest_blocks(request),
            RouterKind::VllmDp => self.shortest_queues(),
            RouterKind::TrtllmAdp => self.fewest_tokens(),
        };
        self.sent += 1;
        self.in_flight[replica] += 1;
        match self.kind {
            RouterKind::CacheAware | RouterKind::LlmD => self.prefixes.send(replica),
            RouterKind::Dynamo => {
                self.costs.send(replica, number, self.prompt(request), self.prefixes.known(replica));
            }
            RouterKind::TrtllmAdp => {
                self.prompts.insert(number, request.num_prompt_tokens);
                self.prompt_tokens[replica] += u64::from(request.num_prompt_tokens);
            }
            _ => {}
        }
        replica as u32
    }

    /// The `number`-th request has ended at a replica.
    pub(super) fn ended(&mut self, replica: u32, number: u32) {
        let replica = replica as usize;
        self.in_flight[replica] -= 1;
        self.costs.ended(replica, number);
        self.prompt_tokens[replica] -= self.prompts.remove(&number).map_or(0, u64::from);
    }

    /// The `number`-th request has its first token: the replica's cache has its prompt, and events tell Dynamo so.
    pub(super) fn began(&mut self, replica: u32, number: u32) {
        let replica = replica as usize;
        self.prefixes.remember(replica, self.costs.computed(replica, number));
    }

    /// The prompt that was looked up.
    fn prompt(&self, request: &WorkloadRequest) -> Prompt {
        Prompt { num_tokens: request.num_prompt_tokens, hashes: self.prefixes.hashes.clone() }
    }

    fn least_requests(&self) -> usize {
        first_least(self.in_flight.iter().map(|count| f64::from(*count)))
    }

    fn of_two(&mut self) -> usize {
        let count = self.in_flight.len();
        let first = self.rng.random_range(0..count);
        let other = self.rng.random_range(0..count);
        if self.in_flight[other] < self.in_flight[first] { other } else { first }
    }

    fn of_session(&mut self, request: &WorkloadRequest) -> usize {
        let least = self.least_requests();
        match request.session {
            Some(session) => *self.sessions.entry(session).or_insert(least as u32) as usize,
            None => least,
        }
    }

    fn cache_aware(&self, request: &WorkloadRequest) -> usize {
        let most = self.in_flight.iter().copied().max().unwrap_or(0);
        let least = self.in_flight.iter().copied().min().unwrap_or(0);
        if most - least > UNEVEN_REQUESTS && f64::from(most) > UNEVEN_RATIO * f64::from(least) {
            return self.least_requests();
        }
        let known = |replica| f64::from(self.prefixes.known(replica));
        let best = first_least((0..self.in_flight.len()).map(|replica| -known(replica)));
        if known(best) > LEAST_MATCH * Prefixes::blocks_of(request) {
            return best;
        }
        first_least((0..self.in_flight.len()).map(|replica| self.prefixes.size(replica) as f64))
    }

    fn by_scores(&mut self, request: &WorkloadRequest) -> usize {
        let queues = self.gauges.iter().map(|of| of.waiting);
        let (most, least) = (queues.clone().max().unwrap_or(0), queues.min().unwrap_or(0));
        let blocks = Prefixes::blocks_of(request);
        let score = |(replica, of): (usize, &Gauges)| {
            let queue = if most == least { 1.0 } else { f64::from(most - of.waiting) / f64::from(most - least) };
            PREFIX_WEIGHT * f64::from(self.prefixes.known(replica)) / blocks
                + QUEUE_WEIGHT * queue
                + KV_WEIGHT * (1.0 - of.kv_use)
        };
        let costs: Vec<f64> = self.gauges.iter().enumerate().map(|of| -score(of)).collect();
        self.random_least(&costs)
    }

    fn fewest_blocks(&mut self, request: &WorkloadRequest) -> usize {
        let prompt = self.prompt(request);
        let cost = |replica| self.costs.cost(replica, &prompt, self.prefixes.known(replica));
        let costs: Vec<f64> = (0..self.in_flight.len()).map(cost).collect();
        self.random_least(&costs)
    }

    fn shortest_queues(&mut self) -> usize {
        let cost = |of: &Gauges| f64::from(WAITING_WEIGHT * of.waiting + of.running);
        let replica = first_least(self.gauges.iter().map(cost));
        // The client's guess until the next report.
        self.gauges[replica].waiting += 1;
        replica
    }

    /// # Source
    /// TensorRT-LLM 1.2 (`_torch/pyexecutor`), its balancing of attention ranks. There the ranks count the requests that they have in each
    /// iteration, and those that came since are spread together, the longest first.
    fn fewest_tokens(&self) -> usize {
        let (count, all) = (self.in_flight.len() as u32, self.in_flight.iter().sum::<u32>());
        let most = self.in_flight.iter().copied().max().unwrap_or(0);
        let target = (all + 1).div_ceil(count).max(most);
        let below = (0..self.in_flight.len()).filter(|at| self.in_flight[*at] < target);
        below.min_by_key(|at| (self.prompt_tokens[*at], self.in_flight[*at])).unwrap_or(0)
    }

    /// The least of costs, drawn among equals.
    fn random_least(&mut self, costs: &[f64]) -> usize {
        let least = costs.iter().copied().fold(f64::INFINITY, f64::min);
        let equals: Vec<usize> = (0..costs.len()).filter(|at| costs[*at] <= least).collect();
        if equals.len() < 2 {
            equals.first().copied().unwrap_or(0)
        } else {
            equals[self.rng.random_range(0..equals.len())]
        }
    }
}

/// The first of the least.
fn first_least(costs: impl Iterator<Item = f64>) -> usize {
    let mut best = (f64::INFINITY, 0);
    for (at, cost) in costs.enumerate() {
        if cost < best.0 {
            best = (cost, at);
        }
    }
    best.1
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;
    use crate::workload::Segment;

    /// Replicas that Dynamo's KV router chose, one after the other: each is one of the least cost here. `make.py` says what a row holds.
    #[test]
    fn the_costs_are_those_by_which_dynamo_chooses() {
        let packed: &[u8] = include_bytes!("../../tests/fixtures/dynamo_mocker/routers.jsonl.gz");
        let mut text = String::new();
        flate2::read::GzDecoder::new(packed).read_to_string(&mut text).expect("a gzip file");
        let (mut chosen, mut ties) = (0, 0);
        for line in text.lines() {
            let rows: Vec<(f64, u32, u64, usize, f64, f64)> = serde_json::from_str(line).expect("a case");
            let mut router = Router { kind: RouterKind::Dynamo, seed: 0 }.start(3);
            // Of every request: its arrival, its first token and its end, in the order of time.
            let mut events: Vec<(f64, u32, usize)> = Vec::new();
            for (at, (ms, .., first, last)) in rows.iter().enumerate() {
                events.extend([(*ms, 2, at), (*first, 0, at), (*last, 1, at)]);
            }
            events.sort_by(|a, b| a.partial_cmp(b).expect("numbers"));
            for (_, what, at) in events {
                let (_, num_prompt_tokens, id, replica, ..) = rows[at];
                let number = at as u32;
                if what < 2 {
                    let told = if what == 0 { Started::began } else { Started::ended };
                    told(&mut router, replica as u32, number);
                    continue;
                }
                let content = Some(vec![Segment { id, num_tokens: 64 }].into());
                let request = WorkloadRequest { content, ..WorkloadRequest::new(0, num_prompt_tokens, 1) };
                router.prefixes.look_up(&request);
                let prompt = router.prompt(&request);
                let costs = [0, 1, 2].map(|of| router.costs.cost(of, &prompt, router.prefixes.known(of)));
                let least = costs.into_iter().fold(f64::INFINITY, f64::min);
                assert!(costs[replica] <= least, "{costs:?}: {replica} of the {at}-th request in {line}");
                (chosen, ties) =
                    (chosen + 1, ties + usize::from(costs.iter().filter(|cost| **cost <= least).count() > 1));
                router.in_flight[replica] += 1;
                router.costs.send(replica, number, prompt, router.prefixes.known(replica));
            }
        }
        assert!(chosen == 800 && ties < 100, "{chosen} choices, {ties} ties");
    }
}

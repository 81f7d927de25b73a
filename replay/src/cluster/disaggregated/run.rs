//! The replay of two pools: requests, news of engines and ends of transfers in the order of time.
#![expect(clippy::indexing_slicing, reason = "replicas and requests are numbered within their lists")]
#![expect(clippy::cast_possible_truncation, reason = "there are fewer than 2^32 requests and replicas")]

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use ridgepoint::Result;

use super::super::router::Started;
use super::links::TransferLinks;
use super::travelling::{Due, Happening, Mailbox, Travelling};
use super::{Disaggregated, DisaggregatedReplay, KvTransferRecord};
use crate::clock::ns;
use crate::engine::{Engine, KvNews, KvSignal};
use crate::front_end::{announced, check};
use crate::observe::{Observer, Observers};
use crate::record::Replay;
use crate::scheduler::{KvRole, moves_by_chunks};
use crate::workload::{Workload, WorkloadRequest};

/// A replay of two pools in its middle. Engines that compute prompts come first.
pub(super) struct Flow<'a> {
    of: &'a Disaggregated<'a>,
    engines: Vec<Engine<'a, Mailbox>>,
    next_ns: Vec<Option<u64>>,
    routers: [Started; 2],
    due: BinaryHeap<Due>,
    links: TransferLinks,
    requests: Vec<Travelling>,
    transfers: Vec<KvTransferRecord>,
    /// The latest time at which anything happened. A step may have ended a little before it, while its engine's host was busy with the next.
    now_ns: u64,
    by_chunks: bool,
    /// Whether the decode replica computes the first token.
    samples_again: bool,
    block_size: u32,
}

impl<'a> Flow<'a> {
    pub(super) fn new(
        of: &'a Disaggregated<'a>,
        fast_forward: bool,
        observers: &'a mut [&mut dyn Observer],
    ) -> Result<Self> {
        let count = of.prefill.len() + of.decode.len();
        let config = of.prefill[0].1;
        let by_chunks = moves_by_chunks(&config.rules);
        let mut watching = Some(Observers::new(observers));
        let mut engines = Vec::with_capacity(count);
        for (at, (latency, config)) in of.prefill.iter().chain(&of.decode).enumerate() {
            let is_decode = at >= of.prefill.len();
            let watching = watching.take_if(|_| is_decode).unwrap_or_else(|| Observers::new(&mut []));
            let mailbox = Mailbox { is_decode, ..Mailbox::default() };
            let mut engine = Engine::new(fast_forward, *latency, config, mailbox, watching)?;
            engine.take_role(if is_decode { KvRole::Decode } else { KvRole::Prefill { waits_for_space: by_chunks } });
            engines.push(engine);
        }
        let rates = |rate: f64, replicas: usize| std::iter::repeat_n(rate, replicas);
        let transfer = of.transfer;
        let links = rates(transfer.prefill_bytes_per_s, of.prefill.len())
            .chain(rates(transfer.decode_bytes_per_s, of.decode.len()));
        Ok(Flow {
            of,
            engines,
            next_ns: vec![None; count],
            routers: [of.prefill_router.start(of.prefill.len()), of.decode_router.start(of.decode.len())],
            due: BinaryHeap::new(),
            links: TransferLinks::new(links),
            requests: Vec::new(),
            transfers: Vec::new(),
            now_ns: 0,
            by_chunks,
            samples_again: config.rules.is_vllm(),
            block_size: config.block_size,
        })
    }

    pub(super) fn run(mut self, workload: &mut dyn Workload) -> Result<DisaggregatedReplay> {
        loop {
            let engines = self.next_ns.iter().enumerate().filter_map(|(at, next_ns)| next_ns.map(|of| (of, at)));
            let first = engines.min();
            let arrival_ns = workload.next_arrival_ns();
            let due_ns = self.due.peek().map(|Reverse((due_ns, ..))| *due_ns);
            let moved_ns = self.links.next_end_ns();
            let times = [first.map(|(of, _)| of), arrival_ns, due_ns, moved_ns];
            let Some(now_ns) = times.into_iter().flatten().min() else { return self.finished() };
            self.now_ns = self.now_ns.max(now_ns);
            if self.poll(now_ns) {
            } else if due_ns == Some(now_ns)
                && let Some(Reverse((_, happening, number))) = self.due.pop()
            {
                self.happen(now_ns, happening, number, workload);
            } else if moved_ns == Some(now_ns)
                && let Some(number) = self.links.end(now_ns)
            {
                self.moved(number);
            } else if arrival_ns == Some(now_ns) {
                self.arrive(workload)?;
            } else if let Some((_, engine)) = first {
                self.go_on(engine)?;
            }
        }
    }

    /// Polls the replicas for one of the routers; false if neither is due.
    fn poll(&mut self, now_ns: u64) -> bool {
        for (router, first) in self.routers.iter_mut().zip([0, self.of.prefill.len()]) {
            if let Some(poll_ns) = router.next_poll_ns().filter(|poll_ns| *poll_ns <= now_ns) {
                router.poll(poll_ns, |replica| self.engines[first + replica].gauges(poll_ns));
                return true;
            }
        }
        false
    }

    fn go_on(&mut self, at: usize) -> Result<()> {
        let engine = &mut self.engines[at];
        engine.iterate()?;
        self.due.append(&mut engine.workload.told.drain(..).collect());
        for (now_ns, record, news) in engine.take_news() {
            let number = engine.workload.numbers[record as usize];
            let happening = match news {
                KvNews::Computed { num_tokens } => Happening::Computed { num_tokens },
                KvNews::GotBlocks { num_blocks } => Happening::GotBlocks { num_blocks },
            };
            self.due.push(Reverse((now_ns, happening, number)));
        }
        self.next_ns[at] = self.engines[at].next_ns();
        Ok(())
    }

    fn tell(&mut self, to: Option<(usize, u32)>, signal: KvSignal) {
        if let Some((at, record)) = to {
            self.engines[at].tell(self.now_ns, record, signal);
            self.next_ns[at] = self.engines[at].next_ns();
        }
    }

    /// Chooses a replica of a pool for a request. Returns its engine.
    fn choose(&mut self, is_decode: bool, number: u32) -> usize {
        let request = &self.requests[number as usize].request;
        let replica = self.routers[usize::from(is_decode)].choose(number, request) as usize;
        if is_decode { self.of.prefill.len() + replica } else { replica }
    }

    /// Sends a request to an engine. Returns where it is.
    fn send(&mut self, at: usize, request: WorkloadRequest, number: u32) -> Option<(usize, u32)> {
        let mailbox = &mut self.engines[at].workload;
        let record = mailbox.numbers.len() as u32;
        mailbox.numbers.push(number);
        mailbox.sent.push_back(request);
        self.next_ns[at] = self.engines[at].next_ns();
        Some((at, record))
    }

    /// Takes the workload's next request.
    fn arrive(&mut self, workload: &mut dyn Workload) -> Result<()> {
        let index = self.requests.len();
        let request = announced(workload, index)?;
        let last_ns = self.requests.last().map_or(0, |of| of.request.arrival_ns);
        check(&request, index, last_ns)?;
        let (number, now_ns) = (index as u32, request.arrival_ns);
        let prompt = WorkloadRequest { num_output_tokens: 1, ..request.clone() };
        let ends_at_once = !self.samples_again && request.num_output_tokens == 1;
        self.requests.push(Travelling {
            request,
            prefill: None,
            decode: None,
            num_blocks: 0,
            num_offered: 0,
            num_begun: 0,
            refused_ns: None,
            transfer: KvTransferRecord { request: number, ..KvTransferRecord::default() },
        });
        let prefill = self.choose(false, number);
        self.requests[index].transfer.prefill_replica = prefill as u32;
        if self.engines[prefill].refuses(&prompt) {
            self.routers[0].ended(prefill as u32, number);
            self.due.push(Reverse((now_ns, Happening::Refused, number)));
            return Ok(());
        }
        if self.by_chunks && !ends_at_once && !self.send_to_decode(number) {
            self.routers[0].ended(prefill as u32, number);
            return Ok(());
        }
        self.requests[index].prefill = self.send(prefill, prompt, number);
        if self.by_chunks && ends_at_once {
            self.tell(self.requests[index].prefill, KvSignal::HasSpace);
        }
        Ok(())
    }

    /// Sends a request to a decode replica, unless that could never hold it.
    fn send_to_decode(&mut self, number: u32) -> bool {
        let at = self.choose(true, number);
        let replica = (at - self.of.prefill.len()) as u32;
        let request = WorkloadRequest { arrival_ns: self.now_ns, ..self.requests[number as usize].request.clone() };
        if self.engines[at].refuses(&request) {
            self.routers[1].ended(replica, number);
            self.due.push(Reverse((self.now_ns, Happening::Refused, number)));
            return false;
        }
        let decode = self.send(at, request, number);
        let of = &mut self.requests[number as usize];
        (of.decode, of.transfer.decode_replica, of.transfer.sent_ns) = (decode, replica, self.now_ns);
        true
    }

    fn happen(&mut self, client_ns: u64, happening: Happening, number: u32, workload: &mut dyn Workload) {
        let of = &mut self.requests[number as usize];
        match happening {
            Happening::Began { is_decode } => {
                let replica = if is_decode { of.transfer.decode_replica } else { of.transfer.prefill_replica };
                self.routers[usize::from(is_decode)].began(replica, number);
                if is_decode {
                    workload.began(client_ns, number);
                }
            }
            Happening::Ended { is_decode: true } => {
                self.routers[1].ended(of.transfer.decode_replica, number);
                workload.finished(client_ns, of.request.stage, number);
            }
            Happening::Ended { is_decode: false } => {
                self.routers[0].ended(of.transfer.prefill_replica, number);
                let (prefill, stage) = (of.prefill, of.request.stage);
                if !self.samples_again && of.request.num_output_tokens == 1 {
                    workload.began(client_ns, number);
                    workload.finished(client_ns, stage, number);
                    self.tell(prefill, KvSignal::Moved);
                } else if !self.by_chunks && !self.send_to_decode(number) {
                    self.tell(prefill, KvSignal::Moved);
                }
            }
            Happening::Refused => {
                of.refused_ns = Some(client_ns);
                workload.finished(client_ns, of.request.stage, number);
            }
            Happening::Computed { num_tokens } => {
                if num_tokens >= of.request.num_prompt_tokens {
                    of.transfer.computed_ns = client_ns;
                }
                if self.by_chunks {
                    self.offer(number, num_tokens);
                }
            }
            Happening::GotBlocks { num_blocks } => {
                of.num_blocks = num_blocks;
                of.transfer.reserved_ns = self.now_ns;
                if self.by_chunks {
                    let prefill = of.prefill;
                    self.tell(prefill, KvSignal::HasSpace);
                } else {
                    let num_tokens = of.request.num_prompt_tokens;
                    self.offer(number, num_tokens);
                }
            }
            Happening::MayMove { num_blocks } => {
                let ends = [of.prefill, of.decode].map(|at| at.map_or(0, |(at, _)| at));
                of.num_begun += num_blocks;
                let bytes = self.bytes_of(num_blocks);
                self.links.begin(self.now_ns, number, (ends[0], ends[1]), bytes);
            }
        }
    }

    fn bytes_of(&self, num_blocks: u32) -> f64 {
        f64::from(num_blocks) * f64::from(self.block_size) * self.of.transfer.bytes_per_token
    }

    /// The blocks of so many tokens of a prompt may move: full ones, and with the whole prompt the last.
    fn offer(&mut self, number: u32, num_tokens: u32) {
        let of = &mut self.requests[number as usize];
        let is_whole = num_tokens >= of.request.num_prompt_tokens;
        let offered = if is_whole { of.num_blocks } else { (num_tokens / self.block_size).min(of.num_blocks) };
        let num_blocks = offered.saturating_sub(of.num_offered);
        if num_blocks == 0 {
            return;
        }
        let first_ns = self.now_ns.saturating_add(ns(self.of.transfer.latency_us));
        if of.num_offered == 0 {
            of.transfer.began_ns = first_ns;
        }
        of.num_offered = offered;
        self.due.push(Reverse((first_ns, Happening::MayMove { num_blocks }, number)));
    }

    /// The bytes of a request that were under way have moved.
    fn moved(&mut self, number: u32) {
        let of = &mut self.requests[number as usize];
        if of.num_begun < of.num_blocks {
            return;
        }
        let (prefill, decode, num_blocks) = (of.prefill, of.decode, of.num_blocks);
        (of.transfer.ended_ns, of.transfer.num_blocks) = (self.now_ns, num_blocks);
        self.requests[number as usize].transfer.bytes = self.bytes_of(num_blocks);
        self.transfers.push(self.requests[number as usize].transfer);
        self.tell(decode, KvSignal::Arrived);
        self.tell(prefill, KvSignal::Moved);
    }

    fn finished(self) -> Result<DisaggregatedReplay> {
        let Flow { of, engines, requests, mut transfers, .. } = self;
        let known = |at: Option<(usize, u32)>| at.and_then(|(at, record)| engines[at].record(record)).copied();
        for transfer in &mut transfers {
            transfer.joined_ns = known(requests[transfer.request as usize].decode).map_or(0, |of| of.scheduled_ns);
        }
        let record = |of: &Travelling| of.as_clients_see(known(of.prefill), known(of.decode));
        let records = requests.iter().map(record).collect();
        let prefill_of = requests.iter().map(|of| of.transfer.prefill_replica).collect();
        let (mut all, mut pools) = (Replay { records, ..Replay::default() }, [Vec::new(), Vec::new()]);
        for (at, engine) in engines.into_iter().enumerate() {
            let replay = engine.finished();
            all.add(&replay)?;
            pools[usize::from(at >= of.prefill.len())].push(replay.counters);
        }
        let [prefill, decode] = pools;
        Ok(DisaggregatedReplay { all, prefill, decode, prefill_of, transfers })
    }
}

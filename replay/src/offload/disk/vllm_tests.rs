//! The tiers of host and disk against vLLM's own manager: `tests/fixtures/vllm_tiering/` has random calls to it, what they returned, and
//! the script that wrote them. `RIDGEPOINT_TIERING_CALLS` names another file of the kind.

use std::io::{BufRead, BufReader, Read};

use flate2::read::GzDecoder;
use std::ops::Range;

use serde::Deserialize;
use serde_json::{Value, from_value, json};

use super::super::{KvOffload, Offload};
use super::tier::BlockLocation;
use super::{Job, KvDisk};
use crate::block_pool::BlockHash;
use crate::observe::KvEvent;
use crate::slot::Slot;

#[derive(Debug, Deserialize)]
struct Case {
    num_cpu_blocks: u32,
    calls: Vec<Vec<Value>>,
}

/// The tiers under vLLM's calls.
struct Tiers {
    offload: Offload,
    /// The chains of the requests.
    requests: Vec<Slot>,
    /// Jobs in the order of submission; `None` for those that have ended.
    jobs: Vec<Option<Job>>,
    /// Whether the step has asked for the jobs that ended.
    has_polled: bool,
}

impl Tiers {
    fn new(num_cpu_blocks: u32) -> Self {
        let disk = Some(KvDisk { block_bytes: 1, num_disk_blocks: None });
        let config = KvOffload { num_cpu_blocks, block_bytes: 1, offload_prompt_only: false, contention: 1.0, disk };
        let mut offload = Offload::new(&config, 1);
        offload.events = Some(Vec::new());
        Tiers { offload, requests: Vec::new(), jobs: Vec::new(), has_polled: false }
    }

    fn poll(&mut self) {
        if !self.has_polled {
            self.offload.end_jobs();
            self.has_polled = true;
        }
    }

    fn new_request(&mut self, request: u32, hashes: Vec<BlockHash>) {
        self.offload.add(request, request);
        let mut state = Slot { hashes, ..Slot::default() };
        state.rank.record = request;
        self.requests.push(state);
    }

    /// The number of blocks of a request's chain.
    fn know(&mut self, request: u32) -> u32 {
        let state = &self.requests[request as usize];
        let number = state.hashes.len() as u32;
        self.offload.host.know(request as usize, state, number);
        number
    }

    fn look_up(&mut self, request: u32, first: u32) -> Value {
        self.poll();
        let number = self.know(request);
        self.offload.host.touch(request as usize, number);
        let mut disk = self.offload.disk.take().unwrap();
        self.offload.host.walk(request as usize, first);
        let mut found = Vec::new();
        for position in first..number {
            found.push(match self.offload.look_up(&mut disk, request, position) {
                BlockLocation::Miss => 0,
                BlockLocation::Hit | BlockLocation::Loading => 1,
                BlockLocation::Reading | BlockLocation::Storing => 2,
                BlockLocation::Retry => 3,
            });
            if found.last() == Some(&0) {
                break;
            }
        }
        self.offload.enter(&mut disk, request);
        self.offload.disk = Some(disk);
        json!(found)
    }

    fn store(&mut self, request: u32, positions: Range<u32>) -> Value {
        self.poll();
        self.know(request);
        let (slot, end, mut stored) = (request as usize, positions.end, Vec::new());
        let number = self.offload.host.offer(slot, positions, &mut stored);
        self.offload.note_removed();
        let Ok(number) = number else { return Value::Null };
        if number > 0 {
            self.offload.host.touch(slot, end);
        }
        self.offload.requests[slot].storing.extend(&stored);
        json!(self.offload.host.hashes(&stored))
    }

    fn load(&mut self, request: u32, positions: Range<u32>) -> Value {
        let loading = &mut self.offload.requests[request as usize].loading;
        self.offload.host.begin_load(request as usize, positions, loading);
        json!(self.offload.disk.as_ref().unwrap().num_read(request, &self.offload.host.hashes(loading)))
    }

    /// Takes the jobs that were begun, as the link would.
    fn submit(&mut self, reads: bool) {
        let disk = self.offload.disk.as_mut().unwrap();
        let jobs = if reads { &mut disk.reads } else { &mut disk.writes };
        disk.num_reads += if reads { jobs.len() as u64 } else { 0 };
        self.jobs.extend(jobs.drain(..).map(Some));
    }

    fn step(&mut self) {
        self.poll();
        self.has_polled = false;
        self.submit(true);
        self.offload.disk.as_mut().unwrap().answer();
    }

    /// Makes a call, and returns its result and the events since the last one.
    fn call(&mut self, call: &[Value]) -> (Value, Value) {
        let number = |at: usize| from_value::<u32>(call[at].clone()).unwrap();
        let mut result = Value::Null;
        match call[0].as_str().unwrap() {
            "new" => self.new_request(number(1), from_value(call[2].clone()).unwrap()),
            "lookup" => result = self.look_up(number(1), number(2)),
            "store" => result = self.store(number(1), number(2)..number(3)),
            "stored" => {
                self.offload.complete_stores(number(1));
                self.submit(false);
            }
            "load" => result = self.load(number(1), number(2)..number(3)),
            "loaded" => self.offload.finish_load(number(1)),
            "job" => {
                let job = self.jobs[number(1) as usize].take().unwrap();
                self.offload.disk.as_mut().unwrap().end(job);
            }
            "finish" => self.offload.end_request(number(1)),
            "step" => self.step(),
            other => panic!("{other} is no call"),
        }
        let events = self.offload.events.as_mut().unwrap().drain(..);
        let event = |event| match event {
            KvEvent::Stored(blocks) => json!([0, blocks]),
            KvEvent::Removed(blocks) => json!([1, blocks]),
            KvEvent::Submitted(_) | KvEvent::Transfer(_) => Value::Null,
        };
        let events = events.map(event).collect();
        (result, events)
    }
}

#[test]
fn every_look_up_and_eviction_is_the_one_of_vllms_manager() {
    let committed = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/vllm_tiering/cases.jsonl.gz");
    let path = std::env::var("RIDGEPOINT_TIERING_CALLS").unwrap_or_else(|_| committed.to_owned());
    let (mut cases, mut calls, mut reads, mut pending) = (0, 0, 0, 0);
    let file = std::fs::File::open(&path).unwrap();
    let text: Box<dyn Read> = if path.ends_with(".gz") { Box::new(GzDecoder::new(file)) } else { Box::new(file) };
    for (number, line) in (1..).zip(BufReader::new(text).lines()) {
        let case: Case = serde_json::from_str(&line.unwrap()).unwrap();
        let mut tiers = Tiers::new(case.num_cpu_blocks);
        for (at, call) in case.calls.iter().enumerate() {
            let (of_vllm, arguments) = (&call[call.len() - 2..], &call[..call.len() - 2]);
            let (result, events) = tiers.call(arguments);
            assert_eq!((&result, &events), (&of_vllm[0], &of_vllm[1]), "line {number}, call {at}: {arguments:?}");
            pending += result.as_array().map_or(0, |found| found.iter().filter(|code| **code == 2).count());
        }
        cases += 1;
        calls += case.calls.len();
        let disk = tiers.offload.disk.unwrap();
        reads += disk.num_reads;
    }
    let told = format!("{cases} cases, {calls} calls, {pending} pending look-ups, {reads} reads");
    assert!(calls > 2000 && pending > 200 && reads > 100, "{path} exercises too little: {told}");
}

//! The tiers of host and disk against vLLM's own manager: `tests/fixtures/vllm_tiering/` has random calls to it, what they returned, and
//! the script that wrote them. `RIDGEPOINT_TIERING_CALLS` names another file of the kind.

use std::io::{BufRead, BufReader};

use serde::Deserialize;
use serde_json::{Value, from_value, json};

use super::super::{KvOffload, Offload};
use super::tier::Found;
use super::{Job, KvDisk};
use crate::replay::block_pool::BlockHash;

#[derive(Debug, Deserialize)]
struct Case {
    num_cpu_blocks: u32,
    calls: Vec<Vec<Value>>,
}

/// The tiers under vLLM's calls.
struct Tiers {
    offload: Offload,
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
        Tiers { offload, jobs: Vec::new(), has_polled: false }
    }

    fn poll(&mut self) {
        if !self.has_polled {
            self.offload.end_jobs();
            self.has_polled = true;
        }
    }

    fn look_up(&mut self, request: u32, keys: &[BlockHash]) -> Value {
        self.poll();
        self.offload.host.touch(keys);
        let mut disk = self.offload.disk.take().unwrap();
        disk.is_settled = false;
        let mut found = Vec::new();
        for key in keys {
            found.push(match self.offload.look_up(&mut disk, request, *key) {
                Found::Miss => 0,
                Found::Hit => 1,
                Found::Reading | Found::Storing => 2,
                Found::Retry => 3,
            });
            if found.last() == Some(&0) {
                break;
            }
        }
        self.offload.disk = Some(disk);
        json!(found)
    }

    fn store(&mut self, keys: &[BlockHash]) -> Value {
        self.poll();
        let (host, recency) = (&mut self.offload.host, &mut self.offload.recency);
        let Some(room) = host.make_room(keys, recency.round, |host| recency.enter(|hashes| host.touch(hashes))) else {
            return Value::Null;
        };
        if !room.removed.is_empty() {
            super::super::note(&mut self.offload.events, true, room.removed);
        }
        if !room.stored.is_empty() {
            self.offload.host.touch(keys);
        }
        json!(room.stored)
    }

    fn stored(&mut self, request: u32, keys: Vec<BlockHash>) {
        self.offload.requests[request as usize].storing = keys;
        self.offload.complete_stores(request);
        self.submit(false);
    }

    /// Takes the jobs that were begun, as the link would.
    fn submit(&mut self, reads: bool) {
        let disk = self.offload.disk.as_mut().unwrap();
        let jobs = if reads { &mut disk.reads } else { &mut disk.writes };
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
        let number = || from_value::<u32>(call[1].clone()).unwrap();
        let keys = || from_value::<Vec<BlockHash>>(call[2].clone()).unwrap();
        if matches!(call[0].as_str(), Some("lookup" | "store")) && self.offload.requests.len() <= number() as usize {
            self.offload.add(number(), number());
        }
        let mut result = Value::Null;
        match call[0].as_str().unwrap() {
            "lookup" => result = self.look_up(number(), &keys()),
            "store" => result = self.store(&keys()),
            "stored" => self.stored(number(), keys()),
            "load" => {
                self.offload.host.begin_load(&keys());
                result = json!(self.offload.disk.as_ref().unwrap().num_read(number(), &keys()));
            }
            "loaded" => self.offload.host.end_load(&keys()),
            "job" => {
                let job = self.jobs[number() as usize].take().unwrap();
                self.offload.disk.as_mut().unwrap().end(job);
            }
            "finish" => self.offload.end_at_disk(number()),
            "step" => self.step(),
            other => panic!("{other} is no call"),
        }
        let events = self.offload.events.as_mut().unwrap().drain(..);
        let events = events.map(|(is_removed, blocks)| json!([u8::from(is_removed), blocks])).collect();
        (result, events)
    }
}

#[test]
fn every_look_up_and_eviction_is_the_one_of_vllms_manager() {
    let committed = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/vllm_tiering/cases.jsonl");
    let path = std::env::var("RIDGEPOINT_TIERING_CALLS").unwrap_or_else(|_| committed.to_owned());
    let (mut cases, mut calls, mut reads, mut pending) = (0, 0, 0, 0);
    for (number, line) in (1..).zip(BufReader::new(std::fs::File::open(&path).unwrap()).lines()) {
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
        reads += tiers.jobs.iter().flatten().chain(&disk.ended).filter(|job| job.is_read).count();
    }
    println!("{cases} cases, {calls} calls, {pending} pending look-ups, {reads} reads open at their ends");
    assert!(calls > 2000 && pending > 200 && reads > 5, "{path} exercises too little");
}

//! The KV cache and the queue held against SGLang's own classes, op by op. `tests/fixtures/sglang_radix/make.py` says what the arrays hold.

use std::collections::HashMap;
use std::io::Read;

use ridgepoint::Deployment;
use serde_json::Value;

use super::*;
use crate::workload::Segment;
use crate::{EngineRules, SglangPolicy};

/// One op, in the place of a round.
struct Op<'a> {
    op: &'a [Value],
    rules: &'a mut Sglang,
    /// Pages that look-ups found, or records that were retracted or sorted.
    found: Vec<u32>,
}

fn number(of: &Value) -> u32 {
    of.as_u64().unwrap() as u32
}

/// Request `n` has record `n` and slot `n`.
impl Rules for Op<'_> {
    fn schedule(
        &mut self,
        of: &mut Scheduler<'_>,
        batch: &mut Batch,
        in_flight: &mut VecDeque<Box<Batch>>,
        found_cached: &mut dyn FnMut(u32, u32),
    ) {
        match self.op[0].as_str().unwrap() {
            "a" => self.take(of, batch, found_cached),
            "d" => {
                self.rules.add_decodes(of, batch, in_flight);
                self.found.clone_from(&batch.preempted);
            }
            "q" => {
                let policy: SglangPolicy = serde_json::from_value(self.op[1].clone()).unwrap();
                policy::calc_priority(of, policy);
                self.found.extend(of.waiting.entries().iter().map(|(rank, _)| rank.record));
            }
            _ => {}
        }
    }

    fn reserve(&mut self, _: &mut Scheduler<'_>, _: u32) -> Option<u32> {
        None
    }
}

impl Op<'_> {
    fn take(&mut self, of: &mut Scheduler<'_>, batch: &mut Batch, found_cached: &mut dyn FnMut(u32, u32)) {
        let (mut added, mut reserved) = (Vec::new(), 0);
        for pair in self.op[1..].chunks(2) {
            let (slot, tokens) = (number(&pair[0]), number(&pair[1]));
            if of.chunked == Some(slot) {
                let state = &mut of.slots[slot as usize];
                of.cache.computed_chunk(state, state.computed);
                reserved += of.blocks_to_go_on(slot, tokens);
            } else {
                let prefix = of.prefix_of(slot).unwrap();
                self.found.push(prefix.held_blocks);
                if tokens == 0 {
                    continue;
                }
                let blocks = of.blocks_to_begin(slot, &prefix, tokens);
                assert!(blocks + reserved <= of.cache.pool.num_free, "SGLang has room");
                reserved += blocks - prefix.free_hits;
                of.waiting.remove(slot);
                of.begin(slot, prefix.cached, batch, found_cached);
            }
            if tokens > 0 {
                added.push((slot, tokens));
                let state = &of.slots[slot as usize];
                let is_cut = state.computed + tokens < state.num_tokens();
                of.chunked = if is_cut { Some(slot) } else { of.chunked.filter(|chunked| *chunked != slot) };
                of.running.extend((!is_cut).then_some(slot));
            }
        }
        of.put_prompts(&added, batch);
    }
}

/// The serial numbers of the pages that a tree evicted, as it took them.
#[derive(Default)]
struct Pages {
    next: u32,
    numbers: HashMap<u32, u32>,
}

impl Pages {
    fn evicted(&mut self, journal: Vec<(bool, u32)>) -> Vec<u32> {
        let mut evicted = Vec::new();
        for (is_taken, block) in journal {
            if is_taken {
                self.numbers.insert(block, self.next);
                self.next += 1;
            } else {
                evicted.push(self.numbers[&block]);
            }
        }
        evicted
    }
}

fn requests(case: &Value) -> Vec<WorkloadRequest> {
    type Row = (u32, u32, Vec<(u64, u32)>);
    let rows: Vec<Row> = serde_json::from_value(case["requests"].clone()).unwrap();
    let content =
        |texts: Vec<(u64, u32)>| texts.iter().map(|&(id, num_tokens)| Segment { id, num_tokens }).collect::<Vec<_>>();
    rows.into_iter()
        .map(|(prompt, output, texts)| WorkloadRequest {
            content: Some(content(texts).into()),
            ..WorkloadRequest::new(0, prompt, output)
        })
        .collect()
}

/// Compares a case. Returns the numbers of its ops, of positions in sorted queues, and of evicted pages.
fn compare(case: &Value) -> [usize; 3] {
    let deployment = Deployment { block_size: number(&case["page"]), max_num_seqs: 1000, ..Deployment::default() };
    let mut config = EngineConfig::new(&deployment, 1 << 20, number(&case["pages"]) + 1);
    config.rules = EngineRules::Sglang(SglangOptions::default());
    let mut of = Scheduler::new(&config, false);
    for (record, request) in (0..).zip(&requests(case)) {
        of.add(record, request);
    }
    let (mut rules, mut pages) = (Sglang::new(SglangOptions::default()), Pages::default());
    // Tokens of decodes that began before their prompt was processed.
    let mut early: HashMap<u32, u32> = HashMap::new();
    let mut counts = [0; 3];
    let mut sizes = [i64::from(number(&case["pages"])), 0, 0];
    for (at, step) in case["steps"].as_array().unwrap().iter().enumerate() {
        let op = step[0].as_array().unwrap();
        let mut scripted = Op { op, rules: &mut rules, found: Vec::new() };
        let mut batch = Batch::default();
        of.schedule(&mut scripted, &mut batch, &mut VecDeque::new(), |_, _| {});
        let ours = scripted.found;
        match op[0].as_str().unwrap() {
            "e" => {
                let slot = number(&op[1]);
                for _ in 0..1 + early.remove(&slot).unwrap_or(0) {
                    of.deliver(slot, 1, 0);
                }
                early.insert(slot, u32::MAX);
            }
            "d" => {
                for slot in &batch.slots {
                    match early.entry(*slot).or_insert(0) {
                        &mut u32::MAX => _ = of.deliver(*slot, 1, 0),
                        waiting => *waiting += 1,
                    }
                }
            }
            "f" => {
                of.finish(number(&op[1]));
                of.drop_finished();
            }
            "a" => early.retain(|slot, _| !batch.slots.contains(slot)),
            _ => {}
        }
        let theirs: Vec<u32> = serde_json::from_value(step[1].clone()).unwrap();
        let place = || format!("op {at}, {op:?}, of {case}");
        assert_eq!(ours, theirs, "{}", place());
        for (size, change) in sizes.iter_mut().zip(step[2].as_array().unwrap()) {
            *size += change.as_i64().unwrap();
        }
        let tree = &of.cache.radix.as_ref().unwrap().tree;
        let (evictable, protected) = (i64::from(tree.num_evictable), i64::from(tree.num_protected));
        assert_eq!([i64::from(of.cache.pool.num_free) - evictable, evictable, protected], sizes, "{}", place());
        let leaves: Vec<[u32; 2]> = serde_json::from_value(step[3].clone()).unwrap();
        let theirs: Vec<u32> = leaves.iter().flat_map(|[first, number]| *first..first + number).collect();
        assert_eq!(pages.evicted(std::mem::take(&mut of.cache.pool.journal)), theirs, "{}", place());
        counts[0] += 1;
        counts[1] += if op[0] == "q" { ours.len() } else { 0 };
        counts[2] += theirs.len();
    }
    counts
}

/// `SGLANG_RADIX_CASES` names a file of more cases than the repository has.
#[test]
#[expect(clippy::print_stdout, reason = "the run of more cases shows how much was compared")]
fn the_cache_and_the_queue_are_those_of_sglangs_own_classes() {
    let text = std::env::var("SGLANG_RADIX_CASES").map_or_else(
        |_| {
            let packed: &[u8] = include_bytes!("../../../tests/fixtures/sglang_radix/cases.jsonl.gz");
            let mut text = String::new();
            flate2::read::GzDecoder::new(packed).read_to_string(&mut text).unwrap();
            text
        },
        |path| std::fs::read_to_string(path).unwrap(),
    );
    let mut total = [0; 3];
    for line in text.lines() {
        let counts = compare(&serde_json::from_str(line).unwrap());
        (0..3).for_each(|of| total[of] += counts[of]);
    }
    let [ops, places, evicted] = total;
    println!("{ops} ops, {places} places in sorted queues and {evicted} evicted pages are SGLang's");
    assert!(ops >= 10_000 && places >= 7_000 && evicted >= 3_000, "{total:?}");
}

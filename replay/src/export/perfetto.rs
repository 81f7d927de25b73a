//! A trace of steps and requests in Chrome's trace-event JSON, which ui.perfetto.dev and chrome://tracing open.
//!
//! # Source
//! "Trace Event Format", the Chromium project: phases `X` complete, `C` counter, `b` and `e` nestable asynchronous, `M` metadata;
//! `ts` and `dur` are µs.
#![expect(
    clippy::indexing_slicing,
    reason = "a key that is set in a JSON object that was made here; a track for each direction of copies"
)]

use std::collections::HashMap;
use std::io::{self, BufWriter, Write};

use ridgepoint::latency::TransferDirection;
use ridgepoint::units::{ns_to_ms, ns_to_us};
use serde_json::{Value, json};

use super::{over_ns, reached};
use crate::kv_metrics::{Hits, KvMetrics};
use crate::{Event, Events, KvEvent, Observer, Outcome, RequestRecord, StepEvent, TransferEvent};

/// Writes a trace while a replay runs, in constant memory: the steps with their tokens, counters of the queues, KV blocks
/// and cached tokens, and the copies of the tiers of host and disk. [`finish`](Self::finish) adds the requests with their phases queued, prefill and decode, and completes the
/// JSON. Times are µs from the start of the workload.
///
/// Overlapping steps of a pipeline are on separate tracks. An error of the writer stops the trace and is returned by
/// `finish`.
#[derive(Debug)]
pub struct PerfettoTrace<W: Write> {
    out: BufWriter<W>,
    written: io::Result<()>,
    steps: u64,
    /// Time at which each track of steps is free again, ns.
    tracks: Vec<u64>,
    last_end_ns: u64,
    /// Time at which the last copy of each track ended, ns; `None` before the first.
    copied_ns: [Option<u64>; 4],
    /// The last values of the counters.
    counters: HashMap<&'static str, Value>,
}

const ENGINE: u32 = 1;
const REQUESTS: u32 = 2;
const COPIES: u32 = 3;
const METRICS: u32 = 4;
/// The track of the engine's counters.
const COUNTERS: u32 = 0;

impl<W: Write> PerfettoTrace<W> {
    /// Starts a trace in `out`, which is buffered.
    pub fn new(out: W) -> Self {
        let mut trace = PerfettoTrace {
            out: BufWriter::new(out),
            written: Ok(()),
            steps: 0,
            tracks: Vec::new(),
            last_end_ns: 0,
            copied_ns: [None; 4],
            counters: HashMap::new(),
        };
        let engine = name("process_name", ENGINE, 0, "engine");
        trace.write(&format!("{{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n{engine}"));
        trace.event(&name("process_name", REQUESTS, 0, "requests"));
        trace
    }

    /// Writes the requests, the KV metrics if there are any, and the end of the file.
    ///
    /// # Errors
    /// The first error of the writer.
    pub fn finish(mut self, records: &[RequestRecord], metrics: Option<&KvMetrics>) -> io::Result<()> {
        let known_ns = records.iter().flat_map(|record| [record.scheduled_ns, record.first_token_ns, record.finish_ns]);
        let end_ns = known_ns.fold(self.last_end_ns, u64::max);
        for (index, record) in records.iter().enumerate() {
            self.request(index, record, end_ns);
        }
        self.hits_by_tier(records);
        if let Some(metrics) = metrics {
            self.kv_metrics(metrics, end_ns);
        }
        let counts = json!({"steps": self.steps, "requests": records.len()});
        self.write(&format!("\n],\"otherData\":{counts}}}\n"));
        self.written?;
        self.out.flush()
    }

    fn write(&mut self, text: &str) {
        if self.written.is_ok() {
            self.written = self.out.write_all(text.as_bytes());
        }
    }

    fn event(&mut self, event: &Value) {
        self.write(&format!(",\n{event}"));
    }

    /// The first track that is free at `start_ns`, from 1.
    fn track(&mut self, start_ns: u64, end_ns: u64) -> usize {
        let free = self.tracks.iter().position(|free_ns| *free_ns <= start_ns);
        let index = free.unwrap_or(self.tracks.len());
        let track = index + 1;
        match self.tracks.get_mut(index) {
            Some(free_ns) => *free_ns = end_ns,
            None => {
                self.tracks.push(end_ns);
                let label =
                    if track == 1 { "engine steps".to_owned() } else { format!("engine steps in flight, {track}") };
                self.event(&name("thread_name", ENGINE, track, &label));
            }
        }
        track
    }

    fn counter(&mut self, name: &'static str, ns: u64, values: Value) {
        if self.counters.get(name) == Some(&values) {
            return;
        }
        let ts = ns_to_us(ns);
        self.event(&json!({"name": name, "ph": "C", "ts": ts, "pid": ENGINE, "tid": COUNTERS, "args": values}));
        self.counters.insert(name, values);
    }

    /// Counts the tokens that requests found by the tier that held them, where some came from the host.
    fn hits_by_tier(&mut self, records: &[RequestRecord]) {
        if records.iter().all(|record| record.num_loaded_tokens == 0) {
            return;
        }
        let mut found: Vec<&RequestRecord> = records.iter().filter(|record| record.num_cached_tokens > 0).collect();
        found.sort_by_key(|record| record.scheduled_ns);
        let mut hits = Hits::default();
        for record in found {
            hits.add(record);
            let tokens =
                json!({"gpu": hits.gpu_hit_tokens, "host": hits.host_hit_tokens, "disk": hits.disk_hit_tokens});
            self.counter("hit tokens by tier", record.scheduled_ns, tokens);
        }
    }

    /// Writes KV metrics as moments at the end, whose arguments are the figures.
    fn kv_metrics(&mut self, metrics: &KvMetrics, end_ns: u64) {
        self.event(&name("process_name", METRICS, 0, "KV metrics"));
        let mut moment = |name: String, args: Value| {
            let ts = ns_to_us(end_ns);
            self.event(&json!({"name": name, "ph": "i", "s": "p", "ts": ts, "pid": METRICS, "tid": 1, "args": args}));
        };
        moment("lives of KV blocks".to_owned(), json!(metrics.blocks));
        moment("hits".to_owned(), json!(metrics.hits));
        for group in &metrics.prefix_groups {
            let prefix = group.prefix.as_ref().map_or_else(|| "without a prefix".to_owned(), |id| format!("of {id}"));
            moment(format!("hits {prefix}"), json!(group));
        }
        if metrics.num_other_groups > 0 {
            moment(format!("hits of {} other prefixes", metrics.num_other_groups), json!(metrics.other_groups));
        }
        moment("hashing and look-ups".to_owned(), json!(metrics.host));
        moment("balance of prefix caching".to_owned(), json!(metrics.balance));
    }

    /// Writes a copy between tiers. A copy begins when the one before it in its direction has ended, so that each direction is a track.
    fn copy(&mut self, copy: &TransferEvent) {
        let is_first = self.copied_ns == [None; 4];
        let (track, name_of_copy, label) = match copy.direction {
            TransferDirection::CpuToGpu => (1, "load", "loads from the host"),
            TransferDirection::GpuToCpu => (2, "store", "stores to the host"),
            TransferDirection::DiskToCpu => (3, "read", "reads from the disk"),
            TransferDirection::CpuToDisk => (4, "write", "writes to the disk"),
        };
        let before_ns = self.copied_ns[track - 1].replace(copy.end_ns);
        if is_first {
            self.event(&name("process_name", COPIES, 0, "KV copies"));
        }
        if before_ns.is_none() {
            self.event(&name("thread_name", COPIES, track, label));
        }
        let start_ns = copy.ready_ns.max(before_ns.unwrap_or(0));
        self.event(&json!({
            "name": name_of_copy,
            "ph": "X",
            "ts": ns_to_us(start_ns),
            "dur": ns_to_us(copy.end_ns.saturating_sub(start_ns)),
            "pid": COPIES,
            "tid": track,
            "args": {
                "copy": copy.index,
                "request": copy.record,
                "blocks": copy.num_blocks,
                "waited_us": ns_to_us(start_ns.saturating_sub(copy.ready_ns)),
            },
        }));
    }

    /// Writes a request as asynchronous events, which viewers pack onto as few rows as needed.
    fn request(&mut self, index: usize, record: &RequestRecord, end_ns: u64) {
        let over_ns = over_ns(record).unwrap_or(end_ns).max(record.arrival_ns);
        let event = |name: &str, phase: &str, ns: u64| {
            let ts = ns_to_us(ns);
            json!({"name": name, "cat": "request", "ph": phase, "id": index, "ts": ts, "pid": REQUESTS, "tid": 1})
        };
        let mut begin = event("request", "b", record.arrival_ns);
        begin["args"] = json!({
            "request": index,
            "stage": record.stage,
            "outcome": record.outcome,
            "prompt_tokens": record.num_prompt_tokens,
            "output_tokens": record.num_output_tokens,
            "cached_tokens": record.num_cached_tokens,
            "preemptions": record.num_preemptions,
        });
        if record.num_loaded_tokens > 0 {
            begin["args"]["loaded_tokens"] = record.num_loaded_tokens.into();
            begin["args"]["disk_tokens"] = record.num_disk_tokens.into();
            begin["args"]["kv_load_ms"] = ns_to_ms(record.load_ns).into();
        }
        if record.outcome == Outcome::Finished {
            begin["args"]["ttft_ms"] = record.ttft_ms().into();
            begin["args"]["e2e_ms"] = record.e2e_ms().into();
        }
        self.event(&begin);
        if record.outcome != Outcome::Rejected {
            let [scheduled, first] = [record.scheduled_ns, record.first_token_ns].map(|ns| reached(record, ns));
            let ends = [Some(record.arrival_ns), scheduled, first, Some(over_ns)];
            let mut from = record.arrival_ns;
            for (phase, pair) in ["queued", "prefill", "decode"].into_iter().zip(ends.windows(2)) {
                let [Some(_), to] = pair else { break };
                let to = to.unwrap_or(over_ns).max(from);
                if to > from {
                    self.event(&event(phase, "b", from));
                    self.event(&event(phase, "e", to));
                }
                from = to;
            }
        }
        self.event(&event("request", "e", over_ns));
    }
}

/// An event that names a process or a thread.
fn name(of: &str, pid: u32, tid: usize, name: &str) -> Value {
    json!({"name": of, "ph": "M", "pid": pid, "tid": tid, "args": {"name": name}})
}

impl<W: Write> PerfettoTrace<W> {
    fn step(&mut self, step: &StepEvent<'_>) {
        let requests = step.step.requests;
        self.steps += 1;
        self.last_end_ns = self.last_end_ns.max(step.end_ns);
        let tokens: u64 = requests.iter().map(|request| u64::from(request.num_scheduled_tokens)).sum();
        let decodes = requests.iter().filter(|request| request.is_decode()).count() as u64;
        let prefills = requests.len() as u64 - decodes;
        let track = self.track(step.start_ns, step.end_ns);
        self.event(&json!({
            "name": if decodes == 0 { "prefill" } else if prefills == 0 { "decode" } else { "mixed" },
            "ph": "X",
            "ts": ns_to_us(step.start_ns),
            "dur": ns_to_us(step.end_ns.saturating_sub(step.start_ns)),
            "pid": ENGINE,
            "tid": track,
            "args": {
                "step": step.index,
                "tokens": tokens,
                "decodes": decodes,
                "prefills": prefills,
                "prefill_tokens": tokens - decodes,
                "running": step.num_running,
                "waiting": step.num_waiting,
                "blocks_in_use": step.blocks_in_use,
                "preempted": step.preempted.len(),
                "ahead_us": ns_to_us(step.start_ns.saturating_sub(step.scheduled_ns)),
            },
        }));
        let queues = json!({"running": step.num_running, "waiting": step.num_waiting});
        self.counter("queues", step.scheduled_ns, queues);
        self.counter("KV blocks", step.scheduled_ns, json!({"in_use": step.blocks_in_use}));
        if step.cached_tokens > 0 {
            self.counter("cached tokens found", step.scheduled_ns, json!({"tokens": step.cached_tokens}));
        }
    }
}

impl<W: Write> Observer for PerfettoTrace<W> {
    fn wants(&self) -> Events {
        Events::STEPS | Events::KV
    }

    fn on(&mut self, event: &Event<'_>) {
        match event {
            Event::Step(step) => self.step(step),
            Event::Kv(KvEvent::Transfer(copy)) => self.copy(copy),
            _ => {}
        }
    }
}

#[cfg(test)]
#[path = "perfetto_tests.rs"]
mod tests;

//! A trace of steps and requests in Chrome's trace-event JSON, which ui.perfetto.dev and chrome://tracing open.

use std::io::{self, BufWriter, Write};

use serde::Serialize;

use super::trace_event::{Blocks, Event, Queues, RequestArgs, StepArgs, process_name, thread_name};
use super::{Reached, outcome_name};
use crate::replay::{Observer, Outcome, RequestRecord, StepEvent};

/// Limits of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TraceOptions {
    /// Maximum number of steps. Requests sent after the last of them are left out. `None` keeps all.
    pub max_steps: Option<u64>,
}

/// Counts of a trace's contents.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct TraceSummary {
    /// Steps written.
    pub steps: u64,
    /// Steps left out because of [`TraceOptions::max_steps`].
    pub steps_left_out: u64,
    /// Requests written.
    pub requests: u64,
    /// Requests left out because they were sent after the last step written.
    pub requests_left_out: u64,
    /// Returns a sentence for each limit that left something out.
    pub notes: Vec<String>,
}

/// Writes a trace while a replay runs, in constant memory: the steps with their tokens, and counters of the queues and KV
/// blocks. [`finish`](Self::finish) adds the requests with their phases queued, prefill and decode, and completes the
/// JSON. Times are µs from the start of the workload.
///
/// Overlapping steps of a pipeline are on separate tracks. An error of the writer stops the trace and is returned by
/// `finish`.
#[derive(Debug)]
pub struct PerfettoTrace<W: Write> {
    out: BufWriter<W>,
    error: Option<io::Error>,
    options: TraceOptions,
    summary: TraceSummary,
    any: bool,
    /// Time at which each track of steps is free again, ns.
    tracks: Vec<u64>,
    last_end_ns: u64,
    queues: Option<Queues>,
    blocks: Option<Blocks>,
}

const ENGINE: u32 = 1;
const REQUESTS: u32 = 2;
/// The track of the engine's counters.
const COUNTERS: u32 = 0;

impl<W: Write> PerfettoTrace<W> {
    /// Starts a trace in `out`, which is buffered.
    pub fn new(out: W, options: TraceOptions) -> Self {
        let mut trace = PerfettoTrace {
            out: BufWriter::new(out),
            error: None,
            options,
            summary: TraceSummary::default(),
            any: false,
            tracks: Vec::new(),
            last_end_ns: 0,
            queues: None,
            blocks: None,
        };
        trace.attempt(|out| out.write_all(b"{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n"));
        trace.event(&process_name(ENGINE, "engine"));
        trace.event(&process_name(REQUESTS, "requests"));
        trace
    }

    /// Writes the requests and the end of the file. Returns counts of its contents.
    ///
    /// # Errors
    /// The first error of the writer.
    pub fn finish(mut self, records: &[RequestRecord]) -> io::Result<TraceSummary> {
        let is_cut = self.summary.steps_left_out > 0;
        let known_ns = records.iter().flat_map(|record| [record.scheduled_ns, record.first_token_ns, record.finish_ns]);
        let end_ns = if is_cut { self.last_end_ns } else { known_ns.fold(self.last_end_ns, u64::max) };
        for (index, record) in records.iter().enumerate() {
            if is_cut && record.arrival_ns > self.last_end_ns {
                self.summary.requests_left_out += 1;
            } else {
                self.summary.requests += 1;
                self.request(index, record, end_ns);
            }
        }
        if is_cut {
            let TraceSummary { steps, steps_left_out, requests_left_out, .. } = self.summary;
            self.summary.notes.push(format!(
                "steps after the first {steps} are left out (max_steps): {steps_left_out} of them, and {requests_left_out} requests sent after those"
            ));
        }
        let summary = std::mem::take(&mut self.summary);
        self.attempt(|out| {
            out.write_all(b"\n],\"otherData\":")?;
            serde_json::to_writer(&mut *out, &summary)?;
            out.write_all(b"}\n")?;
            out.flush()
        });
        self.error.map_or(Ok(summary), Err)
    }

    fn attempt(&mut self, write: impl FnOnce(&mut BufWriter<W>) -> io::Result<()>) {
        if self.error.is_none() {
            self.error = write(&mut self.out).err();
        }
    }

    fn event(&mut self, event: &impl Serialize) {
        let separator: &[u8] = if std::mem::replace(&mut self.any, true) { b",\n" } else { b"" };
        self.attempt(|out| {
            out.write_all(separator)?;
            Ok(serde_json::to_writer(out, event)?)
        });
    }

    /// The first track that is free at `start_ns`, from 1.
    fn track(&mut self, start_ns: u64, end_ns: u64) -> u32 {
        let free = self.tracks.iter().position(|free_ns| *free_ns <= start_ns);
        let index = free.unwrap_or(self.tracks.len());
        let track = u32::try_from(index + 1).unwrap_or(u32::MAX);
        match self.tracks.get_mut(index) {
            Some(free_ns) => *free_ns = end_ns,
            None => {
                self.tracks.push(end_ns);
                let name =
                    if track == 1 { "engine steps".to_owned() } else { format!("engine steps in flight, {track}") };
                self.event(&thread_name(ENGINE, track, name));
            }
        }
        track
    }

    /// Writes a request as asynchronous events, which viewers pack onto as few rows as needed.
    fn request(&mut self, index: usize, record: &RequestRecord, end_ns: u64) {
        let reached = Reached::of(record);
        let over_ns = reached.over_ns.unwrap_or(end_ns).max(record.arrival_ns);
        let has_latency = record.outcome == Outcome::Finished;
        let args = RequestArgs {
            request: index,
            stage: record.stage,
            outcome: outcome_name(record.outcome),
            prompt_tokens: record.num_prompt_tokens,
            output_tokens: record.num_output_tokens,
            cached_tokens: record.num_cached_tokens,
            preemptions: record.num_preemptions,
            ttft_ms: has_latency.then(|| record.ttft_ms()),
            e2e_ms: has_latency.then(|| record.e2e_ms()),
        };
        let spot = |name, phase, ns| Event::new(name, phase, ns, REQUESTS, 1).identified("request", index);
        self.event(&spot("request", "b", record.arrival_ns).with(args));
        if record.outcome != Outcome::Rejected {
            let ends = [Some(record.arrival_ns), reached.scheduled_ns, reached.first_token_ns, Some(over_ns)];
            let mut from = record.arrival_ns;
            for (phase, pair) in ["queued", "prefill", "decode"].into_iter().zip(ends.windows(2)) {
                let [Some(_), to] = pair else { break };
                let to = to.unwrap_or(over_ns).max(from);
                if to > from {
                    self.event(&spot(phase, "b", from));
                    self.event(&spot(phase, "e", to));
                }
                from = to;
            }
        }
        self.event(&spot("request", "e", over_ns));
    }
}

impl<W: Write> Observer for PerfettoTrace<W> {
    fn step(&mut self, step: &StepEvent<'_>) {
        if self.options.max_steps.is_some_and(|most| self.summary.steps >= most) {
            self.summary.steps_left_out += 1;
            return;
        }
        self.summary.steps += 1;
        self.last_end_ns = self.last_end_ns.max(step.end_ns);
        let args = StepArgs::of(step);
        let name = match (args.decodes, args.prefills) {
            (0, _) => "prefill",
            (_, 0) => "decode",
            _ => "mixed",
        };
        let track = self.track(step.start_ns, step.end_ns);
        self.event(
            &Event::new(name, "X", step.start_ns, ENGINE, track).lasting_to(step.start_ns, step.end_ns).with(args),
        );
        let queues = Queues { running: step.num_running, waiting: step.num_waiting };
        if self.queues.replace(queues) != Some(queues) {
            self.event(&Event::new("queues", "C", step.scheduled_ns, ENGINE, COUNTERS).with(queues));
        }
        let blocks = Blocks { in_use: step.blocks_in_use };
        if self.blocks.replace(blocks) != Some(blocks) {
            self.event(&Event::new("KV blocks", "C", step.scheduled_ns, ENGINE, COUNTERS).with(blocks));
        }
    }
}

#[cfg(test)]
#[path = "perfetto_tests.rs"]
mod tests;

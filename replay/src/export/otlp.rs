//! OpenTelemetry spans as the collector's file exporter writes them: the steps and the journey of each request, under the names of
//! the instrumented vLLM that the tracing papers describe. Prompts come without contents.
#![expect(clippy::indexing_slicing, reason = "steps are numbered as they come")]

use std::collections::HashSet;
use std::io::{self, BufWriter, Write};

use ridgepoint::latency::TransferDirection;
use ridgepoint::units::ns_to_us;
use serde_json::{Value, json};

use super::super::grown::grown;
use super::{over_ns, reached};
use crate::{EngineConfig, Event, Events, KvEvent, Observer, Outcome, RequestRecord, StepEvent, TransferEvent};

/// Number of the first step. Readers of traces leave out the first hundred steps, in which a real engine warms up.
const FIRST_STEP: usize = 100;
/// Time of day of the start, ns: 2025-01-01. Equal replays give equal bytes.
const START_UNIX_NS: u64 = 1_735_689_600_000_000_000;
/// Steps of a line of the file.
const STEPS_PER_LINE: usize = 200;

/// A step, as far as its summary reports it.
#[derive(Debug)]
struct StepSpan {
    start_ns: u64,
    end_ns: u64,
    num_running: u32,
    num_waiting: u32,
    num_prefills: usize,
    num_decodes: usize,
    prefill_tokens: u64,
    num_finished: usize,
    num_preempted: usize,
    blocks_in_use: u32,
}

/// Details of a request that the records of a replay do not have.
#[derive(Debug, Clone, Default)]
struct SpanDetails {
    /// The steps of its first and its last token.
    steps: Option<(usize, usize)>,
    /// Its preemptions and resumptions: whether it resumed, the time, and the step.
    pauses: Vec<(bool, u64, usize)>,
}

/// The beginning or the end of a copy of KV blocks: its time, ns, and whether it is the end.
type Moment<'a> = (u64, bool, &'a TransferEvent);

/// An observer that keeps the steps, some 80 bytes each, and where the requests were in them.
#[derive(Debug, Default)]
pub struct OtlpTrace {
    steps: Vec<StepSpan>,
    journeys: Vec<SpanDetails>,
    paused: HashSet<u32>,
    /// Copies of KV blocks between GPU, host and disk, some 40 bytes each.
    transfers: Vec<TransferEvent>,
}

impl OtlpTrace {
    /// Writes the trace, some steps or one request per line.
    ///
    /// # Errors
    /// Errors of `out`.
    pub fn write(
        mut self,
        out: impl Write,
        model: &str,
        config: &EngineConfig,
        records: &[RequestRecord],
    ) -> io::Result<()> {
        let mut out = BufWriter::new(out);
        self.journeys.resize(records.len(), SpanDetails::default());
        for (journey, _) in self.journeys.iter().zip(records).filter(|(_, of)| of.outcome == Outcome::Finished) {
            if let Some((_, last)) = journey.steps {
                self.steps[last].num_finished += 1;
            }
        }
        let mut moments = self.transfer_moments().into_iter().peekable();
        for (line, steps) in self.steps.chunks(STEPS_PER_LINE).enumerate() {
            let mut events = Vec::new();
            for (at, step) in (line * STEPS_PER_LINE..).zip(steps) {
                events.push(step.summary(at, config));
                // A copy begins and ends in the last step that the host began to schedule before.
                let next = self.steps.get(at + 1);
                while let Some(moment) = moments.next_if(|(ns, ..)| next.is_none_or(|next| *ns < next.start_ns)) {
                    events.extend(transfer_events(config, at, moment));
                }
            }
            let span = json!({ "name": "scheduler_steps", "spanId": id(line, 3), "events": events });
            write_line(&mut out, model, "vllm.scheduler.step", &[span])?;
        }
        for (at, (record, journey)) in records.iter().zip(&self.journeys).enumerate() {
            write_line(&mut out, model, "vllm.api", &[server_span(at, record)])?;
            if record.outcome != Outcome::Rejected {
                write_line(&mut out, model, "vllm.scheduler", &[self.core_span(at, record, journey)])?;
            }
        }
        out.flush()
    }

    /// The beginnings and ends of the copies, by time.
    fn transfer_moments(&self) -> Vec<Moment<'_>> {
        let both = self.transfers.iter().flat_map(|copy| [(copy.ready_ns, false, copy), (copy.end_ns, true, copy)]);
        let mut moments: Vec<Moment<'_>> = both.collect();
        moments.sort_by_key(|(ns, is_end, copy)| (*ns, *is_end, copy.index));
        moments
    }

    fn core_span(&self, at: usize, record: &RequestRecord, journey: &SpanDetails) -> Value {
        let prompt = ("prefill_total_tokens", json!(record.num_prompt_tokens));
        let step = |step: usize| ("scheduler.step", json!(FIRST_STEP + step));
        let mut events = Vec::new();
        if record.queued_ns > 0 || reached(record, record.scheduled_ns).is_some() {
            events.push(event("journey.QUEUED", record.queued_ns, std::slice::from_ref(&prompt)));
        }
        if let Some(scheduled_ns) = reached(record, record.scheduled_ns) {
            let kind = ("schedule.kind", json!("FIRST"));
            events.push(event("journey.SCHEDULED", scheduled_ns, &[kind, prompt]));
        }
        let mut num_preemptions = 0;
        for (resumed, ns, at_step) in &journey.pauses {
            num_preemptions += u32::from(!resumed);
            let count = ("num_preemptions", json!(num_preemptions));
            events.push(if *resumed {
                event("journey.SCHEDULED", *ns, &[("schedule.kind", json!("RESUME")), step(*at_step), count])
            } else {
                event("journey.PREEMPTED", *ns, &[step(*at_step), count])
            });
        }
        if let Some((first, last)) = journey.steps.filter(|_| record.outcome == Outcome::Finished) {
            let done = ("decode_done_tokens", json!(record.num_output_tokens));
            events.push(event("journey.FIRST_TOKEN", self.steps[first].end_ns, &[step(first)]));
            let counted = ("num_preemptions", json!(record.num_preemptions));
            let attributes = [step(last), done, counted, ("finish.status", json!("length"))];
            events.push(event("journey.FINISHED", self.steps[last].end_ns, &attributes));
        }
        let cached = ("gen_ai.usage.cache_read.input_tokens", json!(record.num_cached_tokens));
        json!({
            "name": "llm_core", "spanId": id(at, 2), "parentSpanId": id(at, 1),
            "attributes": attributes(&[("gen_ai.request.id", json!(at.to_string())), cached]), "events": events,
        })
    }

    fn journey(&mut self, record: u32) -> &mut SpanDetails {
        grown(&mut self.journeys, record as usize, SpanDetails::default)
    }

    fn add(&mut self, event: &StepEvent<'_>) {
        let at = self.steps.len();
        for record in event.preempted {
            self.paused.insert(*record);
            self.journey(*record).pauses.push((false, event.scheduled_ns, at));
        }
        let mut step = StepSpan {
            start_ns: event.scheduled_ns,
            end_ns: event.end_ns,
            num_running: event.num_running,
            num_waiting: event.num_waiting,
            num_prefills: 0,
            num_decodes: 0,
            prefill_tokens: 0,
            num_finished: 0,
            num_preempted: event.preempted.len(),
            blocks_in_use: event.blocks_in_use,
        };
        for (request, record) in event.step.requests.iter().zip(event.records) {
            if request.is_decode() {
                step.num_decodes += 1;
            } else {
                step.num_prefills += 1;
                step.prefill_tokens += u64::from(request.num_scheduled_tokens);
            }
            if !self.paused.is_empty() && self.paused.remove(record) {
                self.journey(*record).pauses.push((true, event.scheduled_ns, at));
            }
            if request.samples {
                let steps = &mut self.journey(*record).steps;
                *steps = Some((steps.map_or(at, |(first, _)| first), at));
            }
        }
        self.steps.push(step);
    }
}

impl Observer for OtlpTrace {
    fn wants(&self) -> Events {
        Events::STEPS | Events::KV
    }

    fn on(&mut self, event: &Event<'_>) {
        match event {
            Event::Step(step) => self.add(step),
            Event::Kv(KvEvent::Transfer(transfer)) => self.transfers.push(*transfer),
            _ => {}
        }
    }
}

/// The event of the beginning or the end of a copy in a step, and behind an end that of the cache which it filled.
fn transfer_events(config: &EngineConfig, step: usize, (ns, is_end, copy): Moment<'_>) -> Vec<Value> {
    let request = ("request.id", json!(copy.record.to_string()));
    let num_blocks = ("kv.num_blocks", json!(copy.num_blocks));
    let step = ("scheduler.step", json!(FIRST_STEP + step));
    let (src, dst, committed) = match copy.direction {
        TransferDirection::GpuToCpu => ("GPU", "CPU", Some("CacheStoreCommitted")),
        TransferDirection::CpuToGpu => ("CPU", "GPU", Some("CacheLoadCommitted")),
        TransferDirection::CpuToDisk => ("CPU", "STORAGE", None),
        TransferDirection::DiskToCpu => ("STORAGE", "CPU", None),
    };
    let (id, src, dst) = (("transfer.id", json!(copy.index)), ("kv.src", json!(src)), ("kv.dst", json!(dst)));
    let mut attributes = vec![id, request.clone(), src, dst, num_blocks.clone(), step.clone()];
    if !is_end {
        return vec![event("TransferInitiated", ns, &attributes)];
    }
    // A server gives the event the time of the step that noticed the end, and a replay that of the end itself.
    attributes.push(("transfer.is_exact", json!(true)));
    let mut events = vec![event("TransferCompleted", ns, &attributes)];
    events.extend(committed.map(|name| {
        let (medium, block_size) = (("kv.medium", json!("CPU")), ("kv.block_size", json!(config.block_size)));
        event(name, ns, &[request, medium, num_blocks, block_size, step])
    }));
    events
}

impl StepSpan {
    fn summary(&self, at: usize, config: &EngineConfig) -> Value {
        let usable_blocks = config.usable_blocks();
        let attributes = [
            ("step.id", json!(FIRST_STEP + at)),
            ("step.ts_start_ns", json!(self.start_ns)),
            ("step.ts_end_ns", json!(self.end_ns)),
            ("step.duration_us", json!(ns_to_us(self.end_ns.saturating_sub(self.start_ns)))),
            ("queue.running_depth", json!(self.num_running)),
            ("queue.waiting_depth", json!(self.num_waiting)),
            ("batch.num_prefill_reqs", json!(self.num_prefills)),
            ("batch.num_decode_reqs", json!(self.num_decodes)),
            ("batch.scheduled_tokens", json!(self.prefill_tokens + self.num_decodes as u64)),
            ("batch.prefill_tokens", json!(self.prefill_tokens)),
            ("batch.decode_tokens", json!(self.num_decodes)),
            ("batch.num_finished", json!(self.num_finished)),
            ("batch.num_preempted", json!(self.num_preempted)),
            ("kv.usage_gpu_ratio", json!(f64::from(self.blocks_in_use) / f64::from(usable_blocks.max(1)))),
            ("kv.blocks_total_gpu", json!(config.num_gpu_blocks)),
            ("kv.blocks_free_gpu", json!(usable_blocks.saturating_sub(self.blocks_in_use))),
        ];
        event("step.BATCH_SUMMARY", self.start_ns, &attributes)
    }
}

fn server_span(at: usize, record: &RequestRecord) -> Value {
    let mut events = vec![event("api.ARRIVED", record.arrival_ns, &[])];
    if record.outcome == Outcome::Rejected {
        events.push(event("api.ABORTED", record.finish_ns, &[]));
    } else {
        events.push(event("api.HANDOFF_TO_CORE", record.arrival_ns, &[]));
        let first = reached(record, record.first_token_ns).map(|ns| event("api.FIRST_RESPONSE", ns, &[]));
        events.extend(first);
        events.extend(over_ns(record).map(|ns| event("api.DEPARTED", ns, &[])));
    }
    let prompt = ("gen_ai.usage.prompt_tokens", json!(record.num_prompt_tokens));
    let output = ("gen_ai.usage.completion_tokens", json!(record.num_output_tokens));
    json!({
        "name": "llm_request", "spanId": id(at, 1),
        "attributes": attributes(&[("gen_ai.request.id", json!(at.to_string())), prompt, output]), "events": events,
    })
}

/// The id of a span; `kind` distinguishes those of different kinds.
fn id(at: usize, kind: u64) -> String {
    format!("{:016x}", (at as u64) << 2 | kind)
}

fn event(name: &str, ns: u64, others: &[(&str, Value)]) -> Value {
    let time = START_UNIX_NS.saturating_add(ns).to_string();
    let own = [&[("ts.monotonic", json!(ns))], others].concat();
    json!({ "name": name, "timeUnixNano": time, "attributes": attributes(&own) })
}

/// Whole numbers are texts, as in protobuf's JSON.
fn attributes(of: &[(&str, Value)]) -> Value {
    let attribute = |(key, value): &(&str, Value)| {
        let value = match value {
            Value::String(text) => json!({ "stringValue": text }),
            whole if whole.is_u64() => json!({ "intValue": whole.to_string() }),
            number => json!({ "doubleValue": number }),
        };
        json!({ "key": key, "value": value })
    };
    of.iter().map(attribute).collect()
}

fn write_line(out: &mut impl Write, model: &str, scope: &str, spans: &[Value]) -> io::Result<()> {
    let resource = attributes(&[("service.name", json!("ridgepoint")), ("gen_ai.request.model", json!(model))]);
    let scoped = json!({ "scope": { "name": scope }, "spans": spans });
    let line = json!({ "resourceSpans": [{ "resource": { "attributes": resource }, "scopeSpans": [scoped] }] });
    serde_json::to_writer(&mut *out, &line)?;
    out.write_all(b"\n")
}

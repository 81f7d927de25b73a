//! The spans of requests (`llm_request`, `llm_core`) and their events as request rows.

use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::span::Event;

use super::attributes::{Attributes, Fault};
use crate::ingest::batch_summary::Counts;
use crate::ingest::request::{ENGINE_TIMES, HANDOVER_TIMES, RequestRow, SERVER_TIMES};

const ID_KEYS: [&str; 3] = ["gen_ai.request.id", "request.id", "request_id"];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Arrived,
    HandedOver,
    FirstResponse,
    Departed,
    Aborted,
    Queued,
    Scheduled,
    FirstToken,
    Preempted,
    Finished,
}

impl Kind {
    fn of(name: &str) -> Option<Self> {
        let bare = name.strip_prefix("api.").or_else(|| name.strip_prefix("journey.")).unwrap_or(name);
        Some(match bare {
            "ARRIVED" => Kind::Arrived,
            "HANDOFF_TO_CORE" => Kind::HandedOver,
            "FIRST_RESPONSE" => Kind::FirstResponse,
            "DEPARTED" => Kind::Departed,
            "ABORTED" => Kind::Aborted,
            "QUEUED" => Kind::Queued,
            "SCHEDULED" => Kind::Scheduled,
            "FIRST_TOKEN" => Kind::FirstToken,
            "PREEMPTED" => Kind::Preempted,
            "FINISHED" => Kind::Finished,
            _ => return None,
        })
    }

    /// Whether the scheduler emits it; the server emits the others.
    fn is_core(self) -> bool {
        use Kind::{Finished, FirstToken, Preempted, Queued, Scheduled};
        matches!(self, Queued | Scheduled | FirstToken | Preempted | Finished)
    }
}

#[derive(Debug)]
struct Timestamp {
    kind: Kind,
    monotonic_ns: Option<u64>,
    wall_ns: Option<u64>,
    step: Option<u64>,
    prompt_tokens: Option<u64>,
    output_tokens: Option<u64>,
    preemptions: Option<u64>,
    is_resume: bool,
    status: Option<String>,
}

impl Timestamp {
    fn of(kind: Kind, event: &Event, attributes: Attributes<'_>) -> Result<Self, Fault> {
        Ok(Timestamp {
            kind,
            monotonic_ns: attributes.monotonic_ns()?,
            wall_ns: Some(event.time_unix_nano).filter(|ns| *ns > 0),
            step: attributes.optional("scheduler.step")?,
            prompt_tokens: attributes.optional("prefill_total_tokens")?,
            output_tokens: attributes.optional("decode_done_tokens")?,
            preemptions: attributes.optional("num_preemptions")?,
            is_resume: attributes.text("schedule.kind") == Some("RESUME"),
            status: attributes.text("finish.status").map(str::to_owned),
        })
    }
}

/// The events of one request's span, gathered until the span's own attributes are known.
#[derive(Debug, Default)]
pub(super) struct RequestTimestamps {
    timestamps: Vec<Timestamp>,
    request_id: Option<String>,
    fault: Option<Fault>,
    has_prefix: bool,
}

impl RequestTimestamps {
    /// Takes an event of the span. Events of other kinds are ignored; a broken one makes the span unusable.
    pub(super) fn take(&mut self, event: Result<Event, Fault>) {
        let taken = event.and_then(|event| {
            let Some(kind) = Kind::of(&event.name) else { return Ok(()) };
            self.has_prefix |= event.name.contains('.');
            let attributes = Attributes(&event.attributes);
            if self.request_id.is_none() {
                self.request_id = attributes.first_text(&ID_KEYS);
            }
            self.timestamps.push(Timestamp::of(kind, &event, attributes)?);
            Ok(())
        });
        if let Err(fault) = taken {
            self.fault.get_or_insert(fault);
        }
    }

    /// Whether the events or the span's name say that the span is a request's.
    pub(super) fn is_request(&self, span_name: &str) -> bool {
        matches!(span_name, "llm_request" | "llm_core") || self.has_prefix
    }

    /// Time from the first to the last event by the time of day and by the monotonic clock, ns.
    pub(super) fn durations_ns(&self) -> Option<(f64, f64)> {
        let both = || self.timestamps.iter().filter_map(|of| Some((of.wall_ns?, of.monotonic_ns?)));
        let wall = both().map(|(wall, _)| wall).max()? - both().map(|(wall, _)| wall).min()?;
        let monotonic = both().map(|(_, monotonic)| monotonic).max()? - both().map(|(_, monotonic)| monotonic).min()?;
        Some((wall as f64, monotonic as f64))
    }

    /// Number of events that lack the clock which others of the span have.
    pub(super) fn without_clock(&self) -> u64 {
        let without = self.timestamps.iter().filter(|of| of.monotonic_ns.is_none()).count();
        if without < self.timestamps.len() { without as u64 } else { 0 }
    }
}

/// One request as either the server or the engine reports it.
#[derive(Debug, Clone)]
pub(super) struct RequestSpan {
    /// Whether the engine's scheduler reports it; else the server in front of it does.
    pub(super) is_core: bool,
    /// Whether its times are on the monotonic clock; else they are unix times.
    pub(super) is_monotonic: bool,
    pub(super) span_id: u64,
    pub(super) parent_span_id: u64,
    pub(super) model: Option<String>,
    pub(super) row: RequestRow,
}

/// Makes a row of a span and its events.
pub(super) fn request_span(span: &Span, mut events: RequestTimestamps) -> Result<RequestSpan, Fault> {
    if let Some(fault) = events.fault.take() {
        return Err(fault);
    }
    let attributes = Attributes(&span.attributes);
    let request_id = attributes.first_text(&ID_KEYS).or(events.request_id.take());
    let request_id = request_id.ok_or_else(|| Fault::missing(format!("{} is missing", ID_KEYS[0])))?;
    let mut row = RequestRow { request_id, ..RequestRow::default() };
    let is_monotonic = events.timestamps.iter().any(|of| of.monotonic_ns.is_some());
    if events.timestamps.is_empty() {
        from_stock_span(span, attributes, &mut row)?;
    } else {
        from_events(&mut row, &mut events.timestamps, is_monotonic);
    }
    row.num_prompt_tokens = row.num_prompt_tokens.or(attributes.optional("gen_ai.usage.prompt_tokens")?);
    row.num_output_tokens = row.num_output_tokens.or(attributes.optional("gen_ai.usage.completion_tokens")?);
    for sequence in [&ENGINE_TIMES[..], &SERVER_TIMES, &HANDOVER_TIMES] {
        if let Some([earlier, later]) = row.out_of_order(sequence) {
            return Err(Fault::bad(format!("{} is {} ns before {}", later.0, earlier.1 - later.1, earlier.0)));
        }
    }
    Ok(RequestSpan {
        is_core: span.name == "llm_core" || events.timestamps.iter().any(|of| of.kind.is_core()),
        is_monotonic,
        span_id: number(&span.span_id),
        parent_span_id: number(&span.parent_span_id),
        model: attributes.model(),
        row,
    })
}

/// Reads a span of unmodified vLLM: it has no events, starts when the request arrives and has durations as attributes.
fn from_stock_span(span: &Span, attributes: Attributes<'_>, row: &mut RequestRow) -> Result<(), Fault> {
    let start_ns = span.start_time_unix_nano;
    if start_ns == 0 {
        return Err(Fault::missing("neither events nor startTimeUnixNano are there"));
    }
    let after = |duration_ns: Option<u64>| duration_ns.map(|ns| start_ns.saturating_add(ns));
    row.arrived_ns = Some(start_ns);
    row.first_response_ns = after(attributes.seconds_as_ns("gen_ai.latency.time_to_first_token")?);
    row.departed_ns = after(attributes.seconds_as_ns("gen_ai.latency.e2e")?);
    if row.departed_ns.is_none() {
        return Err(Fault::missing("neither events nor gen_ai.latency.e2e are there"));
    }
    Ok(())
}

fn from_events(row: &mut RequestRow, events: &mut [Timestamp], is_monotonic: bool) {
    let time = |event: &Timestamp| if is_monotonic { event.monotonic_ns } else { event.wall_ns };
    events.sort_by_key(|event| time(event).unwrap_or(u64::MAX));
    let mut preempted = 0;
    for event in events.iter() {
        let at = time(event);
        match event.kind {
            Kind::Arrived => row.arrived_ns = row.arrived_ns.or(at),
            Kind::HandedOver => row.handed_over_ns = row.handed_over_ns.or(at),
            Kind::FirstResponse => row.first_response_ns = row.first_response_ns.or(at),
            Kind::Departed => row.departed_ns = row.departed_ns.or(at),
            Kind::Aborted => row.finish_status = row.finish_status.take().or(Some("aborted".to_owned())),
            Kind::Queued => row.queued_ns = row.queued_ns.or(at),
            Kind::Scheduled if !event.is_resume && row.scheduled_ns.is_none() && row.scheduled_step.is_none() => {
                (row.scheduled_ns, row.scheduled_step) = (at, event.step);
            }
            Kind::FirstToken if row.first_token_ns.is_none() && row.first_token_step.is_none() => {
                (row.first_token_ns, row.first_token_step) = (at, event.step);
            }
            Kind::Scheduled | Kind::FirstToken => {}
            Kind::Preempted => preempted += 1,
            Kind::Finished => {
                (row.finished_ns, row.finished_step) = (at, event.step);
                row.num_output_tokens = event.output_tokens.or(row.num_output_tokens);
                row.finish_status = event.status.clone().or(row.finish_status.take());
            }
        }
        if event.kind.is_core() {
            // After a preemption the prompt that is computed again includes the generated tokens.
            if preempted == 0 && !event.is_resume {
                row.num_prompt_tokens = row.num_prompt_tokens.or(event.prompt_tokens);
            }
            row.num_preemptions = row.num_preemptions.max(event.preemptions).max(Some(preempted));
        }
    }
}

/// An id of eight bytes as a number.
fn number(id: &[u8]) -> u64 {
    id.iter().take(8).fold(0, |number, byte| number << 8 | u64::from(*byte))
}

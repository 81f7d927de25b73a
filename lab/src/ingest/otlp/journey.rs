//! Spans of requests as rows. Uses `attributes`, `request`.

use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::span::Event;

use super::attributes::{Attributes, Fault};
use super::source::MODEL_KEYS;
use crate::ingest::RequestRow;

const ID_KEYS: [&str; 3] = ["gen_ai.request.id", "request.id", "request_id"];

/// What happened to a request.
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

    fn is_core(self) -> bool {
        use Kind::{Finished, FirstToken, Preempted, Queued, Scheduled};
        matches!(self, Queued | Scheduled | FirstToken | Preempted | Finished)
    }
}

/// An event of a journey, compact.
#[derive(Debug)]
struct Moment {
    kind: Kind,
    monotonic_ns: Option<u64>,
    wall_ns: Option<u64>,
    step: Option<u64>,
    prompt_tokens: Option<u64>,
    output_tokens: Option<u64>,
    preemptions: Option<u32>,
    is_resume: bool,
    status: Option<String>,
}

/// Events of one span, gathered until the span's own attributes are known.
#[derive(Debug, Default)]
pub(super) struct Moments {
    moments: Vec<Moment>,
    request_id: Option<String>,
    fault: Option<Fault>,
    has_prefix: bool,
}

impl Moments {
    /// Takes an event; false where it is none of a journey.
    pub(super) fn take(&mut self, event: &Event) -> bool {
        let Some(kind) = Kind::of(&event.name) else { return false };
        self.has_prefix |= event.name.contains('.');
        let attributes = Attributes(&event.attributes);
        if self.request_id.is_none() {
            self.request_id = attributes.first_text(&ID_KEYS).map(str::to_owned);
        }
        match moment(kind, event, attributes) {
            Ok(moment) => self.moments.push(moment),
            Err(fault) => self.fault(fault),
        }
        true
    }

    /// The span can't be used.
    pub(super) fn fault(&mut self, fault: Fault) {
        self.fault.get_or_insert(fault);
    }

    /// Whether the events or the span's name say that it is a request's.
    pub(super) fn is_request(&self, span_name: &str) -> bool {
        matches!(span_name, "llm_request" | "llm_core") || self.has_prefix
    }

    /// First and last event on both clocks, ns.
    pub(super) fn spans_ns(&self) -> Option<(f64, f64)> {
        let both = || self.moments.iter().filter_map(|moment| Some((moment.wall_ns?, moment.monotonic_ns?)));
        let span = |values: &mut dyn Iterator<Item = u64>| {
            let (mut least, mut most) = (u64::MAX, 0);
            values.for_each(|value| (least, most) = (least.min(value), most.max(value)));
            most.checked_sub(least).map(|span| span as f64)
        };
        Some((span(&mut both().map(|(wall, _)| wall))?, span(&mut both().map(|(_, monotonic)| monotonic))?))
    }

    /// Events that lack the clock which others of the span have.
    pub(super) fn without_clock(&self) -> u64 {
        let without = self.moments.iter().filter(|moment| moment.monotonic_ns.is_none()).count();
        if without < self.moments.len() { without as u64 } else { 0 }
    }
}

fn moment(kind: Kind, event: &Event, attributes: Attributes<'_>) -> Result<Moment, Fault> {
    Ok(Moment {
        kind,
        monotonic_ns: attributes.monotonic_ns()?,
        wall_ns: Some(event.time_unix_nano).filter(|ns| *ns > 0),
        step: attributes.count("scheduler.step")?,
        prompt_tokens: attributes.count("prefill_total_tokens")?,
        output_tokens: attributes.count("decode_done_tokens")?,
        preemptions: attributes.small_count("num_preemptions")?,
        is_resume: attributes.text("schedule.kind") == Some("RESUME"),
        status: attributes.text("finish.status").map(str::to_owned),
    })
}

/// Which layer a span speaks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Layer {
    /// The server in front of the engine.
    Api,
    /// The scheduler.
    Core,
}

/// One request as one layer saw it.
#[derive(Debug, Clone)]
pub(super) struct Journey {
    pub(super) layer: Layer,
    /// Whether its times are on the monotonic clock; else they are unix times.
    pub(super) is_monotonic: bool,
    pub(super) span_id: u64,
    pub(super) parent_span_id: u64,
    pub(super) model: Option<String>,
    pub(super) row: RequestRow,
}

impl Journey {
    pub(super) fn is_core(&self) -> bool {
        self.layer == Layer::Core
    }
}

/// Makes a row of a span and its events.
pub(super) fn journey(span: &Span, mut events: Moments) -> Result<Journey, Fault> {
    if let Some(fault) = events.fault.take() {
        return Err(fault);
    }
    let attributes = Attributes(&span.attributes);
    let request_id = attributes.first_text(&ID_KEYS).map(str::to_owned).or(events.request_id.take());
    let request_id = request_id.ok_or_else(|| Fault::Missing(format!("{} is missing", ID_KEYS[0])))?;
    let is_core = span.name == "llm_core" || events.moments.iter().any(|moment| moment.kind.is_core());
    let mut row = RequestRow { request_id, ..RequestRow::default() };
    let mut is_monotonic = events.moments.iter().any(|moment| moment.monotonic_ns.is_some());
    if events.moments.is_empty() {
        is_monotonic = false;
        stock(span, attributes, &mut row)?;
    } else {
        from_events(&mut row, &mut events.moments, is_monotonic);
    }
    row.num_prompt_tokens = row.num_prompt_tokens.or(attributes.count("gen_ai.usage.prompt_tokens")?);
    row.num_output_tokens = row.num_output_tokens.or(attributes.count("gen_ai.usage.completion_tokens")?);
    in_order(&row)?;
    Ok(Journey {
        layer: if is_core { Layer::Core } else { Layer::Api },
        is_monotonic,
        span_id: number(&span.span_id),
        parent_span_id: number(&span.parent_span_id),
        model: attributes.first_text(&MODEL_KEYS).map(str::to_owned),
        row,
    })
}

/// vLLM's own span has no events: it begins when the request arrives and has durations in its attributes.
fn stock(span: &Span, attributes: Attributes<'_>, row: &mut RequestRow) -> Result<(), Fault> {
    let start_ns = span.start_time_unix_nano;
    if start_ns == 0 {
        return Err(Fault::Missing("neither events nor startTimeUnixNano are there".to_owned()));
    }
    let after = |duration_ns: Option<u64>| duration_ns.map(|ns| start_ns.saturating_add(ns));
    row.arrived_ns = Some(start_ns);
    row.first_response_ns = after(attributes.seconds_as_ns("gen_ai.latency.time_to_first_token")?);
    row.departed_ns = after(attributes.seconds_as_ns("gen_ai.latency.e2e")?);
    if row.departed_ns.is_none() {
        return Err(Fault::Missing("neither events nor gen_ai.latency.e2e are there".to_owned()));
    }
    Ok(())
}

fn from_events(row: &mut RequestRow, moments: &mut [Moment], is_monotonic: bool) {
    let time = |moment: &Moment| if is_monotonic { moment.monotonic_ns } else { moment.wall_ns };
    moments.sort_by_key(|moment| time(moment).unwrap_or(u64::MAX));
    let mut preempted = 0u32;
    let mut seen_core = false;
    for moment in moments.iter() {
        let at = time(moment);
        match moment.kind {
            Kind::Arrived => row.arrived_ns = row.arrived_ns.or(at),
            Kind::HandedOver => row.handed_over_ns = row.handed_over_ns.or(at),
            Kind::FirstResponse => row.first_response_ns = row.first_response_ns.or(at),
            Kind::Departed => row.departed_ns = row.departed_ns.or(at),
            Kind::Aborted => row.finish_status = row.finish_status.take().or(Some("aborted".to_owned())),
            Kind::Queued => row.queued_ns = row.queued_ns.or(at),
            Kind::Scheduled if !moment.is_resume && row.scheduled_ns.is_none() && row.scheduled_step.is_none() => {
                (row.scheduled_ns, row.scheduled_step) = (at, moment.step);
            }
            Kind::Scheduled => {}
            Kind::FirstToken if row.first_token_ns.is_none() && row.first_token_step.is_none() => {
                (row.first_token_ns, row.first_token_step) = (at, moment.step);
            }
            Kind::FirstToken => {}
            Kind::Preempted => preempted = preempted.saturating_add(1),
            Kind::Finished => {
                (row.finished_ns, row.finished_step) = (at, moment.step);
                row.num_output_tokens = moment.output_tokens.or(row.num_output_tokens);
                row.finish_status = moment.status.clone().or(row.finish_status.take());
            }
        }
        if moment.kind.is_core() {
            seen_core = true;
            // After a preemption the prompt that is computed again includes what was generated.
            if preempted == 0 && !moment.is_resume {
                row.num_prompt_tokens = row.num_prompt_tokens.or(moment.prompt_tokens);
            }
            row.num_preemptions = row.num_preemptions.max(moment.preemptions);
        }
    }
    if seen_core {
        row.num_preemptions = row.num_preemptions.max(Some(preempted));
    }
}

fn in_order(row: &RequestRow) -> Result<(), Fault> {
    let engine = [
        ("QUEUED", row.queued_ns),
        ("SCHEDULED", row.scheduled_ns),
        ("FIRST_TOKEN", row.first_token_ns),
        ("FINISHED", row.finished_ns),
    ];
    let server =
        [("ARRIVED", row.arrived_ns), ("FIRST_RESPONSE", row.first_response_ns), ("DEPARTED", row.departed_ns)];
    let handing = [("ARRIVED", row.arrived_ns), ("HANDOFF_TO_CORE", row.handed_over_ns)];
    for sequence in [&engine[..], &server, &handing] {
        let known: Vec<(&str, u64)> = sequence.iter().filter_map(|(name, at)| Some((*name, (*at)?))).collect();
        for (one, next) in known.iter().zip(known.iter().skip(1)) {
            if next.1 < one.1 {
                return Err(Fault::Bad(format!("{} is {} ns before {}", next.0, one.1 - next.1, one.0)));
            }
        }
    }
    Ok(())
}

fn number(id: &[u8]) -> u64 {
    id.iter().take(8).fold(0, |number, byte| number << 8 | u64::from(*byte))
}

//! The spans of requests (`llm_request`, `llm_core`) and their events as request rows.

use serde_json::Value;

use super::attributes::{Attributes, Fault, MONOTONIC, elements};
use crate::ingest::Reason;
use crate::ingest::request::RequestRow;

const ID_KEYS: [&str; 3] = ["gen_ai.request.id", "request.id", "request_id"];

/// Events of a request at the server, and of its scheduler.
const SERVER_EVENTS: [&str; 5] = ["ARRIVED", "HANDOFF_TO_CORE", "FIRST_RESPONSE", "DEPARTED", "ABORTED"];
const CORE_EVENTS: [&str; 5] = ["QUEUED", "SCHEDULED", "FIRST_TOKEN", "PREEMPTED", "FINISHED"];

/// Returns the kind of a request's event: its name without prefix. `None` for other events.
pub(super) fn event_kind(name: &str) -> Option<&'static str> {
    let bare = name.strip_prefix("api.").or_else(|| name.strip_prefix("journey.")).unwrap_or(name);
    SERVER_EVENTS.into_iter().chain(CORE_EVENTS).find(|kind| *kind == bare)
}

/// Checks that `ts.monotonic` advances as fast as the time of day over a span's events. If it does not, its unit is not ns
/// (integers) or s (floating point).
fn check_unit(events: &[TimedEvent]) -> Result<(), Fault> {
    /// Clocks differ by far less, units by far more.
    const MAX_RATIO: f64 = 10.0;
    /// Shorter spans do not tell units apart.
    const MIN_SPAN_NS: u64 = 10_000_000;
    let (wall, monotonic): (Vec<u64>, Vec<u64>) =
        events.iter().filter_map(|event| Some((event.wall_ns?, event.monotonic_ns?))).unzip();
    let length = |times: &[u64]| times.iter().max().zip(times.iter().min()).map_or(0, |(last, first)| last - first);
    let ratio = length(&monotonic) as f64 / length(&wall) as f64;
    if length(&wall) < MIN_SPAN_NS || (1.0 / MAX_RATIO..=MAX_RATIO).contains(&ratio) {
        return Ok(());
    }
    Err((Reason::BadValue, format!("ts.monotonic advances {ratio:.3e} times as fast as timeUnixNano: is its unit ns?")))
}

/// One request as either the server or the engine reports it.
#[derive(Debug, Clone)]
pub(super) struct RequestSpan {
    /// Index of the process that its row belongs to.
    pub(super) process: usize,
    /// Whether the engine's scheduler reports it; else the server in front of it does.
    pub(super) is_core: bool,
    /// Whether its times are on the monotonic clock; else they are unix times.
    pub(super) is_monotonic: bool,
    pub(super) span_id: Option<u64>,
    pub(super) parent_span_id: Option<u64>,
    pub(super) model: Option<String>,
    pub(super) row: RequestRow,
}

/// An event of a request's span.
struct TimedEvent {
    kind: &'static str,
    attributes: Attributes,
    monotonic_ns: Option<u64>,
    wall_ns: Option<u64>,
}

/// Makes a row of a span and its events.
pub(super) fn request_span(span: &Value) -> Result<RequestSpan, Fault> {
    let attributes = Attributes::of(span);
    let mut timed = Vec::new();
    for event in elements(&span["events"]) {
        let Some(kind) = event["name"].as_str().and_then(event_kind) else { continue };
        let attributes = Attributes::of(event);
        let (monotonic_ns, wall_ns) = (attributes.whole(MONOTONIC)?, nanoseconds(&event["timeUnixNano"]));
        timed.push(TimedEvent { kind, attributes, monotonic_ns, wall_ns });
    }
    check_unit(&timed)?;
    let of_events = || timed.iter().find_map(|event| event.attributes.first_text(&ID_KEYS));
    let request_id = attributes.first_text(&ID_KEYS).or_else(of_events);
    let request_id = request_id.ok_or_else(|| (Reason::Incomplete, format!("{} is missing", ID_KEYS[0])))?;
    let mut row = RequestRow { request_id, ..RequestRow::default() };
    let is_monotonic = timed.iter().any(|event| event.monotonic_ns.is_some());
    if timed.is_empty() {
        from_stock_span(span, &attributes, &mut row)?;
    } else {
        from_events(&mut row, &mut timed, is_monotonic)?;
    }
    row.num_prompt_tokens = row.num_prompt_tokens.or(attributes.whole("gen_ai.usage.prompt_tokens")?);
    row.num_output_tokens = row.num_output_tokens.or(attributes.whole("gen_ai.usage.completion_tokens")?);
    row.num_cached_tokens = attributes.whole("gen_ai.usage.cache_read.input_tokens")?;
    if let Some([earlier, later]) = row.out_of_order() {
        let text = format!("{} is {} ns before {}", later.0, earlier.1 - later.1, earlier.0);
        return Err((Reason::BadValue, text));
    }
    let id = |key: &str| u64::from_str_radix(span[key].as_str()?, 16).ok();
    Ok(RequestSpan {
        process: 0,
        is_core: span["name"] == "llm_core" || timed.iter().any(|event| CORE_EVENTS.contains(&event.kind)),
        is_monotonic,
        span_id: id("spanId"),
        parent_span_id: id("parentSpanId"),
        model: attributes.model(),
        row,
    })
}

/// A time of day in ns, which OTLP JSON writes as a text or a number; 0 stands for none.
fn nanoseconds(value: &Value) -> Option<u64> {
    let ns = value.as_u64().or_else(|| value.as_str()?.parse().ok());
    ns.filter(|ns| *ns > 0)
}

/// Reads a span of unmodified vLLM: it has no events, starts when the request arrives and has durations as attributes.
fn from_stock_span(span: &Value, attributes: &Attributes, row: &mut RequestRow) -> Result<(), Fault> {
    let missing =
        || (Reason::Incomplete, "neither events nor startTimeUnixNano and gen_ai.latency.e2e are there".to_owned());
    let start_ns = nanoseconds(&span["startTimeUnixNano"]).ok_or_else(missing)?;
    let after = |duration_ns: Option<u64>| duration_ns.map(|ns| start_ns.saturating_add(ns));
    row.arrived_ns = Some(start_ns);
    row.first_response_ns = after(attributes.seconds_as_ns("gen_ai.latency.time_to_first_token")?);
    row.departed_ns = after(attributes.seconds_as_ns("gen_ai.latency.e2e")?);
    row.departed_ns.map(drop).ok_or_else(missing)
}

fn from_events(row: &mut RequestRow, events: &mut [TimedEvent], is_monotonic: bool) -> Result<(), Fault> {
    let time = |event: &TimedEvent| if is_monotonic { event.monotonic_ns } else { event.wall_ns };
    events.sort_by_key(|event| time(event).unwrap_or(u64::MAX));
    let mut preempted = 0;
    for event in events.iter() {
        let (at, attributes) = (time(event), &event.attributes);
        let step = attributes.whole("scheduler.step")?;
        let is_resume = attributes.text("schedule.kind") == Some("RESUME");
        match event.kind {
            "ARRIVED" => row.arrived_ns = row.arrived_ns.or(at),
            "HANDOFF_TO_CORE" => row.handed_over_ns = row.handed_over_ns.or(at),
            "FIRST_RESPONSE" => row.first_response_ns = row.first_response_ns.or(at),
            "DEPARTED" => row.departed_ns = row.departed_ns.or(at),
            "ABORTED" => row.finish_status = row.finish_status.take().or(Some("aborted".to_owned())),
            "QUEUED" => row.queued_ns = row.queued_ns.or(at),
            "SCHEDULED" if !is_resume && row.scheduled_ns.is_none() && row.scheduled_step.is_none() => {
                (row.scheduled_ns, row.scheduled_step) = (at, step);
            }
            "FIRST_TOKEN" if row.first_token_ns.is_none() && row.first_token_step.is_none() => {
                (row.first_token_ns, row.first_token_step) = (at, step);
            }
            "PREEMPTED" => {
                preempted += 1;
                row.preempted_ns.0.extend(at);
                row.preempted_steps.0.extend(step);
            }
            "SCHEDULED" if is_resume => {
                row.resumed_ns.0.extend(at);
                row.resumed_steps.0.extend(step);
            }
            "FINISHED" => {
                (row.finished_ns, row.finished_step) = (at, step);
                row.num_output_tokens = attributes.whole("decode_done_tokens")?.or(row.num_output_tokens);
                row.finish_status = attributes.first_text(&["finish.status"]).or(row.finish_status.take());
            }
            _ => {}
        }
        if CORE_EVENTS.contains(&event.kind) {
            // After a preemption the prompt that is computed again includes the generated tokens.
            if preempted == 0 && !is_resume {
                row.num_prompt_tokens = row.num_prompt_tokens.or(attributes.whole("prefill_total_tokens")?);
            }
            let counted = attributes.whole("num_preemptions")?;
            row.num_preemptions = row.num_preemptions.max(counted).max(Some(preempted));
        }
    }
    Ok(())
}

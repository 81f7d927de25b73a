//! The spans of requests (`llm_request`, `llm_core`) and their events as request rows.

use std::num::NonZeroU64;
use std::rc::Rc;

use ridgepoint::input::NumberRange;

use super::attributes::{Attributes, Fault, MONOTONIC};
use crate::ingest::{DropReason, RequestRow, Whole};

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
fn check_unit(events: &[SpanEvent]) -> Result<(), Fault> {
    /// Clocks differ by far less, units by far more.
    const MAX_RATIO: f64 = 10.0;
    /// Shorter spans do not distinguish units.
    const MIN_SPAN_NS: u64 = 10_000_000;
    let (wall, monotonic): (Vec<u64>, Vec<u64>) =
        events.iter().filter_map(|event| Some((event.wall_ns?, event.monotonic_ns?))).unzip();
    let length = |times: &[u64]| times.iter().max().zip(times.iter().min()).map_or(0, |(last, first)| last - first);
    let ratio = length(&monotonic) as f64 / length(&wall) as f64;
    if length(&wall) < MIN_SPAN_NS || (1.0 / MAX_RATIO..=MAX_RATIO).contains(&ratio) {
        return Ok(());
    }
    Err((
        DropReason::BadValue,
        format!("ts.monotonic advances {ratio:.3e} times as fast as timeUnixNano: is its unit ns?"),
    ))
}

/// A span as it is in the file.
#[derive(Debug, Default)]
pub(super) struct Span {
    pub(super) name: String,
    pub(super) span_id: Option<NonZeroU64>,
    pub(super) parent_span_id: Option<NonZeroU64>,
    /// The time of day of its start.
    pub(super) start_ns: Option<u64>,
    pub(super) attributes: Attributes,
    /// Its events that requests have.
    pub(super) events: Vec<SpanEvent>,
}

/// An event of a request.
#[derive(Debug)]
pub(super) struct SpanEvent {
    pub(super) kind: &'static str,
    pub(super) attributes: Attributes,
    pub(super) wall_ns: Option<u64>,
    /// Its time on the engine's clock, once it was read.
    pub(super) monotonic_ns: Option<u64>,
}

/// Where a request was reported.
#[derive(Debug, Clone)]
pub(super) struct SpanOrigin {
    /// Index of the process that its row belongs to.
    pub(super) process: usize,
    /// Whether its times are on the monotonic clock; else they are unix times.
    pub(super) is_monotonic: bool,
    /// Whether the engine's scheduler reports it.
    pub(super) is_core: bool,
    pub(super) span_id: Option<NonZeroU64>,
    pub(super) parent_span_id: Option<NonZeroU64>,
    pub(super) model: Option<Rc<str>>,
}

/// A request as the engine's scheduler or unmodified vLLM reports it.
#[derive(Debug)]
pub(super) struct RequestSpan {
    pub(super) origin: SpanOrigin,
    pub(super) row: RequestRow,
}

/// A request as the server in front of the engine reports it. A whole row would take three times the memory.
#[derive(Debug)]
pub(super) struct ServerSpan {
    pub(super) origin: SpanOrigin,
    pub(super) request_id: Box<str>,
    pub(super) arrived_ns: Option<Whole>,
    pub(super) handed_over_ns: Option<Whole>,
    pub(super) first_response_ns: Option<Whole>,
    pub(super) departed_ns: Option<Whole>,
    pub(super) num_prompt_tokens: Option<Whole>,
    pub(super) num_output_tokens: Option<Whole>,
    pub(super) finish_status: Option<Box<str>>,
    pub(super) temperature: Option<f64>,
    pub(super) top_p: Option<f64>,
    pub(super) max_output_tokens: Option<Whole>,
}

/// A request's span of either kind.
#[derive(Debug)]
pub(super) enum SpanOfRequest {
    Request(Box<RequestSpan>),
    Server(ServerSpan),
}

impl From<RequestSpan> for ServerSpan {
    fn from(RequestSpan { origin, row, .. }: RequestSpan) -> Self {
        ServerSpan {
            origin,
            request_id: row.request_id,
            arrived_ns: row.arrived_ns,
            handed_over_ns: row.handed_over_ns,
            first_response_ns: row.first_response_ns,
            departed_ns: row.departed_ns,
            num_prompt_tokens: row.num_prompt_tokens,
            num_output_tokens: row.num_output_tokens,
            finish_status: row.finish_status,
            temperature: row.temperature,
            top_p: row.top_p,
            max_output_tokens: row.max_output_tokens,
        }
    }
}

impl From<ServerSpan> for RequestSpan {
    fn from(span: ServerSpan) -> Self {
        let row = RequestRow {
            request_id: span.request_id,
            arrived_ns: span.arrived_ns,
            handed_over_ns: span.handed_over_ns,
            first_response_ns: span.first_response_ns,
            departed_ns: span.departed_ns,
            num_prompt_tokens: span.num_prompt_tokens,
            num_output_tokens: span.num_output_tokens,
            finish_status: span.finish_status,
            temperature: span.temperature,
            top_p: span.top_p,
            max_output_tokens: span.max_output_tokens,
            ..RequestRow::default()
        };
        RequestSpan { origin: span.origin, row }
    }
}

/// Makes a request of a span. Its model is `model` where it names that one, so that equal names are held once.
pub(super) fn request_span(span: &mut Span, model: &mut Option<Rc<str>>) -> Result<SpanOfRequest, Fault> {
    let mut timed = std::mem::take(&mut span.events);
    for event in &mut timed {
        event.monotonic_ns = event.attributes.whole(MONOTONIC)?;
    }
    check_unit(&timed)?;
    let attributes = &span.attributes;
    let of_events = || timed.iter().find_map(|event| event.attributes.first_text(&ID_KEYS));
    let request_id = attributes.first_text(&ID_KEYS).or_else(of_events);
    let request_id = request_id.ok_or_else(|| (DropReason::Incomplete, format!("{} is missing", ID_KEYS[0])))?;
    let mut row = RequestRow { request_id: request_id.into(), ..RequestRow::default() };
    let is_monotonic = timed.iter().any(|event| event.monotonic_ns.is_some());
    let is_stock = timed.is_empty();
    if is_stock {
        from_stock_span(span.start_ns, attributes, &mut row)?;
    } else {
        from_events(&mut row, &mut timed, is_monotonic)?;
    }
    let count = |key: &str| attributes.whole(key).map(|count| count.map(Whole::from));
    row.num_prompt_tokens = row.num_prompt_tokens.or(count("gen_ai.usage.prompt_tokens")?);
    row.num_output_tokens = row.num_output_tokens.or(count("gen_ai.usage.completion_tokens")?);
    row.num_cached_tokens = count("gen_ai.usage.cache_read.input_tokens")?;
    row.max_output_tokens = row.max_output_tokens.or(count("gen_ai.request.max_tokens")?);
    row.temperature = attributes.number("gen_ai.request.temperature", NumberRange::from_zero(f64::MAX, ""))?;
    row.top_p = attributes.number("gen_ai.request.top_p", NumberRange::above_zero(1.0, ""))?;
    if let Some([earlier, later]) = row.out_of_order() {
        let text = format!("{} is {} ns before {}", later.0, earlier.1 - later.1, earlier.0);
        return Err((DropReason::BadValue, text));
    }
    let of_span = attributes.model();
    if of_span.is_some() && of_span.as_deref() != model.as_deref() {
        *model = of_span.as_deref().map(Rc::from);
    }
    let is_core = span.name == "llm_core" || timed.iter().any(|event| CORE_EVENTS.contains(&event.kind));
    let origin = SpanOrigin {
        process: 0,
        is_monotonic,
        is_core,
        span_id: span.span_id,
        parent_span_id: span.parent_span_id,
        model: of_span.and(model.clone()),
    };
    let request = RequestSpan { origin, row };
    // The cached tokens of a server's span have no place in the compact form.
    let is_compact = !is_core && !is_stock && request.row.num_cached_tokens.is_none();
    Ok(if is_compact { SpanOfRequest::Server(request.into()) } else { SpanOfRequest::Request(Box::new(request)) })
}

/// Reads a span of unmodified vLLM: it has no events, starts when the request arrives and has durations as attributes. Those of the
/// server begin at the arrival. Those of the engine follow each other, from the queue to the last token, but the span does
/// not say when they begin: they are put as late as the responses allow.
///
/// # Source
/// vLLM 0.32, `vllm/v1/engine/output_processor.py`: queue, prefill and decode are parts of the engine's clock, the others of the server's.
fn from_stock_span(start_ns: Option<u64>, attributes: &Attributes, row: &mut RequestRow) -> Result<(), Fault> {
    let missing =
        || (DropReason::Incomplete, "neither events nor startTimeUnixNano and gen_ai.latency.e2e are there".to_owned());
    let duration = |key: &str| attributes.seconds_as_ns(&format!("gen_ai.latency.{key}"));
    let start_ns = start_ns.ok_or_else(missing)?;
    let (first, e2e) = (duration("time_to_first_token")?, duration("e2e")?);
    let after = |ns: u64| Whole::from(start_ns.saturating_add(ns));
    row.arrived_ns = Some(start_ns.into());
    row.first_response_ns = first.map(after);
    row.departed_ns = Some(after(e2e.ok_or_else(missing)?));
    let parts = (duration("time_in_queue")?, duration("time_in_model_prefill")?, duration("time_in_model_decode")?);
    if let ((Some(queue), Some(prefill), Some(decode)), Some(first), Some(e2e)) = (parts, first, e2e) {
        let first_token = queue.saturating_add(prefill);
        let before = first.saturating_sub(first_token).min(e2e.saturating_sub(first_token.saturating_add(decode)));
        let times =
            [0, queue, first_token, first_token.saturating_add(decode)].map(|ns| after(before.saturating_add(ns)));
        [row.queued_ns, row.scheduled_ns, row.first_token_ns, row.finished_ns] = times.map(Some);
    }
    Ok(())
}

fn from_events(row: &mut RequestRow, events: &mut [SpanEvent], is_monotonic: bool) -> Result<(), Fault> {
    let time = |event: &SpanEvent| (if is_monotonic { event.monotonic_ns } else { event.wall_ns }).map(Whole::from);
    events.sort_by_key(|event| time(event).unwrap_or(u64::MAX.into()));
    let mut preempted = 0_u64;
    for event in events.iter() {
        let (at, attributes) = (time(event), &event.attributes);
        let whole = |key: &str| attributes.whole(key).map(|number| number.map(Whole::from));
        let step = whole("scheduler.step")?;
        let is_resume = attributes.text("schedule.kind") == Some("RESUME");
        match event.kind {
            "ARRIVED" => row.arrived_ns = row.arrived_ns.or(at),
            "HANDOFF_TO_CORE" => row.handed_over_ns = row.handed_over_ns.or(at),
            "FIRST_RESPONSE" => row.first_response_ns = row.first_response_ns.or(at),
            "DEPARTED" => row.departed_ns = row.departed_ns.or(at),
            "ABORTED" => row.finish_status = row.finish_status.take().or(Some("aborted".into())),
            "QUEUED" => row.queued_ns = row.queued_ns.or(at),
            "SCHEDULED" if !is_resume && row.scheduled_ns.is_none() && row.scheduled_step.is_none() => {
                (row.scheduled_ns, row.scheduled_step) = (at, step);
            }
            "FIRST_TOKEN" if row.first_token_ns.is_none() && row.first_token_step.is_none() => {
                (row.first_token_ns, row.first_token_step) = (at, step);
            }
            "PREEMPTED" => {
                preempted += 1;
                row.preempted_ns.extend(at.map(Whole::get));
                row.preempted_steps.extend(step.map(Whole::get));
            }
            "SCHEDULED" if is_resume => {
                row.resumed_ns.extend(at.map(Whole::get));
                row.resumed_steps.extend(step.map(Whole::get));
            }
            "FINISHED" => {
                (row.finished_ns, row.finished_step) = (at, step);
                row.num_output_tokens = whole("decode_done_tokens")?.or(row.num_output_tokens);
                row.finish_status =
                    attributes.first_text(&["finish.status"]).map(Into::into).or(row.finish_status.take());
            }
            _ => {}
        }
        if CORE_EVENTS.contains(&event.kind) {
            // After a preemption the prompt that is computed again includes the generated tokens.
            if preempted == 0 && !is_resume {
                row.num_prompt_tokens = row.num_prompt_tokens.or(whole("prefill_total_tokens")?);
            }
            row.max_output_tokens = row.max_output_tokens.or(whole("decode_max_tokens")?);
            let counted = whole("num_preemptions")?;
            row.num_preemptions = row.num_preemptions.max(counted).max(Some(preempted.into()));
        }
    }
    Ok(())
}

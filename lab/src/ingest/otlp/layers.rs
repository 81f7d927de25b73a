//! Joins the server's and the engine's spans of the same requests.

use std::collections::{BTreeMap, HashMap};

use super::attributes::Fault;
use super::request_span::RequestSpan;
use super::source::Faults;
use crate::ingest::{Reason, RequestRow};

/// A request from all spans that report it.
pub(super) struct JoinedRequest {
    /// Index of the source that its row belongs to.
    pub(super) source: usize,
    pub(super) model: Option<String>,
    pub(super) row: RequestRow,
    /// Whether the engine reports it.
    pub(super) has_core: bool,
}

/// Numbers of requests by who reports them.
#[derive(Debug, Default, PartialEq)]
pub(super) struct LayerCounts {
    /// Requests that server and engine report.
    pub(super) both: u64,
    pub(super) core_only: u64,
    pub(super) api_only: u64,
    /// Engine requests that share one request of the server (several prompts in it).
    pub(super) shared: u64,
    /// Spans on another clock than the others.
    pub(super) other_clock: u64,
}

/// Joins the request spans of one service, each with the index of its source.
pub(super) fn join(spans: Vec<(usize, RequestSpan)>, faults: &mut Faults) -> (Vec<JoinedRequest>, LayerCounts) {
    let mut counts = LayerCounts::default();
    let is_monotonic = spans.iter().any(|(_, span)| span.is_monotonic);
    let (mut api, mut core) = (BTreeMap::new(), BTreeMap::new());
    for (source, span) in spans {
        let id = span.row.request_id.clone();
        if span.is_monotonic != is_monotonic {
            counts.other_clock += 1;
            faults.add(Fault::missing(format!("request {id} has no ts.monotonic, others have")));
            continue;
        }
        let layer: &mut BTreeMap<String, (usize, RequestSpan)> = if span.is_core { &mut core } else { &mut api };
        match layer.get_mut(&id) {
            None => {
                layer.insert(id, (source, span));
            }
            Some((_, first)) => {
                if !first.row.complete(span.row) {
                    faults.add(Fault { reason: Reason::Duplicate, text: format!("request {id} is there twice") });
                }
            }
        }
    }
    let with_id = api.iter().filter(|(_, (_, span))| span.span_id != 0);
    let by_span: HashMap<u64, &str> = with_id.map(|(id, (_, span))| (span.span_id, id.as_str())).collect();
    let api_ids: Vec<Option<String>> = core.values().map(|(_, span)| server_id(span, &api, &by_span)).collect();
    let mut siblings: HashMap<&str, u64> = HashMap::new();
    for id in api_ids.iter().flatten() {
        *siblings.entry(id).or_default() += 1;
    }
    let mut joined = Vec::with_capacity(core.len().max(api.len()));
    for ((source, span), api_id) in core.into_values().zip(&api_ids) {
        let mut request = JoinedRequest { source, model: span.model, row: span.row, has_core: true };
        match api_id.as_ref().and_then(|id| Some((id.as_str(), api.get(id)?))) {
            None => counts.core_only += 1,
            Some((id, (_, server))) => {
                let is_shared = siblings.get(id).is_some_and(|count| *count > 1);
                attach(&mut request, server, is_shared);
                counts.both += 1;
                counts.shared += u64::from(is_shared);
            }
        }
        joined.push(request);
    }
    api.retain(|id, _| !siblings.contains_key(id.as_str()));
    counts.api_only = api.len() as u64;
    joined.extend(api.into_values().map(|(source, span)| JoinedRequest {
        source,
        model: span.model,
        row: span.row,
        has_core: false,
    }));
    joined.sort_by(|one, other| order(&one.row).cmp(&order(&other.row)));
    (joined, counts)
}

/// The server's id of an engine request: the same id, the id without the `-0` or `-0-1a2b3c4d` appended for each prompt, or
/// that of the parent span.
fn server_id(
    span: &RequestSpan,
    api: &BTreeMap<String, (usize, RequestSpan)>,
    by_span: &HashMap<u64, &str>,
) -> Option<String> {
    const MOST_APPENDED: usize = 2;
    let mut id = span.row.request_id.as_str();
    for _ in 0..=MOST_APPENDED {
        if api.contains_key(id) {
            return Some(id.to_owned());
        }
        let Some((shorter, _)) = id.rsplit_once('-') else { break };
        id = shorter;
    }
    by_span.get(&span.parent_span_id).map(|id| (*id).to_owned())
}

fn attach(request: &mut JoinedRequest, server: &RequestSpan, is_shared: bool) {
    let (row, from) = (&mut request.row, &server.row);
    row.arrived_ns = from.arrived_ns;
    row.handed_over_ns = from.handed_over_ns;
    if !is_shared {
        // With several prompts in a request, its first response may be any prompt's.
        row.first_response_ns = from.first_response_ns;
        row.departed_ns = from.departed_ns;
        row.num_prompt_tokens = row.num_prompt_tokens.or(from.num_prompt_tokens);
        row.num_output_tokens = row.num_output_tokens.or(from.num_output_tokens);
        row.finish_status = row.finish_status.take().or(from.finish_status.clone());
    }
    request.model = request.model.take().or(server.model.clone());
}

/// Sorts by arrival or the first known time, then by id.
fn order(row: &RequestRow) -> (bool, Option<u64>, &str) {
    let first = row.arrived_ns.or(row.handed_over_ns).or(row.queued_ns).or(row.scheduled_ns).or(row.first_token_ns);
    (first.is_none(), first, &row.request_id)
}

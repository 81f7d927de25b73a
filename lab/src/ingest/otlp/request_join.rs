//! Joins the server's and the engine's spans of the same requests.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap};

use super::attributes::Faults;
use super::request_span::RequestSpan;
use crate::ingest::{Reason, RequestRow};

/// Joins the request spans of one service. A request that both report has the engine's span, with the server's times in its row.
pub(super) fn join(spans: Vec<RequestSpan>, faults: &mut Faults, notes: &mut Vec<String>) -> Vec<RequestSpan> {
    let is_monotonic = spans.iter().any(|span| span.is_monotonic);
    let (mut server, mut engine) = (BTreeMap::new(), BTreeMap::new());
    for span in spans {
        let id = span.row.request_id.clone();
        if span.is_monotonic != is_monotonic {
            faults.add((Reason::Incomplete, format!("request {id} has no ts.monotonic, others have")));
            continue;
        }
        let layer = if span.is_core { &mut engine } else { &mut server };
        match layer.entry(id) {
            Entry::Vacant(place) => {
                place.insert(span);
            }
            Entry::Occupied(known) => {
                faults.add((Reason::Duplicate, format!("request {} is there twice", known.key())));
            }
        }
    }
    let by_span: HashMap<u64, &str> =
        server.iter().filter_map(|(id, span)| Some((span.span_id?, id.as_str()))).collect();
    let server_ids: Vec<Option<String>> = engine.values().map(|span| server_id(span, &server, &by_span)).collect();
    let mut prompts: HashMap<&str, u64> = HashMap::new();
    for id in server_ids.iter().flatten() {
        *prompts.entry(id).or_default() += 1;
    }
    for (span, id) in engine.values_mut().zip(&server_ids) {
        if let Some(of_server) = id.as_ref().and_then(|id| server.get(id)) {
            attach(span, of_server, id.as_deref().and_then(|id| prompts.get(id)).is_some_and(|count| *count > 1));
        }
    }
    server.retain(|id, _| !prompts.contains_key(id.as_str()));
    let both = server_ids.iter().flatten().count();
    if both > 0 {
        notes.push(format!(
            "{both} requests are reported by server and engine, {} by the engine alone, {} by the server alone",
            engine.len() - both,
            server.len()
        ));
    }
    let mut joined: Vec<RequestSpan> = engine.into_values().chain(server.into_values()).collect();
    joined.sort_by(|one, other| order(&one.row).cmp(&order(&other.row)));
    joined
}

/// The server's id of an engine request: the same id, the id without the `-0` or `-0-1a2b3c4d` appended for each prompt, or
/// that of the parent span.
fn server_id(
    span: &RequestSpan,
    server: &BTreeMap<String, RequestSpan>,
    by_span: &HashMap<u64, &str>,
) -> Option<String> {
    const MOST_APPENDED: usize = 2;
    let ids = std::iter::successors(Some(span.row.request_id.as_str()), |id| Some(id.rsplit_once('-')?.0));
    let known = ids.take(MOST_APPENDED + 1).find(|id| server.contains_key(*id));
    known.or_else(|| by_span.get(&span.parent_span_id?).copied()).map(str::to_owned)
}

fn attach(request: &mut RequestSpan, server: &RequestSpan, is_shared: bool) {
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

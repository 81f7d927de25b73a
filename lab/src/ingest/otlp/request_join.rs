//! Joins the server's and the engine's spans of the same requests.
#![expect(clippy::indexing_slicing, reason = "places are those of spans that were found")]

use std::collections::HashMap;
use std::num::NonZeroU64;

use super::attributes::Faults;
use super::request_span::{RequestSpan, ServerSpan, SpanOrigin};
use crate::ingest::{DropReason, RequestRow, Whole};

/// Joins the request spans of one service. A request that both report has the engine's span, with the server's times in its row.
pub(super) fn join(
    mut engine: Vec<RequestSpan>,
    mut server: Vec<ServerSpan>,
    faults: &mut Faults,
    notes: &mut Vec<String>,
) -> Vec<RequestSpan> {
    let mut origins = engine.iter().map(|span| &span.origin).chain(server.iter().map(|span| &span.origin));
    let is_monotonic = origins.any(|origin| origin.is_monotonic);
    let mut is_of_clock = |origin: &SpanOrigin, id: &str| {
        let is_so = origin.is_monotonic == is_monotonic;
        if !is_so {
            faults.add((DropReason::Incomplete, format!("request {id} has no ts.monotonic, others have")));
        }
        is_so
    };
    engine.retain(|span| is_of_clock(&span.origin, &span.row.request_id));
    server.retain(|span| is_of_clock(&span.origin, &span.request_id));
    // Where no scheduler speaks, the spans of unmodified vLLM are whole rows.
    if engine.iter().any(|span| span.origin.is_core) {
        server.extend(engine.extract_if(.., |span| !span.origin.is_core).map(ServerSpan::from));
    } else {
        engine.extend(server.drain(..).map(RequestSpan::from));
    }
    keep_first(&mut engine, |span| &span.row.request_id, faults);
    keep_first(&mut server, |span| &span.request_id, faults);
    let of_server = places(&engine, &server);
    let mut prompts = vec![0_u32; server.len()];
    of_server.iter().flatten().for_each(|at| prompts[*at] += 1);
    for (span, at) in engine.iter_mut().zip(&of_server) {
        if let Some(at) = *at {
            attach(span, &server[at], prompts[at] > 1);
        }
    }
    let both = of_server.iter().flatten().count();
    let by_engine = engine.len() - both;
    let alone = server.into_iter().zip(prompts).filter(|(_, prompts)| *prompts == 0);
    let before = engine.len();
    engine.extend(alone.map(|(span, _)| RequestSpan::from(span)));
    if both > 0 {
        notes.push(format!(
            "{both} requests are reported by server and engine, {by_engine} by the engine alone, {} by the server alone",
            engine.len() - before
        ));
    }
    engine.sort_unstable_by(|one, other| order(&one.row).cmp(&order(&other.row)));
    engine
}

/// Drops all but the first span of an id.
fn keep_first<T>(spans: &mut Vec<T>, id: impl Fn(&T) -> &str, faults: &mut Faults) {
    let by_id = by_id(spans, &id);
    let is_repeated = |pair: &&[usize]| id(&spans[pair[0]]) == id(&spans[pair[1]]);
    let repeated: Vec<usize> = by_id.windows(2).filter(is_repeated).map(|pair| pair[1]).collect();
    if repeated.is_empty() {
        return;
    }
    let mut is_repeated = vec![false; spans.len()];
    for at in repeated {
        faults.add((DropReason::Duplicate, format!("request {} is there twice", id(&spans[at]))));
        is_repeated[at] = true;
    }
    let mut is_repeated = is_repeated.into_iter();
    spans.retain(|_| is_repeated.next() == Some(false));
}

/// The places of spans, sorted by id. Those of equal ids stay in order.
fn by_id<T>(spans: &[T], id: impl Fn(&T) -> &str) -> Vec<usize> {
    let mut places: Vec<usize> = (0..spans.len()).collect();
    places.sort_by(|one, other| id(&spans[*one]).cmp(id(&spans[*other])));
    places
}

/// The place of each engine span's server span: the one with the same id, with the id without the `-0` or `-0-1a2b3c4d`
/// appended for each prompt, or the parent span.
fn places(engine: &[RequestSpan], server: &[ServerSpan]) -> Vec<Option<usize>> {
    const MOST_APPENDED: usize = 2;
    let by_id = by_id(server, |span| &span.request_id);
    let by_span: HashMap<NonZeroU64, usize> =
        server.iter().enumerate().filter_map(|(at, span)| Some((span.origin.span_id?, at))).collect();
    let of = |span: &RequestSpan| {
        let mut ids = std::iter::successors(Some(&*span.row.request_id), |id| Some(id.rsplit_once('-')?.0))
            .take(MOST_APPENDED + 1);
        let named = |id: &str| by_id.binary_search_by(|at| (*server[*at].request_id).cmp(id)).ok().map(|at| by_id[at]);
        ids.find_map(named).or_else(|| by_span.get(&span.origin.parent_span_id?).copied())
    };
    engine.iter().map(of).collect()
}

fn attach(request: &mut RequestSpan, server: &ServerSpan, is_shared: bool) {
    let row = &mut request.row;
    row.arrived_ns = server.arrived_ns;
    row.handed_over_ns = server.handed_over_ns;
    row.temperature = row.temperature.or(server.temperature);
    row.top_p = row.top_p.or(server.top_p);
    row.max_output_tokens = row.max_output_tokens.or(server.max_output_tokens);
    if !is_shared {
        // With several prompts in a request, its first response may be any prompt's.
        row.first_response_ns = server.first_response_ns;
        row.departed_ns = server.departed_ns;
        row.num_prompt_tokens = row.num_prompt_tokens.or(server.num_prompt_tokens);
        row.num_output_tokens = row.num_output_tokens.or(server.num_output_tokens);
        row.finish_status = row.finish_status.take().or_else(|| server.finish_status.clone());
    }
    request.origin.model = request.origin.model.take().or(server.origin.model.clone());
}

/// Sorts by arrival or the first known time, then by id.
fn order(row: &RequestRow) -> (bool, Option<Whole>, &str) {
    let first = row.arrived_ns.or(row.handed_over_ns).or(row.queued_ns).or(row.scheduled_ns).or(row.first_token_ns);
    (first.is_none(), first, &row.request_id)
}

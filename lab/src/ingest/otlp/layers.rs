//! What server and engine say of the same requests, joined. Uses `journey`, `request`.

use std::collections::{BTreeMap, HashMap};

use super::journey::{Journey, Layer};
use super::source::Faults;
use crate::ingest::{Reason, RequestRow};

/// A request's row, the model it was for and the source that its row belongs to.
pub(super) struct Whole {
    pub(super) source: usize,
    pub(super) model: Option<String>,
    pub(super) row: RequestRow,
    /// Whether the engine itself was heard.
    pub(super) has_core: bool,
}

/// What was found while joining.
#[derive(Debug, Default, PartialEq)]
pub(super) struct LayerCounts {
    /// Requests that both layers speak of.
    pub(super) both: u64,
    /// Requests that only the engine speaks of.
    pub(super) core_only: u64,
    /// Requests that only the server speaks of.
    pub(super) api_only: u64,
    /// Engine requests that share one request of the server's (several prompts in it).
    pub(super) shared: u64,
    /// Requests on another clock than the others.
    pub(super) other_clock: u64,
}

/// Joins the journeys of one service, each with the index of its source.
pub(super) fn join(journeys: Vec<(usize, Journey)>, faults: &mut Faults) -> (Vec<Whole>, LayerCounts) {
    let mut counts = LayerCounts::default();
    let is_monotonic = journeys.iter().any(|(_, journey)| journey.is_monotonic);
    let mut of_layer: [BTreeMap<String, (usize, Journey)>; 2] = Default::default();
    for (source, journey) in journeys {
        if journey.is_monotonic != is_monotonic {
            counts.other_clock += 1;
            faults.add(
                Reason::Incomplete,
                format!("request {} has no ts.monotonic, others have", journey.row.request_id),
            );
            continue;
        }
        let layer = &mut of_layer[usize::from(journey.layer == Layer::Core)];
        match layer.get_mut(&journey.row.request_id) {
            None => {
                layer.insert(journey.row.request_id.clone(), (source, journey));
            }
            Some((_, first)) => {
                if !complete(&mut first.row, &journey.row) {
                    faults.add(Reason::Duplicate, format!("request {} is there twice", journey.row.request_id));
                }
            }
        }
    }
    let [mut api, core] = of_layer;
    let by_span: HashMap<u64, String> = api
        .values()
        .filter(|(_, journey)| journey.span_id != 0)
        .map(|(_, j)| (j.span_id, j.row.request_id.clone()))
        .collect();
    let api_of: Vec<Option<String>> = core.values().map(|(_, journey)| server_id(journey, &api, &by_span)).collect();
    let mut children: HashMap<&str, u64> = HashMap::new();
    for id in api_of.iter().flatten() {
        *children.entry(id).or_default() += 1;
    }
    let mut wholes = Vec::with_capacity(core.len().max(api.len()));
    let mut used = Vec::new();
    for ((source, journey), api_id) in core.into_values().zip(&api_of) {
        let mut whole = Whole { source, model: journey.model, row: journey.row, has_core: true };
        match api_id.as_ref().and_then(|id| Some((id, api.get(id)?))) {
            None => counts.core_only += 1,
            Some((id, (_, server))) => {
                let siblings = children.get(id.as_str()).copied().unwrap_or(1);
                attach(&mut whole, server, siblings > 1);
                counts.both += 1;
                counts.shared += u64::from(siblings > 1);
                used.push(id.clone());
            }
        }
        wholes.push(whole);
    }
    for id in used {
        api.remove(&id);
    }
    counts.api_only = api.len() as u64;
    let left = api.into_values();
    wholes.extend(left.map(|(source, journey)| Whole {
        source,
        model: journey.model,
        row: journey.row,
        has_core: false,
    }));
    wholes.sort_by(|one, other| order(&one.row).cmp(&order(&other.row)));
    (wholes, counts)
}

/// The server's id of an engine's request: the same, the same with `-0` or `-0-1a2b3c4d` appended for each of its prompts, or that
/// of the span which is its parent.
fn server_id(
    journey: &Journey,
    api: &BTreeMap<String, (usize, Journey)>,
    by_span: &HashMap<u64, String>,
) -> Option<String> {
    const MOST_APPENDED: usize = 2;
    let mut id = journey.row.request_id.as_str();
    for _ in 0..=MOST_APPENDED {
        if api.contains_key(id) {
            return Some(id.to_owned());
        }
        let Some((shorter, _)) = id.rsplit_once('-') else { break };
        id = shorter;
    }
    by_span.get(&journey.parent_span_id).cloned()
}

fn attach(whole: &mut Whole, server: &Journey, is_shared: bool) {
    let (row, from) = (&mut whole.row, &server.row);
    row.arrived_ns = from.arrived_ns;
    row.handed_over_ns = from.handed_over_ns;
    if !is_shared {
        // With several prompts in a request its first response may be any prompt's.
        row.first_response_ns = from.first_response_ns;
        row.departed_ns = from.departed_ns;
        row.num_prompt_tokens = row.num_prompt_tokens.or(from.num_prompt_tokens);
        row.num_output_tokens = row.num_output_tokens.or(from.num_output_tokens);
        row.finish_status = row.finish_status.take().or(from.finish_status.clone());
    }
    whole.model = whole.model.take().or(server.model.clone());
}

/// Fills what is absent in a row from another of the same request and layer. False, and nothing done, where that one adds nothing
/// or contradicts.
fn complete(row: &mut RequestRow, other: &RequestRow) -> bool {
    fn fill<T: PartialEq + Clone>(into: &mut Option<T>, from: &Option<T>, state: &mut (bool, bool)) {
        match (into.as_ref(), from) {
            (Some(one), Some(other)) => state.1 |= one != other,
            (None, Some(_)) => {
                into.clone_from(from);
                state.0 = true;
            }
            (_, None) => {}
        }
    }
    let mut filled = row.clone();
    let mut state = (false, false);
    macro_rules! fill_all {
        ($($field:ident),*) => { $(fill(&mut filled.$field, &other.$field, &mut state);)* };
    }
    fill_all!(
        arrived_ns,
        handed_over_ns,
        queued_ns,
        scheduled_ns,
        first_token_ns,
        finished_ns,
        first_response_ns,
        departed_ns,
        scheduled_step,
        first_token_step,
        finished_step,
        num_prompt_tokens,
        num_cached_tokens,
        num_output_tokens,
        finish_status
    );
    filled.num_preemptions = filled.num_preemptions.max(other.num_preemptions);
    let (added, contradicts) = state;
    if added && !contradicts {
        *row = filled;
    }
    added && !contradicts
}

/// By arrival, or by the first thing known; then by id.
fn order(row: &RequestRow) -> (bool, Option<u64>, &str) {
    let first = row.arrived_ns.or(row.handed_over_ns).or(row.queued_ns).or(row.scheduled_ns).or(row.first_token_ns);
    (first.is_none(), first, &row.request_id)
}

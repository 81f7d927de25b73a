//! The load of a capture: the requests that can be sent again, at their own times, with their own lengths and prefixes.

use crate::ingest::{DropReason, Dropped, RequestRow, Whole, disagreeing_chains};
use ridgepoint::Result;
use ridgepoint_replay::workload::{Content, FixedList, Segment, WorkloadRequest};

/// The requests of a capture as a load.
#[derive(Debug)]
pub(super) struct CapturedLoad {
    /// The requests, in the order in which they are rows.
    pub(super) rows: Vec<RequestRow>,
    /// The same as a load that begins with the first of them.
    pub(super) list: FixedList,
    /// Requests that cannot be sent again, by reason.
    pub(super) dropped: Dropped,
    /// Remarks.
    pub(super) notes: Vec<String>,
}

/// Makes the load. `block_size` is that of blocks whose hashes come without one.
///
/// # Errors
/// No request that can be sent, and those of [`FixedList::new`].
pub(super) fn load(mut rows: Vec<RequestRow>, block_size: u32) -> Result<CapturedLoad> {
    let (mut dropped, mut notes) = (Dropped::default(), Vec::new());
    let all = rows.len();
    rows.retain(|row| {
        row.arrival_ns().is_some() && row.num_prompt_tokens > Some(Whole::ZERO) && row.num_output_tokens.is_some()
    });
    let complete = rows.len();
    dropped.add_many(DropReason::Incomplete, (all - complete) as u64);
    rows.retain(|row| row.num_output_tokens != Some(Whole::ZERO));
    dropped.add_many(DropReason::Empty, (complete - rows.len()) as u64);
    if rows.iter().any(|row| row.arrived_ns.is_none()) {
        notes.push("requests without an arrival are sent when the engine queued them".to_owned());
    }
    rows.sort_by_key(|row| (row.arrival_ns(), row.number()));
    let has_hashes = rows.iter().any(|row| !row.block_hashes.is_empty());
    let has_hits = rows.iter().any(|row| row.num_cached_tokens > Some(Whole::ZERO));
    if has_hits && !has_hashes {
        notes.push(
            "the capture reports how many tokens were cached, but not from which prompts: the replay takes the same number as cached".to_owned(),
        );
    } else if !has_hits && !has_hashes {
        notes.push("the capture reports no cached tokens: every prompt is computed whole".to_owned());
    }
    notes.extend(disagreeing_chains(&rows));
    let start_ns = rows.first().and_then(RequestRow::arrival_ns).unwrap_or(0);
    let request = |row: &RequestRow| {
        let length = |tokens: Option<Whole>| u32::try_from(tokens.map_or(0, Whole::get)).unwrap_or(u32::MAX);
        let prompt = length(row.num_prompt_tokens);
        let at_ns = row.arrival_ns().unwrap_or(start_ns).saturating_sub(start_ns);
        WorkloadRequest {
            content: content(row, prompt, block_size),
            sampling: row.own_sampling(),
            num_cached_tokens: if has_hashes { 0 } else { length(row.num_cached_tokens).min(prompt) },
            ..WorkloadRequest::new(at_ns, prompt, length(row.num_output_tokens))
        }
    };
    let list = FixedList::new(rows.iter().map(request).collect())?;
    Ok(CapturedLoad { rows, list, dropped, notes })
}

/// The full blocks of a prompt as segments: equal hashes are equal segments.
fn content(row: &RequestRow, num_prompt_tokens: u32, block_size: u32) -> Option<Content> {
    let num_tokens = row.block_size.unwrap_or(block_size).max(1);
    let most = (num_prompt_tokens / num_tokens) as usize;
    let segments: Content = row.block_hashes.iter().take(most).map(|id| Segment { id: *id, num_tokens }).collect();
    (!segments.is_empty()).then_some(segments)
}

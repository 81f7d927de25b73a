//! Snapshots of requests: read from `step.REQUEST_SNAPSHOT` events and put into their steps.
#![expect(clippy::indexing_slicing, reason = "groups of chunk_by are not empty; the position was found")]

use ridgepoint::Request;
use serde::Deserialize;

use super::attributes::{Attributes, Fault};
use crate::ingest::{StepRecord, StepTrace};

/// One request in one step, from a `step.REQUEST_SNAPSHOT` event.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
pub(super) struct Snapshot {
    #[serde(rename = "step.id")]
    pub(super) step_id: u64,
    #[serde(rename = "request.phase")]
    pub(super) phase: Phase,
    #[serde(rename = "request.num_computed_tokens")]
    pub(super) num_computed_tokens: u32,
    #[serde(rename = "request.scheduled_tokens_this_step")]
    pub(super) num_scheduled_tokens: u32,
    #[serde(rename = "request.num_prompt_tokens")]
    pub(super) num_prompt_tokens: u32,
    #[serde(rename = "request.num_output_tokens")]
    pub(super) num_output_tokens: Option<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub(super) enum Phase {
    #[serde(alias = "prefill")]
    Prefill,
    #[serde(alias = "decode")]
    Decode,
}

impl Snapshot {
    /// The tokens of prompt and output that exist so far.
    fn known_tokens(&self) -> u64 {
        u64::from(self.num_prompt_tokens) + u64::from(self.num_output_tokens.unwrap_or(0))
    }
}

/// A request's id and how many of its prompt tokens were found in the cache.
pub(super) type CacheHit = (String, u64);

/// Reads the attributes of `step.REQUEST_SNAPSHOT`.
pub(super) fn snapshot(attributes: &Attributes) -> Result<(Snapshot, Option<CacheHit>), Fault> {
    const EFFECTIVE: &str = "request.effective_prompt_len";
    let snapshot: Snapshot = attributes.get()?;
    let prompt = u64::from(snapshot.num_prompt_tokens);
    let effective = attributes.whole(EFFECTIVE)?;
    if effective.is_some_and(|effective| effective > prompt) {
        return Err(attributes.fault(EFFECTIVE, &format!("at most the {prompt} tokens of the prompt")));
    }
    let hit = attributes.first_text(&["request.id"]).zip(effective.map(|effective| prompt - effective));
    Ok((snapshot, hit))
}

/// Puts snapshots into the steps of a run, which are sorted by number, where they agree with the step's summary.
pub(super) fn attach(trace: &mut StepTrace, mut snapshots: Vec<Snapshot>, notes: &mut Vec<String>) {
    if snapshots.is_empty() {
        return;
    }
    snapshots.sort_by_key(|snapshot| snapshot.step_id);
    let counted_after = are_counted_after(&snapshots);
    let (mut complete, mut left_out) = (0, 0);
    for group in snapshots.chunk_by(|one, next| one.step_id == next.step_id) {
        let at = trace.steps.binary_search_by_key(&group[0].step_id, |step| step.step_id);
        let step = at.ok().map(|at| &mut trace.steps[at]).filter(|step| agrees(step, group));
        let requests: Option<Vec<Request>> = group.iter().map(|snapshot| request(snapshot, counted_after)).collect();
        let Some((step, requests)) = step.zip(requests) else {
            left_out += group.len();
            continue;
        };
        let cached = |phase: Phase| -> u64 {
            let of_phase = group.iter().zip(&requests).filter(|(snapshot, _)| snapshot.phase == phase);
            of_phase.map(|(_, request)| u64::from(request.num_computed_tokens)).sum()
        };
        step.prefill_kv_tokens = Some(cached(Phase::Prefill));
        step.decode_kv_tokens = Some(cached(Phase::Decode));
        step.requests = Some(requests);
        complete += 1;
    }
    let name = &trace.run.experiment;
    notes.push(format!("{complete} of {} steps of {name} have a snapshot of each request", trace.steps.len()));
    if left_out > 0 {
        notes.push(format!(
            "{left_out} snapshots left out: they contradict the summary of their step, or there is none"
        ));
    }
    if counted_after {
        notes.push(format!(
            "the snapshots of {name} count computed tokens after the step: converted to the count before it"
        ));
    }
}

fn agrees(step: &StepRecord, group: &[Snapshot]) -> bool {
    let of = |phase: Phase| {
        let snapshots = group.iter().filter(move |snapshot| snapshot.phase == phase);
        snapshots.fold((0u64, 0u64), |(count, tokens), next| (count + 1, tokens + u64::from(next.num_scheduled_tokens)))
    };
    of(Phase::Prefill) == (u64::from(step.num_prefill_requests), step.prefill_tokens)
        && of(Phase::Decode) == (u64::from(step.num_decode_requests), step.decode_tokens)
}

/// `None` for what no step does: nothing scheduled, or fewer tokens computed after it than in it.
fn request(snapshot: &Snapshot, counted_after: bool) -> Option<Request> {
    let Snapshot { num_computed_tokens, num_scheduled_tokens, .. } = *snapshot;
    let before =
        if counted_after { num_computed_tokens.checked_sub(num_scheduled_tokens)? } else { num_computed_tokens };
    let after = u64::from(before) + u64::from(num_scheduled_tokens);
    let samples = snapshot.phase == Phase::Decode || after >= snapshot.known_tokens();
    (num_scheduled_tokens > 0).then_some(Request::new(before, num_scheduled_tokens, samples))
}

/// Schedulers advance their count of computed tokens at one point of the step, and snapshots are taken before or after that.
/// Prefill chunks show which: a count from before the step never exceeds the prompt together with its chunk, and a count from
/// after it is never less than the chunk.
fn are_counted_after(snapshots: &[Snapshot]) -> bool {
    let chunks =
        || snapshots.iter().filter(|snapshot| snapshot.phase == Phase::Prefill && snapshot.num_scheduled_tokens > 0);
    let not_before = chunks().filter(|snapshot| {
        u64::from(snapshot.num_computed_tokens) + u64::from(snapshot.num_scheduled_tokens) > snapshot.known_tokens()
    });
    let not_after = chunks().filter(|snapshot| snapshot.num_computed_tokens < snapshot.num_scheduled_tokens);
    not_before.count() > not_after.count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(step_id: u64, prefill: (u32, u64), decode: u32) -> StepRecord {
        StepRecord {
            step_id,
            num_prefill_requests: prefill.0,
            prefill_tokens: prefill.1,
            num_decode_requests: decode,
            decode_tokens: u64::from(decode),
            ..StepRecord::default()
        }
    }

    fn snapshot(step_id: u64, is_prefill: bool, tokens: (u32, u32), prompt: u32, output: u32) -> Snapshot {
        Snapshot {
            step_id,
            phase: if is_prefill { Phase::Prefill } else { Phase::Decode },
            num_computed_tokens: tokens.0,
            num_scheduled_tokens: tokens.1,
            num_prompt_tokens: prompt,
            num_output_tokens: Some(output),
        }
    }

    fn attached(steps: &[StepRecord], snapshots: Vec<Snapshot>) -> (Vec<StepRecord>, Vec<String>) {
        let mut trace = StepTrace { steps: steps.to_vec(), ..StepTrace::default() };
        let mut notes = Vec::new();
        attach(&mut trace, snapshots, &mut notes);
        (trace.steps, notes)
    }

    #[test]
    fn a_step_gets_its_requests_and_their_cache() {
        let steps = [step(4, (1, 512), 2), step(9, (0, 0), 1)];
        let snapshots = vec![
            snapshot(9, false, (30, 1), 28, 3),
            snapshot(4, true, (1000, 512), 2000, 0),
            snapshot(4, false, (100, 1), 90, 11),
            snapshot(4, false, (200, 1), 150, 51),
            snapshot(5, false, (7, 1), 5, 2),
        ];
        let (steps, notes) = attached(&steps, snapshots);
        assert_eq!(notes.len(), 2);
        assert!(notes[0].starts_with("2 of 2 steps") && notes[1].starts_with("1 snapshots left out"), "{notes:?}");
        assert_eq!((steps[0].prefill_kv_tokens, steps[0].decode_kv_tokens), (Some(1000), Some(300)));
        // 1,512 of 2,000 prompt tokens: the chunk samples nothing.
        let chunk = Request::new(1000, 512, false);
        assert_eq!(steps[0].requests, Some(vec![chunk, Request::decode(100), Request::decode(200)]));
        assert_eq!(steps[1].requests, Some(vec![Request::decode(30)]));
    }

    #[test]
    fn snapshots_that_contradict_the_summary_are_left_out() {
        let steps = [step(1, (0, 0), 2), step(2, (1, 100), 0), step(3, (0, 0), 1)];
        let snapshots =
            vec![snapshot(1, false, (9, 1), 5, 5), snapshot(2, true, (0, 99), 99, 0), snapshot(3, false, (9, 1), 5, 5)];
        let (steps, notes) = attached(&steps, snapshots);
        assert!(notes[0].starts_with("1 of 3") && notes[1].starts_with("2 snapshots left out"), "{notes:?}");
        assert!(steps[0].requests.is_none() && steps[1].prefill_kv_tokens.is_none() && steps[2].requests.is_some());
    }

    #[test]
    fn counts_from_after_the_step_are_turned_back() {
        let steps = [step(1, (1, 700), 1), step(2, (1, 300), 0)];
        let snapshots = vec![
            snapshot(1, true, (700, 700), 1000, 0),
            snapshot(1, false, (51, 1), 40, 11),
            snapshot(2, true, (1000, 300), 1000, 0),
        ];
        let (steps, notes) = attached(&steps, snapshots);
        assert!(notes[1].contains("count computed tokens after the step"), "{notes:?}");
        let first = Request::new(0, 700, false);
        assert_eq!(steps[0].requests, Some(vec![first, Request::decode(50)]));
        assert_eq!(steps[1].requests, Some(vec![Request::prefill(300, 700)]));
    }
}

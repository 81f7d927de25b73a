//! Snapshots of requests put into their steps. Uses `step_event`, `step`.

use super::step_events::Snapshot;
use crate::ingest::StepRecord;
use ridgepoint::Request;

/// What became of the snapshots.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Joined {
    /// Steps that have their requests.
    pub(super) steps: u64,
    /// Steps whose snapshots contradict the summary, and snapshots that were left out for it.
    pub(super) contradicting_steps: u64,
    pub(super) contradicting: u64,
    /// Snapshots of steps that are not there.
    pub(super) orphans: u64,
    /// Whether the tokens computed were counted after the step.
    pub(super) counted_after: bool,
}

/// Puts snapshots into their steps (both in the order of step numbers) where they agree with the step's summary.
pub(super) fn join(steps: &mut [StepRecord], mut snapshots: Vec<Snapshot>) -> Joined {
    snapshots.sort_by_key(|snapshot| snapshot.step_id);
    let mut joined = Joined { counted_after: are_counted_after(&snapshots), ..Joined::default() };
    let mut steps = steps.iter_mut().peekable();
    for group in snapshots.chunk_by(|one, next| one.step_id == next.step_id) {
        let Some(step_id) = group.first().map(|snapshot| snapshot.step_id) else { continue };
        while steps.next_if(|step| step.step_id < step_id).is_some() {}
        let Some(step) = steps.next_if(|step| step.step_id == step_id) else {
            joined.orphans += group.len() as u64;
            continue;
        };
        let requests: Option<Vec<Request>> =
            group.iter().map(|snapshot| request(snapshot, joined.counted_after)).collect();
        match requests.filter(|_| agrees(step, group)) {
            Some(requests) => {
                let cached = |is_prefill: bool| -> u64 {
                    let of_phase =
                        group.iter().zip(&requests).filter(|(snapshot, _)| snapshot.is_prefill == is_prefill);
                    of_phase.map(|(_, request)| u64::from(request.num_computed_tokens)).sum()
                };
                step.prefill_kv_tokens = Some(cached(true));
                step.decode_kv_tokens = Some(cached(false));
                step.requests = Some(requests);
                joined.steps += 1;
            }
            None => {
                joined.contradicting_steps += 1;
                joined.contradicting += group.len() as u64;
            }
        }
    }
    joined
}

fn agrees(step: &StepRecord, group: &[Snapshot]) -> bool {
    let of = |is_prefill: bool| {
        let phase = group.iter().filter(move |snapshot| snapshot.is_prefill == is_prefill);
        phase.fold((0u64, 0u64), |(count, tokens), next| (count + 1, tokens + u64::from(next.num_scheduled_tokens)))
    };
    of(true) == (u64::from(step.num_prefill_requests), step.prefill_tokens)
        && of(false) == (u64::from(step.num_decode_requests), step.decode_tokens)
}

/// `None` for what no step does: nothing scheduled, or fewer tokens computed after it than in it.
fn request(snapshot: &Snapshot, counted_after: bool) -> Option<Request> {
    let Snapshot { num_computed_tokens, num_scheduled_tokens, .. } = *snapshot;
    let before =
        if counted_after { num_computed_tokens.checked_sub(num_scheduled_tokens)? } else { num_computed_tokens };
    let known = u64::from(snapshot.num_prompt_tokens) + u64::from(snapshot.num_output_tokens);
    let after = u64::from(before) + u64::from(num_scheduled_tokens);
    let samples = !snapshot.is_prefill || after >= known;
    (num_scheduled_tokens > 0).then_some(Request::new(before, num_scheduled_tokens, samples))
}

/// Schedulers advance their count of computed tokens at one point of the step, and traces tell it before or after that. Prompt
/// chunks give it away: together with its chunk a count from before never exceeds the prompt, and a count from after is never
/// less than the chunk.
fn are_counted_after(snapshots: &[Snapshot]) -> bool {
    let prompts = || snapshots.iter().filter(|snapshot| snapshot.is_prefill && snapshot.num_scheduled_tokens > 0);
    let not_before = prompts().filter(|snapshot| {
        let known = u64::from(snapshot.num_prompt_tokens) + u64::from(snapshot.num_output_tokens);
        u64::from(snapshot.num_computed_tokens) + u64::from(snapshot.num_scheduled_tokens) > known
    });
    let not_after = prompts().filter(|snapshot| snapshot.num_computed_tokens < snapshot.num_scheduled_tokens);
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
            is_prefill,
            num_computed_tokens: tokens.0,
            num_scheduled_tokens: tokens.1,
            num_prompt_tokens: prompt,
            num_output_tokens: output,
        }
    }

    #[test]
    fn a_step_gets_its_requests_and_their_cache() {
        let mut steps = [step(4, (1, 512), 2), step(9, (0, 0), 1)];
        let snapshots = vec![
            snapshot(9, false, (30, 1), 28, 3),
            snapshot(4, true, (1000, 512), 2000, 0),
            snapshot(4, false, (100, 1), 90, 11),
            snapshot(4, false, (200, 1), 150, 51),
            snapshot(5, false, (7, 1), 5, 2),
        ];
        let joined = join(&mut steps, snapshots);
        assert_eq!(joined, Joined { steps: 2, orphans: 1, ..Joined::default() });
        assert_eq!((steps[0].prefill_kv_tokens, steps[0].decode_kv_tokens), (Some(1000), Some(300)));
        // 1,512 of 2,000 prompt tokens: the chunk samples nothing.
        let chunk = Request::new(1000, 512, false);
        assert_eq!(steps[0].requests, Some(vec![chunk, Request::decode(100), Request::decode(200)]));
        assert_eq!(steps[1].requests, Some(vec![Request::decode(30)]));
    }

    #[test]
    fn snapshots_that_contradict_the_summary_are_left_out() {
        let mut steps = [step(1, (0, 0), 2), step(2, (1, 100), 0), step(3, (0, 0), 1)];
        let snapshots =
            vec![snapshot(1, false, (9, 1), 5, 5), snapshot(2, true, (0, 99), 99, 0), snapshot(3, false, (9, 1), 5, 5)];
        let joined = join(&mut steps, snapshots);
        assert_eq!((joined.steps, joined.contradicting_steps, joined.contradicting), (1, 2, 2));
        assert!(steps[0].requests.is_none() && steps[1].prefill_kv_tokens.is_none() && steps[2].requests.is_some());
    }

    #[test]
    fn counts_from_after_the_step_are_turned_back() {
        let mut steps = [step(1, (1, 700), 1), step(2, (1, 300), 0)];
        let snapshots = vec![
            snapshot(1, true, (700, 700), 1000, 0),
            snapshot(1, false, (51, 1), 40, 11),
            snapshot(2, true, (1000, 300), 1000, 0),
        ];
        let joined = join(&mut steps, snapshots);
        assert!(joined.counted_after);
        let first = Request::new(0, 700, false);
        assert_eq!(steps[0].requests, Some(vec![first, Request::decode(50)]));
        assert_eq!(steps[1].requests, Some(vec![Request::prefill(300, 700)]));
    }
}

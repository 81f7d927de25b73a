//! The events of scheduler steps as compact records.

use super::attributes::{Attributes, Fault};
use crate::ingest::StepRecord;
use crate::ingest::batch_summary::{Counts, step_record};

/// One request in one step, from a `step.REQUEST_SNAPSHOT` event.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Snapshot {
    pub(super) step_id: u64,
    pub(super) is_prefill: bool,
    pub(super) num_computed_tokens: u32,
    pub(super) num_scheduled_tokens: u32,
    pub(super) num_prompt_tokens: u32,
    pub(super) num_output_tokens: u32,
}

/// Reads the attributes of `step.BATCH_SUMMARY`.
pub(super) fn summary(attributes: Attributes<'_>) -> Result<StepRecord, Fault> {
    let step = step_record(&attributes)?;
    if attributes.optional::<u64>("step.ts_end_ns")?.is_some_and(|end_ns| end_ns < step.start_ns) {
        return Err(Fault::bad("step.ts_end_ns is before step.ts_start_ns"));
    }
    for (phase, tokens, requests) in [
        ("prefill", step.prefill_tokens, step.num_prefill_requests),
        ("decode", step.decode_tokens, step.num_decode_requests),
    ] {
        if requests == 0 && tokens > 0 {
            return Err(Fault::bad(format!("{tokens} {phase} tokens without a {phase} request")));
        }
    }
    Ok(step)
}

/// A request's id and how many of its prompt tokens were found in the cache.
pub(super) type CacheHit = (String, u64);

/// Reads the attributes of `step.REQUEST_SNAPSHOT`.
pub(super) fn snapshot(attributes: Attributes<'_>) -> Result<(Snapshot, Option<CacheHit>), Fault> {
    let is_prefill = match attributes.text("request.phase") {
        Some(phase) if phase.eq_ignore_ascii_case("PREFILL") => true,
        Some(phase) if phase.eq_ignore_ascii_case("DECODE") => false,
        Some(other) => return Err(Fault::bad(format!("request.phase is '{other}', expected PREFILL or DECODE"))),
        None => return Err(Fault::missing("request.phase is missing")),
    };
    let snapshot = Snapshot {
        step_id: attributes.required("step.id")?,
        is_prefill,
        num_computed_tokens: attributes.required("request.num_computed_tokens")?,
        num_scheduled_tokens: attributes.required("request.scheduled_tokens_this_step")?,
        num_prompt_tokens: attributes.required("request.num_prompt_tokens")?,
        num_output_tokens: attributes.optional("request.num_output_tokens")?.unwrap_or(0),
    };
    const EFFECTIVE: &str = "request.effective_prompt_len";
    let hit = match (attributes.text("request.id"), attributes.optional::<u64>(EFFECTIVE)?) {
        (Some(id), Some(effective)) => {
            let prompt = u64::from(snapshot.num_prompt_tokens);
            let cached = prompt.checked_sub(effective);
            let fault = || attributes.contradiction(EFFECTIVE, format!("at most the {prompt} tokens of the prompt"));
            Some((id.to_owned(), cached.ok_or_else(fault)?))
        }
        _ => None,
    };
    Ok((snapshot, hit))
}

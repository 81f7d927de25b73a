//! Checks of a step that comes from the attributes of vLLM's `step.BATCH_SUMMARY` events, which the OTLP event and the step csv both
//! carry.

use serde::Deserialize;

use super::step::{MAX_STEP_TOKENS, StepRecord};

/// The attribute that follows from others.
#[derive(Deserialize)]
pub(super) struct Sum {
    #[serde(rename = "batch.scheduled_tokens")]
    scheduled_tokens: Option<u64>,
}

/// Returns an attribute that contradicts another one, and what is expected of it.
pub(super) fn contradiction(step: &StepRecord, sum: &Sum) -> Option<(&'static str, String)> {
    let StepRecord { prefill_tokens, decode_tokens, .. } = *step;
    for (name, tokens, requests) in [
        ("batch.prefill_tokens", prefill_tokens, step.num_prefill_requests),
        ("batch.decode_tokens", decode_tokens, step.num_decode_requests),
    ] {
        if tokens < u64::from(requests) || (requests == 0 && tokens > 0) {
            return Some((name, format!("at least one token for each of {requests} requests, else 0")));
        }
        if tokens > MAX_STEP_TOKENS {
            return Some((name, format!("at most {MAX_STEP_TOKENS} tokens")));
        }
    }
    if sum.scheduled_tokens.is_some_and(|sum| Some(sum) != prefill_tokens.checked_add(decode_tokens)) {
        let expected = format!("the sum of {prefill_tokens} prefill and {decode_tokens} decode tokens");
        return Some(("batch.scheduled_tokens", expected));
    }
    let total = step.kv_blocks_total.filter(|total| step.kv_blocks_free.is_some_and(|free| free > *total))?;
    Some(("kv.blocks_free_gpu", format!("at most {total}, the number of blocks")))
}

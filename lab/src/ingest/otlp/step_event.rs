//! Events of scheduler steps as compact records. Uses `attributes`, `step`.

use super::attributes::{Attributes, Fault};
use crate::ingest::StepRecord;

/// One request in one step, as a snapshot tells it.
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
    let step = StepRecord {
        step_id: attributes.needed("step.id")?,
        start_ns: attributes.needed("step.ts_start_ns")?,
        num_prefill_requests: attributes.small_needed("batch.num_prefill_reqs")?,
        num_decode_requests: attributes.small_needed("batch.num_decode_reqs")?,
        prefill_tokens: attributes.needed("batch.prefill_tokens")?,
        decode_tokens: attributes.needed("batch.decode_tokens")?,
        num_running: attributes.small_count("queue.running_depth")?,
        num_waiting: attributes.small_count("queue.waiting_depth")?,
        num_finished: attributes.small_count("batch.num_finished")?,
        num_preempted: attributes.small_count("batch.num_preempted")?,
        kv_blocks_total: attributes.count("kv.blocks_total_gpu")?,
        kv_blocks_free: attributes.count("kv.blocks_free_gpu")?,
        ..StepRecord::default()
    };
    let sum = step.prefill_tokens.saturating_add(step.decode_tokens);
    let (prefills, decodes) = (u64::from(step.num_prefill_requests), u64::from(step.num_decode_requests));
    let fault = if attributes.count("batch.scheduled_tokens")?.is_some_and(|scheduled| scheduled != sum) {
        Some(format!("batch.scheduled_tokens is not prefill_tokens + decode_tokens = {sum}"))
    } else if step.prefill_tokens < prefills || (prefills == 0 && step.prefill_tokens > 0) {
        Some(format!("{} prefill tokens for {prefills} prefill requests", step.prefill_tokens))
    } else if step.decode_tokens < decodes || (decodes == 0 && step.decode_tokens > 0) {
        Some(format!("{} decode tokens for {decodes} decode requests", step.decode_tokens))
    } else if step.kv_blocks_free > step.kv_blocks_total && step.kv_blocks_total.is_some() {
        Some("more KV blocks free than there are".to_owned())
    } else if attributes.count("step.ts_end_ns")?.is_some_and(|end_ns| end_ns < step.start_ns) {
        Some("step.ts_end_ns is before step.ts_start_ns".to_owned())
    } else {
        None
    };
    fault.map_or(Ok(step), |fault| Err(Fault::Bad(fault)))
}

/// What a snapshot says of its request: id, prompt tokens found in the cache.
pub(super) type CacheHit = (String, u64);

/// Reads the attributes of `step.REQUEST_SNAPSHOT`.
pub(super) fn snapshot(attributes: Attributes<'_>) -> Result<(Snapshot, Option<CacheHit>), Fault> {
    let phase = attributes.text("request.phase");
    let is_prefill = match phase {
        Some(phase) if phase.eq_ignore_ascii_case("PREFILL") => true,
        Some(phase) if phase.eq_ignore_ascii_case("DECODE") => false,
        Some(other) => return Err(Fault::Bad(format!("request.phase is '{other}', expected PREFILL or DECODE"))),
        None => return Err(Fault::Missing("request.phase is missing".to_owned())),
    };
    let snapshot = Snapshot {
        step_id: attributes.needed("step.id")?,
        is_prefill,
        num_computed_tokens: attributes.small_needed("request.num_computed_tokens")?,
        num_scheduled_tokens: attributes.small_needed("request.scheduled_tokens_this_step")?,
        num_prompt_tokens: attributes.small_needed("request.num_prompt_tokens")?,
        num_output_tokens: attributes.small_count("request.num_output_tokens")?.unwrap_or(0),
    };
    let hit = match (attributes.text("request.id"), attributes.count("request.effective_prompt_len")?) {
        (Some(id), Some(effective)) => {
            let prompt = u64::from(snapshot.num_prompt_tokens);
            let cached = prompt.checked_sub(effective).ok_or_else(|| {
                Fault::Bad(format!("request.effective_prompt_len is {effective}, more than the prompt's {prompt}"))
            })?;
            Some((id.to_owned(), cached))
        }
        _ => None,
    };
    Ok((snapshot, hit))
}

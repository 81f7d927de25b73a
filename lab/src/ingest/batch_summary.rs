//! Steps from the attributes of vLLM's `step.BATCH_SUMMARY` events, which the OTLP event and the step csv both carry.

use ridgepoint::Error;
use ridgepoint::internals::input::Row;

use super::step::StepRecord;

/// Number of the step.
const ID: &str = "step.id";
/// Start of the step, ns.
pub(super) const START: &str = "step.ts_start_ns";
/// Attributes that every summary has.
pub(super) const REQUIRED: [&str; 6] = [ID, START, PREFILLS, DECODES, PREFILL_TOKENS, DECODE_TOKENS];

const PREFILLS: &str = "batch.num_prefill_reqs";
const DECODES: &str = "batch.num_decode_reqs";
const PREFILL_TOKENS: &str = "batch.prefill_tokens";
const DECODE_TOKENS: &str = "batch.decode_tokens";
const SCHEDULED_TOKENS: &str = "batch.scheduled_tokens";
const BLOCKS_TOTAL: &str = "kv.blocks_total_gpu";
const BLOCKS_FREE: &str = "kv.blocks_free_gpu";

/// The named counts of one record: a row of a csv file, or the attributes of an event.
pub(super) trait Counts {
    /// The error of a record.
    type Fault;

    /// Returns a number; `None` where the record does not have it.
    fn unsigned(&self, name: &str) -> Result<Option<u64>, Self::Fault>;

    /// Returns the fault of a number that should be something else.
    fn fault(&self, name: &str, expected: String) -> Self::Fault;

    /// Returns a number of a type; `None` where the record does not have it.
    fn count<T: TryFrom<u64>>(&self, name: &str) -> Result<Option<T>, Self::Fault> {
        let Some(number) = self.unsigned(name)? else { return Ok(None) };
        T::try_from(number).map(Some).map_err(|_| self.fault(name, format!("a whole number up to {}", u32::MAX)))
    }

    /// Returns a number that must be there.
    fn required<T: TryFrom<u64>>(&self, name: &str) -> Result<T, Self::Fault> {
        self.count(name)?.ok_or_else(|| self.fault(name, "a whole number".to_owned()))
    }
}

impl Counts for Row<'_> {
    type Fault = Error;

    fn unsigned(&self, column: &str) -> Result<Option<u64>, Error> {
        self.optional(column, |row, column| row.whole(column, 0..=u64::MAX))
    }

    fn fault(&self, column: &str, expected: String) -> Error {
        self.bad(column, expected)
    }
}

/// Reads a step.
///
/// # Errors
/// A count that is missing, is no whole number, or contradicts another.
pub(super) fn step_record<C: Counts>(counts: &C) -> Result<StepRecord, C::Fault> {
    let step = StepRecord {
        step_id: counts.required(ID)?,
        start_ns: counts.required(START)?,
        num_prefill_requests: counts.required(PREFILLS)?,
        num_decode_requests: counts.required(DECODES)?,
        prefill_tokens: counts.required(PREFILL_TOKENS)?,
        decode_tokens: counts.required(DECODE_TOKENS)?,
        num_running: counts.count("queue.running_depth")?,
        num_waiting: counts.count("queue.waiting_depth")?,
        num_finished: counts.count("batch.num_finished")?,
        num_preempted: counts.count("batch.num_preempted")?,
        kv_blocks_total: counts.count(BLOCKS_TOTAL)?,
        kv_blocks_free: counts.count(BLOCKS_FREE)?,
        ..StepRecord::default()
    };
    for (name, tokens, requests) in [
        (PREFILL_TOKENS, step.prefill_tokens, step.num_prefill_requests),
        (DECODE_TOKENS, step.decode_tokens, step.num_decode_requests),
    ] {
        if tokens < u64::from(requests) || (requests == 0 && tokens > 0) {
            return Err(counts.fault(name, format!("at least one token for each of {requests} requests, else 0")));
        }
    }
    let sum = step.prefill_tokens.checked_add(step.decode_tokens);
    if counts.count::<u64>(SCHEDULED_TOKENS)?.is_some_and(|scheduled| Some(scheduled) != sum) {
        let expected = format!("the sum of {} prefill and {} decode tokens", step.prefill_tokens, step.decode_tokens);
        return Err(counts.fault(SCHEDULED_TOKENS, expected));
    }
    if let (Some(free), Some(total)) = (step.kv_blocks_free, step.kv_blocks_total)
        && free > total
    {
        return Err(counts.fault(BLOCKS_FREE, format!("at most {total}, the number of blocks")));
    }
    Ok(step)
}

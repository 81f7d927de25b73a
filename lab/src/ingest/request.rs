//! Requests of a real engine or load generator as records, whatever trace or report they come from. Uses nothing else.

/// One request. Times are ns on one clock per run (the engine's monotonic clock in traces, the client's in reports); absent
/// is absent.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RequestRow {
    /// Id of the request, unique in its run.
    pub request_id: String,
    /// Sent by the client, or `api.ARRIVED` at the server.
    pub arrived_ns: Option<u64>,
    /// Handed to the engine (`api.HANDOFF_TO_CORE`).
    pub handed_over_ns: Option<u64>,
    /// In the scheduler's waiting queue (`journey.QUEUED`).
    pub queued_ns: Option<u64>,
    /// First scheduled (`journey.SCHEDULED`, kind FIRST).
    pub scheduled_ns: Option<u64>,
    /// First token out of the engine (`journey.FIRST_TOKEN`).
    pub first_token_ns: Option<u64>,
    /// Last token out of the engine (`journey.FINISHED`).
    pub finished_ns: Option<u64>,
    /// First token at the client or sent to it (`api.FIRST_RESPONSE`).
    pub first_response_ns: Option<u64>,
    /// Done at the client (`api.DEPARTED`).
    pub departed_ns: Option<u64>,
    /// Step in which it was first scheduled.
    pub scheduled_step: Option<u64>,
    /// Step of its first token.
    pub first_token_step: Option<u64>,
    /// Step of its end.
    pub finished_step: Option<u64>,
    /// Prompt tokens.
    pub num_prompt_tokens: Option<u64>,
    /// Prompt tokens found in the prefix cache.
    pub num_cached_tokens: Option<u64>,
    /// Tokens generated.
    pub num_output_tokens: Option<u64>,
    /// Times it was preempted.
    pub num_preemptions: Option<u32>,
    /// `stopped`, `length`, `aborted`, `ignored`, `error`.
    pub finish_status: Option<String>,
}

//! Arguments with which an engine does not start.

use ridgepoint::Deployment;

/// Tokens of a KV block that vLLM takes.
///
/// # Source
/// vLLM 0.15, `BlockSize` (`vllm/config/cache.py`).
const BLOCK_SIZES: [u32; 7] = [1, 8, 16, 32, 64, 128, 256];

/// Remarks on arguments with which vLLM does not start.
///
/// # Source
/// vLLM 0.15, `SchedulerConfig.verify_max_model_len` (`vllm/config/scheduler.py`), for the limits of a step.
pub(super) fn by_vllm(deployment: &Deployment) -> impl Iterator<Item = String> {
    let Deployment { max_num_batched_tokens: tokens, max_num_seqs: requests, block_size, .. } = *deployment;
    let budget = (tokens < requests)
        .then(|| format!("vLLM refuses max_num_batched_tokens = {tokens} that is less than max_num_seqs = {requests}"));
    let block = (!BLOCK_SIZES.contains(&block_size)).then(|| {
        let known = BLOCK_SIZES.map(|size| size.to_string()).join(", ");
        format!("vLLM refuses block_size = {block_size}: it takes one of {known}")
    });
    budget.into_iter().chain(block)
}

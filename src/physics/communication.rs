//! Messages between ranks: tensor-parallel sums, gathered logits, exchange around experts, pipeline hand-over.
//! Uses `ranks`.

use super::operator::OperatorGroup;
use super::ranks::Ranks;
use super::template::{Rows, Template, Work};

/// Bytes that each rank sends in a ring all-reduce.
///
/// # Formula
/// `2·(n − 1)/n · message`: a reduce-scatter and an all-gather.
///
/// # Source
/// Patarasuk and Yuan, Bandwidth optimal all-reduce algorithms (2009). Implementations that send more than this show
/// as a lower efficiency.
///
/// ```
/// assert_eq!(ridgepoint::physics::communication::all_reduce_sent_bytes(1000.0, 4), 1500.0);
/// ```
pub fn all_reduce_sent_bytes(message_bytes: f64, num_gpus: u64) -> f64 {
    let n = num_gpus.max(1) as f64;
    2.0 * (n - 1.0) / n * message_bytes
}

/// Bytes that each rank sends in an all-gather or receives in a reduce-scatter of `part_bytes` per rank.
///
/// # Formula
/// `(n − 1) · part`.
///
/// ```
/// assert_eq!(ridgepoint::physics::communication::all_gather_sent_bytes(1000.0, 4), 3000.0);
/// ```
pub fn all_gather_sent_bytes(part_bytes: f64, num_gpus: u64) -> f64 {
    (num_gpus.max(1) - 1) as f64 * part_bytes
}

/// Bytes per token that a rank hands to the next pipeline stage: hidden state and residual, each rank of a
/// tensor-parallel group sending its share.
///
/// # Formula
/// `2·d·b_activation / t`.
///
/// # Source
/// vLLM, `IntermediateTensors` (`hidden_states`, `residual`) and `send_tensor_dict` with `all_gather_group`.
///
/// ```
/// assert_eq!(ridgepoint::physics::communication::hand_over_bytes_per_token(4096, 2.0, 2), 8192.0);
/// ```
pub fn hand_over_bytes_per_token(hidden_size: u64, activation_bytes: f64, tensor_parallel_size: u64) -> f64 {
    2.0 * hidden_size as f64 * activation_bytes / tensor_parallel_size.max(1) as f64
}

fn template(name: &'static str, work: Work, calls: u64) -> Template {
    Template { name, group: OperatorGroup::Communication, work, calls }
}

/// `calls` sums of the residual stream over the tensor-parallel group.
pub(super) fn all_reduce(
    name: &'static str,
    hidden: u64,
    activation_bytes: f64,
    ranks: Ranks,
    calls: u64,
) -> Option<Template> {
    let work = Work::AllReduce { bytes_per_row: hidden as f64 * activation_bytes, num_gpus: ranks.tensor };
    (ranks.tensor > 1).then(|| template(name, work, calls))
}

/// The exchange before (`moe_dispatch`) or after (`moe_combine`) the experts of a data-parallel group.
///
/// vLLM's default back end, `allgather_reducescatter`: every replica's tokens go to all, whichever experts they visit.
pub(super) fn expert_exchange(
    name: &'static str,
    hidden: u64,
    activation_bytes: f64,
    ranks: Ranks,
) -> Option<Template> {
    let sent_bytes_per_row = all_gather_sent_bytes(hidden as f64 * activation_bytes, ranks.data);
    let work = Work::Exchange { rows: Rows::Padded, sent_bytes_per_row, num_gpus: ranks.data };
    (ranks.data > 1).then(|| template(name, work, 1))
}

/// Every rank gathers the logits of all vocabulary shards.
pub(super) fn logits_all_gather(vocab_rows: u64, activation_bytes: f64, ranks: Ranks) -> Option<Template> {
    let sent_bytes_per_row = all_gather_sent_bytes(vocab_rows as f64 * activation_bytes, ranks.tensor);
    let work = Work::Exchange { rows: Rows::Sampled, sent_bytes_per_row, num_gpus: ranks.tensor };
    (ranks.tensor > 1).then(|| template("logits_all_gather", work, 1))
}

/// Hand-over to the next stage, and the gather of its shares there, once per stage boundary.
pub(super) fn stage_hand_over(hidden: u64, activation_bytes: f64, ranks: Ranks) -> Vec<Template> {
    let boundaries = ranks.pipeline - 1;
    if boundaries == 0 {
        return Vec::new();
    }
    let share = hand_over_bytes_per_token(hidden, activation_bytes, ranks.tensor);
    let send = Work::Exchange { rows: Rows::Padded, sent_bytes_per_row: share, num_gpus: 2 };
    let mut templates = vec![template("stage_hand_over", send, boundaries)];
    if ranks.tensor > 1 {
        let sent_bytes_per_row = all_gather_sent_bytes(share, ranks.tensor);
        let gather = Work::Exchange { rows: Rows::Padded, sent_bytes_per_row, num_gpus: ranks.tensor };
        templates.push(template("stage_all_gather", gather, boundaries));
    }
    templates
}

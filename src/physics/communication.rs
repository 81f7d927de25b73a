//! Messages between ranks: tensor-parallel sums, gathered logits, exchange around experts, pipeline hand-over.

use super::work::{Shape, Work};

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
/// assert_eq!(ridgepoint::internals::physics::communication::all_reduce_sent_bytes(1000.0, 4.0), 1500.0);
/// ```
pub fn all_reduce_sent_bytes(message_bytes: f64, num_gpus: f64) -> f64 {
    2.0 * (num_gpus - 1.0) / num_gpus * message_bytes
}

/// An all-reduce over the ranks of a group.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AllReduceShape {
    /// Bytes of the message on each rank.
    pub message_bytes: f64,
    /// Ranks.
    pub gpus: f64,
}

impl Shape for AllReduceShape {
    /// No FLOPs are counted; see [`all_reduce_sent_bytes`].
    fn work(&self) -> Work {
        Work { flops: 0.0, bytes: all_reduce_sent_bytes(self.message_bytes, self.gpus) }
    }
}

/// Bytes that each rank sends in an all-gather or receives in a reduce-scatter of `part_bytes` per rank.
///
/// # Formula
/// `(n − 1) · part`.
///
/// ```
/// assert_eq!(ridgepoint::internals::physics::communication::all_gather_sent_bytes(1000.0, 4), 3000.0);
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
/// assert_eq!(ridgepoint::internals::physics::communication::hand_over_bytes_per_token(4096, 2.0, 2), 8192.0);
/// ```
pub fn hand_over_bytes_per_token(hidden_size: u64, activation_bytes: f64, tensor_parallel_size: u64) -> f64 {
    2.0 * hidden_size as f64 * activation_bytes / tensor_parallel_size.max(1) as f64
}

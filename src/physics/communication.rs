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
/// assert_eq!(ridgepoint::physics::communication::all_reduce_sent_bytes(1000.0, 4.0), 1500.0);
/// ```
pub fn all_reduce_sent_bytes(message_bytes: f64, num_gpus: f64) -> f64 {
    2.0 * (num_gpus - 1.0) / num_gpus * message_bytes
}

/// A way to exchange messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Collective {
    /// Every rank gets the parts of all.
    AllGather,
    /// Every rank gets its part of the sum.
    ReduceScatter,
    /// Every rank sends another part to each.
    AllToAll,
    /// Every rank gets the sum.
    AllReduce,
    /// One rank sends, another receives.
    SendReceive,
}

impl std::fmt::Display for Collective {
    /// The name in tables and measurement files.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Collective::AllGather => "all_gather",
            Collective::ReduceScatter => "reduce_scatter",
            Collective::AllToAll => "alltoall",
            Collective::AllReduce => "all_reduce",
            Collective::SendReceive => "send_receive",
        })
    }
}

impl Collective {
    /// Ranks of one call in a group: a hand-over is between two.
    pub fn ranks(self, group: RankGroup) -> u64 {
        if self == Collective::SendReceive { 2 } else { group.num_ranks }
    }

    /// The measured collective of a name in tables and measurement files.
    pub fn parse(name: &str) -> Option<Self> {
        let measured = [Self::AllGather, Self::ReduceScatter, Self::AllToAll, Self::AllReduce];
        measured.into_iter().find(|of| of.to_string() == name)
    }
}

/// The ranks of a parallel group: one of each `stride` consecutive ranks.
///
/// # Source
/// vLLM, `initialize_model_parallel` (`vllm/distributed/parallel_state.py`): tensor-parallel ranks are consecutive, then pipeline
/// stages, then data-parallel replicas.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RankGroup {
    /// Ranks of the group.
    pub num_ranks: u64,
    /// Distance from one to the next.
    pub stride: u64,
}

impl RankGroup {
    /// Ranks of a group that consecutive `linked` GPUs hold.
    ///
    /// ```
    /// use ridgepoint::physics::communication::RankGroup;
    /// let replicas = RankGroup { num_ranks: 4, stride: 2 };
    /// assert_eq!([72, 8, 4, 1].map(|linked| replicas.linked_ranks(linked)), [4, 4, 2, 1]);
    /// ```
    pub fn linked_ranks(self, linked: u64) -> u64 {
        (linked / self.stride.max(1)).clamp(1, self.num_ranks.max(1))
    }
}

/// A collective over the ranks of a group.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ExchangeShape {
    /// Which one.
    pub collective: Collective,
    /// Bytes of the whole message: all parts of an all-gather, and the array on each rank of the others.
    pub message_bytes: f64,
    /// Ranks.
    pub gpus: f64,
}

impl ExchangeShape {
    /// An all-reduce of a message over so many ranks.
    pub fn all_reduce(message_bytes: f64, gpus: f64) -> Self {
        ExchangeShape { collective: Collective::AllReduce, message_bytes, gpus }
    }
}

impl Shape for ExchangeShape {
    /// No FLOPs are counted. A rank sends all but its own part, once, or twice in an all-reduce.
    ///
    /// # Source
    /// NVIDIA, nccl-tests (`doc/PERFORMANCE.md`): the bus bandwidth of each collective.
    ///
    /// ```
    /// use ridgepoint::physics::Shape;
    /// use ridgepoint::physics::communication::{Collective, ExchangeShape};
    /// let work = |collective| ExchangeShape { collective, message_bytes: 800.0, gpus: 4.0 }.work().bytes;
    /// assert_eq!((work(Collective::AllGather), work(Collective::AllReduce)), (600.0, 1200.0));
    /// ```
    fn work(&self) -> Work {
        let all_reduce = all_reduce_sent_bytes(self.message_bytes, self.gpus);
        let bytes = if self.collective == Collective::AllReduce { all_reduce } else { 0.5 * all_reduce };
        Work { flops: 0.0, bytes }
    }
}

/// Bytes of the whole message of which each rank sends all but its own part.
///
/// ```
/// assert_eq!(ridgepoint::physics::communication::exchanged_message_bytes(600.0, 4.0), 800.0);
/// ```
pub fn exchanged_message_bytes(sent_bytes: f64, num_gpus: f64) -> f64 {
    sent_bytes * num_gpus / (num_gpus - 1.0).max(1.0)
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

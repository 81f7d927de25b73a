//! The measured calls of a folder, operator by operator. Sizes are those of one rank.

use super::allreduce::AllReduceCall;
use super::attention::{DecodeCall, MixedCall, PrefillCall};
use super::batched_gemm::BatchedGemmCall;
use super::gemm::GemmCall;
use super::latent_block::LatentBlockCall;
use super::linear_attention::StateCall;
use super::moe::MoeCall;
use super::nccl::ExchangeCall;
use super::small_kernels::SmallKernelCall;

/// A call and its measured time.
#[derive(Debug, Clone, PartialEq)]
pub struct Timed<C> {
    /// The call.
    pub call: C,
    /// Time of the call, µs, finite and above 0.
    pub latency_us: f64,
    /// Index into [`Measurements::sources`](super::Measurements::sources).
    pub source: usize,
}

/// The calls of all operators.
#[derive(Debug, Default)]
pub struct Calls {
    /// Projections.
    pub gemm: Vec<Timed<GemmCall>>,
    /// Batches of products.
    pub batched_gemm: Vec<Timed<BatchedGemmCall>>,
    /// Attention of prefill chunks.
    pub prefill: Vec<Timed<PrefillCall>>,
    /// Attention of decodes.
    pub decode: Vec<Timed<DecodeCall>>,
    /// Routed experts.
    pub moe: Vec<Timed<MoeCall>>,
    /// All-reduces of engines.
    pub all_reduce: Vec<Timed<AllReduceCall>>,
    /// Collectives of NCCL.
    pub exchange: Vec<Timed<ExchangeCall>>,
    /// Kernels of layers with a state.
    pub state: Vec<Timed<StateCall>>,
    /// Attention of chunks and decodes in one call.
    pub mixed: Vec<Timed<MixedCall>>,
    /// Whole blocks of latent attention.
    pub latent_block: Vec<Timed<LatentBlockCall>>,
    /// Kernels that only move bytes.
    pub small_kernels: Vec<Timed<SmallKernelCall>>,
}

impl Calls {
    /// Adds those of another folder, whose sources are numbered from `offset`.
    pub(super) fn append(&mut self, other: Calls, offset: usize) {
        append(&mut self.gemm, other.gemm, offset);
        append(&mut self.batched_gemm, other.batched_gemm, offset);
        append(&mut self.prefill, other.prefill, offset);
        append(&mut self.decode, other.decode, offset);
        append(&mut self.moe, other.moe, offset);
        append(&mut self.all_reduce, other.all_reduce, offset);
        append(&mut self.exchange, other.exchange, offset);
        append(&mut self.state, other.state, offset);
        append(&mut self.mixed, other.mixed, offset);
        append(&mut self.latent_block, other.latent_block, offset);
        append(&mut self.small_kernels, other.small_kernels, offset);
    }
}

fn append<C>(calls: &mut Vec<Timed<C>>, more: Vec<Timed<C>>, offset: usize) {
    calls.extend(more.into_iter().map(|row| Timed { source: row.source + offset, ..row }));
}

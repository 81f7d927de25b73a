//! The two streams of a layer of experts: shared experts run on one of their own, concurrently with the routed ones.

use crate::engine::Engine;

use super::operator_id::OperatorKind;
use super::rows::Rows;
use super::template::Template;

/// Most tokens of a step, padding included, whose shared experts run on a stream of their own; 0 where none do.
///
/// # Source
/// vLLM 0.12.0 to 0.32.0, `VLLM_SHARED_EXPERTS_STREAM_TOKEN_THRESHOLD` in `vllm/envs.py`; `FusedMoE._maybe_setup_shared_experts_stream`
/// up to 0.16 (`vllm/model_executor/layers/fused_moe/layer.py`), `DefaultMoERunner.forward_impl` up to 0.19 and
/// `SharedExperts._determine_shared_experts_order` since (`fused_moe/runner/`). It holds on CUDA whatever the number format (0.11.1 and
/// 0.11.2 exclude Marlin's kernels, 0.11.0 has no such stream) and for vLLM's default exchange of a data-parallel group,
/// `allgather_reducescatter`. Load balancing of experts and other exchanges, which switch it off, are not part of a deployment here.
const STREAM_TOKENS: u64 = 256;

/// The copy of their input that shared experts get where they have the stream, so that no routed expert overwrites it. `bytes` are those
/// of a token's input.
///
/// # Source
/// vLLM 0.12.0 to 0.16.0, `hidden_states.clone()` in `FusedMoE._maybe_setup_shared_experts_stream`; versions since record the stream.
pub(super) fn input_copy(engine: &Engine, bytes: f64) -> Option<Template> {
    let tokens = overlapped_tokens(engine);
    let copies = tokens > 0 && engine.vllm_version() < (0, 17);
    copies.then(|| Template::elementwise(OperatorKind::SharedCopy, Rows::PaddedUpTo(tokens), 2.0 * bytes, 1))
}

/// [`STREAM_TOKENS`] of the versions that have the stream.
pub(super) fn overlapped_tokens(engine: &Engine) -> u64 {
    if engine.vllm_version() >= (0, 12) { STREAM_TOKENS } else { 0 }
}

/// One of the streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExpertStream {
    Shared,
    Routed,
}

impl OperatorKind {
    /// The stream of a kernel that shared experts and routed ones may run at the same time; `None` for any other. The router is left
    /// out: some models run it concurrently with the shared experts, others before.
    pub(crate) fn expert_stream(self) -> Option<ExpertStream> {
        use OperatorKind::{
            ExpertQuant, Experts, MoeAlign, MoeSum, MoeTopk, SharedActivation, SharedDownProj, SharedGate,
            SharedGateUpProj, SharedUpProj,
        };
        match self {
            SharedGateUpProj | SharedUpProj | SharedActivation | SharedDownProj | SharedGate => {
                Some(ExpertStream::Shared)
            }
            MoeTopk | MoeAlign | ExpertQuant | Experts | MoeSum => Some(ExpertStream::Routed),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_experts_have_a_stream_since_0_12() {
        let tokens = |version| overlapped_tokens(&Engine::parse("vllm", version).unwrap());
        assert_eq!([Some("0.11.2"), Some("0.12.0"), Some("0.15.1"), None].map(tokens), [0, 256, 256, 256]);
        assert_eq!(overlapped_tokens(&Engine::default()), 256);
    }

    #[test]
    fn its_input_is_copied_up_to_0_16() {
        let copy = |version| input_copy(&Engine::parse("vllm", Some(version)).unwrap(), 100.0);
        let expected = Template::elementwise(OperatorKind::SharedCopy, Rows::PaddedUpTo(256), 200.0, 1);
        assert_eq!(["0.12", "0.16"].map(copy), [Some(expected); 2]);
        assert_eq!(["0.11", "0.17"].map(copy), [None; 2]);
    }
}

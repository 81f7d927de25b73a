//! The matrices, other parameters and kernels of a layer that keeps a state instead of a KV cache.

use crate::dtype::WeightFormat;
use crate::model::{Recurrence, StateMixer};

use super::matrix::Matrix;
use super::operator_id::OperatorKind::*;
use super::ranks::Context;
use super::rows::Rows;
use super::state_shape::{STATE_KERNELS, StateHeads, StateKernel};
use super::template::{KernelTemplate, Template};

/// Matrices of the mixer, in order of execution.
///
/// # Source
/// vLLM, `QwenGatedDeltaNetAttention` (`vllm/model_executor/layers/mamba/gdn/qwen_gdn_linear_attn.py`): gates have a projection of
/// their own. `MambaMixer2` (`vllm/model_executor/layers/mamba/mamba_mixer2.py`): one projection.
pub(super) fn matrices(mixer: &StateMixer, context: Context) -> Vec<Matrix> {
    let heads = StateHeads::new(mixer, context.activation, context.ranks);
    let inputs = heads.conv_dim() + heads.value_dim();
    let gates = heads.gates() * heads.num_heads;
    let of = |kind, outputs, inputs, weights: WeightFormat| Matrix::new(kind, outputs, inputs, weights);
    let out = of(OutProj, context.hidden, heads.value_dim(), mixer.out_weights);
    match mixer.recurrence {
        Recurrence::GatedDeltaNet => vec![
            of(InProjQkvz, inputs, context.hidden, mixer.in_weights),
            of(InProjBa, gates, context.hidden, mixer.gate_weights),
            out,
        ],
        Recurrence::Mamba2 => vec![of(InProj, inputs + gates, context.hidden, mixer.in_weights), out],
    }
}

/// Parameters outside matrices, elements of one rank: convolution, per-head decay and bias (and Mamba-2's skip), norm.
pub(super) fn other_elements(mixer: &StateMixer, context: Context) -> u64 {
    let heads = StateHeads::new(mixer, context.activation, context.ranks);
    let conv = heads.conv_dim() * (mixer.conv_kernel + u64::from(mixer.conv_bias));
    let (per_head, norm) = match mixer.recurrence {
        Recurrence::GatedDeltaNet => (2, mixer.head_dim),
        Recurrence::Mamba2 => (3, heads.value_dim()),
    };
    let gates = heads.gates() * heads.num_heads;
    let biases = u64::from(mixer.bias) * (heads.conv_dim() + heads.value_dim() + gates + context.hidden);
    conv + per_head * heads.num_heads + norm + biases
}

/// The kernels between the projections.
pub(super) fn templates(mixer: &StateMixer, context: Context) -> Vec<Template> {
    let heads = StateHeads::new(mixer, context.activation, context.ranks);
    let call = |kernel: StateKernel| Template::new(kernel.kind(), KernelTemplate::State { kernel, heads });
    // Outputs and gate read, product written.
    let norm_bytes = (3 * heads.value_dim()) as f64 * context.activation.bytes();
    let norm = Template::elementwise(GatedNorm, Rows::Padded, norm_bytes, 1);
    STATE_KERNELS.into_iter().map(call).chain([norm]).collect()
}

//! Weights on the host: the share of each layer's weights that vLLM's `cpu_offload_gb` leaves there, and the bytes that a call reads.
//!
//! # Source
//! vLLM, `maybe_offload_to_cpu` (`vllm/model_executor/models/utils.py`), in newer versions `UVAOffloader`
//! (`vllm/model_executor/offloader/uva.py`): parameters of the layers move to pinned memory in order of the layers, until the size is
//! reached. Kernels read them there over the bus, in every call. The embedding and the LM head are no layers and stay.

use crate::deployment::Deployment;
use crate::error::{Error, Result};
use crate::model::Model;
use crate::units::GIB;

use super::names::OperatorKind::{self, LmHead, QAbsorb, VUp};
use super::operator::{Kernel, Operator};
use super::parameters::{Part, layer_parts};
use super::pipeline::layers_per_stage;
use super::ranks::Context;

/// Returns the share of the layers' weights that is on the host, over all pipeline stages. Each rank keeps `cpu_offload_gb` there, or all
/// of its layers.
///
/// vLLM moves whole layers from the first on. As one operator stands for all layers, each matrix has the same share of its calls there:
/// the bytes that a step reads are the same.
///
/// # Errors
/// More than the layers of any rank have.
pub(super) fn offloaded_share(model: &Model, deployment: &Deployment) -> Result<f64> {
    let limit_bytes = deployment.cpu_offload_gb * GIB;
    if limit_bytes <= 0.0 {
        return Ok(0.0);
    }
    let context = Context::new(model, deployment);
    let per_layer = |group: &crate::model::LayerGroup| {
        let parts = layer_parts(group, context, |kind| !is_copy(kind));
        group.count as f64 * parts.iter().map(Part::stored_bytes).sum::<f64>()
    };
    let all_bytes: f64 = model.layers.iter().map(per_layer).sum();
    let num_layers = model.num_layers().max(1);
    let stages = layers_per_stage(num_layers, context.ranks.pipeline);
    let stage_bytes = |layers: &u64| all_bytes * *layers as f64 / num_layers as f64;
    let most_bytes = stages.iter().map(stage_bytes).fold(0.0, f64::max);
    if limit_bytes > most_bytes * (1.0 + 1e-9) {
        let reason = format!(
            "is more than the {:.3} GiB of weights that the layers of {} have on a GPU: only layers are moved to the host",
            most_bytes / GIB,
            model.name
        );
        return Err(Error::invalid_argument("cpu_offload_gb", deployment.cpu_offload_gb, reason));
    }
    let moved_bytes: f64 = stages.iter().map(|layers| stage_bytes(layers).min(limit_bytes)).sum();
    Ok(moved_bytes / all_bytes)
}

/// Whether the matrix is a copy that vLLM makes on the GPU after the weights are loaded.
fn is_copy(kind: OperatorKind) -> bool {
    matches!(kind, QAbsorb | VUp)
}

impl Operator {
    /// Bytes of weights that one call reads and that may be on the host; of experts, those that are expected to be visited.
    pub(crate) fn layer_weight_bytes(&self) -> f64 {
        match self.kernel {
            Kernel::Gemm { n, k, weights, .. } if !is_copy(self.id.kind) && self.id.kind != LmHead => {
                n as f64 * k as f64 * weights.bytes_per_weight()
            }
            Kernel::Moe { num_tokens, experts } => experts.shape(num_tokens as f64, 0.0, 0.0).weight_bytes_read(),
            _ => 0.0,
        }
    }
}

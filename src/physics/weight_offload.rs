//! Weights on the host: the parameters that vLLM's `cpu_offload_gb` leaves there, and the bytes that a call reads.
//!
//! # Source
//! vLLM, `maybe_offload_to_cpu` (`vllm/model_executor/models/utils.py` up to 0.15), then `UVAOffloader`
//! (`vllm/model_executor/offloader/uva.py`, 0.19 and 0.32). Both take the layers from the first on, and a layer's parameters in the order in which
//! its modules are made, until the size is reached. The last parameter moves whole, so that more than the size is on the host. Kernels read
//! pinned host memory over the bus in every call (UVA). The embedding and the LM head are no layers and stay.

use std::collections::BTreeMap;

use crate::deployment::Deployment;
use crate::error::{Error, Result};
use crate::model::{LayerGroup, Model};
use crate::units::GIB;

use super::experts::Experts;
use super::operator::{Kernel, Operator};
use super::operator_id::OperatorKind::{self, KvBProj, KvBProjContext, LmHead};
use super::parameters::{Part, layer_parts};
use super::pipeline::layers_per_stage;
use super::ranks::Context;
use super::weights::{is_copy, stored_matrices};

/// Weights of a model in host memory.
#[derive(Debug, Clone, Default)]
pub(crate) struct Offloaded {
    /// By group of layers and kind of operator, the number of layers whose weights are on the host, over all pipeline stages. Of experts
    /// a part of a layer can be there.
    layers: BTreeMap<(usize, OperatorKind), f64>,
    /// Bytes that the GPUs of each pipeline stage keep on the host.
    stage_bytes: Vec<f64>,
    /// Bytes of the largest stage's layers.
    most_bytes: f64,
}

/// A parameter of a layer, in vLLM's order.
struct Parameter {
    /// The operator that reads it, and its share of the operator's weights; `None` for norms and biases.
    read_by: Option<(OperatorKind, f64)>,
    bytes: f64,
}

impl Offloaded {
    /// Offloads the parameters of each stage's first layers until they reach `cpu_offload_gb`.
    pub(crate) fn new(model: &Model, deployment: &Deployment) -> Self {
        let limit_bytes = deployment.cpu_offload_gb * GIB;
        if limit_bytes <= 0.0 {
            return Offloaded::default();
        }
        let context = Context::new(model, deployment);
        let parameters: Vec<Vec<Parameter>> = model.layers.iter().map(|group| parameters(group, context)).collect();
        let mut offloaded = Offloaded::default();
        let mut groups = model.group_of_layer.iter().copied();
        for num_layers in layers_per_stage(model.num_layers(), context.ranks.pipeline) {
            let (mut moved_bytes, mut all_bytes) = (0.0, 0.0);
            for _ in 0..num_layers {
                let Some((group, parameters)) = groups.next().and_then(|at| Some((at, parameters.get(at)?))) else {
                    break;
                };
                for parameter in parameters {
                    all_bytes += parameter.bytes;
                    if moved_bytes >= limit_bytes {
                        continue;
                    }
                    moved_bytes += parameter.bytes;
                    if let Some((kind, share)) = parameter.read_by {
                        *offloaded.layers.entry((group, kind)).or_default() += share;
                    }
                }
            }
            offloaded.stage_bytes.push(moved_bytes);
            offloaded.most_bytes = offloaded.most_bytes.max(all_bytes);
        }
        offloaded
    }

    /// Like [`Offloaded::new`], but fails if more is requested than the layers hold.
    ///
    /// # Errors
    /// More than the layers of any rank have.
    pub(super) fn checked(model: &Model, deployment: &Deployment) -> Result<Self> {
        let offloaded = Self::new(model, deployment);
        if deployment.cpu_offload_gb * GIB <= offloaded.most_bytes * (1.0 + 1e-9) {
            return Ok(offloaded);
        }
        let reason = format!(
            "is more than the {:.3} GiB of weights that the layers of {} have on a GPU: only layers are moved to the host",
            offloaded.most_bytes / GIB,
            model.name
        );
        Err(Error::invalid_argument("cpu_offload_gb", deployment.cpu_offload_gb, reason))
    }

    /// Bytes of each pipeline stage's weights that stay on a GPU, and of those on the host.
    pub(crate) fn split(&self, weight_bytes_per_stage: &[f64]) -> Vec<(f64, f64)> {
        let moved = self.stage_bytes.iter().copied().chain(std::iter::repeat(0.0));
        let of_stage = |(stored, moved): (&f64, f64)| (stored - stored.min(moved), stored.min(moved));
        weight_bytes_per_stage.iter().zip(moved).map(of_stage).collect()
    }

    /// Number of layers of a group whose weights of this kind are on the host.
    pub(super) fn layers(&self, group: usize, kind: OperatorKind) -> f64 {
        // The projection of earlier context multiplies with the same weights as that of the chunk.
        let kind = if kind == KvBProjContext { KvBProj } else { kind };
        self.layers.get(&(group, kind)).copied().unwrap_or(0.0)
    }
}

/// The parameters of a layer in vLLM's order: attention, feed-forward block or router and shared experts, routed experts (gate and up
/// projections, then down projections), norms and biases. Some families make the router behind the experts, which hardly weighs.
fn parameters(group: &LayerGroup, context: Context) -> Vec<Parameter> {
    let mut parameters: Vec<Parameter> = stored_matrices(group, context, false)
        .map(|matrix| Parameter {
            read_by: Some((matrix.kind, 1.0)),
            bytes: matrix.elements() * matrix.weights.bytes_per_weight(),
        })
        .collect();
    if let Some(moe) = &group.moe {
        let experts = Experts::new(context.hidden, moe, context.ranks);
        let bytes = experts.elements(experts.local_experts) * moe.weights.bytes_per_weight();
        let up = if moe.gated { 2.0 / 3.0 } else { 0.5 };
        let part = |share| Parameter { read_by: Some((OperatorKind::Experts, share)), bytes: share * bytes };
        parameters.extend([part(up), part(1.0 - up)]);
    }
    let all: f64 = layer_parts(group, context, false).iter().map(Part::stored_bytes).sum();
    let others = all - parameters.iter().map(|of| of.bytes).sum::<f64>();
    parameters.push(Parameter { read_by: None, bytes: others.max(0.0) });
    parameters
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

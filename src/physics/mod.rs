//! The work of one rank of one deployment in a step, operator by operator: FLOPs, bytes, messages. Exact
//! arithmetic from the model's shape, no fitted number.
//!
//! [`StepPlan`] is the way in: it checks a model against a deployment once, sums a batch into [`BatchSums`] and
//! turns that into operators. Every FLOP and byte is counted in one formula: a [`Shape`]'s work, or a public function on
//! plain numbers, in the file of its family. Kernel models and roofline bounds use the same formulas.
//! Left out everywhere, being under one part in a thousand of a step: FLOPs of biases, norms, rotary embedding,
//! softmax and activation functions, the norms' own weights, scales of quantised activations, block tables.

pub mod attention;
pub mod communication;
pub mod mla;
pub mod moe;
pub mod pipeline;
pub mod projection;
pub mod small;
pub mod sparse;
pub mod window;

mod batch;
mod check;
pub(crate) mod cuda_graph;
pub(crate) mod experts;
mod layer;
mod matrix;
mod memory;
pub(crate) mod operator;
pub(crate) mod operator_id;
mod parameters;
pub(crate) mod plan;
mod ranks;
mod rows;
pub mod sampler;
mod state;
pub(crate) mod state_shape;
mod streams;
mod template;
pub(crate) mod truncation;
pub(crate) mod weight_offload;
mod weights;
mod work;

#[cfg(test)]
pub(crate) mod fixtures;
#[cfg(test)]
mod laws;
#[cfg(test)]
mod plan_tests;
#[cfg(test)]
mod sparse_tests;
#[cfg(test)]
mod state_tests;

pub(crate) use batch::MAX_WINDOWS;
pub use batch::{BatchSums, WindowSums};
pub use cuda_graph::{Captures, CudaGraphs, GraphMode};
pub use experts::Experts;
pub use memory::{KvCacheBytes, Memory, StateBytes};
pub use operator::{AttentionHeads, Kernel, Operator};
pub use operator_id::{OperatorGroup, OperatorId, OperatorKind};
pub use parameters::ParameterCounts;
pub(crate) use plan::Entry;
pub use plan::StepPlan;
pub(crate) use ranks::Ranks;
pub(crate) use rows::MANY_SAMPLED;
pub use state_shape::{StateHeads, StateKernel, StateShape};
pub(crate) use streams::ExpertStream;
pub(crate) use template::state_call;
pub use work::{Shape, Work};

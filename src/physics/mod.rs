//! Layer 1: what one rank of one deployment does in a step, operator by operator: FLOPs, bytes, messages.
//! Exact arithmetic from the model's shape, no fitted number. Uses `model`, `deployment`, `request`, `dtype`, `error`.

mod operator;

pub use operator::{AttentionHeads, Kernel, Operator, OperatorGroup};

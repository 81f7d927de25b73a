//! What each kernel family needs to be calibrated: the place of its rows in a table, features of the trees, labels of the report.

mod allreduce;
pub(super) mod attention;
mod batched_gemm;
mod gemm;
mod linear_attention;
mod moe;
mod nccl;

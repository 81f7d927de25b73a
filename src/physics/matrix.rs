//! A weight matrix of one rank.

use crate::dtype::WeightFormat;

use super::operator_id::OperatorKind;
use super::rows::Rows;

/// A weight matrix of one rank and the rows that are multiplied with it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Matrix {
    pub kind: OperatorKind,
    pub rows: Rows,
    pub outputs: u64,
    pub inputs: u64,
    /// Matrices of this shape, each with inputs of its own (heads of a batched GEMM).
    pub copies: u64,
    pub weights: WeightFormat,
}

impl Matrix {
    pub(super) fn new(kind: OperatorKind, outputs: u64, inputs: u64, weights: WeightFormat) -> Self {
        Matrix { kind, rows: Rows::Padded, outputs, inputs, copies: 1, weights }
    }

    pub fn elements(&self) -> f64 {
        (self.copies * self.outputs * self.inputs) as f64
    }
}

//! The kernel that a series of any family was measured for, and the shape of a call of it: what tables and calibration need to know of a
//! family beyond its data.

use std::fmt::{Display, Formatter, Result};

use super::batched_gemm::BatchedGemmModel;
use super::chip::Chip;
use super::collective_model::{AllReduceModel, ExchangeModel};
use super::gemm_model::GemmModel;
use super::kernel_model::{DecodeModel, MoeModel, PrefillModel, score_dtype};
use super::keys::{AllReduceKind, AttentionKey, BatchedGemmKey, Key, MoeKey, StateKey, operand_dtype};
use super::state_model::StateModel;
use crate::dtype::{DType, MatmulFormat};
use crate::engine::Engine;
use crate::physics::attention::AttentionShape;
use crate::physics::communication::{Collective, ExchangeShape};
use crate::physics::moe::MoeShape;
use crate::physics::projection::GemmShape;
use crate::physics::{Shape, StateShape, Work};

/// The kernel of a series, by its family. Its `Display` is the series' name in table files.
#[derive(Debug, Clone, PartialEq)]
pub enum SeriesKey {
    /// Projections of a format.
    Gemm(MatmulFormat),
    /// A batch of products.
    BatchedGemm(BatchedGemmKey),
    /// Attention of prefill chunks.
    Prefill(AttentionKey),
    /// Attention of decodes.
    Decode(AttentionKey),
    /// A layer of routed experts.
    Moe(MoeKey),
    /// An engine's own all-reduce.
    AllReduce(AllReduceKind),
    /// A collective of NCCL.
    Exchange(Collective),
    /// A kernel of layers with a state.
    State(StateKey),
}

impl Display for SeriesKey {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            SeriesKey::Gemm(key) => key.fmt(f),
            SeriesKey::BatchedGemm(key) => key.fmt(f),
            SeriesKey::Prefill(key) | SeriesKey::Decode(key) => key.fmt(f),
            SeriesKey::Moe(key) => key.fmt(f),
            SeriesKey::AllReduce(key) => key.fmt(f),
            SeriesKey::Exchange(key) => key.fmt(f),
            SeriesKey::State(key) => key.fmt(f),
        }
    }
}

impl SeriesKey {
    /// The name that series share which share their kernel-model coefficients.
    pub fn group(&self) -> String {
        match self {
            SeriesKey::Gemm(key) => key.group(),
            SeriesKey::BatchedGemm(key) => key.group(),
            SeriesKey::Prefill(key) | SeriesKey::Decode(key) => key.group(),
            SeriesKey::Moe(key) => key.group(),
            SeriesKey::AllReduce(key) => key.group(),
            SeriesKey::Exchange(key) => key.group(),
            SeriesKey::State(key) => key.group(),
        }
    }

    /// The shape at a grid point of the series.
    pub fn shape(&self, point: &[f64]) -> CallShape {
        match self {
            SeriesKey::Gemm(key) => CallShape::Gemm(GemmModel::shape(key, point)),
            SeriesKey::BatchedGemm(key) => CallShape::Gemm(BatchedGemmModel::shape(key, point)),
            SeriesKey::Prefill(key) => CallShape::Prefill(PrefillModel::shape(key, point)),
            SeriesKey::Decode(key) => CallShape::Decode(DecodeModel::shape(key, point)),
            SeriesKey::Moe(key) => CallShape::Moe(MoeModel::shape(key, point)),
            SeriesKey::AllReduce(key) => CallShape::Exchange(AllReduceModel::shape(key, point)),
            SeriesKey::Exchange(key) => CallShape::Exchange(ExchangeModel::shape(key, point)),
            SeriesKey::State(key) => CallShape::State(StateModel::shape(key, point)),
        }
    }

    /// Format of the matrix unit that limits the roofline bound.
    pub fn compute_dtype(&self) -> DType {
        match self {
            SeriesKey::Gemm(format) => operand_dtype(*format),
            SeriesKey::BatchedGemm(key) => operand_dtype(key.format),
            SeriesKey::Moe(key) => operand_dtype(key.format),
            SeriesKey::Prefill(key) | SeriesKey::Decode(key) => score_dtype(key),
            SeriesKey::AllReduce(_) | SeriesKey::Exchange(_) | SeriesKey::State(_) => DType::Bfloat16,
        }
    }

    /// The version of vLLM that replaced the kernels of the series; `None` if none is known to have.
    pub fn replaced_in(&self) -> Option<(u32, u32)> {
        match self {
            SeriesKey::Moe(key) => MoeModel::replaced_in(key),
            _ => None,
        }
    }

    /// Engine whose kernel it is, if the series name has one; else the folder of a table names it.
    pub fn engine(&self) -> Option<Engine> {
        match self {
            SeriesKey::Prefill(key) | SeriesKey::Decode(key) => Engine::parse(&key.engine, None),
            _ => None,
        }
    }
}

/// The shape of a call, with the kernel model that times it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum CallShape {
    /// One product or a batch of them.
    Gemm(GemmShape),
    /// Attention of prefill chunks.
    Prefill(AttentionShape),
    /// Attention of decodes.
    Decode(AttentionShape),
    /// Routed experts.
    Moe(MoeShape),
    /// A collective.
    Exchange(ExchangeShape),
    /// A kernel of layers with a state.
    State(StateShape),
}

impl CallShape {
    /// Modelled time with the coefficients of a family, µs.
    pub fn time_us(&self, coefficients: &[f64], chip: &Chip) -> f64 {
        match self {
            CallShape::Gemm(shape) => GemmModel::time_us(coefficients, shape, chip),
            CallShape::Prefill(shape) => PrefillModel::time_us(coefficients, shape, chip),
            CallShape::Decode(shape) => DecodeModel::time_us(coefficients, shape, chip),
            CallShape::Moe(shape) => MoeModel::time_us(coefficients, shape, chip),
            CallShape::Exchange(shape) => ExchangeModel::time_us(coefficients, shape, chip),
            CallShape::State(shape) => StateModel::time_us(coefficients, shape, chip),
        }
    }

    /// FLOPs and bytes of the call.
    pub fn work(&self) -> Work {
        match self {
            CallShape::Gemm(shape) => shape.work(),
            CallShape::Prefill(shape) | CallShape::Decode(shape) => shape.work(),
            CallShape::Moe(shape) => shape.work(),
            CallShape::Exchange(shape) => shape.work(),
            CallShape::State(shape) => shape.work(),
        }
    }

    /// Roofline bound, µs: bytes of collectives go over the link, those of all others through device memory.
    pub fn bound_us(&self, chip: &Chip) -> f64 {
        match self {
            CallShape::Exchange(shape) => chip.link_bound_us(shape.work()),
            _ => chip.bound_us(self.work()),
        }
    }
}

/// A key that series of some family have, or that of any series.
pub trait OfSeries: Clone + PartialEq {
    /// The key of a series, if it is of this type.
    fn of(series: &SeriesKey) -> Option<&Self>;
}

impl OfSeries for SeriesKey {
    fn of(series: &SeriesKey) -> Option<&Self> {
        Some(series)
    }
}

/// Implements [`OfSeries`] for the key in a variant.
macro_rules! of_series {
    ($($key:ty: $($variant:ident)|+;)+) => {
        $(impl OfSeries for $key {
            fn of(series: &SeriesKey) -> Option<&Self> {
                match series {
                    $(SeriesKey::$variant(key))|+ => Some(key),
                    _ => None,
                }
            }
        })+
    };
}

of_series! {
    MatmulFormat: Gemm;
    BatchedGemmKey: BatchedGemm;
    AttentionKey: Prefill | Decode;
    MoeKey: Moe;
    AllReduceKind: AllReduce;
    Collective: Exchange;
    StateKey: State;
}

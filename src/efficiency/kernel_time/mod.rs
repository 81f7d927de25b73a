//! From an operator to its time: the series that answers for it is chosen once per model and rank (`choice`), and looked up
//! in each step.

mod attention;
mod batched;
mod choice;
mod collectives;
mod crossing;

pub use attention::{AttentionBound, KEY_STEPS_LOG2, heads_of};

use serde::Serialize;

use super::chip::Chip;
use super::collective_curve::CollectiveCurve;
use super::curve::{DecodeCurve, GemmCurve, MoeCurve, PrefillCurve, StateCurve};
use super::gemm_model::NARROWEST_TILE;
use super::provenance::{Bound, OperatorTime, Provenance};
use super::residual_curve::{SourcedTime, Uneven};
use super::tables::Tables;
use crate::dtype::DType;
use crate::error::Result;
use crate::hardware::Hardware;
use crate::physics::communication::exchanged_message_bytes;
use crate::physics::{Kernel, Operator, OperatorGroup, OperatorKind, StateShape};
use crate::units::{self, time_us};
use choice::{Choice, multiplied_dtype, usable_dtype};
use collectives::HOST_COPY_SHARE;
use crossing::LinkCrossing;

/// Least time of a kernel inside a CUDA graph of a step, from its start to that of the next, µs. In steps of one and eight decodes of
/// Llama-3.1-8B on an H100 and an H200, the kernels between the projections take 1.3 to 2.3 µs, 1.85 on average
/// (`bench_data/measured/`, `step_kernels.csv`).
const KERNEL_FLOOR_US: f64 = 1.85;

/// Share of the datasheet bandwidth that kernels reach which only move bytes (as large copies and norms do; assumed).
pub const STREAMING_EFFICIENCY: f64 = 0.85;

/// Share of the datasheet bandwidth that PyTorch's radix sort reaches: PyTorch 2.11 was measured at 0.69 below 128 rows and at 0.45 to 0.55
/// from 128 on (`bench_data/measured/h100_sxm/2026-11-26`). With a half, serving runs of models that sort (vLLM 0.15, PyTorch 2.9) lack as
/// much time at 15 as at 45 requests, and no more than those of models that do not.
const SORT_EFFICIENCY: f64 = 0.5;

/// Time in which a block of threads sums a tile of a row's values, µs: a load from L2 and some 20 barriers. PyTorch's running sum takes
/// 161 µs for 126 tiles on an H100. The tiles of other kernels are sized to take as long.
const SCAN_TILE_US: f64 = 1.25;

/// Whether the tables hold the time of these operators within another's: fp8 projections were timed with the quantisation
/// of their inputs, fused experts with the sort of tokens, the quantisation and the sum over a token's experts.
pub fn is_within_another(kind: OperatorKind) -> bool {
    use OperatorKind::{ActivationQuant, ExpertQuant, LmHeadQuant, MoeAlign, MoeSum};
    matches!(kind, ActivationQuant | LmHeadQuant | ExpertQuant | MoeAlign | MoeSum)
}

/// How efficient kernels are taken to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum EfficiencyMode {
    /// As measured.
    #[default]
    Tables,
    /// On the roofline: the textbook bound.
    Ideal,
}

/// Looks up the time of one operator of a model, whatever the batch.
#[derive(Debug, Clone)]
pub struct Timer {
    curve: FamilyCurve,
    /// Peak of the unit that does the operator's FLOPs, FLOP/s.
    pub peak_flop_per_s: f64,
    bytes_per_s: f64,
    /// Cost of leaving the GPUs that a link joins.
    crossing: Option<LinkCrossing>,
    /// FLOP/s and bytes/s that the board's power allows.
    sustained: Option<(f64, f64)>,
    /// Fallbacks and stand-ins that its times come from, in plain words.
    pub notes: Vec<String>,
}

#[derive(Debug, Clone)]
enum FamilyCurve {
    Gemm(Box<GemmCurve>),
    Prefill(PrefillCurve),
    Decode(DecodeCurve),
    Moe(MoeCurve),
    Collective(CollectiveCurve),
    State(StateCurve),
    /// Bytes that a rank sends, at a share of its link's rate.
    Link {
        floor_us: f64,
        bytes_per_s: f64,
    },
    Streaming,
    Ideal,
}

impl Timer {
    /// Chooses the series that answers for `operator`.
    ///
    /// # Errors
    /// Those of reading tables; [`ErrorKind::MissingTable`](crate::ErrorKind) if no GPU has a usable series,
    /// [`ErrorKind::MissingPeak`](crate::ErrorKind) if the chip has no unit for the format;
    /// [`ErrorKind::Invalid`](crate::ErrorKind) if no link joins the ranks and no network is known.
    pub fn new(operator: &Operator, hardware: &Hardware, tables: &Tables, mode: EfficiencyMode) -> Result<Self> {
        let is_network = operator.group == OperatorGroup::Communication;
        let (dtype, weight_only) = usable_dtype(multiplied_dtype(operator, tables), hardware);
        let link = hardware.interconnect;
        let crossing = LinkCrossing::new(operator, hardware)?;
        let mut chip = Chip::new(hardware, dtype)?;
        let link_bytes_per_s = chip.link_bytes_per_s;
        let is_through_host = hardware.peer_access().is_some_and(|peers| !peers.is_there);
        if is_through_host {
            chip.link_bytes_per_s *= HOST_COPY_SHARE;
        }
        let mut choice = Choice { operator, chip, dtype, tables, link, is_through_host, crossing, notes: Vec::new() };
        if weight_only {
            choice.note(format_args!(
                "{} has no {} unit: its weights alone are in this format, at {dtype} speed",
                hardware.display_name, operator.compute_dtype
            ));
        }
        let curve = if mode == EfficiencyMode::Ideal { FamilyCurve::Ideal } else { choice.curve()? };
        Ok(Timer {
            curve,
            peak_flop_per_s: choice.chip.peak_flop_per_s,
            bytes_per_s: match &crossing {
                Some(crossing) => crossing.roofline_bytes_per_s(link_bytes_per_s),
                None if is_network => link_bytes_per_s,
                None => choice.chip.hbm_bytes_per_s,
            },
            crossing,
            sustained: sustained(operator, hardware, dtype, mode),
            notes: choice.notes,
        })
    }

    /// Launch and set-up in the time of an attention call, µs; 0 for any other kernel.
    pub fn attention_launch_us(&self) -> f64 {
        match &self.curve {
            FamilyCurve::Decode(decode) => decode.curve.launch_us(),
            FamilyCurve::Prefill(prefill) => prefill.curve.launch_us(),
            _ => 0.0,
        }
    }

    /// Time of one call of `operator`, which may differ in the batch only from the one that the timer was made for.
    pub fn time(&self, operator: &Operator) -> OperatorTime {
        let compute_us = time_us(operator.flops, self.peak_flop_per_s);
        let bytes_us = time_us(operator.bytes, self.bytes_per_s);
        let bound_us = compute_us.max(bytes_us);
        let (mut time_us, mut provenance) = self.looked_up(operator, bound_us);
        if let Some(crossing) = self.crossing.as_ref().filter(|_| provenance != Provenance::Ideal) {
            (time_us, provenance) = (crossing.time_us(time_us, operator.bytes), Provenance::Datasheet);
        }
        let power_us = self.sustained.map_or(0.0, |(flop_per_s, bytes_per_s)| {
            units::time_us(tiled_flops(operator), flop_per_s) + units::time_us(operator.bytes, bytes_per_s)
        });
        let is_held_back = power_us > time_us;
        let time_us = time_us.max(bound_us).max(power_us);
        let bound = if is_held_back {
            Bound::Power
        } else if bound_us < 0.25 * time_us {
            Bound::Latency
        } else if operator.group == OperatorGroup::Communication {
            Bound::Network
        } else if compute_us >= bytes_us {
            Bound::Compute
        } else {
            Bound::Memory
        };
        OperatorTime { time_us, bound_us, bound, provenance }
    }

    /// The most uneven rows near a call.
    pub fn uneven_near(&self, operator: &Operator) -> Option<Uneven> {
        match (&self.curve, operator.kernel) {
            (FamilyCurve::Gemm(curve), Kernel::Gemm { m, .. }) => curve.uneven_near(m as f64),
            (FamilyCurve::Moe(curve), Kernel::Moe { num_tokens, .. }) => curve.uneven_near(num_tokens as f64),
            (FamilyCurve::Collective(curve), Kernel::AllReduce { message_bytes, .. }) => {
                curve.uneven_near(message_bytes)
            }
            _ => None,
        }
    }

    fn looked_up(&self, operator: &Operator, bound_us: f64) -> SourcedTime {
        match (&self.curve, operator.kernel) {
            (FamilyCurve::Gemm(curve), Kernel::Gemm { m, .. }) => curve.time(m as f64),
            (
                FamilyCurve::Prefill(curve),
                Kernel::AttentionPrefill { heads, query_tokens, mean_query_tokens, pairs, kv_tokens, num_requests },
            ) => curve.time_of(&heads, num_requests, (query_tokens, mean_query_tokens), pairs, kv_tokens),
            (FamilyCurve::Decode(curve), Kernel::AttentionDecode { heads, num_requests, kv_tokens, .. }) => {
                curve.time_of(&heads, num_requests, kv_tokens)
            }
            (FamilyCurve::Moe(curve), Kernel::Moe { num_tokens, .. }) => curve.time(num_tokens as f64),
            (FamilyCurve::Collective(curve), Kernel::AllReduce { message_bytes, .. }) => curve.time(message_bytes),
            (FamilyCurve::Collective(curve), Kernel::Exchange { collective, sent_bytes, group }) => {
                curve.time(exchanged_message_bytes(sent_bytes, collective.ranks(group) as f64))
            }
            (FamilyCurve::Link { floor_us, bytes_per_s }, _) => {
                (floor_us + time_us(operator.bytes, *bytes_per_s), Provenance::Datasheet)
            }
            (FamilyCurve::State(curve), Kernel::State { kernel, heads, num_tokens, mean_query_tokens, .. }) => {
                // A short chunk with a long one must not make that look short: chunks count by their tokens.
                let tokens = num_tokens as f64;
                curve.time(&StateShape { kernel, heads, requests: tokens / mean_query_tokens, tokens })
            }
            (FamilyCurve::Streaming, kernel) => {
                let floor_us = operator.launches() as f64 * KERNEL_FLOOR_US;
                let streamed_us = time_us(operator.bytes, self.bytes_per_s) / STREAMING_EFFICIENCY;
                let moved_us = match kernel {
                    Kernel::Sort { .. } => bound_us / SORT_EFFICIENCY,
                    Kernel::RowScan { row, tile, .. } => streamed_us + row.div_ceil(tile) as f64 * SCAN_TILE_US,
                    _ => streamed_us.max(time_us(operator.flops, self.peak_flop_per_s)),
                };
                (floor_us + moved_us, Provenance::Datasheet)
            }
            _ => (bound_us, Provenance::Ideal),
        }
    }
}

/// FLOPs of the whole tiles that a product computes. Like the kernel's time, they stay the same from one tile to the next.
fn tiled_flops(operator: &Operator) -> f64 {
    match operator.kernel {
        Kernel::Gemm { m, .. } => operator.flops * m.next_multiple_of(NARROWEST_TILE) as f64 / m.max(1) as f64,
        _ => operator.flops,
    }
}

/// FLOP/s and bytes/s that the board's power allows the products of `operator` on matrix units that compute in `dtype`.
fn sustained(operator: &Operator, hardware: &Hardware, dtype: DType, mode: EfficiencyMode) -> Option<(f64, f64)> {
    let is_product = matches!(operator.kernel, Kernel::Gemm { .. } | Kernel::Moe { .. });
    let limit = hardware.power_limit.as_ref().filter(|_| is_product && mode == EfficiencyMode::Tables)?;
    Some((*limit.flop_per_s.get(&dtype)?, limit.bytes_per_s))
}

/// Whether two operators differ in the batch only, so that one timer serves both.
pub fn same_kernel(a: &Operator, b: &Operator) -> bool {
    let is_same = match (a.kernel, b.kernel) {
        (
            Kernel::Gemm { n, k, copies, weights, .. },
            Kernel::Gemm { n: n2, k: k2, copies: copies2, weights: w2, .. },
        ) => (n, k, copies, weights) == (n2, k2, copies2, w2),
        (Kernel::AttentionPrefill { heads, .. }, Kernel::AttentionPrefill { heads: other, .. })
        | (Kernel::AttentionDecode { heads, .. }, Kernel::AttentionDecode { heads: other, .. }) => heads == other,
        (Kernel::Moe { experts, .. }, Kernel::Moe { experts: other, .. }) => experts == other,
        (Kernel::AllReduce { num_gpus, .. }, Kernel::AllReduce { num_gpus: other, .. }) => num_gpus == other,
        (Kernel::Exchange { group, collective, .. }, Kernel::Exchange { group: other, collective: c2, .. }) => {
            (group, collective) == (other, c2)
        }
        (Kernel::State { kernel, heads, .. }, Kernel::State { kernel: other_kernel, heads: other, .. }) => {
            (kernel, heads) == (other_kernel, other)
        }
        (a, b) => a.only_moves_bytes() && b.only_moves_bytes(),
    };
    is_same && a.compute_dtype == b.compute_dtype
}

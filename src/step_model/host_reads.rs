//! Weights that kernels read from the host in every step. Uses `physics`, `efficiency`.

use crate::efficiency::{Bound, EfficiencyMode, OperatorTime, Provenance};
use crate::error::{Error, Result};
use crate::hardware::{Hardware, HostLink};
use crate::physics::communication::{Collective, RankGroup};
use crate::physics::{Kernel, Operator, OperatorId, OperatorKind, StepPlan};
use crate::units::{GIGA, time_us};

/// Reads of weights from the host.
#[derive(Debug, Clone)]
pub(super) struct HostReads {
    /// Share of an operator's calls whose weights are on the host; the other operators have none.
    shares: Vec<(OperatorId, f64)>,
    bytes_per_s: f64,
    efficiency: f64,
}

impl HostReads {
    /// The reads of `plan`; `None` if all weights are on the GPU.
    ///
    /// # Errors
    /// `ErrorKind::Invalid` for a chip whose link to the host is not known.
    pub(super) fn new(plan: &StepPlan, hardware: &Hardware, mode: EfficiencyMode) -> Result<Option<Self>> {
        if plan.host_shares.is_empty() {
            return Ok(None);
        }
        let Some(link) = hardware.host_link else {
            let problem = "has no host_link, which cpu_offload_gb needs: add [host_link] with kind, unidirectional_bytes_per_s, source and \
                           retrieved to its file";
            return Err(Error::invalid(hardware.name.as_str(), vec![problem.to_owned()]));
        };
        let efficiency = if mode == EfficiencyMode::Ideal { 1.0 } else { HostLink::EFFICIENCY };
        let bytes_per_s = link.unidirectional_bytes_per_s;
        Ok(Some(HostReads { shares: plan.host_shares.clone(), bytes_per_s, efficiency }))
    }

    /// The assumption behind the reads.
    pub(super) fn note(&self) -> String {
        format!(
            "host_weights: no step with weights on the host was measured; they are read at {:.0} % of the {:.0} GB/s of the GPU's link to the host",
            self.efficiency * 100.0,
            self.bytes_per_s / GIGA
        )
    }

    /// Time that reads of weights add to `calls`, as an operator of its own; `None` if none of them has weights on the host.
    ///
    /// # Formula
    /// `Σ calls · max(0, w / (0.85 · r) − t)` over the calls whose weights are on the host, for `w` bytes of weights of a call, the link's rate
    /// `r` and the time `t` of the call with its weights on the GPU. A kernel that streams its weights over the bus takes the longer of both,
    /// and nothing of one layer overlaps with another's. Experts of which a part is on the host count as that part of a call.
    pub(super) fn added(&self, calls: &[(Operator, OperatorTime)]) -> Option<(Operator, OperatorTime)> {
        let (mut bytes, mut time, mut bound_us) = (0.0, 0.0, 0.0);
        for (operator, call) in calls {
            let share = self.shares.iter().find(|(id, _)| *id == operator.id).map_or(0.0, |(_, share)| *share);
            let weight_bytes = operator.layer_weight_bytes();
            if share * weight_bytes <= 0.0 {
                continue;
            }
            let moved_calls = share * operator.count as f64;
            let added_us = |rate: f64| moved_calls * (time_us(weight_bytes, rate) - call.time_us).max(0.0);
            bytes += moved_calls * weight_bytes;
            time += added_us(self.efficiency * self.bytes_per_s);
            bound_us += added_us(self.bytes_per_s);
        }
        let (first, _) = calls.first()?;
        let kind = OperatorKind::HostWeights;
        let operator = Operator {
            id: OperatorId::first(kind),
            name: kind.name(),
            group: kind.group(),
            count: 1,
            flops: 0.0,
            bytes,
            compute_dtype: first.compute_dtype,
            kernel: Kernel::Exchange {
                collective: Collective::SendReceive,
                sent_bytes: bytes,
                group: RankGroup { num_ranks: 1, stride: 1 },
            },
        };
        let provenance = if self.efficiency < 1.0 { Provenance::Datasheet } else { Provenance::Ideal };
        (bytes > 0.0).then_some((operator, OperatorTime { time_us: time, bound_us, bound: Bound::Network, provenance }))
    }
}

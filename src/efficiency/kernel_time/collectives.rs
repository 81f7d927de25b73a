//! Chooses the series of collectives: the engine's own all-reduce, NCCL's as measured, or a price by the link.

use super::super::collective_curve::CollectiveCurve;
use super::super::family::{ALL_REDUCE, EXCHANGE};
use super::super::keys::AllReduceKind;
use super::super::tables::if_any;
use super::FamilyCurve;
use super::choice::Choice;
use crate::error::Result;
use crate::hardware::InterconnectKind;
use crate::physics::communication::{Collective, RankGroup};

/// Latency of an NCCL ring before its first step, and of each of its `2·(n − 1)` steps over PCIe and over NVLink, µs.
///
/// # Source
/// NCCL's cost model for its low-latency protocol (`baseLat` and `hwLat` in `src/graph/tuning.cc`).
const RING_BASE_US: f64 = 6.6;
pub(super) const PCIE_HOP_US: f64 = 1.0;
const RING_NVLINK_HOP_US: f64 = 0.6;

/// Share of the rate of a link or a network card that NCCL reaches (assumed).
pub(super) const RING_EFFICIENCY: f64 = 0.8;

/// Share of a PCIe link's rate at which NCCL moves bytes between GPUs without peer access (assumed): a GPU writes them to memory of the host
/// and another reads them, so that each byte crosses PCIe twice.
pub(super) const HOST_COPY_SHARE: f64 = 0.5;

/// Ranks that vLLM's own all-reduce kernel serves; NCCL serves other groups, and those that no link joins.
///
/// # Source
/// vLLM, `CustomAllreduce._SUPPORTED_WORLD_SIZES` (`vllm/distributed/device_communicators/custom_all_reduce.py`).
const CUSTOM_ALL_REDUCE_RANKS: [u64; 4] = [2, 4, 6, 8];

impl Choice<'_> {
    /// The sum over a tensor-parallel group.
    pub(super) fn all_reduce(&mut self, num_gpus: u64, is_ring: bool) -> Result<FamilyCurve> {
        let found = self.tables.of_key(&ALL_REDUCE, &AllReduceKind::Graph, &[])?;
        // vLLM's own kernel needs NVLink between more than two GPUs, and peer access between two.
        let is_pcie = self.is_pcie() && num_gpus > 2 && found.is_fallback;
        let is_custom = self.has_own_all_reduce(num_gpus);
        let num_gpus = self.local_ranks(num_gpus);
        let is_through_host = self.note_host_copies();
        if is_ring || is_pcie || !is_custom || is_through_host {
            if let Some(curve) = self.collective(Collective::AllReduce, num_gpus)? {
                return Ok(curve);
            }
            if is_ring || is_through_host || found.is_fallback {
                self.note("NCCL's ring was not measured, priced by its steps and the link");
                return Ok(self.ring(num_gpus));
            }
            self.note("NCCL's ring was not measured; fallback: the engine's own kernel");
        }
        self.note_fallback(&found);
        let at_best = found.at_best(true);
        Ok(FamilyCurve::Collective(CollectiveCurve::all_reduce(&found.series, num_gpus as f64, self.chip, at_best)))
    }

    /// Any other exchange.
    pub(super) fn exchange(&mut self, collective: Collective, group: RankGroup) -> Result<FamilyCurve> {
        let num_gpus = self.local_ranks(collective.ranks(group));
        self.note_host_copies();
        if let Some(curve) = self.collective(collective, num_gpus)? {
            return Ok(curve);
        }
        let found = self.tables.of_key(&ALL_REDUCE, &AllReduceKind::Graph, &[])?;
        let [launch, efficiency, ..] = found.series.coefficients[..] else { return Ok(FamilyCurve::Ideal) };
        self.note("not measured, priced by the link and an all-reduce's floor");
        let bytes_per_s = self.chip.link_bytes_per_s * efficiency.min(1.0);
        Ok(FamilyCurve::Link { floor_us: launch, bytes_per_s })
    }

    fn is_pcie(&self) -> bool {
        self.link.is_some_and(|link| link.kind == InterconnectKind::Pcie)
    }

    /// Whether bytes between the GPUs go through the host's memory, which a note says.
    fn note_host_copies(&mut self) -> bool {
        if self.is_through_host {
            self.note(format_args!(
                "GPUs over PCIe without peer access: NCCL copies through the host's memory, priced at {HOST_COPY_SHARE} of the link's rate \
                 (assumed), and vLLM's own all-reduce is off"
            ));
        }
        self.is_through_host
    }

    /// Whether the engine sums over so many ranks with a kernel of its own. The one of vLLM and SGLang shares the memory of one host;
    /// TensorRT-LLM's is taken to serve all GPUs of a link.
    fn has_own_all_reduce(&self, num_gpus: u64) -> bool {
        let is_on_one_host = self.link.is_some_and(|link| num_gpus <= u64::from(link.num_gpus_per_host));
        let serves = CUSTOM_ALL_REDUCE_RANKS.contains(&num_gpus) && is_on_one_host;
        self.crossing.is_none() && (serves || self.tables.engine().is_trtllm())
    }

    /// Ranks of a group that a link joins. Adds a note if it does not join all.
    fn local_ranks(&mut self, num_gpus: u64) -> u64 {
        let Some(crossing) = self.crossing else { return num_gpus };
        self.notes.push(crossing.note());
        crossing.local_ranks(num_gpus)
    }

    /// A collective of NCCL as measured; `None` if no GPU of this kind of link was. NCCL was timed launched by the host, as vLLM
    /// launches the gather of logits; inside a CUDA graph it may be faster.
    fn collective(&mut self, collective: Collective, num_gpus: u64) -> Result<Option<FamilyCurve>> {
        let key = match collective {
            Collective::SendReceive => Collective::AllToAll,
            other => other,
        };
        let Some(found) = if_any(self.tables.of_key(&EXCHANGE, &key, &[]))? else { return Ok(None) };
        if found.link != self.link.map(|link| link.kind) {
            return Ok(None);
        }
        self.note_fallback(&found);
        if key != collective {
            self.note("NCCL's send and receive was not measured; fallback: an all-to-all");
        }
        let at_best = found.at_best(key == collective);
        let curve = CollectiveCurve::nccl(found.key, &found.series, num_gpus as f64, self.chip, at_best);
        if let Some(most) = curve.extrapolated_from() {
            self.note(format_args!("measured over up to {most} ranks, more take the steps of a tree (assumed)"));
        }
        Ok(Some(FamilyCurve::Collective(curve)))
    }

    /// A ring all-reduce of NCCL.
    fn ring(&self, num_gpus: u64) -> FamilyCurve {
        let hop_us = if self.is_pcie() { PCIE_HOP_US } else { RING_NVLINK_HOP_US };
        let floor_us = RING_BASE_US + (2 * (num_gpus - 1)) as f64 * hop_us;
        FamilyCurve::Link { floor_us, bytes_per_s: RING_EFFICIENCY * self.chip.link_bytes_per_s }
    }
}

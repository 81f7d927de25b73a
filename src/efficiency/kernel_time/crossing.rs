//! Collectives between GPUs that no one link joins: each GPU sends through its own network card.

use crate::error::{Error, Result};
use crate::hardware::{Hardware, NetworkKind};
use crate::physics::communication::{Collective, RankGroup};
use crate::physics::{Kernel, Operator};
use crate::units::{GIGA, time_us};

use super::collectives::{PCIE_HOP_US, RING_EFFICIENCY};

/// Latency of a hop between servers in NCCL's tree and in its ring, µs.
///
/// # Source
/// NCCL's cost model for its low-latency protocol (`hwLat` in `src/graph/tuning.cc`).
const TREE_HOP_US: f64 = 5.0;
const RING_HOP_US: f64 = 2.7;

/// The cost of a collective that leaves the GPUs that a link joins.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct LinkCrossing {
    collective: Collective,
    group: RankGroup,
    /// Ranks of the group that a link joins.
    linked_ranks: u64,
    /// Linked parts of the group.
    parts: u64,
    /// Share of the calls that leave the linked GPUs: of hand-overs those at some boundaries of stages.
    share: f64,
    /// Bytes through a network card by byte that a rank sends in all.
    remote: f64,
    /// Latency of the steps between parts, µs.
    hops_us: f64,
    /// Rate of a network card, bytes/s.
    bytes_per_s: f64,
}

/// The collective of a kernel, and its ranks.
fn collective(kernel: &Kernel) -> Option<(Collective, RankGroup)> {
    match *kernel {
        Kernel::AllReduce { num_gpus, .. } => {
            Some((Collective::AllReduce, RankGroup { num_ranks: num_gpus, stride: 1 }))
        }
        Kernel::Exchange { collective, group, .. } => Some((collective, group)),
        _ => None,
    }
}

impl LinkCrossing {
    /// The crossing of an operator; `None` if a link joins all of its ranks.
    ///
    /// # Formula
    /// `n` ranks are in `h` parts of `g`, the last of `m = n − (h − 1)·g`. The busiest card sends, by byte that a rank sends in all:
    /// - of an all-reduce `(h − 1)·n / (h·m·(n − 1))`: the GPUs of a part share what leaves it, as the levels of a tree do;
    /// - of an all-gather or a reduce-scatter `1/m`: each of `m` rings passes a card;
    /// - of an all-to-all `(n − m)/(n − 1)`: all that is for other parts.
    ///
    /// # Errors
    /// `ErrorKind::Invalid` if the GPU's file names no network.
    pub fn new(operator: &Operator, hardware: &Hardware) -> Result<Option<Self>> {
        let (Some((collective, group)), Some(link)) = (collective(&operator.kernel), hardware.interconnect) else {
            return Ok(None);
        };
        let linked_ranks = group.linked_ranks(u64::from(link.num_gpus));
        let parts = group.num_ranks.div_ceil(linked_ranks);
        if parts < 2 {
            return Ok(None);
        }
        let network = hardware.network.ok_or_else(|| no_network(operator, group, hardware))?;
        let (tree_us, ring_us) = match network.kind {
            NetworkKind::Rdma => (TREE_HOP_US, RING_HOP_US),
            NetworkKind::Pcie => (PCIE_HOP_US, PCIE_HOP_US),
        };
        let (n, h) = (group.num_ranks as f64, parts as f64);
        let least = (group.num_ranks - (parts - 1) * linked_ranks) as f64;
        let (remote, hops_us) = match collective {
            Collective::AllReduce => ((h - 1.0) * n / (h * least * (n - 1.0)), 2.0 * h.log2().ceil() * tree_us),
            Collective::AllGather | Collective::ReduceScatter => (1.0 / least, (h - 1.0) * ring_us),
            Collective::AllToAll => ((n - least) / (n - 1.0), ring_us),
            Collective::SendReceive => (1.0, ring_us),
        };
        let share = if collective == Collective::SendReceive { (h - 1.0) / (n - 1.0) } else { 1.0 };
        let bytes_per_s = network.unidirectional_bytes_per_s;
        Ok(Some(LinkCrossing { collective, group, linked_ranks, parts, share, remote, hops_us, bytes_per_s }))
    }

    /// Of a call's ranks those that a link joins, at least the two that a collective takes.
    pub fn local_ranks(&self, num_gpus: u64) -> u64 {
        num_gpus.min(self.linked_ranks).max(2)
    }

    /// Roofline rate of the bytes that a rank sends in all, bytes/s.
    pub fn roofline_bytes_per_s(&self, link_bytes_per_s: f64) -> f64 {
        let (local, remote) = (1.0 / link_bytes_per_s, self.remote / self.bytes_per_s);
        1.0 / (local + self.share * (remote - local).max(0.0))
    }

    /// Time of a call that sends `sent_bytes` from each rank, from its time within a part: the parts' own sums and copies
    /// overlap with what the cards send.
    pub fn time_us(&self, local_us: f64, sent_bytes: f64) -> f64 {
        let remote_us = time_us(self.remote * sent_bytes, RING_EFFICIENCY * self.bytes_per_s);
        local_us + self.share * ((remote_us - local_us).max(0.0) + self.hops_us)
    }

    /// The assumptions behind the price.
    pub fn note(&self) -> String {
        let LinkCrossing { collective, group, parts, bytes_per_s, .. } = self;
        format!(
            "{collective} of {} ranks, over {parts} groups of linked GPUs: priced by {:.0} GB/s between them for each GPU and NCCL's \
             latencies, not measured",
            group.num_ranks,
            bytes_per_s / GIGA
        )
    }
}

fn no_network(operator: &Operator, group: RankGroup, hardware: &Hardware) -> Error {
    let linked = hardware.interconnect.map_or(1, |link| link.num_gpus);
    let problem = format!(
        "has a link between {linked} GPUs and no network, which {} needs over {} of them: add [network] with kind (rdma or pcie), \
         unidirectional_bytes_per_s, source and retrieved to its file; num_gpus of [interconnect] says how many the link joins",
        operator.name,
        group.num_ranks * group.stride
    );
    Error::invalid(hardware.name.as_str(), vec![problem])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType;
    use crate::hardware::Interconnect;
    use crate::physics::{OperatorGroup, operator_id::OperatorKind};

    fn crossing(gpu: &str, kernel: Kernel) -> Result<Option<LinkCrossing>> {
        over(&Hardware::find(gpu).expect("a built-in GPU"), kernel)
    }

    fn over(hardware: &Hardware, kernel: Kernel) -> Result<Option<LinkCrossing>> {
        let kind = OperatorKind::AllReduce;
        let operator = Operator {
            id: crate::physics::OperatorId::first(kind),
            name: kind.name(),
            group: OperatorGroup::Communication,
            count: 1,
            flops: 0.0,
            bytes: 0.0,
            compute_dtype: DType::Bfloat16,
            kernel,
        };
        LinkCrossing::new(&operator, hardware)
    }

    fn all_reduce(num_gpus: u64) -> Kernel {
        Kernel::AllReduce { message_bytes: 0.0, num_gpus, is_ring: false }
    }

    fn exchange(collective: Collective, num_ranks: u64, stride: u64) -> Kernel {
        Kernel::Exchange { collective, sent_bytes: 0.0, group: RankGroup { num_ranks, stride } }
    }

    #[test]
    fn sixteen_gpus_are_two_servers_of_h100_and_one_rack_of_gb200() {
        let two = crossing("h100_sxm", all_reduce(16)).expect("a network").expect("two servers");
        // A rank sends 1.875 MB in an all-reduce of 1 MB: 1/15 of it, 125 kB, through a card of 50 GB/s at 80 %, after 2 · 5 µs.
        assert!((two.time_us(0.0, 1.875e6) - (125e3 / 40e3 + 10.0)).abs() < 1e-9, "{two:?}");
        assert!((two.time_us(30.0, 1.875e6) - 40.0).abs() < 1e-9, "the ranks of a server take longer than the cards");
        assert_eq!(crossing("h100_sxm", all_reduce(8)).expect("no network is needed"), None);
        assert_eq!(crossing("gb200", all_reduce(16)).expect("no network is needed"), None);
        assert!(crossing("gb200", all_reduce(144)).expect("a network").is_some());
    }

    #[test]
    fn replicas_of_a_whole_server_meet_over_the_network_alone() {
        let kernel = exchange(Collective::AllGather, 4, 8);
        let crossing = crossing("h100_sxm", kernel).expect("a network").expect("four servers");
        // Each rank is alone in its server, so that a card sends all: 50 GB/s instead of the 450 of the link.
        assert!((crossing.roofline_bytes_per_s(450e9) / 50e9 - 1.0).abs() < 1e-12);
        assert!((crossing.time_us(0.0, 4e6) - (100.0 + 3.0 * 2.7)).abs() < 1e-9);
    }

    #[test]
    fn rings_pass_each_card_and_the_smallest_part_is_the_slowest() {
        let of = |num_ranks| crossing("h100_sxm", exchange(Collective::AllGather, num_ranks, 1)).expect("a network");
        let us = |ranks| of(ranks).expect("two servers").time_us(0.0, 8e6) - 2.7;
        // An eighth of 8 MB at 40 GB/s; with nine GPUs all of it goes to the one that is alone.
        assert!((us(16) - 25.0).abs() < 1e-9 && (us(9) - 200.0).abs() < 1e-9, "{} {}", us(16), us(9));
        let nine = crossing("h100_sxm", all_reduce(9)).expect("a network").expect("two servers");
        // Half of the message, of which a rank sends 16/9.
        assert!((nine.remote - 0.5 * 2.0 / (16.0 / 9.0)).abs() < 1e-12, "{nine:?}");
    }

    #[test]
    fn one_of_three_stage_boundaries_is_between_servers() {
        let crossing =
            crossing("h100_sxm", exchange(Collective::SendReceive, 4, 4)).expect("a network").expect("two servers");
        assert_eq!(
            crossing.local_ranks(Collective::SendReceive.ranks(crossing.group)),
            2,
            "a hand-over is between two"
        );
        assert!((crossing.time_us(6.0, 400e3) - (6.0 + (4.0 + 2.7) / 3.0)).abs() < 1e-9, "{crossing:?}");
    }

    #[test]
    fn links_of_twice_as_many_gpus_are_never_slower_and_more_bytes_never_faster() {
        let mut hardware = Hardware::find("h100_sxm").expect("a built-in GPU");
        let link = hardware.interconnect.expect("NVLink");
        let exchanges =
            [Collective::AllGather, Collective::ReduceScatter, Collective::AllToAll, Collective::SendReceive];
        let kernels = exchanges.map(|collective| exchange(collective, 64, 1)).into_iter().chain([all_reduce(64)]);
        for kernel in kernels {
            let mut before = f64::INFINITY;
            for num_gpus in [1, 2, 4, 8, 16, 32] {
                hardware.interconnect = Some(Interconnect { num_gpus, ..link });
                let crossing = over(&hardware, kernel).expect("a network").expect("several servers");
                let us = |bytes| crossing.time_us(10.0, bytes);
                assert!(us(1e6) <= before && us(1e5) <= us(1e6) && us(0.0) > 10.0, "{crossing:?}");
                assert!(crossing.roofline_bytes_per_s(450e9) <= 450e9 * (1.0 + 1e-12), "{crossing:?}");
                before = us(1e6);
            }
        }
    }

    #[test]
    fn bridges_of_two_cards_reach_others_over_pcie_and_cards_without_a_network_are_refused() {
        assert!(crossing("h100_nvl", all_reduce(4)).is_ok_and(|crossing| crossing.is_some()));
        let error = crossing("l40s", all_reduce(16)).expect_err("no network is known").to_string();
        assert!(error.contains("link between 8 GPUs") && error.contains("over 16 of them: add [network]"), "{error}");
    }
}

//! A load replayed on a server, and its report. `noise` reads by how much steps scatter, `report` replays the load, `details` adds the parts
//! that some loads and servers alone have: `replicas`, `pools` of prefill and decode replicas, `sessions`, `speculation`, the KV cache's `tiers` with `offload` and `disk`, and the server's `start`.

mod details;
mod disk;
mod noise;
mod offload;
mod pools;
mod replicas;
mod report;
mod sessions;
mod speculation;
mod start;
mod tiers;

pub use details::Details;
pub use disk::DiskReport;
pub use noise::{NOISE, Noise, OF_CORRECTION};
pub use offload::OffloadReport;
pub use pools::{KvWay, KvWayKind, PoolReport, PoolServer, Pools, PoolsReport, TRANSFERS_NOTE};
pub use replicas::{RanksOfServer, ReplicaReport, Replicas, ReplicasReport};
pub use report::{AllReplicas, Counters, GIVEN, ReplayedLoad, Server, Simulation};
pub use sessions::{SessionReport, Turns};
pub use speculation::{DraftedLoad, SpeculationReport};
pub use start::{ServerStart, StartReport};
pub use tiers::{Comparison, FewerTiers, ServedLoad};

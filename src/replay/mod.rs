//! A replay of vLLM's V1 engine: it turns step times and a workload into the latencies that clients see. Times are integer
//! nanoseconds, events have a total order, and nothing is random but what [`NoisySteps`] adds. Step times come from a
//! [`LatencyModel`](crate::latency::LatencyModel); only `spread` asks the step model for its uncertainty.

mod batch;
mod block_lives;
mod block_pool;
mod clock;
mod cold;
mod config;
mod distribution;
mod engine;
pub(crate) mod export;
mod fast_forward;
#[cfg(test)]
mod fast_forward_tests;
mod front_end;
mod gaps;
mod kv_cache;
mod kv_metrics;
mod list;
mod metrics;
mod noise;
mod notes;
mod observe;
mod offload;
mod overload;
mod prefill_time;
mod prefix;
mod record;
mod scheduler;
mod slot;
pub(crate) mod spread;
mod waiting;

pub use block_lives::BlockStats;
pub use cold::{ColdSteps, HeldGroup, HeldReport, HeldRequests};
pub use config::{EngineConfig, SchedulingPolicy};
pub use distribution::Distribution;
pub use engine::replay;
pub use kv_metrics::{
    Hits, HostCost, KvMetrics, KvWatch, PrefixCacheBalance, PrefixCachePrices, PrefixGroup, WatchedReplay,
};
pub use metrics::{Metrics, StageMetrics};
pub use noise::NoisySteps;
pub use observe::{KvEvent, Observer, StepEvent, TransferEvent};
pub use offload::{DiskCounters, KvDisk, KvOffload, LoadOrCompute, OffloadCounters, TransferCounters};
pub use record::{EngineCounters, Outcome, Replay, RequestRecord};

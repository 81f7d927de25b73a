//! Replays a load on vLLM's V1 engine, with step times that are predicted: schedulers, KV cache and tiers, workloads, server files.
//!
//! Step times come from a [`LatencyModel`](ridgepoint::latency::LatencyModel) of the package `ridgepoint`. A replay turns them and a
//! workload into the latencies that clients see. Times are integer nanoseconds, events have a total order, and nothing is random but
//! what [`NoisySteps`] adds. Only [`Spread`] asks the step model for its uncertainty.

#![cfg_attr(test, allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap, clippy::cast_sign_loss))]

// Files of tests/common serve unit tests too, and name the crate as other tests do.
#[cfg(test)]
extern crate self as ridgepoint_replay;

pub mod cold_start;
pub mod export;
pub mod input;
pub mod server_config;
pub mod workload;

mod batch;
mod block_lives;
mod block_pool;
mod clock;
mod cold;
mod config;
mod distribution;
mod engine;
mod fast_forward;
#[cfg(test)]
mod fast_forward_tests;
mod figures_json;
mod front_end;
mod gaps;
mod grown;
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
mod spread;
mod waiting;

pub use block_lives::BlockStats;
pub use cold::{ColdSteps, HeldGroup, HeldReport, HeldRequests};
pub use config::{EngineConfig, MAX_GPU_BLOCKS, SchedulingPolicy};
pub use distribution::Distribution;
pub use engine::replay;
pub use figures_json::{find_hardware, hardware_from_json};
pub use kv_metrics::{
    Hits, HostCost, KvMetrics, KvWatch, PrefixCacheBalance, PrefixCachePrices, PrefixGroup, WatchedReplay,
};
pub use metrics::{Metrics, StageMetrics};
pub use noise::NoisySteps;
pub use observe::{KvEvent, Observer, StepEvent, SubmittedEvent, TransferEvent};
pub use offload::{DiskCounters, KvDisk, KvOffload, LoadOrCompute, OffloadCounters, TransferCounters};
pub use record::{EngineCounters, Outcome, Replay, RequestRecord};
pub use spread::{Factors, Intervals, Spread, SpreadSampler, TTFT_TAIL_REMARK};

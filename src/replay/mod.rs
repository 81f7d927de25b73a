//! A replay of vLLM's V1 engine: what clients would see of a workload, given how long steps take. Integer nanoseconds, a
//! total order of events, no randomness. Uses `latency`, `workload`, `deployment`; the step predictor stays behind
//! [`LatencyModel`](crate::latency::LatencyModel), but for `spread`, which asks it how sure it is.

mod batch;
mod block_pool;
mod clock;
mod config;
mod distribution;
mod engine;
pub mod export;
mod front_end;
mod gaps;
mod kv_cache;
mod metrics;
mod observe;
mod prefix;
mod record;
mod scheduler;
mod slot;
mod spread;
mod steady;
#[cfg(test)]
mod steady_tests;
mod waiting;

pub use config::{EngineConfig, MAX_GPU_BLOCKS, SchedulingPolicy};
pub use distribution::Distribution;
pub use engine::replay;
pub use front_end::MAX_STAGES;
pub use metrics::{Metrics, StageMetrics};
pub use observe::{Observer, StepEvent};
pub use record::{EngineCounters, Outcome, Replay, RequestRecord};
pub use spread::{Factors, Intervals, Spread, SpreadSampler};

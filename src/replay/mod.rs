//! A replay of vLLM's V1 engine: it turns step times and a workload into the latencies that clients see. Times are integer
//! nanoseconds, events have a total order, and nothing is random but what [`NoisySteps`](noise::NoisySteps) adds. Step times come from a
//! [`LatencyModel`](crate::latency::LatencyModel); only `spread` asks the step model for its uncertainty.

mod batch;
pub(crate) mod block_lives;
mod block_pool;
mod clock;
pub(crate) mod cold;
pub(crate) mod config;
pub(crate) mod distribution;
mod engine;
pub(crate) mod export;
mod fast_forward;
#[cfg(test)]
mod fast_forward_tests;
mod front_end;
mod gaps;
mod grown;
mod kv_cache;
pub(crate) mod kv_metrics;
mod list;
pub(crate) mod metrics;
pub(crate) mod noise;
mod notes;
pub(crate) mod observe;
pub(crate) mod offload;
mod overload;
mod prefill_time;
mod prefix;
pub(crate) mod record;
mod scheduler;
mod slot;
pub(crate) mod spread;
mod waiting;

pub use block_lives::BlockStats;
pub use config::{EngineConfig, SchedulingPolicy};
pub(crate) use distribution::Distribution;
pub use engine::replay;
pub use metrics::Metrics;
pub use observe::{Event, Events, KvEvent, Observer, StepEvent, SubmittedEvent, TransferEvent};
pub(crate) use offload::KvDisk;
pub use offload::KvOffload;
pub use record::{Outcome, Replay, RequestRecord};

//! Replays a load on vLLM's V1 engine: step times come from a [`LatencyModel`](ridgepoint::latency::LatencyModel), the schedule from
//! vLLM's rules, and the latencies that clients see from both.
//!
//! Times are integer nanoseconds, events have a total order, and nothing is random but what [`NoisySteps`] adds. Equal inputs give equal
//! replays.
//!
//! ```
//! use ridgepoint::StepModel;
//! use ridgepoint_replay::server_config::ServerConfig;
//! use ridgepoint_replay::workload::{ClosedLoop, RequestShape};
//! use ridgepoint_replay::{Metrics, replay};
//!
//! let server = ServerConfig::parse("server.yaml", "model: llama-3.1-8b\nhardware: h100\nmax-num-seqs: 64\n")?;
//! let (model, _) = server.find_model(None)?;
//! let hardware = server.find_hardware(None)?;
//! let steps = StepModel::new(&model, &hardware, &server.deployment)?;
//! let engine = server.engine_config(&model, &hardware, steps.engine())?;
//! let latency = engine.latency(steps)?;
//!
//! // Eight clients send 80 requests of 512 prompt tokens and 128 output tokens, each when its last one has finished.
//! let mut load = ClosedLoop::new(8, 80, RequestShape::new(512, 128))?;
//! let replayed = replay(&latency, &engine.config, &mut load, &mut [])?;
//! let run = Metrics::of(&replayed).run;
//! assert_eq!((run.finished, run.output_tokens), (80, 80 * 128));
//!
//! // Reading 15 GB of weights at 3.35 TB/s takes 4.5 ms; a step of eight decodes needs a little more.
//! let itl_ms = run.itl_ms.map(|gaps| gaps.p50).unwrap();
//! assert!((4.5..9.0).contains(&itl_ms), "{itl_ms}");
//! # Ok::<(), ridgepoint::Error>(())
//! ```
//!
//! # Public names
//!
//! | a user | names |
//! |---|---|
//! | replays a load | [`replay()`](replay), [`EngineConfig`], [`Replay`], [`RequestRecord`] |
//! | sums a replay up | [`Metrics`], [`Distribution`], [`KvMetrics`], [`Spread`] |
//! | watches a replay | [`Observer`] and its events |
//! | makes a load | [`workload`]: lists, open and closed loops, sessions, load profiles, request files |
//! | reads a server's file | [`server_config::ServerConfig`] |
//! | keeps KV blocks on host and disk | [`KvOffload`], [`KvDisk`] |
//! | writes a trace | [`export`] |
//! | predicts the start of a server | [`cold_start`] |
//! | finds a GPU in a JSON of figures | [`find_hardware`] |
//!
//! # Map
//!
//! | module | what lives there |
//! |---|---|
//! | [`export`], `metrics`, `kv_metrics`, `spread` | files of a replay, its figures and their intervals |
//! | `resource` | what a latency would fall with |
//! | `engine`, `clock`, `load_state` | the loop over steps, its clock, and whether it keeps up with its load |
//! | `scheduler`, `scheduler_options`, `waiting`, `slot`, `batch` | scheduling rules of vLLM, SGLang and TensorRT-LLM, requests that wait and run |
//! | `speculation` | how many drafts of a step are accepted |
//! | `kv_cache`, `block_pool`, `prefix`, `offload` | KV blocks on the GPU, shared prefixes, tiers on host and disk |
//! | `fast_forward` | steps without a change of the batch, taken at once |
//! | [`server_config`], [`workload`], [`cold_start`] | the server of an experiment, the load of its clients, its start |
//! | [`input`] | readers of csv, jsonl, YAML and gzip |
//! | [`vllm_bench`] | the result of `vllm bench serve`: its keys, read and written |
//!
//! The feature `schema` adds schemas of everything that is written as JSON, by schemars. It is off by default.

#![cfg_attr(test, allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap, clippy::cast_sign_loss))]

// Files of tests/common serve unit tests too, and name the crate as other tests do.
#[cfg(test)]
extern crate self as ridgepoint_replay;

pub mod cold_start;
pub mod export;
pub mod input;
pub mod server_config;
pub mod vllm_bench;
pub mod workload;

mod batch;
mod block_lives;
mod block_pool;
mod clock;
mod cluster;
mod cold;
mod config;
mod distribution;
mod engine;
mod engine_rules;
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
mod load_state;
mod metrics;
mod noise;
mod notes;
mod observe;
mod offload;
mod prefill_time;
mod prefix;
mod radix_cache;
mod radix_tree;
mod record;
mod resource;
mod scheduler;
mod scheduler_options;
mod sglang_options;
mod slot;
mod speculation;
mod spread;
mod trtllm_options;
mod waiting;

pub use block_lives::BlockStats;
pub use cluster::{
    Cluster, ClusterReplay, Disaggregated, DisaggregatedReplay, KvTransfer, KvTransferRecord, Lockstep, MAX_REPLICAS,
    Ranks, Router, RouterKind,
};
pub use cold::{ColdSteps, HeldGroup, HeldReport, HeldRequests};
pub use config::{EngineConfig, MAX_GPU_BLOCKS};
pub use distribution::Distribution;
pub use engine::replay;
pub use engine_rules::EngineRules;
pub use figures_json::{find_hardware, hardware_from_json};
pub use front_end::front_end_times_us;
pub use kv_metrics::{
    Hits, HostCost, KvMetrics, KvWatch, PrefixCacheBalance, PrefixCachePrices, PrefixGroup, WatchedReplay,
};
pub use load_state::{LoadState, QueueTrend};
pub use metrics::{Metrics, StageMetrics};
pub use noise::NoisySteps;
pub use observe::{Event, Events, KvEvent, Observer, StepEvent, SubmittedEvent, TransferEvent};
pub use offload::{DiskCounters, KvDisk, KvOffload, LoadOrCompute, OffloadCounters, TransferCounters};
pub use record::{EngineCounters, Outcome, Replay, RequestRecord};
pub use resource::{Resource, ResourceSampler};
pub use scheduler_options::{SCHEDULER_ARGUMENTS, SchedulerOptions, SchedulingPolicy};
pub use sglang_options::{SGLANG_SCHEDULER_ARGUMENTS, SglangOptions, SglangPolicy};
pub use speculation::Speculation;
pub use spread::{Added, Factors, Intervals, Spread, SpreadSampler, TTFT_TAIL_REMARK};
pub use trtllm_options::{CapacitySchedulerPolicy, ContextChunkingPolicy, TRTLLM_SCHEDULER_ARGUMENTS, TrtllmOptions};

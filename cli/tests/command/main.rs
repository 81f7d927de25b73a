//! The `ridgepoint` binary as a user types it.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::indexing_slicing,
    clippy::cast_possible_wrap
)]

#[path = "../support/mod.rs"]
mod cli_support;
#[path = "../../../tests/common/mod.rs"]
mod common;
#[path = "../../../lab/tests/evaluate_support/mod.rs"]
mod evaluate_support;
#[path = "../../../lab/tests/ingest_support/mod.rs"]
mod ingest_support;
#[cfg(feature = "probe")]
#[path = "../../../probe/tests/support/mock.rs"]
mod mock;
#[cfg(feature = "probe")]
#[path = "../../../probe/tests/support/planted.rs"]
mod planted;

mod accuracy;
mod bench;
mod calibrate;
mod capture;
mod capture_gaps;
mod catalogue;
mod cold_start;
mod correction;
mod engine_log;
mod engines;
mod evaluate;
mod evaluate_steps;
mod export;
mod fit;
mod fit_clients;
mod fit_steps;
mod gpu_options;
mod ingest;
mod ingest_streams;
mod ingest_transfers;
mod kills;
mod kv_transfers;
mod limits;
mod outputs;
mod plan;
mod pools;
mod predict_step;
#[cfg(feature = "probe")]
mod probe;
mod ranks;
mod real_vllm;
mod replicas;
#[cfg(feature = "serve")]
mod serve;
mod simulate;
mod simulate_faults;
mod simulate_kv_disk;
mod simulate_kv_metrics;
mod simulate_kv_offload;
mod simulate_lists;
mod simulate_noise;
mod simulate_sampling;
mod simulate_sessions;
mod speculation;
mod sweep;
mod sweep_resume;
mod sweep_shards;
mod training;
mod usage;

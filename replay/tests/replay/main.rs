//! Replays: schedules worked out by hand, laws, vLLM's own scheduler, and the workloads they read.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss
)]

#[path = "../common/replay_cases.rs"]
mod cases;
#[path = "../common/replay.rs"]
mod common;
#[path = "../../../tests/common/mod.rs"]
mod data_pack;
#[path = "../common/loads.rs"]
mod loads;

mod closed_loop;
mod cluster;
mod cold_start;
mod disaggregated;
mod disk_tier;
mod dynamo_mocker;
mod host_tier;
mod kv_capacity;
mod laws;
mod observers;
mod published_loads;
mod ranks;
mod scenarios;
mod serving_decode;
mod sessions;
mod speculation;
mod vllm;
mod vllm_ranks;
mod workload_readers;

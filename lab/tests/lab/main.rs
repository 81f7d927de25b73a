//! The laboratory: measurements, calibration, traces, judging and fitting on made-up data.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss
)]

#[path = "../../../tests/common/mod.rs"]
mod common;
#[path = "../evaluate_support/mod.rs"]
mod evaluate_support;
#[path = "../ingest_support/mod.rs"]
mod ingest_support;

mod calibrate_latent_block;
mod calibrate_off_table;
mod evaluate;
mod fit_queue;
mod fit_steps;
mod ingest_harm;
mod ingest_otlp;
mod ingest_otlp_faults;
mod ingest_own_export;
mod ingest_reports;
mod ingest_steps;
mod ingest_tools;
mod measuring_kit;
mod planted_prices;
mod planted_transfers;
mod sampled_steps;
mod transfer_recovery;

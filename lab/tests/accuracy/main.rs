//! Accuracy on the measurements in `RIDGEPOINT_DATA`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss
)]

#[path = "../../../tests/common/mod.rs"]
mod common;
#[path = "../evaluate_support/mod.rs"]
mod evaluate_support;

mod closed_loop_correction;
mod fit_serving;
mod serving_replay;

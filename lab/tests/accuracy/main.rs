//! Accuracy on the measurements in `RIDGEPOINT_DATA`.
#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

#[path = "../../../tests/common/mod.rs"]
mod common;
#[path = "../evaluate_support/mod.rs"]
mod evaluate_support;

mod closed_loop_correction;
mod fit_serving;
mod serving_replay;

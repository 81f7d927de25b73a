//! The laboratory of ridgepoint: kernel timings become efficiency tables, traces become corrections, and predictions are judged
//! against measured runs and swept over servers and loads. It serves the command and the bindings and promises no API.
#![cfg_attr(test, allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap, clippy::cast_sign_loss))]

pub mod argument_report;
pub mod bench;
pub mod calibrate;
pub mod cold_start;
mod elastic_net;
pub mod evaluate;
pub mod fit;
pub mod hardware_report;
pub mod huber;
pub mod ingest;
pub mod llm_d_flags;
mod measured_time;
pub mod measurements;
pub mod model_report;
pub mod predict_step;
pub mod prediction;
pub mod served;
pub mod simulate;
pub mod solver;
pub mod stats;
pub mod sweep;
pub mod training;
pub mod transfers;
pub mod words;

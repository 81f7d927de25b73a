//! Step predictions judged against traces of real engines: runs made ready, targets, splits that hold rows back, errors, and
//! simpler predictions beside. Uses `ingest`, `step_model`, `correction`, and `evaluate`'s `comparison`, `black_box`.

pub mod case;
pub mod features;
pub mod judge;
pub mod lines;
pub mod read;
pub mod reconstruct;
pub mod report;
pub mod score;
pub mod split;
#[cfg(test)]
mod split_tests;
pub mod window;

//! Fuzz targets: one for every parser of a file, and one for the laws of each of steps, replays and sweeps.
//!
//! A target is a function of bytes that panics if something is wrong. Three drivers share the targets: the tests of this package
//! (every file of the corpora), its program (mutations of the corpora, on any toolchain), and libFuzzer (mutations that follow
//! coverage, on a nightly toolchain).
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss
)] // A panic is how a target says what is wrong.

mod command;
mod core_files;
pub mod corpus;
mod ingest_files;
mod lab_files;
mod laws;
pub mod mutate;
mod sane;
mod scratch;
mod streams;
mod targets;
mod whole_runs;

pub use targets::{Target, find, of_kind, targets};

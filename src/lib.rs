//! How long does one step of an LLM serving engine take, operator by operator, with no GPU at hand?
//!
//! A step is one iteration of the engine: a batch of prefill chunks and decodes. What its operators must do follows exactly
//! from the model's `config.json`; how long they take, from the GPU's roofline and from efficiency tables calibrated on
//! measured kernels. Predictions are pure and deterministic; models, GPUs and tables are built in.
//!
//! ```
//! use ridgepoint::{Deployment, Hardware, Model, Request, StepModel};
//!
//! let model = Model::find("llama-3.1-70b")?;
//! let hardware = Hardware::find("h100")?;
//! let steps = StepModel::new(&model, &hardware, &Deployment::tensor_parallel(4))?;
//!
//! // 63 decodes on top of 1,024 cached tokens each: padded to 64, the next captured CUDA graph.
//! let step = steps.estimate(&[Request::decode(1024); 63])?;
//! assert_eq!(step.padded_tokens, 64);
//!
//! // Each GPU reads a quarter of the weights without the embedding: 17.4 billion × 2 bytes = 34.75 GB, at least 10.4 ms at
//! // 3.35 TB/s. With attention and real kernels the step takes some 20 ms.
//! let weights = model.parameters().total - model.parameters().embedding;
//! assert!(step.bound_us > weights as f64 / 4.0 * 2.0 / 3.35e12 * 1e6);
//! assert!((step.step_time_us / 20_000.0 - 1.0).abs() < 0.05, "{}", step.step_time_us);
//! # Ok::<(), ridgepoint::Error>(())
//! ```
//!
//! # Public names
//!
//! | a user | types |
//! |---|---|
//! | loads a model and a GPU | [`Model`], [`model::builtin_names`], [`Hardware`], [`hardware::builtin_names`], [`DType`] |
//! | describes the engine | [`Deployment`], [`Engine`], [`AttentionBackend`], [`CudagraphMode`], [`GenerationConfig`], [`HostSpeed`] |
//! | makes a [`StepModel`] | [`Options`], [`EfficiencyMode`], [`CorrectionChoice`], [`Correction`] |
//! | predicts a step | [`Step`], [`Request`], [`RequestColumns`], [`StepState`], [`StepEstimate`], [`OperatorEstimate`], [`GroupEstimate`], [`OperatorGroup`], [`Bound`], [`Provenance`] |
//! | asks for delays | [`latency::LatencyModel`] and its implementations, [`latency::HostTimes`] |
//! | sizes a KV cache | [`kv_capacity::KvCapacity`] |
//! | counts the work | [`physics::StepPlan`], and the formula of each operator in [`physics`] |
//! | handles errors | [`Error`], [`ErrorKind`], [`Location`], [`Result`] |
//!
//! # Map
//!
//! Dependencies point downwards; each module's first lines say what it owns and what it may use.
//!
//! | module | what lives there |
//! |---|---|
//! | [`latency`] | the trait that a serving simulator calls: step times, host delays, copies of KV blocks |
//! | `step_model` | [`StepModel`]: a model on a GPU in a deployment; the sum over a step's operators and its lookup tables |
//! | `estimate`, [`step_report`] | [`StepEstimate`]: the time of a step with its breakdown, and its JSON |
//! | [`correction`] | overheads and biases of real engines, as coefficients with physical units |
//! | `efficiency` | how close kernels come to the roofline: kernel models, tables, the source of each time |
//! | [`kv_capacity`] | the KV blocks of a server: the memory equation |
//! | [`physics`] | the operators of one rank in a step: FLOPs, bytes and messages, exact |
//! | [`model`], [`hardware`], `deployment`, `step`, `request` | a checked `config.json`, a GPU's datasheet, engine arguments, a step and its requests |
//! | [`input`], [`dtype`], [`units`] | readers that name every fault, number formats, factors of units |
//! | [`unstable`] | what the other packages of the repository use besides; it may change in any release |
//!
//! Times are `f64` microseconds (`_us`), work is FLOP, data is bytes, rates are per second, counts are integers.
//!
//! # Features
//!
//! `schema`: schemas of everything that is written as JSON, by schemars. Off by default.
//!
//! Replays, workloads and server files are the package `ridgepoint-replay`, so a simulator with a scheduler of its own needs this package
//! alone.

#![cfg_attr(test, allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap, clippy::cast_sign_loss))]
#![warn(missing_docs)]

// Files of tests/common serve unit tests too, and name the crate as other tests do.
#[cfg(test)]
extern crate self as ridgepoint;

pub mod arguments;
pub mod correction;
pub mod coverage;
pub mod dtype;
pub mod hardware;
pub mod input;
pub mod kv_capacity;
pub mod latency;
pub mod model;
pub mod physics;
pub mod step_report;
pub mod units;
pub mod unstable;

mod default_limits;
mod deployment;
mod efficiency;
mod engine;
mod error;
mod estimate;
mod host_speed;
mod request;
mod step;
mod step_model;

pub use correction::Correction;
pub use default_limits::sglang_chunk;
pub use deployment::{AttentionBackend, CudagraphMode, DEPLOYMENT_ARGUMENTS, Deployment, GenerationConfig};
pub use dtype::DType;
pub use efficiency::{Bound, EfficiencyMode, Provenance, engine_on};
pub use engine::Engine;
pub use error::{Error, ErrorKind, Location, Result};
pub use estimate::{GroupEstimate, OperatorEstimate, StepEstimate};
pub use hardware::spec::Hardware;
pub use host_speed::HostSpeed;
pub use model::shape::Model;
pub use physics::OperatorGroup;
pub use request::{Request, RequestColumns};
pub use step::Step;
pub use step_model::{CorrectionChoice, Options, StepModel, StepState};

/// The release, and a hash of the models, GPUs, tables and corrections that are built in: equal inputs give equal predictions where
/// this is equal.
pub const BUILD: &str = concat!(env!("CARGO_PKG_VERSION"), "+", env!("RIDGEPOINT_DATA_HASH"));

/// Compiles and runs the README's Rust examples with the tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

//! ridgepoint predicts how long one step of an LLM serving engine takes.

#![warn(missing_docs)]

#[cfg(feature = "calibrate")]
pub mod calibrate;
pub mod deployment;
pub mod dtype;
pub mod efficiency;
pub mod error;
pub mod estimate;
pub mod hardware;
#[cfg(feature = "calibrate")]
pub mod measurements;
pub mod model;
pub mod physics;
pub mod request;
pub mod step_model;
pub mod units;

mod catalog;

pub use deployment::Deployment;
pub use dtype::{DType, WeightFormat};
pub use error::{Error, Result};
pub use estimate::{OperatorEstimate, StepEstimate};
pub use hardware::Hardware;
pub use model::Model;
pub use request::Request;
pub use step_model::{Options, StepModel};

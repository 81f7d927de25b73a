//! ridgepoint predicts how long one step of an LLM serving engine takes.

#![warn(missing_docs)]

pub mod deployment;
pub mod dtype;
pub mod error;
pub mod hardware;
#[cfg(feature = "calibrate")]
pub mod measurements;
pub mod model;
pub mod physics;
pub mod request;
pub mod units;

mod catalog;

pub use deployment::Deployment;
pub use dtype::{DType, WeightFormat};
pub use error::{Error, Result};
pub use hardware::Hardware;
pub use model::Model;
pub use request::Request;

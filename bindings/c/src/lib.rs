//! ridgepoint behind a C interface: the header is `include/ridgepoint.h`, made by cbindgen from the items here.
//!
//! Every function that can fail returns a [`RidgepointStatus`] and takes where to put an error text; no panic leaves it. What a
//! caller may pass and who owns what is said on each function, in words that read well in the header.

mod create;
mod delays;
mod describe;
mod handle;
mod options;
mod status;
mod steps;
mod text;

pub use create::ridgepoint_model_create;
pub use delays::{
    ridgepoint_output_token_processing_time_us, ridgepoint_preemption_processing_time_us, ridgepoint_queueing_time_us,
    ridgepoint_scheduling_processing_time_us,
};
pub use describe::{ridgepoint_catalogue_json, ridgepoint_model_json, ridgepoint_step_json};
pub use handle::{RidgepointModel, ridgepoint_model_free};
pub use options::RidgepointOptions;
pub use status::{RidgepointStatus, ridgepoint_status_text};
pub use steps::{ridgepoint_step_time_us, ridgepoint_step_times_us};
pub use text::{ridgepoint_string_free, ridgepoint_version};

#[cfg(test)]
mod tests;

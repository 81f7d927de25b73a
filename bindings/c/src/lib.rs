//! The C interface of ridgepoint. cbindgen makes the header `include/ridgepoint.h` from the items here.
//!
//! Every function that can fail returns a [`RidgepointStatus`] and fills an optional error text. No panic crosses the
//! boundary. The comments on functions end up in the header, so they are written for C programmers.

mod create;
mod delays;
mod describe;
mod handle;
mod options;
mod owned_text;
mod status;
mod steps;
mod text;

pub use create::ridgepoint_model_create;
pub use delays::{
    RidgepointTransferDirection, ridgepoint_kv_contention, ridgepoint_kv_transfer_time_us,
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

//! Replays judged against measured serving runs: experiments read, replayed and compared, simpler predictions beside, and where
//! the error comes from. Uses `replay`, `workload`, `latency`, `step_model`, `correction`; prints nothing.

pub mod attribution;
pub mod black_box;
pub mod case;
pub mod closed_loop;
mod closed_loop_load;
pub mod closed_loop_row;
pub mod comparison;
pub mod corrected;
mod even;
pub mod experiment;
pub mod judge;
pub mod measured;
pub mod metric;
pub mod split;
pub mod steps;
mod weight_variant;

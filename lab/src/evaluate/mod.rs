//! Judges predictions by measurements: serving runs, closed loops and traces of steps become cases, cases are predicted together with
//! simpler baselines, and one report has their errors. It prints nothing.

mod baselines;
pub mod black_box;
pub mod capture;
pub mod case;
mod changed_loop;
pub mod closed_loop;
mod closed_loop_launch;
pub mod closed_loop_row;
mod curves;
pub mod experiment;
#[cfg(test)]
mod fixtures;
pub mod fold;
pub mod judge;
pub mod measured;
pub mod metric;
pub mod report;
pub mod scorecard;
pub mod steps;
mod weight_variant;

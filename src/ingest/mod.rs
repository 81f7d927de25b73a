//! Real engines' traces and load generators' reports, read into two kinds of record: steps and requests. Each format has a
//! reader; what is unusable is counted by reason, never silently gone. Uses `request` and `error`; knows no model.

mod csv_columns;
mod dropped;
mod faults;
pub mod format;
pub mod forward_pass;
mod ingested;
mod order;
mod pace;
mod periods;
#[cfg(test)]
mod periods_tests;
mod request;
mod request_cell;
pub mod request_table;
mod step;
pub mod step_csv;
pub mod step_table;
#[cfg(test)]
mod step_table_tests;

pub use dropped::{Dropped, Reason};
pub use ingested::{Ingested, RequestTrace};
pub use periods::{Cleaning, Interval, LeftOut, Periods, periods};
pub use request::RequestRow;
pub use step::{Run, StepRecord, StepTrace};

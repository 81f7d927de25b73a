//! The training tables of the papers on learned simulators, and straight lines fitted to them: waits in the queue (alpha) and steps (beta).
//! They know no physics; a fit or a replay is held against them.

mod lines;
mod queue_rows;
mod report;
mod step_rows;

pub use lines::{HeldOut, LineFit};
pub use queue_rows::{QueueRow, queue_rows, queue_wait_lines};
pub use report::{Training, TrainingReport};

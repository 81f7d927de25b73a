//! Transfers of KV blocks between GPU and CPU: the fixed latency and the bandwidth of each direction, and their contention, fitted to the
//! events of a capture.

mod copies;
mod fit;
mod notice;
mod paired;
mod queue;

pub use copies::{CopySums, fit_copies};
pub use fit::{DirectionFit, Estimate, FEWEST, LinkFit, MOST, fit_link};
pub use notice::{Notice, Notices};
pub use paired::{Direction, PairedTransfer};

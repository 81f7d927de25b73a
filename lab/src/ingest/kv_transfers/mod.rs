//! Transfers of KV blocks between media: their events in pairs, and the report on them.

mod faults;
mod log;
mod pairing;
mod report;

pub use faults::TransferFaults;
pub use log::{CopyLog, DirectionLog, TransferLog};
pub(super) use pairing::{Pairing, TransferEvent};
pub(super) use report::{BlockBytes, FileTransfers, reports};
pub use report::{ContentionReport, RateBounds, TransferFaultsReport, TransferReport, known_rates};

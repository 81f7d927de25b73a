//! A grid of servers and loads, replayed configuration by configuration: the metrics of each, and the highest rate within limits
//! on latency. It prints nothing.
//!
//! ```
//! use ridgepoint::Options;
//! use ridgepoint_lab::sweep::{Grid, Sweep};
//!
//! let grid = Grid::parse("grid.toml", r#"
//!     [server]
//!     model = "llama-3.1-8b"
//!     hardware = "h100"
//!     max_num_seqs = [8, 64]
//!     [load]
//!     request_rate_per_s = 20
//!     input_len_tokens = 500
//!     output_len_tokens = 20
//!     num_requests = 100
//! "#)?;
//! let rows = Sweep::new(grid, Options::default())?.run(1, &[], &|_| Ok(()))?;
//! let ttft_ms = |row: usize| rows[row].ttft_p99_ms.unwrap();
//! assert_eq!((rows.len(), rows[0].status.as_str()), (2, "ok"));
//! assert!(ttft_ms(0) > ttft_ms(1), "with 8 requests in a step, others wait");
//! # Ok::<(), ridgepoint::Error>(())
//! ```

mod best;
mod capacity;
mod engines;
mod grid;
mod load;
mod load_keys;
mod merge;
pub mod plan;
mod point;
mod replica_keys;
mod resume;
mod row;
mod row_file;
mod search;
mod shard;
mod slo;
mod summary;
mod sweeping;
mod tiers;

pub use best::Best;
pub use engines::{EngineResult, EnginesSideBySide};
pub use grid::{Configuration, Grid, GridLimits, MAX_CONFIGURATIONS};
pub use load::LoadPoint;
pub use merge::{MergedRows, NamedRows};
pub use row::Row;
pub use row_file::RowFile;
pub use shard::Shard;
pub use summary::{ListedConfiguration, Reason, SweepList, SweepSummary};
pub use sweeping::{InPlace, Sweep};
pub use tiers::{TierSize, TierSizes};

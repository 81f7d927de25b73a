//! A grid of servers and loads, replayed configuration by configuration: what clients would see of each, and the highest
//! rate that holds limits on latency. Uses `server_config`, `replay`, `workload`, `latency`, `step_model`, `correction`;
//! prints nothing and writes no file but the journal.
//!
//! ```
//! use crate::sweep::{Grid, Options, Sweep};
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
//! let rows = Sweep::new(grid, Options::default())?.run(1, &Default::default(), &|_, _| Ok(()))?;
//! let ttft_ms = |row: usize| rows[row].ttft_p99_ms.unwrap();
//! assert_eq!((rows.len(), rows[0].status.as_str()), (2, "ok"));
//! assert!(ttft_ms(0) > ttft_ms(1), "with 8 requests in a step, others wait");
//! # Ok::<(), ridgepoint::Error>(())
//! ```

mod best;
mod capacity;
mod grid;
mod hash;
mod journal;
mod load;
mod load_keys;
#[cfg(feature = "parquet")]
mod parquet_file;
mod point;
mod row;
mod section;
mod slo;
mod steps;
mod sweeping;
mod write;

pub use best::{Best, best};
pub use capacity::{Capacity, highest_holding};
pub use grid::{Configuration, Grid, MAX_CONFIGURATIONS};
pub use journal::Journal;
pub use load::{Level, LoadPoint, Source};
#[cfg(feature = "parquet")]
pub use parquet_file::write_parquet;
pub use row::{Cell, Row};
pub use slo::{Limit, Metric, Slo, Statistic};
pub use sweeping::{Options, Sweep};
pub use write::{write_csv, write_json, write_jsonl};

//! Results of load generators on one's own server: read ([`result`](BenchResult)), sent again through the replay (`load`), compared
//! (`judge`), and fitted to (`fit`). A result has a dozen figures, so few terms are learned from it.

mod fit;
mod fitted_terms;
mod judge;
mod keys;
mod load;
mod result;

pub use fit::{BenchFit, BenchFitReport, BenchVerdict, fit_bench};
pub use judge::{BenchCase, BenchReport, BenchRow, JudgedResult, judge_bench};
pub use load::LengthSpread;
pub use result::{BenchResult, read_results};

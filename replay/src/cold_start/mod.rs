//! The time from the start of a server to its first token, as six terms with intervals and sources. Uses `step_model`, `kv_capacity`,
//! `physics`, `model`, `hardware`, `deployment`.
//!
//! The terms follow vLLM's own order: the weights come from storage and cross the bus to the GPU, the runtime warms up, the KV cache and
//! the buffers are made, and the first request is queued and prefilled. Bytes, layers and graphs follow from the model and the
//! deployment. Rates are assumed until they are fitted to start-up logs.

mod chosen;
mod file;
mod predict;
mod rates;
mod term;

pub use chosen::Rates;
pub use file::{FittedRate, FittedRates};
pub use predict::{Amounts, ColdStart, CompileCache};
pub use rates::{Rate, RateName, Storage};
pub use term::{Part, Seconds, Source, StartUp, Term, TermName};

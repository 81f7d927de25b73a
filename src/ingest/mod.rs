//! Real engines' traces and load generators' reports, read into two kinds of record: steps and requests. Each format has a
//! reader; what is unusable is counted by reason, never silently gone. Uses `request` and `error`; knows no model.

pub mod otlp;

mod dropped;
mod ingested;
mod request;
mod step;

pub use dropped::{Dropped, Reason};
pub use ingested::{Ingested, RequestTrace};
pub use request::RequestRow;
pub use step::{Run, StepRecord, StepTrace};

/// The name of a file without its extension: what a run is called where nothing else names it.
fn file_name(path: &std::path::Path) -> String {
    path.file_stem().map_or_else(|| "run".to_owned(), |name| name.to_string_lossy().into_owned())
}

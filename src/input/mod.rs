//! Turns text into data: JSON and TOML, typed and checked. Every fault names its place and value, and all faults of one object are
//! reported together. Uses `error`.

mod file_kind;
mod files;
mod keys;
mod log;
mod names;
mod not_text;
mod number_range;
mod reader;
mod shown;
mod text;

pub use file_kind::{FileKind, Limit};
pub(crate) use files::embedded;
pub use files::files_in;
pub(crate) use keys::whole_value;
pub use keys::{Keys, contradiction, other_names, whole_text};
pub use log::{Log, MAX_PROBLEMS, check};
pub use names::did_you_mean;
pub(crate) use names::{near_matches, normalise};
pub use number_range::NumberRange;
pub use reader::{Bounded, Input, Record, RecordCount, read_error, read_text};
pub use shown::shown;
pub(crate) use text::parse_python_json;
pub use text::{Distinct, distinct_json, json_cause, json_error, object_or_text, parse_json, parse_toml};

//! Turns text into data: JSON, TOML, YAML, csv and jsonl, typed and checked. Every fault names its place and value, and
//! all faults of one object are reported together. Uses `error`.

#[cfg(feature = "replay")]
mod columns;
mod file_kind;
mod files;
mod head;
mod keys;
mod names;
mod number_range;
mod reader;
#[cfg(feature = "replay")]
mod record;
#[cfg(feature = "replay")]
mod rows;
mod shown;
mod text;

#[cfg(feature = "replay")]
pub use columns::{Columns, Header};
pub use file_kind::{FileKind, Limit};
pub(crate) use files::embedded;
pub use files::files_in;
pub use head::{Head, HeadKind, head};
#[cfg(feature = "replay")]
pub use keys::whole_text;
pub use keys::{Keys, Log, MAX_PROBLEMS, check, contradiction};
pub use names::{did_you_mean, near_matches, normalise};
pub use number_range::NumberRange;
pub use reader::{Bounded, Input, Record, RecordCount, read_error, read_text};
#[cfg(feature = "replay")]
pub use record::read_texts;
#[cfg(feature = "replay")]
pub use rows::{Row, RowReader, csv_error};
pub use shown::shown;
#[cfg(feature = "replay")]
pub use text::parse_yaml;
pub use text::{Distinct, json_error, object_or_text, parse_json, parse_python_json, parse_toml};

//! Readers of files that the predictor does not need: csv and jsonl row by row, YAML, and files that may be gzip. Every fault names
//! its place and value. Uses [`ridgepoint::input`].

mod columns;
mod gzip;
mod head;
mod json_list;
mod lines;
mod record;
mod rows;
mod yaml;

pub use columns::{Columns, Header};
pub use gzip::{may_be_gzip, open, read};
pub use head::{Head, HeadKind, head};
pub use lines::for_each_line;
pub use record::read_texts;
pub use rows::{Row, RowReader};
pub use yaml::parse_yaml;

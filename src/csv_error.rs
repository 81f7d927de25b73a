//! What is wrong with a csv file, with the line at which it is. Uses `error`.

use crate::error::Error;

/// What the csv reader says, in the words of the project.
pub fn csv_error(origin: &str, error: csv::Error) -> Error {
    let line_of = |position: &Option<csv::Position>| position.as_ref().map_or(0, csv::Position::line);
    let message = match error.kind() {
        csv::ErrorKind::UnequalLengths { pos, expected_len, len } => {
            format!("line {} has {len} cells, the header has {expected_len}", line_of(pos))
        }
        csv::ErrorKind::Utf8 { pos, .. } => format!("line {} is not UTF-8 text", line_of(pos)),
        _ => error.to_string(),
    };
    Error::parse(origin, message)
}

//! The token table: a csv row for each chunk of tokens; `docs/ingest.md` has the columns. A table that is written and read back is
//! the same.

use std::collections::HashMap;
use std::io::Write;
use std::path::Path;
use std::sync::LazyLock;

use ridgepoint::Result;
use ridgepoint_replay::input::Columns;

use super::capture::Capture;
use super::format::Format;
use super::step::{ByKey, Run};
use super::table::{header, read_rows, write_rows};
use super::token::{Chunk, MAX_CHUNK_TOKENS, RequestTokens, TokenTrace};

/// A token table.
pub(super) const FORMAT: Format = Format {
    name: "token-table",
    about: "A token table of this command",
    holds_steps: false,
    is_it: |head, _| head.has("time_ns") && head.has("request_id"),
    read,
};

/// The columns in the order in which they are written. A table has them all, in any order.
pub static COLUMNS: LazyLock<&'static str> =
    LazyLock::new(|| header((Run::default(), RequestTokens::default(), Chunk::default())));

/// Writes the tokens of runs, request by request.
///
/// # Errors
/// Those of `out`.
pub fn write(out: impl Write, runs: &[TokenTrace]) -> std::io::Result<()> {
    let requests = runs.iter().flat_map(|trace| trace.requests.iter().map(move |request| (&trace.run, request)));
    write_rows(out, requests.flat_map(|(run, request)| request.chunks.iter().map(move |chunk| (run, request, chunk))))
}

/// Reads a table.
///
/// # Errors
/// A file that cannot be read or has no rows, a missing or unknown column, or the first faulty row: an empty id, no tokens, or a time
/// before the request's last one.
pub fn read(path: &Path) -> Result<Capture> {
    let mut places: HashMap<(Run, String), u64> = HashMap::new();
    let runs = read_rows(path, Columns::exactly(&COLUMNS), |row, run, _| {
        let (RequestTokens { request_id, .. }, chunk): (_, Chunk) = (row.get()?, row.get()?);
        if request_id.is_empty() {
            return Err(row.bad("request_id", "the id of the request"));
        }
        if !(1..=MAX_CHUNK_TOKENS).contains(&chunk.num_tokens) {
            return Err(row.bad("num_tokens", format!("a whole number from 1 to {MAX_CHUNK_TOKENS}")));
        }
        let last_ns = places.entry((run.clone(), request_id.clone())).or_insert(0);
        if chunk.time_ns < *last_ns {
            return Err(row.bad("time_ns", format!("at least {last_ns}, the time of the request's tokens before")));
        }
        *last_ns = chunk.time_ns;
        Ok((request_id, chunk))
    })?;
    let tokens = runs.into_iter().map(|(run, rows)| TokenTrace { run, requests: by_request(rows) }).collect();
    Ok(Capture { tokens, ..Capture::default() })
}

/// The chunks of a run, request by request in the order of their first rows.
fn by_request(rows: Vec<(String, Chunk)>) -> Vec<RequestTokens> {
    let mut requests: ByKey<String, RequestTokens> = ByKey::default();
    for (request_id, chunk) in rows {
        requests.of(request_id, |request_id| RequestTokens { request_id, chunks: Vec::new() }).chunks.push(chunk);
    }
    requests.values
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_text(rows: &str) -> Result<Capture> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens.csv");
        std::fs::write(&path, format!("{}\n{rows}", *COLUMNS)).unwrap();
        read(&path)
    }

    #[test]
    fn tokens_of_a_request_belong_together_wherever_their_rows_are() {
        let capture = read_text("r,,,,,,,,a,10,1,,\nr,,,,,,,,b,11,2,7,512\nr,,,,,,,,a,30,1,8,0\n").unwrap();
        let requests = &capture.tokens[0].requests;
        assert_eq!((requests.len(), requests[0].gaps_ns().collect::<Vec<_>>()), (2, vec![20]));
        let chunk = Chunk { time_ns: 11, num_tokens: 2, num_running: Some(7), prefill_tokens: Some(512) };
        assert_eq!(requests[1], RequestTokens { request_id: "b".to_owned(), chunks: vec![chunk] });
        let mut written = Vec::new();
        write(&mut written, &capture.tokens).unwrap();
        let expected = format!("{}\nr,,,,,,,,a,10,1,,\nr,,,,,,,,a,30,1,8,0\nr,,,,,,,,b,11,2,7,512\n", *COLUMNS);
        assert_eq!(String::from_utf8(written).unwrap(), expected);
    }

    #[test]
    fn bad_rows_are_named() {
        for (rows, expected) in [
            ("r,,,,,,,,a,10,0,,\n", "column 'num_tokens': found 0, expected a whole number from 1"),
            ("r,,,,,,,,,10,1,,\n", "column 'request_id': found nothing"),
            ("r,,,,,,,,a,10,1,,\nr,,,,,,,,a,9,1,,\n", "row 2: column 'time_ns': found 9, expected at least 10"),
            ("r,,,,,,,,a,-1,1,,\n", "column 'time_ns': found -1, expected a whole number"),
        ] {
            let message = read_text(rows).unwrap_err().to_string();
            assert!(message.contains(expected), "{message}");
        }
    }
}

//! Files of requests: their formats, and their requests as a load.

use std::path::Path;
use std::str::FromStr;

use ridgepoint::input::{FileKind, Input};
use ridgepoint::unstable::error::cut;
use ridgepoint::{Error, Result};

use super::fixed_list::FixedList;
use super::rows::Rows;
use super::session_rows::SessionRows;
use super::sessions::SessionList;
use super::summary::Summary;
use super::{RequestSource, Workload, azure, request_list, session_rows, traces, vllm_bench};
use crate::input::{Head, HeadKind, RowReader, head, open, read};
use crate::vllm_bench::is_result;

/// The format of a file of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Format {
    /// A request list as csv: columns by name, Vidur's among them. With `session_id`, its rows are the turns of sessions.
    Csv,
    /// A request list as jsonl: the same names as keys.
    Jsonl,
    /// Mooncake's traces: jsonl with `hash_ids`.
    Mooncake,
    /// Azure's traces: csv with `ContextTokens`.
    Azure,
    /// The result of `vllm bench serve --save-detailed`.
    VllmBench,
    /// LLMServingSim's requests: jsonl with `input_toks`, or sessions with `sub_requests`.
    #[serde(rename = "llmservingsim")]
    LlmServingSim,
}

/// A format with its name, and whether a file that begins so may be of it.
type FormatRow = (Format, &'static str, fn(&Head) -> bool);

const FORMATS: [FormatRow; 6] = [
    (Format::Csv, "csv", |head| !head.is_json() && is_list(head)),
    (Format::Jsonl, "jsonl", |head| head.is_json() && is_list(head)),
    (Format::Mooncake, "mooncake", |head| head.is_json() && (head.has("timestamp") || head.has("hash_ids"))),
    (Format::Azure, "azure", |head| azure::COLUMNS.required().any(|column| head.has(column))),
    (Format::VllmBench, "vllm-bench", is_result),
    (Format::LlmServingSim, "llmservingsim", |head| head.has("input_toks") || session_rows::is_agentic(head)),
];

fn is_list(head: &Head) -> bool {
    (request_list::is_list(head) || session_rows::is_list(head)) && !session_rows::is_agentic(head)
}

impl Format {
    /// Every format.
    pub const ALL: [Format; 6] =
        [Format::Csv, Format::Jsonl, Format::Mooncake, Format::Azure, Format::VllmBench, Format::LlmServingSim];

    /// The name that [`from_str`](FromStr::from_str) accepts.
    pub fn name(self) -> &'static str {
        FORMATS.iter().find(|(format, ..)| *format == self).map_or("", |(_, name, _)| name)
    }

    fn names() -> String {
        FORMATS.map(|(_, name, _)| name).join(", ")
    }
}

impl FromStr for Format {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        FORMATS.iter().find(|(_, known, _)| *known == name).map(|(format, ..)| *format).ok_or_else(|| {
            Error::invalid_argument("format of a request file", name, format!("is not one of {}", Format::names()))
        })
    }
}

/// The requests of a file.
#[derive(Debug, Clone)]
pub struct RequestFile {
    /// Path or name of the file.
    pub origin: String,
    /// Its format.
    pub format: Format,
    /// Notes for users, such as the number of requests left out.
    pub notes: Vec<String>,
    list: RequestSource,
}

impl RequestFile {
    /// Reads a file line by line. Without a `format`, its first line decides.
    ///
    /// # Errors
    /// `ErrorKind::Io` for a file that can't be read. `ErrorKind::Parse` for an unknown format, and for a line that does not
    /// have it, with row and column. `ErrorKind::Invalid` with all problems of a header, or without requests.
    pub fn read(path: &Path, format: Option<Format>) -> Result<Self> {
        Self::from_input(open(FileKind::Requests, path)?, format)
    }

    /// Parses the text of a file that errors call `origin`.
    ///
    /// # Errors
    /// Those of [`read`](Self::read).
    pub fn parse(origin: &str, text: &[u8], format: Option<Format>) -> Result<Self> {
        Self::from_input(read(FileKind::Requests, origin, text)?, format)
    }

    /// Returns the requests as a load. Loads share the list, and each begins at its first request.
    pub fn workload(&self) -> Box<dyn Workload + Send> {
        self.list.workload()
    }

    /// Returns the requests.
    pub fn list(&self) -> &RequestSource {
        &self.list
    }

    /// Returns the summary of the requests.
    pub fn summary(&self) -> Summary {
        self.list.summary()
    }

    fn from_input(input: Input<'_>, format: Option<Format>) -> Result<Self> {
        let origin = input.origin().to_owned();
        let format = match format {
            Some(format) => format,
            None => detect(&origin, input.head())?,
        };
        let start = head(input.head());
        let none = |notes: Vec<String>| {
            let nothing = format!("there are no requests in this {} file", format.name());
            Error::invalid(&origin, std::iter::once(nothing).chain(notes).collect())
        };
        let single = |Rows { requests, notes }: Rows| match requests.is_empty() {
            true => Err(none(notes)),
            false => Ok((notes, FixedList::new(requests).map_err(|error| error.of(&origin))?.into())),
        };
        let sessions = |SessionRows { sessions, notes }: SessionRows| match sessions.is_empty() {
            true => Err(none(notes)),
            false => Ok((notes, SessionList::new(sessions).map_err(|error| error.of(&origin))?.into())),
        };
        let (notes, list): (_, RequestSource) = match format {
            Format::Csv if session_rows::is_list(&start) => {
                sessions(session_rows::read(RowReader::csv(input, session_rows::COLUMNS)?)?)
            }
            Format::Jsonl if session_rows::is_list(&start) => {
                sessions(session_rows::read(RowReader::jsonl(input, session_rows::COLUMNS))?)
            }
            Format::LlmServingSim if session_rows::is_agentic(&start) => sessions(session_rows::llmservingsim(input)?),
            Format::Csv => single(request_list::read(RowReader::csv(input, request_list::COLUMNS)?)?),
            Format::Jsonl => single(request_list::read(RowReader::jsonl(input, request_list::COLUMNS))?),
            Format::Mooncake => single(traces::mooncake(input)?),
            Format::Azure => single(azure::read(input)?),
            Format::VllmBench => single(vllm_bench::read(input)?),
            Format::LlmServingSim => single(traces::llmservingsim(input)?),
        }?;
        Ok(RequestFile { origin, format, notes, list })
    }
}

/// Returns the format of a file that begins with `start`, by its columns or keys.
fn detect(origin: &str, start: &[u8]) -> Result<Format> {
    let head = head(start);
    let names = Format::names();
    let fitting: Vec<_> = FORMATS.iter().filter(|(.., fits)| fits(&head)).collect();
    let message = match (head.kind, fitting.as_slice()) {
        (HeadKind::Empty, _) => format!("is empty; requests come as one of {names}"),
        (HeadKind::JsonList, _) => "is one JSON array: write its objects one per line (jsonl)".to_owned(),
        (_, [(format, ..)]) => return Ok(*format),
        (_, []) => {
            let (kind, found) = (if head.is_json() { "keys" } else { "columns" }, cut(&head.names.join(", ")));
            let is_profile = head.has("load") || [".yaml", ".yml"].iter().any(|end| origin.ends_with(end));
            let hint = if is_profile { ". A load profile is no file of requests: give it as the profile" } else { "" };
            format!("its {kind} ({found}) are those of no known format; name its format, one of {names}{hint}")
        }
        (_, several) => {
            let several: Vec<&str> = several.iter().map(|(_, name, _)| *name).collect();
            format!("could be any of {}: name its format, one of {names}", several.join(", "))
        }
    };
    Err(Error::parse(origin, message))
}

#[cfg(test)]
mod tests {
    use ridgepoint::ErrorKind;

    use super::*;

    fn detected(text: &str) -> Format {
        detect("file", text.as_bytes()).unwrap()
    }

    #[test]
    fn formats_are_known_by_their_names_of_columns() {
        assert_eq!(detected("# made by hand\narrival,input_len,output_len\n"), Format::Csv);
        assert_eq!(detected("arrived_at,num_prefill_tokens,num_decode_tokens\n"), Format::Csv);
        assert_eq!(detected("TIMESTAMP,ContextTokens,GeneratedTokens\n"), Format::Azure);
        assert_eq!(detected("{\"arrival_ms\": 1, \"input_len\": 3}"), Format::Jsonl);
        assert_eq!(detected("{\"timestamp\": 0, \"input_length\": 7000, \"output_length\": 50"), Format::Mooncake);
        assert_eq!(detected("\n {\"input_toks\": 1,"), Format::LlmServingSim);
        assert_eq!(detected("{\n \"date\": \"x\",\n \"input_lens\": [1, 2,"), Format::VllmBench);
        assert_eq!(detected("{\"date\": \"x\", \"request_throughput\": 2.5, \"mean"), Format::VllmBench);
    }

    #[test]
    fn files_of_no_format_or_of_two_list_the_formats() {
        for (text, expected) in [
            (
                "{\"arrival\": 0, \"input_toks\": 3}",
                "could be any of jsonl, llmservingsim: name its format, one of csv, jsonl, mooncake",
            ),
            ("{\"prompt\": \"hi\"}", "its keys (prompt) are those of no known format"),
            ("when,how long\n", "its columns (when, how long) are those of no known format"),
            ("", "is empty"),
            (" \n\n", "is empty"),
            ("[{\"arrival\": 0}]", "is one JSON array: write its objects one per line"),
            ("{\"data\": {}, \"load\": {}}", "A load profile is no file of requests"),
        ] {
            let error = detect("file", text.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn a_file_becomes_a_load() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("requests.csv");
        std::fs::write(&path, "arrival,input_len,output_len,stage\n0,10,5,0\n0.5,30,7,1\n").unwrap();
        let file = RequestFile::read(&path, None).unwrap();
        assert_eq!((file.format, file.notes.len(), file.summary().stages), (Format::Csv, 0, 2));
        assert_eq!(file.summary().mean_input_tokens.round() as u32, 20);
        let mut load = file.workload();
        load.next_request();
        assert_eq!((load.next_arrival_ns(), file.workload().next_arrival_ns()), (Some(500_000_000), Some(0)));
        let error = RequestFile::read(&folder.path().join("none.csv"), None).unwrap_err();
        assert!(error.kind() == ErrorKind::Io, "{error}");
    }

    #[test]
    fn a_file_without_requests_says_so_and_why() {
        let error = RequestFile::parse("r.csv", b"arrival,input_len,output_len\n", None).unwrap_err().to_string();
        assert_eq!(error, "r.csv: there are no requests in this csv file");
        let failed = br#"{"input_lens":[1],"output_lens":[0],"start_times":[0],"errors":["refused"]}"#;
        let error = RequestFile::parse("r.json", failed, None).unwrap_err().to_string();
        assert!(error.contains("there are no requests") && error.contains("1 of 1 requests failed"), "{error}");
        let named: Vec<Format> = Format::ALL.iter().map(|format| format.name().parse().unwrap()).collect();
        assert_eq!(named, Format::ALL);
        assert!("xml".parse::<Format>().unwrap_err().to_string().contains("is not one of csv, jsonl"));
    }
}

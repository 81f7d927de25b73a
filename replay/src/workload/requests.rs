//! Files of requests: their formats, and their requests as a load.

use std::path::Path;
use std::str::FromStr;

use ridgepoint::input::{FileKind, Input};
use ridgepoint::unstable::error::cut;
use ridgepoint::{Error, Result};

use super::fixed_list::FixedList;
use super::limits::MAX_REQUESTS;
use super::roles::role_of;
use super::rows::Rows;
use super::session_rows::SessionRows;
use super::sessions::SessionList;
use super::summary::Summary;
use super::{GeneratedLoad, RequestSource, Workload, azure, request_list, session_rows, traces, vllm_bench};
use crate::input::{Head, HeadKind, RowReader, head, open, read};
use crate::vllm_bench::is_result;

/// The format of a file of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Format {
    /// A request list as csv: columns by name, Vidur's among them. With `session_id`, its rows are the turns of sessions.
    Csv,
    /// A request list as jsonl, or as one JSON list: the same names as keys.
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
    (Format::Mooncake, "mooncake", is_mooncake),
    (Format::Azure, "azure", |head| ["ContextTokens", "GeneratedTokens"].iter().any(|column| head.has(column))),
    (Format::VllmBench, "vllm-bench", is_result),
    (Format::LlmServingSim, "llmservingsim", |head| head.has("input_toks") || session_rows::is_agentic(head)),
];

fn is_list(head: &Head) -> bool {
    (request_list::is_list(head) || session_rows::is_list(head)) && !session_rows::is_agentic(head)
}

/// Mooncake's own traces have no sessions, and no chats as Bailian's have.
fn is_mooncake(head: &Head) -> bool {
    let is_own = !head.has("chat_id") && !session_rows::is_list(head);
    head.is_json() && is_own && head.has("timestamp") && head.has("input_length")
}

/// The format of a file that has a column of lengths and is of no other format: a list by the roles of its columns.
fn by_role(head: &Head) -> Option<Format> {
    let has = |role: &str| head.names.iter().any(|name| role_of(name) == Some(role));
    let is_list = has("input_len") || has("output_len");
    is_list.then_some(if head.is_json() { Format::Jsonl } else { Format::Csv })
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
    /// Whether the file does not say when its requests are sent: they need a rate or a concurrency.
    pub lacks_arrivals: bool,
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

    /// [`read`](Self::read) that stops as soon as each of `replicas` replicas would get more requests than `check` allows.
    ///
    /// # Errors
    /// Those of [`read`](Self::read), and a file of more requests than `check` allows.
    pub fn read_if(
        path: &Path,
        format: Option<Format>,
        replicas: u32,
        check: &dyn Fn(u64) -> Result<()>,
    ) -> Result<Self> {
        let input = open(FileKind::Requests, path)?;
        let (mut most, mut beyond) = (0, MAX_REQUESTS + 1);
        while beyond - most > 1 {
            let middle = u64::midpoint(most, beyond);
            if check(middle).is_ok() { most = middle } else { beyond = middle }
        }
        let most = most.saturating_mul(replicas.max(1).into());
        // A header and the end of the file count as records.
        let count = input.at_most(most.saturating_add(2));
        let problem = || {
            let reason =
                format!("has more than {most} requests, whose replay may take more memory than max_memory_gib allows");
            Error::invalid(path.display().to_string(), vec![reason])
        };
        Self::from_input(input, format).map_err(|error| if count.is_passed() { problem() } else { error })
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

    /// Refuses a rate or a concurrency if the requests have times, and requires one if they have none.
    ///
    /// # Errors
    /// `ErrorKind::Invalid` with the way out.
    pub fn check_sent(&self, load: &GeneratedLoad) -> Result<()> {
        let given = load.request_rate.is_some() || load.concurrency.is_some();
        let problem = match (self.lacks_arrivals, given, load.burstiness) {
            (true, false, _) => {
                "does not say when its requests arrive: give request_rate or concurrency, or a column such as arrival_ms"
            }
            (false, true, _) => {
                "says when its requests arrive: leave out request_rate and concurrency, or the column of the arrivals"
            }
            (_, false, Some(_)) => "has times of its own, which no burstiness changes: leave it out",
            _ => return Ok(()),
        };
        Err(Error::invalid(&self.origin, vec![problem.to_owned()]))
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
        let single = |rows: Rows| match rows.requests.is_empty() {
            true => Err(none(rows.notes)),
            false => {
                let list = FixedList::new(rows.requests).map_err(|error| error.of(&origin))?;
                Ok((rows.notes, rows.lacks_arrivals, list.into()))
            }
        };
        let sessions = |rows: SessionRows| match rows.sessions.is_empty() {
            true => Err(none(rows.notes)),
            false => {
                let list = SessionList::new(rows.sessions).map_err(|error| error.of(&origin))?;
                Ok((rows.notes, rows.lacks_arrivals, list.into()))
            }
        };
        let (notes, lacks_arrivals, list): (_, _, RequestSource) = match format {
            Format::Csv if session_rows::is_list(&start) => {
                sessions(session_rows::read(RowReader::csv(input, session_rows::COLUMNS)?)?)
            }
            Format::Jsonl | Format::Mooncake if session_rows::is_list(&start) => {
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
        Ok(RequestFile { origin, format, notes, lacks_arrivals, list })
    }
}

/// What is wrong with a data set of texts.
const TEXTS: &str = "holds texts, whose tokens are not counted here: write the lengths that your tokeniser counts as csv with input_len and \
                     output_len, and give request_rate or concurrency for the arrivals";

/// Returns the format of a file that begins with `start`, by its columns or keys.
fn detect(origin: &str, start: &[u8]) -> Result<Format> {
    let head = head(start);
    let names = Format::names();
    let fitting: Vec<_> = FORMATS.iter().filter(|(.., fits)| fits(&head)).collect();
    let message = match (head.kind, fitting.as_slice()) {
        (HeadKind::Empty, _) => format!("is empty; requests come as one of {names}"),
        _ if head.has("conversations") => TEXTS.to_owned(),
        (HeadKind::JsonList, [(Format::VllmBench, ..)]) => {
            "is a list of results of load generators: give one of them as a file".to_owned()
        }
        (_, [(format, ..)]) => return Ok(*format),
        (_, []) => match by_role(&head) {
            Some(format) => return Ok(format),
            None if ["prompt", "messages", "text", "text_input"].iter().any(|key| head.has(key)) => TEXTS.to_owned(),
            None => unknown(origin, &head),
        },
        (_, several) => {
            let several: Vec<&str> = several.iter().map(|(_, name, _)| *name).collect();
            format!("could be any of {}: name its format, one of {names}", several.join(", "))
        }
    };
    Err(Error::parse(origin, message))
}

/// Says of a file of no format what it has and lacks.
fn unknown(origin: &str, head: &Head) -> String {
    let (kind, found) = (if head.is_json() { "keys" } else { "columns" }, cut(&head.names.join(", ")));
    let is_profile = head.has("load") || [".yaml", ".yml"].iter().any(|end| origin.ends_with(end));
    let hint = if is_profile { ". A load profile is no file of requests: give it as the profile" } else { "" };
    format!(
        "its {kind} ({found}) are those of no known format ({}): input and output tokens are missing. A csv with the columns arrival, \
         input_len and output_len works{hint}",
        Format::names()
    )
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
        assert_eq!(detected("[\n {\"arrival_ms\": 1, \"input_len\": 3}, {"), Format::Jsonl);
        assert_eq!(detected("[{\"timestamp\": 0, \"input_length\": 7000, \"output_length\": 50}]"), Format::Mooncake);
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
            ("{\"prompt\": \"hi\"}", "holds texts, whose tokens are not counted here"),
            ("[{\"id\": \"x\", \"conversations\": [{\"from\": \"human\"", "holds texts"),
            ("{\"a\": 1, \"b\": 2}", "its keys (a, b) are those of no known format"),
            ("when,how long\n", "its columns (when, how long) are those of no known format"),
            ("", "is empty"),
            (" \n\n", "is empty"),
            ("[{\"date\": \"x\", \"input_lens\": [1, 2]}]", "is a list of results"),
            ("[1, 2]", "are those of no known format"),
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
    fn a_list_gives_the_requests_of_its_lines() {
        let lines: Vec<String> = (0..200)
            .map(|at| {
                format!(
                    "{{\"arrival\": {}, \"input_len\": {}, \"output_len\": {}}}",
                    f64::from(at) / 8.0,
                    3 + at * 7,
                    1 + at
                )
            })
            .collect();
        let by_lines = RequestFile::parse("r.jsonl", lines.join("\n").as_bytes(), None).unwrap();
        let list = RequestFile::parse("r.json", format!("[{}]", lines.join(",\n")).as_bytes(), None).unwrap();
        assert_eq!(list.summary(), by_lines.summary());
        let (mut one, mut other) = (list.workload(), by_lines.workload());
        while let Some(request) = one.next_request() {
            assert_eq!(Some(request), other.next_request());
        }
        assert!(other.next_request().is_none());
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

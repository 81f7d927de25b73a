//! Files of requests: which format a file has, and its requests as a load. Uses every reader.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::str::FromStr;

use super::fixed_list::FixedList;
use super::rows::csv_reader;
use super::summary::Summary;
use super::{azure, llmservingsim, mooncake, request_list, vllm_bench};
use crate::error::{Error, Result};

/// The format of a file of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Format {
    /// A request list as csv: columns by name, Vidur's among them.
    Csv,
    /// A request list as jsonl: the same names as keys.
    Jsonl,
    /// Mooncake's traces: jsonl with `hash_ids`.
    Mooncake,
    /// Azure's traces: csv with `ContextTokens`.
    Azure,
    /// The result of `vllm bench serve --save-detailed`.
    VllmBench,
    /// LLMServingSim's requests: jsonl with `input_toks`.
    #[serde(rename = "llmservingsim")]
    LlmServingSim,
}

impl Format {
    /// Every format.
    pub const ALL: [Format; 6] =
        [Format::Csv, Format::Jsonl, Format::Mooncake, Format::Azure, Format::VllmBench, Format::LlmServingSim];

    /// The name that [`from_str`](FromStr::from_str) understands.
    pub fn name(self) -> &'static str {
        match self {
            Format::Csv => "csv",
            Format::Jsonl => "jsonl",
            Format::Mooncake => "mooncake",
            Format::Azure => "azure",
            Format::VllmBench => "vllm-bench",
            Format::LlmServingSim => "llmservingsim",
        }
    }

    fn names() -> String {
        Format::ALL.map(Format::name).join(", ")
    }
}

impl FromStr for Format {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        Format::ALL.into_iter().find(|format| format.name() == name).ok_or_else(|| {
            Error::invalid_argument("format of a request file", name, format!("is not one of {}", Format::names()))
        })
    }
}

/// The requests of a file.
#[derive(Debug, Clone)]
pub struct RequestFile {
    /// Path or name of the file.
    pub origin: String,
    /// How it is written.
    pub format: Format,
    /// What a reader should know: requests left out.
    pub notes: Vec<String>,
    list: FixedList,
}

impl RequestFile {
    /// Reads a file line by line; its format comes from its first line where none is given.
    ///
    /// # Errors
    /// `ErrorKind::Io` where the file can't be read, `ErrorKind::Parse` where the format is unknown or a line is not of it,
    /// `ErrorKind::Invalid` with all problems of a header or where there are no requests, `ErrorKind::BadRow` with row and column.
    pub fn read(path: &Path, format: Option<Format>) -> Result<Self> {
        let file = File::open(path).map_err(|error| Error::io(path, error))?;
        Self::from_reader(&path.display().to_string(), BufReader::with_capacity(1 << 16, file), format)
    }

    /// Reads the text of a file that is called `origin` in messages.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn parse(origin: &str, text: &[u8], format: Option<Format>) -> Result<Self> {
        Self::from_reader(origin, text, format)
    }

    /// The requests as a load; every call begins anew and shares the list.
    pub fn workload(&self) -> FixedList {
        self.list.clone()
    }

    /// What the requests come to.
    pub fn summary(&self) -> Summary {
        self.list.summary()
    }

    fn from_reader(origin: &str, mut reader: impl BufRead, format: Option<Format>) -> Result<Self> {
        let start = reader.fill_buf().map_err(|error| Error::io(origin, error))?;
        let format = match format {
            Some(format) => format,
            None => detect(origin, start)?,
        };
        let rows = match format {
            Format::Csv => request_list::read_csv(origin, reader),
            Format::Jsonl => request_list::read_jsonl(origin, reader),
            Format::Mooncake => mooncake::read(origin, reader),
            Format::Azure => azure::read(origin, reader),
            Format::VllmBench => vllm_bench::read(origin, reader),
            Format::LlmServingSim => llmservingsim::read(origin, reader),
        }?;
        if rows.requests.is_empty() {
            let mut problems = vec![format!("there are no requests in this {} file", format.name())];
            problems.extend(rows.notes);
            return Err(Error::invalid(origin, problems));
        }
        let list = FixedList::new(rows.requests).map_err(|error| error.of(origin))?;
        Ok(RequestFile { origin: origin.to_owned(), format, notes: rows.notes, list })
    }
}

/// The format of a file that begins with `start`: its columns or keys say it.
fn detect(origin: &str, start: &[u8]) -> Result<Format> {
    let failed = |message: String| Err(Error::parse(origin, message));
    let text = start.strip_prefix(b"\xef\xbb\xbf").unwrap_or(start).trim_ascii_start();
    if text.is_empty() {
        return failed(format!("is empty; requests come as one of {}", Format::names()));
    }
    if text.starts_with(b"[") {
        return failed("is one JSON array: write its objects one per line (jsonl)".to_owned());
    }
    let is_json = text.starts_with(b"{");
    let names = if is_json {
        first_keys(text)
    } else {
        let header = csv_reader(text).headers().cloned().unwrap_or_default();
        header.iter().map(str::to_owned).collect()
    };
    let has = |name: &str| names.iter().any(|n| n == name);
    let candidates: &[(Format, bool)] = if is_json {
        &[
            (Format::Jsonl, names.iter().any(|name| request_list::is_arrival(name))),
            (Format::Mooncake, has("timestamp") || has("hash_ids")),
            (Format::VllmBench, has(vllm_bench::MARK)),
            (Format::LlmServingSim, has("input_toks") || has(llmservingsim::SUB_REQUESTS)),
        ]
    } else {
        &[
            (Format::Csv, names.iter().any(|name| request_list::is_arrival(name))),
            (Format::Azure, azure::COLUMNS.iter().any(|name| has(name))),
        ]
    };
    let fitting: Vec<Format> = candidates.iter().filter(|(_, fits)| *fits).map(|(format, _)| *format).collect();
    match fitting.as_slice() {
        [format] => Ok(*format),
        // The lists of a benchmark's result may lie anywhere behind its settings and means.
        [] if is_json && has("request_throughput") => Ok(Format::VllmBench),
        [] => {
            let found = super::rows::cut(&names.join(", "));
            let kind = if is_json { "keys" } else { "columns" };
            let profile = if has("load") || [".yaml", ".yml"].iter().any(|end| origin.ends_with(end)) {
                "; a load profile is no file of requests: give it as the profile"
            } else {
                ""
            };
            failed(format!(
                "its {kind} ({found}) are those of no known format; say which it is meant to be: {}{profile}",
                Format::names()
            ))
        }
        several => {
            let several: Vec<&str> = several.iter().map(|format| format.name()).collect();
            failed(format!("could be any of {}: say which of {} it is", several.join(", "), Format::names()))
        }
    }
}

/// Keys of the first JSON object of a text that may end anywhere, without those of objects in it.
fn first_keys(text: &[u8]) -> Vec<String> {
    let mut keys = Vec::new();
    let (mut depth, mut position, mut last) = (0u32, 0, None);
    while let Some(byte) = text.get(position) {
        match byte {
            b'"' => {
                let end = string_end(text, position + 1);
                last = text.get(position + 1..end).map(|name| String::from_utf8_lossy(name).into_owned());
                position = end;
            }
            b':' if depth == 1 => keys.extend(last.take()),
            b'{' | b'[' => depth += 1,
            b'}' | b']' if depth <= 1 => break,
            b'}' | b']' => depth -= 1,
            _ => {}
        }
        position += 1;
    }
    keys
}

/// Where a string's closing quote stands, or the end of the text.
fn string_end(text: &[u8], start: usize) -> usize {
    let mut position = start;
    while let Some(byte) = text.get(position) {
        match byte {
            b'"' => return position,
            b'\\' => position += 2,
            _ => position += 1,
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::super::Workload;
    use super::*;
    use crate::error::ErrorKind;

    fn detected(text: &str) -> Format {
        detect("file", text.as_bytes()).unwrap()
    }

    #[test]
    fn formats_are_known_by_their_names_of_columns() {
        assert_eq!(detected("# made by hand\narrival,input_len,output_len\n"), Format::Csv);
        assert_eq!(detected("arrived_at,num_prefill_tokens,num_decode_tokens\n"), Format::Csv);
        assert_eq!(detected("\u{feff}TIMESTAMP,ContextTokens,GeneratedTokens\n"), Format::Azure);
        assert_eq!(detected("{\"arrival_ms\": 1, \"input_len\": 3}"), Format::Jsonl);
        assert_eq!(detected("{\"timestamp\": 0, \"input_length\": 7000, \"output_length\": 50"), Format::Mooncake);
        assert_eq!(detected("\n {\"input_toks\": 1,"), Format::LlmServingSim);
        assert_eq!(detected("{\"sub_requests\": [{\"arrival\": 1}]}"), Format::LlmServingSim);
        assert_eq!(detected("{\n \"date\": \"x\",\n \"input_lens\": [1, 2,"), Format::VllmBench);
        assert_eq!(detected("{\"date\": \"x\", \"request_throughput\": 2.5, \"mean"), Format::VllmBench);
    }

    #[test]
    fn keys_within_strings_and_objects_do_not_count() {
        let keys = first_keys(br#"{"a\"b": {"arrival": [1, {"x": 2}]}, "c" : ["d:", "e"], "f"#);
        assert_eq!(keys, ["a\\\"b", "c"]);
        assert!(first_keys(b"{\"a\\").is_empty());
    }

    #[test]
    fn files_of_no_format_or_of_two_list_the_formats() {
        for (text, expected) in [
            (
                "{\"arrival\": 0, \"input_toks\": 3}",
                "could be any of jsonl, llmservingsim: say which of csv, jsonl, mooncake",
            ),
            ("{\"prompt\": \"hi\"}", "its keys (prompt) are those of no known format"),
            ("when,how long\n", "its columns (when, how long) are those of no known format"),
            ("", "is empty"),
            (" \n\n", "is empty"),
            ("[{\"arrival\": 0}]", "is one JSON array: write its objects one per line"),
            ("{\"data\": {}, \"load\": {}}", "a load profile is no file of requests"),
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

//! inference-perf's report of every request. Uses `reports`.
//!
//! # Source
//! inference-perf, `docs/reports.md`: `per_request_lifecycle_metrics.json`. Times are seconds on the client's monotonic clock.
//! `info` holds `input_tokens`, `output_tokens` and `output_token_times`, in newer versions under `request_metrics.text` and
//! `response_metrics`.

use std::fmt;
use std::path::Path;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};

use ridgepoint::internals::input::Head;

use super::{Number, Rows, fault, no_rows, open};
use crate::ingest::format::Format;
use crate::ingest::{Ingested, Reason, RequestRow, Run, file_name};
use ridgepoint::Result;

/// inference-perf's report of every request.
pub(in crate::ingest) const FORMAT: Format = Format {
    name: "inference-perf",
    about: "inference-perf's report of every request",
    holds_steps: false,
    is_it: |head| {
        let has_times = head.has("start_time") && ["info", "request", "end_time"].into_iter().any(|key| head.has(key));
        head.has("load_summary") || (matches!(head, Head::Json { is_list: true, .. }) && has_times)
    },
    read,
};

const SUMMARY: &str = "this is a summary, which has no requests: set report.request_lifecycle.per_request in \
     inference-perf's configuration and give its per_request_lifecycle_metrics.json";

/// Reads a report. Its token times count each streamed event, so the number of output tokens is taken from its own field.
///
/// # Errors
/// `ErrorKind::Io`(ridgepoint::Error::Io); `ErrorKind::Parse`(ridgepoint::Error::Parse) where the file is cut short, is one of inference-perf's
/// summaries, or has no requests.
pub fn read(path: &Path) -> Result<Ingested> {
    let origin = path.display().to_string();
    let mut rows = Rows::default();
    let mut parser = serde_json::Deserializer::from_reader(open(path)?);
    let read = Report(&mut rows).deserialize(&mut parser).and_then(|()| parser.end());
    read.map_err(|error| fault(&origin, &error))?;
    if rows.read == 0 {
        return Err(no_rows(&origin, "the list is empty"));
    }
    let mut ingested = Ingested::default();
    rows.finish(Run { experiment: file_name(path), ..Run::default() }, &mut ingested);
    Ok(ingested)
}

/// The list of requests, of which one is held at a time.
struct Report<'a>(&'a mut Rows);

impl<'de> DeserializeSeed<'de> for Report<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> std::result::Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Report<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("inference-perf's list of requests")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> std::result::Result<(), A::Error> {
        let mut index = 0u64;
        while let Some(entry) = list.next_element::<Entry>()? {
            self.0.add(row(index, entry));
            index += 1;
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, _: A) -> std::result::Result<(), A::Error> {
        Err(A::Error::custom(SUMMARY))
    }
}

#[derive(Deserialize)]
struct Entry {
    #[serde(default)]
    start_time: Number,
    #[serde(default)]
    end_time: Number,
    info: Option<Info>,
    error: Option<IgnoredAny>,
}

#[derive(Default, Deserialize)]
struct Info {
    #[serde(default)]
    input_tokens: Number,
    #[serde(default)]
    output_tokens: Number,
    output_token_times: Option<Vec<Number>>,
    request_metrics: Option<RequestMetrics>,
    response_metrics: Option<ResponseMetrics>,
}

#[derive(Deserialize)]
struct RequestMetrics {
    text: Option<TextMetrics>,
}

#[derive(Deserialize)]
struct TextMetrics {
    #[serde(default)]
    input_tokens: Number,
}

#[derive(Deserialize)]
struct ResponseMetrics {
    #[serde(default)]
    output_tokens: Number,
    output_token_times: Option<Vec<Number>>,
}

fn row(index: u64, entry: Entry) -> std::result::Result<RequestRow, Reason> {
    if entry.error.is_some() {
        return Err(Reason::Failed);
    }
    let info = entry.info.unwrap_or_default();
    let text = info.request_metrics.and_then(|metrics| metrics.text);
    let prompt = text.map_or(Ok(None), |text| text.input_tokens.tokens())?;
    let (output, times) = match info.response_metrics {
        Some(metrics) => (metrics.output_tokens.tokens()?, metrics.output_token_times),
        None => (None, None),
    };
    let times = times.or(info.output_token_times).unwrap_or_default();
    let first = times.first().map_or(Ok(None), |first| first.time_ns())?;
    Ok(RequestRow {
        request_id: index.to_string(),
        arrived_ns: entry.start_time.time_ns()?,
        first_response_ns: first,
        departed_ns: entry.end_time.time_ns()?,
        num_prompt_tokens: prompt.or(info.input_tokens.tokens()?),
        num_output_tokens: output.or(info.output_tokens.tokens()?),
        ..RequestRow::default()
    })
}

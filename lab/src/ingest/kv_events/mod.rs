//! KV events of vLLM: blocks stored and removed, and transfers between media. They are counted, not kept one by one: no prediction takes
//! single events, while their counts say how much was cached, evicted and moved.

pub(super) mod event;
mod msgpack;
pub(super) mod tally;

use std::io::{BufRead, ErrorKind, Read};
use std::path::Path;

use ridgepoint::input::{FileKind, Record, read_error};
use ridgepoint::{Error, Result};
use ridgepoint_replay::input::for_each_line;
use serde::de::DeserializeSeed;
use serde_json::Value;

use self::event::batch;
use self::msgpack::Msgpack;
use self::tally::Tally;
use super::Capture;
use super::format::Format;
use super::unknown_names::UnknownNames;

/// A JSON line per batch.
pub(super) const FORMAT: Format = Format {
    name: "kv-events",
    about: "KV events of vLLM, a JSON line per batch",
    holds_steps: false,
    is_it: |head, text| head.has("batch") || is_list_of_events(text),
    read,
};

/// The payloads as they are sent, each behind its length.
pub(super) const DUMP_FORMAT: Format = Format {
    name: "kv-event-dump",
    about: "KV events of vLLM in msgpack, each batch behind its length in 4 bytes",
    holds_steps: false,
    is_it: |_, bytes| is_dump(bytes),
    read: read_dump,
};

/// Whether a text begins with a batch of events that are lists.
fn is_list_of_events(text: &[u8]) -> bool {
    let line = text.split(|byte| *byte == b'\n').next().unwrap_or_default();
    // The first line may be longer than what is looked at, so its beginning must do.
    let start: Vec<u8> = line.iter().copied().filter(|byte| !byte.is_ascii_whitespace()).take(64).collect();
    let after_time = start.strip_prefix(b"[").and_then(|rest| rest.get(rest.iter().position(|byte| *byte == b',')?..));
    after_time.is_some_and(|rest| rest.starts_with(b",[[\"") || rest.starts_with(b",[{\"type\""))
}

/// Whether bytes begin with a length and a list in msgpack whose first value is a time.
pub(super) fn is_dump(bytes: &[u8]) -> bool {
    matches!(bytes, [0, _, _, _, 0x92..=0x94, 0xcb, ..])
}

/// Reads a file.
///
/// # Errors
/// A file that cannot be read, the first line that is no batch of events, no batches.
pub fn read(path: &Path) -> Result<Capture> {
    let (mut tally, mut unknown) = (Tally::default(), UnknownNames::default());
    let mut last = None;
    for_each_line(path, |_, line| {
        if line.trim_ascii().is_empty() {
            return Ok(());
        }
        let value: Value = serde_json::from_slice(line).map_err(|error| format!("is not JSON: {error}"))?;
        let sequence = value.get("seq").and_then(Value::as_u64);
        if let (Some(last), Some(sequence)) = (last, sequence) {
            tally.add_lost(sequence.saturating_sub(last).saturating_sub(1));
        }
        last = sequence;
        tally.add(batch(value.get("batch").unwrap_or(&value), &mut unknown)?);
        Ok(())
    })?;
    capture(path, tally, &unknown)
}

/// Reads a dump.
///
/// # Errors
/// As [`read`], and a payload that is cut short or longer than 128 MiB.
pub fn read_dump(path: &Path) -> Result<Capture> {
    const MOST_BYTES: u32 = 128 << 20;
    let origin = path.display().to_string();
    let (mut reader, count) = ridgepoint_replay::input::open(FileKind::KvEventDump, path)?.records(Record::Object);
    let (mut tally, mut unknown) = (Tally::default(), UnknownNames::default());
    let (mut payload, mut number) = (Vec::new(), 0_u64);
    let is_cut = loop {
        count.begin();
        if reader.fill_buf().map_err(|error| read_error(&origin, error))?.is_empty() {
            break false;
        }
        let mut length = [0; 4];
        match reader.read_exact(&mut length) {
            Ok(()) => number += 1,
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => break true,
            Err(error) => return Err(read_error(&origin, error)),
        }
        let bad = |message: String| Error::parse(&origin, format!("batch {number}: {message}"));
        let length = u32::from_be_bytes(length);
        if length > MOST_BYTES {
            return Err(bad(format!(
                "its length is {length} bytes, expected at most {MOST_BYTES}: is this a dump of KV events?"
            )));
        }
        payload.clear();
        let read = reader.by_ref().take(u64::from(length)).read_to_end(&mut payload);
        if read.map_err(|error| read_error(&origin, error))? < length as usize {
            break true;
        }
        let value = Msgpack(&count).deserialize(&mut rmp_serde::Deserializer::from_read_ref(&payload));
        let value = value.map_err(|error| bad(format!("is not msgpack: {error}")))?;
        tally.add(batch(&value, &mut unknown).map_err(bad)?);
    };
    let mut capture = capture(path, tally, &unknown)?;
    if is_cut {
        capture.notes.push("the last batch is cut short and left out".to_owned());
    }
    Ok(capture)
}

fn capture(path: &Path, tally: Tally, unknown: &UnknownNames) -> Result<Capture> {
    let (found, transfers) = tally.finish();
    if found.batches == 0 {
        let message = "has no batch of KV events: start vLLM with --kv-events-config and write what it publishes";
        return Err(Error::parse(path, message));
    }
    let mut capture = Capture { transfers, ..Capture::default() };
    capture.notes.extend(unknown.note("names and keys of KV events"));
    capture.kv_events = Some(found);
    Ok(capture)
}

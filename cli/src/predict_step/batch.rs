//! The batch of a step, from a JSON file or from the shorthand flags. An error names the request, the key and the value.

use std::io::Read;
use std::path::Path;

use ridgepoint::internals::error::Detail;
use ridgepoint::internals::input::{Keys, Log, parse_json};
use ridgepoint::{Error, Request, Result};
use serde_json::Value;

use super::shorthand::Item;
use crate::outcome::Failure;

/// Most faulty requests that are reported one by one.
const MAX_SHOWN: usize = 5;

/// Most requests that the flags may stand for; a typing error must not fill the memory.
const MAX_REQUESTS: u64 = 10_000_000;

/// Other names of keys, as pairs of alias and key.
const ALIASES: &[(&str, &str)] =
    &[("progress_index", "num_computed_tokens"), ("num_new_tokens", "num_scheduled_tokens")];

/// Requests, and where they come from.
pub struct Batch {
    /// The file, if there is one. Each of its requests is an item.
    origin: Option<String>,
    items: Vec<Item>,
}

impl Batch {
    /// Reads a batch file, or standard input for `-`.
    ///
    /// # Errors
    /// A file that cannot be read or is no batch.
    pub fn read(path: &Path) -> Result<Self> {
        let is_stdin = path == Path::new("-");
        let origin = if is_stdin { "standard input".to_owned() } else { path.display().to_string() };
        let mut text = String::new();
        let read = if is_stdin {
            std::io::stdin().lock().read_to_string(&mut text).map(drop)
        } else {
            std::fs::read_to_string(path).map(|found| text = found)
        };
        read.map_err(|error| Error::io(&origin, error))?;
        let requests = parse(&origin, &text)?.into_iter();
        let items = requests.map(|request| Item { count: 1, request, flag: String::new() }).collect();
        Ok(Batch { origin: Some(origin), items })
    }

    /// The batch that the shorthand flags stand for, prefill chunks first.
    ///
    /// # Errors
    /// Too many requests.
    pub fn from_flags(prefill: &[Item], decode: &[Item]) -> std::result::Result<Self, Failure> {
        let items = [prefill, decode].concat();
        let total: u64 = items.iter().map(|item| u64::from(item.count)).sum();
        if total > MAX_REQUESTS {
            let message = format!("--prefill and --decode ask for {total} requests, more than {MAX_REQUESTS}");
            return Err(Failure::input(message));
        }
        Ok(Batch { origin: None, items })
    }

    /// The requests.
    pub fn requests(&self) -> Vec<Request> {
        self.items.iter().flat_map(|item| std::iter::repeat_n(item.request, item.count as usize)).collect()
    }

    /// Explains why the batch was refused. `single` checks one request, so that every faulty one is named.
    pub fn refused(&self, error: &Error, single: impl Fn(&Request) -> Result<()>) -> Failure {
        let problem = |(index, item): (usize, &Item)| {
            let error = single(&item.request).err()?;
            let Detail::InvalidRequest { field, value, reason, .. } = error.into_detail() else { return None };
            let place = match &self.origin {
                Some(origin) => format!("{origin}: request {index}"),
                None => item.flag.clone(),
            };
            Some(format!("{place}: {field} = {value} {reason}"))
        };
        let mut problems: Vec<String> = self.items.iter().enumerate().filter_map(problem).collect();
        if problems.is_empty() {
            let origin = self.origin.iter().map(|origin| format!("{origin}: "));
            problems.push(origin.collect::<String>() + &error.to_string());
        }
        let more = problems.len().saturating_sub(MAX_SHOWN);
        if more > 0 {
            problems.truncate(MAX_SHOWN);
            problems.push(format!("{more} more requests have such problems"));
        }
        Failure::Input(problems)
    }
}

/// Parses `{"requests": [...]}`.
///
/// # Errors
/// All problems, with request, key and value; the line and column of a text that is not JSON.
fn parse(origin: &str, text: &str) -> Result<Vec<Request>> {
    let value = parse_json(origin, text)?;
    let log = Log::default();
    let keys = Keys::new("", &value, &log);
    let shape =
        r#"a list of requests, as in {"requests": [{"num_computed_tokens": 2048, "num_scheduled_tokens": 1}, ...]}"#;
    if !keys.has("requests") {
        keys.problem("requests", format_args!("is missing; it is {shape}"));
    }
    let entries = keys.read("requests", shape, Value::as_array).into_iter().flatten().enumerate();
    let requests = entries.filter_map(|(index, entry)| {
        let keys = Keys::new(&format!("requests[{index}]"), entry, &log).with_aliases(ALIASES);
        keys.require(&["num_computed_tokens", "num_scheduled_tokens"]);
        let tokens = |key| keys.whole(key, 0..=u32::MAX);
        let (computed, scheduled) = (tokens("num_computed_tokens"), tokens("num_scheduled_tokens"));
        let samples = keys.flag("samples").unwrap_or(true);
        keys.finish();
        Some(Request::new(computed?, scheduled?, samples))
    });
    let requests: Vec<Request> = requests.collect();
    keys.finish();
    Ok(log.finish(origin, Some(requests))?.0)
}

#[cfg(test)]
#[path = "batch_tests.rs"]
mod tests;

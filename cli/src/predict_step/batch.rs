//! The batch of a step, from a JSON file or from the shorthand flags. An error names the request, the key and the value.

use std::path::Path;

use ridgepoint::internals::input::{FileKind, Input, Keys, Log, check, parse_json};
use ridgepoint::{Error, Request, Result};
use serde_json::Value;

use super::shorthand::Item;

/// Most requests that the flags may stand for; a typing error must not fill the memory.
const MAX_REQUESTS: u64 = 1_000_000;

/// Other names of keys, as pairs of alias and key.
const ALIASES: &[(&str, &str)] =
    &[("progress_index", "num_computed_tokens"), ("num_new_tokens", "num_scheduled_tokens")];

/// Requests, and where they come from.
pub struct Batch {
    origin: String,
    /// The requests of a file one by one, or the groups of the flags.
    items: Vec<Item>,
}

impl Batch {
    /// Reads a batch file, or standard input for `-`.
    ///
    /// # Errors
    /// A file that cannot be read or is no batch.
    pub fn read(path: &Path) -> Result<Self> {
        let input = if path == Path::new("-") {
            Input::new(FileKind::Batch, "standard input", std::io::stdin())?
        } else {
            Input::open(FileKind::Batch, path)?
        };
        let origin = input.origin().to_owned();
        let requests = parse(&origin, &input.text()?)?.into_iter();
        let items = requests.map(|request| Item { count: 1, request, flag: String::new() }).collect();
        Ok(Batch { origin, items })
    }

    /// The batch that the shorthand flags stand for, prefill chunks first.
    ///
    /// # Errors
    /// Too many requests.
    pub fn from_flags(prefill: &[Item], decode: &[Item]) -> Result<Self> {
        let items = [prefill, decode].concat();
        let total: u64 = items.iter().map(|item| u64::from(item.count)).sum();
        let problem = format!("--prefill and --decode ask for {total} requests, more than {MAX_REQUESTS}");
        let origin = "the command line".to_owned();
        check(origin.as_str(), (total > MAX_REQUESTS).then_some(problem).into_iter().collect())?;
        Ok(Batch { origin, items })
    }

    /// The requests.
    pub fn requests(&self) -> Vec<Request> {
        self.items.iter().flat_map(|item| std::iter::repeat_n(item.request, item.count as usize)).collect()
    }

    /// Explains why the batch was refused. `single` checks one request, so that every faulty one is named.
    pub fn refused(&self, error: Error, single: impl Fn(&Request) -> Result<()>) -> Error {
        let problem = |(index, Item { request, flag, .. }): (usize, &Item)| {
            let error = single(request).err()?;
            let problem = error.problems().first()?.strip_prefix("request 0: ")?;
            let place = if flag.is_empty() { format!("request {index}") } else { flag.clone() };
            Some(format!("{place}: {problem}"))
        };
        let mut problems: Vec<String> = self.items.iter().enumerate().filter_map(problem).collect();
        if problems.is_empty() {
            problems.push(error.to_string());
        }
        check(self.origin.as_str(), problems).err().unwrap_or(error)
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

//! The batch of a step, from a JSON file or from the shorthand flags. An error names the request, the key and the value.

use std::borrow::Cow;
use std::path::Path;

use ridgepoint::input::{FileKind, Input, Keys, Log, check, parse_json};
use ridgepoint::model::OwnSampling;
use ridgepoint::{Error, Request, Result, StepModel};
use serde_json::Value;

use super::shorthand::Item;

/// Most requests that the flags may stand for; a typing error must not fill the memory.
const MAX_REQUESTS: u64 = 1_000_000;

/// Refused requests that are looked for; an error shows fewer.
const MOST_REFUSED: usize = 1_000;

/// Other names of keys, as pairs of alias and key.
const ALIASES: &[(&str, &str)] =
    &[("progress_index", "num_computed_tokens"), ("num_new_tokens", "num_scheduled_tokens")];

/// Requests, and where they come from.
pub struct Batch {
    origin: String,
    /// The requests of a file one by one, or the groups of the flags.
    items: Vec<Item>,
    /// Sampling parameters that requests of a file set themselves; empty if none does.
    sampling: Vec<OwnSampling>,
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
        Batch::from_json(&origin, &parse_json(&origin, &input.text()?)?)
    }

    /// The batch that the shorthand stands for.
    ///
    /// # Errors
    /// Too many requests.
    pub fn of_items(origin: &str, items: Vec<Item>) -> Result<Self> {
        let total: u64 = items.iter().map(|item| u64::from(item.count)).sum();
        let problem = format!("prefill and decode ask for {total} requests, more than {MAX_REQUESTS}");
        check(origin, (total > MAX_REQUESTS).then_some(problem).into_iter().collect())?;
        Ok(Batch { origin: origin.to_owned(), items, sampling: Vec::new() })
    }

    /// Reads `{"requests": [...]}`, which errors call `origin`.
    ///
    /// # Errors
    /// All problems, with request, key and value.
    pub fn from_json(origin: &str, value: &Value) -> Result<Self> {
        let (requests, mut sampling) = requests(origin, value)?;
        if sampling.iter().all(|own| *own == OwnSampling::default()) {
            sampling.clear();
        }
        let items = requests.into_iter().map(|request| Item { count: 1, request, flag: String::new() }).collect();
        Ok(Batch { origin: origin.to_owned(), items, sampling })
    }

    /// The number of requests.
    pub fn num_requests(&self) -> u64 {
        self.items.iter().map(|item| u64::from(item.count)).sum()
    }

    /// The requests.
    pub fn requests(&self) -> Vec<Request> {
        self.items.iter().flat_map(|item| std::iter::repeat_n(item.request, item.count as usize)).collect()
    }

    /// `steps` where requests set sampling parameters of their own as those of this batch do.
    pub fn steps<'a>(&self, steps: &'a StepModel) -> Cow<'a, StepModel> {
        match self.sampling.as_slice() {
            [] => Cow::Borrowed(steps),
            own => Cow::Owned(steps.with_own_sampling(own)),
        }
    }

    /// Explains why the batch was refused. `single` checks one request, so that every faulty one is named.
    pub fn refused(&self, error: Error, single: impl Fn(&Request) -> Result<()>) -> Error {
        let problem = |(index, Item { request, flag, .. }): (usize, &Item)| {
            let error = single(request).err()?;
            let problem = error.problems().first()?.strip_prefix("request 0: ")?;
            let place = if flag.is_empty() { format!("request {index}") } else { flag.clone() };
            Some(format!("{place}: {problem}"))
        };
        let mut problems: Vec<String> = self.items.iter().enumerate().filter_map(problem).take(MOST_REFUSED).collect();
        if problems.is_empty() {
            problems.push(error.to_string());
        }
        check(self.origin.as_str(), problems).err().unwrap_or(error)
    }
}

/// Reads `{"requests": [...]}`: the requests, and their own sampling parameters.
fn requests(origin: &str, value: &Value) -> Result<(Vec<Request>, Vec<OwnSampling>)> {
    let log = Log::default();
    let keys = Keys::new("", value, &log);
    let shape =
        r#"a list of requests, as in {"requests": [{"num_computed_tokens": 2048, "num_scheduled_tokens": 1}, ...]}"#;
    if !keys.has("requests") {
        keys.problem("requests", format_args!("is missing; it is {shape}"));
    }
    let entries = keys.read("requests", shape, Value::as_array).into_iter().flatten().enumerate();
    // A list of faulty requests is not read to its end.
    let requests = entries.take_while(|_| !log.is_full()).filter_map(|(index, entry)| {
        if let Some(request) = plain(entry) {
            return Some((request, OwnSampling::default()));
        }
        let keys = Keys::new(&format!("requests[{index}]"), entry, &log).with_aliases(ALIASES);
        keys.require(&["num_computed_tokens", "num_scheduled_tokens"]);
        let tokens = |key| keys.whole(key, 0..=u32::MAX);
        let (computed, scheduled) = (tokens("num_computed_tokens"), tokens("num_scheduled_tokens"));
        let samples = keys.flag("samples").unwrap_or(true);
        let params = keys.section_or_empty("sampling_params");
        let own = OwnSampling::read(&params);
        params.finish();
        keys.finish();
        Some((Request::new(computed?, scheduled?, samples), own))
    });
    let requests: (Vec<Request>, Vec<OwnSampling>) = requests.unzip();
    keys.finish();
    Ok(log.finish(origin, Some(requests))?.0)
}

/// A request whose keys are all known and right, without the cost of naming faults.
fn plain(entry: &Value) -> Option<Request> {
    let map = entry.as_object()?;
    let samples = map.get("samples").map_or(Some(true), Value::as_bool)?;
    let tokens = |key| u32::try_from(map.get(key)?.as_u64()?).ok();
    let (computed, scheduled) = (tokens("num_computed_tokens")?, tokens("num_scheduled_tokens")?);
    let num_keys = 2 + usize::from(map.contains_key("samples"));
    (map.len() == num_keys).then(|| Request::new(computed, scheduled, samples))
}

#[cfg(test)]
#[path = "batch_tests.rs"]
mod tests;

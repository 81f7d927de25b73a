//! The keys of a server's file: their other names, and reading a value with its problems collected. Uses `catalog`.

use serde_json::{Map, Value};

use crate::error::cut;
use crate::input;

/// Problems listed of one file; the rest is counted.
const MAX_PROBLEMS: usize = 20;

/// Arguments by vLLM's name, and the other names that each goes by.
const KEYS: [(&str, &[&str]); 25] = [
    ("model", &[]),
    ("hardware", &[]),
    ("precision", &[]),
    ("dtype", &[]),
    ("tensor_parallel_size", &["tensor_parallelism"]),
    ("pipeline_parallel_size", &["pipeline_parallelism"]),
    ("data_parallel_size", &["data_parallelism"]),
    ("enable_expert_parallel", &[]),
    ("max_model_len", &[]),
    ("max_num_seqs", &[]),
    ("max_num_batched_tokens", &[]),
    ("gpu_memory_utilization", &[]),
    ("kv_cache_dtype", &[]),
    ("block_size", &[]),
    ("enforce_eager", &[]),
    ("generation_config", &[]),
    ("num_gpu_blocks_override", &["total_kv_blocks"]),
    ("cpu_offload", &[]),
    ("cpu_offload_gb", &[]),
    ("enable_prefix_caching", &[]),
    ("enable_chunked_prefill", &[]),
    ("async_scheduling", &[]),
    ("long_prefill_token_threshold", &[]),
    ("scheduling_policy", &[]),
    ("ignored", &IGNORED),
];

/// Arguments that change nothing in what a replay shows.
const IGNORED: [&str; 14] = [
    "served_model_name",
    "host",
    "port",
    "api_key",
    "seed",
    "tokenizer",
    "tokenizer_mode",
    "revision",
    "trust_remote_code",
    "download_dir",
    "load_format",
    "disable_log_stats",
    "disable_log_requests",
    "enable_log_requests",
];

/// Arguments with a `no_` form.
const SWITCHES: [&str; 5] =
    ["enable_expert_parallel", "enforce_eager", "enable_prefix_caching", "enable_chunked_prefill", "async_scheduling"];

/// What one argument was given.
struct Given {
    /// The key as it stands in the file.
    key: String,
    /// `key = value` as they stand in the file.
    shown: String,
    value: Value,
}

/// The arguments of a file, and what is wrong with them.
#[derive(Default)]
pub(super) struct Fields {
    given: Vec<(&'static str, Given)>,
    pub problems: Vec<String>,
}

impl Fields {
    pub fn new(map: &Map<String, Value>) -> Self {
        let mut fields = Fields::default();
        for (key, value) in map {
            fields.add(key, value);
        }
        fields
    }

    fn add(&mut self, key: &str, value: &Value) {
        let evened = key.trim().trim_start_matches("--").replace('-', "_").to_lowercase();
        let found = KEYS.iter().find(|(name, others)| *name == evened || others.contains(&evened.as_str()));
        let shown = format!("{} = {}", cut(key), cut(&value.to_string()));
        let (name, value) = match found {
            Some((name, _)) => (*name, value.clone()),
            None => match SWITCHES.iter().find(|name| evened.strip_prefix("no_") == Some(name)) {
                Some(name) => match value {
                    Value::Bool(off) => (*name, Value::Bool(!off)),
                    Value::Null => return,
                    _ => return self.problems.push(format!("{shown} must be true or false")),
                },
                None => return self.unknown(key, &evened),
            },
        };
        if name == "ignored" || value.is_null() {
            return;
        }
        match self.given.iter().find(|(known, _)| *known == name) {
            Some((_, before)) if !is_same(&before.value, &value) => {
                let problem =
                    format!("{} and {shown} say different things of one argument: give one of them", before.shown);
                self.problems.push(problem);
            }
            Some(_) => {}
            None => self.given.push((name, Given { key: key.to_owned(), shown, value })),
        }
    }

    fn unknown(&mut self, key: &str, evened: &str) {
        if self.problems.len() >= MAX_PROBLEMS {
            return self.problems.push(String::new());
        }
        let names = || KEYS.iter().filter(|(name, _)| *name != "ignored").map(|(name, _)| *name);
        let all = || KEYS.iter().flat_map(|(name, others)| std::iter::once(name).chain(*others)).copied();
        let near = input::near_matches(evened, all().filter(|name| *name != "ignored"));
        let hint = if near.is_empty() {
            format!("known are {}", names().collect::<Vec<_>>().join(", "))
        } else {
            format!("did you mean {}?", near.join(", "))
        };
        self.problems.push(format!("{} is not a known key: {hint}", cut(key)));
    }

    /// What is wrong, in at most a page.
    pub fn into_problems(mut self) -> Vec<String> {
        let more = self.problems.len().saturating_sub(MAX_PROBLEMS);
        if more > 0 {
            self.problems.truncate(MAX_PROBLEMS);
            self.problems.push(format!("and {more} more"));
        }
        self.problems
    }

    /// The key that gave the argument, as it stands in the file, and its value.
    fn get(&self, name: &str) -> Option<(&str, &Value)> {
        let (_, given) = self.given.iter().find(|(known, _)| *known == name)?;
        Some((&given.key, &given.value))
    }

    /// The value as `read` has it; a problem that names key, value and what is expected where it has none.
    pub fn read<T>(&mut self, name: &str, expected: &str, read: impl FnOnce(&Value) -> Option<T>) -> Option<T> {
        let (key, value) = self.get(name)?;
        let found = read(value);
        if found.is_none() {
            let problem = format!("{} = {} must be {expected}", cut(key), cut(&value.to_string()));
            self.problems.push(problem);
        }
        found
    }

    pub fn text(&mut self, name: &str) -> Option<String> {
        self.read(name, "a text that is not empty", |value| {
            let text = value.as_str()?.trim();
            (!text.is_empty()).then(|| text.to_owned())
        })
    }

    pub fn switch(&mut self, name: &str) -> Option<bool> {
        self.read(name, "true or false", Value::as_bool)
    }

    /// A whole number of at least `least`.
    pub fn count(&mut self, name: &str, least: u32) -> Option<u32> {
        let expected = format!("a whole number from {least} to {}", u32::MAX);
        self.read(name, &expected, |value| {
            let count = u32::try_from(value.as_u64()?).ok()?;
            (count >= least).then_some(count)
        })
    }

    pub fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }
}

fn is_same(one: &Value, other: &Value) -> bool {
    one == other || (one.is_number() && one.as_f64() == other.as_f64())
}

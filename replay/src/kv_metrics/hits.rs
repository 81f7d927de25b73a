//! Prompt tokens that were found in the GPU's cache, loaded from the host's tier, read from the disk, or computed; of all requests and by prefix group.

use std::cmp::Reverse;
use std::collections::HashMap;

use ridgepoint::units::real;
use serde::Serialize;

use crate::record::{Outcome, RequestRecord};
use crate::workload::Content;

/// Number of prefix groups that have a row of their own.
const MOST_GROUPS: usize = 10;

/// Prompt tokens by the tier that held them when their request was first scheduled. JSON keys are stable.
///
/// Hits after a preemption count only for tokens that the request had not computed before, as in
/// [`RequestRecord::num_cached_tokens`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Hits {
    /// Requests that were scheduled.
    pub requests: u64,
    /// Tokens of their prompts.
    pub asked_tokens: u64,
    /// Tokens of these in the GPU's prefix cache.
    pub gpu_hit_tokens: u64,
    /// Tokens of these that were loaded from the host's tier, and that it held.
    pub host_hit_tokens: u64,
    /// Tokens of these that the host read from the disk and the GPU then loaded; left out without any.
    #[serde(skip_serializing_if = "ridgepoint::units::is_zero")]
    pub disk_hit_tokens: u64,
    /// Tokens of these that were computed.
    pub missed_tokens: u64,
}

impl Hits {
    /// The hits of all requests that were scheduled.
    pub(super) fn of<'a>(records: impl IntoIterator<Item = &'a RequestRecord>) -> Self {
        let mut hits = Hits::default();
        records.into_iter().filter(|record| is_scheduled(record)).for_each(|record| hits.add(record));
        hits
    }

    pub(crate) fn add(&mut self, record: &RequestRecord) {
        let cached = record.num_cached_tokens.min(record.num_prompt_tokens);
        let loaded = record.num_loaded_tokens.min(cached);
        self.requests += 1;
        self.asked_tokens += u64::from(record.num_prompt_tokens);
        self.gpu_hit_tokens += u64::from(cached - loaded);
        let from_disk = record.num_disk_tokens.min(loaded);
        self.host_hit_tokens += u64::from(loaded - from_disk);
        self.disk_hit_tokens += u64::from(from_disk);
        self.missed_tokens += u64::from(record.num_prompt_tokens - cached);
    }

    /// Share of the prompt tokens in the GPU's prefix cache; `None` without prompts.
    pub fn gpu_hit_share(&self) -> Option<f64> {
        (self.asked_tokens > 0).then(|| real(self.gpu_hit_tokens) / real(self.asked_tokens))
    }
}

/// Whether the engine scheduled a request.
pub(super) fn is_scheduled(record: &RequestRecord) -> bool {
    match record.outcome {
        Outcome::Finished => true,
        Outcome::Rejected => false,
        Outcome::Unfinished => record.scheduled_ns > 0 || record.first_token_ns > 0,
    }
}

/// Hits of the requests whose prompts begin with the same segment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PrefixGroup {
    /// [Id](crate::workload::Segment::id) of the first segment as decimal text, since 64 bits do not fit a number of JSON; `None` for
    /// requests that share nothing.
    pub prefix: Option<String>,
    /// Their hits.
    #[serde(flatten)]
    pub hits: Hits,
}

/// The groups that asked for the most tokens, the number of the others, and the hits of the others.
pub(super) fn by_prefix(records: &[RequestRecord], contents: &[Option<Content>]) -> (Vec<PrefixGroup>, u64, Hits) {
    let mut groups: HashMap<Option<u64>, Vec<&RequestRecord>> = HashMap::new();
    let contents = contents.iter().map(Option::as_ref).chain(std::iter::repeat(None));
    for (record, content) in records.iter().zip(contents).filter(|(record, _)| is_scheduled(record)) {
        let first = content.and_then(|content| content.first()).map(|segment| segment.id);
        groups.entry(first).or_default().push(record);
    }
    let mut groups: Vec<_> = groups.into_iter().collect();
    let asked_tokens = |record: &&RequestRecord| u64::from(record.num_prompt_tokens);
    groups.sort_by_cached_key(|(prefix, of)| (Reverse(of.iter().map(asked_tokens).sum::<u64>()), *prefix));
    let others = groups.split_off(groups.len().min(MOST_GROUPS));
    let rest = Hits::of(others.iter().flat_map(|(_, records)| records).copied());
    let named = groups
        .into_iter()
        .map(|(prefix, records)| PrefixGroup { prefix: prefix.map(|id| id.to_string()), hits: Hits::of(records) });
    (named.collect(), others.len() as u64, rest)
}

//! The report of a probe: the cold request, the warm ones, the ladder, and counts of what went wrong.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use crate::connection::ms;
use crate::diagnosis::{Diagnosis, diagnose};
use crate::environment::{Server, Snapshot};
use crate::fault::Fault;
use crate::openai::Api;
use crate::prompts::words_for;
use crate::record::RequestRecord;
use crate::settings::Settings;
use crate::stats::Spread;

/// The report of a probe.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// The server's URL.
    pub url: String,
    /// The endpoint.
    pub api: Api,
    /// The model; empty where it is not known.
    pub model: String,
    /// Most tokens of an output.
    pub max_tokens: u32,
    /// Seed of the prompts.
    pub seed: u64,
    /// Whether all requests have the same prompt.
    pub is_same_prompt: bool,
    /// The server, by its own documents.
    pub server: Server,
    /// The first request.
    pub cold: Option<RequestRecord>,
    /// The second one.
    pub warm_1: Option<RequestRecord>,
    /// Those after it, one by one.
    pub warm: Vec<RequestRecord>,
    /// The ladder.
    pub ladder: Vec<Rung>,
    /// Before the first request.
    pub before: Snapshot,
    /// After the first request.
    pub after_cold: Snapshot,
    /// After the warm requests.
    pub after_warm: Snapshot,
    /// After the ladder.
    pub after_ladder: Option<Snapshot>,
    /// Why requests were not sent, if some were not.
    pub stopped: Option<String>,
    /// Remarks.
    pub notes: Vec<String>,
    /// Words and tokens of the last prompt whose length was to be found out.
    pub(crate) last_sizing: Option<(u64, u64)>,
}

/// The requests of one prompt length and one concurrency.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Rung {
    /// Requested prompt length, tokens.
    pub input_len: u64,
    /// Requests in flight.
    pub concurrency: u32,
    /// Planned requests.
    pub requests: u64,
    /// Requests that were answered to the end.
    pub ok: u64,
    /// Requests by outcome; `not_sent` are those after a fault that lasts.
    pub outcomes: BTreeMap<&'static str, u64>,
    /// Prompt tokens, by the server.
    pub prompt_tokens: Option<Spread>,
    /// Time to first token, ms.
    pub ttft_ms: Option<Spread>,
    /// Times between tokens, ms.
    pub itl_ms: Option<Spread>,
    /// To the end of the reply, ms.
    pub wall_ms: Option<Spread>,
    /// Time from the first request to the end of the last one, ms.
    pub duration_ms: f64,
    /// Output tokens a second of all requests together.
    pub output_tokens_per_s: Option<f64>,
    /// Requests before it that found out how many words make the length.
    pub sizing_requests: u32,
    #[serde(skip)]
    pub(crate) records: Vec<RequestRecord>,
}

impl Rung {
    pub(crate) fn new(
        (input_len, concurrency): (u64, u32),
        requests: u64,
        duration: Duration,
        records: Vec<RequestRecord>,
    ) -> Self {
        let ok: Vec<&RequestRecord> = records.iter().filter(|record| record.is_ok()).collect();
        let mut outcomes = outcomes(records.iter());
        let not_sent = requests.saturating_sub(records.len() as u64);
        if not_sent > 0 {
            outcomes.insert("not_sent", not_sent);
        }
        let tokens = ok.iter().filter_map(|record| record.completion_tokens).fold(0, u64::saturating_add);
        Rung {
            input_len,
            concurrency,
            requests,
            ok: ok.len() as u64,
            outcomes,
            prompt_tokens: Spread::of(ok.iter().filter_map(|record| Some(record.prompt_tokens? as f64))),
            ttft_ms: Spread::of(ok.iter().filter_map(|record| record.ttft_ms)),
            itl_ms: Spread::of(ok.iter().flat_map(|record| record.token_gaps_ms())),
            wall_ms: Spread::of(ok.iter().filter_map(|record| record.wall_ms)),
            duration_ms: ms(duration),
            output_tokens_per_s: (tokens > 0).then(|| tokens as f64 / duration.as_secs_f64()),
            sizing_requests: 0,
            records,
        }
    }

    /// Its requests, in the order in which they were sent.
    pub fn records(&self) -> &[RequestRecord] {
        &self.records
    }

    /// A fault that every further request would meet.
    pub(crate) fn lasting_fault(&self) -> Option<Fault> {
        self.records.iter().filter_map(RequestRecord::fault).find(|fault| fault.kind.is_lasting()).cloned()
    }
}

/// The figures of the warm requests after `warm_1`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WarmSummary {
    /// Requests that were answered to the end.
    pub requests: usize,
    /// Requests that were not.
    pub failed: usize,
    /// Time to first token, ms.
    pub ttft_ms: Option<Spread>,
    /// Times between tokens of all requests, ms.
    pub itl_ms: Option<Spread>,
    /// To the end of the reply, ms.
    pub wall_ms: Option<Spread>,
}

impl Report {
    pub(crate) fn new(settings: &Settings, server: Server) -> Self {
        Report {
            url: settings.target.to_string(),
            api: settings.api,
            model: String::new(),
            max_tokens: settings.max_tokens,
            seed: settings.seed,
            is_same_prompt: settings.is_same_prompt,
            server,
            cold: None,
            warm_1: None,
            warm: Vec::new(),
            ladder: Vec::new(),
            before: Snapshot::default(),
            after_cold: Snapshot::default(),
            after_warm: Snapshot::default(),
            after_ladder: None,
            stopped: None,
            notes: Vec::new(),
            last_sizing: None,
        }
    }

    /// Records why no further requests are sent.
    pub(crate) fn stop(&mut self, reason: String) {
        self.stopped.get_or_insert(reason);
    }

    /// The number of words to begin with for a prompt of so many tokens, from the last prompt of a known length.
    pub(crate) fn words_of_length(&self, input_len: u64) -> u64 {
        self.last_sizing.map_or(input_len, |(words, tokens)| words_for(input_len, words, tokens))
    }

    /// The requests that were sent one by one.
    pub fn one_by_one(&self) -> impl Iterator<Item = &RequestRecord> {
        self.cold.iter().chain(&self.warm_1).chain(&self.warm)
    }

    /// All requests that count.
    pub fn records(&self) -> impl Iterator<Item = &RequestRecord> {
        self.one_by_one().chain(self.ladder.iter().flat_map(|rung| &rung.records))
    }

    /// The warm requests that were answered to the end; of a run of one warm request, that one.
    fn warm_ok(&self) -> Vec<&RequestRecord> {
        let later: Vec<&RequestRecord> = self.warm.iter().filter(|record| record.is_ok()).collect();
        if later.is_empty() { self.warm_1.iter().filter(|record| record.is_ok()).collect() } else { later }
    }

    /// The figures of the warm requests.
    pub fn warm_summary(&self) -> WarmSummary {
        let ok = self.warm_ok();
        let sent = if self.warm.is_empty() { usize::from(self.warm_1.is_some()) } else { self.warm.len() };
        WarmSummary {
            requests: ok.len(),
            failed: sent.saturating_sub(ok.len()),
            ttft_ms: Spread::of(ok.iter().filter_map(|record| record.ttft_ms)),
            itl_ms: Spread::of(ok.iter().flat_map(|record| record.token_gaps_ms())),
            wall_ms: Spread::of(ok.iter().filter_map(|record| record.wall_ms)),
        }
    }

    /// Whether any warm request succeeded.
    pub fn has_warm(&self) -> bool {
        !self.warm_ok().is_empty()
    }

    /// TTFT of the cold request over the median of the warm ones.
    pub fn penalty(&self) -> Option<f64> {
        let (cold_ms, warm_ms) = (self.cold.as_ref()?.ttft_ms?, self.warm_summary().ttft_ms?.median);
        (warm_ms > 0.0).then(|| cold_ms / warm_ms)
    }

    /// Requests by outcome.
    pub fn outcomes(&self) -> BTreeMap<&'static str, u64> {
        outcomes(self.records())
    }

    /// Requests by remark.
    pub fn remarks(&self) -> BTreeMap<&'static str, u64> {
        let mut counts = BTreeMap::new();
        for remark in self.records().flat_map(|record| &record.remarks) {
            *counts.entry(remark.name()).or_default() += 1;
        }
        counts
    }

    /// The cold term that dominated, with the figures that decided.
    pub fn diagnosis(&self) -> Diagnosis {
        diagnose(self)
    }
}

fn outcomes<'a>(records: impl Iterator<Item = &'a RequestRecord>) -> BTreeMap<&'static str, u64> {
    let mut counts = BTreeMap::new();
    for record in records {
        *counts.entry(record.outcome).or_default() += 1;
    }
    counts
}

#[derive(Serialize)]
struct Warm<'a> {
    #[serde(flatten)]
    summary: WarmSummary,
    runs: &'a [RequestRecord],
}

#[derive(Serialize)]
struct Environment<'a> {
    before: &'a Snapshot,
    after_cold: &'a Snapshot,
    after_warm: &'a Snapshot,
    #[serde(skip_serializing_if = "Option::is_none")]
    after_ladder: Option<&'a Snapshot>,
    changes: Vec<Change>,
}

/// The changes on the server between two moments.
#[derive(Serialize)]
struct Change {
    during: &'static str,
    #[serde(flatten)]
    metrics: crate::prometheus::MetricsDelta,
}

/// The report as JSON. Keys are stable.
impl Serialize for Report {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let evidence = self.diagnosis();
        let change = |during, from: &Snapshot, to: Option<&Snapshot>| {
            let metrics = to?.metrics.as_ref()?.since(from.metrics.as_ref()?);
            Some(Change { during, metrics })
        };
        let changes = [
            change("cold", &self.before, Some(&self.after_cold)),
            change("warm", &self.after_cold, Some(&self.after_warm)),
            change("ladder", &self.after_warm, self.after_ladder.as_ref()),
        ];
        let mut json = serializer.serialize_map(None)?;
        json.serialize_entry("url", &self.url)?;
        json.serialize_entry("api", &self.api)?;
        json.serialize_entry("model", &self.model)?;
        json.serialize_entry("max_tokens", &self.max_tokens)?;
        json.serialize_entry("seed", &self.seed)?;
        json.serialize_entry("same_prompt", &self.is_same_prompt)?;
        json.serialize_entry("server", &self.server)?;
        json.serialize_entry("cold", &self.cold)?;
        json.serialize_entry("warm_1", &self.warm_1)?;
        json.serialize_entry("warm", &Warm { summary: self.warm_summary(), runs: &self.warm })?;
        json.serialize_entry("penalty", &self.penalty())?;
        json.serialize_entry("diagnosis", &evidence.name)?;
        json.serialize_entry("evidence", &evidence)?;
        json.serialize_entry("ladder", &self.ladder)?;
        json.serialize_entry("outcomes", &self.outcomes())?;
        json.serialize_entry("remarks", &self.remarks())?;
        json.serialize_entry("retries", &self.records().map(|record| u64::from(record.retries)).sum::<u64>())?;
        let environment = Environment {
            before: &self.before,
            after_cold: &self.after_cold,
            after_warm: &self.after_warm,
            after_ladder: self.after_ladder.as_ref(),
            changes: changes.into_iter().flatten().collect(),
        };
        json.serialize_entry("environment", &environment)?;
        json.serialize_entry("stopped", &self.stopped)?;
        json.serialize_entry("notes", &self.notes)?;
        json.end()
    }
}

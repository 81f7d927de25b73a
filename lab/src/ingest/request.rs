//! Requests of a real engine or load generator as records, whatever trace or report they come from.

use std::collections::BTreeSet;

use ridgepoint::model::{OwnSampling, SamplingParams};
use serde::{Deserialize, Serialize};

use super::hash_chains::HashChains;
use super::list::Numbers;
use super::step::Run;
use super::whole::Whole;

/// A run's requests, in order of arrival where that is known.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RequestTrace {
    /// The run.
    pub run: Run,
    /// Its requests.
    pub requests: Vec<RequestRow>,
}

/// One request, with its fields in the order of the request table's columns. Times are ns on one clock per run: the engine's
/// monotonic clock in traces, the client's in reports. `None` means that the trace or report does not say.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct RequestRow {
    /// Id of the request, unique in its run.
    pub request_id: Box<str>,
    /// Sent by the client, or `api.ARRIVED` at the server.
    pub arrived_ns: Option<Whole>,
    /// Handed to the engine (`api.HANDOFF_TO_CORE`).
    pub handed_over_ns: Option<Whole>,
    /// In the scheduler's waiting queue (`journey.QUEUED`).
    pub queued_ns: Option<Whole>,
    /// First scheduled (`journey.SCHEDULED`, kind FIRST).
    pub scheduled_ns: Option<Whole>,
    /// First token out of the engine (`journey.FIRST_TOKEN`).
    pub first_token_ns: Option<Whole>,
    /// Last token out of the engine (`journey.FINISHED`).
    pub finished_ns: Option<Whole>,
    /// First token at the client or sent to it (`api.FIRST_RESPONSE`).
    pub first_response_ns: Option<Whole>,
    /// Done at the client (`api.DEPARTED`).
    pub departed_ns: Option<Whole>,
    /// Step in which it was first scheduled.
    pub scheduled_step: Option<Whole>,
    /// Step of its first token.
    pub first_token_step: Option<Whole>,
    /// Step of its end.
    pub finished_step: Option<Whole>,
    /// Prompt tokens.
    pub num_prompt_tokens: Option<Whole>,
    /// Prompt tokens found in the prefix cache.
    pub num_cached_tokens: Option<Whole>,
    /// Tokens generated.
    pub num_output_tokens: Option<Whole>,
    /// Number of times that it was preempted.
    pub num_preemptions: Option<Whole>,
    /// `stopped`, `length`, `aborted`, `ignored` or `error`.
    pub finish_status: Option<Box<str>>,
    /// When it was preempted (`journey.PREEMPTED`).
    #[serde(default)]
    pub preempted_ns: Numbers,
    /// Steps of its preemptions.
    #[serde(default)]
    pub preempted_steps: Numbers,
    /// When it was scheduled again after a preemption (`journey.SCHEDULED`, kind RESUME).
    #[serde(default)]
    pub resumed_ns: Numbers,
    /// Steps of these.
    #[serde(default)]
    pub resumed_steps: Numbers,
    /// Tokens of a block that is hashed.
    #[serde(default)]
    pub block_size: Option<u32>,
    /// Chained hashes of its prompt's full blocks: two prompts begin alike as far as these are equal.
    #[serde(default)]
    pub block_hashes: Numbers,
    /// Sampling temperature, the server's default included.
    #[serde(default)]
    pub temperature: Option<f64>,
    /// Its top-p, likewise.
    #[serde(default)]
    pub top_p: Option<f64>,
    /// The most tokens that it may generate (`max_tokens`).
    #[serde(default)]
    pub max_output_tokens: Option<Whole>,
}

/// The sampling parameters of requests, each kind once; empty if no request reports its own.
pub fn own_sampling<'a>(rows: impl IntoIterator<Item = &'a RequestRow>) -> Vec<OwnSampling> {
    let found: BTreeSet<OwnSampling> = rows.into_iter().map(RequestRow::own_sampling).collect();
    let has_some = found.iter().any(|own| *own != OwnSampling::default());
    found.into_iter().filter(|_| has_some).collect()
}

/// Says how many blocks of prompts follow another block than before: a chained hash stands for all that is before it.
pub fn disagreeing_chains(rows: &[RequestRow]) -> Option<String> {
    let mut chains = HashChains::default();
    let odd: u64 = rows.iter().map(|row| chains.add(None, row.block_hashes.iter())).sum();
    (odd > 0).then(|| {
        format!(
            "{odd} block_hashes follow another block than before: the chains disagree, and prefixes are shared wrongly"
        )
    })
}

impl RequestTrace {
    /// Returns the sum of a count over the requests; `None` unless each of them reports it.
    pub(super) fn total(&self, of: impl Fn(&RequestRow) -> Option<u64>) -> Option<f64> {
        self.requests.iter().map(|row| of(row).map(|count| count as f64)).sum()
    }
}

impl RequestRow {
    /// Returns when the request was sent: at the client or server, else when the engine had it.
    pub fn arrival_ns(&self) -> Option<u64> {
        self.arrived_ns.or(self.queued_ns).map(Whole::get)
    }

    /// Returns the id as a number, if it is one. Of requests that arrive together, the engine saw the lower number first.
    pub(crate) fn number(&self) -> Option<u64> {
        self.request_id.parse().ok()
    }

    /// Returns the sampling parameters that it is known to have.
    pub fn own_sampling(&self) -> OwnSampling {
        let RequestRow { temperature, top_p, .. } = *self;
        OwnSampling::from(&SamplingParams { temperature, top_p, ..SamplingParams::default() })
    }

    /// Returns two times, earlier and later by name, of which the later one is before the earlier one. The engine's times must
    /// be in order, and so must the server's; between the two, events may be recorded late.
    pub(super) fn out_of_order(&self) -> Option<[(&'static str, u64); 2]> {
        let arrived = ("arrived_ns", self.arrived_ns);
        let engine = [
            ("queued_ns", self.queued_ns),
            ("scheduled_ns", self.scheduled_ns),
            ("first_token_ns", self.first_token_ns),
            ("finished_ns", self.finished_ns),
        ];
        let server = [arrived, ("first_response_ns", self.first_response_ns), ("departed_ns", self.departed_ns)];
        let handover = [arrived, ("handed_over_ns", self.handed_over_ns)];
        [&engine[..], &server, &handover].into_iter().find_map(|times| {
            let known: Vec<_> = times.iter().filter_map(|(name, time)| Some((*name, (*time)?.get()))).collect();
            known
                .windows(2)
                .find_map(|pair| <[_; 2]>::try_from(pair).ok().filter(|[earlier, later]| later.1 < earlier.1))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sampling_is_that_of_requests_that_report_it() {
        let row = |temperature, top_p| RequestRow { temperature, top_p, ..RequestRow::default() };
        assert!(own_sampling(&[row(None, None), row(None, None)]).is_empty());
        let greedy = row(Some(0.0), Some(1.0));
        assert_eq!(own_sampling(&[greedy.clone(), greedy.clone()]), [greedy.own_sampling()]);
        assert_eq!(own_sampling(&[greedy, row(None, None), row(Some(0.7), Some(0.9))]).len(), 3);
    }

    #[test]
    fn a_hash_has_one_block_before_it() {
        let row =
            |hashes: &[u64]| RequestRow { block_hashes: hashes.iter().copied().collect(), ..RequestRow::default() };
        assert_eq!(disagreeing_chains(&[row(&[1, 2]), row(&[1, 3]), row(&[1, 2, 4]), row(&[])]), None);
        let found = disagreeing_chains(&[row(&[1, 2]), row(&[7, 2]), row(&[2])]).unwrap();
        assert!(found.starts_with("2 block_hashes follow another block"), "{found}");
    }
}

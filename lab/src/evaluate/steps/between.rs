//! The steps between two sampled ones, rebuilt from the journeys of requests: each says in which steps it was first scheduled, had its first
//! token and ended. A trace of a tenth of the steps then describes all of them.
//!
//! A request computes its prompt in the steps from `scheduled_step` to `first_token_step`, in equal parts, and decodes a token in each step from then to
//! `finished_step`. Steps in which one is preempted, waits to be resumed or computes its prompt again are not rebuilt. Rebuilt steps are used
//! if they agree with the sampled ones.

use std::collections::HashMap;

use crate::ingest::{Interval, RequestRow, StepRecord, Whole};
use ridgepoint::correction::Basis;
use ridgepoint::{Request, StepModel};

/// Share of the sampled steps whose decodes must be those of the rebuilt ones, and of those with prompts whose prompt tokens must be.
const LEAST_AGREEMENT: f64 = 0.9;
/// Prompt tokens of a step may differ by this share: what a prompt found in the cache is not always known.
const PROMPT_TOLERANCE: f64 = 0.6;

/// A request on its way through the engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Journey {
    queued_ns: Option<u64>,
    scheduled: u64,
    first_token: u64,
    /// Its last step; that of a request without an end is the trace's.
    finished: u64,
    prompt: u32,
    cached: u32,
    /// Steps from its first preemption to its last resumption, in which it is not rebuilt.
    unknown: Option<(u64, u64)>,
}

impl Journey {
    /// The journey of a request; `None` if its steps are not known.
    pub fn of(row: &RequestRow) -> Option<Journey> {
        let tokens = |count: Option<Whole>| count.and_then(|count| u32::try_from(count.get()).ok());
        let (scheduled, first_token) = (row.scheduled_step?.get(), row.first_token_step?.get());
        let finished = row.finished_step.map_or(u64::MAX, Whole::get);
        let prompt = tokens(row.num_prompt_tokens).filter(|prompt| *prompt > 0)?;
        let steps = row.preempted_steps.iter().chain(row.resumed_steps.iter()).copied();
        let unknown = steps.clone().min().zip(steps.max());
        let cached = tokens(row.num_cached_tokens).unwrap_or(0).min(prompt - 1);
        let journey = Journey {
            queued_ns: row.queued_ns.map(Whole::get),
            scheduled,
            first_token,
            finished,
            prompt,
            cached,
            unknown,
        };
        (scheduled <= first_token && first_token <= finished).then_some(journey)
    }

    /// What it has in a step that it is in; `None` if that is not known.
    #[expect(clippy::cast_possible_truncation, reason = "bounded by the lengths of a request")]
    fn request(&self, step: u64) -> Option<Request> {
        if self.unknown.is_some_and(|(from, to)| (from..=to).contains(&step)) {
            return None;
        }
        if step > self.first_token {
            let decoded = (step - self.first_token - 1).min(u64::from(u32::MAX)) as u32;
            return Some(Request::decode(self.prompt.saturating_add(decoded)));
        }
        let new = u64::from(self.prompt - self.cached);
        let parts = self.first_token - self.scheduled + 1;
        let part = step - self.scheduled;
        let until = |part: u64| (new * part / parts) as u32;
        let (from, to) = (until(part), until(part + 1));
        let (computed, is_last) = (self.cached + from, part + 1 == parts);
        Some(Request::new(computed, (to - from).max(1), is_last))
    }
}

/// What the steps of a row after the sampled one have, beside it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RebuiltRow {
    /// Sum of their terms.
    pub others: Basis,
    /// Terms of the last of them.
    pub last: Basis,
    /// Mean number of waiting requests of all steps of the row.
    pub mean_waiting: Option<f64>,
}

/// Rebuilds the rows of several steps, by the position of their step; empty if what is rebuilt is not what was sampled.
pub(super) fn rebuilt(
    rows: &[Interval],
    steps: &[StepRecord],
    mut journeys: Vec<Journey>,
    model: &StepModel,
) -> HashMap<usize, RebuiltRow> {
    if journeys.is_empty() || rows.iter().all(|row| row.steps == 1) {
        return HashMap::new();
    }
    journeys.sort_by_key(|of| of.scheduled);
    let mut queued_ns: Vec<u64> = journeys.iter().filter_map(|of| of.queued_ns).collect();
    queued_ns.sort_unstable();
    let knows_queue = queued_ns.len() == journeys.len();
    let (mut found, mut active, mut next) = (HashMap::new(), Vec::<&Journey>::new(), 0);
    let mut agreement = Agreement::default();
    for row in rows {
        let Some(sampled) = steps.get(row.first) else { continue };
        let mut at = |step: u64| -> Option<(Vec<Request>, usize)> {
            while let Some(journey) = journeys.get(next).filter(|of| of.scheduled <= step) {
                active.push(journey);
                next += 1;
            }
            active.retain(|of| of.finished >= step);
            let requests: Option<Vec<Request>> = active.iter().map(|of| of.request(step)).collect();
            Some((requests?, next))
        };
        if let Some((requests, _)) = at(sampled.step_id) {
            agreement.compare(&requests, sampled);
        }
        if row.steps == 1 {
            continue;
        }
        let (mut others, mut last, mut waiting) = (Basis::default(), Basis::default(), 0.0);
        let all = (1..row.steps).try_for_each(|ahead| {
            let (requests, scheduled) = at(sampled.step_id + ahead)?;
            last = if requests.is_empty() { Basis::default() } else { model.basis(&requests) };
            others.add_scaled(&last, 1.0);
            let starts_ns = sampled.start_ns as f64 + 1e3 * row.period_us() * ahead as f64;
            let queued = queued_ns.partition_point(|queued_ns| (*queued_ns as f64) <= starts_ns);
            waiting += queued.saturating_sub(scheduled) as f64;
            Some(())
        });
        if all.is_some() {
            let own = f64::from(sampled.queues().num_waiting);
            let mean_waiting = knows_queue.then(|| (own + waiting) / row.steps as f64);
            found.insert(row.first, RebuiltRow { others, last, mean_waiting });
        }
    }
    if agreement.is_enough() { found } else { HashMap::new() }
}

/// How many rebuilt steps are as the sampled ones: by their decodes, and by the prompt tokens of those with some.
#[derive(Default)]
struct Agreement {
    decodes: (u32, u32),
    prompts: (u32, u32),
}

impl Agreement {
    fn compare(&mut self, requests: &[Request], sampled: &StepRecord) {
        let (decodes, chunks): (Vec<&Request>, Vec<&Request>) =
            requests.iter().partition(|of| of.num_scheduled_tokens == 1 && of.num_computed_tokens > 0);
        let prompt_tokens: u64 = chunks.iter().map(|of| u64::from(of.num_scheduled_tokens)).sum();
        self.decodes.1 += 1;
        self.decodes.0 += u32::from(decodes.len() as u64 == u64::from(sampled.num_decode_requests));
        if prompt_tokens > 0 || sampled.prefill_tokens > 0 {
            let off = prompt_tokens.abs_diff(sampled.prefill_tokens);
            self.prompts.1 += 1;
            self.prompts.0 += u32::from(off as f64 <= PROMPT_TOLERANCE * sampled.prefill_tokens as f64);
        }
    }

    fn is_enough(&self) -> bool {
        [self.decodes, self.prompts].iter().all(|(same, all)| f64::from(*same) >= LEAST_AGREEMENT * f64::from(*all))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ridgepoint::correction::Term;
    use ridgepoint::{Deployment, Hardware, Model, Options};

    fn journey(scheduled: u64, first_token: u64, finished: u64, prompt: u64) -> Journey {
        let step = |step: u64| Some(Whole::from(step));
        Journey::of(&RequestRow {
            queued_ns: Some((1000 * scheduled - 500).into()),
            scheduled_step: step(scheduled),
            first_token_step: step(first_token),
            finished_step: step(finished),
            num_prompt_tokens: Some(prompt.into()),
            ..RequestRow::default()
        })
        .expect("steps are in order")
    }

    /// Steps of 1 µs; the step's number is its time in µs.
    fn sampled(step_id: u64, decodes: u32, prompt_tokens: u64) -> StepRecord {
        StepRecord {
            step_id,
            start_ns: 1000 * step_id,
            num_decode_requests: decodes,
            decode_tokens: u64::from(decodes),
            num_prefill_requests: u32::from(prompt_tokens > 0),
            prefill_tokens: prompt_tokens,
            ..StepRecord::default()
        }
    }

    fn rows_of(steps: &[StepRecord], journeys: Vec<Journey>) -> HashMap<usize, RebuiltRow> {
        let (model, gpu) = (Model::find("llama-2-7b").expect("built in"), Hardware::find("h100").expect("built in"));
        let model =
            StepModel::with_options(&model, &gpu, &Deployment::default(), &Options::uncorrected()).expect("possible");
        let row = |(first, pair): (usize, &[StepRecord])| {
            let steps = pair[1].step_id - pair[0].step_id;
            Interval { first, steps, span_us: steps as f64 }
        };
        rebuilt(&steps.windows(2).enumerate().map(row).collect::<Vec<_>>(), steps, journeys, &model)
    }

    #[test]
    fn journeys_tell_what_steps_between_samples_have() {
        // The first decodes throughout. The second has 301 prompt tokens in steps 12 and 13, then decodes until 15.
        let journeys = vec![journey(2, 3, 90, 40), journey(12, 13, 15, 301)];
        let steps = [sampled(10, 1, 0), sampled(14, 2, 0), sampled(18, 1, 0), sampled(19, 1, 0)];
        let rows = rows_of(&steps, journeys);
        let counts = |row: usize| {
            [Term::Steps, Term::Requests, Term::PromptTokens].map(|term| rows[&row].others.get(term).round() as u32)
        };
        // Steps 11, 12, 13, then 15, 16, 17.
        assert_eq!((counts(0), counts(1)), ([3, 5, 301], [3, 4, 0]));
        assert_eq!((rows[&0].last.get(Term::PromptTokens), rows.get(&2)), (151.0, None));
        // The second is queued half a step before it is scheduled: at no step's start does it wait.
        assert_eq!(rows[&0].mean_waiting, Some(0.0));
    }

    #[test]
    fn journeys_of_other_steps_or_with_preemptions_are_not_used() {
        let steps = [sampled(10, 1, 0), sampled(14, 2, 0), sampled(18, 1, 0)];
        assert!(rows_of(&steps, vec![journey(2, 3, 90, 40)]).is_empty(), "one of three samples has another decode");
        let mut journeys = vec![journey(2, 3, 90, 40), journey(12, 13, 15, 301)];
        journeys[0].unknown = Some((16, 17));
        let rows = rows_of(&steps, journeys);
        assert!(rows.contains_key(&0) && !rows.contains_key(&1));
        let bad =
            RequestRow { scheduled_step: Some(5.into()), first_token_step: Some(4.into()), ..RequestRow::default() };
        assert_eq!(Journey::of(&bad), None);
    }
}

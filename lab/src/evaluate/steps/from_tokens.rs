//! Steps out of the token times that a client saw, for a fit where the engine itself was not traced.
//!
//! Tokens of a step leave the engine together, so that chunks of all requests that arrive within a fraction of a gap are a step, and the
//! time from one such step to the next is its period. It is used where nothing hidden can be in it:
//!
//! 1. Every running request has a token in the step, and had one in the step before.
//! 2. No request waits for its first token that was there before the step began, but those that get it in the step.
//! 3. A prompt is computed in one step: it is within the token budget, and arrived at most three steps before its first token.
//! 4. The first step of an idle engine has one request. It begins with the request's arrival and the way to the engine.
//!
//! The way to the engine is what the shortest prompts' TTFT has beyond a decode step: the intercept of a line through TTFT over new
//! prompt tokens, less the median gap. A client can't distinguish it from a price per prompt, and what is too much in one is too little in the
//! other.
#![expect(clippy::indexing_slicing, reason = "indices are those of the requests that were counted")]
#![expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "times within a capture")]

use std::collections::{BTreeMap, HashMap, HashSet};

use super::read::ReadRun;
use crate::ingest::step_table::TableRun;
use crate::ingest::{
    Chunk, DropReason, Dropped, Interval, Periods, RequestTrace, Run, StepRecord, StepTrace, TokenTrace, Whole, gaps_ns,
};
use crate::stats::{median, non_negative_least_squares};
use ridgepoint::Request;
use ridgepoint::units::ns_to_us;

/// Chunks within this share of the median gap are of one step.
const SAME_STEP_SHARE: f64 = 0.25;
/// Token budget of a step where the run does not say: vLLM's least default.
const USUAL_BUDGET: u64 = 2048;
/// Fewest requests: host overheads need as many.
const LEAST_REQUESTS: usize = 20;
/// Steps that a request may have been there before the one of its first token: asynchronous scheduling plans one ahead.
const STEPS_TO_FIRST_TOKEN: usize = 3;

/// No prompt is longer; sums of such lengths fit.
const MOST_PROMPT_TOKENS: u64 = 1 << 32;

/// A request whose tokens have times.
struct TimedRequest<'a> {
    arrived_ns: u64,
    prompt: u64,
    cached: u64,
    chunks: &'a [Chunk],
}

/// A chunk that arrived.
#[derive(Clone, Copy)]
struct Arrival {
    time_ns: u64,
    request: usize,
    chunk: usize,
}

/// Chunks that arrived together.
struct Step {
    time_ns: u64,
    arrivals: Vec<Arrival>,
}

/// Finds the steps of a run, as runs by load: requests in flight and prompt length, both to a power of two, so that each load is fitted
/// in part and judged in part. The requests get the time at which they are queued.
///
/// Returns nothing where too few requests have times of tokens.
pub(super) fn runs(requests: &mut RequestTrace, tokens: &TokenTrace) -> Vec<ReadRun> {
    let by_id: HashMap<&str, &[Chunk]> =
        tokens.requests.iter().map(|of| (of.request_id.as_str(), of.chunks.as_slice())).collect();
    let timed = |row: &crate::ingest::RequestRow| {
        let prompt = row.num_prompt_tokens?.get().min(MOST_PROMPT_TOKENS);
        let cached = row.num_cached_tokens.map_or(0, Whole::get).min(prompt.saturating_sub(1));
        let chunks = *by_id.get(&*row.request_id)?;
        (!chunks.is_empty()).then_some(TimedRequest { arrived_ns: row.arrived_ns?.get(), prompt, cached, chunks })
    };
    let mut timed: Vec<TimedRequest<'_>> = requests.requests.iter().filter_map(timed).collect();
    timed.sort_by_key(|of| of.arrived_ns);
    let gaps = timed.iter().flat_map(|of| gaps_ns(of.chunks));
    let single = gaps.filter(|(_, ended_by)| ended_by.num_tokens == 1).map(|(gap_ns, _)| gap_ns as f64);
    let Some(gap_ns) = median(single.collect()).filter(|gap| *gap > 0.0) else {
        return Vec::new();
    };
    if timed.len() < LEAST_REQUESTS {
        return Vec::new();
    }
    let way_ns = way_to_engine_ns(&timed);
    if let Some(way_ns) = way_ns {
        for row in &mut requests.requests {
            row.queued_ns = row.arrived_ns.map(|arrived| arrived.get().saturating_add(way_ns).into());
            row.first_token_ns = row.first_response_ns;
        }
    }
    let budget = requests.run.max_num_batched_tokens.map_or(USUAL_BUDGET, u64::from);
    let steps = steps(&timed, (SAME_STEP_SHARE * gap_ns) as u64);
    let finder = Finder { requests: &timed, way_ns: way_ns.unwrap_or(0), budget, steps: &steps };
    let way = way_ns.map_or_else(|| "an unknown part".to_owned(), |ns| format!("{} us", ns / 1000));
    finder.by_load(&requests.run, &way)
}

/// Time from a request's arrival to the engine, ns: what TTFT has beyond a step. `None` if too few requests ran alone.
fn way_to_engine_ns(timed: &[TimedRequest<'_>]) -> Option<u64> {
    // Requests that were alone waited for no other, and the median of each length bears a few odd times.
    let mut by_length: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
    let mut gaps = Vec::new();
    for of in alone(timed) {
        let ttft_ns = of.chunks[0].time_ns.saturating_sub(of.arrived_ns);
        by_length.entry(of.prompt - of.cached).or_default().push(ttft_ns as f64);
        gaps.extend(gaps_ns(of.chunks).map(|(gap_ns, _)| gap_ns as f64));
    }
    let points: Vec<([f64; 2], f64)> =
        by_length.into_iter().filter_map(|(tokens, times)| Some(([1.0, tokens as f64], median(times)?))).collect();
    let (rows, times): (Vec<[f64; 2]>, Vec<f64>) = points.into_iter().unzip();
    if rows.len() < 2 {
        return None;
    }
    let [intercept, _] = non_negative_least_squares(&rows, &times, &vec![1.0; rows.len()])?;
    let least = times.iter().copied().fold(f64::INFINITY, f64::min);
    Some((intercept.min(least) - median(gaps)?).max(0.0) as u64)
}

/// The requests that no other one is in flight with; `timed` is in the order of arrival.
fn alone<'a>(timed: &'a [TimedRequest<'a>]) -> impl Iterator<Item = &'a TimedRequest<'a>> {
    let mut busy_until_ns = 0;
    timed.iter().enumerate().filter_map(move |(at, of)| {
        let is_after_all = of.arrived_ns >= busy_until_ns;
        busy_until_ns = busy_until_ns.max(end_ns(of));
        let is_before_next = timed.get(at + 1).is_none_or(|next| next.arrived_ns >= end_ns(of));
        (is_after_all && is_before_next).then_some(of)
    })
}

/// All chunks, those that arrived together as one step.
fn steps(timed: &[TimedRequest<'_>], tolerance_ns: u64) -> Vec<Step> {
    let mut arrivals: Vec<Arrival> = Vec::new();
    for (request, of) in timed.iter().enumerate() {
        arrivals.extend(of.chunks.iter().enumerate().map(|(chunk, at)| Arrival {
            time_ns: at.time_ns,
            request,
            chunk,
        }));
    }
    arrivals.sort_by_key(|of| (of.time_ns, of.request, of.chunk));
    let mut steps: Vec<Step> = Vec::new();
    for arrival in arrivals {
        match steps.last_mut() {
            Some(step)
                if arrival.time_ns - step.time_ns <= tolerance_ns
                    && step.arrivals.iter().all(|of| of.request != arrival.request) =>
            {
                step.arrivals.push(arrival);
            }
            _ => steps.push(Step { time_ns: arrival.time_ns, arrivals: vec![arrival] }),
        }
    }
    steps
}

struct Finder<'a> {
    requests: &'a [TimedRequest<'a>],
    way_ns: u64,
    budget: u64,
    steps: &'a [Step],
}

/// A step whose work and time are known.
struct RecoveredStep {
    start_ns: u64,
    count: u64,
    requests: Vec<Request>,
}

impl Finder<'_> {
    fn by_load(&self, run: &Run, way: &str) -> Vec<ReadRun> {
        let mut loads: BTreeMap<(u32, u32), ReadRun> = BTreeMap::new();
        let (mut step_id, mut left_out) = (0, 0);
        let (mut active, mut arrived) = (Vec::new(), 0);
        for (at, step) in self.steps.iter().enumerate() {
            step_id += 1;
            // Requests that have arrived and had not ended before the last step.
            let before_ns = at.checked_sub(1).map_or(0, |before| self.steps[before].time_ns);
            active.retain(|index: &usize| end_ns(&self.requests[*index]) >= before_ns);
            while self.requests.get(arrived).is_some_and(|of| of.arrived_ns <= step.time_ns) {
                active.push(arrived);
                arrived += 1;
            }
            let Some(RecoveredStep { start_ns, count, requests }) = self.find(at, &active) else {
                // The next step has none before it that is known.
                step_id += 1;
                left_out += 1;
                continue;
            };
            let loads_key = self.load(step, &active);
            let read = loads.entry(loads_key).or_insert_with(|| {
                let (in_flight, tokens) = (1_u64 << loads_key.0, 1_u64 << loads_key.1);
                let experiment = format!("{}, about {in_flight} in flight of about {tokens} tokens", run.experiment);
                let trace = StepTrace { run: Run { experiment, ..run.clone() }, steps: Vec::new() };
                ReadRun {
                    run: TableRun { trace, periods: Periods::default() },
                    is_of_tokens: true,
                    ..ReadRun::default()
                }
            });
            let span_us = ns_to_us(step.time_ns - start_ns);
            let first = read.run.trace.steps.len();
            read.run.trace.steps.push(record(step_id, start_ns, requests));
            read.run.periods.times.push(Ok(Interval { first, steps: count, span_us }));
            step_id += count - 1;
        }
        let mut found: Vec<ReadRun> = loads.into_values().collect();
        if let Some(first) = found.first_mut() {
            first.notes.push(format!(
                "steps are those of token times at the client, {way} of each TTFT being the way to the engine; {left_out} steps may hold other work"
            ));
            let mut dropped = Dropped::default();
            dropped.add_many(DropReason::Incomplete, left_out);
            first.dropped = dropped;
        }
        found
    }

    /// When a request reaches the engine.
    fn queued_ns(&self, of: &TimedRequest<'_>) -> u64 {
        of.arrived_ns.saturating_add(self.way_ns)
    }

    /// Requests in flight and their middle length, as exponents of two.
    fn load(&self, step: &Step, active: &[usize]) -> (u32, u32) {
        let in_flight = active.iter().map(|index| &self.requests[*index]).filter(|of| end_ns(of) >= step.time_ns);
        let mut lengths: Vec<u64> = in_flight.map(|of| of.prompt).collect();
        lengths.sort_unstable();
        let middle = lengths.get(lengths.len() / 2).copied().unwrap_or(1);
        let power = |of: u64| of.max(1).next_power_of_two().trailing_zeros();
        (power(lengths.len() as u64), power(middle))
    }

    /// What a step holds and when it began; `None` where that is not certain.
    fn find(&self, at: usize, active: &[usize]) -> Option<RecoveredStep> {
        let step = &self.steps[at];
        let before = at.checked_sub(1).map(|before| &self.steps[before]);
        let of = |arrival: &Arrival| &self.requests[arrival.request];
        let (firsts, decodes): (Vec<Arrival>, Vec<Arrival>) =
            step.arrivals.iter().partition(|arrival| arrival.chunk == 0);
        let members: HashSet<usize> = step.arrivals.iter().map(|arrival| arrival.request).collect();
        let start_ns = if decodes.is_empty() {
            let [only] = firsts.as_slice() else { return None };
            let begin_ns = self.queued_ns(of(only));
            // Another request that is running would have a token here.
            before.is_none_or(|before| before.time_ns <= begin_ns).then_some(begin_ns)?
        } else {
            before?.time_ns
        };
        if start_ns >= step.time_ns {
            return None;
        }
        let earlier: HashSet<(usize, usize)> =
            before.iter().flat_map(|step| &step.arrivals).map(|arrival| (arrival.request, arrival.chunk)).collect();
        if decodes.iter().any(|arrival| !earlier.contains(&(arrival.request, arrival.chunk - 1))) {
            return None;
        }
        let hides = |index: &usize| {
            let request = &self.requests[*index];
            let is_running = request.chunks[0].time_ns <= start_ns && end_ns(request) > start_ns;
            let is_waiting = self.queued_ns(request) <= start_ns && request.chunks[0].time_ns > start_ns;
            !members.contains(index) && (is_running || is_waiting)
        };
        if active.iter().any(hides) {
            return None;
        }
        // A prompt that arrived while the step ran is not part of it, and one that arrived long before was computed in parts.
        let oldest_ns = at.checked_sub(STEPS_TO_FIRST_TOKEN + 1).map_or(0, |oldest| self.steps[oldest].time_ns);
        let is_whole =
            |first: &Arrival| decodes.is_empty() || (oldest_ns..=start_ns).contains(&self.queued_ns(of(first)));
        let new: u64 = firsts.iter().map(|first| of(first).prompt - of(first).cached).sum();
        if !firsts.iter().all(is_whole) || (!firsts.is_empty() && new + decodes.len() as u64 > self.budget) {
            return None;
        }
        let chunk = |arrival: &Arrival| of(arrival).chunks[arrival.chunk];
        // Tokens that arrive together at a client of one request are as many steps.
        let count = match decodes.as_slice() {
            [only] if firsts.is_empty() => u64::from(chunk(only).num_tokens),
            _ => 1,
        };
        if count == 1 && step.arrivals.iter().any(|arrival| chunk(arrival).num_tokens != 1) {
            return None;
        }
        let small = |tokens: u64| u32::try_from(tokens).unwrap_or(u32::MAX);
        let decode = |arrival: &Arrival| {
            let made: u64 = of(arrival).chunks[..arrival.chunk].iter().map(|chunk| u64::from(chunk.num_tokens)).sum();
            Request::decode(small(of(arrival).prompt + made - 1))
        };
        let prefill = |arrival: &Arrival| {
            Request::prefill(small(of(arrival).prompt - of(arrival).cached), small(of(arrival).cached))
        };
        Some(RecoveredStep {
            start_ns,
            count,
            requests: decodes.iter().map(decode).chain(firsts.iter().map(prefill)).collect(),
        })
    }
}

fn end_ns(of: &TimedRequest<'_>) -> u64 {
    of.chunks.last().map_or(0, |last| last.time_ns)
}

fn record(step_id: u64, start_ns: u64, requests: Vec<Request>) -> StepRecord {
    let (decodes, prefills): (Vec<&Request>, Vec<&Request>) = requests.iter().partition(|of| of.is_decode());
    let scheduled = |of: &[&Request]| of.iter().map(|of| u64::from(of.num_scheduled_tokens)).sum();
    let computed = |of: &[&Request]| of.iter().map(|of| u64::from(of.num_computed_tokens)).sum();
    StepRecord {
        step_id,
        start_ns,
        num_prefill_requests: prefills.len() as u32,
        num_decode_requests: decodes.len() as u32,
        prefill_tokens: scheduled(&prefills),
        decode_tokens: scheduled(&decodes),
        prefill_kv_tokens: Some(computed(&prefills)),
        decode_kv_tokens: Some(computed(&decodes)),
        num_running: Some(requests.len() as u32),
        requests: Some(requests),
        ..StepRecord::default()
    }
}

#[cfg(test)]
#[path = "from_tokens_tests.rs"]
mod tests;

//! Per-token JSONL: a line per finished request, with the gaps between its tokens and the step that closed each gap.
//!
//! # Source
//! The capture format of vllm-vcr 0.x.
#![expect(clippy::indexing_slicing, reason = "steps are numbered as they come, and there is a count for every record")]
#![expect(clippy::cast_possible_truncation, reason = "2^32 steps would take years to replay")]

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::{self, BufWriter, Write};

use ridgepoint::units::ns_to_ms;
use serde::Serialize;

use super::super::grown::grown;
use super::TokenTimes;
use crate::prefix::hash_content;
use crate::workload::Content;
use crate::{Event, Events, Observer, Outcome, RequestRecord, StepEvent};

/// The first line of the file: what was replayed.
#[derive(Debug, Clone, Serialize)]
pub struct TokenMeta<'a> {
    /// The model.
    pub model: &'a str,
    /// The GPU.
    pub gpu: &'a str,
    /// GPUs that share every layer.
    pub tp: u32,
    /// Most requests in a step.
    pub max_num_seqs: u32,
    /// Tokens of a KV block.
    pub block_size: u32,
    /// The program that wrote the file.
    pub source: &'a str,
}

/// An observer that keeps the time and the step of every token, 12 bytes each.
#[derive(Debug, Clone, Default)]
pub struct TokenSteps {
    times: TokenTimes,
    /// By record, the steps that sampled its tokens.
    steps: Vec<Vec<u32>>,
    /// By step, the running requests.
    num_running: Vec<u32>,
}

impl TokenSteps {
    fn add(&mut self, event: &StepEvent<'_>) {
        let step = self.num_running.len() as u32;
        self.num_running.push(event.num_running);
        for (_, record) in event.step.requests.iter().zip(event.records).filter(|(request, _)| request.samples) {
            grown(&mut self.steps, *record as usize, Vec::new).push(step);
        }
    }
}

impl Observer for TokenSteps {
    fn wants(&self) -> Events {
        Events::STEPS | Events::TOKENS
    }

    fn on(&mut self, event: &Event<'_>) {
        match event {
            Event::Step(step) => self.add(step),
            other => self.times.on(other),
        }
    }
}

/// The line of a request. Requests come in the order in which they finish.
#[derive(Serialize)]
struct Line {
    request_id: String,
    arrival_ms: f64,
    prompt_tokens: u32,
    cached_tokens: u32,
    output_tokens: u32,
    ttft_ms: f64,
    itl_ms: Vec<f64>,
    itl_ctx: Context,
    concurrency: usize,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    block_hashes: Vec<u64>,
    finish_reason: &'static str,
}

/// The steps that closed the gaps.
#[derive(Serialize)]
struct Context {
    num_running: Vec<u32>,
    prefill_tokens: Vec<u64>,
}

impl TokenSteps {
    /// Writes the finished requests. `contents` are the beginnings of prompts that others share, by record.
    ///
    /// # Errors
    /// Errors of `out`.
    pub fn write(
        &self,
        out: impl Write,
        meta: &TokenMeta<'_>,
        records: &[RequestRecord],
        contents: &[Option<Content>],
    ) -> io::Result<()> {
        let mut out = BufWriter::new(out);
        writeln!(out, "{}", serde_json::json!({ "meta": meta }))?;
        let prefill_tokens = self.prefill_tokens(records);
        let in_flight = in_flight(records);
        let mut finished: Vec<usize> =
            (0..records.len()).filter(|at| records[*at].outcome == Outcome::Finished).collect();
        finished.sort_by_key(|at| records[*at].finish_ns);
        for at in finished {
            let record = &records[at];
            let steps = self.steps.get(at).map_or(&[][..], Vec::as_slice);
            let closing = steps.iter().skip(1).map(|step| *step as usize);
            let mut block_hashes = Vec::new();
            if let Some(content) = contents.get(at).and_then(Option::as_ref) {
                hash_content(content, record.num_prompt_tokens, meta.block_size, &mut block_hashes);
            }
            let line = Line {
                request_id: at.to_string(),
                arrival_ms: ns_to_ms(record.arrival_ns),
                prompt_tokens: record.num_prompt_tokens,
                cached_tokens: record.num_cached_tokens,
                output_tokens: record.num_output_tokens,
                ttft_ms: record.ttft_ms(),
                itl_ms: self.times.gaps_ns(at).map(ns_to_ms).collect(),
                itl_ctx: Context {
                    num_running: closing.clone().map(|step| self.num_running[step]).collect(),
                    prefill_tokens: closing.map(|step| prefill_tokens[step]).collect(),
                },
                concurrency: in_flight[at],
                block_hashes,
                finish_reason: "length",
            };
            serde_json::to_writer(&mut out, &line)?;
            out.write_all(b"\n")?;
        }
        out.flush()
    }

    /// By step, the computed prompt tokens of the requests whose first token it samples.
    fn prefill_tokens(&self, records: &[RequestRecord]) -> Vec<u64> {
        let mut tokens = vec![0; self.num_running.len()];
        for (steps, record) in self.steps.iter().zip(records) {
            if let Some(first) = steps.first() {
                tokens[*first as usize] += u64::from(record.num_prompt_tokens.saturating_sub(record.num_cached_tokens));
            }
        }
        tokens
    }
}

/// By record, the requests in flight when it arrived, itself included. Records come in the order of arrival.
fn in_flight(records: &[RequestRecord]) -> Vec<usize> {
    let mut ends = BinaryHeap::new();
    let mut counts = Vec::with_capacity(records.len());
    for record in records {
        while ends.peek().is_some_and(|Reverse(end_ns)| *end_ns <= record.arrival_ns) {
            ends.pop();
        }
        let is_over = record.outcome != Outcome::Unfinished;
        ends.push(Reverse(if is_over { record.finish_ns } else { u64::MAX }));
        counts.push(ends.len());
    }
    counts
}

#[cfg(test)]
#[path = "token_jsonl_tests.rs"]
mod tests;
